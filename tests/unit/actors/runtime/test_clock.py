"""Readings of time: which clock counts for what."""

import time

import pytest

from wakeq.actors.runtime.clock import elapsed_ms


def test_time_in_which_the_machine_was_suspended_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader on a machine that was closed for a minute must not take its last round of heartbeats for a fresh one."""
    readings = {time.CLOCK_MONOTONIC: 5_000_000_000, time.CLOCK_BOOTTIME: 65_000_000_000}
    monkeypatch.setattr(time, "clock_gettime_ns", readings.__getitem__)
    monkeypatch.setattr(time, "monotonic_ns", lambda: readings[time.CLOCK_MONOTONIC])

    assert elapsed_ms() == 65_000
