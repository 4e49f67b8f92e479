"""RawMonique: a MoniQue client of aiohttp and msgpack only, for tests of what a real listener answers.

    values --> MessagePack --> binary frames --> socket        socket --> frames --> values

It knows no order of things and no type: it sends what a test wants and returns what arrived.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgpack

ANSWER_S_MAX = 10.0


class RawMonique:
    """One connection."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def say(self, command: object, data: object = None) -> None:
        await self.socket.send_bytes(msgpack.packb({"command": command, "data": data}))

    async def take(self) -> Any:
        """Return the next value; a text frame, or anything that is no message, is a failure."""
        message = await self.socket.receive(ANSWER_S_MAX)
        assert message.type is aiohttp.WSMsgType.BINARY, message
        return msgpack.unpackb(message.data)

    async def ask(self, command: object, data: object = None) -> Any:
        await self.say(command, data)
        return await self.take()

    async def closed(self) -> tuple[int | None, str]:
        """Read until the server closes; return its code and reason."""
        while True:
            message = await self.socket.receive(ANSWER_S_MAX)
            if message.type is aiohttp.WSMsgType.CLOSE:
                return message.data, message.extra or ""
            assert message.type is aiohttp.WSMsgType.BINARY, message


@asynccontextmanager
async def raw_monique(url: str, **options: Any) -> AsyncIterator[RawMonique]:
    """Connect for the length of a block."""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, max_msg_size=0, compress=0, **options) as socket,
    ):
        yield RawMonique(socket)


async def together(*coroutines: Any) -> list[Any]:
    """Wait for all of them, but not for ever."""
    async with asyncio.timeout(ANSWER_S_MAX * 2):
        return list(await asyncio.gather(*coroutines))
