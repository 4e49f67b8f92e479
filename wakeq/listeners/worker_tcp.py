"""The worker protocol over TCP: JSON lines in, JSON lines out.

    socket --> lines --> decode --> one Received --> subscriber --> send --> one write --> socket

What one read brought is told once.  A connection at rest is one small object and its transport: no buffer,
timer or task of its own.  Must never look inside a command, or answer one itself.
"""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from wakeq.actors.door import (
    DOOR_WORKER_TCP,
    FRAME_S_MAX,
    Admission,
    Backlog,
    Closed,
    Ended,
    MakeSubscriber,
    Received,
    Told,
    Verdict,
)
from wakeq.protocol.errors import Busy, Refused
from wakeq.protocol.wire.lines import LineReader, LineTooLong, line_bytes_max
from wakeq.protocol.wire.worker import Bad, Command, Nok, Ok, Reply, decode, encode, nok

ACCEPT_BACKLOG = 4096  # connections that the kernel keeps until they are accepted
KEEPALIVE_IDLE_S, KEEPALIVE_EVERY_S, KEEPALIVE_TRIES = 5, 2, 3
MESSAGE_BYTES_MAX = 1024 * 1024
SWEEP_EVERY_S = 1.0
WATCHED_BYTES_MIN = 64 * 1024  # less than this unread is nothing to watch
CLOSE_SLICE = 128  # connections closed in one turn of the loop

GOODBYE_S_MAX = 1.0  # for peers to hear that we stop, and to close

_BY_SUBSCRIBER, _BY_BACKLOG = 1, 2  # who paused reading
_ENDED = 4  # what comes is thrown away: to close with bytes unread would destroy the last answer on its way
_SAID_GOODBYE = 8  # our side of the stream is shut
_BY_STOP = 16  # the broker stops: what was read is answered, more is not read


class _Watch:
    """What the sweep must know about a connection that is not at rest."""

    __slots__ = ("backlog", "closing_at_s", "held_bytes", "line_since_s", "reason")

    def __init__(self) -> None:
        self.backlog: Backlog | None = None
        self.line_since_s: float | None = None
        self.closing_at_s: float | None = None
        self.held_bytes = 0
        self.reason = ""

    @property
    def at_rest(self) -> bool:
        return self.backlog is None and self.line_since_s is None and self.closing_at_s is None


