"""Tests of resources.py: resources are open from before the first message until after the last handler."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any

import pytest

from tests.unit.wakeq.worker.test_worker import PATIENCE_S, ConnectedBroker, use
from wakeq import resource
from wakeq.testing import broker, eager
from wakeq.worker import BadHandler, Worker
from wakeq.worker.resources import URGENT_CLOSE_S, ResourceFailed, Resources, is_asynchronous


class Life:
    """What happened, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.handled = threading.Event()

    @contextmanager
    def plain(self) -> Iterator[str]:
        self.events.append("plain opened")
        yield "plain"
        self.events.append("plain closed")

    @asynccontextmanager
    async def asynchronous(self) -> AsyncIterator[asyncio.AbstractEventLoop]:
        self.events.append("asynchronous opened")
        yield asyncio.get_running_loop()
        self.events.append("asynchronous closed")


def plain_task(life: Life, worker: Worker) -> Any:
    @worker.task("q")
    def handler(number: int = 0, *, value: str = resource(life.plain)) -> None:
        life.events.append(value)
        life.handled.set()

    return handler


def coroutine_task(life: Life, worker: Worker) -> Any:
    @worker.task("q")
    async def handler(
        value: str = resource(life.plain), loop: asyncio.AbstractEventLoop = resource(life.asynchronous)
    ) -> None:
        assert loop is asyncio.get_running_loop()
        life.events.append(value)
        life.handled.set()

    return handler


def handle_one(worker: Worker, handled: threading.Event) -> None:
    """Run the worker until it has handled one message."""
    simulated = ConnectedBroker()
    simulated.publish("q", "m1")
    use(worker, simulated)
    with worker:
        assert handled.wait(PATIENCE_S)


def test_resource_is_open_while_the_worker_runs() -> None:
    life, worker = Life(), Worker()
    plain_task(life, worker)

    handle_one(worker, life.handled)

    assert life.events == ["plain opened", "plain", "plain closed"]


def test_asynchronous_resource_lives_on_the_loop_of_its_handlers() -> None:
    life, worker = Life(), Worker()
    coroutine_task(life, worker)

    handle_one(worker, life.handled)

    assert sorted(life.events[:2]) == ["asynchronous opened", "plain opened"]
    assert life.events[2:] == ["plain", "asynchronous closed", "plain closed"]


def test_resource_that_many_tasks_ask_for_is_opened_once_for_each_run() -> None:
    life, worker = Life(), Worker()
    plain_task(life, worker)

    @worker.task("other")
    def other(value: str = resource(life.plain)) -> None: ...

    for _ in range(2):
        handle_one(worker, life.handled)
        life.handled.clear()

    assert life.events.count("plain opened") == life.events.count("plain closed") == 2


def test_lifespans_are_entered_without_a_task_that_asks_for_them() -> None:
    life, worker, handled = Life(), Worker(), threading.Event()
    worker.lifespan(life.plain)
    worker.lifespan(life.asynchronous)
    worker.task("q")(handled.set)

    handle_one(worker, handled)

    assert sorted(life.events) == ["asynchronous closed", "asynchronous opened", "plain closed", "plain opened"]


@pytest.mark.parametrize("kind", ["plain", "asynchronous"])
def test_resource_that_cannot_be_opened_prevents_the_start(kind: str) -> None:
    worker = Worker()

    @contextmanager
    def plain() -> Iterator[None]:
        raise OSError("no database")
        yield

    @asynccontextmanager
    async def asynchronous() -> AsyncIterator[None]:
        raise OSError("no database")
        yield

    worker.lifespan(plain if kind == "plain" else asynchronous)
    worker.task("q")(lambda: None)
    simulated = ConnectedBroker()
    use(worker, simulated)

    with pytest.raises(ResourceFailed, match=rf"{kind} could not be opened: OSError: no database") as failed:
        worker.start()

    assert isinstance(failed.value.__cause__, OSError)
    assert simulated.subscribed == set()


