"""Clients of the worker protocol that know nothing of wakeq's own code: JSON lines over TCP, JSON frames
over WebSocket.

`LineClient` blocks and is for tests that read like a conversation; `AsyncLineClient` pipelines and is for
load. Neither retries, hides an answer or invents one: a lost connection is `ConnectionError` to everybody
who waits.
"""

import asyncio
import json
import socket
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self

import aiohttp
import msgspec

Message = dict[str, Any]
REPLY_TIMEOUT_S = 15.0
LINE_BYTES_MAX = 64 * 1024 * 1024

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class LineClient:
    """One blocking connection."""

    def __init__(self, address: tuple[str, int], timeout_s: float = REPLY_TIMEOUT_S) -> None:
        self.socket = socket.create_connection(address, timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self.socket.makefile("rb")

    def send(self, *messages: Message) -> None:
        """Send commands back to back in one write."""
        self.socket.sendall(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def send_raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def recv(self) -> Message:
        """Return the next message of the broker."""
        line = self._file.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError(f"the broker closed the connection after {line!r}")
        reply = json.loads(line)
        assert isinstance(reply, dict), line
        return reply

    def call(self, message: Message) -> Message:
        """Send one command and return the next message, whatever it is."""
        self.send(message)
        return self.recv()

    def ask(self, cmd: str, qname: str | None = None, **fields: Any) -> Message:
        """`call` with the fields as arguments."""
        return self.call({"cmd": cmd, **({} if qname is None else {"qname": qname}), **fields})

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Conversation(Protocol):
    """What a replayed session needs of a connection, whichever door it came in by."""

    async def send(self, message: Message) -> None: ...
    async def receive(self) -> Message: ...
    async def close(self) -> None: ...


class LineConversation:
    """JSON lines over TCP."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, address: tuple[str, int]) -> Self:
        return cls(*await asyncio.open_connection(*address, limit=LINE_BYTES_MAX))

    async def send(self, message: Message) -> None:
        self._writer.write(_encode(message) + b"\n")

    async def send_line(self, text: str) -> None:
        """Send a line as it stands, broken or not."""
        self._writer.write(text.encode() + b"\n")

    async def receive(self) -> Message:
        line = await asyncio.wait_for(self._reader.readline(), REPLY_TIMEOUT_S)
        if not line:
            raise ConnectionError("the broker closed the connection")
        reply: Message = _decode(line)
        return reply

    async def close(self) -> None:
        self._writer.close()


class FrameConversation:
    """JSON text frames over WebSocket."""

    def __init__(self, session: aiohttp.ClientSession, frames: aiohttp.ClientWebSocketResponse) -> None:
        self._session, self.frames = session, frames

    @classmethod
    async def connect(cls, address: tuple[str, int], path: str = "/connect") -> Self:
        session = aiohttp.ClientSession()
        try:
            frames = await session.ws_connect(f"ws://{address[0]}:{address[1]}{path}", max_msg_size=LINE_BYTES_MAX)
        except BaseException:
            await session.close()
            raise
        return cls(session, frames)

    async def send(self, message: Message) -> None:
        await self.frames.send_str(_encode(message).decode())

    async def receive(self) -> Message:
        frame = await self.frames.receive(REPLY_TIMEOUT_S)
        if frame.type is not aiohttp.WSMsgType.TEXT:
            raise ConnectionError(f"the broker sent {frame.type.name} {frame.data!r} instead of a text frame")
        reply: Message = _decode(frame.data)
        return reply

    async def close(self) -> None:
        await self.frames.close()
        await self._session.close()


class AsyncLineClient(asyncio.Protocol):
    """One pipelining connection: many calls on the way at once, answers matched by order, or by `cmd_id`."""

    def __init__(self, on_wake: Callable[[str], None] | None = None) -> None:
        self.lost = asyncio.get_running_loop().create_future()
        self._on_wake = on_wake
        self._rest = b""
        self._in_order: deque[asyncio.Future[Message]] = deque()
        self._by_id: dict[int, asyncio.Future[Message]] = {}
        self._last_id = 0
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def connect(cls, address: tuple[str, int], on_wake: Callable[[str], None] | None = None) -> Self:
        _, client = await asyncio.get_running_loop().create_connection(lambda: cls(on_wake), *address)
        return client

    def call(self, message: Message) -> "asyncio.Future[Message]":
        """Send one command; the future has its answer or a ConnectionError."""
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        if self.lost.done() or self._transport is None or self._transport.is_closing():
            future.set_exception(ConnectionError("the connection is gone"))
            return future
        if "wait" in message:  # its answer may come behind later ones
            self._last_id += 1
            message = {**message, "cmd_id": self._last_id}
            self._by_id[self._last_id] = future
        else:
            self._in_order.append(future)
        self._transport.write(_encode(message) + b"\n")
        return future

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._answer(_decode(line))

    def _answer(self, reply: Message) -> None:
        if reply["cmd"] == "awk":
            if self._on_wake is not None:
                self._on_wake(reply["qname"])
            return
        future = self._by_id.pop(reply["cmd_id"]) if reply.get("cmd_id") is not None else self._in_order.popleft()
        if not future.done():
            future.set_result(reply)

    def connection_lost(self, error: Exception | None) -> None:
        for future in (*self._in_order, *self._by_id.values()):
            if not future.done():
                future.set_exception(ConnectionError("the connection was lost before the answer came"))
        self._in_order.clear()
        self._by_id.clear()
        if not self.lost.done():
            self.lost.set_result(None)


async def count_left(client: AsyncLineClient, queue: str) -> int:
    """Return how many messages a queue has: those that can be had, those that are delayed, those that are out."""
    reply = await client.call({"cmd": "STATS", "qname": queue})
    if reply.get("err") == "Q_NOT_FOUND":
        return 0
    if reply["cmd"] != "stats":
        raise ConnectionError(f"{queue}: {reply}")  # of a node that does not lead
    return int(reply["stats"]["size"] + reply["stats"]["leased"])
