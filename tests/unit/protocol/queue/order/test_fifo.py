"""The numbers of one key: first in, first out, in runs and blocks, and swept piece by piece."""

from array import array
from collections.abc import Callable, Sequence

import pytest

from wakeq.protocol.queue.order.fifo import (
    BLOCK_NUMBERS,
    RUN_NUMBERS_MIN,
    SPENT_SEGMENTS_MAX,
    SWEEP_NUMBERS,
    Fifo,
    is_run,
    pieces_without,
    segments_of,
)

SCATTERED = range(0, 8 * BLOCK_NUMBERS, 2)  # no run: 4 blocks


def filled(*batches: Sequence[int]) -> Fifo:
    fifo = Fifo(0, 0)
    for numbers in batches:
        fifo.extend(numbers)
    return fifo


def taken(fifo: Fifo, count: int) -> list[int]:
    numbers: list[int] = []
    fifo.take_into(numbers, count)
    return numbers


def swept(fifo: Fifo, lives: Callable[[int], bool], between: Callable[[], object] = lambda: None) -> int:
    """Sweep a whole round, with something else done between two sweeps; return how many went."""
    place: int | None = 0
    gone = 0
    while place is not None:
        place, _, gone_now = fifo.sweep(place, lives)
        gone += gone_now
        between()
    return gone


@pytest.mark.parametrize(
    "numbers", [[4], [4, 5], [4, 5, 6], range(4, 9), range(4, 5, 7)], ids=["one", "two", "three", "range", "stepped"]
)
def test_numbers_that_follow_one_another_are_a_run(numbers: Sequence[int]) -> None:
    assert is_run(numbers)


@pytest.mark.parametrize("numbers", [[4, 6], [5, 4], [4, 6, 5, 7], [4, 4], range(4, 9, 2)])
def test_numbers_that_do_not_are_none(numbers: Sequence[int]) -> None:
    assert not is_run(numbers)


def test_run_is_a_segment_of_its_own_if_it_is_long_enough() -> None:
    long, short = range(RUN_NUMBERS_MIN), list(range(RUN_NUMBERS_MIN - 1))

    assert segments_of(long) == segments_of(list(long)) == [long]
    assert segments_of(short) == [array("q", short)]
    assert [len(block) for block in segments_of(list(SCATTERED))] == [BLOCK_NUMBERS] * 4


@pytest.mark.parametrize("segment", [range(10, 20), array("q", range(10, 20))], ids=["run", "block"])
@pytest.mark.parametrize("gone", [[10], [19], [12, 13, 17], list(range(10, 20))])
def test_numbers_cut_out_of_a_segment_leave_the_others_in_their_order(segment: Sequence[int], gone: list[int]) -> None:
    pieces = pieces_without(segment, gone)  # type: ignore[arg-type]

    assert [number for piece in pieces for number in piece] == [n for n in range(10, 20) if n not in gone]
    assert all(len(piece) for piece in pieces)


def test_number_that_goes_on_from_the_last_one_lengthens_the_run() -> None:
    fifo = Fifo(7, 8)
    for number in range(8, 200):
        fifo.push(number)

    assert fifo.sealed() == [range(7, 200)]


def test_numbers_put_in_front_come_before_the_rest() -> None:
    fifo = filled(SCATTERED, range(90_000, 90_050))
    first = taken(fifo, BLOCK_NUMBERS + 5)

    fifo.push_front(first[-3:])
    fifo.push_front(range(500, 500 + RUN_NUMBERS_MIN))

    left = [*range(500, 500 + RUN_NUMBERS_MIN), *first[-3:], *SCATTERED[BLOCK_NUMBERS + 5 :], *range(90_000, 90_050)]
    assert list(fifo) == left
    assert taken(fifo, 10**6) == left
    assert not fifo


@pytest.mark.parametrize("count", [1, SWEEP_NUMBERS, 2 * SWEEP_NUMBERS])
def test_round_ends_behind_the_last_piece_and_not_behind_one_that_is_all_gone(count: int) -> None:
    fifo = filled(range(3 * SWEEP_NUMBERS), SCATTERED)
    left = [*range(count, 3 * SWEEP_NUMBERS), *(n for n in SCATTERED if n >= count)]

    assert swept(fifo, lambda number: number >= count) == 3 * SWEEP_NUMBERS + len(SCATTERED) - len(left)
    assert list(fifo) == left


def test_fifo_of_which_nothing_lives_is_empty() -> None:
    fifo = filled(range(2 * SWEEP_NUMBERS), SCATTERED)

    swept(fifo, lambda number: False)

    assert not fifo
    assert list(fifo) == []


def test_round_passes_nothing_over_while_numbers_are_taken_and_put_back() -> None:
    blocks = 4 * SPENT_SEGMENTS_MAX
    numbers = range(0, 2 * blocks * BLOCK_NUMBERS, 2)
    fifo = filled(numbers)
    looked_at: set[int] = set()
    left: set[int] = set()

    def take_and_put_back() -> None:
        head = taken(fifo, 3 * BLOCK_NUMBERS)
        left.update(head[:-2])
        if head:
            fifo.push_front(head[-2:])

    swept(fifo, lambda number: looked_at.add(number) is None, take_and_put_back)

    assert looked_at | left == set(numbers)
