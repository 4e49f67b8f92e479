"""Tests of Retry, Snooze and Reject: their delays, and how a raised Retry and a task's policy combine."""

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from wakeq.client.arguments.spans import Span
from wakeq.protocol.wire.worker.commands import SECONDS_MAX
from wakeq.worker.outcome import Reject, Retry, Snooze


def test_fixed_delay_stays_the_same() -> None:
    retry = Retry(delay=30, jitter=0)

    assert [retry.delay_after(failures, drawn=0.5) for failures in (0, 1, 9)] == [30, 30, 30]


def test_exponential_delay_doubles_up_to_its_maximum() -> None:
    retry = Retry(backoff="exponential", delay=2, delay_max=20, jitter=0)

    assert [retry.delay_after(failures, drawn=0.0) for failures in range(6)] == [2, 4, 8, 16, 20, 20]
    assert retry.delay_after(10_000, drawn=0.0) == 20


def test_exponential_delay_starts_with_one_second_by_default() -> None:
    assert Retry(backoff="exponential", jitter=0).delay_after(0, drawn=0.0) == 1


def test_retry_without_a_delay_leaves_it_to_the_queue() -> None:
    assert Retry(max=3).delay_after(1, drawn=0.0) is None


def test_jitter_shortens_the_delay_to_whole_seconds() -> None:
    retry = Retry(delay=100, jitter=0.5)

    assert [retry.delay_after(0, drawn=drawn) for drawn in (0.0, 0.5, 0.999, 1.0)] == [100, 75, 51, 50]


def test_failure_after_the_last_retry_is_the_last() -> None:
    retry = Retry(max=2)

    assert [retry.is_over(failures) for failures in range(4)] == [False, False, True, True]
    assert Retry(max=0).is_over(0)
    assert not Retry().is_over(10**9)


def test_raised_retry_takes_omitted_values_from_the_policy() -> None:
    policy = Retry(max=5, backoff="exponential", delay=4, jitter=0)

    with_delay = Retry("busy", delay=30, jitter=0).filled_from(policy)
    with_max = Retry(max=1).filled_from(policy)

    assert (with_delay.reason, with_delay.max, with_delay.delay_after(3, drawn=0.0)) == ("busy", 5, 30)
    assert (with_max.max, with_max.delay_after(3, drawn=0.0)) == (1, 32)
    assert Retry(delay=7).filled_from(None).delay == 7


@pytest.mark.parametrize(
    "options",
    [{"max": -1}, {"max": 1.5}, {"backoff": "linear"}, {"jitter": 2}],
    ids=str,
)
def test_invalid_settings_are_refused_at_once(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Retry(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("span", "seconds"), [(0.2, 0.2), (timedelta(minutes=2), 120), (3, 3)])
def test_snooze_and_retry_take_fractions_and_timedeltas(span: Span, seconds: float) -> None:
    retry = Retry(delay=span, delay_max=span, jitter=0)

    assert Snooze(span).seconds == seconds
    assert retry.delay_after(0, drawn=0.5) == seconds
    assert retry.delay_max == seconds


@pytest.mark.parametrize(
    ("delay", "drawn", "after"), [(0.25, 0.5, 0.24), (1, 0.5, 0.95), (2.5, 0.5, 2.4), (25, 0.5, 24), (25, 0.0, 25)]
)
def test_random_delay_is_a_round_number_so_that_messages_share_commands(
    delay: float, drawn: float, after: float
) -> None:
    assert Retry(delay=delay, jitter=0.1).delay_after(0, drawn=drawn) == after


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf, SECONDS_MAX + 1, "3", True, timedelta(seconds=-3)])
def test_duration_that_no_broker_accepts_is_refused_at_once(seconds: Any) -> None:
    with pytest.raises(ValueError, match=r"Retry: delay is .*; it is a number of seconds"):
        Retry(delay=seconds)
    with pytest.raises(ValueError, match=r"Retry: delay_max is .*; it is a number of seconds"):
        Retry(delay_max=seconds)
    with pytest.raises(ValueError, match=r"Snooze: seconds is .*; it is a number of seconds"):
        Snooze(seconds)


@pytest.mark.parametrize("make", [Retry, Reject, lambda reason: Snooze(1, reason)])
def test_reason_of_any_type_becomes_text(make: Callable[[object], Retry | Reject | Snooze]) -> None:
    ending = make(ValueError("why"))

    assert (ending.reason, str(ending)) == ("ValueError: why", "ValueError: why")
