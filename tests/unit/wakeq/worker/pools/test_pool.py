"""Proves the way back from the pools: every result comes, in its order, and many of them cost one wake-up."""

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from wakeq.worker.outcome import DONE
from wakeq.worker.pools.pool import FinishedJob, FinishedJobs, drain_waiting, undetermined

JOBS: list[Any] = ["a", "b", "c", "d"]  # what they are is nothing to the way back


class Woken:
    """Stands where the loop is: counts how often it is woken, and does what it was asked when it is told to."""

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


def test_many_results_wake_the_loop_once_and_the_next_ones_again() -> None:
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


def test_a_result_that_comes_while_others_are_handed_over_is_not_left_lying() -> None:
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


def test_what_was_gathered_before_its_turn_is_handed_over_once() -> None:
    collected: list[list[Any]] = []
    returns, loop = returns_to(collected)

    returns.put(JOBS[0], DONE, 0.0)
    returns.gather()
    loop.turn()

    assert collected == [[JOBS[0]]]


def test_a_result_for_a_loop_that_is_closed_is_dropped() -> None:
    collected: list[list[Any]] = []
    returns, loop = returns_to(collected)
    loop.closed = True

    returns.put(JOBS[0], DONE, 0.0)
    returns.gather()

    assert collected == []


def test_jobs_that_are_taken_back_are_gone() -> None:
    waiting = deque(JOBS)

    assert sorted(drain_waiting(waiting)) == JOBS
    assert not waiting


def test_what_could_not_be_judged_is_told_without_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = undetermined(ZeroDivisionError("a bug"))

    assert "ZeroDivisionError" in outcome.error
    assert outcome.delay_s == 5
    assert "ZeroDivisionError: a bug" in capsys.readouterr().err
