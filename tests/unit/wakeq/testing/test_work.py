"""Tests of work(): handlers run in this thread and end as in a worker, with retries on the driven clock."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from wakeq.client.message import Message
from wakeq.protocol.errors import BrokerUnreachable
from wakeq.testing import Broker, broker
from wakeq.testing import work as work_module
from wakeq.worker import BadHandler, Reject, Retry, Snooze, Worker, current

Q = "emails"


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def b(worker: Worker) -> Iterator[Broker]:
    with broker(worker) as made:
        made.create_queue("dead")
        made.create_queue(Q, dead_letter="dead")
        yield made


def test_due_messages_are_handled_and_acknowledged(b: Broker, worker: Worker) -> None:
    sent: list[str] = []

    @worker.task(Q)
    def send(to: str) -> None:
        sent.append(to)

    send.publish(to="ada")
    send.options(delay=60).publish(to="grace")

    now = b.work()
    b.advance(60)
    later = b.work()

    assert (now, later) == (1, 1)
    assert sent == ["ada", "grace"]
    assert b.stats(Q)["size"] == b.stats(Q)["leased"] == 0


def test_failing_handler_is_retried_by_its_policy_and_then_dead(b: Broker, worker: Worker) -> None:
    tried: list[float] = []

    @worker.task(Q, retry=Retry(max=3, backoff="exponential", delay=3600, delay_max=86_400, jitter=1))
    def send(to: str) -> None:
        tried.append(b.now().timestamp())
        raise OSError("the mail server is away")

    send.publish(to="ada")
    while not b.stats("dead")["ready"]:
        if not b.work():
            b.advance(3600)

    hours = [round((moment - tried[0]) / 3600) for moment in tried]
    # The jitter is always zero here.
    assert hours == [0, 1, 3, 7]
    assert b.stats(Q)["size"] == 0


def test_snoozed_message_is_redelivered_later_without_a_failure(b: Broker, worker: Worker) -> None:
    seen: list[tuple[int, int]] = []

    @worker.task(Q, retry=Retry(max=0))
    def send(to: str) -> None:
        seen.append((current().delivery, current().failures))
        if len(seen) < 3:
            raise Snooze(600)

    send.publish(to="ada")
    for _ in range(3):
        b.work()
        b.advance(600)

    assert seen == [(1, 0), (2, 0), (3, 0)]
    assert b.stats("dead")["ready"] == 0


def test_rejected_or_invalid_message_is_dead_at_once(b: Broker, worker: Worker) -> None:
    @worker.task(Q, retry=Retry(max=10))
    def send(to: str) -> None:
        raise Reject("no such person")

    send.publish(to="nobody")
    b.publish(Q, {"to": 7})

    assert b.work() == 2
    assert b.stats("dead")["ready"] == 2


def test_messages_published_by_a_handler_are_handled_too(b: Broker, worker: Worker) -> None:
    audited: list[str] = []

    @worker.task("audit")
    def audit(uid: str) -> None:
        audited.append(uid)

    @worker.task(Q)
    def send(to: str) -> None:
        current().then(audit, uid=current().uid)
        if to == "ada":
            send.publish(to="grace")

    first = send.publish(to="ada")

    assert b.work() == 4
    assert len(audited) == 2
    assert first in audited


def test_coroutine_handlers_run_even_from_within_a_loop(b: Broker, worker: Worker) -> None:
    sent: list[str] = []

    @worker.task(Q)
    async def send(to: str) -> None:
        await asyncio.sleep(0)
        sent.append(to)

    async def a_test_of_a_user() -> int:
        return b.work()

    send.publish(to="ada")
    b.work()
    send.publish(to="grace")
    asyncio.run(a_test_of_a_user())

    assert sent == ["ada", "grace"]


def test_plain_handlers_run_in_the_thread_of_the_test(b: Broker, worker: Worker) -> None:
    threads: list[threading.Thread] = []

    @worker.task(Q)
    def send(message: Message) -> None:
        threads.append(threading.current_thread())

    b.publish(Q, "raw")
    b.work()

    assert threads == [threading.current_thread()]


def test_outcome_of_a_lost_message_is_not_reported(b: Broker, worker: Worker) -> None:
    taken: list[Message | None] = []

    @worker.task(Q, timeout=60)
    def send(to: str) -> None:
        b.advance(61)
        taken.append(b.fetch(Q))

    send.publish(to="ada")

    assert b.work() == 1
    assert b.stats(Q)["leased"] == 1
    assert taken[0] is not None
    assert taken[0].ack()


def test_broker_crashed_by_a_handler_is_not_waited_for(b: Broker, worker: Worker) -> None:
    handled: list[int] = []

    @worker.task(Q, timeout=60)
    def send(to: str) -> None:
        handled.append(current().delivery)
        if len(handled) == 1:
            b.crash()

    send.publish(to="ada")
    with pytest.raises(BrokerUnreachable, match="restart"):
        b.work()
    b.restart()
    b.advance(61)

    assert b.work() == 1
    assert len(handled) == 2


def test_task_that_publishes_for_ever_is_named(b: Broker, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_module, "DELIVERIES_MAX", 20)

    @worker.task(Q, retry=None)
    def send(to: str) -> None:
        raise OSError("at once, for ever")

    send.publish(to="ada")

    with pytest.raises(AssertionError, match=f"delivery 21 of .* in {Q}.*Retry"):
        b.work()


def test_handler_that_could_never_work_is_refused(b: Broker, worker: Worker) -> None:
    @worker.task(Q)
    def send(to: threading.Thread) -> None: ...

    with pytest.raises(BadHandler):
        b.work()


def test_worker_publishes_elsewhere_after_the_broker_is_closed(worker: Worker) -> None:
    @worker.task(Q)
    def send(to: str) -> None: ...

    with broker(worker) as b:
        send.publish(to="ada")
        inside = b.stats(Q)["ready"]

    assert inside == 1
    assert worker._outbox is None


def test_work_without_workers_handles_nothing() -> None:
    with broker() as b:
        b.publish(Q, "m")

        assert b.work() == 0