class WorkerTcpDoor(asyncio.Protocol):
    """One connection."""

    __slots__ = ("_listener", "_reader", "_state", "_subscriber", "_transport", "_watch")

    kind = DOOR_WORKER_TCP

    def __init__(self, listener: "WorkerTcpListener") -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._subscriber: Told | None = None
        self._reader: LineReader | None = None  # only while a line is unfinished
        self._watch: _Watch | None = None  # only while something is unusual
        self._state = 0

    # --- the socket's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._listener.enter(self)

    def data_received(self, data: bytes) -> None:
        if self._subscriber is None or self._state & _ENDED:
            return
        if self._reader is None and data.endswith(b"\n") and len(data) <= self._listener.line_bytes_max:
            commands = decode(data)
        else:
            commands = self._cut(data)
        if commands:
            self._subscriber.arrive(Received(commands, len(data)))

    def eof_received(self) -> bool:
        """The peer says no more; it may wait for answers (`printf ... | nc`), or be gone."""
        if self._subscriber is not None:
            self._subscriber.tell(Ended())
        else:
            self.hang_up()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        subscriber, watch = self._subscriber, self._watch
        self._transport = self._subscriber = self._reader = None
        self._listener.leave(self, watch.held_bytes if watch else 0, entered=subscriber is not None)
        if subscriber is not None:
            reason = watch.reason if watch and watch.reason else f"connection lost: {exc}" if exc else "closed by peer"
            subscriber.tell(Closed(reason))

    def _cut(self, data: bytes) -> list[Command | Bad]:
        """Take data with an unfinished line before or after it."""
        reader = self._reader or LineReader(self._listener.line_bytes_max)
        try:
            lines = reader.receive(data)
        except LineTooLong as error:
            return self._end(error.lines, error)
        watch = self._watched()
        if not reader.waiting_bytes:
            self._reader = watch.line_since_s = None
        else:
            if self._reader is None or lines:
                watch.line_since_s = self._listener.clock()
            self._reader = reader
        self._hold()
        if self._listener.admission.crowded and self._reader is not None:
            self._reader = None
            return self._end(lines, Busy("too much is unfinished on all connections together; try again later"))
        return decode(lines) if lines else []

    def _end(self, lines: bytes, error: Refused) -> list[Command | Bad]:
        """Return the last that will be received: the subscriber answers it, and closes."""
        self._reader = None
        self._resume(_BY_SUBSCRIBER | _BY_BACKLOG)
        self._state |= _ENDED
        self._watched().closing_at_s = self._listener.clock()
        return [*decode(lines), Bad(error)]

    # --- the subscriber's side ---

    @property
    def peer(self) -> str:
        if self._transport is None:
            return ""
        address = self._transport.get_extra_info("peername")
        return f"{address[0]}:{address[1]}" if address else ""

    def begin(self, subscriber: Told) -> None:
        """From now on this is who is told."""
        self._subscriber = subscriber

    def send(self, replies: Sequence[Reply]) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or self._state & _SAID_GOODBYE:
            return
        data = encode(replies)
        transport.write(data)
        waiting = transport.get_write_buffer_size()
        if waiting > WATCHED_BYTES_MIN:
            self._weigh(replies, len(data), waiting)

    def hang_up(self) -> None:
        """Perhaps thousands end at once: the listener closes a few in each turn."""
        self._listener.depart(self)

    def close(self, reason: str) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        watch = self._watched()
        watch.reason = reason
        watch.closing_at_s = self._listener.clock()
        if self._state & (_ENDED | _SAID_GOODBYE) == _ENDED:
            self._state |= _SAID_GOODBYE
            self._transport.write_eof()  # the peer closes when it has read that far, or the sweep does
        else:
            self._transport.close()

    def say_goodbye(self, reason: str) -> None:
        """Shut our side behind the last answer and throw away what still comes, so that the answer is not lost."""
        if self._transport is None or self._transport.is_closing() or self._state & _SAID_GOODBYE:
            return
        if self._state and not self._state & _ENDED:
            self._transport.resume_reading()
        self._state = _ENDED
        self.close(reason)

    def turn_away(self, reply: Reply, reason: str) -> None:
        """Say why, and close, without ever having a subscriber."""
        self._state |= _ENDED
        self.send([reply])
        self.close(reason)

    def finish(self) -> None:
        """Close after the peer has, without a reason of our own."""
        if self._transport is not None and not self._transport.is_closing():
            if self._transport.get_write_buffer_size():
                self._watched().closing_at_s = self._listener.clock()
            self._transport.close()

    def drop(self, reason: str) -> None:
        """Close at once; what waits to be written is lost."""
        if self._transport is None:
            return
        self._watched().reason = reason
        self._transport.abort()

    def stop_reading(self) -> None:
        self._pause(_BY_STOP)

    def pause(self) -> None:
        self._pause(_BY_SUBSCRIBER)

    def resume(self) -> None:
        self._resume(_BY_SUBSCRIBER)

    # --- bounds ---

    def check(self, now_s: float) -> None:
        """Look at the connection again, if something was unusual (the listener's sweep)."""
        watch, transport = self._watch, self._transport
        if watch is None or transport is None:
            return
        if watch.closing_at_s is not None and now_s - watch.closing_at_s >= FRAME_S_MAX:
            self.drop(watch.reason or "it did not close in time")
        elif watch.line_since_s is not None and now_s - watch.line_since_s >= FRAME_S_MAX and not self._state:
            self.drop(f"a line was not complete after {FRAME_S_MAX:g} s")
        elif watch.backlog is not None:
            self._check_backlog(watch, watch.backlog, transport.get_write_buffer_size(), now_s)
        self._hold()
        if watch.at_rest:
            self._watch = None
            self._listener.unwatch(self)

    def _check_backlog(self, watch: _Watch, backlog: Backlog, waiting: int, now_s: float) -> None:
        self._obey(backlog.check(waiting, now_s))
        if waiting <= WATCHED_BYTES_MIN:
            watch.backlog = None

    def _weigh(self, replies: Sequence[Reply], size: int, waiting: int) -> None:
        """See whether the peer reads what it is sent."""
        watch, now_s = self._watched(), self._listener.clock()
        if watch.backlog is None:
            watch.backlog = Backlog(waiting - size, now_s)
        burst = all(type(reply) is Ok or type(reply) is Nok for reply in replies)
        crowded = self._listener.admission.crowded
        self._hold()
        self._obey(watch.backlog.wrote(size, waiting, now_s, burst=burst, crowded=crowded))

    def _obey(self, verdict: Verdict) -> None:
        if verdict is Verdict.PAUSE:
            self._pause(_BY_BACKLOG)
        elif verdict is Verdict.RESUME:
            self._resume(_BY_BACKLOG)
        elif verdict is Verdict.DROP:
            self.drop("it does not read its answers")

    def _pause(self, by: int) -> None:
        if self._state & _ENDED:
            return
        if self._transport is not None and not self._state and not self._transport.is_closing():
            self._transport.pause_reading()
        self._state |= by

    def _resume(self, by: int) -> None:
        was, self._state = self._state, self._state & ~by
        if not was or self._state or self._transport is None or self._transport.is_closing():
            return
        if self._watch is not None and self._watch.line_since_s is not None:
            self._watch.line_since_s = self._listener.clock()  # the peer could not go on while we did not read
        self._transport.resume_reading()

    def _watched(self) -> _Watch:
        if self._watch is None:
            self._watch = _Watch()
            self._listener.watch(self)
        return self._watch

    def _hold(self) -> None:
        """Count what is held for this connection into what is held for all."""
        watch, transport = self._watch, self._transport
        if watch is None or transport is None:
            return
        held = transport.get_write_buffer_size() + (self._reader.waiting_bytes if self._reader else 0)
        self._listener.admission.held_bytes += held - watch.held_bytes
        watch.held_bytes = held


