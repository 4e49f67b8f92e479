"""WebSocketDoor: one WebSocket connection of any protocol: its commands, its bounds, its end.

    frames that arrived --> a subclass decodes them --> one Received --> session --> send --> one write --> socket

Frames that arrive together go to the session together, up to the share of one connection; the others stay in aiohttp's
own bounded buffer until the next turn.  It must never look inside a command, or answer one itself.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Coroutine, Sequence
from typing import Any, Generic, Protocol, TypeVar

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from wakeq.actors.runtime.rounds import COMMAND_BYTES, SHARE_COMMANDS_MAX
from wakeq.actors.sessions.access import Access
from wakeq.actors.sessions.door import HANDSHAKE_S_MAX, Admission, Closed, Received, Told
from wakeq.net.bounds import BY_SESSION, BY_STOP, WATCHED_BYTES_MIN, Bounds
from wakeq.protocol.wire.websocket import PING, PONG, frame

ReplyT = TypeVar("ReplyT")

# Of a client's control frame without its payload, masked (RFC 6455, 5.2).
CONTROL_BYTES = 6
# A control frame has at most 125 bytes, two of them for the code.
REASON_BYTES_MAX = 120


class Path(Protocol):
    """The part of a WebSocketPath that its doors use."""

    admission: Admission

    def clock(self) -> float: ...

    def watch(self, door: Any, /) -> None: ...

    def spawn(self, work: Coroutine[Any, Any, None], /) -> None: ...


class WebSocketDoor(Generic[ReplyT]):
    """One connection; a subclass knows the protocol."""

    __slots__ = (
        "_bounds", "_frames", "_path", "_resumed", "_socket", "_subscriber", "_taken", "_transport", "_turn",
        "_unfinished_bytes", "access", "heard", "pinged", "stranger_since_s",
    )  # fmt: skip

    kind = 0

    def __init__(self, path: Path, socket: web.WebSocketResponse, transport: asyncio.Transport) -> None:
        self._path = path
        self._socket = socket
        self._transport = transport
        # The session; None before `begin` and after `end`.
        self._subscriber: Told | None = None
        # Frames received in this turn of the loop, not yet sent to the session.
        self._frames: list[Any] | None = None
        # Frames received since the last ones were sent on, or since the last turn.
        self._taken = 0
        # Awaited before more is received.
        self._turn: asyncio.Future[None] | None = None
        # Completed when reading is resumed.
        self._resumed: asyncio.Future[None] | None = None
        self._bounds = Bounds(path.admission, path.clock)
        # Whether the peer has sent anything since the last check, and whether it was pinged since.
        self.heard = True
        self.pinged = False
        # The access of the request's token, if it had one.
        self.access: Access | None = None
        # Since when the peer has to authenticate.
        self.stranger_since_s: float | None = None
        # Bytes of frames and fragments that are no complete message yet, as far as can be told.
        self._unfinished_bytes = 0

    # --- the protocol, in a subclass ---

    @abstractmethod
    def payload_of(self, message: WSMessage, /) -> Any:
        """Return the part of a text or binary message that `decode` needs."""

    @abstractmethod
    def decode(self, frames: list[Any], /) -> Received[Any]:
        """Decode the payloads into commands."""

    @abstractmethod
    def encode(self, replies: Sequence[ReplyT], /) -> bytes:
        """Encode replies as complete frames."""

    @abstractmethod
    def is_burst(self, replies: Sequence[ReplyT], /) -> bool:
        """Whether these are replies of a kind that may wait unread in large numbers."""

    # --- the socket's side ---

    def begin(self, subscriber: Told) -> None:
        """Send every command to this session from now on."""
        self._subscriber = subscriber

    def on_data(self, size_bytes: int) -> None:
        """Count received bytes, which may end a message or be only a part of one."""
        self._unfinished_bytes += size_bytes
        self._path.watch(self)

    def end(self, reason: str) -> None:
        """Send what arrived before the end to the session, then the end."""
        self._tell()
        subscriber, self._subscriber = self._subscriber, None
        self._bounds.release()
        if subscriber is not None:
            subscriber.tell(Closed(self._bounds.reason or reason))

    async def read(self) -> str:
        """Receive until the connection ends; return the reason."""
        while True:
            message = await self._socket.receive()
            self.heard = True
            match message.type:
                case WSMsgType.TEXT | WSMsgType.BINARY:
                    self._unfinished_bytes = 0
                    self._bounds.unfinished_since_s = None
                    self._take(self.payload_of(message))
                # aiohttp unmasks into a bytearray, so bytes were not masked.
                case WSMsgType.PING | WSMsgType.PONG if type(message.data) is bytes:
                    self.close("a client's frame was not masked (RFC 6455, 5.1)", WSCloseCode.PROTOCOL_ERROR)
                case WSMsgType.PING:
                    self._unfinished_bytes -= CONTROL_BYTES + len(message.data)
                    self._write(frame(PONG, bytes(message.data)))
                case WSMsgType.PONG:
                    self._unfinished_bytes -= CONTROL_BYTES + len(message.data)
                case WSMsgType.ERROR:
                    return f"connection lost: {message.data}"
                case _:
                    return "closed by peer"
            rounds = self._path.admission.rounds
            self._taken += 1
            rounds.left -= 1 + len(message.data) // COMMAND_BYTES
            if rounds.left <= 0 or self._taken >= (rounds.share if rounds.waiting else SHARE_COMMANDS_MAX):
                self._tell()
                self._turn = asyncio.get_running_loop().create_future()
                rounds.wait(self)
                await self._turn
                self._turn = None
            if self._bounds.paused:
                self._tell()
                while self._bounds.paused and not self._transport.is_closing():
                    self._resumed = asyncio.get_running_loop().create_future()
                    await self._resumed
                self._resumed = None

    def _take(self, received: Any) -> None:
        """Keep a frame until the loop's next turn, so that frames behind it go to the session with it."""
        if self._frames is None:
            self._frames = []
            asyncio.get_running_loop().call_soon(self._tell)
        self._frames.append(received)

    def take_turn(self) -> None:
        """Continue with the frames that aiohttp has read."""
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def _tell(self) -> None:
        frames, self._frames = self._frames, None
        self._taken = 0
        if frames and self._subscriber is not None:
            self._subscriber.tell(self.decode(frames))

    # --- the session's side ---

    @property
    def subscriber(self) -> Told | None:
        """The session, or None once the connection has ended."""
        return self._subscriber

    @property
    def peer(self) -> str:
        address = self._transport.get_extra_info("peername")
        return f"{address[0]}:{address[1]}" if address else ""

    def welcome(self) -> None:
        self.stranger_since_s = None

    def send(self, replies: Sequence[ReplyT]) -> None:
        if self._subscriber is not None and self._bounds.closing_at_s is None:
            self._write(self.encode(replies), replies)

    def hang_up(self) -> None:
        self.close("everything was answered")

    def close(self, reason: str, code: WSCloseCode = WSCloseCode.GOING_AWAY) -> None:
        if self._bounds.closing_at_s is not None or self._transport.is_closing():
            return
        self._bounds.reason = reason
        self._bounds.begin_closing()
        self._path.watch(self)
        self._path.spawn(self._close(reason, code))

    async def _close(self, reason: str, code: WSCloseCode) -> None:
        await self._socket.close(code=code, message=reason.encode()[:REASON_BYTES_MAX])
        self.resume_reading()

    def drop(self, reason: str) -> None:
        """Close at once; unsent bytes are lost."""
        self._bounds.reason = self._bounds.reason or reason
        self._transport.abort()
        self.resume_reading()

    def expel(self, reason: str) -> None:
        """Drop the connection and log why, because its peer misbehaved and may never read a reason."""
        if self._bounds.closing_at_s is None and not self._transport.is_closing():
            self._path.admission.expelled(self.peer, reason)
        self.drop(reason)

    def give_up(self) -> None:
        self.expel("it does not read its answers")

    def stop_reading(self) -> None:
        self._bounds.pause(self, BY_STOP)

    def pause(self) -> None:
        self._bounds.pause(self, BY_SESSION)

    def resume(self) -> None:
        self._bounds.resume(self, BY_SESSION)

    # --- bounds ---

    @property
    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    @property
    def received_bytes(self) -> int:
        return max(self._unfinished_bytes, 0)

    def pause_reading(self) -> None:
        """Do nothing: `read` sees that reading is paused."""

    def resume_reading(self) -> None:
        """Wake `read`, which looks whether it may receive more."""
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)

    def keep(self, size_bytes: int) -> bool:
        """Count the bytes of unfinished commands; those of a closed connection are ignored."""
        if self._subscriber is not None:
            self._bounds.keep(self, size_bytes)
            if self._bounds.held_bytes:
                self._path.watch(self)
        return not self._path.admission.crowded

    def ping(self) -> None:
        """Ping a silent peer; drop one that was pinged and stayed silent, unless reading is paused."""
        if self.heard or self._bounds.paused:
            self.heard = self.pinged = False
        elif self.pinged:
            self.drop("no sign of life")
        else:
            self.send_ping()

    def send_ping(self) -> None:
        """Ask the peer for a PONG."""
        self.pinged = True
        self._write(frame(PING, b""))

    def check(self, now_s: float) -> bool:
        """Check the deadlines and the unsent replies; return whether the connection still needs watching."""
        bounds = self._bounds
        if self._transport.is_closing():
            # Nothing else tells `read` that the connection is lost while reading is paused.
            self.resume_reading()
            if bounds.closing_at_s is None:
                return False
        elif self.stranger_since_s is not None and now_s - self.stranger_since_s >= HANDSHAKE_S_MAX:
            self.expel(f"it did not authenticate within {HANDSHAKE_S_MAX:g} s")
        elif self._unfinished_bytes <= 0:
            bounds.unfinished_since_s = None
        elif bounds.unfinished_since_s is None:
            bounds.unfinished_since_s = now_s
        bounds.check(self, now_s)
        if self._transport.is_closing():
            return bounds.closing_at_s is not None
        return self.stranger_since_s is not None or not bounds.at_rest

    def _write(self, data: bytes, replies: Sequence[ReplyT] = ()) -> None:
        """Write frames: those of replies, or of one that is no reply."""
        if self._transport.is_closing():
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > WATCHED_BYTES_MIN:
            self._path.watch(self)
            self._bounds.wrote(self, len(data), burst=bool(replies) and self.is_burst(replies))
