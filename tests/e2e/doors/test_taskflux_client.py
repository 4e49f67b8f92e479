"""The TaskFlux clients and their verbs on a real broker, in both dialects."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.helpers.brokers.process import BrokerProcess
from wakeq import AsyncTaskFluxClient, QueueExists, QueueNotFound, TaskFluxClient
from wakeq.client.taskflux.requests import NotAllEnqueued, Record

RECORDS = 3_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Return one broker with both dialects for all tests of this file."""
    broker = BrokerProcess(tmp_path_factory.mktemp("taskflux") / "data", "--set", "taskflux_other_port=0")
    try:
        yield broker.start()
    finally:
        broker.close()


def address_of(broker: BrokerProcess, dialect: str = "spec") -> str:
    host, port = broker.other_taskflux_address if dialect == "csharp" else broker.taskflux_address
    return f"{host}:{port}"


@pytest.fixture(params=["spec", "csharp"])
def client(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[TaskFluxClient]:
    with TaskFluxClient(address_of(broker, request.param), dialect=request.param) as client:
        client.create("q", implementation="QA", key_range=(0, 9), max_size=RECORDS)
        yield client
        client.delete("q")


def test_record_is_acknowledged_at_the_end_of_its_block_with_follow_ups(client: TaskFluxClient) -> None:
    client.enqueue("q", "first", key=1)

    with client.dequeue("q") as record:
        assert record is not None
        assert (record.key, record.payload) == (1, b"first")
        client.enqueue("q", "second", key=2)
        assert client.count("q") == 1

    assert client.count("q") == 1


def test_record_is_released_when_its_block_raises_or_asks_for_it(client: TaskFluxClient) -> None:
    client.enqueue("q", "a")

    with pytest.raises(ZeroDivisionError), client.dequeue("q", wait=5):
        raise ZeroDivisionError
    taking = client.dequeue("q")
    with taking:
        taking.give_back()

    assert client.count("q") == 1


def test_dequeue_of_an_empty_queue_returns_nothing(client: TaskFluxClient) -> None:
    with client.dequeue("q", wait=0.01) as record:
        assert record is None


def test_batch_names_the_records_that_were_refused(client: TaskFluxClient) -> None:
    with pytest.raises(NotAllEnqueued) as caught:
        client.enqueue_many("q", [(10 if place == 5 else 1, b"x") for place in range(RECORDS)])

    assert list(caught.value.refusals) == [5]
    assert client.count("q") == RECORDS - 1


def test_missing_and_existing_queues_are_told_apart(client: TaskFluxClient) -> None:
    with pytest.raises(QueueExists):
        client.create("q")
    with pytest.raises(QueueNotFound):
        client.enqueue("nowhere", "x")
    assert client.list()["q"].policies == {"max-queue-size": str(RECORDS), "priority-range": "0 9"}
    assert client.metadata().leader == 0


def test_asyncio_tasks_share_a_client(broker: BrokerProcess) -> None:
    async def work() -> None:
        async with AsyncTaskFluxClient(address_of(broker)) as client:
            await client.create("tasks")
            await asyncio.gather(*[client.enqueue("tasks", b"x", key=key) for key in range(30)])
            async with client.dequeue("tasks") as first, client.dequeue("tasks") as second:
                assert (first, second) == (Record(0, b"x"), Record(1, b"x"))
                assert await client.count("tasks") == 28
            with pytest.raises(ZeroDivisionError):
                async with client.dequeue("tasks"):
                    raise ZeroDivisionError
            assert await client.count("tasks") == 28
            await client.delete("tasks")

    asyncio.run(work())


def test_client_continues_after_its_broker_restarted(tmp_path_factory: pytest.TempPathFactory) -> None:
    data_dir = tmp_path_factory.mktemp("again") / "data"
    with BrokerProcess(data_dir) as broker, TaskFluxClient(address_of(broker), reconnect_for_s=20) as client:
        client.enqueue("", "a")
        broker.extra_args = ("--taskflux-port", str(broker.taskflux_address[1]))
        broker.restart()

        client.enqueue("", "b")

        assert client.count() == 2


# --- the verbs ---


def wakeq(broker: BrokerProcess, *arguments: str, feed: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "wakeq", "taskflux", "--address", address_of(broker), *arguments]
    return subprocess.run(command, input=feed, capture_output=True, check=False, timeout=30)


def test_taskflux_commands_mirror_the_client(broker: BrokerProcess) -> None:
    assert wakeq(broker, "create", "v", "--max-size", "2", "--key-range", "-1", "5").returncode == 0
    assert wakeq(broker, "enqueue", "v", "--key", "5", "late").returncode == 0
    assert wakeq(broker, "enqueue", "v", "--key", "-1", feed=b"\x00raw").returncode == 0
    assert wakeq(broker, "count", "v").stdout == b"2\n"
    full = wakeq(broker, "enqueue", "v", "more")
    assert (full.returncode, b"holds as many records" in full.stderr) == (1, True)

    assert wakeq(broker, "dequeue", "v", "--nack", "--raw").stdout == b"\x00raw"
    assert wakeq(broker, "dequeue", "v", "--raw").stdout == b"\x00raw"
    assert wakeq(broker, "dequeue", "v", "--json").stdout == b'{"key":5,"id":0,"encoding":"text","payload":"late"}\n'
    assert wakeq(broker, "dequeue", "v", "--wait", "0.01").returncode == 3
    assert b'"queue":"v","count":0' in wakeq(broker, "list", "--json").stdout
    assert wakeq(broker, "metadata", "--json").stdout.startswith(b'{"addresses":["127.0.0.1:')
    assert wakeq(broker, "delete", "v").returncode == 2
    assert wakeq(broker, "delete", "v", "--yes").returncode == 0
    assert wakeq(broker, "count", "v").returncode == 1
