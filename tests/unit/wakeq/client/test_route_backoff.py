"""Tests of ReconnectBackoff: growing pauses, the end of the attempts, and when they start anew."""

from wakeq.client.route import PAUSE_S_MIN, ReconnectBackoff

NOW_S = 100.0


def test_backoff_ends_after_its_limit() -> None:
    backoff = ReconnectBackoff(10.0)
    backoff.lost(NOW_S)
    now_s, tries = NOW_S, 0

    while (pause_s := backoff.next_pause_s(now_s)) is not None:
        now_s, tries = now_s + pause_s, tries + 1

    assert NOW_S + 9 <= now_s <= NOW_S + 10
    assert 10 <= tries <= 20


def test_backoff_without_limit_never_ends() -> None:
    backoff = ReconnectBackoff(float("inf"))
    backoff.lost(NOW_S)

    assert all(backoff.next_pause_s(NOW_S + day * 86_400) is not None for day in range(1000))


def test_backoff_starts_anew_after_a_connection_that_lasted() -> None:
    backoff = ReconnectBackoff(10.0)
    now_s = NOW_S

    for _ in range(10):
        backoff.connected(now_s)
        now_s += 60
        assert backoff.lost(now_s)


def test_backoff_starts_anew_after_an_answer() -> None:
    backoff = ReconnectBackoff(10.0)
    backoff.lost(NOW_S)

    backoff.reset()

    assert backoff.lost(NOW_S + 9)
    assert backoff.next_pause_s(NOW_S + 18) == PAUSE_S_MIN


def test_backoff_ends_if_every_connection_breaks_at_once() -> None:
    backoff = ReconnectBackoff(10.0)
    now_s = NOW_S

    for _ in range(1000):
        backoff.connected(now_s)
        pause_s = 0.0 if backoff.lost(now_s) else backoff.next_pause_s(now_s)
        if pause_s is None:
            break
        now_s += pause_s

    assert pause_s is None
    assert now_s <= NOW_S + 10
