"""Seconds: a span in seconds as whole milliseconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeq.protocol.seconds import ms_of


@pytest.mark.parametrize(
    ("seconds", "ms"),
    [
        (0, 0),
        (0.0, 0),
        (5, 5_000),
        (5.0, 5_000),
        (1.5, 1_500),
        (0.001, 1),
        (0.0001, 1),
        (1.0001, 1_001),
        (16.1, 16_100),
    ],
)
def test_span_is_counted_in_milliseconds_and_a_finer_fraction_is_rounded_up(seconds: float, ms: int) -> None:
    found = ms_of(seconds)

    assert (found, type(found)) == (ms, int)


@given(st.integers(0, 315_360_000_000))
def test_milliseconds_survive_being_said_in_seconds(ms: int) -> None:
    assert ms_of(ms / 1000) == ms
