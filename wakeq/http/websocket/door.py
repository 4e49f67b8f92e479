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
from wakeq.actors.sessions.door import FRAME_S_MAX, HANDSHAKE_S_MAX, Admission, Backlog, Closed, Received, Told, Verdict
from wakeq.protocol.wire.websocket import PING, PONG, frame

ReplyT = TypeVar("ReplyT")

# With fewer unread bytes a connection needs no watching.
WATCHED_BYTES_MIN = 64 * 1024
# Of a client's control frame without its payload, masked (RFC 6455, 5.2).
CONTROL_BYTES = 6
# A control frame has at most 125 bytes, two of them for the code.
REASON_BYTES_MAX = 120

# Bits that say who has paused reading.
_BY_SUBSCRIBER, _BY_BACKLOG, _BY_STOP = 1, 2, 4


class Path(Protocol):
    """The part of a WebSocketPath that its doors use."""

    admission: Admission

    def clock(self) -> float: ...

    def watch(self, door: Any, /) -> None: ...

    def spawn(self, work: Coroutine[Any, Any, None], /) -> None: ...


class WebSocketDoor(Generic[ReplyT]):
    """One connection; a subclass knows the protocol."""

    __slots__ = (
        "_backlog", "_being_done_bytes", "_closing_at_s", "_frames", "_held_bytes", "_path", "_paused", "_reason",
        "_resumed", "_socket", "_subscriber", "_taken", "_transport", "_turn", "_unfinished_bytes",
        "_unfinished_since_s", "access", "heard", "pinged", "stranger_since_s",
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
        # The bits of everyone who has paused reading, and a future that the last resume completes.
        self._paused = 0
        self._resumed: asyncio.Future[None] | None = None
        # Watches unread answers, while there are many.
        self._backlog: Backlog | None = None
        # This connection's part of the memory that all connections hold.
        self._held_bytes = 0
        # Bytes of commands that the session has not finished.
        self._being_done_bytes = 0
        # When a close frame was sent, and the reason that it gave.
        self._closing_at_s: float | None = None
        self._reason = ""
        # Whether the peer has sent anything since the last check, and whether it was pinged since.
        self.heard = True
        self.pinged = False
        # The access of the request's token, if it had one.
        self.access: Access | None = None
        # Since when the peer has to authenticate.
        self.stranger_since_s: float | None = None
        # Bytes of frames and fragments that are no complete message yet, as far as can be told.
        self._unfinished_bytes = 0
        # Since when they are incomplete.
        self._unfinished_since_s: float | None = None

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
        self._path.admission.held_bytes -= self._held_bytes
        if subscriber is not None:
            subscriber.tell(Closed(self._reason or reason))

    async def read(self) -> str:
        """Receive until the connection ends; return the reason."""
        while True:
            message = await self._socket.receive()
            self.heard = True
            match message.type:
                case WSMsgType.TEXT | WSMsgType.BINARY:
                    self._unfinished_bytes = 0
                    self._unfinished_since_s = None
                    self._take(self.payload_of(message))
                # aiohttp unmasks into a bytearray, so bytes were not masked.
                case WSMsgType.PING | WSMsgType.PONG if type(message.data) is bytes:
                    self.close("a client's frame was not masked (RFC 6455, 5.1)", WSCloseCode.PROTOCOL_ERROR)
                case WSMsgType.PING:
                    self._unfinished_bytes -= CONTROL_BYTES + len(message.data)
                    self._write(frame(PONG, bytes(message.data)), burst=False)
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
            if self._paused:
                self._tell()
                while self._paused and not self._transport.is_closing():
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
        if self._subscriber is None or self._closing_at_s is not None:
            return
        self._write(self.encode(replies), burst=self.is_burst(replies))

    def hang_up(self) -> None:
        self.close("everything was answered")

    def close(self, reason: str, code: WSCloseCode = WSCloseCode.GOING_AWAY) -> None:
        if self._closing_at_s is not None or self._transport.is_closing():
            return
        self._reason = reason
        self._closing_at_s = self._path.clock()
        self._path.watch(self)
        self._path.spawn(self._close(reason, code))

    async def _close(self, reason: str, code: WSCloseCode) -> None:
        await self._socket.close(code=code, message=reason.encode()[:REASON_BYTES_MAX])
        self._wake()

    def drop(self, reason: str) -> None:
        """Close at once; unsent bytes are lost."""
        self._reason = self._reason or reason
        self._transport.abort()
        self._wake()

    def expel(self, reason: str) -> None:
        """Drop the connection and log why, because its peer misbehaved and may never read a reason."""
        if self._closing_at_s is None and not self._transport.is_closing():
            self._path.admission.expelled(self.peer, reason)
        self.drop(reason)

    def stop_reading(self) -> None:
        self._paused |= _BY_STOP

    def pause(self) -> None:
        self._paused |= _BY_SUBSCRIBER

    def resume(self) -> None:
        self._resume(_BY_SUBSCRIBER)

    # --- bounds ---

    def keep(self, size_bytes: int) -> bool:
        """Count the bytes of unfinished commands; small amounts, and those of a closed connection, are ignored."""
        if size_bytes <= WATCHED_BYTES_MIN:
            size_bytes = 0
        if self._subscriber is not None and size_bytes != self._being_done_bytes:
            self._being_done_bytes = size_bytes
            self._path.watch(self)
            self._hold(self._transport.get_write_buffer_size())
        return not self._path.admission.crowded

    def ping(self) -> None:
        """Ping a silent peer; drop one that was pinged and stayed silent, unless reading is paused."""
        if self.heard or self._paused:
            self.heard = self.pinged = False
        elif self.pinged:
            self.drop("no sign of life")
        else:
            self.send_ping()

    def send_ping(self) -> None:
        """Ask the peer for a PONG."""
        self.pinged = True
        self._write(frame(PING, b""), burst=False)

    def check(self, now_s: float) -> bool:
        """Check the deadlines and the backlog; return whether the connection still needs watching."""
        if self._closing_at_s is not None and now_s - self._closing_at_s >= FRAME_S_MAX:
            self.drop("it did not close in time")
            return False
        if self._transport.is_closing():
            self._wake()
            return self._closing_at_s is not None
        if reason := self._missed_deadline(now_s):
            self.expel(reason)
            return False
        waiting = self._transport.get_write_buffer_size()
        self._hold(waiting)
        if self._backlog is not None:
            self._obey(self._backlog.check(waiting, now_s))
            if waiting <= WATCHED_BYTES_MIN:
                self._backlog = None
        is_at_rest = self.stranger_since_s is None and self._unfinished_since_s is None and not self._held_bytes
        return not is_at_rest or self._backlog is not None or self._closing_at_s is not None

    def _missed_deadline(self, now_s: float) -> str:
        """Return which deadline the peer has missed, if any.  While we do not read, a message cannot be completed."""
        if self.stranger_since_s is not None and now_s - self.stranger_since_s >= HANDSHAKE_S_MAX:
            return f"it did not say who it is within {HANDSHAKE_S_MAX:g} s"
        if self._unfinished_bytes <= 0 or self._paused:
            self._unfinished_since_s = None
        elif self._unfinished_since_s is None:
            self._unfinished_since_s = now_s
        elif now_s - self._unfinished_since_s >= FRAME_S_MAX:
            return f"a message was not complete after {FRAME_S_MAX:g} s"
        return ""

    def _write(self, data: bytes, *, burst: bool) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(data)
        waiting = self._transport.get_write_buffer_size()
        if waiting <= WATCHED_BYTES_MIN:
            return
        now_s = self._path.clock()
        if self._backlog is None:
            self._backlog = Backlog(waiting - len(data), now_s)
            self._path.watch(self)
        self._hold(waiting)
        crowded = self._path.admission.crowded
        self._obey(self._backlog.wrote(len(data), waiting, now_s, burst=burst, crowded=crowded))

    def _obey(self, verdict: Verdict) -> None:
        if verdict is Verdict.PAUSE:
            self._paused |= _BY_BACKLOG
        elif verdict is Verdict.RESUME:
            self._resume(_BY_BACKLOG)
        elif verdict is Verdict.DROP:
            self.give_up()

    def give_up(self) -> None:
        """End a connection whose peer does not read."""
        self.expel("it does not read its answers")

    def _resume(self, by: int) -> None:
        self._paused &= ~by
        if not self._paused:
            self._wake()

    def _wake(self) -> None:
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)

    def _hold(self, waiting_bytes: int) -> None:
        """Count the unsent bytes and the other memory of this connection into the memory of all."""
        held_bytes = waiting_bytes + max(self._unfinished_bytes, 0) + self._being_done_bytes
        self._path.admission.held_bytes += held_bytes - self._held_bytes
        self._held_bytes = held_bytes
