"""MoniQue over WebSocket: one MessagePack map in each frame, at /monique or at / of a port of its own.

    frames that arrived --> decode --> one Received --> session --> send --> answers in one write --> socket
                                       session --> push --> frames that other clients get too --> socket

A client that does not read is closed with a reason, because pushed messages cannot wait in memory forever; no other
client waits for it.  `door.py` and `path.py` have what all WebSocket connections do.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from aiohttp import WSCloseCode, WSMessage, web

from wakeq.actors.sessions.access import Access, Gate
from wakeq.actors.sessions.door import DOOR_MONIQUE, UNREAD_BYTES_MAX, Admission, Received, Told
from wakeq.http.authorization import as_response
from wakeq.http.websocket.door import WebSocketDoor
from wakeq.http.websocket.path import WebSocketPath
from wakeq.protocol.access import Right
from wakeq.protocol.errors import NotLeader
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.wire.monique.codec import FRAME_BYTES_MAX, decode, encode
from wakeq.protocol.wire.monique.commands import Bad, Command, PushedToMq, Reply
from wakeq.protocol.wire.websocket import BINARY, frame

# Frames up to this size are joined into one write; a longer one is not copied.
JOINED_BYTES_MAX = 64 * 1024
ID_COOKIE = "id"
# The words of the original (section 2).
NO_COOKIE = msgspec.msgpack.encode({"error": "user id not found in cookies."})
TOO_SLOW = f"more than {UNREAD_BYTES_MAX >> 20} MiB of messages are unread; read faster, or subscribe to less"

logger = logging.getLogger("wakeq.monique")


class MoniqueDoor(WebSocketDoor[Reply]):
    """One MoniQue client."""

    __slots__ = ()

    kind = DOOR_MONIQUE
    _path: "MoniquePath"

    def payload_of(self, message: WSMessage) -> bytes:
        # A text frame gives bytes too: old clients send binary data in text frames.
        data: bytes = message.data
        return data

    def decode(self, frames: list[bytes]) -> Received[Command | Bad]:
        return Received(decode(frames), sum(map(len, frames)))

    def encode(self, replies: Sequence[Reply]) -> bytes:
        return b"".join([frame(BINARY, payload) for payload in encode(replies)])

    def is_burst(self, replies: Sequence[Reply]) -> bool:
        return all(type(reply) is PushedToMq for reply in replies)

    def push(self, frames: Sequence[bytes]) -> None:
        """Write complete frames, which other clients may share."""
        for one in frames if len(frames) == 1 else joined(frames):
            if self._subscriber is None or self._bounds.closing_at_s is not None:
                return
            self._write(one)

    def give_up(self) -> None:
        if self._bounds.closing_at_s is not None:
            # A closing connection still writes frames such as a PONG, which tell nothing new.
            return
        logger.warning("disconnecting %s: %s", self.peer, TOO_SLOW)
        self._path.slow_clients += 1
        self.close(TOO_SLOW, WSCloseCode.POLICY_VIOLATION)

    def ping(self) -> None:
        """Ping every peer, idle or not: clients expect that (section 2)."""
        if self.pinged and not self.heard and not self._bounds.paused:
            self.drop("no sign of life")
        else:
            self.heard = False
            self.send_ping()


class MoniquePath(WebSocketPath[MoniqueDoor]):
    """The path of MoniQue's clients."""

    heartbeat_s = 30
    decodes_text = False

    def __init__(
        self,
        make_subscriber: Callable[[Any], Told],
        *,
        admission: Admission | None = None,
        wants_id_cookie: bool = False,
        refusal: Callable[[], Refusal | None] = lambda: None,
        clock: Callable[[], float] | None = None,
        gate: Gate | None = None,
    ) -> None:
        """`refusal` returns why this node serves nobody now, or None."""
        super().__init__(make_subscriber, frame_bytes_max=FRAME_BYTES_MAX, admission=admission, clock=clock, gate=gate)
        # Clients that were disconnected because they did not read.
        self.slow_clients = 0
        self._wants_id_cookie = wants_id_cookie
        self._refusal = refusal

    def make_door(self, socket: web.WebSocketResponse, transport: asyncio.Transport) -> MoniqueDoor:
        return MoniqueDoor(self, socket, transport)

    def check_access(self, access: Access) -> None:
        """A client hears every message and may push a task to any queue, so it needs both rights on all queues."""
        for right in (Right.PUBLISH, Right.FETCH):
            if not access.may_all(right):
                raise as_response(access.refusal_of_all(right))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if self._wants_id_cookie and not request.cookies.get(ID_COOKIE):
            return web.Response(status=400, body=NO_COOKIE, content_type="application/msgpack")
        refusal = self._refusal()
        if refusal is not None:
            where = f" ({refusal.leader_http})" if refusal.leader_http else ""
            # A node that leads, and has only not opened its ports yet or waits for others, is worth another try.
            again = {} if refusal.code == NotLeader.code else {"Retry-After": "1"}
            raise web.HTTPServiceUnavailable(text=f"{refusal.detail}{where}\n", headers=again)
        return await super().handle(request)


def joined(frames: Sequence[bytes]) -> list[bytes]:
    """Join frames into as few writes as pay off."""
    if sum(map(len, frames)) <= JOINED_BYTES_MAX:
        return [b"".join(frames)]
    writes: list[bytes] = []
    start = size = 0
    for place, one in enumerate(frames):
        if size + len(one) > JOINED_BYTES_MAX and place > start:
            writes.append(b"".join(frames[start:place]))
            start, size = place, 0
        size += len(one)
    writes.append(b"".join(frames[start:]))
    return writes
