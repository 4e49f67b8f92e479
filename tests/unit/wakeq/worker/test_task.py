"""Proves tasks: called they are the handler, published they are messages, with their options and follow-ups."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from wakeq import Message
from wakeq.protocol.errors import BadName
from wakeq.worker import BadHandler, Retry, Worker


class Outbox:
    """Keeps what is published."""

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


def test_a_task_that_is_called_is_its_handler() -> None:
    worker = Worker()

    @worker.task("sums")
    def add(a: int, b: int = 2) -> int:
        """Adds."""
        return a + b

    assert add(1) == 3
    assert add(b=5, a=1) == 6
    assert (add.__name__, add.__doc__) == ("add", "Adds.")
    assert repr(add).startswith("<Task sums: ")


def test_a_task_that_is_published_is_a_message_on_its_queue() -> None:
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


def test_options_change_one_publication_and_not_the_task() -> None:
    worker, outbox = Worker(), Outbox()

    @worker.task("emails")
    def send(to: str) -> None: ...

    with worker.publishing_to(outbox):
        send.options(delay=60, priority=-5, expires=9, headers={"a": "b"}, id="once").publish(to="x")
        send.publish(to="y")

    changed = {**PLAIN, "delay": 60, "priority": -5, "expires": 9, "headers": {"a": "b"}, "id": "once"}
    assert [options for _, _, options in outbox.published] == [changed, PLAIN]


def test_a_queue_carries_one_task() -> None:
    worker = Worker()

    @worker.task("emails")
    def send(to: str) -> None: ...

    with pytest.raises(BadHandler, match="emails has a handler already"):

        @worker.task("emails")
        def send_again(to: str) -> None: ...


def test_a_handler_of_raw_messages_says_how_to_publish_to_it() -> None:
    worker = Worker()

    @worker.task("raw")
    def take(message: Message) -> None: ...

    assert take.takes_message
    with pytest.raises(TypeError, match=r"Client.publish\('raw', body\)"):
        take.publish(message=None)  # type: ignore[arg-type]


def test_the_way_to_run_a_handler_follows_from_what_it_is() -> None:
    worker = Worker()

    @worker.task("plain")
    def plain() -> None: ...

    @worker.task("coroutine")
    async def coroutine() -> None: ...

    assert (plain.mode, coroutine.mode) == ("thread", "coroutine")


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_coroutine_cannot_run_in_another_way(mode: Any) -> None:
    worker = Worker()

    async def handler() -> None: ...

    with pytest.raises(BadHandler, match="its mode is coroutine"):
        worker.task("coroutine", mode=mode)(handler)


def test_a_worker_without_tasks_says_what_is_missing() -> None:
    with pytest.raises(BadHandler, match="no tasks; decorate a function"):
        Worker().check()


def test_a_task_that_could_never_work_is_found_before_work_begins() -> None:
    worker = Worker()

    @worker.task("types")
    def bad(over: object) -> None: ...

    with pytest.raises(BadHandler, match="over"):
        worker.check()


@pytest.mark.parametrize("timeout", [4, 10**9])
def test_a_timeout_that_the_broker_would_not_take_is_refused_at_once(timeout: int) -> None:
    with pytest.raises(ValueError, match=f"task q: timeout is {timeout}"):
        Worker().task("q", timeout=timeout)


def test_a_name_that_the_broker_would_not_take_is_refused_at_once() -> None:
    with pytest.raises(BadName):
        Worker().task("two words")


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"prefetch": -1}])
def test_numbers_that_make_no_sense_are_refused_where_they_are_written(options: Mapping[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Worker(**options)  # type: ignore[arg-type]


def test_a_retry_is_kept_as_the_policy_of_the_task() -> None:
    worker, policy = Worker(), Retry(max=5)

    @worker.task("emails", retry=policy)
    def send() -> None: ...

    assert send.retry is policy
