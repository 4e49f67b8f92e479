"""Subscribers for the tests of the doors: they record the mail they get and do little else.

a door's mail --> Noting.told;   until(condition) waits for mail, never for time
"""

import asyncio
from collections.abc import Callable
from typing import Any

from wakeq.actors.sessions.door import Closed, Ended, Received
from wakeq.protocol.wire.worker.codec import Ping, Pong

MAIL_S_MAX = 30.0


class Clock:
    """Time that a test moves."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Noting:
    """A subscriber that writes down what it is told."""

    def __init__(self, door: Any) -> None:
        self.door = door
        self.told: list[object] = []
        self._news = asyncio.Event()

    def tell(self, message: object, /) -> None:
        self.told.append(message)
        self._news.set()

    def arrive(self, message: object, /) -> None:
        self.tell(message)

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for mail until something is true."""
        async with asyncio.timeout(MAIL_S_MAX):
            while not true():
                self._news.clear()
                await self._news.wait()

    async def until_told(self, kind: type) -> None:
        """Wait for a message of this kind."""
        await self.until(lambda: self.heard(kind) > 0)

    def heard(self, kind: type) -> int:
        """How many messages of this kind there were."""
        return sum(type(told) is kind for told in self.told)

    @property
    def commands(self) -> list[Any]:
        return [command for told in self.told if isinstance(told, Received) for command in told.commands]

    @property
    def closed(self) -> str | None:
        """Why it was closed, if it was."""
        return next((told.reason for told in self.told if isinstance(told, Closed)), None)


class Answering(Noting):
    """One that answers every PING of the worker protocol, and hangs up when its peer has."""

    def tell(self, message: object, /) -> None:
        if isinstance(message, Ended):  # all its commands are answered at once
            self.door.hang_up()
            return
        super().tell(message)
        if isinstance(message, Received) and message.commands == [Ping()]:
            self.door.send([Pong()])
