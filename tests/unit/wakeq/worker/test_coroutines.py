"""Proves the pool of coroutines: as many at once as there is room, and a cancelled one makes room."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Any

import pytest

from wakeq.client.message import Received
from wakeq.worker import Worker
from wakeq.worker.coroutines import CoroutinePool
from wakeq.worker.job import Job
from wakeq.worker.verdict import DONE, Failed, Verdict

PATIENCE_S = 10.0


class Returned:
    """Stands where the engine's Returns is."""

    def __init__(self) -> None:
        self.ended: SimpleQueue[tuple[Job, Verdict]] = SimpleQueue()

    def put(self, job: Job, verdict: Verdict, _span_s: float) -> None:
        self.ended.put((job, verdict))

    def take(self) -> tuple[Job, Verdict]:
        return self.ended.get(timeout=PATIENCE_S)


def pool_of(slots: int) -> tuple[CoroutinePool, Returned]:
    returned: Any = Returned()
    pool = CoroutinePool(slots, returned)
    pool.start()
    return pool, returned


def jobs_of(handler: Callable[[], Awaitable[None]], count: int) -> list[Job]:
    task: Any = Worker().task("q")(handler)
    return [Job(task, Received(queue="q", uid=str(at), body=b"{}", lease="1", delivery=1)) for at in range(count)]


def test_every_job_runs_once() -> None:
    pool, returned = pool_of(4)

    async def handler() -> None:
        await asyncio.sleep(0)

    jobs = jobs_of(handler, 500)
    for at in range(0, 500, 7):
        pool.submit(jobs[at : at + 7])
    ended = [returned.take() for _ in jobs]

    assert {job for job, _ in ended} == set(jobs)
    assert all(verdict is DONE for _, verdict in ended)
    pool.stop()


def test_as_many_run_at_once_as_there_is_room() -> None:
    pool, returned = pool_of(3)
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
    assert {returned.take()[0] for _ in range(3)} == set(jobs[:3])
    pool.stop()


def test_an_abandoned_handler_is_cancelled_and_makes_room() -> None:
    pool, returned = pool_of(1)
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

    job, verdict = returned.take()
    assert job is hanging
    assert isinstance(verdict, Failed)
    assert returned.take() == (waiting, DONE)
    pool.stop()


def test_a_pool_that_never_began_leaves_no_loop_open() -> None:
    returned: Any = Returned()
    pool = CoroutinePool(1, returned)

    pool.stop()

    assert pool._loop.is_closed()


def test_a_stopped_pool_ends_its_thread_when_the_last_handler_has_ended() -> None:
    before = set(threading.enumerate())
    pool, returned = pool_of(2)
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

    assert returned.take()[1] is DONE
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_a_place_goes_on_when_not_even_the_judgement_on_a_handler_comes_to_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def broken(*_arguments: object) -> Verdict:
        raise ZeroDivisionError("a bug")

    async def handler() -> None: ...

    monkeypatch.setattr("wakeq.worker.coroutines.call_async", broken)
    pool, returned = pool_of(1)

    pool.submit(jobs_of(handler, 2))

    assert [type(returned.take()[1]) for _ in range(2)] == [Failed, Failed]
    assert "ZeroDivisionError: a bug" in capsys.readouterr().err
    pool.stop()
