"""Runs: new messages by their numbers, which follow one another: what was published together stays together.

    first number, drafts --> append --> get, between, remove --> hand_over --> Stretches, for another thread

Pure.  Nothing is made for each message here but one byte, once something of its run has gone.  A buffer stays whole
until its last message goes; a list, which grows with what comes one by one, is shortened as its oldest go.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import NamedTuple, cast

from wakeq.protocol.log.entries import Draft
from wakeq.protocol.queue.empty import EMPTY_LIST
from wakeq.protocol.queue.ledger.alike import Alike
from wakeq.protocol.uid import NUMBER_MAX

_STAYS = b"\1"
GONE_MIN = 1_024  # at the head of a growing list, before it is shortened


class Stretch(NamedTuple):
    """Messages from a number on, as nobody will change them any more."""

    first: int
    drafts: Sequence[Draft]
    stays: bytes | None  # 1 for each that is still there, 0 for each that has gone; None: all are there

    def numbers(self, start: int, stop: int) -> Sequence[int]:
        """Return the numbers of what is there from one place on, before another."""
        numbers = range(self.first + start, self.first + stop)
        return numbers if self.stays is None else list(compress(numbers, self.stays[start:stop]))

    def rows(self) -> Iterator[tuple[int, Draft]]:
        """Yield what is there, with its number."""
        rows = enumerate(self.drafts, self.first)
        return rows if self.stays is None else compress(rows, self.stays)


class _Run:
    """The same, while messages may still go."""

    __slots__ = ("drafts", "first", "living", "stays")

    def __init__(self, first: int, drafts: Sequence[Draft]) -> None:
        self.first = first
        self.drafts = drafts
        self.living = len(drafts)
        self.stays: bytearray | None = None

    def shorten(self) -> None:
        """Forget what has gone at the head, if that is most of it: a queue that keeps up is to hold what waits only."""
        own, stays = self.drafts, self.stays
        if stays is not None and type(own) is list and len(own) - self.living > max(GONE_MIN, self.living):
            gone = stays.find(1)
            if gone > len(own) // 2:
                del own[:gone], stays[:gone]
                self.first += gone

    def stretch(self) -> Stretch:
        """Return what is there as it is now, without what has gone at the ends."""
        drafts, stays = self.drafts, self.stays
        if stays is None:
            return Stretch(self.first, drafts, None)
        if type(drafts) is Alike:
            return Stretch(self.first, drafts, bytes(stays))
        start, stop = stays.find(1), stays.rfind(1) + 1
        left = None if stop - start == self.living else bytes(stays[start:stop])
        return Stretch(self.first + start, drafts[start:stop], left)

    def cross_out(self, start: int, stop: int) -> int:
        """Let messages go; return how many of them were still there."""
        if start >= stop:
            return 0
        if self.stays is None:
            self.stays = bytearray(_STAYS) * len(self.drafts)
        gone = self.stays.count(1, start, stop)
        self.stays[start:stop] = bytes(stop - start)
        self.living -= gone
        if not self.living:
            self.drafts, self.stays = (), None
        return gone


class Runs:
    """See the head of this file.  Numbers only grow."""

    __slots__ = ("_firsts", "_runs", "living")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._firsts: list[int] = EMPTY_LIST
        self._runs: list[_Run] = EMPTY_LIST
        self.living = 0

    def append(self, first: int, drafts: Sequence[Draft]) -> None:
        """Take new messages; those that came one by one lie together."""
        count = len(drafts)
        self.living += count
        if self._runs and not self._runs[-1].living:  # a queue that keeps up would gather one for each message
            self._runs.pop()
            self._firsts.pop()
        if type(drafts) is not Alike:
            if self._runs:
                last = self._runs[-1]
                own = last.drafts
                if type(own) is list and last.first + len(own) == first:
                    own += drafts
                    last.living += count
                    if last.stays is not None:
                        last.stays += _STAYS * count
                        last.shorten()
                        self._firsts[-1] = last.first
                    return
            drafts = list(drafts)  # not the very list that is in the entry: this one grows
        if self._runs is EMPTY_LIST:  # an idle queue is to be small
            self._firsts, self._runs = [], []
        self._firsts.append(first)
        self._runs.append(_Run(first, drafts))

    @property
    def first(self) -> int:
        """No message with a lower number is here; all that live from here on are, in this one or a newer one."""
        return self._firsts[0] if self._firsts else NUMBER_MAX

    def get(self, number: int) -> Draft | None:
        """Return one message, if it is here."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0:
            return None
        run = self._runs[at]
        place = number - run.first
        if place >= len(run.drafts) or (run.stays is not None and not run.stays[place]):
            return None
        return run.drafts[place]

    def between(self, start: int, stop: int) -> list[Draft] | None:
        """Return the messages from one number on, before another; None if not all of them are here."""
        drafts: list[Draft] = []
        at = bisect_right(self._firsts, start) - 1
        while start < stop:
            if not 0 <= at < len(self._runs):
                return None
            run = self._runs[at]
            if start < run.first:  # what stood between has gone
                return None
            place, end = start - run.first, stop - run.first
            found = cast("list[Draft]", run.drafts[place:end])
            if not found or (run.stays is not None and run.stays.find(0, place, end) >= 0):
                return None
            drafts = drafts + found if drafts else found
            start += len(found)
            at += 1
        return drafts

    def remove(self, number: int) -> bool:
        """Let a message go; return whether it was here."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0:
            return False
        run = self._runs[at]
        place = number - run.first
        if place >= len(run.drafts):
            return False
        if run.stays is None:
            run.stays = bytearray(_STAYS) * len(run.drafts)
        elif not run.stays[place]:
            return False
        run.stays[place] = 0
        self.living -= 1
        run.living -= 1
        if not run.living:
            run.drafts, run.stays = (), None
        return True

    def remove_between(self, start: int, stop: int) -> int:
        """Let messages from one number on, before another, go; return how many of them were here."""
        removed = 0
        for at in range(max(0, bisect_right(self._firsts, start) - 1), len(self._runs)):
            run = self._runs[at]
            if run.first >= stop:
                break
            if run.living:
                removed += run.cross_out(max(0, start - run.first), min(len(run.drafts), stop - run.first))
        self.living -= removed
        return removed

    def hand_over(self) -> list[Stretch]:
        """Return all that is here as it is now."""
        return [run.stretch() for run in self._runs if run.living]

    def take_over(self, other: "Runs") -> None:
        """Take what another one has, which is newer; that one is empty then."""
        if not other._runs:
            return
        self._firsts, self._runs = [*self._firsts, *other._firsts], [*self._runs, *other._runs]
        self.living += other.living
        other.clear()
