"""Tests of the pool of threads: each job runs once, in all slots, even with abandoned handlers."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

from wakeq.client.message import Received
from wakeq.worker import Worker
from wakeq.worker.engine.leases import Job
from wakeq.worker.outcome import DONE, Failed, Outcome
from wakeq.worker.pools.pool import ABANDONED_MAX
from wakeq.worker.pools.threads import ThreadPool

PATIENCE_S = 10.0


class Results:
    """Collects outcomes in place of FinishedJobs."""

    def __init__(self) -> None:
        self.ended: SimpleQueue[tuple[Job, Outcome]] = SimpleQueue()

    def began(self, _job: Job) -> None:
        pass

    def put(self, job: Job, outcome: Outcome, _span_s: float) -> None:
        self.ended.put((job, outcome))

    def take(self, count: int) -> list[Job]:
        return [self.ended.get(timeout=PATIENCE_S)[0] for _ in range(count)]


def pool_of(slots: int) -> tuple[ThreadPool, Results]:
    results: Any = Results()
    pool = ThreadPool(slots, results)
    pool.start()
    return pool, results


def jobs_of(handler: Callable[[], None], count: int) -> list[Job]:
    task: Any = Worker().task("q")(handler)
    return [Job(task, Received(queue="q", uid=str(at), body=b"{}", lease="1", delivery=1)) for at in range(count)]


def test_job_runs_exactly_once_however_it_is_submitted() -> None:
    pool, results = pool_of(4)
    ran: list[int] = []
    jobs = jobs_of(lambda: ran.append(1), 3000)

    for at in range(0, 1000, 10):
        pool.submit(jobs[at : at + 10])
    for at in range(1000, 1100):
        pool.submit([jobs[at]])
    pool.submit(jobs[1100:])
    ended = results.take(3000)

    assert {id(job) for job in ended} == {id(job) for job in jobs}
    assert len(ran) == 3000
    pool.stop()


def test_single_job_is_never_left_behind_while_threads_sleep() -> None:
    pool, results = pool_of(3)

    for job in jobs_of(lambda: None, 500):
        pool.submit([job])
        assert results.take(1) == [job]
    pool.stop()


def test_job_submitted_while_a_thread_falls_asleep_is_not_left_behind() -> None:
    results: Any = Results()
    pool = ThreadPool(1, results)
    late = jobs_of(lambda: None, 1)

    class Bells(list[Any]):
        def append(self, bell: Any) -> None:
            """Submit a job after the thread's last check and before its bell can be rung."""
            pool._waiting.extend(late)
            late.clear()
            super().append(bell)

    pool._idle = Bells()
    (expected,) = late
    pool.start()

    assert results.take(1) == [expected]
    pool.stop()


def test_jobs_run_in_all_slots_and_no_more() -> None:
    pool, results = pool_of(3)
    inside, go = threading.Semaphore(0), threading.Event()

    def wait() -> None:
        inside.release()
        assert go.wait(PATIENCE_S)

    pool.submit(jobs_of(wait, 5))
    for _ in range(3):
        assert inside.acquire(timeout=PATIENCE_S)

    assert not inside.acquire(blocking=False)
    assert len(pool.take_back()) == 2
    go.set()
    results.take(3)
    pool.stop()


def test_job_taken_back_does_not_start() -> None:
    pool, results = pool_of(1)
    go = threading.Event()
    ran: list[int] = []

    def wait() -> None:
        assert go.wait(PATIENCE_S)

    first = jobs_of(wait, 1)
    rest = jobs_of(lambda: ran.append(1), 5)
    pool.submit(first + rest)

    taken = pool.take_back()
    go.set()
    ended = results.take(1 + 5 - len(taken))

    assert len(ended) + len(taken) == 6
    assert not set(ended) & set(taken)
    pool.stop()


def test_slot_of_an_abandoned_handler_is_filled() -> None:
    others_before = set(threading.enumerate())
    pool, results = pool_of(1)
    inside, go = threading.Event(), threading.Event()

    def stuck() -> None:
        inside.set()
        assert go.wait(PATIENCE_S)

    (hanging,) = jobs_of(stuck, 1)
    pool.submit([hanging])
    assert inside.wait(PATIENCE_S)
    (stuck_thread,) = set(threading.enumerate()) - others_before

    pool.abandon(hanging)
    others = jobs_of(lambda: None, 3)
    pool.submit(others)

    assert results.take(3) == others
    go.set()
    assert results.take(1) == [hanging]
    stuck_thread.join(PATIENCE_S)
    assert not stuck_thread.is_alive()
    pool.stop()


def test_ended_handler_is_not_abandoned() -> None:
    pool, results = pool_of(1)
    (job,) = jobs_of(lambda: None, 1)
    pool.submit([job])
    results.take(1)
    before = set(threading.enumerate())

    pool.abandon(job)

    assert set(threading.enumerate()) <= before
    pool.stop()


def test_threads_of_a_stopped_pool_end() -> None:
    before = set(threading.enumerate())
    pool, _returned = pool_of(4)
    mine = set(threading.enumerate()) - before
    assert len(mine) == 4

    pool.stop()

    for thread in mine:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_slot_goes_on_when_an_outcome_cannot_be_determined(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes: list[BaseException] = [ZeroDivisionError("a bug"), SystemExit()]

    def broken(*_arguments: object) -> Outcome:
        if outcomes:
            raise outcomes.pop()
        return DONE

    monkeypatch.setattr("wakeq.worker.pools.threads.call", broken)
    pool, results = pool_of(1)

    pool.submit(jobs_of(lambda: None, 3))

    outcomes = [results.ended.get(timeout=PATIENCE_S)[1] for _ in range(3)]
    assert [type(outcome) for outcome in outcomes] == [Failed, Failed, type(DONE)]
    assert "ZeroDivisionError: a bug" in capsys.readouterr().err
    pool.stop()


def test_pool_is_stuck_with_too_many_abandoned_handlers() -> None:
    pool, results = pool_of(1)
    inside, go = threading.Semaphore(0), threading.Event()

    def stuck() -> None:
        inside.release()
        assert go.wait(PATIENCE_S)

    jobs = jobs_of(stuck, ABANDONED_MAX + 1)
    for job in jobs:
        assert not pool.is_stuck
        pool.submit([job])
        assert inside.acquire(timeout=PATIENCE_S)
        pool.abandon(job)

    assert pool.is_stuck
    go.set()
    results.take(len(jobs))
    pool.stop()
