"""ReadyLine: the ready messages of a queue: numbers by key, the smallest key first, first in, first out within a key.

    push, extend --> fifos by key --> take         count_removed --> how many are gone; clear_away sweeps a piece

In go (key, number) pairs, one by one or in batches of one key; out come numbers, in order.  Keys and
numbers are Int64; a number is inside at most once.  Nothing here knows what a message is, and nothing
ever sorts all keys.  The priority structures H4 and QA differ in how they find the smallest key, so one
becomes the other without a look at the numbers; with one key there is nothing to find.

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

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from wakeq.protocol.queue.order.fifo import SWEEP_NUMBERS, Fifo, Lives
from wakeq.protocol.queue.order.key_order import KeyOrder

GONE_MAX = 4_096  # how many numbers in line may be gone before it is swept ...
LINE_PER_GONE = 8  # ... and one more for every 8 numbers in line
KEYS_PASSED_MAX = 20_000  # keys that one look into the line passes over, some 30 ms
SWEPT_FOR_EACH = 4  # numbers looked at for each one that goes, so that a round ends before a quarter of the line goes


class ReadyLine:
    """The numbers of one queue that are ready, by key; some of them may be gone by now.

    Whoever takes numbers must check that the messages still exist.
    """

    __slots__ = (
        "_fifos",
        "_gone_in_round",
        "_make_order",
        "_order",
        "_sweep_due",
        "_sweep_keys",
        "_sweep_place",
        "count",
        "gone",
    )  # fmt: skip

    def __init__(self, make_order: Callable[[], KeyOrder]) -> None:
        self.count = 0  # of the numbers inside
        self.gone = 0  # how many of them are gone, at most
        self._fifos: dict[int, int | Fifo] = {}  # a key with one number holds the number itself; no Fifo is empty
        self._make_order = make_order
        self._order: KeyOrder | None = None  # of the keys; made for the second one: one key alone needs none
        self._sweep_keys: list[int] | None = None  # what this round of sweeps has still to look at, the next one last
        self._sweep_place = 0  # where in that one
        self._sweep_due = 0  # numbers to look at in the next sweep
        self._gone_in_round = 0  # how many went since the current round of sweeps began

    def __len__(self) -> int:
        return self.count

    def push(self, key: int, number: int) -> None:
        """Put one number behind all others of its key."""
        fifo = self._fifos.get(key)
        if fifo is None:
            if self._fifos or self._order is not None:
                self._order_key(key)
            self._fifos[key] = number
        elif isinstance(fifo, int):
            self._fifos[key] = pair = Fifo(fifo, fifo + 1)
            pair.push(number)
        else:
            fifo.push(number)
        self.count += 1

    def _order_key(self, key: int) -> None:
        """Take a key into the order that is not inside."""
        if self._order is None and self._fifos:
            self._begin_order()
        if self._order is not None:
            self._order.add(key)

    def _begin_order(self) -> None:
        self._order = self._make_order()
        for key in self._fifos:
            self._order.add(key)

    def extend(self, key: int, numbers: Sequence[int]) -> None:
        """Put many numbers, in their order, behind all others of one key; best as a range."""
        if len(numbers) > 1:
            self._fifo_for(key).extend(numbers)
            self.count += len(numbers)
        elif numbers:
            self.push(key, numbers[0])

    def push_front(self, key: int, numbers: Sequence[int]) -> None:
        """Put numbers, in their order, before all others of one key."""
        if numbers:
            self._fifo_for(key).push_front(numbers)
            self.count += len(numbers)

    def take(self, count: int) -> list[int]:
        """Remove and return the next numbers, at most `count`."""
        taken: list[int] = []
        fifos, order = self._fifos, self._order
        while fifos and len(taken) < count:
            key = next(iter(fifos)) if order is None else order.first()
            fifo = fifos[key]
            if isinstance(fifo, int):
                taken.append(fifo)
            elif fifo.take_into(taken, count - len(taken)):
                break
            del fifos[key]
            if order is not None:
                order.drop_first()
        self.count -= len(taken)
        return taken

    def peek(self, count: int) -> list[int]:
        """Return the next numbers, at most `count`, and leave them inside."""
        return list(islice((number for fifo in self._in_order() for number in fifo), count))

    def window(self, skip: int, count: int) -> list[int] | None:
        """Return up to `count` numbers behind the next `skip`, and leave them inside; None if too many keys are passed.

        What is passed over costs little within a key.
        """
        found: list[int] = []
        for fifo in islice(self._in_order(), KEYS_PASSED_MAX):
            if isinstance(fifo, Fifo):
                numbers, skip = fifo.window(skip, count - len(found))
                found += numbers
            elif skip:
                skip -= 1
            else:
                found += fifo
            if len(found) == count:
                return found
        return found if len(self._fifos) <= KEYS_PASSED_MAX else None

    def order_by(self, make_order: Callable[[], KeyOrder]) -> None:
        """Go on in another order; its cost is that of the distinct keys."""
        self._make_order, self._order = make_order, None
        if len(self._fifos) > 1:
            self._begin_order()

    # --- what is gone ----------------------------------------------------------------------------------------------

    def count_removed(self, count: int) -> None:
        """Count messages that went; at most this many more numbers in line are gone."""
        self.gone += count
        self._gone_in_round += count

    def clear_away(self, removed: int, lives: Lives) -> None:
        """Sweep a piece of the line if it is time to; `removed` messages went, from the line or elsewhere."""
        if not self._sweep_keys and self.gone <= GONE_MAX + self.count // LINE_PER_GONE:
            return
        self._sweep_due += SWEPT_FOR_EACH * removed
        if self._sweep_due < SWEEP_NUMBERS:
            return
        if not self._sweep_keys:
            self._gone_in_round = 0
        self.gone -= self.sweep(lives, self._sweep_due)
        self._sweep_due = 0
        if not self._sweep_keys:
            self.gone = min(self.gone, self._gone_in_round)  # any others were delayed when they went, not in line

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
        self.count -= gone
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
            if self._order is not None:
                self._order.drop(key)
        return next_place, looked_at, gone

    def _fifo_for(self, key: int) -> Fifo:
        """Return the Fifo of a key, made if need be, to which numbers are about to come."""
        fifo = self._fifos.get(key)
        if isinstance(fifo, Fifo):
            return fifo
        if fifo is None:
            self._order_key(key)
            made = Fifo(0, 0)
        else:
            made = Fifo(fifo, fifo + 1)
        self._fifos[key] = made
        return made

    def _in_order(self) -> Iterator[Iterable[int]]:
        for key in self._fifos if self._order is None else self._order.in_order():
            fifo = self._fifos[key]
            yield (fifo,) if isinstance(fifo, int) else fifo
