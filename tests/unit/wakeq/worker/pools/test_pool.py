"""Tests of FinishedJobs: all results arrive in order, and many of them cost one wake-up."""

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from wakeq.worker.outcome import DONE
from wakeq.worker.pools.pool import FinishedJob, FinishedJobs, drain_waiting, undetermined

# The kind of job does not matter here.
JOBS: list[Any] = ["a", "b", "c", "d"]


class Woken:
    """Replaces the loop: counts how often it is woken, and runs its callbacks when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Callable[[], None]] = []
        self.closed = False

    def call_soon_threadsafe(self, what: Callable[[], None]) -> None:
        if self.closed:
            raise RuntimeError("Event loop is closed")
        self.asked.append(what)

    def turn(self) -> None:
        asked, self.asked = self.asked, []
        for what in asked:
            what()


def returns_to(collected: list[list[Any]]) -> tuple[FinishedJobs, Woken]:
    loop: Any = Woken()
    return FinishedJobs(loop, lambda ended: collected.append([job for job, _, _ in ended])), loop


def test_results_wake_the_loop_once_and_later_ones_again() -> None:
    collected: list[list[Any]] = []
    returns, loop = returns_to(collected)

    for job in JOBS[:3]:
        returns.put(job, DONE, 0.0)
    assert len(loop.asked) == 1
    loop.turn()
    returns.put(JOBS[3], DONE, 0.0)
    assert len(loop.asked) == 1
    loop.turn()

    assert collected == [JOBS[:3], JOBS[3:]]


def test_result_that_arrives_during_a_collection_is_not_left_behind() -> None:
    collected: list[list[Any]] = []
    loop: Any = Woken()

    def collect(ended: list[FinishedJob]) -> None:
        collected.append([job for job, _, _ in ended])
        if len(collected) == 1:
            returns.put(JOBS[1], DONE, 0.0)

    returns = FinishedJobs(loop, collect)
    returns.put(JOBS[0], DONE, 0.0)
    loop.turn()
    loop.turn()

    assert collected == [[JOBS[0]], [JOBS[1]]]


def test_result_gathered_early_is_passed_on_once() -> None:
    collected: list[list[Any]] = []
    returns, loop = returns_to(collected)

    returns.put(JOBS[0], DONE, 0.0)
    returns.gather()
    loop.turn()

    assert collected == [[JOBS[0]]]


def test_result_for_a_closed_loop_is_dropped() -> None:
    collected: list[list[Any]] = []
    returns, loop = returns_to(collected)
    loop.closed = True

    returns.put(JOBS[0], DONE, 0.0)
    returns.gather()

    assert collected == []


def test_drained_jobs_are_removed() -> None:
    waiting = deque(JOBS)

    assert sorted(drain_waiting(waiting)) == JOBS
    assert not waiting


def test_undetermined_outcome_is_printed_without_logging(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = undetermined(ZeroDivisionError("a bug"))

    assert "ZeroDivisionError" in outcome.error
    assert outcome.delay_s == 5
    assert "ZeroDivisionError: a bug" in capsys.readouterr().err
