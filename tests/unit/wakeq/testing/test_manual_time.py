"""ManualTime: callbacks come at their moment and in order, and nothing passes by itself."""

import pytest

from wakeq.testing.manual_time import CLEAR_EVERY, ManualTime


def test_callbacks_see_the_very_moment_at_which_they_are_due() -> None:
    time = ManualTime(start_ms=0)
    seen: list[tuple[str, int]] = []
    time.call_later(2, lambda: seen.append(("second", time.now_ms())))
    time.call_later(1, lambda: seen.append(("first", time.now_ms())))

    time.advance(3)

    assert seen == [("first", 1000), ("second", 2000)]
    assert time.now_ms() == 3000


def test_callbacks_of_one_moment_come_in_the_order_in_which_they_were_asked_for() -> None:
    time = ManualTime()
    seen: list[int] = []
    for number in range(3):
        time.call_later(1, lambda number=number: seen.append(number))

    time.advance(1)

    assert seen == [0, 1, 2]


def test_what_a_callback_asks_for_falls_due_within_the_same_advance() -> None:
    time = ManualTime(start_ms=0)
    seen: list[int] = []

    def again() -> None:
        seen.append(time.now_ms())
        time.call_later(1, again)

    time.call_later(1, again)
    time.advance(3)

    assert seen == [1000, 2000, 3000]


def test_what_was_cancelled_or_forgotten_is_not_called() -> None:
    time = ManualTime()
    seen: list[str] = []
    time.call_later(1, lambda: seen.append("cancelled")).cancel()
    time.call_later(1, lambda: seen.append("forgotten"))

    time.forget()
    time.advance(2)

    assert seen == []
    assert time.waiting == 0


def test_the_next_callback_is_reached_if_it_is_near_enough() -> None:
    time = ManualTime(start_ms=0)
    seen: list[int] = []
    time.call_later(5, lambda: seen.append(time.now_ms()))

    too_far = time.advance_to_next(4)
    reached = time.advance_to_next(5)

    assert (too_far, reached, seen, time.now_ms()) == (False, True, [5000], 5000)


def test_another_clock_hears_each_span_and_all_of_them_together_are_what_passed() -> None:
    spans: list[float] = []
    time = ManualTime(tick=spans.append)
    time.call_later(1, lambda: None)

    time.advance(3)
    time.advance(0)

    assert spans == [1.0, 2.0]


def test_time_only_goes_forward() -> None:
    with pytest.raises(ValueError, match="forward"):
        ManualTime().advance(-1)


def test_many_small_steps_do_not_drift() -> None:
    time = ManualTime(start_ms=0)

    for _ in range(10_000):
        time.advance(0.1)

    assert time.now_ms() == 1_000_000


def test_cancelled_callbacks_take_no_room_for_ever() -> None:
    time = ManualTime()

    for _ in range(10 * CLEAR_EVERY):
        time.call_later(1_000_000, lambda: None).cancel()

    assert len(time._waiting) <= 2 * CLEAR_EVERY