@pytest.mark.parametrize("is_suppressed", [False, True])
def test_resource_that_ends_while_the_worker_runs_stops_the_worker_and_releases_its_messages(
    is_suppressed: bool, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(concurrency=1)

    class Cache:
        """What the handler gets; its task in the background fails when the first handler has begun."""

        def __init__(self) -> None:
            self.begun, self.closed = asyncio.Event(), asyncio.Event()

        async def refresh(self) -> None:
            await self.begun.wait()
            raise ConnectionError("no news")

    @asynccontextmanager
    async def cache() -> AsyncIterator[Cache]:
        value = Cache()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(value.refresh())
                yield value
        except* ConnectionError:
            if not is_suppressed:
                raise
        finally:
            value.closed.set()

    @worker.task("q")
    async def handler(value: Cache = resource(cache)) -> None:
        value.begun.set()
        await value.closed.wait()

    simulated = ConnectedBroker()
    simulated.publish("q", "m1", "m2")
    use(worker, simulated)

    with pytest.raises(SystemExit) as ended:
        worker.run(limit=2)

    assert ended.value.code == 1
    assert simulated.acked == ["m1"]
    assert simulated.leased == {}
    assert [uid for uid, options in simulated.returned if options.get("failed", True)] == []
    assert "cache ended while the worker ran" in capsys.readouterr().err
    assert "cache ended while the worker ran" in caplog.text
    assert "is not open" not in caplog.text


def test_resource_that_ends_while_the_next_one_opens_prevents_the_start() -> None:
    worker = Worker()

    @worker.lifespan
    @asynccontextmanager
    async def ends() -> AsyncIterator[None]:
        owner = asyncio.current_task()
        assert owner is not None
        asyncio.get_running_loop().call_soon(owner.cancel)
        with suppress(asyncio.CancelledError):
            yield

    @worker.lifespan
    @asynccontextmanager
    async def opens_for_ever() -> AsyncIterator[None]:
        await asyncio.Event().wait()
        yield

    worker.task("q")(lambda: None)
    use(worker, ConnectedBroker())

    with pytest.raises(ResourceFailed, match=r"ends, .*opens_for_ever ended"):
        worker.start()


def test_resource_that_fails_to_close_is_logged_and_the_worker_ends(caplog: pytest.LogCaptureFixture) -> None:
    worker, handled = Worker(), threading.Event()

    @worker.lifespan
    @contextmanager
    def broken() -> Iterator[None]:
        yield
        raise OSError("it hangs on")

    worker.task("q")(handled.set)

    handle_one(worker, handled)

    assert "a resource could not be closed: OSError('it hangs on')" in caplog.text


def test_resource_that_does_not_close_is_not_waited_for_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()

    @contextmanager
    def slow() -> Iterator[None]:
        yield
        gate.wait()

    async def scenario() -> None:
        resources = Resources([slow], [{}])
        resources.begin()
        await resources.wait_until_open()
        await resources.close(is_urgent=True)

    asyncio.run(scenario())
    gate.set()

    assert "not waiting any longer for resources to close" in caplog.text


def test_stop_does_not_wait_for_a_resource_that_still_opens(caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()

    @contextmanager
    def slow() -> Iterator[None]:
        gate.wait()
        yield

    async def scenario() -> None:
        resources = Resources([slow], [{}])
        resources.begin()
        await resources.close(is_urgent=False)

    asyncio.run(scenario())
    gate.set()

    assert f"after {URGENT_CLOSE_S:g} s" in caplog.text


def test_message_has_no_value_for_a_resource() -> None:
    life, worker = Life(), Worker()
    handler = plain_task(life, worker)

    with eager(worker) as published:
        handler.publish(7)
        with pytest.raises(TypeError, match="unexpected keyword argument 'value'"):
            handler.publish(7, value="mine")

    assert [message.body for message in published] == [b'{"number":7}']


def test_handler_that_takes_the_raw_message_may_ask_for_a_resource() -> None:
    from wakeq import Message

    life, worker = Life(), Worker()
    bodies: list[tuple[bytes, str]] = []

    @worker.task("q")
    def handler(message: Message, value: str = resource(life.plain)) -> None:
        bodies.append((message.body, value))

    with broker(worker) as b:
        b.publish("q", "raw")
        b.work()

    assert bodies == [(b"raw", "plain")]


def test_direct_call_of_a_handler_takes_any_value_or_says_what_is_missing() -> None:
    life, worker = Life(), Worker()

    @worker.task("q")
    def handler(value: str = resource(life.plain)) -> str:
        return value.upper()

    assert handler("mine") == "MINE"
    with pytest.raises(AttributeError, match=r"upper: resource\(.*plain\) has a value only while a Worker calls"):
        handler()


def test_plain_handler_cannot_ask_for_an_asynchronous_resource() -> None:
    life, worker = Life(), Worker()

    @worker.task("q")
    def handler(loop: asyncio.AbstractEventLoop = resource(life.asynchronous)) -> None: ...

    with pytest.raises(BadHandler, match=r"is a plain function and cannot use .*asynchronous, which is asynchronous"):
        worker.check()


def test_functions_that_open_nothing_are_refused() -> None:
    def generator() -> Iterator[None]:
        yield

    async def asynchronous() -> AsyncIterator[None]:
        yield

    forgotten: Any = generator
    with pytest.raises(BadHandler, match="generator is only a generator; put @contextmanager above it"):
        resource(forgotten)
    forgotten = asynchronous
    with pytest.raises(BadHandler, match="put @asynccontextmanager above it"):
        resource(forgotten)
    with pytest.raises(BadHandler, match="is no context manager"):
        resource(dict)  # type: ignore[call-overload]


def test_classes_and_partial_functions_may_open_resources() -> None:
    class Session:
        def __enter__(self) -> "Session":
            return self

        def __exit__(self, *_: object) -> None: ...

    class AsyncSession:
        async def __aenter__(self) -> "AsyncSession":
            return self

        async def __aexit__(self, *_: object) -> None: ...

    @contextmanager
    def database(name: str) -> Iterator[str]:
        yield name

    assert [is_asynchronous(one) for one in (Session, AsyncSession, partial(database, "orders"))] == [
        False,
        True,
        False,
    ]


# In tests of a program ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["in memory", "eager"])
@pytest.mark.parametrize("make_task", [plain_task, coroutine_task])
def test_resources_are_opened_in_tests(where: str, make_task: Any) -> None:
    life, worker = Life(), Worker()
    handler = make_task(life, worker)

    if where == "eager":
        with eager(worker):
            handler.publish()
    else:
        with broker(worker) as b:
            handler.publish()
            b.work()

    assert "plain" in life.events
    assert life.events.count("plain closed") == 1
    assert worker.hooks.values == {}


def test_replaced_resource_is_not_opened() -> None:
    life, worker = Life(), Worker()
    handler = coroutine_task(life, worker)

    with worker.replacing({life.plain: "mine"}), eager(worker):
        handler.publish()

    assert life.events == ["asynchronous opened", "mine", "asynchronous closed"]


def test_hooks_of_a_running_worker_cannot_be_added() -> None:
    life, worker = Life(), Worker()
    plain_task(life, worker)
    use(worker, ConnectedBroker())

    with worker, pytest.raises(RuntimeError, match="add its lifespans before it runs"):
        worker.lifespan(life.plain)
