"""WebSocketPath: a path at which connections by WebSocket are made; it looks after those that are not at rest.

    request --> handshake, who it is --> a door, from a subclass --> subscriber

One timer serves a whole path.  Compression is off: what little bytes unpack to cannot be bounded.  It knows no
protocol.
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

logging.getLogger("aiohttp.websocket").setLevel(logging.ERROR)  # its warnings quote what anybody sent, without bound


class WebSocketPath(Generic[DoorT]):
    """See the head of this file.  The server has counted the connections."""

    says_hello = False  # the protocol has a word of its own to say who one is
    heartbeat_s = 20  # a peer that was silent so long is asked; silent as long again, it is gone
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
        self._watched: set[DoorT] = set()
        self._slices: list[set[DoorT]] = [set() for _ in range(self.heartbeat_s)]  # one is asked each second
        self._next_slice = 0
        self._sweeping = Sweeping(self.sweep)
        self._tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    def make_door(self, socket: web.WebSocketResponse, transport: asyncio.Transport) -> DoorT:
        """Return what is to serve a new connection."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one connection, from the handshake to its end."""
        if isinstance(request.protocol, HttpConnection) and request.protocol.is_spare:  # it would stay
            refusal = web.HTTPServiceUnavailable(text="there are too many connections already; try again later\n")
            refusal.headers["Retry-After"] = "1"
            refusal.force_close()
            raise refusal
        token = token_of(request)
        if self._gate is not None and (token is not None or not self.says_hello):
            self.check_access(log_in(self._gate, request))
        return await self._serve(request, token)

    def check_access(self, access: Access) -> None:
        """Refuse who may not connect at all."""

    def stop_reading(self) -> None:
        """Take no more commands; what was taken is still answered."""
        for door in self.doors:
            door.stop_reading()

    async def close(self, reason: str = "the broker stops") -> None:
        """Close what is open."""
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
        except ConnectionError:  # it has gone already; nobody reads this
            return web.Response()
        assert request.transport is not None
        door = self.make_door(socket, request.transport)
        try:
            self._ask_who_it_is(door, token)
        except Unauthorized:  # its token has ended since the request was let in
            await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=TOKEN_ENDED.encode())
            return socket
        part = self._slices[self._next_slice - 1]  # the one asked last: a whole period from now
        self.doors.add(door)
        part.add(door)
        if isinstance(request.protocol, HttpConnection):
            request.protocol.hears = door.hears
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

    def _ask_who_it_is(self, door: DoorT, token: str | None) -> None:
        """Let those in who showed a token with their request; the others have to say HELLO in time."""
        if self._gate is not None and token is not None:
            door.access = self._gate.login(token, door)
        elif self._gate is not None:
            door.stranger_since_s = self.clock()
            self.watch(door)

    # --- what the doors tell it ---

    def watch(self, door: DoorT) -> None:
        """Look at this connection from time to time."""
        self._watched.add(door)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this beside everything else."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def sweep(self) -> bool:
        """Look at those not at rest, ask the next slice for a sign of life; return whether any connection is left."""
        now_s = self.clock()
        for door in list(self._watched):
            if not door.check(now_s):
                self._watched.discard(door)
        for door in list(self._slices[self._next_slice]):
            door.ping()
        self._next_slice = (self._next_slice + 1) % self.heartbeat_s
        return bool(self.doors)


def _forget_frames(error: BaseException | None) -> None:
    """The socket keeps why it failed, and the frames of that the socket: only a full collection would find them."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
