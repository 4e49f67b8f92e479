"""WebSocketDoor: one connection by WebSocket of any protocol: what it sends, what it may hold, how it ends.

    frames that wait --> a subclass decodes them --> one Received --> subscriber --> send --> one write --> socket

Frames that came together are told together, as far as they are within the share of one connection; the others stay with
aiohttp, which has a bound of its own, until the next turn.  Must never look inside a command, or answer one itself.
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

WATCHED_BYTES_MIN = 64 * 1024  # less than this unread is nothing to watch
CONTROL_BYTES = 6  # of a client's control frame, its payload apart (RFC 6455, 5.2: masked)
REASON_BYTES_MAX = 120  # a control frame has at most 125 bytes, two of them the code

_BY_SUBSCRIBER, _BY_BACKLOG, _BY_STOP = 1, 2, 4  # who paused reading


class Path(Protocol):
    """The path at which connections are made, as one of them sees it."""

    admission: Admission

    def clock(self) -> float: ...

    def watch(self, door: Any, /) -> None: ...

    def spawn(self, work: Coroutine[Any, Any, None], /) -> None: ...


class WebSocketDoor(Generic[ReplyT]):
    """See the head of this file."""

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
        self._subscriber: Told | None = None
        self._frames: list[Any] | None = None  # received in this turn of the loop, not told yet
        self._taken = 0  # frames since the last were told, or since the last turn
        self._turn: asyncio.Future[None] | None = None  # awaited before more is taken
        self._paused = 0
        self._resumed: asyncio.Future[None] | None = None
        self._backlog: Backlog | None = None
        self._held_bytes = 0
        self._being_done_bytes = 0  # of commands that were told and are not done
        self._closing_at_s: float | None = None
        self._reason = ""
        self.heard = True
        self.pinged = False
        self.access: Access | None = None  # by the token of the request, if it had one
        self.stranger_since_s: float | None = None
        self._unfinished_bytes = 0  # of frames and fragments that are no message yet, as far as one can tell
        self._unfinished_since_s: float | None = None

    # --- what a protocol says ---

    @abstractmethod
    def kept(self, message: WSMessage, /) -> Any:
        """Return what is to be decoded of a text or binary message."""

    @abstractmethod
    def decode(self, frames: list[Any], /) -> Received[Any]:
        """Make commands of what was kept."""

    @abstractmethod
    def encode(self, replies: Sequence[ReplyT], /) -> bytes:
        """Make whole frames of replies."""

    @abstractmethod
    def is_burst(self, replies: Sequence[ReplyT], /) -> bool:
        """Whether these are such answers of which many may wait unread."""

    # --- the socket's side ---

    def begin(self, subscriber: Told) -> None:
        """From now on this is who is told."""
        self._subscriber = subscriber

    def hears(self, size_bytes: int) -> None:
        """So much came, which may be the end of a message or only a part."""
        self._unfinished_bytes += size_bytes
        self._path.watch(self)

    def end(self, reason: str) -> None:
        """The connection is gone: tell what came before, then that."""
        self._tell()
        subscriber, self._subscriber = self._subscriber, None
        self._path.admission.held_bytes -= self._held_bytes
        if subscriber is not None:
            subscriber.tell(Closed(self._reason or reason))

    async def read(self) -> str:
        """Receive until the connection ends; return why it did."""
        while True:
            message = await self._socket.receive()
            self.heard = True
            match message.type:
                case WSMsgType.TEXT | WSMsgType.BINARY:
                    self._unfinished_bytes = 0
                    self._unfinished_since_s = None
                    self._take(self.kept(message))
                case WSMsgType.PING | WSMsgType.PONG if type(message.data) is bytes:  # aiohttp unmasks in a bytearray
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
                await self._next_turn()
            if self._paused:
                self._tell()
                await self._until_resumed()

    def _take(self, received: Any) -> None:
        """Keep a frame until the loop's next turn: those that wait behind it are told with it."""
        if self._frames is None:
            self._frames = []
            asyncio.get_running_loop().call_soon(self._tell)
        self._frames.append(received)

    async def _next_turn(self) -> None:
        self._turn = asyncio.get_running_loop().create_future()
        self._path.admission.rounds.wait(self)
        await self._turn
        self._turn = None

    def take_turn(self) -> None:
        """Go on with what aiohttp has read."""
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def _tell(self) -> None:
        frames, self._frames = self._frames, None
        self._taken = 0
        if frames and self._subscriber is not None:
            self._subscriber.tell(self.decode(frames))

    async def _until_resumed(self) -> None:
        while self._paused and not self._transport.is_closing():
            self._resumed = asyncio.get_running_loop().create_future()
            await self._resumed
        self._resumed = None

    # --- the subscriber's side ---

    @property
    def subscriber(self) -> Told | None:
        """Who is told what comes; None once the connection is gone."""
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
        """Close at once; what waits to be written is lost."""
        self._reason = self._reason or reason
        self._transport.abort()
        self._wake()

    def expel(self, reason: str) -> None:
        """Drop it, and have the log say why: its peer has done what it should not, and may never hear so."""
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
        """A little is nothing to count, and of a connection that is gone nothing is."""
        if size_bytes <= WATCHED_BYTES_MIN:
            size_bytes = 0
        if self._subscriber is not None and size_bytes != self._being_done_bytes:
            self._being_done_bytes = size_bytes
            self._path.watch(self)
            self._hold(self._transport.get_write_buffer_size())
        return not self._path.admission.crowded

    def ping(self) -> None:
        """Ask a silent peer for a sign; drop one that was asked and gave none (unless we do not listen)."""
        if self.heard or self._paused:
            self.heard = self.pinged = False
        elif self.pinged:
            self.drop("no sign of life")
        else:
            self.ask_for_a_sign()

    def ask_for_a_sign(self) -> None:
        """Have the peer answer, if it is there."""
        self.pinged = True
        self._write(frame(PING, b""), burst=False)

    def check(self, now_s: float) -> bool:
        """Look at the connection again; return whether there is still something to watch."""
        if self._closing_at_s is not None and now_s - self._closing_at_s >= FRAME_S_MAX:
            self.drop("it did not close in time")
            return False
        if self._transport.is_closing():
            self._wake()
            return self._closing_at_s is not None
        if reason := self._takes_too_long(now_s):
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

    def _takes_too_long(self, now_s: float) -> str:
        """Return what is missing for too long.  While we do not read, the rest of a message cannot come."""
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
        """The peer does not read what it is sent."""
        self.expel("it does not read its answers")

    def _resume(self, by: int) -> None:
        self._paused &= ~by
        if not self._paused:
            self._wake()

    def _wake(self) -> None:
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)

    def _hold(self, waiting_bytes: int) -> None:
        """Count what is held for this connection, of which this is written and not sent, into what is held for all."""
        held_bytes = waiting_bytes + max(self._unfinished_bytes, 0) + self._being_done_bytes
        self._path.admission.held_bytes += held_bytes - self._held_bytes
        self._held_bytes = held_bytes
