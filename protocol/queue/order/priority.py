"""The two priority structures, H4 and QA: numbers by key, the smallest key first, FIFO within a key.

In go (key, number) pairs, one by one or in batches of one key; out come numbers, in order.  Keys and
numbers are Int64; a number is inside at most once.  Nothing here knows what a message is, and nothing
ever sorts all keys.  H4 and QA differ in how they find the smallest key, so one becomes the other
without a look at the numbers.

Measured on 2 shared cores, 10^6 records, microseconds and bytes for each number:

    the keys alone, all random       heapq: put 0.07, take 0.7    4-ary heap in Python: put 0.14, take 2.1
    H4, one key, in sequence         extend by 100 0.003, push 0.13, take by 100 0.015, take(1) 0.5   0 bytes
    H4, 3 keys at random             extend by 33 0.02, push 0.27, take by 100 0.017, take(1) 0.5   8 bytes
    QA, 3 keys at random             as H4
    H4, 10^6 keys at random          push 0.33, take 1.5 to 2.1     128 bytes
    QA, 10^6 keys at random          push 0.7, take 0.8 to 1.0      106 bytes

So H4 keeps its promise (a heap of distinct keys, each with a FIFO) with the binary heap of `heapq`, which
is in C.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from wakeq.protocol.queue.order.fifo import Fifo, Lives
from wakeq.protocol.queue.order.key_order import KEYS_IN_BITMAP_MAX, KeyBitmap, KeyHeap, KeyOrder


def h4_order() -> KeyOrder:
    """Return the order of H4: any Int64 keys."""
    return KeyHeap()


def qa_order(key_min: int, key_max: int) -> KeyOrder:
    """Return the order of QA: an array over the keys of a range, of which one that nobody can fill costs nothing."""
    assert key_min <= key_max
    if key_max - key_min < KEYS_IN_BITMAP_MAX:
        return KeyBitmap(key_min, key_max)
    return KeyHeap()


class PriorityLine:
    """Numbers by key, in an order of the keys."""

    __slots__ = ("_fifos", "_length", "_order", "_sweep_keys", "_sweep_place")

    def __init__(self, order: KeyOrder) -> None:
        self._order = order
        # A key with one number holds the number itself; no Fifo is ever empty.
        self._fifos: dict[int, int | Fifo] = {}
        self._length = 0
        self._sweep_keys: list[int] | None = None  # what this round of sweeps has still to look at, the next one last
        self._sweep_place = 0  # where in that one

    def __len__(self) -> int:
        return self._length

    def push(self, key: int, number: int) -> None:
        """Put one number behind all others of its key."""
        fifo = self._fifos.get(key)
        if fifo is None:
            self._order.add(key)
            self._fifos[key] = number
        elif isinstance(fifo, int):
            self._fifos[key] = pair = Fifo(fifo, fifo + 1)
            pair.push(number)
        else:
            fifo.push(number)
        self._length += 1

    def extend(self, key: int, numbers: Sequence[int]) -> None:
        """Put many numbers, in their order, behind all others of one key; best as a range."""
        if len(numbers) > 1:
            self._fifo_for(key).extend(numbers)
            self._length += len(numbers)
        elif numbers:
            self.push(key, numbers[0])

    def push_front(self, key: int, numbers: Sequence[int]) -> None:
        """Put numbers, in their order, before all others of one key."""
        if numbers:
            self._fifo_for(key).push_front(numbers)
            self._length += len(numbers)

    def take(self, count: int) -> list[int]:
        """Remove and return the next numbers, at most `count`."""
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
        self._length -= len(taken)
        return taken

    def peek(self, count: int) -> list[int]:
        """Return the next numbers, at most `count`, and leave them inside."""
        return list(islice((number for fifo in self._in_order() for number in fifo), count))

    def order_by(self, order: KeyOrder) -> None:
        """Go on in another order, which must be empty; its cost is that of the distinct keys."""
        for key in self._fifos:
            order.add(key)
        self._order = order

    @property
    def is_being_swept(self) -> bool:
        """Whether a round of sweeps has begun and not ended."""
        return bool(self._sweep_keys)

    def sweep(self, lives: Lives, work: int) -> int:
        """Take out numbers that live no more; return how many.

        One call looks at about `work` numbers and goes on where the last one ended.  At the end of a round all that
        were dead when it began are gone.
        """
        if not self._sweep_keys:
            self._sweep_keys = list(self._fifos)
            self._sweep_place = 0
        gone, keys = 0, self._sweep_keys
        while keys and work > 0:
            next_place, looked_at, gone_now = self._sweep_piece(keys[-1], lives)
            work -= max(looked_at, 1)
            gone += gone_now
            if next_place is None:
                keys.pop()
            self._sweep_place = next_place or 0
        self._length -= gone
        return gone

    def _sweep_piece(self, key: int, lives: Lives) -> tuple[int | None, int, int]:
        """Clear a piece of one key; return its next place or None, how many were looked at, and how many went."""
        fifo = self._fifos.get(key)
        if fifo is None:
            return None, 0, 0
        if isinstance(fifo, int):
            is_empty = not lives(fifo)
            next_place, looked_at, gone = None, 1, int(is_empty)
        else:
            next_place, looked_at, gone = fifo.sweep(self._sweep_place, lives)
            is_empty = not fifo
        if is_empty:
            del self._fifos[key]
            self._order.drop(key)
        return next_place, looked_at, gone

    def _fifo_for(self, key: int) -> Fifo:
        """Return the Fifo of a key, made if need be, to which numbers are about to come."""
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

    def _in_order(self) -> Iterator[Iterable[int]]:
        for key in self._order.in_order():
            fifo = self._fifos[key]
            yield (fifo,) if isinstance(fifo, int) else fifo
