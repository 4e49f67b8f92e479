"""Tests of eager(): a publish calls the handler, with decoded arguments and the handler's own exceptions."""

import asyncio
from dataclasses import dataclass

import pytest

from wakeq.client.message import Message
from wakeq.testing import eager
from wakeq.worker import Reject, Worker, current

Q = "emails"


@dataclass
class Person:
    name: str


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_publish_calls_the_handler(worker: Worker) -> None:
    sent: list[Person] = []

    @worker.task(Q)
    def send(to: Person) -> None:
        sent.append(to)

    with eager(worker) as published:
        uid = send.publish(to=Person("ada"))
        send.publish_many([{"to": Person("grace")}, {"to": Person("joan")}])

    assert sent == [Person("ada"), Person("grace"), Person("joan")]
    assert [message.json() for message in published] == [{"to": {"name": name}} for name in ("ada", "grace", "joan")]
    assert published[0].uid == uid


def test_arguments_that_do_not_fit_the_handler_fail(worker: Worker) -> None:
    @worker.task(Q)
    def send(to: int) -> None: ...

    with eager(worker) as published, pytest.raises(TypeError, match="parameter to: expected int, got str"):
        send.publish(to="ada")  # type: ignore[arg-type]

    assert published == []


def test_exception_of_a_handler_is_raised_by_publish(worker: Worker) -> None:
    @worker.task(Q)
    def send(to: str) -> None:
        raise {"ada": Reject("no"), "grace": ZeroDivisionError("one")}[to]

    with eager(worker):
        with pytest.raises(ZeroDivisionError, match="one"):
            send.publish(to="grace")
        with pytest.raises(Reject):
            send.publish(to="ada")


def test_handler_knows_its_message_and_its_follow_ups_are_called(worker: Worker) -> None:
    audited: list[tuple[str, str]] = []

    @worker.task("audit")
    def audit(uid: str) -> None:
        audited.append((uid, current().uid))

    @worker.task(Q)
    def send(to: str) -> None:
        current().then(audit, uid=current().uid)
        current().then("elsewhere", {"to": to})

    with eager(worker) as published:
        uid = send.options(headers={"trace": "1"}).publish(to="ada")

    assert audited == [(uid, "eager-2")]
    assert [(message.queue, message.body) for message in published[2:]] == [("elsewhere", b'{"to":"ada"}')]
    assert published[0].headers == {"trace": "1"}


def test_follow_ups_of_a_failed_handler_are_not_called(worker: Worker) -> None:
    @worker.task(Q)
    def send(to: str) -> None:
        current().then("elsewhere", "never")
        raise OSError

    with eager(worker) as published:
        with pytest.raises(OSError):
            send.publish(to="ada")

        assert [message.queue for message in published] == [Q]


@pytest.mark.parametrize("in_loop", [False, True])
def test_coroutine_has_ended_when_publish_returns(worker: Worker, in_loop: bool) -> None:
    sent: list[str] = []

    @worker.task(Q)
    async def send(to: str) -> None:
        await asyncio.sleep(0)
        sent.append(current().uid)

    async def within() -> None:
        await send.publish_async(to="ada")

    with eager(worker):
        asyncio.run(within()) if in_loop else send.publish(to="ada")

        assert sent == ["eager-1"]


def test_handler_may_take_the_raw_message(worker: Worker) -> None:
    bodies: list[bytes] = []

    @worker.task(Q)
    def keep(message: Message) -> None:
        bodies.append(message.body)

    @worker.task("first")
    def first() -> None:
        current().then(Q, b"\xff")

    with eager(worker):
        first.publish()

    assert bodies == [b"\xff"]


def test_tasks_publish_as_before_after_the_block(worker: Worker) -> None:
    @worker.task(Q)
    def send(to: str) -> None: ...

    with eager(worker):
        send.publish(to="ada")

    assert worker._outbox is None
