"""Tests of hooks.py: middleware around each call, and listeners that are told of it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import pytest

from wakeq import Reject, Retry, Snooze, current
from wakeq.client.message import Received
from wakeq.testing import broker, eager
from wakeq.worker import BadHandler, Began, Current, Dead, Done, Ended, Failed, Released, Worker
from wakeq.worker.pools.call import call, call_async

USER: ContextVar[str] = ContextVar("user", default="nobody")


def outcome_of(task: Any, body: bytes = b"{}") -> Any:
    message = Received(queue="q", uid="u1", body=body, lease="1", delivery=1)
    return asyncio.run(call_async(task, message)) if task.mode == "coroutine" else call(task, message)


def with_middleware(worker: Worker, told: list[str]) -> None:
    for name in ("outer", "inner"):

        @worker.middleware
        @contextmanager
        def noting(message: Current, name: str = name) -> Iterator[None]:
            told.append(f"{name} before {message.uid}")
            try:
                yield
            except ValueError as error:
                told.append(f"{name} saw {error}")
                raise
            finally:
                told.append(f"{name} after")


def plain(told: list[str]) -> Any:
    def handler() -> None:
        told.append("handler")

    return handler


def coroutine(told: list[str]) -> Any:
    async def handler() -> None:
        told.append("handler")

    return handler


def returns_coroutine(told: list[str]) -> Any:
    def handler() -> Any:
        return coroutine(told)()

    return handler


@pytest.mark.parametrize("make", [plain, coroutine, returns_coroutine])
def test_middleware_runs_around_each_kind_of_handler_from_the_outside_in(make: Any) -> None:
    told: list[str] = []
    worker = Worker()
    with_middleware(worker, told)

    outcome = outcome_of(worker.task("q")(make(told)))

    assert outcome == Done()
    assert told == ["outer before u1", "inner before u1", "handler", "inner after", "outer after"]


def test_middleware_sees_the_error_of_a_handler_and_of_a_body_that_does_not_fit() -> None:
    told: list[str] = []
    worker = Worker()
    with_middleware(worker, told)

    @worker.task("q")
    def handler(number: int) -> None:
        raise ValueError("no")

    assert isinstance(outcome_of(handler, b'{"number":1}'), Failed)
    assert "inner saw no" in told
    told.clear()
    assert isinstance(outcome_of(handler, b"{}"), Dead)
    assert "inner after" in told


def test_middleware_may_decide_how_the_message_ends_without_the_handler() -> None:
    told: list[str] = []
    worker = Worker()

    @worker.middleware
    @contextmanager
    def closed(message: Current) -> Iterator[None]:
        if message.headers.get("tenant") != "open":
            raise Snooze(60, "closed")
        yield

    outcome = outcome_of(worker.task("q")(plain(told)))

    assert outcome == Released("closed", 60)
    assert told == []


def test_middleware_that_suppresses_an_error_completes_the_message() -> None:
    worker = Worker()

    @worker.middleware
    @contextmanager
    def forgiving(_message: Current) -> Iterator[None]:
        try:
            yield
        except ValueError:
            current().then("mistakes", "x")

    @worker.task("q")
    def handler() -> None:
        raise ValueError("no")

    outcome = outcome_of(handler)

    assert isinstance(outcome, Done)
    assert [one.qname for one in outcome.then] == ["mistakes"]


@pytest.mark.parametrize("decision", [Snooze(60, "closed"), Retry(delay=60), Reject("never")])
@pytest.mark.parametrize("make", [plain, coroutine])
def test_middleware_outside_of_one_that_raises_sees_the_error_itself(make: Any, decision: Exception) -> None:
    told: list[str] = []
    seen: list[Exception] = []
    worker = Worker()

    @worker.middleware
    @contextmanager
    def suppressing(_message: Current) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            seen.append(error)

    @worker.middleware
    @contextmanager
    def closed(_message: Current) -> Iterator[None]:
        raise decision
        yield

    outcome = outcome_of(worker.task("q")(make(told)))

    assert seen == [decision]
    assert outcome == Done()
    assert told == []


@pytest.mark.parametrize("make", [plain, coroutine])
def test_middleware_that_raises_outside_of_one_that_suppresses_decides(make: Any) -> None:
    told: list[str] = []
    worker = Worker()

    @worker.middleware
    @contextmanager
    def closed(_message: Current) -> Iterator[None]:
        raise Snooze(60, "closed")
        yield

    @worker.middleware
    @contextmanager
    def suppressing(_message: Current) -> Iterator[None]:
        with suppress(Exception):
            yield

    outcome = outcome_of(worker.task("q")(make(told)))

    assert outcome == Released("closed", 60)
    assert told == []


@pytest.mark.parametrize("make", [plain, coroutine])
def test_context_variables_of_middleware_reach_the_handler(make: Any) -> None:
    users: list[str] = []
    worker = Worker()

    @worker.middleware
    @contextmanager
    def as_ada(_message: Current) -> Iterator[None]:
        token = USER.set("ada")
        yield
        USER.reset(token)

    handler: Any = (lambda: users.append(USER.get())) if make is plain else None
    if handler is None:

        async def handler() -> None:
            users.append(USER.get())

    outcome_of(worker.task("q")(handler))

    assert users == ["ada"]


def test_asynchronous_middleware_runs_around_coroutines_and_is_refused_around_others() -> None:
    told: list[str] = []
    worker = Worker()

    @worker.middleware
    @asynccontextmanager
    async def transaction(_message: Current) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        told.append("begin")
        yield
        await asyncio.sleep(0)
        told.append("commit")

    task = worker.task("q")(coroutine(told))
    worker.check()
    assert outcome_of(task) == Done()
    assert told == ["begin", "handler", "commit"]

    worker.task("plain")(plain(told))
    with pytest.raises(BadHandler, match=r"is a plain function and cannot use .*transaction, which is asynchronous"):
        worker.check()


def test_middleware_runs_in_eager_mode() -> None:
    told: list[str] = []
    worker = Worker()
    with_middleware(worker, told)
    task = worker.task("q")(plain(told))

    with eager(worker):
        task.publish()

    assert told[0] == "outer before eager-1"


# Listeners ------------------------------------------------------------------------------------------------------------


def test_listener_hears_how_each_message_ends() -> None:
    worker, heard = Worker(), []

    @worker.listener
    def listen(event: Began | Ended) -> None:
        heard.append((type(event).__name__, event.task.queue, getattr(event, "outcome", None)))

    @worker.task("q", retry=Retry(max=1, delay=0))
    def handler(how: str) -> None:
        match how:
            case "fail":
                raise ValueError("no")
            case "reject":
                raise Reject("never")
            case "snooze":
                raise Snooze(60, "later")

    with broker(worker) as b:
        for how in ("return", "reject", "snooze"):
            handler.publish(how)
            b.work()
        assert [one for one in heard if one[0] == "Ended"] == [
            ("Ended", "q", Done()),
            ("Ended", "q", Dead("never")),
            ("Ended", "q", Released("later", 60)),
        ]
        assert [name for name, *_ in heard] == ["Began", "Ended"] * 3
        heard.clear()
        handler.publish("fail")
        b.work()

    first, second = (outcome for name, _, outcome in heard if name == "Ended")
    assert isinstance(first, Failed)
    assert first.delay_s == 0
    assert isinstance(second, Dead)
    assert second.exhausted


def test_error_of_a_listener_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    worker, heard = Worker(), []

    @worker.listener
    def broken(_event: Began | Ended) -> None:
        raise ZeroDivisionError("a bug")

    worker.listener(heard.append)
    task = worker.task("q")(plain([]))

    with broker(worker) as b:
        task.publish()
        b.work()
        assert b.stats("q")["acked"] == 1

    assert "the listener" in caplog.text
    assert len(heard) == 2


def test_listener_must_be_a_plain_function() -> None:
    async def listen(_event: Began | Ended) -> None: ...

    with pytest.raises(BadHandler, match="cannot be a listener; it is a plain function"):
        Worker().listener(listen)
