"""A model broker that makes correct histories, which the checker must never flag.

    seed --> operations with an invoke, a moment of effect and an answer --> events of a correct run

The model has delays, priorities, leases, touches, nacks, expiry, dead letters, repeated publishes with one
id, batches, lost answers, and crashes that forget the newest deliveries of a queue that is not strict. It
is seeded and uses no clock; the same seed gives the same history.
"""

import random
from dataclasses import dataclass, field
from math import inf

from tests.helpers.histories.history import Event, History, Kind

QUEUE = "work"
DEAD = "work.dead"
FORGOTTEN_S = 0.02  # a delivery is in the log this long after it was made


@dataclass(slots=True)
class Stored:
    """One message inside of the model."""

    plan: Event
    uid: str
    order: int
    ready_s: float
    queue: str = QUEUE
    leased_until_s: float = -inf
    lease: str = ""
    claims: int = 0
    claimed_s: float = -inf
    lease_before: tuple[str, float, int] = ("", -inf, 0)


@dataclass(frozen=True, slots=True)
class Held:
    """What a client knows after a delivery."""

    task: str
    uid: str
    queue: str
    lease: str
    since_s: float


@dataclass(slots=True)
class ModelBroker:
    """Makes one correct history, step by step; `now_s` is the moment of effect of the current operation."""

    seed: int
    draw: random.Random = field(init=False)
    history: History = field(init=False)
    now_s: float = 100.0
    clock_s: float = 100.0
    stored: dict[str, Stored] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)
    number: int = 0
    strict: bool = False
    ids: dict[str, tuple[Event, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.history = History(clock=lambda: self.clock_s)
        self.strict = self.draw.random() < 0.3

    def run(self, steps: int) -> list[Event]:
        """Return the events of a run that ends with a drain."""
        actions = (
            self._publish,
            self._publish,
            self._fetch,
            self._fetch,
            self._settle,
            self._settle,
            self._settle,
        )
        for _ in range(steps):
            self.now_s += self.draw.choice((0.001, 0.01, 0.05, 0.5, 3.0))
            chance = self.draw.random()
            if chance < 0.03:
                self._crash()
            elif chance < 0.06 and self.ids:
                self._publish_again()
            else:
                self.draw.choice(actions)()
        self._drain()
        return self.history.events

    # Operations ---------------------------------------------------------------------------------------------

    def _before(self, not_before_s: float = -inf) -> None:
        """Set the ledger's clock to some moment at or before the effect."""
        self.clock_s = max(not_before_s, self.now_s - self.draw.random() * 0.02)

    def _after(self) -> None:
        self.clock_s = self.now_s + self.draw.random() * 0.02

    def _lost(self) -> bool:
        return self.draw.random() < 0.05

    def _publish(self) -> None:
        size = self.draw.choice((1, 1, 1, 3))
        batch = self.history.new_id() if size > 1 else 0
        self._before()
        plans = [self._plan(batch) for _ in range(size)]
        lost, stored = self._lost(), True
        if lost:
            stored = self.draw.random() < 0.5
        refused = not lost and self.draw.random() < 0.05
        self._after()
        for plan in plans:
            uid = "" if refused or not stored else self._store(plan)
            if refused:
                self.history.fail("publish", plan.op)
            elif lost:
                self.history.unknown("publish", plan.op)
            else:
                self.history.ok("publish", plan.op, task=plan.task, uid=uid)
                if plan.publish_id:
                    self.ids[plan.publish_id] = (plan, uid)

    def _plan(self, batch: int) -> Event:
        self.number += 1
        limited = self.draw.random() < 0.2
        with_id = not batch and self.draw.random() < 0.2
        self.history.invoke(
            "publish",
            task=f"t{self.number}",
            queue=QUEUE,
            digest=self.number,
            batch=batch,
            strict=self.strict,
            priority=self.draw.choice((0, 0, 0, -20, 20)),
            delay_s=self.draw.choice((0, 0, 0, 1, 5)),
            timeout_s=self.draw.choice((5, 5, 60)),
            expires_s=self.draw.choice((0, 0, 0, 8)),
            publish_id=f"id{self.number}" if with_id else "",
            max_deliveries=2 if limited else 0,
            dead_letter=DEAD if limited else "",
        )
        return self.history.events[-1]

    def _store(self, plan: Event) -> str:
        uid = f"0000001_{len(self.stored) + self.number:08d}{plan.op}"
        ready_s = self.now_s + plan.delay_s
        self.stored[uid] = Stored(plan, uid, plan.op, ready_s)
        return uid

    def _publish_again(self) -> None:
        """Repeat a publish with its id: the answer is the first uid, and nothing is stored."""
        plan, uid = self.draw.choice(list(self.ids.values()))
        self._before()
        op = self.history.invoke(
            "publish",
            task=plan.task,
            queue=QUEUE,
            digest=plan.digest,
            priority=plan.priority,
            delay_s=plan.delay_s,
            timeout_s=plan.timeout_s,
            expires_s=plan.expires_s,
            publish_id=plan.publish_id,
            strict=self.strict,
            max_deliveries=plan.max_deliveries,
            dead_letter=plan.dead_letter,
        )
        self._after()
        self.history.ok("publish", op, task=plan.task, uid=uid)

    def _fetch(self, queue: str = "") -> bool:
        queue = queue or (DEAD if self.draw.random() < 0.1 else QUEUE)
        self._before()
        op = self.history.invoke("deliver", queue=queue)
        taken = self._take(queue, self.draw.choice((1, 1, 4)))
        self._after()
        if self._lost():
            self.history.unknown("deliver", op)
        elif not taken:
            self.history.fail("deliver", op)
        else:
            for message in taken:
                self.history.ok(
                    "deliver",
                    op,
                    task=message.plan.task,
                    queue=queue,
                    uid=message.uid,
                    lease=message.lease,
                    error_count=message.claims - 1,
                    digest=message.plan.digest,
                )
                self.held.append(Held(message.plan.task, message.uid, queue, message.lease, self.clock_s))
        return bool(taken)

    def _take(self, queue: str, count: int) -> list[Stored]:
        self._expire_and_bury()
        ready = [
            message
            for message in self.stored.values()
            if message.queue == queue and message.ready_s <= self.now_s and message.leased_until_s <= self.now_s
        ]
        ready.sort(key=lambda message: (message.plan.priority, message.order))
        for message in ready[:count]:
            message.lease_before = (message.lease, message.leased_until_s, message.claims)
            message.claims += 1
            message.claimed_s = self.now_s
            message.lease = f"1.{self.history.new_id()}"
            message.leased_until_s = self.now_s + message.plan.timeout_s
            message.order = self.history.new_id()  # what comes back goes to the end
        return ready[:count]

    def _expire_and_bury(self) -> None:
        for uid, message in list(self.stored.items()):
            plan = message.plan
            if message.leased_until_s > self.now_s or message.queue == DEAD:
                continue
            if plan.expires_s and self.now_s >= self._stored_s(message) + plan.expires_s:
                del self.stored[uid]
            elif plan.max_deliveries and message.claims >= plan.max_deliveries:
                del self.stored[uid]
                dead = Stored(plan, "dead" + uid, message.order, self.now_s, queue=DEAD)
                self.stored[dead.uid] = dead

    @staticmethod
    def _stored_s(message: Stored) -> float:
        return message.plan.at_s

    def _settle(self) -> None:
        """Acknowledge, give back or touch something that a client holds, perhaps long after it lost it."""
        ready = [held for held in self.held if held.since_s <= self.now_s]
        if not ready:
            return
        held = self.draw.choice(ready)
        kinds: tuple[Kind, ...] = ("ack", "ack", "nack", "touch")
        kind = self.draw.choice(kinds)
        delay_s, timeout_s = self.draw.choice((0, 0, 2)), self.draw.choice((5, 20))
        self._before(held.since_s)
        op = self.history.invoke(
            kind,
            task=held.task,
            queue=held.queue,
            uid=held.uid,
            lease=held.lease,
            delay_s=delay_s,
            timeout_s=timeout_s,
        )
        self._answer(kind, op, held, delay_s=delay_s, timeout_s=timeout_s)

    def _answer(self, kind: Kind, op: int, held: Held, *, delay_s: float, timeout_s: float) -> None:
        lost = self._lost()
        self._expire_and_bury()
        message = self.stored.get(held.uid)
        stale = message is not None and message.lease != held.lease
        if message is not None and kind == "touch" and message.leased_until_s <= self.now_s:
            stale = True  # it was let go already
        if message is not None and not stale and not (lost and self.draw.random() < 0.5):
            self._apply(kind, message, delay_s=delay_s, timeout_s=timeout_s)
        self._after()
        if lost:
            self.history.unknown(kind, op)
        elif stale or (message is None and kind != "ack"):
            self.history.fail(kind, op)
        else:
            self.history.ok(kind, op, task=held.task, known=message is not None)

    def _apply(self, kind: Kind, message: Stored, *, delay_s: float, timeout_s: float) -> None:
        message.lease_before = (message.lease, message.leased_until_s, message.claims)
        match kind:
            case "ack":
                del self.stored[message.uid]
            case "nack":
                message.leased_until_s, message.ready_s = -inf, self.now_s + delay_s
                message.claimed_s = -inf  # the release is on the ring: nothing of it is forgotten
            case _:
                message.claimed_s = self.now_s
                message.leased_until_s = self.now_s + timeout_s

    def _crash(self) -> None:
        """The broker dies: the newest deliveries and touches of a queue that is not strict are forgotten."""
        self.clock_s = self.now_s
        self.history.crash()
        for message in self.stored.values():
            young = message.claimed_s > self.now_s - FORGOTTEN_S
            if young and not self.strict and self.draw.random() < 0.7:
                message.lease, message.leased_until_s, message.claims = message.lease_before

    def _drain(self) -> None:
        """Fetch and acknowledge until nothing is left, waiting for what is delayed or held."""
        while self.stored:
            self.now_s += 61
            for queue in (QUEUE, DEAD):
                while self._fetch(queue):
                    self._acknowledge_all()
            self._expire_and_bury()

    def _acknowledge_all(self) -> None:
        self.now_s += 0.05
        for held in self.held:
            if held.uid in self.stored and self.stored[held.uid].lease == held.lease:
                self._before(held.since_s)
                op = self.history.invoke("ack", task=held.task, queue=held.queue, uid=held.uid, lease=held.lease)
                self._answer("ack", op, held, delay_s=0, timeout_s=5)
        self.held.clear()
        self.now_s += 0.05


def good_history(seed: int, steps: int = 12) -> list[Event]:
    """Return the events of one correct run."""
    return ModelBroker(seed).run(steps)
