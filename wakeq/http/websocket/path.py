"""WebSocketPath: a path of the HTTP port at which WebSocket connections are made and watched.

    request --> handshake, token --> a door, from a subclass --> session

One timer serves all connections of a path.  Compression is off, because the size of decompressed data cannot be
bounded.  It knows no protocol.
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from aiohttp import WSCloseCode, web

from wakeq.actors.sessions.access import TOKEN_ENDED, Access, Gate
from wakeq.actors.sessions.door import FRAME_S_MAX, Admission, Told
from wakeq.http.authorization import log_in, token_of
from wakeq.http.connection import HttpConnection
from wakeq.http.websocket.door import WebSocketDoor
from wakeq.net.sweeping import Sweeping
from wakeq.protocol.errors import Unauthorized

DoorT = TypeVar("DoorT", bound=WebSocketDoor[Any])

# Its warnings quote what peers send, without bound.
logging.getLogger("aiohttp.websocket").setLevel(logging.ERROR)


class WebSocketPath(Generic[DoorT]):
    """The connections of one path; the server has counted them already."""

    # Whether the protocol has a command of its own to authenticate.
    says_hello = False
    # A peer that is silent for so long is pinged; after the same time again it is dropped.
    heartbeat_s = 20
    decodes_text = True

    def __init__(
        self,
        make_subscriber: Callable[[DoorT], Told],
        *,
        frame_bytes_max: int,
        admission: Admission | None = None,
        clock: Callable[[], float] | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.admission = admission or Admission()
        self._gate = gate
        self.frame_bytes_max = frame_bytes_max
        self.clock = clock or asyncio.get_running_loop().time
        self.doors: set[DoorT] = set()
        self._make_subscriber = make_subscriber
        # Connections with a deadline or a backlog, which are checked every second.
        self._watched: set[DoorT] = set()
        # The connections are pinged in slices, one slice a second.
        self._slices: list[set[DoorT]] = [set() for _ in range(self.heartbeat_s)]
        self._next_slice = 0
        self._sweeping = Sweeping(self.sweep)
        # Connections that are being closed.
        self._tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    def make_door(self, socket: web.WebSocketResponse, transport: asyncio.Transport) -> DoorT:
        """Return the door for a new connection."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one connection, from the handshake to its end."""
        # A spare connection is for a single request, but a WebSocket would stay.
        if isinstance(request.protocol, HttpConnection) and request.protocol.is_spare:
            refusal = web.HTTPServiceUnavailable(text="there are too many connections already; try again later\n")
            refusal.headers["Retry-After"] = "1"
            refusal.force_close()
            raise refusal
        token = token_of(request)
        if self._gate is not None and (token is not None or not self.says_hello):
            self.check_access(log_in(self._gate, request))
        return await self._serve(request, token)

    def check_access(self, access: Access) -> None:
        """Raise if this access may not use the path at all."""

    def stop_reading(self) -> None:
        """Accept no more commands; those that were read are still answered."""
        for door in self.doors:
            door.stop_reading()

    async def close(self, reason: str = "the broker stops") -> None:
        """Close all connections."""
        for door in list(self.doors):
            door.close(reason)
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, request: web.Request, token: str | None) -> web.StreamResponse:
        socket = web.WebSocketResponse(
            compress=False,
            max_msg_size=self.frame_bytes_max,
            autoping=False,
            timeout=FRAME_S_MAX / 2,
            decode_text=self.decodes_text,
        )
        try:
            await socket.prepare(request)
        except ConnectionError:
            # The client has gone; nobody reads this response.
            return web.Response()
        assert request.transport is not None
        door = self.make_door(socket, request.transport)
        try:
            self._authenticate(door, token)
        except Unauthorized:
            # The token has ended since the request was accepted.
            await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=TOKEN_ENDED.encode())
            return socket
        # The slice that was pinged last has a whole period until its next ping.
        part = self._slices[self._next_slice - 1]
        self.doors.add(door)
        part.add(door)
        if isinstance(request.protocol, HttpConnection):
            request.protocol.on_data = door.on_data
        door.begin(self._make_subscriber(door))
        self._sweeping.begin()
        reason = "the broker stops"
        try:
            reason = await door.read()
        finally:
            self.doors.discard(door)
            self._watched.discard(door)
            part.discard(door)
            door.end(reason)
            _forget_frames(socket.exception())
        return socket

    def _authenticate(self, door: DoorT, token: str | None) -> None:
        """Use the token of the request; without one, the client must send HELLO in time."""
        if self._gate is not None and token is not None:
            door.access = self._gate.login(token, door)
        elif self._gate is not None:
            door.stranger_since_s = self.clock()
            self.watch(door)

    # --- called by the doors ---

    def watch(self, door: DoorT) -> None:
        """Check this connection every second until its check says that it needs no watching."""
        self._watched.add(door)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this as a task of its own."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def sweep(self) -> bool:
        """Check watched connections and ping the next slice; return whether any connection is left."""
        now_s = self.clock()
        for door in list(self._watched):
            if not door.check(now_s):
                self._watched.discard(door)
        for door in list(self._slices[self._next_slice]):
            door.ping()
        self._next_slice = (self._next_slice + 1) % self.heartbeat_s
        return bool(self.doors)


def _forget_frames(error: BaseException | None) -> None:
    """Drop the tracebacks of a failed socket: it and their frames would keep each other alive."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
