"""The two priority structures, H4 and QA: numbers by key, the smallest key first, FIFO within a key.

In go (key, number) pairs, one by one or in batches of one key; out come numbers, in order.  Keys and
numbers are Int64; a number is inside at most once.  Nothing here knows what a message is, and nothing
ever sorts all keys.

Numbers that follow one another cost nothing (a run), others 8 bytes in blocks.  What leaves out of turn
is only marked; the marks are cleared away, a bounded piece at a time, before they outnumber an eighth of
the living.

Measured on 2 shared cores, 10^6 records, microseconds and bytes for each number:

    the keys alone, all random       heapq: put 0.07, take 0.7    4-ary heap in Python: put 0.14, take 2.1
    Heap4, one key, in sequence      extend by 100 0.003, push 0.13, take by 100 0.015, take(1) 0.5   0 bytes
    Heap4, 3 keys at random          extend by 33 0.02, push 0.27, take by 100 0.017, take(1) 0.5   8 bytes
    KeyArray, 3 keys at random       as Heap4
    Heap4, 10^6 keys at random       push 0.33, take 1.5 to 2.1     128 bytes
    KeyArray, 10^6 keys at random    push 0.7, take 0.8 to 1.0      106 bytes
    Heap4, discard at random 1.5 to 1.8, in order 0.45

So H4 keeps its promise (a heap of distinct keys, each with a FIFO) with the binary heap of `heapq`, which
is in C.
"""

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Protocol, TypeAlias

BLOCK_NUMBERS = 1_024  # numbers in one block: 8 KiB
RUN_NUMBERS_MIN = 32  # a shorter run is cheaper inside a block than as an object of its own
DEAD_NUMBERS_MIN = 1_024  # marks that are always tolerated
LIVING_PER_DEAD = 8  # beyond those, one mark for so many living numbers
SWEEP_NUMBERS = 4_096  # how many numbers one sweep looks at, some 0.2 ms
SPENT_SEGMENTS_MAX = 32  # places of used-up segments that a FIFO keeps before it moves the rest up
STALE_KEYS_MIN = 64  # keys without numbers that the heap always tolerates
WORD_BITS = 10  # a word of the bitmap covers 1,024 keys
KEYS_IN_BITMAP_MAX = 1 << 20  # a wider range of keys is ordered by heap: it is no array in any honest sense

Segment: TypeAlias = "range | array[int]"
NOTHING = range(0)


class Fifo:
    """The numbers of one key: sealed segments, then an open run that grows while they are in sequence."""

    __slots__ = ("_at", "_first", "_segments", "_start", "_stop")

    def __init__(self, start: int, stop: int) -> None:
        self._segments: list[Segment] = []
        self._first = 0  # the first segment that is not used up; the places before it hold NOTHING
        self._at = 0  # how many numbers of that segment are gone; always fewer than it has
        self._start = start  # the open run
        self._stop = stop

    def __bool__(self) -> bool:
        return self._start < self._stop or self._first < len(self._segments)

    def __iter__(self) -> Iterator[int]:
        for part in self._parts():
            yield from part

    def head(self) -> int:
        """Return the next number; the caller knows that there is one."""
        return self._segments[self._first][self._at] if self._first < len(self._segments) else self._start

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

    def remove(self, number: int) -> None:
        """Take one number out of the middle; the caller knows that it is inside."""
        if self._start <= number < self._stop:
            stop, self._stop = self._stop, number
            self._seal_run()
            self._start, self._stop = number + 1, stop
            return
        for place in range(self._first, len(self._segments)):
            segment = self._segments[place]
            start = self._at if place == self._first else 0
            if holds(segment, number, start):
                self._replace(place, pieces_without(segment[start:], [number]))
                return
        raise AssertionError(f"number {number} is not in this FIFO")

    def sealed(self) -> "list[Segment]":
        """Return all that is inside as segments; the FIFO is not to be used any more."""
        assert not self._first
        assert not self._at
        self._seal_run()
        return self._segments

    def sweep(self, place: int, dead: dict[int, int]) -> int:
        """Take dead numbers out of a piece of the segment at `place`, and of `dead`; return the next place.

        0 comes after the last.  A place that has moved since is no harm: the next round comes to it.
        """
        self._seal_run()
        place = max(place, self._first)
        if place >= len(self._segments):
            return 0
        segment = self._segments[place]
        start = self._at if place == self._first else 0
        part, rest = segment[start : start + SWEEP_NUMBERS], segment[start + SWEEP_NUMBERS :]
        found = [number for number in part if number in dead]
        pieces = pieces_without(part, found) if found else [part]
        if found or rest:
            self._replace(place, [*pieces, rest] if rest else pieces)
        for number in found:
            del dead[number]
        return place + len(pieces)

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


