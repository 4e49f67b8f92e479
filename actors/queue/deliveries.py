"""QueueDeliveries: how one queue hands out messages, who waits for them, who sleeps and is woken.

    Fetch, Sleep --> leases, bodies --> Answered at once; Delivered goes to the log

The leader answers from memory, ahead of its log by AHEAD_MS at most.  It never touches a file: bodies that are no
longer in memory arrive as mail from the reader thread.  A layer of the queue process, on QueueReads; `queue.py` shows
them all.
"""

from collections import deque

import msgspec
from msgspec.structs import replace

from wakeq.actors.mail import (
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
    Propose,
    Refusal,
    Sleep,
    Subscribe,
    Want,
    Woken,
)
from wakeq.actors.queue.reads import QueueProcessServices, QueueReads, Turn
from wakeq.actors.runtime import Process
from wakeq.protocol.log.entries import Ack, Delivered
from wakeq.protocol.queue.empty import EMPTY_DICT
from wakeq.protocol.queue.leases.audience import NEVER, Waiter
from wakeq.protocol.queue.leases.leases import Leases
from wakeq.protocol.queue.publishers import Limits

AHEAD_MS = 100  # a fast queue hands out ahead of its log while nothing has waited longer than this for its commit
LOOK_AGAIN_MS = 50  # before waiting FETs are tried again when this node might not lead any more
ANSWER_BYTES_MAX = 4 << 20  # of the bodies in one answer; one message is always in it


class Lead(msgspec.Struct, frozen=True, gc=False):
    """This node leads in `term`: hand out messages."""

    term: int
    first_sequence: int = 0  # a queue that is rebuilt within a term must not give out the same tokens again


