"""Pairs: records on their way to the state store, as two columns.

    keys and values, in any order --> sorted, without some of them --> one pair after the other

As many tuples would be as many objects that the garbage collector looks through, and there are ten thousands of records
in a cut.  Pure.
"""

from collections.abc import Iterable, Iterator, Set
from itertools import compress, islice
from operator import le


class Pairs:
    """Keys and values, side by side."""

    __slots__ = ("keys", "values")

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self.keys: list[bytes] = []
        self.values: list[bytes] = []
        self.extend(pairs)

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return zip(self.keys, self.values, strict=True)

    def __getitem__(self, part: slice) -> "Pairs":
        found = Pairs()
        found.keys, found.values = self.keys[part], self.values[part]
        return found

    def append(self, pair: tuple[bytes, bytes]) -> None:
        """Put a key and its value behind all others."""
        self.keys.append(pair[0])
        self.values.append(pair[1])

    def extend(self, pairs: "Iterable[tuple[bytes, bytes]] | Pairs") -> None:
        """Put several behind all others, in their order."""
        if isinstance(pairs, Pairs):
            self.keys += pairs.keys
            self.values += pairs.values
        else:
            for pair in pairs:
                self.append(pair)

    def without(self, gone: Set[bytes]) -> "Pairs":
        """Return those that are not under one of these keys."""
        if gone.isdisjoint(self.keys):
            return self
        stays = [key not in gone for key in self.keys]
        left = Pairs()
        left.keys, left.values = list(compress(self.keys, stays)), list(compress(self.values, stays))
        return left

    def in_order(self) -> "Pairs":
        """Return them sorted by key; those under one key stay as they were."""
        keys, values = self.keys, self.values
        if all(map(le, keys, islice(keys, 1, None))):
            return self
        places = sorted(range(len(keys)), key=keys.__getitem__)
        found = Pairs()
        found.keys, found.values = [keys[place] for place in places], [values[place] for place in places]
        return found
