"""Tests of ManualTime: callbacks run at their moments and in order, and time passes only when it is driven."""

import pytest

from wakeq.testing.manual_time import CLEAR_EVERY, ManualTime


def test_callbacks_run_exactly_when_they_are_due() -> None:
    time = ManualTime(start_ms=0)
    seen: list[tuple[str, int]] = []
    time.call_later(2, lambda: seen.append(("second", time.now_ms())))
    time.call_later(1, lambda: seen.append(("first", time.now_ms())))

    time.advance(3)

    assert seen == [("first", 1000), ("second", 2000)]
    assert time.now_ms() == 3000


def test_callbacks_of_one_moment_run_in_order() -> None:
    time = ManualTime()
    seen: list[int] = []
    for number in range(3):
        time.call_later(1, lambda number=number: seen.append(number))

    time.advance(1)

    assert seen == [0, 1, 2]


def test_callback_set_by_a_callback_runs_in_the_same_advance() -> None:
    time = ManualTime(start_ms=0)
    seen: list[int] = []

    def again() -> None:
        seen.append(time.now_ms())
        time.call_later(1, again)

    time.call_later(1, again)
    time.advance(3)

    assert seen == [1000, 2000, 3000]


def test_cancelled_callback_is_not_called() -> None:
    time = ManualTime()
    seen: list[str] = []
    time.call_later(1, lambda: seen.append("cancelled")).cancel()
    time.call_later(1, lambda: seen.append("forgotten"))

    time.forget()
    time.advance(2)

    assert seen == []
    assert time.waiting == 0


def test_advance_to_next_stops_at_the_next_callback() -> None:
    time = ManualTime(start_ms=0)
    seen: list[int] = []
    time.call_later(5, lambda: seen.append(time.now_ms()))

    too_far = time.advance_to_next(4)
    reached = time.advance_to_next(5)

    assert (too_far, reached, seen, time.now_ms()) == (False, True, [5000], 5000)


def test_tick_is_called_with_spans_that_add_up() -> None:
    spans: list[float] = []
    time = ManualTime(tick=spans.append)
    time.call_later(1, lambda: None)

    time.advance(3)
    time.advance(0)

    assert spans == [1.0, 2.0]


def test_negative_advance_is_refused() -> None:
    with pytest.raises(ValueError, match="forward"):
        ManualTime().advance(-1)


def test_small_steps_do_not_drift() -> None:
    time = ManualTime(start_ms=0)

    for _ in range(10_000):
        time.advance(0.1)

    assert time.now_ms() == 1_000_000


def test_cancelled_callbacks_are_removed() -> None:
    time = ManualTime()

    for _ in range(10 * CLEAR_EVERY):
        time.call_later(1_000_000, lambda: None).cancel()

    assert len(time._waiting) <= 2 * CLEAR_EVERY
