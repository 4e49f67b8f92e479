"""KeyOrder: distinct keys, the smallest first; as a heap for any keys, or as bits for a range of them.  Pure."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, merge
from typing import Protocol

from wakeq.protocol.queue.empty import EMPTY_DICT

STALE_KEYS_MIN = 64  # keys without numbers that the heap always tolerates
WORD_BITS = 10  # a word of the bitmap covers 1,024 keys
KEYS_IN_BITMAP_MAX = 1 << 20  # a wider range of keys is ordered by heap: it is no array in any honest sense


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

    __slots__ = ("_heap", "_stale")

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._stale: dict[int, None] = EMPTY_DICT  # keys in the heap that are not inside

    def __bool__(self) -> bool:
        return len(self._heap) > len(self._stale)

    def add(self, key: int) -> None:
        if key in self._stale:
            del self._stale[key]
        else:
            heappush(self._heap, key)

    def first(self) -> int:
        if self._stale:
            while self._heap[0] in self._stale:
                del self._stale[heappop(self._heap)]
        return self._heap[0]

    def drop_first(self) -> None:
        heappop(self._heap)

    def drop(self, key: int) -> None:
        if self._stale is EMPTY_DICT:
            self._stale = {}
        self._stale[key] = None
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
    """Keys of a bounded range as bits: words of 1,024 keys, made when used, under one summary word.

    A key outside of the range is ordered by a heap: a dead letter, or what was published before there was a range.
    """

    __slots__ = ("_first", "_key_max", "_key_min", "_outside", "_summary", "_words")

    def __init__(self, key_min: int, key_max: int) -> None:
        self._key_min = key_min
        self._key_max = key_max
        self._words: dict[int, int] = {}  # never holds a zero
        self._summary = 0  # one bit for each word that is there
        self._first: int | None = None  # the smallest key of the range, if it is known
        self._outside = KeyHeap()

    def _is_inside(self, key: int) -> bool:
        return self._key_min <= key <= self._key_max

    def add(self, key: int) -> None:
        if not self._is_inside(key):
            self._outside.add(key)
            return
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
        if not self._outside:
            return self._first_inside()
        other = self._outside.first()
        return min(self._first_inside(), other) if self._summary else other

    def _first_inside(self) -> int:
        if self._first is None:
            place = (self._summary & -self._summary).bit_length() - 1
            word = self._words[place]
            self._first = self._key_min + (place << WORD_BITS) + (word & -word).bit_length() - 1
        return self._first

    def drop_first(self) -> None:
        key = self.first()
        if self._is_inside(key):
            self.drop(key)
        else:
            self._outside.drop_first()

    def drop(self, key: int) -> None:
        if not self._is_inside(key):
            self._outside.drop(key)
            return
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
        return merge(self._inside_in_order(), self._outside.in_order()) if self._outside else self._inside_in_order()

    def _inside_in_order(self) -> Iterator[int]:
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


def qa_order(key_min: int, key_max: int) -> KeyOrder:
    """Return the order of QA: an array over the keys of a range, of which one that nobody can fill costs nothing."""
    assert key_min <= key_max
    if key_max - key_min < KEYS_IN_BITMAP_MAX:
        return KeyBitmap(key_min, key_max)
    return KeyHeap()
