"""Tests of refuse_on_loop: calls that wait are refused on an event loop, and the error says what to write instead."""

import asyncio
import builtins
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.brokers.scripted import quiet_port
from wakeq import Client, TaskFluxClient
from wakeq.client.admin import AdminClient
from wakeq.client.bulk import BulkClient
from wakeq.client.connection import refuse_on_loop
from wakeq.client.monique.blocking import MoniqueClient
from wakeq.protocol.errors import OnEventLoop
from wakeq.testing import Broker, broker, eager
from wakeq.worker import Worker


def on_loop(call: Callable[[], Any]) -> Any:
    async def within() -> Any:
        return call()

    return asyncio.run(within())


@pytest.mark.parametrize(
    ("make", "instead"),
    [
        (Client, "use AsyncClient, or await asyncio.to_thread"),
        (BulkClient, "use AsyncClient"),
        (TaskFluxClient, "use AsyncTaskFluxClient"),
        (MoniqueClient, "use AsyncMoniqueClient"),
    ],
)
def test_client_made_on_a_loop_is_refused_before_it_connects(make: Callable[[str], Any], instead: str) -> None:
    with quiet_port() as port:
        with pytest.raises(OnEventLoop, match=f"and would block the event loop that runs in this thread; {instead}"):
            on_loop(lambda: make(f"127.0.0.1:{port.number}"))

        assert port.connections == 0


def test_call_on_a_loop_is_refused_before_anything_is_sent() -> None:
    with broker() as b:
        client = b.client()

        for call in (lambda: client.publish("q", "x"), lambda: client.fetch("q", wait=60), client.ping):
            with pytest.raises(OnEventLoop, match="use AsyncClient"):
                on_loop(call)

        assert b.queues("q") == []
        client.publish("q", "x")
        assert on_loop(client.close) is None


def test_ack_on_a_loop_is_refused() -> None:
    with broker() as b:
        client = b.client()
        client.publish("q", "x")
        message = client.fetch("q")
        assert message is not None

        with pytest.raises(OnEventLoop):
            on_loop(message.ack)

        assert b.stats("q")["leased"] == 1


def test_call_of_the_http_api_on_a_loop_is_refused() -> None:
    with pytest.raises(OnEventLoop, match="a call of AdminClient waits"):
        on_loop(lambda: AdminClient("127.0.0.1:1").call("GET", "/queues"))


def test_call_in_a_thread_beside_a_loop_is_accepted() -> None:
    async def within(b: Broker) -> str:
        return await asyncio.to_thread(b.client().publish, "q", "x")

    with broker() as b:
        assert asyncio.run(within(b))


def test_memory_broker_may_be_driven_by_a_coroutine() -> None:
    with broker() as b:
        assert on_loop(lambda: b.publish("q", "x"))
        client = on_loop(b.client)
        with pytest.raises(OnEventLoop):
            on_loop(lambda: client.publish("q", "x"))


@pytest.mark.parametrize("where", ["a real broker", "in memory", "eager"])
def test_publish_of_a_task_on_a_loop_is_refused_everywhere(where: str) -> None:
    worker = Worker("127.0.0.1:1")

    @worker.task("q")
    def send(to: str) -> None: ...

    def check() -> None:
        for publish in (lambda: send.publish(to="a"), lambda: send.options(delay=1).publish(to="a")):
            with pytest.raises(OnEventLoop, match=r"send.publish waits .* write `await \S*send.publish_async"):
                on_loop(publish)
        with pytest.raises(OnEventLoop, match=r"write `await \S*send.publish_many_async"):
            on_loop(lambda: send.publish_many([{"to": "a"}]))

    match where:
        case "in memory":
            with broker(worker) as b:
                check()
                assert b.queues("q") == []
        case "eager":
            with eager(worker) as published:
                check()
                assert published == []
        case _:
            check()


def test_coroutine_handler_that_publishes_without_await_fails_in_tests_too() -> None:
    worker = Worker()
    refused: list[OnEventLoop] = []

    @worker.task("second")
    def second() -> None: ...

    @worker.task("first")
    async def first() -> None:
        try:
            second.publish()
        except OnEventLoop as error:
            refused.append(error)
        await second.publish_async()

    with broker(worker) as b:
        first.publish()
        assert b.work() == 2
    with eager(worker) as published:
        first.publish()
        assert [message.queue for message in published] == ["first", "second"]

    assert len(refused) == 2


def test_run_and_start_of_a_worker_on_a_loop_are_refused() -> None:
    worker = Worker("127.0.0.1:1")

    @worker.task("q")
    def send() -> None: ...

    with pytest.raises(OnEventLoop, match=r"worker\.run\(\) waits"):
        on_loop(worker.run)
    with pytest.raises(OnEventLoop, match=r"write `await asyncio.to_thread\(worker.start\)`"):
        on_loop(worker.start)


def test_call_in_a_notebook_cell_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "__IPYTHON__", True, raising=False)

    on_loop(lambda: refuse_on_loop("it", "do otherwise"))


@pytest.mark.parametrize(("value", "is_refused"), [("1", False), ("", True)])
def test_call_on_a_loop_is_accepted_if_the_environment_says_so(
    monkeypatch: pytest.MonkeyPatch, value: str, is_refused: bool
) -> None:
    monkeypatch.setenv("WAKEQ_ALLOW_ON_LOOP", value)

    if is_refused:
        with pytest.raises(OnEventLoop):
            on_loop(lambda: refuse_on_loop("it", "do otherwise"))
    else:
        on_loop(lambda: refuse_on_loop("it", "do otherwise"))


def test_loop_of_another_thread_does_not_matter() -> None:
    began, over = threading.Event(), threading.Event()

    async def hold() -> None:
        began.set()
        await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(hold()))
    thread.start()
    began.wait()
    try:
        refuse_on_loop("it", "do otherwise")
    finally:
        over.set()
        thread.join()


def test_check_for_a_loop_does_not_import_asyncio() -> None:
    program = """
import sys
from wakeq.client.connection import refuse_on_loop
refuse_on_loop("", "")
print("asyncio" in sys.modules)
"""

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert run.stdout == "False\n"
