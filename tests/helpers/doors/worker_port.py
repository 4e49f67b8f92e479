"""Port: a worker port over TCP on its own, with a subscriber that only keeps what it is told.

bytes of real sockets --> WorkerTcpListener --> what the subscriber of each connection heard
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.helpers.doors.noting import MAIL_S_MAX, Answering, Clock
from wakeq.actors.sessions.door import Door
from wakeq.net.listening import bound_socket
from wakeq.net.worker_tcp import WorkerTcpListener


class Port:
    """A listener, the subscribers it made, and a way to connect to it."""

    def __init__(self, **limits: object) -> None:
        self.clock = Clock()
        self.subscribers: list[Answering] = []
        self.listener = WorkerTcpListener(self.make, clock=self.clock, **limits)  # type: ignore[arg-type]
        self.port = 0

    def make(self, door: Door) -> Answering:
        self.subscribers.append(Answering(door))
        return self.subscribers[-1]

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Answering]:
        """Connect, and wait until the other side knows."""
        reader, writer = await self.connect()
        writer.write(b'{"cmd":"PING"}\n')
        assert await reader.readline() == b'{"cmd":"pong"}\n'
        subscriber = self.subscribers[-1]
        subscriber.told.clear()
        return reader, writer, subscriber

    def pass_time(self, seconds: float) -> None:
        self.clock.now_s += seconds
        self.listener.sweep()


@asynccontextmanager
async def listening(**limits: object) -> AsyncIterator[Port]:
    port = Port(**limits)
    port.port = await port.listener.start(await bound_socket("127.0.0.1", 0))
    try:
        yield port
    finally:
        await asyncio.wait_for(port.listener.close(), MAIL_S_MAX)
