"""DueMoments: delayed messages and those that expire come out at their true moment, once, and what is gone goes."""

import pytest

from wakeq.protocol.queue.leases import due_moments
from wakeq.protocol.queue.leases.audience import NEVER
from wakeq.protocol.queue.leases.due_moments import DueMoments


def test_new_due_moments_have_nothing_to_come() -> None:
    moments = DueMoments()

    assert (moments.next_moment_ms(), moments.take_due(9, int), moments.take_expired(9, int)) == (NEVER, [], [])
    moments.forget_gone(0, bool)


def test_delayed_number_comes_out_once_at_its_moment() -> None:
    moments = DueMoments()
    moments.delay(7, 5_000)

    assert moments.next_moment_ms() <= 5_000
    assert [moments.take_due(now_ms, {7: 5_000}.__getitem__) for now_ms in (4_999, 5_000, 5_001)] == [[], [7], []]
    assert moments.next_moment_ms() == NEVER


def test_number_without_a_moment_any_more_is_passed_over() -> None:
    moments = DueMoments()
    moments.watch_expiry(7, 5_000)
    moments.watch_expiry(8, 5_000)

    assert moments.take_expired(5_000, {7: 0, 8: 5_000}.__getitem__) == [8]


def test_next_moment_is_the_earlier_of_both_calendars() -> None:
    moments = DueMoments()
    moments.delay(1, 90_000_000)
    later_ms = moments.next_moment_ms()
    moments.watch_expiry(2, 10_000_000)

    assert moments.next_moment_ms() < later_ms


def test_moments_of_gone_messages_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_moments, "EXCESS_MAX", 10)
    moments = DueMoments()
    for number in range(20_000):
        moments.delay(number, 1_000_000)

    for _ in range(20):
        moments.forget_gone(5, lambda number: number < 5)

    assert moments.delayed is not None
    assert len(moments.delayed) == 5