class WorkerTcpListener:
    """The port: accepts connections, keeps count of them, and looks after those that are not at rest."""

    def __init__(
        self,
        make_subscriber: MakeSubscriber,
        *,
        admission: Admission | None = None,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.admission = admission or Admission()
        self.line_bytes_max = line_bytes_max(message_bytes_max)
        self.clock = clock or asyncio.get_running_loop().time
        self.doors: set[WorkerTcpDoor] = set()
        self.refused = 0  # connections turned away because there were too many
        self._make_subscriber = make_subscriber
        self._watched: set[WorkerTcpDoor] = set()
        self._departed: deque[WorkerTcpDoor] = deque()  # their peers have closed, they have not
        self._sweeping: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None
        self._empty = asyncio.Event()

    async def start(self, host: str, port: int) -> int:
        """Accept connections; return the real port."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        listening = _listening_socket(found[0][0], found[0][4])
        self._server = await loop.create_server(lambda: WorkerTcpDoor(self), sock=listening, backlog=ACCEPT_BACKLOG)
        return int(listening.getsockname()[1])

    def stop_reading(self) -> None:
        """Take no more connections and no more commands; what was taken is still answered."""
        if self._server is not None:
            self._server.close()
        for door in self.doors:
            door.stop_reading()

    async def close(self, reason: str = "the broker stops") -> None:
        """Accept nothing more, then close what is open, a few in each turn of the loop."""
        if self._server is not None:
            self._server.close()
        self._empty.clear()
        for door in list(self.doors):
            door.say_goodbye(reason)
        if self.doors:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), GOODBYE_S_MAX)
        for place, door in enumerate(list(self.doors)):
            door.close(reason)
            door.finish()  # also those whose peer has not closed yet
            if place % CLOSE_SLICE == CLOSE_SLICE - 1:
                await asyncio.sleep(0)
        if self.doors:
            await self._empty.wait()
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    # --- what the doors tell it ---

    def enter(self, door: WorkerTcpDoor) -> None:
        """A connection was made: give it a subscriber, or turn it away."""
        self.doors.add(door)
        if self.admission.enter():
            door.begin(self._make_subscriber(door))
            return
        self.refused += 1
        error = Busy(f"there are {self.admission.connections_max} connections already")
        door.turn_away(nok(error), "too many connections")

    def leave(self, door: WorkerTcpDoor, held_bytes: int, *, entered: bool) -> None:
        """A connection is gone."""
        self.doors.discard(door)
        self._watched.discard(door)
        self.admission.held_bytes -= held_bytes
        if entered:
            self.admission.leave()
        if not self.doors:
            self._empty.set()

    def depart(self, door: WorkerTcpDoor) -> None:
        """The peer of this connection has closed."""
        if not self._departed:
            asyncio.get_running_loop().call_soon(self._finish_some)
        self._departed.append(door)

    def _finish_some(self) -> None:
        for _ in range(min(CLOSE_SLICE, len(self._departed))):
            self._departed.popleft().finish()
        if self._departed:
            asyncio.get_running_loop().call_soon(self._finish_some)

    def watch(self, door: WorkerTcpDoor) -> None:
        """Look at this connection from time to time."""
        self._watched.add(door)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(SWEEP_EVERY_S, self._sweep_again)

    def unwatch(self, door: WorkerTcpDoor) -> None:
        self._watched.discard(door)

    def sweep(self) -> None:
        """Look at all connections that are not at rest: one timer for the whole port."""
        now_s = self.clock()
        for door in list(self._watched):
            door.check(now_s)

    def _sweep_again(self) -> None:
        self._sweeping = None
        self.sweep()
        if self._watched and self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(SWEEP_EVERY_S, self._sweep_again)


def _listening_socket(family: int, address: Any) -> socket.socket:
    """Return a bound socket.  On Linux each accepted connection inherits its options."""
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_EVERY_S)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_TRIES)
        listening.setblocking(False)
        listening.bind(address)
    except OSError:
        listening.close()
        raise
    return listening
