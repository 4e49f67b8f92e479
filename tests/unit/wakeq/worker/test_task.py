"""Tests of task.py: a call of a task, its publishes with options, and its settings."""

import asyncio
import copy
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from wakeq import Message
from wakeq.protocol.errors import BadName
from wakeq.worker import BadHandler, Worker


class Outbox:
    """Records all publishes."""

    def __init__(self) -> None:
        self.published: list[tuple[str, list[Any], dict[str, Any]]] = []

    def publish(self, queue: str, body: Any, **options: Any) -> str:
        self.published.append((queue, [body], options))
        return "uid-1"

    def publish_many(self, queue: str, bodies: Iterable[Any], **options: Any) -> list[str]:
        found = list(bodies)
        self.published.append((queue, found, options))
        return [f"uid-{place}" for place in range(len(found))]


PLAIN = {"delay": 0, "timeout": 60, "expires": 0, "priority": 0, "headers": None, "id": None}


def test_call_of_a_task_calls_its_handler() -> None:
    worker = Worker()

    @worker.task("sums")
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    assert add(1) == 3
    assert add(b=5, a=1) == 6
    assert (add.__name__, add.__doc__) == ("add", "Add two numbers.")
    assert repr(add).startswith("<Task sums: ")


def test_publish_of_a_task_makes_a_message_on_its_queue() -> None:
    worker, outbox = Worker(), Outbox()

    @worker.task("emails", timeout=90)
    def send(to: str) -> None: ...

    with worker.publishing_to(outbox):
        uid = send.publish(to="a@b.c")
        uids = send.publish_many([{"to": "x"}, {"to": "y"}])

    assert (uid, uids) == ("uid-1", ["uid-0", "uid-1"])
    assert outbox.published == [
        ("emails", [b'{"to":"a@b.c"}'], {**PLAIN, "timeout": 90}),
        ("emails", [b'{"to":"x"}', b'{"to":"y"}'], {**PLAIN, "timeout": 90}),
    ]


def test_publish_async_does_not_block_the_loop() -> None:
    worker, answered = Worker(), threading.Event()

    class SlowOutbox(Outbox):
        def publish(self, queue: str, body: Any, **options: Any) -> str:
            assert answered.wait(10), "the loop stood still"
            return super().publish(queue, body, **options)

    @worker.task("emails")
    async def send(to: str) -> None: ...

    async def publish() -> str:
        asyncio.get_running_loop().call_later(0.01, answered.set)
        return await send.options(priority=3).publish_async(to="a@b.c")

    outbox = SlowOutbox()
    with worker.publishing_to(outbox):
        uid = asyncio.run(publish())

    assert uid == "uid-1"
    assert outbox.published == [("emails", [b'{"to":"a@b.c"}'], {**PLAIN, "priority": 3})]


def test_waiting_publishes_do_not_use_the_default_threads_of_the_loop() -> None:
    worker, answered = Worker(), threading.Event()

    class SlowOutbox(Outbox):
        def publish(self, queue: str, body: Any, **options: Any) -> str:
            assert answered.wait(10), "no thread was left"
            return super().publish(queue, body, **options)

    @worker.task("emails")
    def send(to: str) -> None: ...

    async def publish() -> list[str]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        waiting = [asyncio.ensure_future(send.publish_async(to)) for to in "xyz"]
        await asyncio.sleep(0)
        await asyncio.to_thread(answered.set)
        return await asyncio.gather(*waiting)

    with worker.publishing_to(SlowOutbox()):
        assert len(asyncio.run(publish())) == 3


def test_publish_many_async_does_not_block_the_loop() -> None:
    worker, answered = Worker(), threading.Event()

    class SlowOutbox(Outbox):
        def publish_many(self, queue: str, bodies: Iterable[Any], **options: Any) -> list[str]:
            assert answered.wait(10), "the loop stood still"
            return super().publish_many(queue, bodies, **options)

    @worker.task("emails")
    async def send(to: str) -> None: ...

    async def publish() -> list[str]:
        asyncio.get_running_loop().call_later(0.01, answered.set)
        return await send.options(priority=3).publish_many_async({"to": to} for to in "xy")

    outbox = SlowOutbox()
    with worker.publishing_to(outbox):
        uids = asyncio.run(publish())

    assert uids == ["uid-0", "uid-1"]
    assert outbox.published == [("emails", [b'{"to":"x"}', b'{"to":"y"}'], {**PLAIN, "priority": 3})]


def test_options_apply_to_one_publish_and_not_to_the_task() -> None:
    worker, outbox = Worker(), Outbox()

    @worker.task("emails")
    def send(to: str) -> None: ...

    with worker.publishing_to(outbox):
        send.options(delay=60, priority=-5, expires=9, headers={"a": "b"}, id="once").publish(to="x")
        send.publish(to="y")

    changed = {**PLAIN, "delay": 60, "priority": -5, "expires": 9, "headers": {"a": "b"}, "id": "once"}
    assert [options for _, _, options in outbox.published] == [changed, PLAIN]


def test_second_task_for_a_queue_is_refused() -> None:
    worker = Worker()

    @worker.task("emails")
    def send(to: str) -> None: ...

    with pytest.raises(BadHandler, match="emails has a handler already"):

        @worker.task("emails")
        def send_again(to: str) -> None: ...


