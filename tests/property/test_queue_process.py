"""The real processes against a model of what users may rely on, under any order of commands, time, crashes.

The model knows no rule of waking or timing: after every step the broker itself is asked what is available, and no
worker may sleep or wait beside an available message.  The model keeps the messages that must not be lost, stored or
delivered twice.
"""

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.helpers.brokers.broker import Broker
from tests.helpers.brokers.by_hand import Json
from tests.helpers.disks.memory_folder import memory_folder
from tests.helpers.examples import examples
from wakeq.actors.mail import Propose
from wakeq.actors.sessions.operator_mail import Move, Requeue
from wakeq.protocol.log.entries import PAUSE_MS_MAX, PauseQueue, Result
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.ledger.ledger import Ledger

QUEUES = ("a", "b")
WORKERS = 4

names = st.sampled_from(QUEUES)
wakes = st.sampled_from(["ready", "ready", "all"])
workers = st.integers(0, WORKERS - 1)
policies = st.fixed_dictionaries(
    {},
    optional={
        "wake": st.sampled_from(["all", "ready"]),
        "lease": st.sampled_from(["fast", "strict"]),
        "on_disconnect": st.sampled_from(["keep", "release"]),
        "max_deliveries": st.sampled_from([0, 2]),
    },
)


class Life:
    """One message as its users know it."""

    def __init__(self, name: str, body: str, fields: Json, now_ms: int) -> None:
        self.name = name
        self.body = body
        self.due_ms = now_ms + 1000 * fields.get("delay", 0)
        self.expires_ms = now_ms + 1000 * fields["expires"] if fields.get("expires") else 1 << 62
        self.holder: int | None = None
        self.until_ms = 0
        self.deliveries = 0
        self.returned = 0  # deliveries that ended and are no failures
        self.rejected = False
        self.acked = False


