"""doors: MoniQue's ports and its path on a server of their own, over queues that keep nothing.

    async with doors(config_file=..., routes=...) as (place, addresses): place.client(); place.refusal = FOLLOWS

Everything is closed behind it.  Whether this node leads is what `place.refusal` says.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.helpers.brokers.by_hand import HandDisk
from tests.helpers.monique.raw import RawMonique
from wakeq.actors.monique.queue_user import QueueServices
from wakeq.actors.queues.lobby import Lobby
from wakeq.actors.runtime import Process, Runtime, Timers
from wakeq.config.settings import Monique, Settings
from wakeq.http.server import WebServer
from wakeq.net.listening import bound_socket
from wakeq.node.monique_doors import MoniqueDoors, MoniqueServices
from wakeq.node.security import Security
from wakeq.protocol.queue.outcomes import Refusal

FOLLOWS = Refusal("NOT_LEADER", "node 2 leads; connect to it")


class Silent(Process):
    """Stands for the log and the queues: nothing is kept in these tests."""

    def on_receive(self, message: Any) -> None:
        pass


class Place:
    def __init__(self, session: aiohttp.ClientSession, settings: Monique, *, insecure: bool) -> None:
        loop = asyncio.get_running_loop()
        self.session = session
        self.refusal: Refusal | None = None
        self.failures: list[BaseException] = []
        self.runtime = Runtime()
        self.runtime.attach(loop)
        silent = self.runtime.spawn(Silent)
        lobby = Lobby(self.runtime)
        lobby.open(silent, lambda name: None)
        timers = self.runtime.spawn(Timers, lambda: 1, loop.call_later)
        queues = QueueServices(lobby, timers, lambda: 1, lambda: 7, 1000)
        services = MoniqueServices(
            self.runtime,
            queues,
            lambda: self.refusal,
            lambda: self.refusal is not FOLLOWS,
            self.failures.append,
            Security(Settings(insecure=insecure), lambda: 0),
            HandDisk(),
        )
        self.doors = MoniqueDoors(settings, services)
        self.web = WebServer()
        self.web.add("GET", "/monique", self.doors.path.handle)
        self.web.before_stop(self.doors.close)

    async def client(self) -> RawMonique:
        socket = await self.session.ws_connect(self.url)
        return RawMonique(socket)


@asynccontextmanager
async def doors(*, insecure: bool = False, **settings: Any) -> AsyncIterator[tuple[Place, dict[str, str]]]:
    async with aiohttp.ClientSession() as session:
        place = Place(session, Monique(**settings), insecure=insecure)
        own = place.doors.own_address
        addresses = await place.doors.start(None if own is None else await bound_socket(*own))
        place.url = f"http://127.0.0.1:{await place.web.start(await bound_socket('127.0.0.1', 0))}/monique"
        try:
            yield place, addresses
        finally:
            await session.close()
            await asyncio.wait_for(place.web.close(), 20)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.005)
