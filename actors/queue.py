"""QueueProcess: one queue.

    Committed --> ledger, leases --> Answered, Woken
    Fetch, Touch, Nack, Sleep (straight) --> leases --> Answered at once; Delivered, Released ... go to the log

Only the log changes its ledger, so every node holds the same one; its leases are the leader's own.  It never touches
a file: bodies that are no longer in memory come by mail from the reader.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple

import msgspec

from wakeq.actors.bodies import CACHED_MAX, Bodies
from wakeq.actors.leases import NEVER, Leases, Waiter
from wakeq.actors.messages import (
    Abandon,
    Answered,
    Asker,
    Collect,
    Collected,
    Committed,
    Crashed,
    Delivery,
    Deserted,
    EndWaits,
    Fetch,
    Flushed,
    Gone,
    HeldBack,
    Judge,
    Leaving,
    Loaded,
    Nack,
    Outcome,
    Peek,
    Propose,
    Refusal,
    Sleep,
    Stats,
    Subscribe,
    Touch,
    Verdict,
    Want,
    Woken,
)
from wakeq.actors.queue_state import QueueMeta, part_of, restore_ledger
from wakeq.actors.queue_view import figures_of, numbers_in, row_of
from wakeq.actors.runtime import Alarm, Process, Timers
from wakeq.protocol.catalog import Policies, changed, dead_letter_of
from wakeq.protocol.commands import (
    ANY_TOKEN,
    Ack,
    CreateQueue,
    DeleteQueue,
    Delivered,
    Draft,
    Entry,
    Expired,
    Extended,
    Publish,
    PurgeQueue,
    Reason,
    Released,
    Result,
    Results,
    Token,
    UpdateQueue,
)
from wakeq.protocol.dead_letters import dead_letter
from wakeq.protocol.ledger import Ledger, Limits, Repeated, new_drafts, new_numbers
from wakeq.protocol.records import decode_row
from wakeq.protocol.uid import UidMaker, parse
from wakeq.storage.flush import StoredQueue

BODIES_AHEAD = 256  # bodies to have at hand when they have to be read
READ_AHEAD_BYTES_MAX = 1 << 20
ANSWER_BYTES_MAX = 4 << 20  # of the bodies in one answer; one message is always in it
REFUSED_ID = -1  # the queue id of an acknowledgement that a barrier refused: nothing goes, everything stays


class Lead(msgspec.Struct, frozen=True, gc=False):
    """This node leads in `term`: hand out messages (0: it does no longer)."""

    term: int
    first_sequence: int = 0  # a queue that is rebuilt within a term goes on behind what it gave out before


class Abandoned(Exception):
    """The process gives itself up, to be rebuilt."""


class Services(NamedTuple):
    """What a queue process is given to work with."""

    raft_log: Process
    timers: Timers
    now_ms: Callable[[], int]
    stamp_ms: Callable[[], int]  # the same, never before the true moment
    load: Callable[[Process, list[int], list[bytes], Any], None]  # read bodies; Loaded comes by mail
    later: Callable[[float, Callable[[], None]], Any]
    chance: Callable[[], float] = random.random


class QueueProcess(Process):
    """One queue by name, through all its incarnations; before the first one it only has sleepers and waiters."""

    def __init__(self, name: str, services: Services, limits: Limits, supervisor: Process) -> None:
        super().__init__()
        self.name = name
        self.ledger = Ledger(name, 0, Policies(), limits)
        self.created_ms = 0
        self.bodies = Bodies()
        self.leases: Leases | None = None
        self.term = 0
        self.wakes = 0
        self.uids = UidMaker(0)
        self._services = services
        self._now_ms = services.now_ms
        self._supervisor = supervisor
        self._raft_log = services.raft_log
        self._alarm_ms = 0
        self._stored_gone: list[str] = []
        self._unchanged: list[tuple[int, int, int]] = []
        self._applying = 0
        self._handling: Any = None
        self._since_read = 0
        self._reading = False
        self._reads: dict[int, Any] = {}  # what waits for bodies that are being read

    @property
    def exists(self) -> bool:
        return self.ledger.id > 0

    @property
    def is_deserted(self) -> bool:
        """Whether the queue does not exist and nobody waits for it to do so."""
        if self.exists or self.runtime.groups.count(("subscribers", self.name)):
            return False
        leases = self.leases
        return leases is None or not (leases.sleepers or leases.woken or leases.all_waits())

    def on_receive(self, message: Any) -> None:
        self._handling = message
        _HANDLERS[type(message)](self, message)

    def on_abandon(self, message: Abandon) -> None:
        """An entry of which this queue applied its part was set aside: begin again without it."""
        raise Abandoned(f"entry {message.index} was set aside")

    def on_failure(
        self, exception_type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        reason = f"{type(value).__name__}: {value}"
        self._last_words()
        self._supervisor.tell(Crashed(self.name, self, self._applying, reason, value))

    def _last_words(self) -> None:
        """Leave nobody waiting: who slept is woken, who waited gets nothing; what was committed is told again."""
        if self.leases is not None:
            woken = Woken(self.name)
            for subscriber in (*self.leases.sleepers, *self.leases.woken):
                subscriber.tell(woken)
            for waiter in self.leases.all_waits():
                self._answer_nothing(waiter, waiter)
        for ticket in self._reads.values():
            self._give_up(ticket, f"queue {self.name} is being rebuilt")
        for message in (self._handling, *self.unread):
            match message:
                case Fetch():
                    for want in message.wants:
                        self._answer_nothing(message, want)
                case Sleep(asker=asker):
                    asker.process.tell(Answered([(asker.ticket, asker.place, None)]))
                    asker.process.tell(Woken(self.name))
                case Touch(asker=asker) | Nack(asker=asker) | Peek(asker=asker) | Stats(asker=asker):
                    refusal = Refusal("BUSY", f"queue {self.name} is being rebuilt; try again")
                    asker.process.tell(Answered([(asker.ticket, asker.place, refusal)]))

    # --- the ring: what is committed -------------------------------------------------------------------------------

    def on_committed(self, message: Committed) -> None:
        answers: dict[Process, list[tuple[Any, Any, Any]]] = {}
        for index, term, at_ms, entry, asker in message.items:
            self._applying = index
            results = _APPLY[type(entry)](self, entry, index, term, at_ms)
            if type(results) is list and results and min(results) < 0:
                self._unchanged += [(index, place, code) for place, code in enumerate(results) if code < 0]
            if asker is None:
                continue
            if type(asker.ticket) is HeldBack:
                assert isinstance(entry, Delivered | Extended), "nothing else is held back"
                void = entry.queue_id != self.ledger.id  # the queue was emptied meanwhile
                asker.process.tell(asker.ticket.otherwise if void else asker.ticket.answer)
                continue
            queue_id = results.queue_id if type(results) is Repeated else self.ledger.id
            outcome = Outcome(self.name, queue_id, results)
            answers.setdefault(asker.process, []).append((asker.ticket, asker.place, outcome))
        self._applying = 0
        for process, mine in answers.items():
            process.tell(Answered(mine))
        if self.leases is not None:
            self._settle(self._now_ms())

    def _apply_publish(self, entry: Publish, index: int, term: int, at_ms: int) -> Results:
        ledger = self.ledger
        results = ledger.publish(entry, at_ms)
        numbers = new_numbers(results)
        if not numbers:
            return results
        drafts = new_drafts(results, entry.drafts)
        self.bodies.publish(numbers, drafts, at_ms)
        if self.leases is not None:
            plain = ledger.are_plain(numbers)
            self.leases.published(numbers, plain=plain, now_ms=max(at_ms, self._now_ms()))
        return results

    def _apply_delivered(self, entry: Delivered, index: int, term: int, at_ms: int) -> Results:
        self.ledger.deliver(entry, term)
        return entry.numbers

    def _apply_extended(self, entry: Extended, index: int, term: int, at_ms: int) -> Results:
        self.ledger.extend(entry)
        return entry.numbers

    def _apply_released(self, entry: Released, index: int, term: int, at_ms: int) -> Results:
        results = self.ledger.release(entry)
        if self.leases is not None:
            for number, code in zip(entry.numbers, results, strict=True):
                if code == Result.DONE:
                    self.leases.came_back(number, self._now_ms())
                else:
                    self.leases.stays([number], self._now_ms())
        return results

    def _apply_ack(self, entry: Ack, index: int, term: int, at_ms: int) -> Results:
        results = self.ledger.acknowledge(entry)
        numbers = self.ledger.resolved(entry)
        gone = numbers if not any(results) else [n for n, code in zip(numbers, results, strict=True) if not code]
        self._forget(gone)
        if self.leases is not None and len(gone) < len(numbers) and entry.queue_id in (self.ledger.id, REFUSED_ID):
            self.leases.stays([n for n, code in zip(numbers, results, strict=True) if code], self._now_ms())
        return results

    def _apply_expired(self, entry: Expired, index: int, term: int, at_ms: int) -> Results:
        results = self.ledger.expire(entry, at_ms)
        self._forget([n for n, code in zip(entry.numbers, results, strict=True) if not code])
        if self.leases is not None and any(results):
            self.leases.stays([n for n, code in zip(entry.numbers, results, strict=True) if code], self._now_ms())
        return results

    def _forget(self, numbers: list[int]) -> None:
        """Drop what a queue process knows of messages that left the ledger."""
        stored = self.bodies.remove(numbers)
        if stored:
            self._stored_gone += self._uids_of(stored)
        if self.leases is not None:
            self.leases.removed(numbers)

    def _uids_of(self, numbers: Sequence[int]) -> list[str]:
        aliased = self.ledger.aliased
        if not aliased:
            return self.uids.uids(numbers)
        return [aliased.get(number) or self.uids.uid(number) for number in numbers]

    def _apply_create(self, entry: Entry, index: int, term: int, at_ms: int) -> Results:
        self.created_ms = at_ms
        self._begin(index, entry.policies)  # type: ignore[union-attr]
        return [Result.DONE]

    def _apply_update(self, entry: UpdateQueue, index: int, term: int, at_ms: int) -> Results:
        before = self.ledger.policies
        after = self.ledger.policies = changed(before, entry.changes)
        line = ("structure", "priority_min", "priority_max")
        if self.leases is not None and any(getattr(before, name) != getattr(after, name) for name in line):
            self.leases.line_up_again(self._now_ms())
        return [Result.DONE]

    def _apply_delete(self, entry: DeleteQueue, index: int, term: int, at_ms: int) -> Results:
        count = self.ledger.living
        self.ledger.forget_publishers()
        self._begin(0, Policies())
        if self.leases is not None:
            for waiter in self.leases.all_waits():
                refusal = Refusal("Q_NOT_FOUND", f"queue {self.name} was deleted")
                self._end_wait(waiter, refusal)
        if self.is_deserted:
            self._supervisor.tell(Deserted(self.name, self))
        return [count]

    def _apply_purge(self, entry: PurgeQueue, index: int, term: int, at_ms: int) -> Results:
        count = self.ledger.living
        self._begin(index, self.ledger.policies)
        return [count]

    def _begin(self, queue_id: int, policies: Policies) -> None:
        """Start an empty incarnation; who sleeps and waits goes on doing so."""
        self._stored_gone = list(self.ledger.aliased.values())  # the grave covers the rest
        self.ledger.begin(queue_id, policies)
        self.bodies.clear()
        self.uids = UidMaker(queue_id)
        if self.leases is not None:
            self.leases = self.leases.for_new_incarnation(self._now_ms())

    def on_judge(self, message: Judge) -> None:
        entry = message.entry
        if isinstance(entry, Publish):
            code = self.ledger.judge(entry)
        else:
            assert isinstance(entry, Ack), "nothing else has follow-ups"
            code = self.ledger.judge_ack(entry)
        message.reply_to.tell(Verdict(message.place, code))

    # --- straight: deliveries --------------------------------------------------------------------------------------

    def on_lead(self, message: Lead) -> None:
        self.term = message.term
        self.leases = Leases(self.ledger, message.term, self._now_ms()) if message.term else None
        if self.leases is not None:
            self.leases.sequence = message.first_sequence
            self._settle(self._now_ms())

    def on_fetch(self, message: Fetch) -> None:
        leases = self.leases
        if leases is None or not (self.exists or message.subscribed or any(want.wait_ms for want in message.wants)):
            refusal = Refusal("Q_NOT_FOUND", f"queue {self.name} does not exist; publish to it or subscribe first")
            message.subscriber.tell(Answered([(message.ticket, want.place, refusal) for want in message.wants]))
            return
        now_ms = self._now_ms()
        leases.fetched(message.subscriber)
        empty = []
        for want in message.wants:
            numbers = self._take(want.count or 1, now_ms) if len(leases.available) else []
            if numbers:
                self._hand_out(numbers, message, want, now_ms)
            elif want.wait_ms and message.subscriber.alive:
                until_ms = now_ms + want.wait_ms
                worker, door = message.worker, message.door
                leases.wait(Waiter(message.subscriber, message.ticket, want.place, want.count, until_ms, worker, door))
            else:
                empty.append((message.ticket, want.place, None))
        if empty:
            message.subscriber.tell(Answered(empty))
        self._settle(now_ms)

    def _take(self, count: int, now_ms: int) -> list[int]:
        """Take up to `count` messages out of the line, but no more than fit into one answer."""
        leases, ledger = self.leases, self.ledger
        assert leases is not None, "only a leader hands out"
        numbers = leases.take(count, now_ms)
        if len(numbers) > 1 and ledger.bytes > ANSWER_BYTES_MAX:
            fit = max(1, ledger.count_within(numbers, ANSWER_BYTES_MAX))
            leases.put_back(numbers[fit:])
            del numbers[fit:]
        return numbers

    def _hand_out(self, numbers: list[int], fetch: Fetch | Waiter, want: Want | Waiter, now_ms: int) -> None:
        """Deliver messages that were taken out of the line; first read what is not in memory."""
        missing = self.bodies.missing(numbers)
        if missing:
            self._read(missing, ("deliver", numbers, fetch, want))
            return
        leases = self.leases
        assert leases is not None, "only a leader hands out"
        if not fetch.subscriber.alive:
            for number in numbers:
                leases.offer(number, now_ms)
            return
        untils, first = leases.hand_out(numbers, fetch.subscriber, fetch.worker, now_ms)
        deliveries = self._deliveries(numbers, first)
        entry = Delivered(self.name, self.ledger.id, numbers, untils, first, fetch.worker, fetch.door)
        answer = Answered([(fetch.ticket, want.place, deliveries)])
        if self.ledger.policies.lease == "strict":
            held = HeldBack(answer, Answered([(fetch.ticket, want.place, None)]))
            self._raft_log.tell(Propose([(entry, Asker(fetch.subscriber, held, None))]))
        else:
            fetch.subscriber.tell(answer)
            self._raft_log.tell(Propose([(entry, None)], lazy=True))
        self._since_read += len(numbers)
        if self._since_read >= BODIES_AHEAD // 2 and len(self.bodies) < self.ledger.living:
            self._read_ahead()

    def _deliveries(self, numbers: list[int], first: int) -> list[Delivery]:
        drafts = self.bodies.get_many(numbers)
        sides, term = self.ledger.sides, self.term
        deliveries = []
        for sequence, (number, uid, draft) in enumerate(
            zip(numbers, self._uids_of(numbers), drafts, strict=True), first
        ):
            side = sides.get(number) if sides else None
            failures = 0 if side is None else side.deliveries
            deliveries.append(Delivery(uid, failures, draft.body, (term, sequence), draft.priority, draft.headers))
        return deliveries

    def _read(self, numbers: list[int], ticket: Any) -> None:
        prefix = self.name.encode() + b"-"
        keys = [prefix + uid.encode() for uid in self._uids_of(numbers)]
        self._reads[id(ticket)] = ticket
        self._services.load(self, numbers, keys, (self.ledger.id, ticket))

    def _read_ahead(self) -> None:
        """Have the bodies of the next in line read before somebody asks for them."""
        self._since_read = 0
        if self._reading or self.leases is None:
            return
        living = [n for n in self.leases.next_numbers(BODIES_AHEAD) if self.ledger.lives(n)]
        ahead = self.bodies.missing(living[: self.ledger.count_within(living, READ_AHEAD_BYTES_MAX)])
        if ahead:
            self._reading = True
            self._read(ahead, ("ahead",))

    def on_loaded(self, message: Loaded) -> None:
        queue_id, ticket = message.ticket
        if ticket[0] == "ahead":
            self._reading = False
        if queue_id != self.ledger.id:
            self._reads.pop(id(ticket), None)
            self._give_up(ticket, "the queue was emptied or deleted meanwhile")
            return
        for number, value in message.rows.items():
            if value is not None and self.ledger.lives(number):
                row = decode_row(value)
                draft = Draft(row.body, row.priority, 0, 0, row.timeout_ms, row.headers)
                self.bodies.load(number, draft, row.published_ms)
        self._reads.pop(id(ticket), None)
        if ticket[0] == "deliver":
            self._deliver_loaded(*ticket[1:])
        elif ticket[0] == "call":
            ticket[1]()

    def _give_up(self, ticket: Any, why: str) -> None:
        """Answer who waited for bodies that will not be used."""
        match ticket:
            case ("deliver", _, fetch, want):
                self._answer_nothing(fetch, want)
            case ("call", _, Asker() as asker):
                refusal = Refusal("BUSY", f"{why}; try again")
                asker.process.tell(Answered([(asker.ticket, asker.place, refusal)]))

    def _deliver_loaded(self, numbers: list[int], fetch: Fetch | Waiter, want: Want | Waiter) -> None:
        leases = self.leases
        if leases is None:
            return
        now_ms = self._now_ms()
        living = [number for number in numbers if self.ledger.lives(number) and number not in leases.leaving]
        for number in set(numbers).difference(living):
            if self.ledger.lives(number):
                leases.offer(number, now_ms)  # withheld until its outcome
        if living:
            self._hand_out(living, fetch, want, now_ms)
            self._read_ahead()
        else:
            self._answer_nothing(fetch, want)
        self._settle(now_ms)

    def _answer_nothing(self, fetch: Fetch | Waiter, want: Want | Waiter) -> None:
        fetch.subscriber.tell(Answered([(fetch.ticket, want.place, None)]))

    def _settle(self, now_ms: int) -> None:
        """Keep the wake contract after whatever happened, and be called again in time."""
        leases = self.leases
        assert leases is not None, "only a leader wakes"
        if leases.waiters:
            self._serve_waiters(leases, now_ms)
        if leases.sleepers or leases.woken:
            woken = Woken(self.name)
            for subscriber in leases.to_wake(now_ms):
                self.wakes += 1
                subscriber.tell(woken)
        moment_ms = leases.next_moment_ms()
        if moment_ms < self._alarm_ms or self._alarm_ms <= now_ms:
            if moment_ms < NEVER:
                self._alarm_ms = moment_ms
                self._services.timers.set(self, moment_ms)
            else:
                self._alarm_ms = NEVER

    def _serve_waiters(self, leases: Leases, now_ms: int) -> None:
        while len(leases.available):
            waiter = leases.next_waiter()
            if waiter is None:
                return
            numbers = self._take(waiter.count or 1, now_ms)
            if not numbers:
                return
            leases.end_wait(waiter)
            self._hand_out(numbers, waiter, waiter, now_ms)

    def _end_wait(self, waiter: Waiter, answer: Refusal | None) -> None:
        assert self.leases is not None, "only a leader lets wait"
        self.leases.end_wait(waiter)
        waiter.subscriber.tell(Answered([(waiter.ticket, waiter.place, answer)]))

    def on_end_waits(self, message: EndWaits) -> None:
        if self.leases is not None:
            for waiter in self.leases.waits_of(message.subscriber, message.ticket):
                self._end_wait(waiter, None)

    def on_sleep(self, message: Sleep) -> None:
        asker = message.asker
        asker.process.tell(Answered([(asker.ticket, asker.place, None)]))
        if self.leases is not None and asker.process.alive:
            self.leases.sleep(asker.process)
            self._settle(self._now_ms())

    def on_subscribe(self, message: Subscribe) -> None:
        """The group knows its members; the process exists now, unless they have all gone meanwhile."""
        if self.is_deserted:
            self._supervisor.tell(Deserted(self.name, self))

    def on_gone(self, message: Gone) -> None:
        leases = self.leases
        if leases is None:
            return
        if message.asleep_only:
            leases.fetched(message.subscriber)
        else:
            leases.gone(message.subscriber)
        if self.ledger.policies.on_disconnect == "release" and not message.asleep_only:
            numbers = [n for n in leases.take_held_by(message.subscriber) if n not in leases.leaving]
            self._end_deliveries(numbers, [leases.held[n].token for n in numbers], Reason.DISCONNECT)
        self._settle(self._now_ms())
        if self.is_deserted:
            self._supervisor.tell(Deserted(self.name, self))

    def on_leaving(self, message: Leaving) -> None:
        if self.leases is None or message.queue_id != self.ledger.id:
            return
        if message.undone:
            self.leases.stays(message.numbers, self._now_ms())
            self._settle(self._now_ms())
        else:
            self.leases.leave(message.numbers)

    # --- straight: ends and extensions of deliveries ---------------------------------------------------------------

    def _number_of(self, uid: str) -> int:
        """Return the number of a uid of this incarnation, -1 for any other."""
        parsed = parse(uid)
        if parsed is not None and parsed[0] == self.ledger.id:
            return parsed[1]
        return self.ledger.aliases.get(uid, -1)

    def on_touch(self, message: Touch) -> None:
        leases = self.leases
        assert leases is not None, "only a leader is asked"
        now_ms = self._now_ms()
        results = []
        numbers: list[int] = []
        untils_ms: list[int] = []
        for uid, token in zip(message.uids, message.tokens, strict=True):
            number = self._number_of(uid)
            held = leases.held.get(number)
            if not self.ledger.lives(number) or number in leases.leaving:
                results.append(Result.UNKNOWN)
            elif held is None:
                results.append(Result.UNKNOWN if token == ANY_TOKEN else Result.STALE)
            elif token not in (ANY_TOKEN, held.token):
                results.append(Result.STALE)
            else:
                results.append(Result.DONE)
                numbers.append(number)
                untils_ms.append(now_ms + (message.timeout_ms or self.ledger.timeout_of(number)))
                leases.extend(number, untils_ms[-1])
        asker = message.asker
        outcome = Outcome(self.name, self.ledger.id, [int(result) for result in results])
        answer = Answered([(asker.ticket, asker.place, outcome)])
        entry = Extended(self.name, self.ledger.id, numbers, untils_ms)
        if self.ledger.policies.lease == "strict" and numbers:
            gone = Outcome(self.name, self.ledger.id, [int(Result.UNKNOWN)] * len(results))
            held_back = HeldBack(answer, Answered([(asker.ticket, asker.place, gone)]))
            self._raft_log.tell(Propose([(entry, Asker(asker.process, held_back, None))]))
            return
        asker.process.tell(answer)
        if numbers:
            self._raft_log.tell(Propose([(entry, None)], lazy=True))

    def on_nack(self, message: Nack) -> None:
        numbers, tokens, places, unknown = [], [], [], []
        asker = message.asker
        for uid, token, place in zip(message.uids, message.tokens, asker.place, strict=True):
            number = self._number_of(uid)
            if self.leases is not None and number in self.leases.held:
                numbers.append(number)
                tokens.append(token)
                places.append(place)
            else:
                unknown.append(place)
        if unknown:
            outcome = Outcome(self.name, self.ledger.id, [Result.UNKNOWN] * len(unknown))
            asker.process.tell(Answered([(asker.ticket, unknown, outcome)]))
        self._end_deliveries(
            numbers,
            tokens,
            Reason.NACK,
            delay_ms=message.delay_ms,
            error=message.error,
            asker=Asker(asker.process, asker.ticket, places),
        )

    def _end_deliveries(
        self,
        numbers: list[int],
        tokens: list[Token],
        reason: Reason,
        *,
        delay_ms: int | None = None,
        error: str = "",
        asker: Asker | None = None,
    ) -> None:
        """Propose that deliveries end: back into the line, or to the dead letters at the last allowed one.

        `asker.place`, if there is one, is a list with a place for each number.
        """
        if not numbers:
            return
        assert self.leases is not None, "only a leader ends deliveries"
        places = asker.place if asker is not None else [None] * len(numbers)
        last = self.ledger.policies.max_deliveries
        back: list[tuple[int, Token, Any]] = []
        dead: list[tuple[int, Token, Any]] = []
        for row in zip(numbers, tokens, places, strict=True):
            (dead if last and self._deliveries_of(row[0]) >= last else back).append(row)
        self.leases.leave(numbers)
        if back:
            self._propose_released(back, reason, delay_ms, error, asker)
        for number, token, place in dead:
            mine = None if asker is None else Asker(asker.process, asker.ticket, [place])
            self._propose_dead(number, token, reason, error, mine)

    def _deliveries_of(self, number: int) -> int:
        """Return how often a message was delivered; the last time may not be in the ledger yet."""
        side = self.ledger.sides.get(number)
        held = self.leases.held.get(number) if self.leases is not None else None
        if side is None:
            return 1
        return side.deliveries + (held is not None and held.token > (side.term, side.sequence))

    def _propose_released(
        self,
        rows: list[tuple[int, Token, Any]],
        reason: Reason,
        delay_ms: int | None,
        error: str,
        asker: Asker | None,
    ) -> None:
        stamp_ms = self._services.stamp_ms()
        retry = self.ledger.policies.retry
        dues = []
        for number, _, _ in rows:
            failures = self._deliveries_of(number)
            wait_ms = retry.after_ms(failures, self._services.chance()) if delay_ms is None else delay_ms
            dues.append(stamp_ms + wait_ms if wait_ms else 0)
        numbers, tokens, places = (list(column) for column in zip(*rows, strict=True))
        entry = Released(self.name, self.ledger.id, numbers, dues, tokens, reason, error)
        mine = None if asker is None else Asker(asker.process, asker.ticket, places)
        self._raft_log.tell(Propose([(entry, mine)]))

    def _propose_dead(self, number: int, token: Token, reason: Reason, error: str, asker: Asker | None) -> None:
        """Move a message to its dead-letter queue, in one entry: never both, never neither."""
        draft = self.bodies.get(number)
        if draft is None:
            step = partial(self._propose_dead_loaded, number, token, reason, error, asker)
            self._read([number], ("call", step, asker))
            return
        letter = dead_letter(
            draft,
            self.ledger.sides.get(number),
            origin=self.name,
            origin_uid=self._uids_of([number])[0],
            deliveries=self._deliveries_of(number),
            reason=reason,
            error=error,
        )
        queue = dead_letter_of(self.name, self.ledger.policies)
        publish = Publish(queue, [letter], forced=True)
        entry = Ack(self.name, self.ledger.id, [number], [token], [publish], dead=True)
        self._raft_log.tell(Propose([(entry, asker)]))

    def _propose_dead_loaded(self, number: int, token: Token, reason: Reason, error: str, asker: Asker | None) -> None:
        if self.ledger.lives(number):
            self._propose_dead(number, token, reason, error, asker)
        elif asker is not None:
            outcome = Outcome(self.name, self.ledger.id, [Result.UNKNOWN])
            asker.process.tell(Answered([(asker.ticket, asker.place, outcome)]))

    # --- time ------------------------------------------------------------------------------------------------------

    def on_alarm(self, message: Alarm) -> None:
        leases = self.leases
        if leases is None:
            return
        now_ms = self._now_ms()
        self._alarm_ms = 0
        leases.fell_due(now_ms)
        over = leases.ran_out(now_ms)
        self._end_deliveries(over, [leases.held[number].token for number in over], Reason.TIMEOUT)
        expired = [number for number in leases.expired(now_ms) if number not in leases.leaving]
        if expired:
            leases.leave(expired)
            self._raft_log.tell(Propose([(Expired(self.name, self.ledger.id, expired), None)]))
        for waiter in leases.waits_over(now_ms):
            self._end_wait(waiter, None)
        self._settle(now_ms)

    # --- coming back -----------------------------------------------------------------------------------------------

    def restore(self, stored: StoredQueue) -> None:
        """Take the state that was written down; only before any mail."""
        meta = restore_ledger(self.ledger, stored)
        self.created_ms = meta.created_ms
        self.uids = UidMaker(meta.id)

    # --- looking ---------------------------------------------------------------------------------------------------

    def on_peek(self, message: Peek) -> None:
        asker = message.asker
        if not self.exists:
            refusal = Refusal("Q_NOT_FOUND", f"queue {self.name} does not exist")
            asker.process.tell(Answered([(asker.ticket, asker.place, refusal)]))
            return
        numbers = numbers_in(self.ledger, self.leases, message.state, message.count, self._now_ms())
        missing = self.bodies.missing(numbers)
        if missing:
            self._read(missing, ("call", partial(self._peek_loaded, asker, numbers), asker))
        else:
            self._peek_loaded(asker, numbers)

    def _peek_loaded(self, asker: Asker, numbers: list[int]) -> None:
        now_ms = self._now_ms()
        rows = []
        for number, uid in zip(numbers, self._uids_of(numbers), strict=True):
            row = row_of(self.ledger, self.leases, self.bodies, number, now_ms)
            if row is not None:
                rows.append({"uid": uid} | row)
        asker.process.tell(Answered([(asker.ticket, asker.place, rows)]))

    def on_stats(self, message: Stats) -> None:
        asker = message.asker
        if not self.exists:
            refusal = Refusal("Q_NOT_FOUND", f"queue {self.name} does not exist")
            asker.process.tell(Answered([(asker.ticket, asker.place, refusal)]))
            return
        asker.process.tell(Answered([(asker.ticket, asker.place, self._figures())]))

    def _figures(self) -> dict[str, Any]:
        figures = figures_of(self.ledger, self.leases, self._now_ms())
        delivered = figures["delivered"]
        return figures | {
            "subscribers": self.runtime.groups.count(("subscribers", self.name)),
            "wakes": self.wakes,
            "wakes_per_delivery": round(self.wakes / delivered, 3) if delivered else 0.0,
            "created_ms": self.created_ms,
        }

    # --- writing down ----------------------------------------------------------------------------------------------

    def on_collect(self, message: Collect) -> None:
        gone, self._stored_gone = self._stored_gone, []
        unchanged, self._unchanged = self._unchanged, []
        meta = QueueMeta.of(self.ledger, self.created_ms)
        part = part_of(self.ledger, self.bodies.collect(), gone, self._uids_of, meta)
        message.reply_to.tell(Collected(message.cut, part, unchanged))

    def on_flushed(self, message: Flushed) -> None:
        ahead = self.leases.next_numbers(CACHED_MAX) if self.leases is not None else []
        self.bodies.flushed(ahead)


_HANDLERS: dict[type, Callable[[QueueProcess, Any], None]] = {
    Committed: QueueProcess.on_committed,
    Fetch: QueueProcess.on_fetch,
    Leaving: QueueProcess.on_leaving,
    Sleep: QueueProcess.on_sleep,
    Subscribe: QueueProcess.on_subscribe,
    Touch: QueueProcess.on_touch,
    Nack: QueueProcess.on_nack,
    Gone: QueueProcess.on_gone,
    EndWaits: QueueProcess.on_end_waits,
    Alarm: QueueProcess.on_alarm,
    Loaded: QueueProcess.on_loaded,
    Collect: QueueProcess.on_collect,
    Flushed: QueueProcess.on_flushed,
    Judge: QueueProcess.on_judge,
    Abandon: QueueProcess.on_abandon,
    Peek: QueueProcess.on_peek,
    Stats: QueueProcess.on_stats,
    Lead: QueueProcess.on_lead,
}

_APPLY: dict[type, Callable[[QueueProcess, Any, int, int, int], Results]] = {
    Publish: QueueProcess._apply_publish,
    Delivered: QueueProcess._apply_delivered,
    Extended: QueueProcess._apply_extended,
    Released: QueueProcess._apply_released,
    Ack: QueueProcess._apply_ack,
    Expired: QueueProcess._apply_expired,
    CreateQueue: QueueProcess._apply_create,
    UpdateQueue: QueueProcess._apply_update,
    DeleteQueue: QueueProcess._apply_delete,
    PurgeQueue: QueueProcess._apply_purge,
}
