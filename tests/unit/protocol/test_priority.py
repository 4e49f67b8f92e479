"""What the priority structures promise beyond order: bounds on memory, marks and range."""

import sys
import tracemalloc
from collections.abc import Callable

import pytest

from wakeq.protocol import priority
from wakeq.protocol.priority import Heap4, KeyArray, PriorityStructure

BOTH = pytest.mark.parametrize("make", [Heap4, lambda: KeyArray(-5, 2_000)], ids=["H4", "QA"])
Make = Callable[[], PriorityStructure]


def bytes_used(fill: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        kept = fill()
        assert kept is not None
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@BOTH
def test_the_smallest_key_comes_first_and_the_oldest_number_within_it(make: Make) -> None:
    structure = make()
    for key, number in ((7, 1), (-5, 2), (7, 3), (0, 4), (-5, 5)):
        structure.push(key, number)

    assert structure.take(2) == [2, 5]
    assert structure.take(9) == [4, 1, 3]


@BOTH
def test_an_empty_structure_has_nothing_to_give(make: Make) -> None:
    structure = make()
    structure.extend(1, [])
    structure.push_front(1, [])

    assert (structure.take(5), structure.peek(5), structure.pop(), len(structure)) == ([], [], None, 0)


@BOTH
def test_numbers_put_back_in_front_come_first_in_their_order(make: Make) -> None:
    structure = make()
    structure.extend(3, range(1, 3_000))
    taken = structure.take(10)

    structure.push_front(3, taken[5:])
    structure.push_front(3, [99_999])

    assert structure.take(7) == [99_999, 6, 7, 8, 9, 10, 11]


@BOTH
def test_peek_removes_nothing(make: Make) -> None:
    structure = make()
    structure.extend(2, [5, 3, 9])
    structure.push(1, 7)

    assert structure.peek(3) == [7, 5, 3]
    assert structure.take(4) == [7, 5, 3, 9]


@BOTH
def test_a_discarded_number_is_neither_counted_nor_given_nor_shown(make: Make) -> None:
    structure = make()
    structure.extend(1, range(1, 6))

    structure.discard(3, 1)

    assert len(structure) == 4
    assert structure.peek(9) == [1, 2, 4, 5]
    assert structure.take(9) == [1, 2, 4, 5]


@BOTH
def test_a_discarded_number_may_come_in_again_under_another_key(make: Make) -> None:
    structure = make()
    structure.extend(5, range(1, 100))
    structure.discard(50, 5)

    structure.push(0, 50)

    assert structure.take(2) == [50, 1]
    assert structure.take(100) == [number for number in range(2, 100) if number != 50]


def test_numbers_in_sequence_cost_next_to_nothing() -> None:
    def fill() -> Heap4:
        structure = Heap4()
        for start in range(1, 100_001, 100):
            structure.extend(0, range(start, start + 100))
        return structure

    assert bytes_used(fill) < 2_000


@BOTH
def test_a_mix_of_three_keys_costs_less_than_9_bytes_a_number(make: Make) -> None:
    def fill() -> PriorityStructure:
        structure = make()
        for number in range(30_000):
            structure.push(number * number % 7 % 3, number)
        return structure

    assert bytes_used(fill) < 9 * 30_000


@BOTH
def test_a_taken_number_frees_its_memory(make: Make) -> None:
    structure = make()

    def fill_and_take() -> PriorityStructure:
        for number in range(0, 100_000, 2):
            structure.push(0, number)
        structure.take(49_990)
        return structure

    assert bytes_used(fill_and_take) < 20_000


def test_a_key_with_one_number_costs_at_most_150_bytes() -> None:
    def fill() -> Heap4:
        structure = Heap4()
        for number in range(50_000):
            structure.push(number * 2_654_435_761, number)
        return structure

    assert bytes_used(fill) < 150 * 50_000


@BOTH
def test_marks_of_discarded_numbers_stay_few(make: Make) -> None:
    structure = make()
    structure.extend(0, range(20_000))
    structure.extend(1, range(20_000, 40_001, 2))

    for number in range(1, 20_000, 2):
        structure.discard(number, 0)

    bound = max(priority.DEAD_NUMBERS_MIN, len(structure) // priority.LIVING_PER_DEAD)
    assert len(structure._dead) <= bound + 1
    assert structure.take(10**6) == [*range(0, 20_000, 2), *range(20_000, 40_001, 2)]


def test_what_is_discarded_in_its_order_leaves_no_mark() -> None:
    structure = Heap4()
    structure.extend(0, range(0, 5_000, 3))

    for number in range(0, 4_500, 3):
        structure.discard(number, 0)

    assert not structure._dead
    assert structure.take(1) == [4_500]


def test_marks_behind_the_head_go_with_it() -> None:
    structure = Heap4()
    structure.extend(0, [1, 5, 9, 13])
    structure.discard(5, 0)
    structure.discard(9, 0)

    structure.discard(1, 0)

    assert not structure._dead
    assert structure.peek(2) == [13]


def test_a_number_is_not_mistaken_for_the_bytes_of_its_neighbours() -> None:
    structure = Heap4()
    first_block = [5, 1, *range(1_000, 1_000 + 3 * priority.BLOCK_NUMBERS, 3)][: priority.BLOCK_NUMBERS]
    structure.extend(0, [*first_block, 256, 7])  # the end of 5 and the start of 1 read as 256
    structure.discard(256, 0)

    structure.push(0, 256)

    assert structure.take(2_000) == [*first_block, 7, 256]


def test_keys_that_were_emptied_by_discards_do_not_pile_up() -> None:
    structure = Heap4()
    structure.push(0, 0)
    for number in range(1, 2_000):
        structure.push(number, number)
        structure.discard(number, number)

    assert len(structure._order._heap) < 200  # type: ignore[attr-defined]
    assert structure.take(5) == [0]


def test_the_widest_range_of_keys_costs_no_memory() -> None:
    def fill() -> KeyArray:
        structure = KeyArray(-(2**63), 2**63 - 1)
        structure.push(2**63 - 1, 1)
        structure.push(-(2**63), 2)
        return structure

    assert bytes_used(fill) < 4_000
    assert fill().take(2) == [2, 1]


def test_a_range_of_a_million_keys_costs_memory_only_for_those_in_use() -> None:
    structure = KeyArray(0, priority.KEYS_IN_BITMAP_MAX - 1)
    for key in (priority.KEYS_IN_BITMAP_MAX - 1, 0, 500_000):
        structure.push(key, key)

    assert structure.take(3) == [0, 500_000, priority.KEYS_IN_BITMAP_MAX - 1]
    assert sys.getsizeof(structure._order._words) < 1_000  # type: ignore[attr-defined]


@pytest.mark.parametrize("key", [9, 21])
def test_a_key_outside_of_the_range_is_a_bug_of_the_caller(key: int) -> None:
    structure = KeyArray(10, 20)

    with pytest.raises(AssertionError):
        structure.push(key, 1)


@BOTH
def test_clear_forgets_everything(make: Make) -> None:
    structure = make()
    structure.extend(1, range(1, 50))
    structure.discard(20, 1)

    structure.clear()
    structure.push(2, 20)

    assert structure.take(9) == [20]
