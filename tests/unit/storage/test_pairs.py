"""Pairs: sorted without losing which value belongs to which key."""

import pytest

from wakeq.storage.pairs import Pairs

MIXED = [(b"b", b"1"), (b"a", b"2"), (b"b", b"3"), (b"c", b"4")]


def test_pairs_come_out_as_they_went_in() -> None:
    pairs = Pairs(MIXED[:2])
    pairs.append(MIXED[2])
    pairs.extend(Pairs(MIXED[3:]))

    assert list(pairs) == MIXED
    assert len(pairs) == 4
    assert list(pairs[1:3]) == MIXED[1:3]


@pytest.mark.parametrize("pairs", [MIXED, sorted(MIXED), [(b"a", b"2"), (b"a", b"1")], MIXED[:1], []])
def test_in_order_those_of_one_key_stay_as_they_were(pairs: list[tuple[bytes, bytes]]) -> None:
    in_order = Pairs(pairs).in_order()

    assert list(in_order) == sorted(pairs, key=lambda pair: pair[0])


def test_what_is_left_out_takes_its_value_along() -> None:
    pairs = Pairs(MIXED)

    assert list(pairs.without({b"b", b"x"})) == [(b"a", b"2"), (b"c", b"4")]
    assert pairs.without({b"x"}) is pairs
