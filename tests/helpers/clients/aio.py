"""What the tests of AsyncClient share: a listener that keeps what it hears, and a loop with a deadline."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from wakeq import errors

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


def run(work: Callable[[], Awaitable[T]]) -> T:
    """Run on a loop of its own; a call that never ends is a failure."""

    async def within() -> T:
        async with asyncio.timeout(DEADLINE_S):
            return await work()

    return asyncio.run(within())
