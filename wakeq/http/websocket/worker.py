"""The worker protocol over WebSocket: one JSON object in each text frame, at /connect and /connect/.

    frames that arrived --> decode --> one Received --> session --> send --> frames in one write --> socket

A binary frame is answered with BAD_JSON.  `door.py` and `path.py` have what all WebSocket connections do.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import WSMessage, WSMsgType, web

from wakeq.actors.runtime.rounds import FREE_BYTES
from wakeq.actors.sessions.access import Gate
from wakeq.actors.sessions.door import DOOR_WORKER_WS, Admission, Received, Told
from wakeq.http.websocket.door import WebSocketDoor
from wakeq.http.websocket.path import WebSocketPath
from wakeq.protocol.errors import BadJson
from wakeq.protocol.wire.lines import line_bytes_max
from wakeq.protocol.wire.websocket import TEXT, frame
from wakeq.protocol.wire.worker.codec import Bad, Command, Nok, Ok, Reply, decode_frames, encode_frames, weight_of

MESSAGE_BYTES_MAX = 1024 * 1024


class WorkerDoor(WebSocketDoor[Reply]):
    """One connection of a worker-protocol client."""

    __slots__ = ()

    kind = DOOR_WORKER_WS

    def payload_of(self, message: WSMessage) -> str | Bad:
        if message.type is WSMsgType.TEXT:
            text: str = message.data
            if len(text) > FREE_BYTES:
                self._path.admission.rounds.left -= weight_of(text)
            return text
        return Bad(BadJson("a binary frame; send commands in text frames"))

    def decode(self, frames: list[str | Bad]) -> Received[Command | Bad]:
        texts = [text for text in frames if isinstance(text, str)]
        commands = decode_frames(texts)
        joined = "".join(texts)
        size_bytes = len(joined) if joined.isascii() else len(joined.encode(errors="replace"))
        if len(texts) == len(frames):
            return Received(commands, size_bytes)
        decoded = iter(commands)
        return Received([next(decoded) if isinstance(given, str) else given for given in frames], size_bytes)

    def encode(self, replies: Sequence[Reply]) -> bytes:
        return b"".join([frame(TEXT, payload) for payload in encode_frames(replies)])

    def is_burst(self, replies: Sequence[Reply]) -> bool:
        return all(type(reply) is Ok or type(reply) is Nok for reply in replies)


class WorkerPath(WebSocketPath[WorkerDoor]):
    """The path of the worker protocol."""

    says_hello = True

    def __init__(
        self,
        make_subscriber: Callable[[Any], Told],
        *,
        admission: Admission | None = None,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        clock: Callable[[], float] | None = None,
        gate: Gate | None = None,
    ) -> None:
        frame_bytes_max = line_bytes_max(message_bytes_max)
        super().__init__(make_subscriber, frame_bytes_max=frame_bytes_max, admission=admission, clock=clock, gate=gate)

    def make_door(self, socket: web.WebSocketResponse, transport: asyncio.Transport) -> WorkerDoor:
        return WorkerDoor(self, socket, transport)
