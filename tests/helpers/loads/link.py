"""Link: a connection of the load that is made again whenever it is lost.

    a message --> to wherever the broker is now --> its answer, or a ConnectionError if that never comes

It never sends anything twice.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.helpers.clients.lines import AsyncLineClient, Message

RECONNECT_AFTER_S = 0.005
ANSWER_TIMEOUT_S = 30.0

Connect = Callable[[tuple[str, int]], Coroutine[Any, Any, AsyncLineClient]]


class AnswerTimeout(AssertionError):
    """A broker that was up did not answer: no crash explains it."""


class Link:
    """One connection that is made again whenever it is lost."""

    def __init__(self, address: Callable[[], tuple[str, int]], connect: Connect = AsyncLineClient.connect) -> None:
        self._address = address
        self._connect = connect
        self._client: AsyncLineClient | None = None
        self._lock = asyncio.Lock()

    async def client(self) -> AsyncLineClient:
        """Return a live connection, waiting for the broker to be there."""
        async with self._lock:
            while self._client is None or self._client.lost.done():
                try:
                    self._client = await self._connect(self._address())
                except OSError:
                    await asyncio.sleep(RECONNECT_AFTER_S)
        return self._client

    async def call(self, message: Message) -> Message:
        client = await self.client()
        return await self.finish(client.call(message))

    @staticmethod
    async def finish(future: "asyncio.Future[Message]") -> Message:
        """Wait for an answer; a ConnectionError means that it never comes."""
        try:
            return await asyncio.wait_for(future, ANSWER_TIMEOUT_S)
        except TimeoutError:
            raise AnswerTimeout(f"no answer in {ANSWER_TIMEOUT_S} s on an open connection") from None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