class QueueDeliveries(QueueReads):
    """What a queue hands out."""

    def __init__(self, name: str, services: QueueProcessServices, limits: Limits, supervisor: Process) -> None:
        super().__init__(name, services, limits, supervisor)
        self._turns: deque[Turn] = EMPTY_DICT  # FETs whose messages are being read from disk, in their order
        self._promised: dict[Waiter, None] = EMPTY_DICT  # FETs with wait whose strict delivery is being committed

    @property
    def is_deserted(self) -> bool:
        """Whether the queue does not exist and nobody waits for it to do so."""
        if self.exists or self.runtime.groups.count(("subscribers", self.name)):
            return False
        leases = self.leases
        return leases is None or not (leases.sleepers or leases.woken or leases.all_waits())

    # --- handing out -----------------------------------------------------------------------------------------------

    def on_lead(self, message: Lead) -> None:
        self.term = message.term
        self.leases = Leases(self.ledger, message.term, self._now_ms())
        self.leases.sequence = message.first_sequence
        self._counted_from = (self.wakes, message.first_sequence)
        self._settle(self._now_ms())

    def on_follow(self, message: Follow) -> None:
        """This node leads no longer: refuse waiting FETs and wake sleepers, so that they go to the new leader."""
        leases, self.leases = self.leases, None
        self.term = 0
        if leases is None:
            return
        for subscriber in (*leases.sleepers, *leases.woken):
            subscriber.tell(Woken(self.name))
        for waiter in leases.all_waits():
            answer_fetch(waiter, waiter, message.refusal)
        self._refuse_turns(message.refusal)
        self._promised = EMPTY_DICT
        self._refuse_looks(message.refusal)

    def _refusal(self) -> Refusal | None:
        """Return why this node may not answer now; to be asked in the same turn as it hands out."""
        refusal = self._services.refusal()
        if refusal is None and self.leases is None:
            return Refusal("BUSY", f"queue {self.name} is not ready yet; try again")
        return refusal

    def on_fetch(self, message: Fetch) -> None:
        refusal = self._refusal()
        if refusal is None and not (self.exists or message.subscribed or self._lets_wait(message)):
            refusal = Refusal("Q_NOT_FOUND", f"queue {self.name} does not exist; publish to it or subscribe first")
        if refusal is not None:
            message.tell_all(refusal)
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
                leases.wait(_waiter_of(message, want, now_ms))
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
        """Deliver messages that were taken out of the line; first read what is not in memory.

        While one FET waits for a read, later ones wait behind it: otherwise newer messages would leave before older
        ones.
        """
        missing = self.bodies.missing(numbers)
        if not (missing or self._turns):
            self._deliver(numbers, fetch, want, now_ms)
            return
        turn = Turn(numbers, _waiter_of(fetch, want, now_ms), bool(missing))
        if self._turns is EMPTY_DICT:
            self._turns = deque()
        self._turns.append(turn)
        if missing:
            self._read(missing, turn)

    def _deliver(self, numbers: list[int], fetch: Fetch | Waiter, want: Want | Waiter, now_ms: int) -> None:
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
        is_stuck = now_ms - self._services.waits_since_ms() > AHEAD_MS  # the disk or the majority does not answer
        if is_stuck or self.ledger.policies.lease == "strict":
            waiter = self._promise(fetch, want, now_ms)
            held = HeldBack(answer, Answered([(fetch.ticket, want.place, None)]), waiter)
            self._raft_log.tell(Propose([(entry, Asker(fetch.subscriber, held, None))]))
        else:
            fetch.subscriber.tell(answer)
            self._raft_log.tell(Propose([(entry, None)], lazy=True))
        self._handed_out(len(numbers))

    def _promise(self, fetch: Fetch | Waiter, want: Want | Waiter, now_ms: int) -> Waiter | None:
        """Remember a FET that is to go on waiting if its delivery comes to nothing; None if it does not wait."""
        if type(want) is Want and not want.wait_ms:
            return None
        waiter = _waiter_of(fetch, want, now_ms)
        if waiter.until_ms <= now_ms:
            return None
        if self._promised is EMPTY_DICT:
            self._promised = {}
        self._promised[waiter] = None
        return waiter

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

    def _has_come(self, turn: Turn) -> None:
        turn.is_read_for = False
        if self.leases is not None:
            now_ms = self._now_ms()
            self._deliver_turns(now_ms)
            self._settle(now_ms)

    def _deliver_turns(self, now_ms: int) -> None:
        """Deliver what is in memory by now, in order, if this node still may."""
        refusal = self._refusal()
        if refusal is not None:
            self._refuse_turns(refusal)
        turns = self._turns
        while turns and not turns[0].is_read_for:
            turn = turns[0]
            if not turn.waiter.subscriber.alive:
                self._take_again(now_ms)
                continue
            self._deliver_turn(turn, now_ms)
            if not turn.is_read_for:
                turns.popleft()  # only now: if delivering crashes this queue, those still in here get an answer
        self._read_ahead()

    def _deliver_turn(self, turn: Turn, now_ms: int) -> None:
        leases = self.leases
        assert leases is not None, "who waits is refused when leadership ends"
        leases.put_back([number for number in turn.numbers if number in leases.leaving], now_ms)  # acked meanwhile
        numbers = [number for number in turn.numbers if self.ledger.lives(number) and number not in leases.leaving]
        missing = self.bodies.missing(numbers)
        if missing:  # a cut has dropped them from memory meanwhile
            turn.numbers, turn.is_read_for = numbers, True
            self._read(missing, turn)
        elif numbers:
            self._deliver(numbers, turn.waiter, turn.waiter, now_ms)
        else:
            self._wait_on(turn.waiter, now_ms)

    def _take_again(self, now_ms: int) -> None:
        """The subscriber of the first turn is gone: take again for the others, as if it had never come."""
        waiters = [turn.waiter for turn in self._put_back_turns()]
        self._turns.extend([Turn([], waiter, False) for waiter in waiters if waiter.subscriber.alive])
        for turn in self._turns:
            turn.numbers = self._take(turn.waiter.count or 1, now_ms)

    def _refuse_turns(self, refusal: Refusal) -> None:
        for turn in self._put_back_turns():
            waiter = turn.waiter
            answer_fetch(waiter, waiter, refusal)

    def _put_off_turns(self, now_ms: int) -> None:
        """The queue was paused: that also holds for messages that were taken out of the line and have not left yet."""
        if self.ledger.paused_until_ms > now_ms:
            for turn in self._put_back_turns():
                self._wait_on(turn.waiter, now_ms)

    def _put_back_turns(self) -> list[Turn]:
        """Put back what all turns have taken, the last first so that the line is as it was; return the turns."""
        turns = list(self._turns)
        if self.leases is not None:
            for turn in reversed(turns):
                self.leases.put_back(turn.numbers, self._now_ms())
        if turns:
            self._turns.clear()
        return turns

    def _give_up_reads(self, why: str) -> None:
        """Wait for no body any more: FETs with wait go on waiting, all others are answered."""
        turns = list(self._turns)
        if turns:
            self._turns.clear()
        for turn in turns:
            self._wait_on(turn.waiter, self._now_ms())
        self._refuse_looks(Refusal("BUSY", f"{why}; try again"))

    def _wait_on(self, waiter: Waiter, now_ms: int) -> None:
        """The messages taken for a FET are gone: let it go on waiting, or answer with nothing if its time is over."""
        if self.leases is not None and waiter.until_ms > now_ms and waiter.subscriber.alive:
            self.leases.wait(replace(waiter, ended=False))
        else:
            answer_fetch(waiter, waiter, None)

    def _settle(self, now_ms: int) -> None:
        """To be called after every change: serve waiting FETs, wake sleepers, set the alarm for what comes next."""
        leases = self.leases
        assert leases is not None, "only a leader wakes"
        if leases.waiters:
            if leases.sleepers and (sleepers := leases.to_wake_first(now_ms)):
                self._wake(sleepers)
            self._serve_waiters(leases, now_ms)
        if (leases.sleepers or leases.woken) and (sleepers := leases.to_wake(now_ms)):
            self._wake(sleepers)
        moment_ms = leases.next_moment_ms()
        if leases.waiters and len(leases.available) and self.ledger.paused_until_ms <= now_ms:
            moment_ms = min(moment_ms, now_ms + LOOK_AGAIN_MS)  # serving was refused for now: see _serve_waiters
        if moment_ms < self._alarm_ms or self._alarm_ms <= now_ms:
            if moment_ms < NEVER:
                self._alarm_ms = moment_ms
                self._services.timers.set(self, moment_ms)
            else:
                self._alarm_ms = NEVER

    def _wake(self, sleepers: list[Process]) -> None:
        self.wakes += len(sleepers)
        woken = Woken(self.name)
        for subscriber in sleepers:
            subscriber.tell(woken)

    def _serve_waiters(self, leases: Leases, now_ms: int) -> None:
        if len(leases.available) and self._services.refusal() is not None:
            return  # no majority answers: soon it will again, or this node leads no longer
        while len(leases.available):
            waiter = leases.next_waiter()
            if waiter is None:
                return
            numbers = self._take(waiter.count or 1, now_ms)
            if not numbers:
                return
            self._hand_out(numbers, waiter, waiter, now_ms)
            leases.end_wait(waiter)  # only now: if handing out crashes this queue, the waiter still gets an answer

    def _end_wait(self, waiter: Waiter, answer: Refusal | None) -> None:
        assert self.leases is not None, "only a leader lets wait"
        self.leases.end_wait(waiter)
        answer_fetch(waiter, waiter, answer)

    def on_end_waits(self, message: EndWaits) -> None:
        if self.leases is not None:
            for waiter in self.leases.waits_of(message.subscriber, message.ticket):
                self._end_wait(waiter, None)
            for waiter in (*(turn.waiter for turn in self._turns), *self._promised):
                if waiter.subscriber is message.subscriber and waiter.ticket is message.ticket:
                    waiter.until_ms = 0  # it gets what is on its way to it, or nothing

    def on_sleep(self, message: Sleep) -> None:
        asker = message.asker
        asker.tell(None)
        if self.leases is not None and asker.process.alive:
            self.leases.sleep(asker.process, only_ready=message.only_ready)
            self._settle(self._now_ms())

    def on_subscribe(self, message: Subscribe) -> None:
        """Nothing to do: the group knows its members, and this process exists now.  If all have gone, it ends."""
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


def answer_fetch(fetch: Fetch | Waiter, want: Want | Waiter, answer: Refusal | None) -> None:
    """Tell one FET why it gets nothing, or None if there is nothing."""
    fetch.subscriber.tell(Answered([(fetch.ticket, want.place, answer)]))


def _waiter_of(fetch: Fetch | Waiter, want: Want | Waiter, now_ms: int) -> Waiter:
    """Return a FET as a Waiter; without `wait` its time ends now."""
    if isinstance(want, Waiter):
        return want
    who = (fetch.subscriber, fetch.ticket, want.place, want.count)
    return Waiter(*who, now_ms + want.wait_ms, fetch.worker, fetch.door, fetch.removes, want.timeout_ms)
