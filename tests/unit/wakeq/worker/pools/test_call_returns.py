"""Tests of call.py: a message is done only after its handler has run, whatever the call of the handler returned."""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from tests.unit.wakeq.worker import process_tasks
from wakeq.client.message import Message, Received
from wakeq.testing import broker, eager
from wakeq.worker import BadHandler, Worker, current
from wakeq.worker.engine.leases import Job
from wakeq.worker.outcome import Dead, Done, Failed, Outcome
from wakeq.worker.parameters import name_of
from wakeq.worker.pools.call import call, call_async
from wakeq.worker.pools.processes import ProcessPool
from wakeq.worker.task import Task

PATIENCE_S = 30.0

Way = Callable[[Callable[..., Any]], Outcome | None]


class Ran:
    """Handlers of every kind; `uids` are the messages whose handler has run to its end."""

    def __init__(self) -> None:
        self.uids: list[str] = []

    async def body(self) -> None:
        await asyncio.sleep(0)
        current().then("next", "x")
        self.uids.append(current().uid)

    def decorated(self) -> Callable[..., Any]:
        @functools.wraps(self.body)
        def wrapper(*args: Any, **kwargs: Any) -> object:
            return self.body(*args, **kwargs)

        return wrapper

    def forgotten_await(self) -> Callable[..., Any]:
        async def handler() -> Awaitable[None]:
            return self.body()

        return handler

    def started_task(self) -> Callable[..., Any]:
        async def handler() -> Awaitable[None]:
            return asyncio.create_task(self.body())

        return handler

    def returned_twice(self) -> Callable[..., Any]:
        return lambda: self.forgotten_await()()

    def returned_three_deep(self) -> Callable[..., Any]:
        async def handler() -> Awaitable[Awaitable[None]]:
            return self.forgotten_await()()

        return handler

    def falsy(self) -> Callable[..., Any]:
        ran = self

        class Empty:
            def __len__(self) -> int:
                return 0

            def __await__(self) -> Generator[Any, None, None]:
                return ran.body().__await__()

        return lambda: Empty()

    def raw(self) -> Callable[..., Any]:
        def handler(message: Message) -> object:
            return self.body()

        return handler

    def honest(self) -> Callable[..., Any]:
        @functools.wraps(self.body)
        def wrapper() -> None:
            asyncio.run(self.body())

        return wrapper


AWAITABLE = [
    Ran.decorated,
    Ran.forgotten_await,
    Ran.started_task,
    Ran.returned_twice,
    Ran.returned_three_deep,
    Ran.falsy,
    Ran.raw,
    Ran.honest,
]


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


async def awaited_generator() -> Iterator[int]:
    return generator()


GENERATORS = [lambda: generator(), lambda: async_generator(), lambda: awaited_generator(), awaited_generator]


def delivered() -> Received:
    return Received(queue="q", uid="u1", body=b"{}", lease="1-7", delivery=1)


def in_worker(handler: Callable[..., Any]) -> Outcome:
    """Return the outcome in a worker's thread, or on its loop."""
    task: Task[..., Any] = Worker().task("q")(handler)
    return asyncio.run(call_async(task, delivered())) if task.mode == "coroutine" else call(task, delivered())


@pytest.mark.parametrize("make", AWAITABLE)
def test_returned_awaitable_is_awaited_before_the_message_is_done(make: Callable[[Ran], Any]) -> None:
    ran = Ran()

    outcome = in_worker(make(ran))

    assert ran.uids == ["u1"]
    assert isinstance(outcome, Done)
    assert [followup.qname for followup in outcome.then] == ["next"]


@pytest.mark.parametrize("make", [Ran.decorated, Ran.honest])
@pytest.mark.parametrize("in_loop", [False, True])
def test_returned_awaitable_is_awaited_by_eager(make: Callable[[Ran], Any], in_loop: bool) -> None:
    ran, worker = Ran(), Worker()
    task = worker.task("q")(make(ran))

    with eager(worker):
        asyncio.run(task.publish_async()) if in_loop else task.publish()

    assert ran.uids == ["eager-1"]


@pytest.mark.parametrize("make", AWAITABLE)
@pytest.mark.parametrize("in_loop", [False, True])
def test_returned_awaitable_is_awaited_by_the_memory_broker(make: Callable[[Ran], Any], in_loop: bool) -> None:
    ran, worker = Ran(), Worker()
    worker.task("q")(make(ran))

    with broker(worker) as b:
        uid = b.publish("q", b"{}")

        async def within() -> int:
            return b.work()

        assert (asyncio.run(within()) if in_loop else b.work()) == 1

        assert ran.uids == [uid]
        assert b.stats("q")["size"] == b.stats("q")["leased"] == 0
        assert b.stats("next")["ready"] == 1


def test_exception_of_a_returned_coroutine_is_the_outcome() -> None:
    async def body() -> None:
        await asyncio.sleep(0)
        raise ValueError("the body")

    outcome = in_worker(lambda: body())

    assert isinstance(outcome, Failed)
    assert "ValueError: the body" in outcome.error


@pytest.mark.parametrize("handler", GENERATORS)
def test_returned_generator_is_a_failure(handler: Callable[..., Any]) -> None:
    outcome = in_worker(handler)

    assert isinstance(outcome, Failed)
    reason = f"{name_of(handler)} returned a generator, and nothing of it has run; do the work in the function itself"
    assert reason in outcome.error


@pytest.mark.parametrize("handler", GENERATORS)
def test_returned_generator_is_refused_by_eager(handler: Callable[..., Any]) -> None:
    worker = Worker()
    task = worker.task("q")(handler)

    with eager(worker), pytest.raises(BadHandler, match="returned a generator"):
        task.publish()


@pytest.mark.parametrize("value", [None, 5, "text", [], object(), {"a": 1}, iter([1])])
def test_returned_value_is_dropped(value: object) -> None:
    assert in_worker(lambda: value) == Done()


def test_process_awaits_a_returned_awaitable_and_refuses_a_generator() -> None:
    ended: SimpleQueue[Outcome] = SimpleQueue()

    class FinishedJobs:
        def began(self, _job: Job) -> None:
            pass

        def put(self, _job: Job, outcome: Outcome, _span_s: float) -> None:
            ended.put(outcome)

    returns: Any = FinishedJobs()
    pool = ProcessPool(1, returns)
    pool.start()
    try:
        pool.submit([Job(process_tasks.decorated, delivered()), Job(process_tasks.lazy, delivered())])
        first, second = ended.get(timeout=PATIENCE_S), ended.get(timeout=PATIENCE_S)
    finally:
        pool.stop()

    assert isinstance(first, Done)
    assert [followup.message for followup in first.then] == ["the body has run"]
    assert isinstance(second, Failed | Dead)
    assert "returned a generator" in second.error


@pytest.mark.parametrize("handler", [generator, async_generator, functools.partial(generator)])
@pytest.mark.parametrize("mode", [None, "thread", "process", "coroutine"])
def test_generator_function_is_refused_at_its_declaration(handler: Callable[..., Any], mode: Any) -> None:
    with pytest.raises(BadHandler, match=r"generator.* has a `yield`.*do the work in the function itself"):
        Worker().task("q", mode=mode)(handler)
