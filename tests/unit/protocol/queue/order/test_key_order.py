"""Keys in order: a heap and a bitmap keep the same promises."""

import random
from collections.abc import Callable

import pytest

from wakeq.protocol.queue.order.key_order import STALE_KEYS_MIN, KeyBitmap, KeyHeap, KeyOrder, bits_of

MAKERS = pytest.mark.parametrize(
    "make",
    [KeyHeap, lambda: KeyBitmap(-2_000, 5_000), lambda: KeyBitmap(0, 99)],
    ids=["heap", "bitmap", "narrow bitmap"],  # in the last one nearly all keys lie outside of the range
)
Make = Callable[[], KeyOrder]


@MAKERS
@pytest.mark.parametrize("seed", range(5))
def test_first_key_is_the_smallest_whatever_came_and_went(make: Make, seed: int) -> None:
    chance, order, keys = random.Random(seed), make(), set[int]()

    for _ in range(3_000):
        key = chance.randint(-2_000, 5_000)
        match chance.choice(["add", "add", "drop", "drop first"]):
            case "add" if key not in keys:
                order.add(key)
                keys.add(key)
            case "drop" if keys:
                gone = chance.choice(sorted(keys))
                order.drop(gone)
                keys.remove(gone)
            case "drop first" if keys:
                assert order.first() == min(keys)
                order.drop_first()
                keys.remove(min(keys))
        assert not keys or order.first() == min(keys)

    assert list(order.in_order()) == sorted(keys)


@MAKERS
def test_order_is_looked_at_without_a_change(make: Make) -> None:
    order = make()
    for key in (5, -1, 1_023, 1_024, 3):
        order.add(key)
    order.drop(3)

    assert next(order.in_order()) == -1
    assert list(order.in_order()) == list(order.in_order()) == [-1, 5, 1_023, 1_024]
    assert order.first() == -1


def test_key_that_comes_again_before_its_stale_place_came_up_is_there_once() -> None:
    heap = KeyHeap()
    for key in (1, 2):
        heap.add(key)
    heap.drop(2)
    heap.add(2)

    assert list(heap.in_order()) == [1, 2]
    assert bool(heap)


def test_heap_of_stale_keys_only_is_empty() -> None:
    heap = KeyHeap()
    for key in range(STALE_KEYS_MIN):
        heap.add(key)
        heap.drop(key)

    assert not heap


def test_stale_keys_are_cleared_away_before_they_are_more_than_half() -> None:
    heap = KeyHeap()
    for key in range(10 * STALE_KEYS_MIN):
        heap.add(key)
    for key in range(10 * STALE_KEYS_MIN - 1):
        heap.drop(key)

    assert len(heap._heap) <= 1 + STALE_KEYS_MIN
    assert heap.first() == 10 * STALE_KEYS_MIN - 1


@pytest.mark.parametrize("word", [0, 1, 0b1010, 1 << 1_023, (1 << 1_024) - 1])
def test_bits_of_a_word_come_in_order(word: int) -> None:
    assert list(bits_of(word)) == [place for place in range(1_024) if word >> place & 1]
