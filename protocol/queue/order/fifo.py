"""Fifo: the numbers of one key, first in, first out; those that follow one another cost nothing.

In go numbers, one by one or in batches; out they come in the same order.  Numbers in sequence are a run, others take 8
bytes in blocks.  What lives no more is cleared away a bounded piece at a time.  Pure; it knows no key and no message.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeAlias

BLOCK_NUMBERS = 1_024  # numbers in one block: 8 KiB
RUN_NUMBERS_MIN = 32  # a shorter run is cheaper inside a block than as an object of its own
SWEEP_NUMBERS = 4_096  # how many numbers of a run one sweep looks at, some 1 ms
SPENT_SEGMENTS_MAX = 32  # places of used-up segments that a FIFO keeps before it moves the rest up

Segment: TypeAlias = "range | array[int]"
Lives = Callable[[int], bool]
NOTHING = range(0)


class Fifo:
    """The numbers of one key: sealed segments, then an open run that grows while they are in sequence."""

    __slots__ = ("_at", "_dropped", "_first", "_segments", "_start", "_stop")

    def __init__(self, start: int, stop: int) -> None:
        self._segments: list[Segment] = []
        self._first = 0  # the first segment that is not used up; the places before it hold NOTHING
        self._dropped = 0  # how many places before these are no longer there
        self._at = 0  # how many numbers of that segment are gone; always fewer than it has
        self._start = start  # the open run
        self._stop = stop

    def __bool__(self) -> bool:
        return self._start < self._stop or self._first < len(self._segments)

    def __iter__(self) -> Iterator[int]:
        for part in self._parts():
            yield from part

    def push(self, number: int) -> None:
        """Put one number at the back."""
        if number != self._stop:
            self._seal_run()
            self._start = number
        self._stop = number + 1

    def extend(self, numbers: Sequence[int]) -> None:
        """Put many numbers at the back."""
        if not is_run(numbers):
            self._seal_run()
            self._append_blocks(array("q", numbers))
            self._start = self._stop = numbers[-1] + 1
            return
        if numbers[0] != self._stop:
            self._seal_run()
            self._start = numbers[0]
        self._stop = numbers[-1] + 1

    def push_front(self, numbers: Sequence[int]) -> None:
        """Put numbers before all others, in their own order."""
        segments, first = self._segments, self._first
        head = segments[first] if first < len(segments) else NOTHING
        if isinstance(head, array) and len(head) - self._at + len(numbers) <= BLOCK_NUMBERS:
            head[: self._at] = array("q", numbers)
        else:
            if self._at:
                segments[first] = head[self._at :]
            spare = max(first - 1, 0)  # a used-up place is taken again, so that one at a time stays cheap
            segments[spare:first] = segments_of(numbers)
            self._first = spare
        self._at = 0

    def take_into(self, taken: list[int], count: int) -> bool:
        """Move up to `count` numbers to `taken`; True while some remain."""
        while self._first < len(self._segments):
            segment = self._segments[self._first]
            end = self._at + count
            taken += segment[self._at : end]
            if end < len(segment):
                self._at = end
                return True
            count -= len(segment) - self._at
            self._spend_segment()
        end = min(self._start + count, self._stop)
        taken += range(self._start, end)
        self._start = end
        return end < self._stop

    def window(self, skip: int, count: int) -> tuple[list[int], int]:
        """Return up to `count` numbers behind the first `skip`, and how many of those are still to be passed."""
        found: list[int] = []
        for part in self._parts():
            if skip >= len(part):
                skip -= len(part)
                continue
            found += part[skip : skip + count - len(found)]
            skip = 0
            if len(found) == count:
                break
        return found, skip

    def sealed(self) -> "list[Segment]":
        """Return all that is inside as segments; the FIFO is not to be used any more."""
        assert not self._first
        assert not self._at
        self._seal_run()
        return self._segments

    def sweep(self, place: int, lives: Lives) -> tuple[int | None, int, int]:
        """Take what lives no more out of a piece of the segment at `place`, which is 0 at first.

        Return the next place (None after the last), how many numbers were looked at, and how many of them went.
        Nothing that was behind a place is ever passed over: places that were dropped are counted on, and what is put
        in front only makes a sweep look at something twice.
        """
        self._seal_run()
        at = max(place - self._dropped, self._first)
        if at >= len(self._segments):
            return None, 0, 0
        segment = self._segments[at]
        start = self._at if at == self._first else 0
        part, rest = segment[start : start + SWEEP_NUMBERS], segment[start + SWEEP_NUMBERS :]
        gone = [number for number in part if not lives(number)]
        pieces = pieces_without(part, gone) if gone else [part]
        if gone or rest:
            self._replace(at, [*pieces, rest] if rest else pieces)
        next_at = at + len(pieces)
        return next_at + self._dropped if next_at < len(self._segments) else None, len(part), len(gone)

    def _parts(self) -> Iterator[Segment]:
        """All that is left, in order, the open run last."""
        if self._first < len(self._segments):
            head = self._segments[self._first]
            yield head[self._at :] if self._at else head
            yield from islice(self._segments, self._first + 1, None)
        yield range(self._start, self._stop)

    def _seal_run(self) -> None:
        """Move the open run behind the segments and leave an empty one."""
        count, segments = self._stop - self._start, self._segments
        if count >= RUN_NUMBERS_MIN:
            segments.append(range(self._start, self._stop))
        elif count:
            last = segments[-1] if segments else NOTHING
            if isinstance(last, range) or len(last) >= BLOCK_NUMBERS:
                last = array("q")
                segments.append(last)
            if count == 1:
                last.append(self._start)
            else:  # at most 30 numbers more than a block should have
                last.extend(range(self._start, self._stop))
        self._start = self._stop

    def _append_blocks(self, numbers: "array[int]") -> None:
        segments, used = self._segments, 0
        last = segments[-1] if segments else NOTHING
        if isinstance(last, array) and len(last) < BLOCK_NUMBERS:
            used = BLOCK_NUMBERS - len(last)
            last.extend(numbers[:used])
        segments += (numbers[at : at + BLOCK_NUMBERS] for at in range(used, len(numbers), BLOCK_NUMBERS))

    def _spend_segment(self) -> None:
        """Let go of the first segment."""
        self._segments[self._first] = NOTHING
        self._first += 1
        self._at = 0
        spent_max = max(SPENT_SEGMENTS_MAX, len(self._segments) // 2)
        if self._first == len(self._segments) or self._first > spent_max:
            del self._segments[: self._first]
            self._dropped += self._first
            self._first = 0

    def _replace(self, place: int, pieces: "list[Segment]") -> None:
        """Put the pieces, none of them empty, where what is left of the segment at `place` was."""
        self._segments[place : place + 1] = pieces
        if place == self._first:
            self._at = 0
        if self._first == len(self._segments):  # only used-up places are left
            self._segments.clear()
            self._first = 0


def is_run(numbers: Sequence[int]) -> bool:
    """Tell whether the numbers, at least one, each follow the one before."""
    if isinstance(numbers, range):
        return numbers.step == 1 or len(numbers) == 1
    count, first = len(numbers), numbers[0]
    if numbers[-1] - first != count - 1:
        return False
    return count <= 2 or list(numbers) == list(range(first, first + count))


def segments_of(numbers: Sequence[int]) -> list[Segment]:
    """Cut numbers into segments: one run if they are one that is worth it, else blocks."""
    if len(numbers) >= RUN_NUMBERS_MIN and is_run(numbers):
        return [range(numbers[0], numbers[-1] + 1)]
    return [array("q", numbers[at : at + BLOCK_NUMBERS]) for at in range(0, len(numbers), BLOCK_NUMBERS)]


def pieces_without(segment: Segment, gone: list[int]) -> list[Segment]:
    """Cut numbers, which are inside and in its order, out of a segment; short runs go into blocks."""
    if isinstance(segment, array):
        left = set(gone)
        block = array("q", [number for number in segment if number not in left])
        return [block] if block else []
    pieces, start = Fifo(0, 0), segment.start
    for number in gone:
        if start < number:
            pieces.extend(range(start, number))
        start = number + 1
    if start < segment.stop:
        pieces.extend(range(start, segment.stop))
    return pieces.sealed()
