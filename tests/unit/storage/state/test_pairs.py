"""Pairs: sorted without losing which value belongs to which key."""

from collections.abc import Iterator

import pytest

from wakeq.storage.state.pairs import Pairs


class Repeated:
    """Values that can be gone through again and again."""

    def __iter__(self) -> Iterator[bytes]:
        return iter((b"5", b"6"))


MIXED = [(b"b", b"1"), (b"a", b"2"), (b"b", b"3"), (b"c", b"4")]


def test_pairs_come_out_as_they_went_in() -> None:
    pairs = Pairs(MIXED[:2])
    pairs.append(MIXED[2])
    pairs.extend(Pairs(MIXED[3:]))

    assert list(pairs) == MIXED
    assert len(pairs) == 4


def test_values_that_are_made_as_they_are_gone_through_are_made_each_time() -> None:
    pairs = Pairs(MIXED[:1])
    pairs.add([b"x", b"y"], Repeated())
    pairs.append(MIXED[1])
    both = Pairs(MIXED[2:3])
    both.extend(pairs)

    assert list(both) == list(both) == [MIXED[2], MIXED[0], (b"x", b"5"), (b"y", b"6"), MIXED[1]]
    assert list(both.in_order()) == [MIXED[1], MIXED[2], MIXED[0], (b"x", b"5"), (b"y", b"6")]


@pytest.mark.parametrize("pairs", [MIXED, sorted(MIXED), [(b"a", b"2"), (b"a", b"1")], MIXED[:1], []])
def test_in_order_those_of_one_key_stay_as_they_were(pairs: list[tuple[bytes, bytes]]) -> None:
    in_order = Pairs(pairs).in_order()

    assert list(in_order) == sorted(pairs, key=lambda pair: pair[0])


def test_what_is_left_out_takes_its_value_along() -> None:
    pairs = Pairs(MIXED)

    assert list(pairs.without({b"b", b"x"})) == [(b"a", b"2"), (b"c", b"4")]
    assert pairs.without({b"x"}) is pairs
