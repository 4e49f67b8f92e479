"""The counting of costs: loops in Python, searches in C, and copies show; nothing else does."""

import sys

import pytest

from tests.helpers.steps import Counted, peak_bytes, steps


def test_loop_costs_a_step_for_each_of_its_rounds() -> None:
    def loop(rounds: int) -> None:
        for _ in range(rounds):
            pass

    assert steps(lambda: loop(1_000)) - steps(lambda: loop(900)) == 200


def test_search_in_c_costs_a_step_for_each_comparison_of_counted_numbers() -> None:
    numbers = [Counted(number) for number in range(100)]

    assert steps(lambda: numbers.index(Counted(90))) - steps(lambda: numbers.index(Counted(50))) == 40


def test_tracing_ends_with_the_work_although_it_raises() -> None:
    def fail() -> None:
        raise ValueError

    before = sys.gettrace()

    with pytest.raises(ValueError):
        steps(fail)

    assert sys.gettrace() is before


def test_peak_is_what_was_there_at_one_time_at_most() -> None:
    def make_and_forget() -> None:
        for _ in range(10):
            bytes(100_000)

    assert 100_000 <= peak_bytes(make_and_forget) < 200_000
