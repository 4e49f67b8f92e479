"""What the tests of AsyncClient share: replies for scripted peers, a listener that keeps what it hears, a loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from wakeq import errors
from wakeq.protocol.wire.worker import codec as wire

DEADLINE_S = 10.0
T = TypeVar("T")


class Heard:
    """A listener that keeps what it hears, and can be waited on."""

    def __init__(self) -> None:
        self.news: list[str] = []
        self._changed = asyncio.Event()

    def _hear(self, news: str) -> None:
        self.news.append(news)
        self._changed.set()

    def awoken(self, queue: str) -> None:
        self._hear(f"awoken {queue}")

    def connected(self) -> None:
        self._hear("connected")

    def disconnected(self, error: errors.WakeqError) -> None:
        self._hear("disconnected")

    async def until(self, count: int) -> None:
        while len(self.news) < count:
            self._changed.clear()
            await self._changed.wait()


def pong(_: int, command: wire.Command) -> wire.Reply:
    return wire.Pong(cmd_id=command.cmd_id)


def stored(_: int, command: wire.Command) -> wire.Reply:
    assert isinstance(command, wire.Pub)
    return wire.Ok(uid=f"uid of {command.message}", cmd_id=command.cmd_id)


def delivered(command: wire.Command, uid: str = "u") -> wire.Msg:
    return wire.Msg(qname="q", uid=uid, error_count=0, msg="x", lease="1-1", cmd_id=command.cmd_id)


def run(work: Callable[[], Awaitable[T]]) -> T:
    """Run on a loop of its own; a call that never ends is a failure."""

    async def within() -> T:
        async with asyncio.timeout(DEADLINE_S):
            return await work()

    return asyncio.run(within())
