"""Leases: what only the leader knows of a queue: which messages are ready, and which connection has which.

Pure: it tells no process anything, and time comes in as a number.  It is built from the ledger when this node becomes
leader and dropped when it no longer is.  It reads the ledger and never changes it.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import filterfalse
from typing import Any

import msgspec

from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import PAUSE_MS_MAX, Token
from wakeq.protocol.queue.empty import EMPTY_DICT, EMPTY_LIST, EMPTY_SET
from wakeq.protocol.queue.leases.audience import NEVER, Audience
from wakeq.protocol.queue.leases.due_moments import DueMoments
from wakeq.protocol.queue.leases.holders import Holders
from wakeq.protocol.queue.leases.lease_ends import DUE_MAX, LeaseEnds
from wakeq.protocol.queue.leases.staged_ends import StagedEnds
from wakeq.protocol.queue.ledger.ledger import Ledger
from wakeq.protocol.queue.ledger.staging import Name
from wakeq.protocol.queue.order.key_order import KeyHeap, KeyOrder, qa_order
from wakeq.protocol.queue.order.ready_line import ReadyLine
from wakeq.protocol.queue.timings import BOUNDS_MS, BUCKETS, SHORT_MS, Timings, count_work

ENDING_GRACE_MS = 1_000  # how much longer a lease runs while its acknowledgement is on its way through the log
UNSTASHED_MAX = 1_000  # parts of published stashes whose moments are known; the rest is taken to wait since its stash
HEADS = 64  # how many numbers at the head of the line are looked at together


class Lease(msgspec.Struct, gc=False):
    """A leased message."""

    until_ms: int
    token: Token
    holder: Any
    worker: int
    since_ms: int = 0  # when the message was delivered; 0: another leader has delivered it


class Leases:
    """What the leader knows of one queue beside its ledger."""

    __slots__ = (
        "_holders",
        "_lease_ends",
        "_withheld",
        "audience",
        "due",
        "ending",
        "held",
        "ledger",
        "line",
        "next_ms",
        "ready_since",
        "resumes_ms",
        "sequence",
        "staged_ends",
        "term",
        "unstashed",
    )  # fmt: skip

    def __init__(self, ledger: Ledger, term: int, now_ms: int) -> None:
        self.ledger = ledger  # what is true; it is read and never changed here
        self.term = term  # of this leadership: the first part of every token
        self.sequence = 0  # of the last delivery: the second part
        self.line = ReadyLine(order_for(ledger.policies))  # the ready messages
        self.held: dict[int, Lease] = {}  # the leased messages
        # When messages became ready of which the ledger does not say it: a lease ended early, or an operator wanted it.
        self.ready_since: dict[int, int] = EMPTY_DICT
        # When the newest stashes were published, by their numbers: the first, the end, the moment.
        self.unstashed: list[tuple[int, int, int]] = EMPTY_LIST
        self.ending: set[int] = EMPTY_SET  # an entry that ends these is on its way through the log
        self._withheld: dict[int, None] = EMPTY_DICT  # would be in line if they were not ending
        self.audience = Audience()  # who waits and who sleeps
        self.due: DueMoments | None = None  # of delayed and expiring messages, if there ever were any
        self._lease_ends: LeaseEnds | None = None  # made by the first lease
        self.staged_ends: StagedEnds | None = None  # of what is staged, if anything ever was
        self._holders: Holders | None = None  # who holds what; only for queues that release on disconnect
        self.resumes_ms = 0  # when a pause ends by itself; 0 if there is none
        self.next_ms = 0  # nothing but waits and sleeps ends before; 0: to be asked of `next_moment_ms`
        self.note_pause()
        self.rebuild(now_ms)

    def rebuild(self, now_ms: int) -> None:
        """Build everything from the ledger: which messages are leased, which are delayed, which are ready."""
        ledger = self.ledger
        if ledger.columns.only_sizes and not ledger.deliveries.records:  # nothing but what was published and waits
            for numbers in ledger.columns.living_by_chunk():
                self.line.extend(0, numbers)
            return
        for number, record in ledger.deliveries.records.items():
            if record.until_ms:
                self._hold(number, record.until_ms, (record.term, record.sequence), None, 0)
        plain: list[int] = []
        for number in ledger.columns.living_numbers():
            if number in self.held:
                continue
            if ledger.is_plain(number):
                plain.append(number)
            else:
                self.line.extend(0, plain)
                plain = []
                self.add(number, now_ms)
        self.line.extend(0, plain)

    # --- coming in -------------------------------------------------------------------------------------------------

    def add_published(self, numbers: Sequence[int], at_ms: int, clock: Callable[[], int]) -> None:
        """Take messages that were published at a moment; the clock is read only if one of them may have to wait."""
        if self.ledger.columns.only_sizes or self.ledger.columns.are_plain(numbers):
            if len(numbers) == 1:
                self.line.push(0, numbers[0])
            else:
                self.line.extend(0, numbers)
            return
        now_ms = max(at_ms, clock())
        for number in numbers:
            self.add(number, now_ms)

    def add(self, number: int, now_ms: int) -> None:
        """Take a living message that is not leased."""
        self._watch_expiry(number)
        self.make_ready(number, now_ms)

    def _watch_expiry(self, number: int) -> None:
        expires_ms = self.ledger.columns.expires_of(number)
        if expires_ms:
            self._due_moments().watch_expiry(number, expires_ms)

    def _due_moments(self) -> DueMoments:
        """Return the calendars, to which a moment is about to come."""
        self.next_ms = 0
        if self.due is None:
            self.due = DueMoments()
        return self.due

    def make_ready(self, number: int, now_ms: int) -> None:
        """Put a message in line, now or when it is due."""
        due_ms = self.ledger.due_of(number)
        if due_ms > now_ms:
            if due_ms >= NEVER:  # stashed
                return
            self._due_moments().delay(number, due_ms)
        elif number in self.ending:
            self._withhold((number,))
        else:
            self.line.push(self.ledger.columns.priority_of(number), number)

    # --- going out -------------------------------------------------------------------------------------------------

    def next_numbers(self, count: int) -> list[int]:
        """Return the next messages in line, leaving them there."""
        return self.line.peek(count)

    def window(self, skip: int, count: int) -> list[int] | None:
        """Return messages in line behind the next `skip`, leaving them there; None if that is too far to look."""
        return self.line.window(skip, count)

    def take(self, count: int, now_ms: int) -> list[int]:
        """Take up to `count` messages out of the line, passing over those that are gone, expired or about to end."""
        if self.ledger.paused_until_ms > now_ms:
            return []
        line = self.line
        numbers = line.take(count)
        if not (line.gone or (self.due and self.due.expiries)) and self.ending.isdisjoint(numbers):
            return numbers
        kept = [number for number in numbers if self._is_deliverable(number, now_ms)]
        while len(kept) < count and self.ready_count(now_ms):
            more = line.take(count - len(kept))
            kept += [number for number in more if self._is_deliverable(number, now_ms)]
        return kept

    def _is_deliverable(self, number: int, now_ms: int) -> bool:
        if not self.ledger.columns.lives(number):
            self.line.gone -= 1
            return False
        if number in self.ending:
            self._withhold((number,))
            return False
        expires_ms = self.ledger.columns.expires_of(number)
        return not 0 < expires_ms <= now_ms  # the calendar of expiries removes it

    def return_undelivered(self, numbers: Sequence[int], now_ms: int) -> None:
        """Put messages back at the front of the ready line, in their original order."""
        ledger = self.ledger
        for number in reversed(numbers):
            if not ledger.columns.lives(number):
                continue
            if number in self.ending or ledger.due_of(number) > now_ms:
                self.make_ready(number, now_ms)
            else:
                self.line.push_front(ledger.columns.priority_of(number), [number])

    def ready_count(self, now_ms: int) -> int:
        """Return the number of ready messages.  Zero is exact; a positive number may include a few that are gone."""
        line = self.line
        if line.gone or self.ending or (self.due and self.due.expiries):
            while heads := line.peek(HEADS):
                places = (place for place, number in enumerate(heads) if self._is_deliverable(number, now_ms))
                passed_over = next(places, len(heads))
                line.take(passed_over)
                if passed_over < len(heads):
                    break
        return line.count

    def lease(
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
            held[number] = Lease(until, (term, sequence), holder, worker, now_ms)
        if self._lease_ends is None:
            self._lease_ends = LeaseEnds(held)
        if each_its_own:
            for number, until in zip(numbers, untils, strict=True):
                self._lease_ends.add(until, [number])
        else:
            self._lease_ends.add(untils[0], numbers)
        self.next_ms = min(self.next_ms, *untils) if each_its_own else min(self.next_ms, untils[0])
        return untils, first

    def _end_at(self, until_ms: int, numbers: list[int]) -> None:
        """Check at that moment whether these leases are over."""
        if self._lease_ends is None:
            self._lease_ends = LeaseEnds(self.held)
        self._lease_ends.add(until_ms, numbers)
        self.next_ms = min(self.next_ms, until_ms)

    def _hold(self, number: int, until_ms: int, token: Token, holder: Any, worker: int) -> None:
        self.held[number] = Lease(until_ms, token, holder, worker)
        self._end_at(until_ms, [number])

    def extend(self, number: int, until_ms: int) -> None:
        """Give a lease a later end."""
        lease = self.held[number]
        lease.until_ms = until_ms
        self._end_at(until_ms, [number])

    # --- coming to an end ------------------------------------------------------------------------------------------

    def mark_ending(self, numbers: Iterable[int]) -> None:
        """Keep messages from being delivered or released until the outcome of an entry that ends them is known."""
        if self.ending:
            self.ending.update(numbers)
        else:
            self.ending = set(numbers)

    def withhold(self, numbers: Iterable[int]) -> None:
        """The same for messages that were taken out of the line and not leased; those that stay return to the line."""
        numbers = list(numbers)
        self.mark_ending(numbers)
        self._withhold(numbers)

    def _withhold(self, numbers: Iterable[int]) -> None:
        if self._withheld is EMPTY_DICT:
            self._withheld = {}
        self._withheld.update(dict.fromkeys(numbers))

    def _unmark(self, numbers: Iterable[int]) -> None:
        """The outcome is known."""
        if self.ending:
            self.ending.difference_update(numbers)

    def forget_removed(
        self, numbers: Sequence[int], timings: Timings | None = None, total: Timings | None = None, at_ms: int = 0
    ) -> None:
        """Forget messages that are gone from the ledger; those in line are skipped when their turn comes.

        With `timings` they were acknowledged at that moment: count for how long their workers had them, here and in the
        `total` of all queues.
        """
        held, withheld, ready_since = self.held, self._withheld, self.ready_since
        if self.ending:
            self.ending.difference_update(numbers)
        removed_ready = 0  # they stay in line, to be passed over
        since_ms = together = 0  # so many leases in a row began at one moment
        for number in numbers:
            lease = held.pop(number, None)
            if lease is not None:
                if lease.since_ms == since_ms:
                    together += 1
                else:
                    if together and since_ms and timings is not None and total is not None:
                        count_work(timings, total, at_ms - since_ms, together)
                    since_ms, together = lease.since_ms, 1
                continue
            if ready_since:
                ready_since.pop(number, None)
            if number in withheld:
                del withheld[number]
            else:
                removed_ready += 1
        if together and since_ms and timings is not None and total is not None:
            # As in count_work().
            worked_ms = at_ms - since_ms
            bucket = BUCKETS[worked_ms] if 0 <= worked_ms <= SHORT_MS else bisect_left(BOUNDS_MS, worked_ms)
            timings.works[bucket] += together
            total.works[bucket] += together
            timings.worked_ms += together * worked_ms
            total.worked_ms += together * worked_ms
        line = self.line
        if removed_ready:
            line.count_removed(removed_ready)
        if line.gone:
            line.clear_away(len(numbers), self.ledger.columns.lives)
        if self.due is not None:
            self.due.forget_gone(self.ledger.columns.living, self.ledger.columns.lives)

    def keep_leased(self, numbers: Iterable[int], now_ms: int) -> None:
        """Undo `mark_ending` for messages whose entry was refused.

        Timeouts and expiries that were postponed meanwhile take effect now.
        """
        numbers = list(numbers)
        self._unmark(numbers)
        for number in numbers:
            if not self.ledger.columns.lives(number):
                continue
            lease = self.held.get(number)
            if lease is not None and lease.until_ms <= now_ms:
                self.extend(number, now_ms + ENDING_GRACE_MS)
            if number in self._withheld:
                self._withheld.pop(number, None)
                self.make_ready(number, now_ms)
            self._watch_expiry(number)

    def make_due_now(self, numbers: Iterable[int], now_ms: int) -> None:
        """Put delayed messages in line now; to be called before the ledger forgets their moments."""
        while self.release_due(now_ms) >= DUE_MAX:
            pass  # put what is due anyway in line first: it must not be put there twice
        for number in numbers:
            if number not in self.held and self.ledger.due_of(number) > now_ms:
                self.note_ready(number, now_ms)
                self.line.push(self.ledger.columns.priority_of(number), number)

    def lease_claimed(self, numbers: Sequence[int], now_ms: int) -> None:
        """The outcome of a claim is known: its messages are leased until it ends, the others return to their places."""
        ledger = self.ledger
        self._unmark(numbers)
        for number in filter(ledger.deliveries.is_leased, numbers):
            record = ledger.deliveries.records[number]
            self.held[number] = Lease(NEVER, (record.term, record.sequence), None, 0)
            if self.ready_since:
                self.ready_since.pop(number, None)
        others = list(filterfalse(ledger.deliveries.is_leased, numbers))
        self.return_undelivered(others, now_ms)
        for number in filter(self.ledger.columns.lives, others):
            self._watch_expiry(number)  # it may have expired meanwhile

    def return_to_line(self, number: int, now_ms: int) -> None:
        """A lease ended early or timed out: the message is ready again, now or when it is due."""
        self._unmark((number,))
        self.held.pop(number, None)
        if not self.ledger.due_of(number):
            self.note_ready(number, now_ms)
        self.add(number, now_ms)

    def note_ready(self, number: int, now_ms: int) -> None:
        """Remember that a message is ready since this moment: the ledger does not say it."""
        if self.ready_since is EMPTY_DICT:
            self.ready_since = {}
        self.ready_since[number] = now_ms

    def note_unstashed(self, numbers: range, at_ms: int) -> None:
        """Remember that stashed messages were published at this moment: the ledger and their bodies do not say it."""
        if self.unstashed is EMPTY_LIST:
            self.unstashed = []
        runs, first, end = self.unstashed, numbers.start, numbers.stop
        place = bisect_left(runs, (first,))
        if place and runs[place - 1][1:] == (first, at_ms):  # the next part of the same stash
            runs[place - 1] = runs[place - 1][0], end, at_ms
        else:
            runs.insert(place, (first, end, at_ms))
        if len(runs) > UNSTASHED_MAX:
            del runs[: UNSTASHED_MAX // 2]

    def unstashed_ms(self, number: int) -> int:
        """Return when the stash of a message was published; 0 if it was in none, or that is not known any more."""
        place = bisect_left(self.unstashed, (number + 1,))
        if place and number < self.unstashed[place - 1][1]:
            return self.unstashed[place - 1][2]
        return 0

    @property
    def holders(self) -> Holders:
        """Who holds what; only needed by queues that release leases on disconnect."""
        if self._holders is None:
            self._holders = Holders(self.held)
        return self._holders

    def reorder(self) -> None:
        """The queue's structure or priority range changed: sort the line in the new way."""
        self.line.order_by(order_for(self.ledger.policies))

    def for_new_incarnation(self, now_ms: int) -> "Leases":
        """Return the leases of the ledger's new incarnation, with the same sleepers and waiters."""
        new = Leases(self.ledger, self.term, now_ms)
        new.sequence, new.audience = self.sequence, self.audience
        return new

    # --- time ------------------------------------------------------------------------------------------------------

    def next_moment_ms(self) -> int:
        """Return when to look again: perhaps earlier than something becomes due, never later."""
        moment_ms = NEVER if self.due is None else self.due.next_moment_ms()
        if self._lease_ends is not None:
            moment_ms = min(moment_ms, self._lease_ends.first_ms)
        if self.staged_ends is not None:
            moment_ms = min(moment_ms, self.staged_ends.first_ms)
        if self.resumes_ms:
            moment_ms = min(moment_ms, self.resumes_ms)
        return moment_ms

    def watch_staged(self, name: Name, moments: Mapping[int, int]) -> None:
        """Note until when the epochs of what is staged under a name last."""
        if self.staged_ends is None:
            self.staged_ends = StagedEnds()
        self.staged_ends.set(name, moments)
        self.next_ms = 0

    def note_pause(self) -> None:
        """The queue was paused or resumed."""
        until_ms = self.ledger.paused_until_ms
        self.resumes_ms = until_ms if until_ms < PAUSE_MS_MAX else 0
        self.next_ms = 0

    def release_due(self, now_ms: int) -> int:
        """Put delayed messages that are due in line; return how many."""
        if 0 < self.resumes_ms <= now_ms:
            self.resumes_ms = 0
        numbers = [] if self.due is None else self.due.take_due(now_ms, self._due_of)
        for number in numbers:
            self.make_ready(number, now_ms)
        return len(numbers)

    def _due_of(self, number: int) -> int:
        # A leased message is looked at again when it returns.
        if number in self.held or not self.ledger.columns.lives(number):
            return 0
        return self.ledger.due_of(number)

    def take_expired(self, now_ms: int) -> list[int]:
        """Return the messages that have expired and are not leased."""
        return [] if self.due is None else self.due.take_expired(now_ms, self._expiry_of)

    def _expiry_of(self, number: int) -> int:
        # A leased message is looked at again when it returns, a stashed one when it is published.
        columns = self.ledger.columns
        if number in self.held or not columns.lives(number) or columns.is_hidden(number):
            return 0
        return columns.expires_of(number)

    def take_timed_out(self, now_ms: int) -> list[int]:
        """Return the messages whose lease timed out; one whose end is on its way to the log gets a little longer."""
        over: list[int] = []
        for number in () if self._lease_ends is None else self._lease_ends.take_ended(now_ms):
            if number in self.ending:
                self.extend(number, now_ms + ENDING_GRACE_MS)
            else:
                over.append(number)
        return over

    # --- who is woken -----------------------------------------------------------------------------------------------

    def to_wake(self, now_ms: int) -> list[Any]:
        """Return the sleepers to wake now, by the queue's wake policy."""
        audience = self.audience
        audience.expect(now_ms)
        if not audience.sleepers or self.ledger.paused_until_ms > now_ms:
            return []
        ready = self.ready_count(now_ms)
        return audience.to_wake(ready, self.ledger.policies.wake, now_ms) if ready else []

    def to_wake_first(self, now_ms: int) -> list[Any]:
        """Return the sleepers to wake although waiting fetches may get all ready messages."""
        if not self.audience.sleepers or self.ledger.paused_until_ms > now_ms or not self.ready_count(now_ms):
            return []
        return self.audience.woken_by_any(self.ledger.policies.wake)


def order_for(policies: Policies) -> Callable[[], KeyOrder]:
    """Return what makes the order of the line that the queue's policies ask for."""
    if policies.structure == "QA":
        assert policies.priority_min is not None, "checked at creation"
        assert policies.priority_max is not None, "checked at creation"
        return partial(qa_order, policies.priority_min, policies.priority_max)
    return KeyHeap
