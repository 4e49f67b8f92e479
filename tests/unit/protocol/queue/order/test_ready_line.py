"""What the priority structures promise beyond order: bounds on memory, marks and range."""

import sys
import tracemalloc
from collections.abc import Callable

import pytest

from wakeq.protocol.queue.order.fifo import SWEEP_NUMBERS
from wakeq.protocol.queue.order.key_order import KEYS_IN_BITMAP_MAX, KeyHeap, qa_order
from wakeq.protocol.queue.order.ready_line import GONE_MAX, ReadyLine

BOTH = pytest.mark.parametrize(
    "make", [lambda: ReadyLine(KeyHeap), lambda: ReadyLine(lambda: qa_order(-5, 2_000))], ids=["H4", "QA"]
)
Make = Callable[[], ReadyLine]


def bytes_used(fill: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        kept = fill()
        assert kept is not None
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@BOTH
def test_smallest_key_comes_first_and_the_oldest_number_within_it(make: Make) -> None:
    structure = make()
    for key, number in ((7, 1), (-5, 2), (7, 3), (0, 4), (-5, 5)):
        structure.push(key, number)

    assert structure.take(2) == [2, 5]
    assert structure.take(9) == [4, 1, 3]


@BOTH
def test_empty_structure_has_nothing_to_give(make: Make) -> None:
    structure = make()
    structure.extend(1, [])
    structure.push_front(1, [])

    assert (structure.take(5), structure.peek(5), len(structure)) == ([], [], 0)


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
def test_swept_messages_are_neither_counted_nor_taken_nor_shown(make: Make) -> None:
    structure = make()
    structure.extend(1, range(1, 6))
    structure.push(2, 9)

    assert structure.sweep(lambda number: number not in (3, 9), work=100) == 2

    assert len(structure) == 4
    assert structure.peek(9) == [1, 2, 4, 5]
    assert structure.take(9) == [1, 2, 4, 5]


@BOTH
def test_sweep_looks_at_a_bounded_piece_and_a_round_at_everything(make: Make) -> None:
    structure = make()
    structure.extend(0, range(20_000))
    structure.extend(1, range(20_000, 40_001, 2))
    looked_at: list[int] = []

    def lives(number: int) -> bool:
        looked_at.append(number)
        return number % 4 != 1

    structure.sweep(lives, work=10)
    in_one = len(looked_at)
    while structure.is_being_swept:
        structure.sweep(lives, work=10)

    assert in_one <= SWEEP_NUMBERS
    assert sorted(looked_at) == [*range(20_000), *range(20_000, 40_001, 2)]
    assert structure.take(10**6) == [n for n in (*range(20_000), *range(20_000, 40_001, 2)) if n % 4 != 1]


def test_change_of_order_keeps_every_number_under_its_key() -> None:
    structure = ReadyLine(KeyHeap)
    for number, key in enumerate((70, -5, 3, 70, 1 << 40)):
        structure.push(key, number)

    structure.order_by(lambda: qa_order(0, 10))

    assert structure.peek(9) == [1, 2, 0, 3, 4]
    assert structure.take(9) == [1, 2, 0, 3, 4]


def test_numbers_in_sequence_cost_next_to_nothing() -> None:
    def fill() -> ReadyLine:
        structure = ReadyLine(KeyHeap)
        for start in range(1, 100_001, 100):
            structure.extend(0, range(start, start + 100))
        return structure

    assert bytes_used(fill) < 2_000


@BOTH
def test_mix_of_three_keys_costs_less_than_9_bytes_a_number(make: Make) -> None:
    def fill() -> ReadyLine:
        structure = make()
        for number in range(30_000):
            structure.push(number * number % 7 % 3, number)
        return structure

    assert bytes_used(fill) < 9 * 30_000


@BOTH
def test_taken_number_frees_its_memory(make: Make) -> None:
    structure = make()

    def fill_and_take() -> ReadyLine:
        for number in range(0, 100_000, 2):
            structure.push(0, number)
        structure.take(49_990)
        return structure

    assert bytes_used(fill_and_take) < 20_000


def test_key_with_one_number_costs_at_most_150_bytes() -> None:
    def fill() -> ReadyLine:
        structure = ReadyLine(KeyHeap)
        for number in range(50_000):
            structure.push(number * 2_654_435_761, number)
        return structure

    assert bytes_used(fill) < 150 * 50_000


def test_keys_that_were_emptied_by_sweeps_do_not_pile_up() -> None:
    structure = ReadyLine(KeyHeap)
    structure.push(0, 0)
    for number in range(1, 2_000):
        structure.push(number, number)
        structure.sweep(lambda number: number == 0, work=10)

    assert len(structure._order._heap) < 200  # type: ignore[attr-defined]
    assert structure.take(5) == [0]


def test_widest_range_of_keys_costs_no_memory() -> None:
    def fill() -> ReadyLine:
        structure = ReadyLine(lambda: qa_order(-(2**63), 2**63 - 1))
        structure.push(2**63 - 1, 1)
        structure.push(-(2**63), 2)
        return structure

    assert bytes_used(fill) < 4_000
    assert fill().take(2) == [2, 1]


def test_range_of_a_million_keys_costs_memory_only_for_those_in_use() -> None:
    structure = ReadyLine(lambda: qa_order(0, KEYS_IN_BITMAP_MAX - 1))
    for key in (KEYS_IN_BITMAP_MAX - 1, 0, 500_000):
        structure.push(key, key)

    assert structure.take(3) == [0, 500_000, KEYS_IN_BITMAP_MAX - 1]
    assert sys.getsizeof(structure._order._words) < 1_000  # type: ignore[attr-defined]


def test_key_outside_of_the_range_has_its_place_all_the_same() -> None:
    structure = ReadyLine(lambda: qa_order(10, 20))
    for key in (21, 15, 9, 10, 9):
        structure.push(key, len(structure))

    assert structure.take(9) == [2, 4, 3, 1, 0]


# What a round of sweeps promises --------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("first_gone", [1, SWEEP_NUMBERS, SWEEP_NUMBERS + 1, 3 * SWEEP_NUMBERS])
def test_round_goes_on_behind_a_piece_of_which_nothing_is_left(make: Make, first_gone: int) -> None:
    structure = make()
    structure.extend(0, range(4 * SWEEP_NUMBERS))
    gone = {*range(first_gone), 4 * SWEEP_NUMBERS - 1}

    swept = structure.sweep(lambda number: number not in gone, work=1)
    while structure.is_being_swept:
        swept += structure.sweep(lambda number: number not in gone, work=1)

    assert swept == len(gone)
    assert structure.peek(1) == [first_gone]


@BOTH
def test_round_misses_nothing_while_numbers_are_taken_from_the_head(make: Make) -> None:
    structure = make()
    scattered = list(range(0, 200_000, 2))  # a block for each 1,024 of them
    structure.extend(0, scattered)
    gone = set(scattered[52_000:70_000])

    swept = structure.sweep(lambda number: number not in gone, work=10_000)
    structure.take(51_900)  # so many used-up blocks that their places are dropped
    while structure.is_being_swept:
        swept += structure.sweep(lambda number: number not in gone, work=10_000)

    assert swept == len(gone)
    assert structure.take(101)[-1] == scattered[70_000]


def test_messages_that_went_from_elsewhere_count_as_gone_until_a_round_has_ended() -> None:
    line = ReadyLine(KeyHeap)
    line.extend(0, range(10))

    line.count_removed(2 * GONE_MAX)
    line.clear_away(SWEEP_NUMBERS, lambda number: True)

    assert not line.is_being_swept
    assert (line.gone, line.count) == (0, 10)


def test_order_of_keys_is_made_for_the_second_key_only() -> None:
    made: list[KeyHeap] = []

    def make() -> KeyHeap:
        made.append(KeyHeap())
        return made[-1]

    line = ReadyLine(make)
    for number in range(1, 4):
        line.push(0, number)
        assert line.take(1) == [number]
    assert not made

    line.push(5, 4)
    line.push(0, 5)
    line.extend(5, [6, 7])

    assert len(made) == 1
    assert line.take(9) == [5, 4, 6, 7]
    assert (line.count, line.take(1)) == (0, [])


@BOTH
@pytest.mark.parametrize("skip", range(0, 130, 7))
def test_window_is_a_part_of_the_line_and_leaves_it_whole(make: Make, skip: int) -> None:
    structure = make()
    structure.extend(3, range(10, 60))
    structure.push(1, 5)
    structure.extend(3, [200, 100, 150])
    structure.push(9, 7)
    structure.extend(2, range(300, 350))
    structure.take(2)
    line = structure.peek(1_000)

    found = [structure.window(skip, count) for count in (1, 10, 1_000)]

    assert found == [line[skip : skip + count] for count in (1, 10, 1_000)]
    assert structure.take(1_000) == line
