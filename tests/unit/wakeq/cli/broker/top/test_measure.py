"""The figures of `wakeq top`: rates over the last seconds, and what they survive."""

from typing import Any

import pytest

from tests.helpers.readings import queue, reading
from wakeq.cli.broker.top.measure import WINDOW_MS, Measure, span, state_of


def measured(*readings: dict[str, Any]) -> Measure:
    made = Measure()
    for one in readings:
        made.add(one)
    return made


def test_rate_is_that_of_the_whole_window_not_of_the_last_reading() -> None:
    made = measured(
        *(reading(1_000 + at, queue("a", published=at // 10, acked=at // 20)) for at in range(0, 4_001, 500))
    )
    # A burst in the last half second.
    made.add(reading(5_500, queue("a", published=950, acked=200)))

    (row,) = made.rows()
    assert (row["in/s"], row["done/s"]) == (round(950 / 4.5, 1), round(200 / 4.5, 1))
    assert made.facts()["in/s"] == row["in/s"]


def test_reading_older_than_the_window_is_forgotten() -> None:
    made = measured(*(reading(at, queue("a", published=at)) for at in range(0, 60_000, 500)))

    assert made.span_ms == WINDOW_MS
    assert made.rows()[0]["in/s"] == 1_000.0


def test_first_reading_has_no_rates() -> None:
    made = measured(reading(1_000, queue("a", published=7)))

    assert (made.rows()[0]["in/s"], made.facts()["in/s"]) == (0.0, 0.0)


@pytest.mark.parametrize(
    "later",
    [
        # A purge has made another queue of this name.
        reading(3_000, queue("a", queue_id="other", published=1)),
        # Another leader counts what it has done itself, by its own clock.
        reading(3_000, queue("a", published=1), term=2),
        reading(500, queue("a", published=900)),
    ],
)
def test_counters_that_began_anew_make_no_rate(later: dict[str, Any]) -> None:
    made = measured(reading(1_000, queue("a", published=500)), later)

    assert made.rows()[0]["in/s"] == 0.0


def test_reading_that_repeats_another_with_an_error_keeps_the_rates() -> None:
    last = reading(2_000, queue("a", published=100))
    made = measured(reading(1_000, queue("a")), last)

    made.add(last | {"error": "no broker answers"})

    assert made.rows()[0]["in/s"] == 100.0
    assert made.last["error"] == "no broker answers"


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, ""),
        ({"ready": 1}, ""),
        ({"ready": 1, "subscribers": 0}, "no worker"),
        ({"delayed": 1, "subscribers": 0}, ""),
        ({"ready": 1, "subscribers": 0, "paused_until_ms": 5}, "paused"),
        ({"name": "a.dead", "subscribers": 0}, ""),
        ({"name": "a.dead", "ready": 1, "subscribers": 0}, "dead letters"),
    ],
)
def test_state_says_what_an_operator_should_know(fields: dict[str, Any], state: str) -> None:
    assert state_of(queue("a") | fields) == state


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (-1.0, "0s"), (0.4, "0s"), (119.0, "119s"), (120.0, "2m"), (7_200.0, "2h"), (200_000.0, "2d")],
)
def test_span_is_short(seconds: float | None, text: str) -> None:
    assert span(seconds) == text
