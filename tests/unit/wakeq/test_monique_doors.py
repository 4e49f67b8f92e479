"""MoniqueDoors: open while the node leads, made anew when something fails, told what is wrong with config.json."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import zmq
import zmq.asyncio

from tests.helpers.both_loops import Run
from tests.helpers.monique_component import config_json, free_port, packed
from tests.helpers.monique_raw import RawMonique
from wakeq import monique_doors as module
from wakeq.actors.messages import Refusal
from wakeq.actors.monique_queues import QueueServices
from wakeq.actors.runtime import Process, Runtime, Timers
from wakeq.monique_doors import MoniqueDoors, Services
from wakeq.protocol.errors import BadSettings
from wakeq.security import Security
from wakeq.settings import Monique, Settings
from wakeq.web.server import WebServer

FOLLOWS = Refusal("NOT_LEADER", "node 2 leads; connect to it")


class Silent(Process):
    """Stands for the log and the queues: nothing is kept in these tests."""

    def on_receive(self, message: Any) -> None:
        pass


class Place:
    def __init__(self, session: aiohttp.ClientSession, settings: Monique) -> None:
        loop = asyncio.get_running_loop()
        self.session = session
        self.refusal: Refusal | None = None
        self.failures: list[BaseException] = []
        self.runtime = Runtime()
        self.runtime.attach(loop)
        silent = self.runtime.spawn(Silent)
        timers = self.runtime.spawn(Timers, lambda: 1, loop.call_later)
        queues = QueueServices(silent, silent, timers, lambda: 1, lambda: 7, lambda name: True, None, 1000)
        services = Services(
            self.runtime, queues, lambda: self.refusal, self.failures.append, Security(Settings(), lambda: 0)
        )
        self.doors = MoniqueDoors(settings, services)
        self.web = WebServer()
        self.web.add("GET", "/monique", self.doors.path.handle)
        self.web.before_stop(self.doors.close)

    async def client(self) -> RawMonique:
        socket = await self.session.ws_connect(self.url)
        return RawMonique(socket)


@asynccontextmanager
async def doors(**settings: Any) -> AsyncIterator[tuple[Place, dict[str, str]]]:
    async with aiohttp.ClientSession() as session:
        place = Place(session, Monique(**settings))
        addresses = await place.doors.start()
        place.url = f"http://127.0.0.1:{await place.web.start('127.0.0.1', 0)}/monique"
        try:
            yield place, addresses
        finally:
            await session.close()
            await asyncio.wait_for(place.web.close(), 20)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.005)


def test_a_node_that_leads_no_longer_closes_what_it_has_and_opens_it_again(run: Run, tmp_path: Path) -> None:
    async def test() -> None:
        async with doors(config_file=config_json(tmp_path / "config.json")) as (place, addresses):
            client = await place.client()
            assert await client.ask("ping", 1) == {"command": "pong", "data": 1}

            place.refusal = FOLLOWS
            place.doors.look()

            assert (await client.closed())[1] == "another node leads; connect to it"
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await place.client()
            host, _, port = addresses["scheduler-in"].rpartition(":")
            with pytest.raises(OSError, match="111"):
                await asyncio.open_connection(host, int(port))

            place.refusal = None
            assert await (await place.client()).ask("ping", 1) == {"command": "pong", "data": 1}
            assert place.failures == []

    run(test)


def test_too_few_nodes_for_a_moment_are_no_reason_to_close(run: Run) -> None:
    async def test() -> None:
        async with doors() as (place, _):
            client = await place.client()
            place.refusal = Refusal("NO_QUORUM", "too few of the other nodes answer")
            place.doors.look()

            assert await client.ask("ping", 1) == {"command": "pong", "data": 1}

    run(test)


@pytest.mark.parametrize("victim", ["_exchange", "_components"])
def test_if_one_of_them_fails_all_are_made_anew_and_clients_come_again(run: Run, tmp_path: Path, victim: str) -> None:
    async def test() -> None:
        async with doors(config_file=config_json(tmp_path / "config.json")) as (place, addresses):
            client = await place.client()
            await client.ask("ping", 1)
            before = place.doors._exchange

            getattr(place.doors, victim).tell("nothing that it knows")

            assert "connect again" in (await client.closed())[1]
            await until(lambda: place.doors._exchange is not before)
            await serves_both(place, addresses)
            assert place.failures == []

    run(test)


async def serves_both(place: Place, addresses: dict[str, str]) -> None:
    """What comes by WebSocket is heard over ZeroMQ."""
    client = await place.client()
    with zmq.Context() as context, context.socket(zmq.SUB) as sub:
        sub.connect(f"tcp://{addresses['scheduler-out']}")
        sub.subscribe(b"")
        tag, message = packed(spec="a_b", type="data")
        async with asyncio.timeout(10):
            while not sub.poll(0):
                await client.ask("push_to_mq", {"tag": tag, "message": message})
        assert sub.recv_multipart() == [tag, message]


def test_controllers_that_are_added_to_the_file_are_opened(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "READ_AGAIN_S", 0.02)
    path = config_json(tmp_path / "config.json")

    async def test() -> None:
        async with doors(config_file=path) as (place, _):
            path.write_text("{")
            await until(lambda: "the controllers stay as they are" in caplog.text)
            port = free_port()
            config_json(path, a_b=port)
            await until(lambda: "a_b" in place.doors._takers)

            with zmq.Context() as context, context.socket(zmq.PULL) as pull:
                pull.connect(f"tcp://127.0.0.1:{port}")
                task = packed(spec="a_b", type="config")
                client = await place.client()
                await client.ask("push_to_mq", {"tag": task[0], "message": task[1]})
                async with asyncio.timeout(10):
                    while not pull.poll(0):
                        await asyncio.sleep(0.005)
                assert pull.recv_multipart() == task

    run(test)


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    async def test() -> None:
        async with doors(config_file=config_json(tmp_path / "one.json")) as (_, addresses):
            port = int(addresses["scheduler-in"].rpartition(":")[2])
            async with doors(config_file=config_json(tmp_path / "other.json", a_b=port)):
                pass

    with pytest.raises(BadSettings, match="is another scheduler there"):
        asyncio.run(test())


def test_half_a_scheduler_is_refused(tmp_path: Path) -> None:
    ports = {"host": "127.0.0.1", "comport": 0, "techport": 0}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"deploy": {"monique": {"scheduler-in": ports}}}))

    async def test() -> None:
        async with doors(config_file=path):
            pass

    with pytest.raises(BadSettings, match="components need both"):
        asyncio.run(test())


def test_without_pyzmq_its_ports_are_refused_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)

    async def test(**settings: Any) -> None:
        async with doors(**settings) as (place, _):
            assert await (await place.client()).ask("ping", 1) == {"command": "pong", "data": 1}

    asyncio.run(test())
    with pytest.raises(BadSettings, match=r"pip install 'wakeq\[monique\]'"):
        asyncio.run(test(config_file=config_json(tmp_path / "config.json")))


def test_a_port_that_the_leader_before_still_has_is_tried_again(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()

    async def test() -> None:
        async with doors(config_file=config_json(tmp_path / "config.json", a_b=port)) as (place, _):
            place.refusal = FOLLOWS
            place.doors.look()
            with zmq.Context() as context, context.socket(zmq.PUSH) as other:
                other.bind(f"tcp://127.0.0.1:{port}")
                place.refusal = None
                place.doors.look()
                assert "is another scheduler there?; trying again" in caplog.text
                with pytest.raises(aiohttp.WSServerHandshakeError):
                    await place.client()
            async with asyncio.timeout(10):
                while place.doors._supervisor is None:
                    place.doors.look()
                    await asyncio.sleep(0.01)

            assert await (await place.client()).ask("ping", 1) == {"command": "pong", "data": 1}

    run(test)
