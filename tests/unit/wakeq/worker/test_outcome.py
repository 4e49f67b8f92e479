"""Tests of outcome.py: how the end of a handler becomes an outcome."""

import pickle

import pytest

from wakeq.client.message import Received
from wakeq.worker.outcome import (
    DESCRIBED_CHARS_MAX,
    Dead,
    Done,
    Failed,
    NotDone,
    Outcome,
    Reject,
    Released,
    Retry,
    Snooze,
    described,
    log_arguments,
    nack_of,
    outcome_of,
)

POLICY = Retry(max=2, delay=10, jitter=0)


@pytest.mark.parametrize(
    ("error", "policy", "failures", "outcome"),
    [
        (ValueError("no"), None, 0, Failed("ValueError: no")),
        (ValueError(), None, 0, Failed("ValueError")),
        (ValueError("no"), POLICY, 0, Failed("ValueError: no", 10)),
        (ValueError("no"), POLICY, 1, Failed("ValueError: no", 10)),
        (ValueError("no"), POLICY, 2, Dead("still failing after 2 retries: ValueError: no", exhausted=True)),
        (SystemExit(3), POLICY, 0, Failed("SystemExit: 3", 10)),
        (Retry("busy", delay=30, jitter=0), POLICY, 0, Failed("busy", 30)),
        (Retry("busy", delay=30, jitter=0), POLICY, 2, Dead("still failing after 2 retries: busy", exhausted=True)),
        (Retry("busy", delay=30, jitter=0), None, 99, Failed("busy", 30)),
        (Retry(), POLICY, 0, Failed("to be tried again", 10)),
        (Retry(max=9), POLICY, 2, Failed("to be tried again", 10)),
        (Snooze(60), POLICY, 99, Released("snoozed", 60)),
        (Snooze(60, "night"), None, 0, Released("night", 60)),
        (Reject("never"), POLICY, 0, Dead("never")),
    ],
)
def test_exception_of_a_handler_decides_the_outcome(
    error: BaseException, policy: Retry | None, failures: int, outcome: Outcome
) -> None:
    assert outcome_of(error, policy, failures=failures, drawn=0.5) == outcome


def test_description_of_an_error_has_its_place() -> None:
    try:
        int("x")
    except ValueError as error:
        text = described(error)

    assert text.startswith("ValueError: invalid literal")
    assert "test_outcome.py:" in text
    assert text.endswith("in test_description_of_an_error_has_its_place)")


def test_long_description_is_cut_and_keeps_its_place() -> None:
    try:
        raise ValueError("x" * 5000)
    except ValueError as error:
        text = described(error)

    assert len(text) == DESCRIBED_CHARS_MAX
    assert "test_outcome.py:" in text


def test_outcomes_survive_pickling() -> None:
    for outcome in (Done(), Failed("x", 3), Dead("x"), Released("x", 3)):
        assert pickle.loads(pickle.dumps(outcome)) == outcome


def test_outcome_becomes_the_arguments_of_nack() -> None:
    assert nack_of(Failed("x")) == {"delay": None, "error": "x"}
    assert nack_of(Dead("x")) == {"error": "x", "dead": True}
    assert nack_of(Dead("x", exhausted=True)) == {"error": "x", "dead": True, "exhausted": True}
    assert nack_of(Released("x", 3)) == {"delay": 3, "error": "x", "failed": False}


class Unspeakable(Exception):
    """An exception whose text raises."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Unspeakable(), "Unspeakable: (its text is not available: RuntimeError)"),
        (ValueError("file \udcff"), r"ValueError: file \udcff"),
        (Reject(ValueError("no")), "ValueError: no"),
        (Reject("\udcff"), r"\udcff"),
        (Snooze(1, 7), "7"),
        (Retry(ValueError("no")), "ValueError: no"),
    ],
)
def test_text_of_any_exception_can_be_sent(error: BaseException, text: str) -> None:
    outcome = outcome_of(error, POLICY, failures=0, drawn=0.5)

    assert not isinstance(outcome, Done)
    assert nack_of(outcome)["error"] == text
    text.encode()


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (Failed("x"), "m1 failed, will be retried by the policy of its queue (delivery 2): x"),
        (Failed("x", 4), "m1 failed, will be retried in 4 s (delivery 2): x"),
        (Dead("x"), "m1 became a dead letter (delivery 2): x"),
        (Released("x", 60), "m1 was postponed for 60 s (delivery 2): x"),
    ],
)
def test_log_line_of_each_outcome_says_what_happens_to_the_message(outcome: NotDone, text: str) -> None:
    message = Received(queue="q", uid="m1", body=b"", lease="1-1", delivery=2)

    template, *values = log_arguments(message, outcome)

    assert template % tuple(values) == f"q: {text}"
