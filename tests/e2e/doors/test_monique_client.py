"""wakeq.monique against a real broker: both clients, also when the broker is gone or is something else."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import StartBroker
from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.network.certificates import Authority
from tests.helpers.network.ports import free_port
from wakeq.monique import AsyncMoniqueClient, ErrorCode, MoniqueClient, Post
from wakeq.protocol.errors import BrokerUnreachable, Disconnected, Refused, Unauthorized

SPEC = "sum_it"


@pytest.fixture(scope="module")
def address(shared_broker: BrokerProcess) -> str:
    return shared_broker.addresses["http"]


@pytest.fixture
def component(address: str) -> Iterator[None]:
    """Have sums answered while the test runs."""
    ready = threading.Event()
    with MoniqueClient(address, creator="adder") as client:
        thread = threading.Thread(target=_add, args=(client, ready))
        thread.start()
        assert ready.wait(10)
        yield
        with MoniqueClient(address) as other:
            other.push(SPEC, "stop")
        thread.join(10)


def _add(client: MoniqueClient, ready: threading.Event) -> None:
    client.subscribe((SPEC, "config"))
    ready.set()
    for task in client.listen():
        match task.value():
            case "stop":
                return
            case list(numbers):
                client.result(task, sum(numbers))
            case _:
                client.error(task, ErrorCode.INPUT, "no list")


@pytest.mark.usefixtures("component")
def test_task_gets_its_result_or_an_error_or_no_answer(address: str) -> None:
    with MoniqueClient(address) as client:
        result, error = client.ask(SPEC, [1, 2], timeout=10), client.ask(SPEC, 5, timeout=10)

        assert result is not None
        assert (result.type, result.value(), result.creator) == ("result", 3, "adder")
        assert error is not None
        assert (error.type, error.value()) == ("error", {"code": 502, "message": "no list"})
        assert client.ask("nobody_hears", 1, timeout=0.05) is None
        assert client.receive(0) is None  # answers are not for those who did not subscribe


@pytest.mark.usefixtures("component")
def test_tasks_of_one_asyncio_client_run_at_the_same_time(address: str) -> None:
    async def test() -> None:
        async with AsyncMoniqueClient(address) as client:
            answers = await asyncio.gather(*(client.ask(SPEC, [number, 1], timeout=10) for number in range(50)))
            assert [answer.value() for answer in answers if answer is not None] == list(range(1, 51))
            assert await client.ask("nobody_hears", 1, timeout=0.05) is None
            assert await client.ping() < 10

    asyncio.run(test())


def test_task_that_cannot_be_sent_raises_the_reason(address: str) -> None:
    async def test() -> None:
        client = AsyncMoniqueClient(address)
        with pytest.raises(Disconnected, match="not connected"):
            await client.ask(SPEC, 1)
        await client.connect()
        await client.close()
        with pytest.raises(Disconnected, match="closed"):
            await client.ask(SPEC, 1)

    asyncio.run(test())
    client = MoniqueClient(address)
    client.close()
    with pytest.raises(Disconnected, match="closed"):
        client.ask(SPEC, 1)
    assert not client._session.awaited


def test_messages_reach_their_subscribers_only(address: str) -> None:
    with MoniqueClient(address) as one, MoniqueClient(address) as other:
        one.subscribe(("a_b", "data"), ("c_d", "*"))
        one.unsubscribe(("c_d", "*"))
        other.push("c_d", 1, type="data")
        sent = other.push("a_b", {"x": 1}, type="data", encoding="MessagePack")

        assert one.receive(10) == sent
        assert one.ping() < 10


def test_asyncio_client_receives_while_it_sends(address: str) -> None:
    async def test() -> None:
        async with AsyncMoniqueClient(address) as client:
            await client.subscribe(("a_b", "*"))
            heard: list[Post] = []

            async def listen() -> None:
                async for post in client.listen():
                    heard.append(post)
                    if len(heard) == 100:
                        return

            listening = asyncio.create_task(listen())
            sent = [await client.push("a_b", number, type="data") for number in range(100)]
            await asyncio.wait_for(listening, 10)
            assert heard == sent
            await client.unsubscribe(("a_b", "*"))

    asyncio.run(test())


def test_refusal_of_the_server_is_raised(address: str) -> None:
    with MoniqueClient(address) as client:
        many = [(f"a_{number}", "data") for number in range(1001)]
        with pytest.raises(Refused, match="Expected `array` of length <= 1000"):
            client.subscribe(*many)


def test_client_keeps_its_subscriptions_over_a_restart_of_the_broker(start_broker: StartBroker) -> None:
    broker = start_broker("--http-port", str(free_port()))
    with MoniqueClient(broker.addresses["http"], reconnect_for_s=20) as listener:
        listener.subscribe(("a_b", "data"))
        broker.restart()

        assert listener.ping() < 20  # on a new connection
        with MoniqueClient(broker.addresses["http"]) as other:
            sent = other.push("a_b", 1, type="data")
        assert listener.receive(10) == sent


def test_asyncio_client_keeps_its_subscriptions_over_a_restart_of_the_broker(start_broker: StartBroker) -> None:
    broker = start_broker("--http-port", str(free_port()))

    async def test() -> None:
        address = broker.addresses["http"]
        async with AsyncMoniqueClient(address, reconnect_for_s=20) as listener:
            await listener.subscribe(("a_b", "data"))
            await asyncio.to_thread(broker.restart)
            await listener.ping()
            async with AsyncMoniqueClient(address) as other:
                sent = await other.push("a_b", 1, type="data")
            assert await listener.receive(10) == sent

    asyncio.run(test())


def test_client_raises_when_the_broker_does_not_come_back(start_broker: StartBroker) -> None:
    broker = start_broker()
    with MoniqueClient(broker.addresses["http"], reconnect_for_s=0.2) as client:
        broker.kill()
        with pytest.raises(BrokerUnreachable):
            client.receive(20)

    async def test() -> None:
        async with AsyncMoniqueClient(broker.addresses["http"], reconnect_for_s=0.2) as client:
            waiting = asyncio.create_task(client.receive())
            await asyncio.sleep(0)
            broker.kill()
            with pytest.raises(BrokerUnreachable):
                await asyncio.wait_for(waiting, 20)
            with pytest.raises(BrokerUnreachable):
                await client.ping()

    broker.start()
    asyncio.run(test())


def test_close_of_a_client_is_raised_where_somebody_waits(address: str) -> None:
    client = MoniqueClient(address)
    closing = threading.Timer(0.05, client.close)
    closing.start()
    with pytest.raises(Disconnected, match="was closed"):
        client.receive(20)

    async def test() -> None:
        client = AsyncMoniqueClient(address)
        with pytest.raises(Disconnected, match="not connected"):
            await client.ping()
        await client.connect()
        waiting = asyncio.create_task(client.receive())
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(Disconnected, match="was closed"):
            await waiting

    asyncio.run(test())


def test_port_of_another_protocol_is_reported(shared_broker: BrokerProcess, address: str) -> None:
    worker_port = shared_broker.addresses["worker"]
    with pytest.raises(Disconnected, match=f"^{worker_port} does not speak HTTP; MoniQue is at the HTTP port"):
        MoniqueClient(worker_port, connect_timeout_s=2)
    with pytest.raises(BrokerUnreachable, match="refuses WebSocket connections at this path"):
        MoniqueClient(f"ws://{address}/nowhere")
    with pytest.raises(BrokerUnreachable, match="no broker answers"):
        MoniqueClient(f"127.0.0.1:{free_port()}")


def test_token_is_sent_over_tls_by_both_clients(start_broker: StartBroker, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    pair, trusted = authority.issue("broker"), str(authority.ca.cert)
    data_dir = tmp_path / "data"
    token = made_token(data_dir)
    broker = start_broker("--tls-cert", str(pair.cert), "--tls-key", str(pair.key), "--auth", data_dir=data_dir)
    address = broker.addresses["http"]

    with MoniqueClient(address, token=token, tls=trusted) as client:
        client.subscribe(("a_b", "*"))
        sent = client.push("a_b", 1, type="data")
        assert client.receive(10) == sent
    with pytest.raises(Unauthorized, match="is not valid here"):
        MoniqueClient(address, token="no token", tls=trusted)
    with pytest.raises(BrokerUnreachable, match="no TLS with"):
        MoniqueClient(f"wss://{address}/monique", token=token)  # whom the system trusts did not sign for it

    async def test() -> None:
        async with AsyncMoniqueClient(address, token=token, tls=trusted) as client:
            assert await client.ping() < 10
        with pytest.raises(Unauthorized, match="a token is needed here"):
            await AsyncMoniqueClient(address, tls=trusted).connect()

    asyncio.run(test())


def made_token(data_dir: Path) -> str:
    """Make a token that is good for everything, before the broker is there."""
    command = [sys.executable, "-m", "wakeq", "token", "create", "me", "--data-dir", str(data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout.split()[-1]
