"""What others do wrong is one line of the log in a while."""

import logging
from datetime import UTC, datetime

import pytest
from freezegun import freeze_time

from wakeq.actors.rate_limited_log import PAUSE_MS, RateLimitedLog

BEGIN = datetime(2026, 11, 18, 12, 0, 0, tzinfo=UTC)


class Clock:
    now_ms = int(BEGIN.timestamp() * 1000)

    def __call__(self) -> int:
        return self.now_ms


def test_complaint_is_logged_at_once_and_later_ones_after_a_pause_with_their_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    complaints = RateLimitedLog(logging.getLogger("wakeq.test"), clock)

    for _ in range(1000):
        complaints.log("somebody knocks")
    clock.now_ms += PAUSE_MS
    complaints.log("somebody rings")
    clock.now_ms += PAUSE_MS
    complaints.log("somebody shouts")

    assert caplog.messages == [
        "somebody knocks",
        "somebody rings, and 999 others since 2026-11-18 12:00:00 UTC",
        "somebody shouts",
    ]


def test_end_of_a_burst_is_logged_by_a_later_tick(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    complaints = RateLimitedLog(logging.getLogger("wakeq.test"), clock)
    for number in range(4):
        complaints.log(f"knock {number}")

    complaints.tick()
    clock.now_ms += PAUSE_MS
    for _ in range(2):
        complaints.tick()
        clock.now_ms += PAUSE_MS

    assert caplog.messages == ["knock 0", "knock 3, and 2 others since 2026-11-18 12:00:00 UTC"]


def test_moments_in_complaints_come_from_the_wall_clock(caplog: pytest.LogCaptureFixture) -> None:
    complaints = RateLimitedLog(logging.getLogger("wakeq.test"))

    with freeze_time(BEGIN) as clock:
        complaints.log("first")
        complaints.log("left out")
        clock.tick(PAUSE_MS / 1000)
        complaints.log("second")

    assert caplog.messages == ["first", "second, and 1 other since 2026-11-18 12:00:00 UTC"]


def test_clock_that_is_set_back_silences_no_complaint(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    complaints = RateLimitedLog(logging.getLogger("wakeq.test"), clock)

    complaints.log("before")
    clock.now_ms -= 3_600_000
    complaints.log("after")

    assert caplog.messages == ["before", "after"]
