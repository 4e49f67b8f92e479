"""Signals: the first one shuts the broker down cleanly, the second ends it at once, and neither breaks a promise."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import Connect, StartBroker
from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.histories.checker import Report, check
from tests.helpers.histories.history import History
from tests.helpers.loads.load import Load
from tests.helpers.loads.tasks import LoadQueue
from tests.helpers.network.ports import free_ports
from tests.helpers.programs import traced
from wakeq import AsyncClient, AsyncTaskFluxClient

CLEAN_STOP_TIMEOUT_S = 10.0
AT_ONCE_S = 2.0
STOPS = 2
WORKED_BETWEEN = 300
DRAIN_S_MAX = 60.0
SLOW_SYNC_S = 4.0


async def stop_under_load(broker: BrokerProcess, *numbers: signal.Signals) -> tuple[int, Report]:
    """Send the signals while everything is at work; start again, take what is left, and check all of it."""
    history = History()
    load = Load(lambda: broker.worker_address, history, seed=1, queues=(LoadQueue("load-strict", strict=True),))
    await load.prepare()
    load.start()
    try:
        while load.ops_ok < 500 and load.failure() is None:
            await asyncio.sleep(0.01)
        for number in numbers:
            broker.send_signal(number)
        status = await asyncio.to_thread(broker.wait, CLEAN_STOP_TIMEOUT_S)
        history.crash()
        broker.launch()
        await asyncio.to_thread(broker.wait_ready)
        await load.stop()
    finally:
        await load.abandon()
    await load.drain()
    return status, check(history.events)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_under_load_shuts_down_cleanly(broker: BrokerProcess, number: signal.Signals) -> None:
    status, report = asyncio.run(stop_under_load(broker, number))

    assert status == 0, broker.stderr
    assert not report.violations, report.explain()


def test_clients_notice_only_a_pause_at_a_restart(start_broker: StartBroker) -> None:
    """No call of a client raises, each message is worked on once, and what was published is all there is."""
    port, flux_port = free_ports(2)
    broker = start_broker("--worker-port", str(port), "--taskflux-port", str(flux_port))
    address, flux_address = f"127.0.0.1:{port}", f"127.0.0.1:{flux_port}"
    published: list[str] = []
    done: list[str] = []
    is_over = asyncio.Event()

    async def produce(name: str, put: Callable[[str, str], Awaitable[object]]) -> None:
        while not is_over.is_set():
            body = f"{name} {len(published)}"
            await put("jobs", body)
            published.append(body)

    async def publish(name: str) -> None:
        async with AsyncClient(address) as client:
            await produce(name, client.publish)

    async def work() -> None:
        async with AsyncClient(address) as client:
            while not is_over.is_set() or len(done) < len(published):
                message = await client.fetch("jobs", wait=0.5)
                if message is not None:
                    assert await message.ack()
                    done.append(message.text())

    async def enqueue(name: str) -> None:
        async with AsyncTaskFluxClient(flux_address) as client:
            await produce(name, client.enqueue)

    async def dequeue() -> None:
        async with AsyncTaskFluxClient(flux_address) as client:
            while not is_over.is_set() or len(done) < len(published):
                async with client.dequeue("jobs", wait=0.5) as record:
                    pass
                if record is not None:
                    done.append(record.payload.decode())

    async def stop_and_start() -> None:
        for _ in range(STOPS):
            enough = len(done) + WORKED_BETWEEN
            while len(done) < enough and not any(task.done() for task in tasks):
                await asyncio.sleep(0.01)
            assert await asyncio.to_thread(broker.terminate, CLEAN_STOP_TIMEOUT_S) == 0
            broker.launch()  # by this thread: the kernel ends it with the one that launched it
            await asyncio.to_thread(broker.wait_ready)
        is_over.set()

    tasks: list[asyncio.Task[None]] = []

    async def all_of_it() -> None:
        async with AsyncClient(address) as client:
            await client.create_queue("jobs")
        clients = (publish("a"), publish("b"), enqueue("c"), enqueue("d"), work(), work(), dequeue(), dequeue())
        tasks.extend(map(asyncio.ensure_future, clients))
        try:
            await stop_and_start()
        finally:
            is_over.set()
            async with asyncio.timeout(DRAIN_S_MAX):
                await asyncio.gather(*tasks)

    asyncio.run(all_of_it())

    assert sorted(done) == sorted(published)


def test_second_signal_under_load_breaks_no_promise(broker: BrokerProcess) -> None:
    _, report = asyncio.run(stop_under_load(broker, signal.SIGTERM, signal.SIGTERM))

    assert not report.violations, report.explain()


def test_idle_broker_shuts_down_cleanly_without_errors_in_its_log(start_broker: StartBroker, connect: Connect) -> None:
    broker = start_broker()
    sleeper = connect(broker)
    sleeper.ask("SUB", "q")
    sleeper.ask("ISLP", "q")

    assert broker.terminate(CLEAN_STOP_TIMEOUT_S) == 0
    assert "Traceback" not in broker.stderr


def test_second_signal_does_not_wait_for_the_disk(broker: BrokerProcess, connect: Connect) -> None:
    if reason := traced.unavailable_reason():
        pytest.skip(reason)
    client = connect(broker)
    with traced.injected(broker.pid, f"{traced.SYNCS}:delay_enter={SLOW_SYNC_S / 20 * 1e6:.0f}"):
        client.ask("PUB", "q", message="promised")  # a disk known to be slow is not waited for by the loop
    with traced.injected(broker.pid, f"{traced.SYNCS}:delay_enter={SLOW_SYNC_S * 1e6:.0f}"):
        client.send({"cmd": "PUB", "qname": "q", "message": "on its way"})
        broker.send_signal(signal.SIGTERM)
        assert not ends_within(broker, 0.5), "one signal did not wait for the disk"

        broker.send_signal(signal.SIGTERM)

        assert ends_within(broker, AT_ONCE_S)
        status = broker.wait(SLOW_SYNC_S * 2)  # strace holds the thread that it slows down back until its delay is over
    assert status == 128 + signal.SIGTERM
    broker.restart()
    assert connect(broker).ask("FET", "q")["msg"] == "promised"


def ends_within(broker: BrokerProcess, span_s: float) -> bool:
    """Whether the process has called exit by then; a thread of it may still be held by the tracer."""
    deadline_s = time.monotonic() + span_s
    while time.monotonic() < deadline_s:
        if Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.01)
    return False


def test_commands_read_before_the_signal_are_answered(start_broker: StartBroker, connect: Connect) -> None:
    broker = start_broker()
    client = connect(broker)
    client.send(*[{"cmd": "PUB", "qname": "q", "message": str(number)} for number in range(20_000)])
    client.recv()  # it is at work

    broker.send_signal(signal.SIGTERM)
    answered = 1
    try:
        while client.recv()["cmd"] == "ok":
            answered += 1
    except ConnectionError:
        pass
    assert broker.wait(CLEAN_STOP_TIMEOUT_S) == 0
    broker.launch()
    broker.wait_ready()

    assert connect(broker).ask("STATS", "q")["stats"]["size"] == answered
