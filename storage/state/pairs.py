"""Pairs: records on their way to the state store, as two columns.

    keys and values, in any order --> sorted, without some of them --> one pair after the other

A checkpoint has tens of thousands of records.  As tuples they would be as many objects for the garbage collector to
scan.  Values may be computed during iteration, and are then computed again by each iteration.  Pure.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import chain, compress, islice
from operator import le


class Pairs:
    """Keys and values, side by side."""

    __slots__ = ("_last", "_parts", "keys")

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self.keys: list[bytes] = []
        self._parts: list[Iterable[bytes]] = []  # the values, in the order of the keys
        self._last: list[bytes] | None = None  # the last part, if more values may be appended to it
        self.extend(pairs)

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return zip(self.keys, chain.from_iterable(self._parts), strict=True)

    def append(self, pair: tuple[bytes, bytes]) -> None:
        """Append a key and its value."""
        if self._last is None:
            self._last = []
            self._parts.append(self._last)
        self.keys.append(pair[0])
        self._last.append(pair[1])

    def add(self, keys: Sequence[bytes], values: Iterable[bytes]) -> None:
        """Append keys and as many values, which must allow several iterations."""
        self.keys += keys
        self._parts.append(values)
        self._last = None

    def extend(self, pairs: "Iterable[tuple[bytes, bytes]] | Pairs") -> None:
        """Append several pairs, in their order."""
        if isinstance(pairs, Pairs):
            self.keys += pairs.keys
            self._parts += pairs._parts
            self._last = None
        else:
            for pair in pairs:
                self.append(pair)

    def without(self, gone: Set[bytes]) -> "Pairs":
        """Return the pairs without these keys."""
        if gone.isdisjoint(self.keys):
            return self
        return Pairs(compress(self, [key not in gone for key in self.keys]))

    def in_order(self) -> "Pairs":
        """Return the pairs sorted by key; pairs with one key keep their order."""
        keys = self.keys
        if all(map(le, keys, islice(keys, 1, None))):
            return self
        values = list(chain.from_iterable(self._parts))
        places = sorted(range(len(keys)), key=keys.__getitem__)
        found = Pairs()
        found.add([keys[place] for place in places], [values[place] for place in places])
        return found
