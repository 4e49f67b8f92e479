"""Leases: what only the leader knows of a queue: which messages can be handed out, and who holds which.

It extends DueMoments (what becomes available or expires later), which extends Audience (who waits and who sleeps).

Pure: it tells no process anything, and time comes in as a number.  It is built from the ledger when this node becomes
leader and dropped when it no longer is.  It reads the ledger and never changes it.

The wake contract: while messages are available, sleepers are woken until nobody sleeps, or there are as many woken ones
that have not fetched yet as there are messages; a sleeper that did not ask for this restraint is woken in any case, as
the original's document says.  It holds at every moment, not only when a message comes: `to_wake` is asked after every
change, and says who is to be woken.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import filterfalse
from typing import Any

from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import PAUSE_MS_MAX, Token
from wakeq.protocol.queue.empty import EMPTY_DICT, EMPTY_SET
from wakeq.protocol.queue.leases.audience import NEVER
from wakeq.protocol.queue.leases.due_moments import DueMoments, Held
from wakeq.protocol.queue.leases.holders import Holders
from wakeq.protocol.queue.leases.lease_ends import FELL_DUE_MAX, LeaseEnds
from wakeq.protocol.queue.leases.staged_ends import StagedEnds
from wakeq.protocol.queue.ledger.ledger import Ledger
from wakeq.protocol.queue.order.key_order import KeyOrder
from wakeq.protocol.queue.order.line import Line
from wakeq.protocol.queue.order.priority import h4_order, qa_order

WOKEN_GRACE_MS = 5_000  # if a woken worker has not fetched by then, another one is woken
LEAVING_GRACE_MS = 1_000  # how much longer a lease runs while its acknowledgement is on its way through the log
HEADS = 64  # how many numbers at the head of the line are looked at together


class Leases(DueMoments):
    """The leader's side of one queue."""

    __slots__ = (
        "_ends", "_holders", "_withheld", "available", "ends", "leaving", "resumes_ms", "sequence", "term",
    )  # fmt: skip

    def __init__(self, ledger: Ledger, term: int, now_ms: int) -> None:
        super().__init__(ledger)
        self.term = term
        self.sequence = 0
        self.available = Line(order_for(ledger.policies))
        self.leaving: set[int] = EMPTY_SET
        self.ends: StagedEnds | None = None  # of what is staged, if anything ever was
        self._ends: LeaseEnds | None = None  # made by the first lease
        self._holders: Holders | None = None
        self._withheld: dict[int, None] = EMPTY_DICT  # would be available if they were not leaving
        self.resumes_ms = 0  # when a pause ends by itself; 0 if there is none
        self.pause_changed()
        self.rebuild(now_ms)

    def rebuild(self, now_ms: int) -> None:
        """Build everything from the ledger: what is out, what is delayed, what is available."""
        ledger = self.ledger
        if ledger.columns.only_sizes and not ledger.deliveries.records:  # nothing but what was published and waits
            for numbers in ledger.columns.living_by_chunk():
                self.available.extend(0, numbers)
            return
        for number, side in ledger.deliveries.records.items():
            if side.until_ms:
                self._hold(number, side.until_ms, (side.term, side.sequence), None, 0)
        plain: list[int] = []
        for number in ledger.columns.living_numbers():
            if number in self.held:
                continue
            if ledger.is_plain(number):
                plain.append(number)
            else:
                self.available.extend(0, plain)
                plain = []
                self.add(number, now_ms)
        self.available.extend(0, plain)

    # --- coming in -------------------------------------------------------------------------------------------------

    def published(self, numbers: Sequence[int], at_ms: int, clock: Callable[[], int]) -> None:
        """Take messages that were published at a moment; the clock is read only if one of them may have to wait."""
        if self.ledger.columns.only_sizes or self.ledger.columns.are_plain(numbers):
            if len(numbers) == 1:
                self.available.push(0, numbers[0])
            else:
                self.available.extend(0, numbers)
            return
        now_ms = max(at_ms, clock())
        for number in numbers:
            self.add(number, now_ms)

    def add(self, number: int, now_ms: int) -> None:
        """Take a living message that is not out."""
        self._watch_expiry(number)
        self.offer(number, now_ms)

    def offer(self, number: int, now_ms: int) -> None:
        """Make a message available, now or at its moment."""
        due_ms = self.ledger.due_of(number)
        if due_ms > now_ms:
            if due_ms >= NEVER:  # stashed
                return
            self._delay(number, due_ms)
        elif number in self.leaving:
            self._withhold((number,))
        else:
            self.available.push(self.ledger.columns.priority_of(number), number)

    # --- going out -------------------------------------------------------------------------------------------------

    def next_numbers(self, count: int) -> list[int]:
        """Return the next messages in line, leaving them there."""
        return self.available.peek(count)

    def take(self, count: int, now_ms: int) -> list[int]:
        """Take up to `count` messages out of the line, skipping those that are gone, expired or leaving."""
        if self.ledger.paused_until_ms > now_ms:
            return []
        line = self.available
        numbers = line.take(count)
        if not (line.dead or self.expiries) and self.leaving.isdisjoint(numbers):
            return numbers
        kept = [number for number in numbers if self._may_go(number, now_ms)]
        while len(kept) < count and self.ready(now_ms):
            more = line.take(count - len(kept))
            kept += [number for number in more if self._may_go(number, now_ms)]
        return kept

    def _may_go(self, number: int, now_ms: int) -> bool:
        if not self.ledger.columns.lives(number):
            self.available.dead -= 1
            return False
        if number in self.leaving:
            self._withhold((number,))
            return False
        expires_ms = self.ledger.columns.expires_of(number)
        return not 0 < expires_ms <= now_ms  # the calendar of expiries removes it

    def put_back(self, numbers: Sequence[int], now_ms: int) -> None:
        """Put messages that were taken and not handed out back to the head of the line, in their order."""
        ledger = self.ledger
        for number in reversed(numbers):
            if not ledger.columns.lives(number):
                continue
            if number in self.leaving or ledger.due_of(number) > now_ms:
                self.offer(number, now_ms)
            else:
                self.available.push_front(ledger.columns.priority_of(number), [number])

    def ready(self, now_ms: int) -> int:
        """Return how many messages are in line: 0 exactly when none can be handed out, else perhaps a few too many."""
        line = self.available
        if line.dead or self.leaving or self.expiries:
            while heads := line.peek(HEADS):
                passed_over = next((i for i, number in enumerate(heads) if self._may_go(number, now_ms)), len(heads))
                line.take(passed_over)
                if passed_over < len(heads):
                    break
        return len(line)

    def hand_out(
        self,
        numbers: list[int],
        holders: Sequence[Any],
        workers: Sequence[int],
        now_ms: int,
        timeout_ms: int = 0,
    ) -> tuple[list[int], int]:
        """Lease messages, each to its holder, for `timeout_ms` or (0) each for its own time.

        Return each one's end, and the first sequence.
        """
        first = self.sequence + 1
        self.sequence += len(numbers)
        ledger, term, held = self.ledger, self.term, self.held
        each_its_own = ledger.columns.has_timeouts and not timeout_ms
        if each_its_own:
            untils = [now_ms + ledger.timeout_of(number) for number in numbers]
        else:
            untils = [now_ms + (timeout_ms or ledger.policies.timeout * 1000)] * len(numbers)
        if ledger.policies.on_disconnect == "release":
            for number, holder in zip(numbers, holders, strict=True):
                self.holders.note(holder, [number])
        rows = zip(numbers, untils, holders, workers, strict=True)
        for sequence, (number, until, holder, worker) in enumerate(rows, first):
            held[number] = Held(until, (term, sequence), holder, worker)
        if each_its_own:
            for number, until in zip(numbers, untils, strict=True):
                self._end_at(until, [number])
        else:
            self._end_at(untils[0], numbers)
        return untils, first

    def _end_at(self, until_ms: int, numbers: list[int]) -> None:
        """Check at that moment whether these leases are over."""
        if self._ends is None:
            self._ends = LeaseEnds(self.held)
        self._ends.add(until_ms, numbers)

    def _hold(self, number: int, until_ms: int, token: Token, holder: Any, worker: int) -> None:
        self.held[number] = Held(until_ms, token, holder, worker)
        self._end_at(until_ms, [number])

    def extend(self, number: int, until_ms: int) -> None:
        """Put off the end of a lease."""
        lease = self.held[number]
        lease.until_ms = until_ms
        self._end_at(until_ms, [number])

    # --- coming to an end ------------------------------------------------------------------------------------------

    def leave(self, numbers: Iterable[int]) -> None:
        """An entry that ends these is on its way through the log: until its outcome neither hand out nor release."""
        if self.leaving:
            self.leaving.update(numbers)
        else:
            self.leaving = set(numbers)

    def withhold(self, numbers: Iterable[int]) -> None:
        """Let messages leave that were taken out of the line and never leased; those that stay return to the line."""
        numbers = list(numbers)
        self.leave(numbers)
        self._withhold(numbers)

    def _withhold(self, numbers: Iterable[int]) -> None:
        if self._withheld is EMPTY_DICT:
            self._withheld = {}
        self._withheld.update(dict.fromkeys(numbers))

    def _leave_no_more(self, numbers: Iterable[int]) -> None:
        """The outcome has come."""
        if self.leaving:
            self.leaving.difference_update(numbers)

    def removed(self, numbers: Sequence[int]) -> None:
        """Forget messages that are gone from the ledger; those in line are skipped when their turn comes."""
        held, withheld = self.held, self._withheld
        self._leave_no_more(numbers)
        died = 0
        for number in numbers:
            if held.pop(number, None) is not None:
                continue
            if number in withheld:
                del withheld[number]
            else:
                died += 1
        line = self.available
        if died:
            line.died(died)
        if line.dead:
            line.clear_away(len(numbers), self.ledger.columns.lives)
        if self.expiries or self.delayed:
            self._forget_gone()

    def stays(self, numbers: Iterable[int], now_ms: int) -> None:
        """The outcome was that these stay: what was put off meanwhile happens now (timeouts, expiry, handing out)."""
        numbers = list(numbers)
        self._leave_no_more(numbers)
        for number in numbers:
            if not self.ledger.columns.lives(number):
                continue
            lease = self.held.get(number)
            if lease is not None and lease.until_ms <= now_ms:
                self.extend(number, now_ms + LEAVING_GRACE_MS)
            if number in self._withheld:
                self._withheld.pop(number, None)
                self.offer(number, now_ms)
            self._watch_expiry(number)

    def requeued(self, numbers: Iterable[int], now_ms: int) -> None:
        """Make delayed messages available now; to be called before the ledger forgets their moments."""
        while self.fell_due(now_ms) >= FELL_DUE_MAX:
            pass  # put what is due anyway in line first: it must not be put there twice
        for number in numbers:
            if number not in self.held and self.ledger.due_of(number) > now_ms:
                self.available.push(self.ledger.columns.priority_of(number), number)

    def claimed(self, numbers: Sequence[int], now_ms: int) -> None:
        """The outcome of a claim has come: what it got is out until it ends, the rest returns to its place in line."""
        ledger = self.ledger
        self._leave_no_more(numbers)
        for number in filter(ledger.deliveries.is_leased, numbers):
            side = ledger.deliveries.records[number]
            self.held[number] = Held(NEVER, (side.term, side.sequence), None, 0)
        others = list(filterfalse(ledger.deliveries.is_leased, numbers))
        self.put_back(others, now_ms)
        for number in filter(self.ledger.columns.lives, others):
            self._watch_expiry(number)  # it may have expired meanwhile

    def came_back(self, number: int, now_ms: int) -> None:
        """A delivery ended: the message is available again, at its moment."""
        self._leave_no_more((number,))
        self.held.pop(number, None)
        self.add(number, now_ms)

    @property
    def holders(self) -> Holders:
        """Who holds what; only needed by queues that release leases on disconnect."""
        if self._holders is None:
            self._holders = Holders(self.held)
        return self._holders

    def order_again(self) -> None:
        """The queue's structure or priority range changed: sort the line in the new way."""
        self.available.order_by(order_for(self.ledger.policies))

    def for_new_incarnation(self, now_ms: int) -> "Leases":
        """Return the leases of the ledger's new incarnation, with the same sleepers and waiters."""
        new = Leases(self.ledger, self.term, now_ms)
        new.sequence = self.sequence
        new.take_over(self)
        return new

    # --- time ------------------------------------------------------------------------------------------------------

    @property
    def has_audience(self) -> bool:
        """Whether anybody waits, sleeps, or was woken and has not fetched yet."""
        return bool(self.waiters or self.sleepers or self.woken)

    @property
    def is_at_rest(self) -> bool:
        """Whether nobody wants anything and nothing becomes due: true of most queues most of the time."""
        if self.waiters or self.sleepers or self.woken:
            return False
        return not (self._ends or self.delayed or self.expiries or self.ends or self.resumes_ms)

    def next_moment_ms(self) -> int:
        """Return when to look again: perhaps earlier than something becomes due, never later."""
        moment_ms = self._first_due_ms()
        if self._ends is not None:
            moment_ms = min(moment_ms, self._ends.first_ms)
        if self.waiters:
            moment_ms = min(moment_ms, self._first_wait_ms)
        if self.ends:
            moment_ms = min(moment_ms, self.ends.first_ms)
        if self.woken:
            moment_ms = min(moment_ms, next(iter(self.woken.values())))
        if self.resumes_ms:
            moment_ms = min(moment_ms, self.resumes_ms)
        return moment_ms

    def pause_changed(self) -> None:
        """The queue was paused or resumed."""
        until_ms = self.ledger.paused_until_ms
        self.resumes_ms = until_ms if until_ms < PAUSE_MS_MAX else 0

    def fell_due(self, now_ms: int) -> int:
        """Make available what was delayed until now; return how many."""
        if 0 < self.resumes_ms <= now_ms:
            self.resumes_ms = 0
        numbers = self._no_longer_delayed(now_ms)
        for number in numbers:
            self.offer(number, now_ms)
        return len(numbers)

    def ran_out(self, now_ms: int) -> list[int]:
        """Return the messages whose lease is over; one whose outcome is on its way gets a little longer."""
        over: list[int] = []
        for number in () if self._ends is None else self._ends.take_over(now_ms):
            if number in self.leaving:
                self.extend(number, now_ms + LEAVING_GRACE_MS)
            else:
                over.append(number)
        return over

    # --- who is woken -----------------------------------------------------------------------------------------------

    def to_wake(self, now_ms: int) -> list[Any]:
        """Return the sleepers to wake now, by the queue's wake policy."""
        while self.woken and next(iter(self.woken.values())) <= now_ms:
            self.woken.pop(next(iter(self.woken)))
        if not self.sleepers or self.ledger.paused_until_ms > now_ms:
            return []
        ready = self.ready(now_ms)
        if not ready:
            return []
        chosen = self._woken_by_any() if self.always_woken or self.ledger.policies.wake == "all" else []
        while self.sleepers and ready > len(self.woken):
            subscriber, _ = self.sleepers.popitem(last=False)
            if self.always_woken:
                self.always_woken.pop(subscriber, None)
            if self.woken is EMPTY_DICT:
                self.woken = {}
            self.woken[subscriber] = now_ms + WOKEN_GRACE_MS
            chosen.append(subscriber)
        return chosen

    def to_wake_first(self, now_ms: int) -> list[Any]:
        """Return the sleepers to wake although waiting FETs may get all that is available."""
        if not self.sleepers or self.ledger.paused_until_ms > now_ms or not self.ready(now_ms):
            return []
        return self._woken_by_any()

    def _woken_by_any(self) -> list[Any]:
        """Take the sleepers that any message wakes, by the queue's wake policy, off the list."""
        match self.ledger.policies.wake:
            case "ready":
                return []
            case "all":
                chosen = list(self.sleepers)
            case "sleeper":
                chosen = list(self.always_woken)
        for subscriber in chosen:
            del self.sleepers[subscriber]
        if self.always_woken:
            self.always_woken.clear()
        return chosen


def order_for(policies: Policies) -> KeyOrder:
    """Return the order of the line that the queue's policies ask for."""
    if policies.structure == "QA":
        assert policies.priority_min is not None, "checked at creation"
        assert policies.priority_max is not None, "checked at creation"
        return qa_order(policies.priority_min, policies.priority_max)
    return h4_order()
