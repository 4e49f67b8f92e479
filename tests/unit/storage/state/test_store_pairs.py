"""Pairs: sorting keeps each value with its key."""

from collections.abc import Iterator

import pytest

from wakeq.storage.state.store import Pairs


class Repeated:
    """Values that can be iterated several times."""

    def __iter__(self) -> Iterator[bytes]:
        return iter((b"5", b"6"))


MIXED = [(b"b", b"1"), (b"a", b"2"), (b"b", b"3"), (b"c", b"4")]


def test_pairs_keep_their_order() -> None:
    pairs = Pairs(MIXED[:2])
    pairs.append(MIXED[2])
    pairs.extend(Pairs(MIXED[3:]))

    assert list(pairs) == MIXED
    assert len(pairs) == 4


def test_computed_values_are_computed_in_each_iteration() -> None:
    pairs = Pairs(MIXED[:1])
    pairs.add([b"x", b"y"], Repeated())
    pairs.append(MIXED[1])
    both = Pairs(MIXED[2:3])
    both.extend(pairs)

    assert list(both) == list(both) == [MIXED[2], MIXED[0], (b"x", b"5"), (b"y", b"6"), MIXED[1]]
    assert list(both.in_order()) == [MIXED[1], MIXED[2], MIXED[0], (b"x", b"5"), (b"y", b"6")]


@pytest.mark.parametrize("pairs", [MIXED, sorted(MIXED), [(b"a", b"2"), (b"a", b"1")], MIXED[:1], []])
def test_in_order_is_stable_for_equal_keys(pairs: list[tuple[bytes, bytes]]) -> None:
    in_order = Pairs(pairs).in_order()

    assert list(in_order) == sorted(pairs, key=lambda pair: pair[0])


def test_without_removes_keys_with_their_values() -> None:
    pairs = Pairs(MIXED)

    assert list(pairs.without({b"b", b"x"})) == [(b"a", b"2"), (b"c", b"4")]
    assert pairs.without({b"x"}) is pairs
