"""TcpDoor: one TCP connection of any protocol: it reads, sends, and closes.

    socket --> its share of a round --> a subclass decodes the bytes --> session --> send --> one write --> socket

An idle connection is one small object and its transport: no buffer, timer or task of its own.  A connection that has
sent more than its share keeps the rest here until its next turn, and reads nothing meanwhile.  A door must never look
at the commands that it receives, or answer them.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

from wakeq.actors.runtime.rounds import COMMAND_BYTES, SHARE_BYTES_MAX, SHARE_COMMANDS_MAX
from wakeq.actors.sessions.access import Access
from wakeq.actors.sessions.door import STRANGER_BYTES_MAX, Admission, Closed, Ended, Told
from wakeq.net.bounds import BY_REST, BY_SESSION, BY_STOP, WATCHED_BYTES_MIN, Bounds

ReplyT = TypeVar("ReplyT")

CROWDED = "all connections together hold too much, and this one sends faster than it is served"


class Port(Protocol):
    """The listener, as a connection sees it."""

    admission: Admission

    def clock(self) -> float: ...

    def enter(self, door: Any, /) -> None: ...

    def leave(self, door: Any, /, *, entered: bool) -> None: ...

    def depart(self, door: Any, /) -> None: ...

    def watch(self, door: Any, /) -> None: ...

    def unwatch(self, door: Any, /) -> None: ...

    def welcome(self, door: Any, /) -> None: ...

    def is_stranger(self, door: Any, /) -> bool: ...


class _Rest:
    """Bytes that were read and wait for the next turn of their connection."""

    __slots__ = ("data", "has_ended", "is_lost", "is_waiting", "taken_bytes")

    def __init__(self, data: bytes, taken_bytes: int) -> None:
        self.data = data
        # Of the data, those that the session has received.
        self.taken_bytes = taken_bytes
        # Whether the connection waits for a turn.
        self.is_waiting = False
        # Whether the peer has shut its side, or the connection is lost; the session hears so when the rest is taken.
        self.has_ended = self.is_lost = False


class TcpDoor(asyncio.Protocol, Generic[ReplyT]):
    """One connection; a subclass knows the protocol."""

    __slots__ = ("_bounds", "_is_shut", "_listener", "_rest", "_subscriber", "_transport", "counted_at")

    # The first command says what the connection may do.
    access: Access | None = None
    # Whether reading pauses as soon as much is unread, also behind a burst of publishes.
    pauses_early = False

    def __init__(self, listener: Port) -> None:
        self._listener = listener
        # None once the connection is lost.
        self._transport: asyncio.Transport | None = None
        # The session; None before `begin`, after the end, and for a connection that was turned away.
        self._subscriber: Told | None = None
        # Exist only while something is unusual: a connection that is closing, paused, or holds much.
        self._bounds: Bounds | None = None
        # Exists only while reading is paused BY_REST.
        self._rest: _Rest | None = None
        # Whether our side of the stream is shut: nothing more can be sent.
        self._is_shut = False
        # The address for which the connection is counted, if connections are counted by address.
        self.counted_at = ""

    # --- the protocol, in a subclass ---

    @property
    @abstractmethod
    def unfinished_bytes(self) -> int:
        """How many bytes of an incomplete command are held."""

    @abstractmethod
    def take(self, data: bytes, at: int, commands_max: int, /) -> int:
        """Send the complete commands behind `at` to the session, at most so many; return where they end."""

    @abstractmethod
    def encode(self, replies: Sequence[ReplyT], /) -> bytes:
        """Make bytes of replies."""

    @abstractmethod
    def is_burst(self, replies: Sequence[ReplyT], /) -> bool:
        """Whether these are replies of a kind that may wait unread in large numbers."""

    @abstractmethod
    def forget_unfinished(self) -> None:
        """Drop an incomplete command: nothing more will come."""

    @abstractmethod
    def turn_away(self, reason: str, /) -> None:
        """Refuse this connection because there are too many; it never gets a session."""

    # --- the socket's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._listener.enter(self)

    def data_received(self, data: bytes) -> None:
        """Take the bytes of one read, unless they are more than the share of one connection."""
        rounds, size = self._listener.admission.rounds, len(data)
        if self._bounds is not None or size > SHARE_BYTES_MAX or rounds.left <= 0 or rounds.waiting:
            self._take_share(data)
            return
        end = self.take(data, 0, SHARE_COMMANDS_MAX)
        rounds.left -= size // COMMAND_BYTES
        if end < size:
            self._keep_rest(data, end)

    def _take_share(self, data: bytes) -> None:
        if not self.receives:
            return
        rest = self._rest
        if rest is not None:
            # TLS may still pass on data after reading was paused.
            rest.data, rest.taken_bytes = rest.data[rest.taken_bytes :] + data, 0
            self._watch().hold(self)
            return
        end = self._take_some(data, 0) if self._listener.admission.rounds.left > 0 else 0
        if end < len(data):
            self._keep_rest(data, end)

    def _keep_rest(self, data: bytes, taken_bytes: int) -> None:
        """Keep what is more than a share until the next turn, and read no more."""
        if not self.receives:
            return
        self._rest = _Rest(data, taken_bytes)
        bounds = self._watch()
        bounds.pause(self, BY_REST)
        bounds.hold(self)
        if self._listener.admission.crowded:
            self.expel(CROWDED)
        else:
            self._wait_for_turn(self._rest)

    def _take_some(self, data: bytes, at: int) -> int:
        rounds = self._listener.admission.rounds
        end = self.take(data, at, rounds.share)
        rounds.left -= (end - at) // COMMAND_BYTES
        return end

    def _wait_for_turn(self, rest: _Rest) -> None:
        if not rest.is_waiting:
            rest.is_waiting = True
            self._listener.admission.rounds.wait(self)

    def take_turn(self) -> None:
        """Take a share of the rest; when nothing is left of it, read again or report the end of the connection."""
        rest, bounds = self._rest, self._bounds
        if rest is None or bounds is None:
            return
        if bounds.paused != BY_REST:
            # `_resume` asks for another turn when nothing else pauses reading.
            rest.is_waiting = False
            return
        rest.taken_bytes = self._take_some(rest.data, rest.taken_bytes)
        if self._rest is not rest:
            # A command of the rest has ended the connection.
            return
        rest.is_waiting = False
        if rest.taken_bytes < len(rest.data):
            bounds.hold(self)
            self._wait_for_turn(rest)
            return
        self._rest = None
        bounds.hold(self)
        self._resume(BY_REST)
        if rest.is_lost:
            self._leave(bounds.reason)
        elif rest.has_ended:
            self._report_end()

    def eof_received(self) -> bool:
        """The peer sends no more; it may still wait for answers (`printf ... | nc`), or be gone.

        A TLS connection cannot be half closed: there it is gone.
        """
        if self._transport is None or not self._transport.can_write_eof():
            return False
        if self._rest is not None:
            self._rest.has_ended = True
        else:
            self._report_end()
        return True

    def _report_end(self) -> None:
        if self._subscriber is not None:
            self._subscriber.tell(Ended())
        else:
            self.hang_up()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        rest, bounds = self._rest, self._bounds
        reason = f"connection lost: {exc}" if exc else "closed by peer"
        if rest is not None and bounds is not None and not bounds.reason and not bounds.paused & BY_STOP:
            rest.is_lost, bounds.reason = True, reason
            # Commands that have arrived are carried out, though their answers cannot be sent.
            bounds.paused &= BY_REST
            self._wait_for_turn(rest)
        else:
            self._leave(bounds.reason if bounds is not None and bounds.reason else reason)

    def _leave(self, reason: str) -> None:
        """Forget the rest, and tell listener and session that the connection is gone."""
        subscriber, self._subscriber = self._subscriber, None
        self._forget_rest()
        if self._bounds is not None:
            self._bounds.release()
            self._bounds = None
        self._listener.leave(self, entered=subscriber is not None)
        if subscriber is not None:
            subscriber.tell(Closed(reason))

    def _forget_rest(self) -> None:
        self.forget_unfinished()
        self._rest = None

    def stop_receiving(self) -> None:
        """Discard further input: closing a socket with unread input would destroy the last answer."""
        self._forget_rest()
        bounds = self._watch()
        bounds.resume(self, bounds.paused)
        bounds.begin_closing()

    @property
    def receives(self) -> bool:
        """Whether further input is taken."""
        bounds = self._bounds
        return self._subscriber is not None and (bounds is None or bounds.closing_at_s is None)

    @property
    def holds_work(self) -> bool:
        """Whether unfinished commands of this connection count among the memory of all."""
        return self._bounds is not None and self._bounds.work_bytes > 0

    @property
    def exceeds_stranger_bytes(self) -> bool:
        """Whether a peer has begun a longer command than authentication needs, and has not authenticated."""
        return self.unfinished_bytes > STRANGER_BYTES_MAX and self._listener.is_stranger(self)

    # --- the session's side ---

    @property
    def subscriber(self) -> Told | None:
        """The session; None once the connection is gone, or if it was turned away."""
        return self._subscriber

    @property
    def peer(self) -> str:
        if self._transport is None:
            return ""
        address = self._transport.get_extra_info("peername")
        return f"{address[0]}:{address[1]}" if address else ""

    def welcome(self) -> None:
        self._listener.welcome(self)

    def begin(self, subscriber: Told) -> None:
        """Send every command to this session from now on."""
        self._subscriber = subscriber

    def send(self, replies: Sequence[ReplyT]) -> None:
        transport = self._transport
        if transport is None or self._is_shut or transport.is_closing():
            return
        data = self.encode(replies)
        transport.write(data)
        if transport.get_write_buffer_size() > WATCHED_BYTES_MIN:
            self._watch().wrote(self, len(data), burst=self.is_burst(replies), crowded=self.pauses_early)

    def hang_up(self) -> None:
        """Close soon: the listener closes a few connections in each round, because thousands may end at once."""
        self._listener.depart(self)

    def close(self, reason: str) -> None:
        """Shut our side behind the last answer, and discard further input."""
        self._leave_early()
        if self._transport is None or self._is_shut or self._transport.is_closing():
            return
        bounds = self._watch()
        if bounds.closing_at_s is None:
            self.stop_receiving()
        bounds.reason = reason
        bounds.begin_closing()
        if self._transport.can_write_eof():
            # The peer closes when it has read that far, or the sweep closes.
            self._is_shut = True
            self._transport.write_eof()
        else:
            self._transport.close()

    def refuse(self, replies: Sequence[ReplyT], reason: str) -> None:
        """Send these replies and close, without ever having a session."""
        self.stop_receiving()
        if replies:
            self.send(replies)
        self.close(reason)

    def finish(self) -> None:
        """Close altogether: the peer has closed, or had time to."""
        if self._transport is not None and not self._transport.is_closing():
            if self._transport.get_write_buffer_size():
                self._watch().begin_closing()
            self._transport.close()

    def drop(self, reason: str) -> None:
        """Close at once; unsent bytes are lost."""
        if self._transport is not None:
            self._watch().reason = reason
            self._transport.abort()

    def expel(self, reason: str) -> None:
        """Drop the connection and log why, because its peer misbehaved and may never read a reason."""
        if self._transport is not None and not (self._is_shut or self._transport.is_closing()):
            self._listener.admission.expelled(self.peer, reason)
        self.drop(reason)

    def give_up(self) -> None:
        self.expel("it does not read its answers")

    def stop_reading(self) -> None:
        self._pause(BY_STOP)
        self._leave_early()

    def _leave_early(self) -> None:
        """Forget the rest of a lost connection."""
        if self._rest is not None and self._rest.is_lost and self._bounds is not None:
            self._leave(self._bounds.reason)

    def pause(self) -> None:
        self._pause(BY_SESSION)

    def resume(self) -> None:
        self._resume(BY_SESSION)

    def _pause(self, by: int) -> None:
        if self.receives:
            self._watch().pause(self, by)

    def _resume(self, by: int) -> None:
        if self._bounds is not None:
            self._bounds.resume(self, by)
            if self._rest is not None and self._bounds.paused == BY_REST:
                self._wait_for_turn(self._rest)

    # --- bounds ---

    @property
    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    @property
    def received_bytes(self) -> int:
        rest = self._rest
        return self.unfinished_bytes + (len(rest.data) - rest.taken_bytes if rest is not None else 0)

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def keep(self, size_bytes: int) -> bool:
        """Count the bytes of unfinished commands; those of a lost connection are ignored."""
        if self._transport is not None and (size_bytes > WATCHED_BYTES_MIN or self._bounds is not None):
            self._watch().keep(self, size_bytes)
        return not self._listener.admission.crowded

    def check(self, now_s: float) -> None:
        """Check the deadlines and the unsent replies of a watched connection (the listener's sweep)."""
        bounds = self._bounds
        if bounds is None or self._transport is None:
            return
        bounds.check(self, now_s)
        if self._rest is not None and bounds.paused == BY_REST:
            # The peer has read its replies, and nothing else asks for a turn.
            self._wait_for_turn(self._rest)
        if bounds.at_rest:
            self._bounds = None
            self._listener.unwatch(self)

    def _watch(self) -> Bounds:
        """Have the listener watch the connection; return its bounds."""
        if self._bounds is None:
            self._bounds = Bounds(self._listener.admission, self._listener.clock)
            self._listener.watch(self)
        return self._bounds