class QueueMachine(RuleBasedStateMachine):
    """Commands of several workers, with or without rest between them, time, crashes and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.exits = contextlib.ExitStack()
        self.broker = Broker(self.exits.enter_context(memory_folder()))
        self.lives: dict[str, Life] = {}
        self.paused_until_ms = dict.fromkeys(QUEUES, 0)
        self.count = 0
        self.open()

    def open(self) -> None:
        self.publisher = self.broker.client()
        self.workers = [self.broker.client() for _ in range(WORKERS)]

    @initialize(first=policies, second=policies)
    def create(self, first: Json, second: Json) -> None:
        for name, fields in zip(QUEUES, (first, second), strict=True):
            self.publisher.call("CREATE", name, **fields)
            for worker in self.workers:
                worker.call("SUB", name)

    def read(self) -> None:
        """Take note of what every worker has received."""
        for place, worker in enumerate(self.workers):
            for reply in worker.take():
                if reply["cmd"] == "msg":
                    self.delivered(place, reply)
                if reply["cmd"] == "msgs":
                    for message in reply["messages"]:
                        self.delivered(place, {"qname": reply["qname"], **message})

    def delivered(self, place: int, message: Json) -> None:
        life = self.lives[message["uid"]]
        now_ms = self.broker.now_ms()
        assert not life.acked, f"{life.body} was delivered after its acknowledgement"
        assert not life.rejected, f"{life.body} was delivered after it was rejected"
        assert now_ms >= life.due_ms, f"{life.body} came early"
        assert now_ms < life.expires_ms, f"{life.body} came after its expiry"
        assert now_ms >= life.until_ms, f"{life.body} was out with {life.holder}"
        assert now_ms >= self.paused_until_ms[life.name], f"{life.body} came while its queue was paused"
        assert (message["msg"], message["qname"]) == (life.body, life.name)
        assert message["error_count"] == life.deliveries, f"{life.body} has a wrong error count"
        failures = message.get("failures", message["error_count"])
        assert failures == life.deliveries - life.returned, f"{life.body} has a wrong number of failures"
        life.deliveries += 1
        life.holder, life.until_ms = place, now_ms + 5_000

    # What users do -------------------------------------------------------------------------------------------------

    @rule(name=names, count=st.integers(1, 3), delay=st.sampled_from([0, 0, 0, 3]), expires=st.sampled_from([0, 0, 8]))
    def publish(self, name: str, count: int, delay: int, expires: int) -> None:
        fields = {"delay": delay, "expires": expires, "timeout": 5}
        bodies = [f"m{self.count + i}" for i in range(count)]
        self.count += count
        for uid, body in zip(self.publisher.call("PUB", name, messages=bodies, **fields)["uids"], bodies, strict=True):
            assert uid not in self.lives, "a uid was given twice"
            self.lives[uid] = Life(name, body, fields, self.broker.now_ms())
        self.read()

    @rule(who=workers, name=names, cmd=st.sampled_from(["FET", "SUB", "UNS"]), count=st.sampled_from([0, 2]))
    def command(self, who: int, name: str, cmd: str, count: int) -> None:
        fields = {"count": count} if cmd == "FET" and count else {}
        self.workers[who].send({"cmd": cmd, "qname": name, **fields})
        self.read()

    @rule(who=workers, name=names, wake=wakes)
    def sleep(self, who: int, name: str, wake: str) -> None:
        self.workers[who].send({"cmd": "ISLP", "qname": name, "wake": wake})
        self.read()

    @rule(who=workers, name=names, wait=st.sampled_from([1, 7]), own=st.booleans())
    def wait(self, who: int, name: str, wait: int, own: bool) -> None:
        # An answer without cmd_id would stand behind an earlier wait, and be seen later than it was handed out.
        apart: list[Json] = [] if own else [{"cmd": "PING"}]
        self.workers[who].send(*apart, {"cmd": "FET", "qname": name, "wait": wait, **({"cmd_id": 1} if own else {})})
        self.read()

    @rule(data=st.data(), name=names)
    def all_at_once(self, data: st.DataObject, name: str) -> None:
        """Several workers act before anybody is served."""
        for place, worker in enumerate(self.workers):
            match data.draw(st.sampled_from(["", "FET", "gone", "UNS", "both"])):
                case "":
                    pass
                case "gone":
                    worker.alive = False
                    worker.process.stop()
                    self.workers[place] = self.broker.client()
                    sleeps = {"cmd": "ISLP", "qname": name, "wake": data.draw(wakes)}
                    self.workers[place].send({"cmd": "SUB", "qname": name}, sleeps)
                    self.let_go(place)
                case "both":
                    sleeps = {"cmd": "ISLP", "qname": name, "wake": data.draw(wakes)}
                    worker.send({"cmd": "FET", "qname": name}, sleeps)
                case cmd:
                    worker.send({"cmd": cmd, "qname": name})
        self.read()

    def let_go(self, place: int) -> None:
        """A worker's connection is gone: its messages may come back at once."""
        for life in self.lives.values():
            if life.holder == place:
                life.until_ms = 0

    def some_held(self, data: st.DataObject) -> tuple[str, Life] | None:
        held = [(uid, life) for uid, life in self.lives.items() if life.deliveries and not life.acked]
        return data.draw(st.sampled_from(held)) if held else None

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        if found := self.some_held(data):
            uid, life = found
            reply = self.publisher.call("ACK", life.name, uid=uid)
            assert reply["cmd"] == "okack"
            life.acked = reply.get("known", True)  # else it had expired or is a dead letter
            self.read()

    @rule(data=st.data(), delay=st.sampled_from([None, 2]))
    def give_back(self, data: st.DataObject, delay: int | None) -> None:
        if found := self.some_held(data):
            uid, life = found
            fields: dict[str, Any] = {} if delay is None else {"delay": delay}
            now_ms = self.broker.now_ms()
            if self.publisher.call("NACK", life.name, uid=uid, **fields).get("known", True):
                life.until_ms = now_ms + 1000 * (delay or 0)
            self.read()

    # What owners do ------------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def return_or_reject(self, data: st.DataObject) -> None:
        if found := self.some_held(data):
            uid, life = found
            fields = data.draw(st.sampled_from([{"failed": False}, {"dead": True}]))
            if self.publisher.call("NACK", life.name, uid=uid, **fields).get("known", True):
                life.until_ms = self.broker.now_ms()
                life.returned += "failed" in fields
                life.rejected = "dead" in fields
            self.read()

    @rule(name=names, fields=policies)
    def update(self, name: str, fields: Json) -> None:
        self.publisher.call("UPDATE", name, **fields)
        self.read()

    @rule(name=names, cmd=st.sampled_from(["PURGE", "DROP"]))
    def empty(self, name: str, cmd: str) -> None:
        self.publisher.call(cmd, name)
        if cmd == "DROP":
            self.paused_until_ms[name] = 0
        for life in self.lives.values():
            life.acked = life.acked or life.name == name
        self.publisher.call("CREATE", name)
        self.read()

    # What operators do ---------------------------------------------------------------------------------------------

    @rule(name=names, seconds=st.sampled_from([0, 0, 2, 8, None]))
    def pause(self, name: str, seconds: int | None) -> None:
        now_ms = self.broker.now_ms()
        until_ms = PAUSE_MS_MAX if seconds is None else now_ms + 1000 * seconds if seconds else 0
        outcome = self.broker.operate(name, lambda me: Propose([Proposal(PauseQueue(name, until_ms), me)]))
        assert outcome.results == [Result.DONE]
        self.paused_until_ms[name] = min(self.paused_until_ms[name], until_ms)  # a FET that waited is served at once
        self.read()  # what was on its way
        self.paused_until_ms[name] = until_ms

    def some_here(self, data: st.DataObject) -> tuple[str, Life] | None:
        here = [(uid, life) for uid, life in self.lives.items() if not life.acked]
        return data.draw(st.sampled_from(here)) if here else None

    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        if found := self.some_here(data):
            uid, life = found
            now_ms = self.broker.now_ms()
            outcome = self.broker.operate(life.name, lambda me: Requeue(me, life.name, [uid]))
            if outcome.results[0] == Result.DONE:
                life.due_ms, life.until_ms = min(life.due_ms, now_ms), min(life.until_ms, now_ms)
            self.read()

    @rule(data=st.data(), to=st.sampled_from([*QUEUES, None]), slowly=st.booleans())
    def move(self, data: st.DataObject, to: str | None, slowly: bool) -> None:
        if not (found := self.some_here(data)) or found[1].name == to:
            return
        uid, life = found
        if slowly:
            self.broker.queue(life.name).bodies.flushed(lambda count: [], 0)
        moved = self.broker.operate(life.name, lambda me: Move(me, life.name, [uid], to))
        new = moved.uids[uid]
        if new == "":
            life.acked = True
        elif new:
            assert to is not None
            self.lives[new] = self.lives.pop(uid)
            life.name, life.deliveries, life.returned, life.until_ms = to, 0, 0, 0
        self.read()

    # What happens --------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.05, 1.0, 3.0, 5.0, 9.0]))
    def pass_time(self, seconds: float) -> None:
        for _ in range(max(1, int(seconds))):
            self.broker.advance(min(seconds, 1.0))
            self.read()

    @rule()
    def flush(self) -> None:
        self.broker.flush()
        for name in QUEUES:
            self.broker.queue(name).bodies.flushed(lambda count: [], 0)
        self.read()

    @rule(name=names)
    def crash_queue(self, name: str) -> None:
        """A bug ends a queue process: it is rebuilt and remembers everything that it must."""
        publish, times = Ledger.publish, [1]

        def fragile(ledger: Ledger, entry: Any, at_ms: int) -> Any:
            if times[0] and ledger.name == name:
                times[0] = 0
                raise ZeroDivisionError("poisoned")
            return publish(ledger, entry, at_ms)

        self.broker.advance(0.05)  # what was delivered is committed: a fast queue may forget younger leases
        self.read()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Ledger, "publish", fragile)
            self.publish(name, 1, 0, 0)
        assert not times[0]
        self.broker.queues.rebuilds._crashes.clear()

    @rule(name=names)
    def crash_outside_of_an_entry(self, name: str) -> None:
        self.broker.advance(0.05)
        self.read()
        self.broker.queue(name).tell(object())  # no handler knows it
        self.broker.queues.rebuilds._crashes.clear()
        self.read()

    @rule(name=names, who=workers, count=st.sampled_from([0, 2]), leaves=st.booleans())
    def fetch_slowly(self, name: str, who: int, count: int, leaves: bool) -> None:
        """The disk takes its time for the bodies; the worker may be gone by then."""
        self.broker.reader_disk.held = True
        self.command(who, name, "FET", count)
        if leaves:
            self.workers[who].close()
            self.workers[who] = self.broker.client()
            self.let_go(who)
        self.broker.advance(1)
        self.broker.reader_disk.held = False
        self.broker.reader_disk.complete()
        self.read()

    @rule()
    def crash(self) -> None:
        self.broker.advance(0.05)
        self.read()
        self.broker.crash_and_restart()
        self.open()
        for name in QUEUES:
            for worker in self.workers:
                worker.call("SUB", name)

    # What must hold ------------------------------------------------------------------------------------------------

    @invariant()
    def nobody_sleeps_beside_a_message(self) -> None:
        for name in QUEUES:
            if self.broker.assembly.lobby.process(name) is not None:
                self.broker.check(name)

    @precondition(lambda self: self.lives)
    @rule()
    def nothing_is_lost(self) -> None:
        """Every message that was not acknowledged, expired or given up is still there."""
        now_ms = self.broker.now_ms()
        for name in QUEUES:
            ledger = self.broker.queue(name).ledger
            kept = sum(
                life.name == name and not life.acked and life.expires_ms > now_ms for life in self.lives.values()
            )
            dead = ledger.totals.dead
            assert ledger.columns.living + dead >= kept
            if not any(life.expires_ms < 1 << 62 for life in self.lives.values()):
                assert ledger.columns.living + dead == kept

    def teardown(self) -> None:
        self.broker.close()
        self.exits.close()


TestQueueProcess = QueueMachine.TestCase
TestQueueProcess.settings = settings(
    max_examples=examples(80),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
