"""Tests of spans.py: spans and moments as programs give them, in the seconds that a broker takes."""

import time
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum
from typing import Any

import pytest

from wakeq.client.arguments.spans import delay_until, seconds, seconds_until
from wakeq.protocol.errors import BadField

NOW = datetime(2026, 12, 24, 18, tzinfo=UTC)


class Pause(IntEnum):
    SHORT = 5


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", NOW.timestamp)


@pytest.mark.parametrize(
    ("span", "sent"),
    [
        (5, 5), (5.0, 5), (1.5, 1.5), (0.0001, 0.001), (1.0001, 1.001), (timedelta(minutes=2), 120),
        (timedelta(milliseconds=1500), 1.5), (timedelta(microseconds=1), 0.001), (timedelta(0), 0), (None, None),
        (Pause.SHORT, 5),
    ],
)  # fmt: skip
def test_span_is_sent_as_a_whole_number_unless_it_has_a_fraction(span: Any, sent: float | None) -> None:
    found = seconds("delay", span)

    assert (found, type(found)) == (sent, type(sent))


@pytest.mark.parametrize("span", ["5", True, float("nan"), float("-inf"), [5]])
def test_value_that_is_no_span_is_refused(span: Any) -> None:
    with pytest.raises(BadField, match=r"expires is .*; give a number of seconds, or a timedelta"):
        seconds("expires", span)


@pytest.mark.parametrize(
    ("moment", "left"),
    [
        (NOW + timedelta(hours=1), 3600),
        ((NOW + timedelta(hours=1)).astimezone(timezone(timedelta(hours=-5))), 3600),
        (NOW + timedelta(milliseconds=1250), 1.25),
        (NOW - timedelta(days=1), 0),
    ],
)
def test_moment_is_a_delay_from_now_in_any_time_zone(moment: datetime, left: float) -> None:
    assert seconds_until(moment) == left


@pytest.mark.parametrize(("moment", "words"), [(datetime(2026, 12, 24), "has no time zone"), (5, "give a datetime")])
def test_moment_without_a_time_zone_is_refused(moment: Any, words: str) -> None:
    with pytest.raises(BadField, match=f"at is .*{words}"):
        seconds_until(moment)


def test_delay_and_moment_together_are_refused() -> None:
    assert delay_until(timedelta(seconds=3), None) == 3
    assert delay_until(0, NOW + timedelta(seconds=3)) == 3
    with pytest.raises(BadField, match="give delay or at, not both"):
        delay_until(1, NOW)
