"""Tests of the pool of coroutines: free slots, cancellation, and handlers that ignore it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Any

import pytest

from wakeq.client.message import Received
from wakeq.worker import Worker
from wakeq.worker.engine.leases import Job
from wakeq.worker.outcome import DONE, Failed, Outcome
from wakeq.worker.pools.coroutines import BLOCKED_S, CoroutinePool

PATIENCE_S = 10.0


class Results:
    """Collects outcomes in place of FinishedJobs."""

    def __init__(self) -> None:
        self.ended: SimpleQueue[tuple[Job, Outcome]] = SimpleQueue()

    def began(self, _job: Job) -> None:
        pass

    def put(self, job: Job, outcome: Outcome, _span_s: float) -> None:
        self.ended.put((job, outcome))

    def take(self) -> tuple[Job, Outcome]:
        return self.ended.get(timeout=PATIENCE_S)


def pool_of(slots: int) -> tuple[CoroutinePool, Results]:
    results: Any = Results()
    pool = CoroutinePool(slots, results)
    pool.start()
    return pool, results


def jobs_of(handler: Callable[[], Awaitable[None]], count: int) -> list[Job]:
    task: Any = Worker().task("q")(handler)
    return [Job(task, Received(queue="q", uid=str(at), body=b"{}", lease="1", delivery=1)) for at in range(count)]


def test_job_runs_exactly_once() -> None:
    pool, results = pool_of(4)

    async def handler() -> None:
        await asyncio.sleep(0)

    jobs = jobs_of(handler, 500)
    for at in range(0, 500, 7):
        pool.submit(jobs[at : at + 7])
    ended = [results.take() for _ in jobs]

    assert {job for job, _ in ended} == set(jobs)
    assert all(outcome is DONE for _, outcome in ended)
    pool.stop()


def test_jobs_run_in_all_slots_and_no_more() -> None:
    pool, results = pool_of(3)
    inside: list[int] = []
    full = threading.Event()

    async def handler() -> None:
        inside.append(1)
        if len(inside) == 3:
            full.set()
        await asyncio.Event().wait()

    jobs = jobs_of(handler, 5)
    pool.submit(jobs)
    assert full.wait(PATIENCE_S)

    assert len(inside) == 3
    assert set(pool.take_back()) == set(jobs[3:])
    for job in jobs[:3]:
        pool.abandon(job)
    assert {results.take()[0] for _ in range(3)} == set(jobs[:3])
    pool.stop()


def test_abandoned_handler_is_cancelled_and_frees_its_slot() -> None:
    pool, results = pool_of(1)
    cleaned = threading.Event()

    async def stuck() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    async def short() -> None: ...

    (hanging,), (waiting,) = jobs_of(stuck, 1), jobs_of(short, 1)
    pool.submit([hanging, waiting])
    pool.abandon(hanging)

    job, outcome = results.take()
    assert job is hanging
    assert isinstance(outcome, Failed)
    assert results.take() == (waiting, DONE)
    pool.stop()


class Stubborn:
    """A handler that ignores its cancellation; it records its start and each attempt to cancel it."""

    def __init__(self) -> None:
        self.began, self.refused = threading.Semaphore(0), threading.Semaphore(0)
        self._go = threading.Event()

    async def handle(self) -> None:
        self.began.release()
        while not self._go.is_set():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.refused.release()

    def abandon(self, pool: CoroutinePool, job: Job) -> None:
        assert self.began.acquire(timeout=PATIENCE_S)
        pool.abandon(job)
        assert self.refused.acquire(timeout=PATIENCE_S)

    def end(self, pool: CoroutinePool, jobs: list[Job]) -> None:
        self._go.set()
        for job in jobs:
            pool.abandon(job)


def test_abandoned_handler_that_goes_on_takes_no_slot() -> None:
    pool, results = pool_of(1)
    stubborn = Stubborn()

    async def short() -> None: ...

    (hanging,), waiting = jobs_of(stubborn.handle, 1), jobs_of(short, 3)
    pool.submit([hanging, *waiting])
    stubborn.abandon(pool, hanging)

    assert [results.take() for _ in waiting] == [(job, DONE) for job in waiting]
    assert not pool.is_stuck
    stubborn.end(pool, [hanging])
    assert results.take()[0] is hanging
    pool.stop()


def test_pool_is_stuck_with_too_many_abandoned_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeq.worker.pools.coroutines.ABANDONED_MAX", 1)
    pool, results = pool_of(1)
    stubborn = Stubborn()
    jobs = jobs_of(stubborn.handle, 3)
    pool.submit(jobs)

    stubborn.abandon(pool, jobs[0])
    assert not pool.is_stuck
    stubborn.abandon(pool, jobs[1])
    assert pool.is_stuck

    assert pool.take_back() == [jobs[2]]
    stubborn.end(pool, jobs[:2])
    assert {results.take()[0] for _ in range(2)} == set(jobs[:2])
    assert not pool.is_stuck
    pool.stop()


def test_pool_is_stuck_when_an_abandoned_handler_blocks_the_loop() -> None:
    now_s = [1000.0]
    results: Any = Results()
    pool = CoroutinePool(1, results, clock=lambda: now_s[0])
    pool.start()
    inside, go = threading.Event(), threading.Event()

    async def stuck() -> None:
        inside.set()
        # The handler blocks the loop.
        assert go.wait(PATIENCE_S)

    async def short() -> None: ...

    (hanging,), (waiting,) = jobs_of(stuck, 1), jobs_of(short, 1)
    pool.submit([hanging, waiting])
    assert inside.wait(PATIENCE_S)

    pool.abandon(hanging)
    assert not pool.is_stuck
    now_s[0] += BLOCKED_S
    # A second call changes nothing.
    pool.abandon(hanging)
    assert pool.is_stuck

    go.set()
    assert [results.take()[0] for _ in range(2)] == [hanging, waiting]
    assert not pool.is_stuck
    pool.stop()


def test_pool_is_stuck_when_a_handler_blocks_the_loop_in_its_cancellation() -> None:
    """A handler may block the loop while it cleans up."""
    now_s = [1000.0]
    results: Any = Results()
    pool = CoroutinePool(1, results, clock=lambda: now_s[0])
    pool.start()
    inside, cleans_up, go = threading.Event(), threading.Event(), threading.Event()

    async def tidy() -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleans_up.set()
            # The handler blocks the loop.
            assert go.wait(PATIENCE_S)

    (hanging,) = jobs_of(tidy, 1)
    pool.submit([hanging])
    assert inside.wait(PATIENCE_S)

    pool.abandon(hanging)
    assert cleans_up.wait(PATIENCE_S)
    assert not pool.is_stuck
    now_s[0] += BLOCKED_S
    assert pool.is_stuck

    go.set()
    assert results.take()[0] is hanging
    assert not pool.is_stuck
    pool.stop()


def test_pool_that_never_started_leaves_no_open_loop() -> None:
    results: Any = Results()
    pool = CoroutinePool(1, results)

    pool.stop()

    assert pool._loop.is_closed()


def test_stopped_pool_ends_its_thread_after_the_last_handler() -> None:
    before = set(threading.enumerate())
    pool, results = pool_of(2)
    (thread,) = set(threading.enumerate()) - before
    entered = threading.Event()
    held: list[asyncio.Future[None]] = []

    async def handler() -> None:
        held.append(asyncio.get_running_loop().create_future())
        entered.set()
        await held[0]

    pool.submit(jobs_of(handler, 1))
    assert entered.wait(PATIENCE_S)

    pool.stop()
    assert thread.is_alive()
    held[0].get_loop().call_soon_threadsafe(held[0].set_result, None)

    assert results.take()[1] is DONE
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_slot_goes_on_when_an_outcome_cannot_be_determined(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def broken(*_arguments: object) -> Outcome:
        raise ZeroDivisionError("a bug")

    async def handler() -> None: ...

    monkeypatch.setattr("wakeq.worker.pools.coroutines.call_async", broken)
    pool, results = pool_of(1)

    pool.submit(jobs_of(handler, 2))

    assert [type(results.take()[1]) for _ in range(2)] == [Failed, Failed]
    assert "ZeroDivisionError: a bug" in capsys.readouterr().err
    pool.stop()


def test_job_does_not_begin_after_the_hooks_of_the_pool_have_ended() -> None:
    results: Any = Results()
    ended, looked = threading.Event(), threading.Event()

    async def hold(over: asyncio.Event, start_no_more: Callable[[], None]) -> None:
        start_no_more()
        ended.set()
        await over.wait()

    async def handler() -> None: ...

    pool = CoroutinePool(1, results, hold)
    jobs = jobs_of(handler, 1)
    pool.start()
    assert ended.wait(PATIENCE_S)

    pool.submit(jobs)
    pool._call_soon(looked.set)
    assert looked.wait(PATIENCE_S)

    assert pool.take_back() == jobs
    pool.stop()