def holds(segment: Segment, number: int, start: int) -> bool:
    """Tell whether the number is there from place `start` on; blocks are searched as bytes, far faster."""
    if isinstance(segment, range):
        return segment.start + start <= number < segment.stop
    data, wanted, width = segment.tobytes(), number.to_bytes(8, sys.byteorder, signed=True), segment.itemsize
    at = data.find(wanted, start * width)
    while at % width and at > 0:  # found across two numbers
        at = data.find(wanted, at + 1)
    return at >= 0


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


class KeyOrder(Protocol):
    """Distinct keys, the smallest first."""

    def add(self, key: int) -> None:
        """Take in a key that is not inside."""

    def first(self) -> int:
        """Return the smallest key; the caller knows that there is one."""

    def drop_first(self) -> None:
        """Forget the key that `first` has just returned."""

    def drop(self, key: int) -> None:
        """Forget a key that is inside."""

    def in_order(self) -> Iterator[int]:
        """Yield all keys, the smallest first, at a cost for each key that is asked for."""


class KeyHeap:
    """Keys in a heap; one that is dropped out of turn stays as stale until it comes up."""

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._stale: set[int] = set()  # keys in the heap that are not inside

    def add(self, key: int) -> None:
        if key in self._stale:
            self._stale.remove(key)
        else:
            heappush(self._heap, key)

    def first(self) -> int:
        if self._stale:
            while self._heap[0] in self._stale:
                self._stale.remove(heappop(self._heap))
        return self._heap[0]

    def drop_first(self) -> None:
        heappop(self._heap)

    def drop(self, key: int) -> None:
        self._stale.add(key)
        if len(self._stale) > max(STALE_KEYS_MIN, len(self._heap) // 2):
            self._heap = [key for key in self._heap if key not in self._stale]
            heapify(self._heap)
            self._stale.clear()

    def in_order(self) -> Iterator[int]:
        heap = self._heap
        nearest = [(heap[0], 0)] if heap else []
        while nearest:
            key, place = heappop(nearest)
            for child in range(2 * place + 1, min(2 * place + 3, len(heap))):
                heappush(nearest, (heap[child], child))
            if key not in self._stale:
                yield key


class KeyBitmap:
    """Keys of a bounded range as bits: words of 1,024 keys, made when used, under one summary word."""

    def __init__(self, key_min: int, key_max: int) -> None:
        self._key_min = key_min
        self._key_max = key_max
        self._words: dict[int, int] = {}  # never holds a zero
        self._summary = 0  # one bit for each word that is there
        self._first: int | None = None  # the smallest key, if it is known

    def add(self, key: int) -> None:
        assert self._key_min <= key <= self._key_max
        offset = key - self._key_min
        place, bit = offset >> WORD_BITS, 1 << (offset & (1 << WORD_BITS) - 1)
        word = self._words.get(place, 0)
        if not word:
            self._first = None if self._summary else key
            self._summary |= 1 << place
        elif self._first is not None and key < self._first:
            self._first = key
        self._words[place] = word | bit

    def first(self) -> int:
        if self._first is None:
            place = (self._summary & -self._summary).bit_length() - 1
            word = self._words[place]
            self._first = self._key_min + (place << WORD_BITS) + (word & -word).bit_length() - 1
        return self._first

    def drop_first(self) -> None:
        self.drop(self.first())

    def drop(self, key: int) -> None:
        if key == self._first:
            self._first = None
        offset = key - self._key_min
        place = offset >> WORD_BITS
        word = self._words[place] ^ 1 << (offset & (1 << WORD_BITS) - 1)
        if word:
            self._words[place] = word
        else:
            del self._words[place]
            self._summary ^= 1 << place

    def in_order(self) -> Iterator[int]:
        for place in bits_of(self._summary):
            base = self._key_min + (place << WORD_BITS)
            for bit in bits_of(self._words[place]):
                yield base + bit


def bits_of(word: int) -> Iterator[int]:
    """Yield the places of the bits that are set, the lowest first."""
    while word:
        low = word & -word
        yield low.bit_length() - 1
        word ^= low


class PriorityStructure:
    """Numbers by key; what `Heap4` and `KeyArray` have in common, which is all but the order of the keys."""

    def __init__(self, order: KeyOrder) -> None:
        self._order = order
        # A key with one number holds the number itself; no Fifo is ever empty.
        self._fifos: dict[int, int | Fifo] = {}
        self._dead: dict[int, int] = {}  # number -> key of what is still in a Fifo but counts no more
        self._living = 0
        self._sweep_key: int | None = None  # where the next sweep goes on
        self._sweep_place = 0

    def __len__(self) -> int:
        return self._living

    def push(self, key: int, number: int) -> None:
        """Put one number behind all others of its key."""
        if self._dead and number in self._dead:
            self._bury(number)
        fifo = self._fifos.get(key)
        if fifo is None:
            self._order.add(key)
            self._fifos[key] = number
        elif isinstance(fifo, int):
            self._fifos[key] = pair = Fifo(fifo, fifo + 1)
            pair.push(number)
        else:
            fifo.push(number)
        self._living += 1

    def extend(self, key: int, numbers: Sequence[int]) -> None:
        """Put many numbers, in their order, behind all others of one key; best as a range."""
        if len(numbers) > 1:
            self._fifo_for(key, numbers).extend(numbers)
            self._living += len(numbers)
        elif numbers:
            self.push(key, numbers[0])

    def push_front(self, key: int, numbers: Sequence[int]) -> None:
        """Put numbers, in their order, before all others of one key."""
        if numbers:
            self._fifo_for(key, numbers).push_front(numbers)
            self._living += len(numbers)

    def pop(self) -> int | None:
        """Remove and return the next number, or None if there is none."""
        taken = self.take(1)
        return taken[0] if taken else None

    def take(self, count: int) -> list[int]:
        """Remove and return the next numbers, at most `count`."""
        if not self._dead:
            taken = self._take_all(count)
        else:
            taken = []
            while len(taken) < count and (numbers := self._take_all(count - len(taken))):
                taken += (number for number in numbers if self._dead.pop(number, None) is None)
        self._living -= len(taken)
        return taken

    def peek(self, count: int) -> list[int]:
        """Return the next numbers, at most `count`, and leave them inside."""
        numbers = (number for _, fifo in self._in_order() for number in fifo if number not in self._dead)
        return list(islice(numbers, count))

    def by_key(self) -> Iterator[tuple[int, list[int]]]:
        """Yield each key, the smallest first, with its numbers in order; nothing may change in between."""
        for key, fifo in self._in_order():
            if numbers := [number for number in fifo if number not in self._dead]:
                yield key, numbers

    def discard(self, number: int, key: int) -> None:
        """Remove one number out of turn; the caller knows that it is inside, under this key."""
        fifo = self._fifos[key]
        self._living -= 1
        if isinstance(fifo, int):
            assert fifo == number
            self._drop_key(key)
        elif fifo.head() == number:
            self._discard_head(key, fifo)
        else:
            self._dead[number] = key
            if len(self._dead) > max(DEAD_NUMBERS_MIN, self._living // LIVING_PER_DEAD):
                self._sweep()

    def clear(self) -> None:
        """Forget everything."""
        self._fifos.clear()
        self._dead.clear()
        self._living = 0
        self._order = self._new_order()

    def _new_order(self) -> KeyOrder:
        raise NotImplementedError

    def _fifo_for(self, key: int, numbers: Iterable[int]) -> Fifo:
        """Return the Fifo of a key, made if need be, to which the numbers are about to come."""
        if self._dead:
            for number in self._dead.keys() & numbers:
                self._bury(number)
        fifo = self._fifos.get(key)
        if isinstance(fifo, Fifo):
            return fifo
        if fifo is None:
            self._order.add(key)
            made = Fifo(0, 0)
        else:
            made = Fifo(fifo, fifo + 1)
        self._fifos[key] = made
        return made

    def _take_all(self, count: int) -> list[int]:
        """Take the next numbers, dead or living; `_living` is left to the caller."""
        taken: list[int] = []
        fifos, order = self._fifos, self._order
        while fifos and len(taken) < count:
            key = order.first()
            fifo = fifos[key]
            if isinstance(fifo, int):
                taken.append(fifo)
            elif fifo.take_into(taken, count - len(taken)):
                break
            del fifos[key]
            order.drop_first()
        return taken

    def _in_order(self) -> Iterator[tuple[int, Iterable[int]]]:
        for key in self._order.in_order():
            fifo = self._fifos[key]
            yield key, (fifo,) if isinstance(fifo, int) else fifo

    def _discard_head(self, key: int, fifo: Fifo) -> None:
        """Drop the head and the dead behind it, so that what expires in its order leaves no marks."""
        remains = fifo.take_into([], 1)
        while remains and self._dead and self._dead.pop(fifo.head(), None) is not None:
            remains = fifo.take_into([], 1)
        if not remains:
            self._drop_key(key)

    def _sweep(self) -> None:
        """Clear a piece of a Fifo of its dead: as much as a turn can bear, and more than came in since."""
        key = self._sweep_key
        fifo = self._fifos.get(key) if key is not None else None
        if not isinstance(fifo, Fifo):
            number, key = self._dead.popitem()  # the newest mark; to ask for the oldest is not O(1)
            self._dead[number] = key
            fifo, self._sweep_place = self._fifos[key], 0
            assert isinstance(fifo, Fifo)
        assert key is not None
        self._sweep_place = fifo.sweep(self._sweep_place, self._dead)
        self._sweep_key = key if self._sweep_place else None
        if not fifo:
            self._drop_key(key)

    def _bury(self, number: int) -> None:
        """Take out the dead copy of a number that comes in again: two of them could not be told apart."""
        key = self._dead.pop(number)
        fifo = self._fifos[key]
        assert isinstance(fifo, Fifo)
        fifo.remove(number)
        if not fifo:
            self._drop_key(key)

    def _drop_key(self, key: int) -> None:
        del self._fifos[key]
        self._order.drop(key)


class Heap4(PriorityStructure):
    """H4: a heap of distinct keys, with a FIFO for each.  Any Int64 key."""

    def __init__(self) -> None:
        super().__init__(self._new_order())

    def _new_order(self) -> KeyOrder:
        return KeyHeap()


class KeyArray(PriorityStructure):
    """QA: FIFOs by key - min.  The keys must lie in the range; one that nobody can fill costs nothing."""

    def __init__(self, key_min: int, key_max: int) -> None:
        assert key_min <= key_max
        self.key_min = key_min
        self.key_max = key_max
        super().__init__(self._new_order())

    def _new_order(self) -> KeyOrder:
        if self.key_max - self.key_min < KEYS_IN_BITMAP_MAX:
            return KeyBitmap(self.key_min, self.key_max)
        return KeyHeap()
