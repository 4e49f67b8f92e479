"""How many workers: the model's known values, and what must be true of any answer."""

from fractions import Fraction
from math import factorial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeq.pipeline.report.forecast import waits_longer, workers_for


def erlang_c(load: Fraction, workers: int) -> Fraction:
    """Return the part that waits, as the textbook writes it."""
    terms = [load**busy / factorial(busy) for busy in range(workers)]
    full = load**workers / factorial(workers) * workers / (workers - load)
    return full / (sum(terms) + full)


@pytest.mark.parametrize(("load", "workers"), [("1/2", 1), ("2", 3), ("10", 12), ("199/2", 100)])
def test_waiting_part_equals_erlang_c(load: str, workers: int) -> None:
    expected = erlang_c(Fraction(load), workers)

    assert waits_longer(float(Fraction(load)), workers, service_s=1, wait_s=0) == pytest.approx(float(expected))


@given(st.floats(0.001, 500), st.floats(0.001, 10), st.floats(0.001, 60), st.floats(50, 99.9))
def test_forecast_is_the_smallest_sufficient_number(
    rate: float, service_s: float, wait_s: float, percent: float
) -> None:
    workers = workers_for(rate, service_s, wait_s=wait_s, percent=percent)

    load = rate * service_s
    late = 1 - percent / 100
    assert workers > load
    assert waits_longer(load, workers, service_s, wait_s) <= late
    assert workers - 1 <= load or waits_longer(load, workers - 1, service_s, wait_s) > late


def test_queue_without_arrivals_needs_no_worker() -> None:
    assert workers_for(0, 5, wait_s=1, percent=90) == 0