def test_publish_of_a_raw_message_task_is_refused_with_advice() -> None:
    worker = Worker()

    @worker.task("raw")
    def take(message: Message) -> None: ...

    assert take.takes_message
    with pytest.raises(TypeError, match=r"Client.publish\('raw', body\)"):
        take.publish(message=None)  # type: ignore[arg-type]


def test_mode_follows_from_the_kind_of_handler() -> None:
    worker = Worker()

    modes = (worker.task("plain")(plain).mode, worker.task("coroutine")(coroutine).mode)

    assert modes == ("thread", "coroutine")


def plain() -> None: ...
async def coroutine() -> None: ...


@pytest.mark.parametrize(
    ("handler", "mode", "advice"),
    [
        (plain, "coroutine", "its mode is thread or process"),
        (plain, "proces", "its mode is thread or process"),
        (coroutine, "thread", "its mode is coroutine"),
        (coroutine, "process", "its mode is coroutine"),
    ],
)
def test_mode_that_does_not_fit_the_handler_is_refused(handler: Any, mode: Any, advice: str) -> None:
    with pytest.raises(BadHandler, match=advice):
        Worker().task("q", mode=mode)(handler)


def test_worker_without_tasks_is_refused() -> None:
    with pytest.raises(BadHandler, match="no tasks; decorate a function"):
        Worker().check()


def test_task_that_could_never_work_is_found_before_work_begins() -> None:
    worker = Worker()

    @worker.task("types")
    def bad(over: object) -> None: ...

    with pytest.raises(BadHandler, match="over"):
        worker.check()


def test_queue_name_that_the_broker_would_refuse_is_refused_at_once() -> None:
    with pytest.raises(BadName):
        Worker().task("two words")


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"prefetch": -1}])
def test_invalid_numbers_of_a_worker_are_refused_at_once(options: Mapping[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Worker(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"retry": 5}, {"max_run": -1}, {"max_run": 0}, {"max_run": "60"}, {"max_run": float("nan")}, {"timeout": True},
        {"timeout": "60"}, {"timeout": 4}, {"timeout": 10**9},
    ],
)  # fmt: skip
def test_invalid_setting_of_a_task_is_refused_at_once_by_name(settings: dict[str, Any]) -> None:
    ((name, value),) = settings.items()

    with pytest.raises((TypeError, ValueError), match=f"task emails: {name} is {value!r}; "):
        Worker().task("emails", **settings)


@pytest.mark.parametrize("name", ["delay", "send", "apply_async", "send_with_options", "kiq"])
def test_name_of_another_library_is_answered_with_the_name_here(name: str) -> None:
    @Worker().task("emails")
    def send_mail() -> None: ...

    for publisher in (send_mail, send_mail.options(delay=5)):
        with pytest.raises(AttributeError, match=rf"no '{name}': write \S*send_mail\.publish\(\.\.\.\) or"):
            getattr(publisher, name)
        assert not hasattr(publisher, name)


def test_unknown_name_of_a_task_is_an_ordinary_error() -> None:
    @Worker().task("emails")
    def send_mail() -> None: ...

    with pytest.raises(AttributeError, match="'Task' object has no attribute 'nothing'"):
        send_mail.nothing  # noqa: B018
    assert copy.copy(send_mail).queue == "emails"


def test_moment_in_options_becomes_a_delay_when_a_message_is_published() -> None:
    worker = Worker()

    @worker.task("emails")
    def send_mail() -> None: ...

    outbox = Outbox()
    later = send_mail.options(at=datetime.now(UTC) + timedelta(hours=1), expires=timedelta(days=1))
    with worker.publishing_to(outbox):
        later.publish()
    followup = later.followup((), {})

    ((_, _, options),) = outbox.published
    assert 3_000 < options["delay"] <= 3_600
    assert followup.delay is not None
    assert 3_000 < followup.delay <= 3_600
    assert followup.expires == 86_400


def test_times_of_a_task_may_be_timedeltas_and_have_fractions() -> None:
    @Worker().task("emails", timeout=timedelta(minutes=2), max_run=timedelta(hours=1))
    def send() -> None: ...

    @Worker().task("emails", timeout=7.5)
    def send_soon() -> None: ...

    assert (send.timeout, send.max_run, send_soon.timeout) == (120, 3600, 7.5)


def test_decorator_without_a_queue_is_refused_with_advice() -> None:
    def handler() -> None: ...

    with pytest.raises(BadHandler, match=r"as in @worker\.task"):
        Worker().task(handler)  # type: ignore[arg-type]


def test_publish_many_with_other_than_mappings_is_refused() -> None:
    worker = Worker()

    @worker.task("emails")
    def send(to: str) -> None: ...

    with worker.publishing_to(Outbox()), pytest.raises(TypeError, match=r"publish_many takes a mapping .*; got 'a'"):
        send.publish_many(["a"])  # type: ignore[list-item]


def test_method_as_handler_is_refused_and_staticmethod_accepted() -> None:
    worker = Worker()

    class Shop:
        @staticmethod
        @worker.task("plain")
        def sell(item: str) -> None: ...

        def buy(self, item: str) -> None: ...

    with pytest.raises(BadHandler, match="buy is a method"):
        worker.task("buy")(Shop.buy)

    def odd(self: int) -> None: ...

    worker.task("odd")(odd)
