"""QueueDeliveries: how one queue hands out messages, who waits for them, who sleeps and is woken.

    Fetch, Sleep --> leases, bodies --> Answered at once; Delivered goes to the log

The leader's memory answers.  It never touches a file: bodies that are no longer in memory come by mail from the
reader.  It is the lower half of a queue process; what is committed is the business of `queue.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from wakeq.actors.audience import NEVER, Waiter
from wakeq.actors.bodies import Bodies, Found, read_from
from wakeq.actors.leases import Leases
from wakeq.actors.messages import (
    Answered,
    Asker,
    Delivery,
    Deserted,
    EndWaits,
    Fetch,
    Follow,
    HandedOver,
    HeldBack,
    Leaving,
    Loaded,
    Propose,
    Refusal,
    Sleep,
    Subscribe,
    Want,
    Woken,
)
from wakeq.actors.runtime import Process, Timers
from wakeq.protocol.catalog import Policies
from wakeq.protocol.commands import Ack, Delivered
from wakeq.protocol.ledger import Ledger
from wakeq.protocol.publishers import Limits
from wakeq.protocol.uid import UidMaker
from wakeq.storage.flush import key_of, keys_of

BODIES_AHEAD = 256  # bodies to have at hand when they have to be read ...
BODIES_AHEAD_MAX = 1_024  # ... and of a queue that is emptied fast, since every read is a hand-over to another thread
READ_AHEAD_BYTES_MAX = 1 << 20
LOOK_AGAIN_MS = 50
ANSWER_BYTES_MAX = 4 << 20  # of the bodies in one answer; one message is always in it


class Lead(msgspec.Struct, frozen=True, gc=False):
    """This node leads in `term`: hand out messages."""

    term: int
    first_sequence: int = 0  # a queue that is rebuilt within a term goes on behind what it gave out before


class Services(NamedTuple):
    """What a queue process is given to work with."""

    raft_log: Process
    timers: Timers
    now_ms: Callable[[], int]
    due_ms: Callable[[int], int]  # when so much true time will have passed
    load: Callable[[Process, list[int], list[bytes], Any], None]  # read bodies; Loaded comes by mail
    later: Callable[[float, Callable[[], None]], Any]
    chance: Callable[[], float]
    refusal: Callable[[], Refusal | None]  # why nothing may be handed out at this moment
    held_back: Callable[[int], Refusal | None]  # why nothing of a level may be proposed yet


class QueueDeliveries(Process):
    """A queue's state, and what it hands out."""

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
        self._stored_gone: list[int] = []
        self._unchanged: list[tuple[int, int, int]] = []
        self._applying = 0
        self._handling: Any = None
        self._since_read = 0
        self._ahead = BODIES_AHEAD
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

    def _uids_of(self, numbers: Sequence[int]) -> list[str]:
        aliased = self.ledger.aliased
        if not aliased:
            return self.uids.uids(numbers)
        return [aliased.get(number) or self.uids.uid(number) for number in numbers]

    def _keys_of(self, numbers: Sequence[int]) -> list[bytes]:
        """Return under which keys the state store has these messages."""
        if self.ledger.aliased:
            return [key_of(self.name, uid) for uid in self._uids_of(numbers)]
        return keys_of(self.name, self.uids.uids(numbers))

    # --- handing out -----------------------------------------------------------------------------------------------

    def on_lead(self, message: Lead) -> None:
        self.term = message.term
        self.leases = Leases(self.ledger, message.term, self._now_ms())
        self.leases.sequence = message.first_sequence
        self._settle(self._now_ms())

    def on_follow(self, message: Follow) -> None:
        """Another node leads, or nobody: who waits goes there, and who sleeps is woken to do so."""
        leases, self.leases = self.leases, None
        self.term = 0
        if leases is None:
            return
        for subscriber in (*leases.sleepers, *leases.woken):
            subscriber.tell(Woken(self.name))
        for waiter in leases.all_waits():
            waiter.subscriber.tell(Answered([(waiter.ticket, waiter.place, message.refusal)]))
        self._put_back_reads(message.refusal)

    def _refusal(self) -> Refusal | None:
        """Return why this node may not answer now; it is asked in the same turn as the hand-out."""
        refusal = self._services.refusal()
        if refusal is None and self.leases is None:
            return Refusal("BUSY", f"queue {self.name} is not ready yet; try again")
        return refusal

    def on_fetch(self, message: Fetch) -> None:
        refusal = self._refusal()
        if refusal is None and not (self.exists or message.subscribed or self._lets_wait(message)):
            refusal = Refusal("Q_NOT_FOUND", f"queue {self.name} does not exist; publish to it or subscribe first")
        if refusal is not None:
            message.subscriber.tell(Answered([(message.ticket, want.place, refusal) for want in message.wants]))
            return
        leases = self.leases
        assert leases is not None, "else it was refused"
        now_ms = self._now_ms()
        leases.fetched(message.subscriber)
        empty = []
        for want in message.wants:
            numbers = self._take(want.count or 1, now_ms) if len(leases.available) else []
            if numbers:
                self._hand_out(numbers, message, want, now_ms)
            elif want.wait_ms and message.subscriber.alive:
                until_ms = now_ms + want.wait_ms
                worker, door, removes = message.worker, message.door, message.removes
                who = (message.subscriber, message.ticket, want.place, want.count)
                leases.wait(Waiter(*who, until_ms, worker, door, removes, want.timeout_ms))
            else:
                empty.append((message.ticket, want.place, None))
        if empty:
            message.subscriber.tell(Answered(empty))
        self._settle(now_ms)

    @staticmethod
    def _lets_wait(fetch: Fetch) -> bool:
        """Whether a queue that does not exist is empty to whoever asks."""
        return not fetch.must_exist and (fetch.subscribed or any(want.wait_ms for want in fetch.wants))

    def _take(self, count: int, now_ms: int) -> list[int]:
        """Take up to `count` messages out of the line, but no more than fit into one answer."""
        leases, ledger = self.leases, self.ledger
        assert leases is not None, "only a leader hands out"
        numbers = leases.take(count, now_ms)
        if len(numbers) > 1 and ledger.bytes > ANSWER_BYTES_MAX:
            fit = max(1, ledger.count_within(numbers, ANSWER_BYTES_MAX))
            leases.put_back(numbers[fit:], now_ms)
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
            leases.put_back(numbers, now_ms)
            return
        if fetch.removes:
            self._hand_over(numbers, fetch, want)
            return
        untils, first = leases.hand_out(numbers, fetch.subscriber, fetch.worker, now_ms, want.timeout_ms)
        deliveries = self._deliveries(numbers, untils, first)
        entry = Delivered(self.name, self.ledger.id, numbers, untils, first, fetch.worker, fetch.door)
        answer = Answered([(fetch.ticket, want.place, deliveries)])
        if self.ledger.policies.lease == "strict":
            held = HeldBack(answer, Answered([(fetch.ticket, want.place, None)]))
            self._raft_log.tell(Propose([(entry, Asker(fetch.subscriber, held, None))]))
        else:
            fetch.subscriber.tell(answer)
            self._raft_log.tell(Propose([(entry, None)], lazy=True))
        self._handed_out(len(numbers))

    def _hand_over(self, numbers: list[int], fetch: Fetch | Waiter, want: Want | Waiter) -> None:
        """Deliver and remove in one entry; the answer leaves once that is committed."""
        leases = self.leases
        assert leases is not None, "only a leader hands out"
        leases.withhold(numbers)
        first, leases.sequence = leases.sequence + 1, leases.sequence + len(numbers)
        tokens = [(self.term, sequence) for sequence in range(first, first + len(numbers))]
        entry = Ack(self.name, self.ledger.id, numbers, tokens, worker=fetch.worker, door=fetch.door, delivered=True)
        answer = Answered([(fetch.ticket, want.place, HandedOver(numbers, self.bodies.get_many(numbers)))])
        held = HeldBack(answer, Answered([(fetch.ticket, want.place, None)]))
        self._raft_log.tell(Propose([(entry, Asker(fetch.subscriber, held, None))]))
        self._handed_out(len(numbers))

    def _handed_out(self, count: int) -> None:
        """Read on in time."""
        self._since_read += count
        if self._since_read >= self._ahead // 2 and len(self.bodies) < self.ledger.living:
            self._ahead = min(2 * self._ahead, BODIES_AHEAD_MAX)
            self._read_ahead()

    def _deliveries(self, numbers: list[int], untils_ms: list[int], first: int) -> list[Delivery]:
        drafts = self.bodies.get_many(numbers)
        sides, term, queue_id = self.ledger.sides, self.term, self.ledger.id
        deliveries = []
        rows = zip(numbers, self._uids_of(numbers), drafts, untils_ms, strict=True)
        for sequence, (number, uid, draft, until_ms) in enumerate(rows, first):
            side = sides.get(number) if sides else None
            earlier, failures = (0, 0) if side is None else (side.deliveries, side.failures)
            token, body = (term, sequence), draft.body
            deliveries.append(
                Delivery(uid, earlier, failures, body, token, draft.priority, draft.headers, queue_id, number, until_ms)
            )
        return deliveries

    def _read(self, numbers: list[int], ticket: Any) -> None:
        keys = self._keys_of(numbers)
        self._reads[id(ticket)] = ticket
        self._services.load(self, numbers, keys, (self.ledger.id, ticket))

    def _read_ahead(self) -> None:
        """Have the bodies of the next in line read before somebody asks for them."""
        self._since_read = 0
        if self._reading or self.leases is None:
            return
        living = self.ledger.living_among(self.leases.next_numbers(self._ahead))
        ahead = self.bodies.missing(living[: self.ledger.count_within(living, READ_AHEAD_BYTES_MAX)])
        if ahead:
            self._reading = True
            self._read(ahead, ("ahead",))

    def on_loaded(self, message: Loaded) -> None:
        queue_id, ticket = message.ticket
        if ticket[0] == "ahead":
            self._reading = False
        if queue_id != self.ledger.id:  # whoever waited has heard so
            return
        read = read_from(message.numbers, message.values, self.ledger)
        if ticket[0] != "look":
            self.bodies.load(read)
        if id(ticket) not in self._reads:  # whoever waited was refused meanwhile
            return
        if ticket[0] == "deliver":
            self._deliver_loaded(ticket)
            return
        del self._reads[id(ticket)]
        if ticket[0] == "look":
            ticket[1](read)

    def _with_found(self, numbers: Sequence[int], asker: Asker | None, step: Callable[[Found], None]) -> None:
        """Do a step with these messages, perhaps later; what has to be read for that is not kept."""
        kept = ((number, self.bodies.kept(number)) for number in numbers)
        found = {number: one for number, one in kept if one is not None}  # while the rest is read it may be dropped
        missing = [number for number in numbers if number not in found]
        if missing:
            self._read(missing, ("look", lambda read: step(found | read), asker))
        else:
            step(found)

    def _give_up_reads(self, why: str) -> None:
        """Answer at once who waits for bodies: this process may be gone before they come."""
        reads, self._reads = self._reads, {}
        for ticket in reads.values():
            match ticket:
                case ("deliver", _, fetch, want):
                    self._answer_nothing(fetch, want)
                case ("look", _, Asker() as asker):
                    refusal = Refusal("BUSY", f"{why}; try again")
                    asker.process.tell(Answered([(asker.ticket, asker.place, refusal)]))

    def _deliver_loaded(self, ticket: Any) -> None:
        """Deliver what was taken out of the line, if it still may be."""
        _, numbers, fetch, want = ticket
        leases, refusal, now_ms = self.leases, self._refusal(), self._now_ms()
        assert leases is not None, "who waits is refused when leadership ends"
        if refusal is not None or not fetch.subscriber.alive:
            self._put_back_reads(refusal)
            self._settle(now_ms)
            return
        del self._reads[id(ticket)]
        living = [number for number in numbers if self.ledger.lives(number) and number not in leases.leaving]
        leases.put_back([number for number in numbers if number in leases.leaving], now_ms)  # until its outcome
        if living:
            self._hand_out(living, fetch, want, now_ms)
            self._read_ahead()
        else:
            self._answer_nothing(fetch, want)
        self._settle(now_ms)

    def _put_back_reads(self, refusal: Refusal | None) -> None:
        """Refuse those who wait for bodies, or only forget those who are gone, and put back what was taken for them.

        It is done for all at once, and for the last first: so everything comes to where it stood in line.
        """
        waiting = [ticket for ticket in self._reads.values() if ticket[0] == "deliver"]
        over = [ticket for ticket in waiting if refusal is not None or not ticket[2].subscriber.alive]
        for ticket in reversed(over):
            del self._reads[id(ticket)]
            if self.leases is not None:
                self.leases.put_back(ticket[1], self._now_ms())
        for _, _, fetch, want in over:
            fetch.subscriber.tell(Answered([(fetch.ticket, want.place, refusal)]))

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
        if leases.waiters and len(leases.available) and self.ledger.paused_until_ms <= now_ms:  # it was refused
            moment_ms = min(moment_ms, now_ms + LOOK_AGAIN_MS)
        if moment_ms < self._alarm_ms or self._alarm_ms <= now_ms:
            if moment_ms < NEVER:
                self._alarm_ms = moment_ms
                self._services.timers.set(self, moment_ms)
            else:
                self._alarm_ms = NEVER

    def _serve_waiters(self, leases: Leases, now_ms: int) -> None:
        if len(leases.available) and self._services.refusal() is not None:
            return  # a majority is out of reach: either it answers again soon, or this node leads no longer
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

    def on_leaving(self, message: Leaving) -> None:
        if self.leases is None or message.queue_id != self.ledger.id:
            return
        if message.undone:
            self.leases.stays(message.numbers, self._now_ms())
            self._settle(self._now_ms())
        else:
            self.leases.leave(message.numbers)
