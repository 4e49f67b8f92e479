"""The cluster clock under steps, pauses and drift; and the two sources of readings."""

from datetime import timedelta
from itertools import cycle

import pytest
from freezegun import freeze_time
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.loops.manual_clock import ManualClock
from wakeq.actors.runtime.clock import Clock, SystemClock
from wakeq.protocol.clock import (
    HEARTBEAT_MS,
    PAUSE_MS,
    STEP_REPORT_MS,
    UNITS,
    ClusterClock,
    Mark,
    clock_to_lead_by,
    span_on,
)

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def started(source: Clock, last_stamp_ms: int = 0) -> ClusterClock:
    return ClusterClock(max(last_stamp_ms, source.wall_ms()), source.wall_ms(), source.monotonic_ms())


def read(clock: ClusterClock, source: Clock) -> int:
    return clock.now(source.wall_ms(), source.monotonic_ms())


def run(clock: ClusterClock, source: ManualClock, span_ms: int, beat_ms: int = HEARTBEAT_MS) -> int:
    """Let time pass with a reading at each beat, as the owner's timer does."""
    for _ in range(span_ms // beat_ms):
        source.advance(beat_ms)
        read(clock, source)
    return read(clock, source)


def test_clock_runs_with_the_wall_clock_while_nothing_happens() -> None:
    source = ManualClock(START_MS)
    clock = started(source)

    assert run(clock, source, HOUR_MS) == START_MS + HOUR_MS
    assert (clock.step_ms, clock.take_step_ms()) == (0, None)


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
def test_step_of_the_wall_clock_is_leaned_into_at_one_percent(step_ms: int) -> None:
    source = ManualClock(START_MS)
    clock = started(source)

    source.step_wall(step_ms)

    assert read(clock, source) == START_MS
    assert run(clock, source, 100_000) == START_MS + 100_000 + (1_000 if step_ms > 0 else -1_000)
    assert run(clock, source, 100 * HOUR_MS, beat_ms=2_000) == source.wall_ms()


def test_lean_of_one_percent_holds_for_readings_a_millisecond_apart() -> None:
    source = ManualClock(START_MS)
    clock = started(source)
    source.step_wall(HOUR_MS)

    assert run(clock, source, 10_000, beat_ms=1) == START_MS + 10_100


def test_step_is_reported_once() -> None:
    source = ManualClock(START_MS)
    clock = started(source)
    source.step_wall(-HOUR_MS)
    read(clock, source)

    assert clock.take_step_ms() == -HOUR_MS
    for _ in range(1_000):
        run(clock, source, HEARTBEAT_MS)
        assert clock.take_step_ms() is None
    source.step_wall(2 * HOUR_MS)
    read(clock, source)
    assert clock.take_step_ms() == pytest.approx(HOUR_MS, abs=10_000)


def test_small_difference_is_no_news() -> None:
    source = ManualClock(START_MS)
    clock = started(source)
    source.step_wall(STEP_REPORT_MS - 1)
    read(clock, source)

    assert clock.take_step_ms() is None
    assert clock.step_ms == STEP_REPORT_MS - 1


def test_pause_adds_two_seconds_at_once_and_the_rest_little_by_little() -> None:
    source = ManualClock(START_MS)
    clock = started(source)

    source.advance(60_000)

    assert read(clock, source) == START_MS + PAUSE_MS + PAUSE_MS // 100
    assert clock.take_step_ms() == 60_000 - PAUSE_MS - PAUSE_MS // 100
    assert run(clock, source, 100_000) == START_MS + PAUSE_MS * 101 // 100 + 101_000
    assert run(clock, source, 2 * HOUR_MS) == source.wall_ms()


def test_idle_owner_that_keeps_its_heartbeat_never_looks_paused() -> None:
    source = ManualClock(START_MS)
    clock = started(source)

    run(clock, source, HOUR_MS, beat_ms=PAUSE_MS)  # beats as late as four times the heartbeat

    assert read(clock, source) == START_MS + HOUR_MS


def test_new_leader_goes_on_from_the_last_stamp_by_its_own_monotonic_clock() -> None:
    source = ManualClock(START_MS + HOUR_MS)  # this node's wall clock is an hour ahead
    clock = started(source)
    clock.set(START_MS, source.wall_ms(), source.monotonic_ms())

    assert run(clock, source, 10_000) == START_MS + 10_000 + 100


def test_follower_of_a_leader_with_another_time_reports_the_step_once() -> None:
    source = ManualClock(START_MS)
    clock = started(source)
    reported = []

    for _ in range(10):
        source.advance(HEARTBEAT_MS)
        clock.set(source.wall_ms() + 5_000, source.wall_ms(), source.monotonic_ms())
        read(clock, source)
        reported.append(clock.take_step_ms())

    assert reported == [-5_000] + [None] * 9


@settings(deadline=None)
@given(
    readings=st.lists(
        st.tuples(st.integers(0, 10_000), st.integers(-(10**7), 10**7)),
        max_size=50,
    ),
    last_stamp_ms=st.integers(0, 2 * START_MS),
)
def test_clock_never_goes_back_and_never_outruns_real_time_by_more_than_one_percent(
    readings: list[tuple[int, int]], last_stamp_ms: int
) -> None:
    source = ManualClock(START_MS)
    clock = started(source, last_stamp_ms)
    first = before = read(clock, source)

    for after_ms, by_ms in readings:
        source.advance(after_ms)
        source.step_wall(by_ms)
        now = read(clock, source)
        assert before <= now <= before + min(after_ms, PAUSE_MS) * 101 / 100 + 1
        before = now

    assert before - first <= source.monotonic_ms() * 101 / 100


@settings(deadline=None)  # a busy machine is no fault
@given(
    step_ms=st.integers(0, 10**5), true_ms=st.integers(1, 10**5), beats_ms=st.lists(st.integers(1, 2_000), min_size=1)
)
def test_span_is_no_shorter_in_true_time_while_the_clock_leans(step_ms: int, true_ms: int, beats_ms: list[int]) -> None:
    source = ManualClock(START_MS)
    clock = started(source)
    source.step_wall(step_ms)
    stamp_ms = read(clock, source) + SystemClock.rounding_ms  # as a node's stamp is
    due_ms = stamp_ms + span_on(clock.behind_ms, true_ms)
    began_ms = source.monotonic_ms()

    for beat_ms in cycle(beats_ms):
        source.advance(beat_ms)
        if read(clock, source) >= due_ms:
            break

    took_ms = source.monotonic_ms() - began_ms
    assert true_ms <= took_ms <= true_ms * 1.01 + 1 + SystemClock.rounding_ms + max(beats_ms)


@pytest.mark.parametrize("true_ms", [1, 50, 99, 100, 150, 199])
def test_span_while_the_clock_leans_does_not_end_early_by_the_rounding(true_ms: int) -> None:
    for hundredths in range(UNITS):  # of a millisecond, which the clock has and does not tell
        source = ManualClock(START_MS)
        clock = started(source)
        source.step_wall(10_000)
        source.advance(hundredths)
        due_ms = read(clock, source) + span_on(clock.behind_ms, true_ms)

        source.advance(true_ms - 1)

        assert read(clock, source) < due_ms


def test_distance_is_told_right_after_the_clock_was_set() -> None:
    source = ManualClock(START_MS)
    clock = started(source)

    clock.set(START_MS - 5_000, source.wall_ms(), source.monotonic_ms())

    assert clock.step_ms == 5_000


BOOT, OTHER_BOOT = b"boot 1..........", b"boot 2.........."
KEPT = Mark(START_MS, START_MS + 10_000, 500_000, BOOT)


@pytest.mark.parametrize("by_ms", [0, HOUR_MS, -HOUR_MS])
def test_start_within_one_boot_adds_the_elapsed_time_whatever_the_wall_clock_did(by_ms: int) -> None:
    assert KEPT.cluster_ms_at(KEPT.wall_ms + 700 + by_ms, KEPT.boot_ms + 700, BOOT) == START_MS + 700


@pytest.mark.parametrize("boot_id", [OTHER_BOOT, b""])
def test_start_after_another_boot_keeps_the_distance_to_the_wall_clock(boot_id: bytes) -> None:
    assert KEPT.cluster_ms_at(KEPT.wall_ms + HOUR_MS, 3_000, boot_id) == START_MS + HOUR_MS


def test_boot_that_is_not_known_is_never_the_same_boot() -> None:
    kept = KEPT._replace(boot_id=b"")

    assert kept.cluster_ms_at(KEPT.wall_ms + HOUR_MS, KEPT.boot_ms, b"") == START_MS + HOUR_MS


def test_boot_time_that_went_back_is_that_of_another_boot() -> None:
    assert KEPT.cluster_ms_at(KEPT.wall_ms + HOUR_MS, KEPT.boot_ms - 1, BOOT) == START_MS + HOUR_MS


@pytest.mark.parametrize(
    ("clocks", "expected"),
    [
        ([(5, False)], 5),
        ([(9, False), (5, False), (7, False)], 5),
        ([(9, False), (5, True), (4, False)], 5),
        ([(9, False), (5, True), (7, True)], 7),
    ],
)
def test_new_leader_begins_at_the_latest_heard_clock_or_the_lowest_of_all(
    clocks: list[tuple[int, bool]], expected: int
) -> None:
    assert clock_to_lead_by(clocks) == expected


def test_monotonic_reading_that_goes_back_stops_the_clock_and_no_more() -> None:
    clock = ClusterClock(START_MS, START_MS, 5_000)

    assert clock.now(START_MS, 4_000) == START_MS
    assert clock.now(START_MS + 100, 5_100) == START_MS + 100


def test_system_clock_follows_freezegun() -> None:
    with freeze_time("2026-01-02T03:04:05.678Z") as frozen:
        source = SystemClock()
        wall_ms, monotonic_ms = source.wall_ms(), source.monotonic_ms()

        frozen.tick(timedelta(seconds=1.5))

        assert wall_ms == 1_767_323_045_678
        assert source.wall_ms() - wall_ms == 1_500
        assert source.monotonic_ms() - monotonic_ms == 1_500


def test_manual_clock_moves_only_when_told() -> None:
    source = ManualClock(START_MS, 7)

    source.advance(20)
    source.step_wall(-5)

    assert (source.wall_ms(), source.monotonic_ms()) == (START_MS + 15, 27)
