"""Proves by which rules the end of a handler becomes a verdict."""

import pickle

import pytest

from wakeq.worker.retry import Reject, Retry, Snooze
from wakeq.worker.verdict import ERROR_CHARS_MAX, Dead, Done, Failed, Returned, Verdict, described, nack_of, verdict_of

POLICY = Retry(max=2, delay=10, jitter=0)


@pytest.mark.parametrize(
    ("error", "policy", "failures", "verdict"),
    [
        (ValueError("no"), None, 0, Failed("ValueError: no")),
        (ValueError("no"), POLICY, 0, Failed("ValueError: no", 10)),
        (ValueError("no"), POLICY, 1, Failed("ValueError: no", 10)),
        (ValueError("no"), POLICY, 2, Dead("ValueError: no")),
        (SystemExit(3), POLICY, 0, Failed("SystemExit: 3", 10)),
        (Retry("busy", delay=30, jitter=0), POLICY, 0, Failed("busy", 30)),
        (Retry("busy", delay=30, jitter=0), POLICY, 2, Dead("busy")),
        (Retry("busy", delay=30, jitter=0), None, 99, Failed("busy", 30)),
        (Retry(), POLICY, 0, Failed("to be tried again", 10)),
        (Retry(max=9), POLICY, 2, Failed("to be tried again", 10)),
        (Snooze(60), POLICY, 99, Returned("snoozed", 60)),
        (Snooze(60, "night"), None, 0, Returned("night", 60)),
        (Reject("never"), POLICY, 0, Dead("never")),
    ],
)
def test_what_a_handler_raises_says_what_becomes_of_its_message(
    error: BaseException, policy: Retry | None, failures: int, verdict: Verdict
) -> None:
    assert verdict_of(error, policy, failures=failures, drawn=0.5) == verdict


def test_an_error_is_told_with_the_place_where_it_was_raised() -> None:
    try:
        int("x")
    except ValueError as error:
        text = described(error)

    assert text.startswith("ValueError: invalid literal")
    assert "test_verdict.py:" in text
    assert text.endswith("in test_an_error_is_told_with_the_place_where_it_was_raised)")


def test_a_long_error_is_cut_and_keeps_its_place() -> None:
    try:
        raise ValueError("x" * 5000)
    except ValueError as error:
        text = described(error)

    assert len(text) == ERROR_CHARS_MAX
    assert "test_verdict.py:" in text


def test_verdicts_survive_the_way_between_processes() -> None:
    for verdict in (Done(), Failed("x", 3), Dead("x"), Returned("x", 3)):
        assert pickle.loads(pickle.dumps(verdict)) == verdict


def test_a_verdict_is_said_with_the_words_of_the_client() -> None:
    assert nack_of(Failed("x")) == {"delay": None, "error": "x"}
    assert nack_of(Dead("x")) == {"error": "x", "dead": True}
    assert nack_of(Returned("x", 3)) == {"delay": 3, "error": "x", "failed": False}
