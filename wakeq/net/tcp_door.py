"""TcpDoor: one TCP connection of any protocol: how it sends, what it may hold in memory, how it is paused and closed.

    socket --> its share of a turn --> a subclass decodes the bytes --> subscriber --> send --> one write --> socket

An idle connection is one small object and its transport: no buffer, timer or task of its own.  Of one that was sent
more than its share the rest is kept here until its next turn, and nothing is read.  It must never look at what is
received, or answer it.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

from wakeq.actors.runtime.rounds import COMMAND_BYTES, SHARE_BYTES_MAX, SHARE_COMMANDS_MAX
from wakeq.actors.sessions.access import Access
from wakeq.actors.sessions.door import FRAME_S_MAX, STRANGER_BYTES_MAX, Admission, Backlog, Closed, Ended, Told, Verdict

ReplyT = TypeVar("ReplyT")

WATCHED_BYTES_MIN = 64 * 1024  # unread replies from which on a connection is watched

_BY_SUBSCRIBER, _BY_BACKLOG = 1, 2  # who paused reading
_ENDED = 4  # more input is read and thrown away: closing a socket with unread input would destroy the last answer
_SAID_GOODBYE = 8  # our side of the stream is shut
_BY_STOP = 16  # the broker is stopping: what was read is answered, more is not read
_BEHIND = 32  # bytes that were read wait for the next turn
_BY_ANYBODY = _BY_SUBSCRIBER | _BY_BACKLOG | _BY_STOP | _BEHIND
CROWDED = "too much is held for all connections together, and it sends faster than it is served"


class Port(Protocol):
    """The listener, as a connection sees it."""

    admission: Admission

    def clock(self) -> float: ...

    def enter(self, door: Any, /) -> None: ...

    def leave(self, door: Any, held_bytes: int, /, *, entered: bool) -> None: ...

    def depart(self, door: Any, /) -> None: ...

    def watch(self, door: Any, /) -> None: ...

    def unwatch(self, door: Any, /) -> None: ...

    def welcome(self, door: Any, /) -> None: ...

    def is_stranger(self, door: Any, /) -> bool: ...


class _Watch:
    """What the listener's sweep must know about a connection in an unusual state."""

    __slots__ = (
        "backlog", "being_done_bytes", "closing_at_s", "frame_since_s", "has_ended", "held_bytes", "is_lost",
        "is_waiting", "kept", "reason", "taken_bytes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.kept = b""  # what was read last, while not all of it has been taken
        self.taken_bytes = 0  # of that
        self.is_waiting = False  # for a turn
        self.being_done_bytes = 0  # of commands that were told and are not done
        self.has_ended = self.is_lost = False  # the peer says no more, or is gone; to be told when all is taken
        self.backlog: Backlog | None = None
        self.frame_since_s: float | None = None
        self.closing_at_s: float | None = None
        self.held_bytes = 0
        self.reason = ""

    @property
    def kept_bytes(self) -> int:
        """How much was read and not taken yet."""
        return len(self.kept) - self.taken_bytes

    @property
    def at_rest(self) -> bool:
        is_usual = self.backlog is None and self.frame_since_s is None and self.closing_at_s is None
        return is_usual and not self.held_bytes  # what is held is counted for all, until it no longer is


class TcpDoor(asyncio.Protocol, Generic[ReplyT]):
    """See the head of this file."""

    __slots__ = ("_listener", "_state", "_subscriber", "_transport", "_watch", "counted_at")

    access: Access | None = None  # nothing is known before the first command
    pauses_early = False  # reading pauses as soon as the peer leaves much unread, whatever it asked for

    def __init__(self, listener: Port) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._subscriber: Told | None = None
        self._watch: _Watch | None = None  # only while something is unusual
        self._state = 0
        self.counted_at = ""  # the address for which the connection is counted, if they are counted by address

    # --- what a protocol says ---

    @property
    @abstractmethod
    def unfinished_bytes(self) -> int:
        """How many bytes are held of a command that is not complete yet."""

    @abstractmethod
    def take(self, data: bytes, at: int, commands_max: int, /) -> int:
        """Pass on what is whole of the data behind `at`, at most so many commands; return how far that is taken."""

    @abstractmethod
    def encode(self, replies: Sequence[ReplyT], /) -> bytes:
        """Make bytes of replies."""

    @abstractmethod
    def is_burst(self, replies: Sequence[ReplyT], /) -> bool:
        """Whether all of these are short answers, of which many may wait unread."""

    @abstractmethod
    def forget_unfinished(self) -> None:
        """Drop an incomplete command: nothing more will come."""

    @abstractmethod
    def turn_away(self, reason: str, /) -> None:
        """Refuse this connection because there are too many; it never gets a subscriber."""

    # --- the socket's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._listener.enter(self)

    def data_received(self, data: bytes) -> None:
        """Take what was read, unless it is more than the share of one connection."""
        rounds, size = self._listener.admission.rounds, len(data)
        if self._state or size > SHARE_BYTES_MAX or rounds.left <= 0 or rounds.waiting:
            self._take_share(data)
            return
        end = self.take(data, 0, SHARE_COMMANDS_MAX)
        rounds.left -= size // COMMAND_BYTES
        if end < size:
            self._keep(data, end)

    def _take_share(self, data: bytes) -> None:
        if not self.receives:
            return
        watch = self._watch
        if watch is not None and watch.kept:  # it came although we do not read, as with TLS it may
            watch.kept, watch.taken_bytes = watch.kept[watch.taken_bytes :] + data, 0
            self._hold()
            return
        end = self._take_some(data, 0) if self._listener.admission.rounds.left > 0 else 0
        if end < len(data):
            self._keep(data, end)

    def _keep(self, data: bytes, taken_bytes: int) -> None:
        """Keep what is more than a share until the next turn, and read no more."""
        if not self.receives:
            return
        watch = self._watched()
        watch.kept, watch.taken_bytes = data, taken_bytes
        self._pause(_BEHIND)
        self._hold()
        if self._listener.admission.crowded:
            self.expel(CROWDED)
        else:
            self._wait_for_turn(watch)

    def _take_some(self, data: bytes, at: int) -> int:
        rounds = self._listener.admission.rounds
        end = self.take(data, at, rounds.share)
        rounds.left -= (end - at) // COMMAND_BYTES
        return end

    def _wait_for_turn(self, watch: _Watch) -> None:
        if not watch.is_waiting:
            watch.is_waiting = True
            self._listener.admission.rounds.wait(self)

    def take_turn(self) -> None:
        """Take a share of what is kept, and read again when nothing is left of it."""
        watch = self._watch
        if watch is None:
            return
        watch.is_waiting = False
        if not watch.kept or self._state & _BY_ANYBODY != _BEHIND:
            return  # it is closed, or paused for another reason: whoever resumes it asks for a turn
        end = self._take_some(watch.kept, watch.taken_bytes)
        if not watch.kept:
            return  # what it said has ended the connection
        watch.taken_bytes = end
        if watch.kept_bytes:
            self._hold()
            self._wait_for_turn(watch)
        else:
            self._let_go_of_kept(watch)

    def _let_go_of_kept(self, watch: _Watch) -> None:
        """Nothing is left of what was read: go on, or tell how it ended."""
        watch.kept, watch.taken_bytes = b"", 0
        self._hold()
        self._resume(_BEHIND)
        if watch.is_lost:
            self._leave(watch)
        elif watch.has_ended:
            self._say_ended()

    def eof_received(self) -> bool:
        """The peer sends no more; it may still wait for answers (`printf ... | nc`), or be gone.

        A TLS connection cannot be half closed: there it is gone.
        """
        if self._transport is None or not self._transport.can_write_eof():
            return False
        if self._watch is not None and self._watch.kept:
            self._watch.has_ended = True
        else:
            self._say_ended()
        return True

    def _say_ended(self) -> None:
        if self._subscriber is not None:
            self._subscriber.tell(Ended())
        else:
            self.hang_up()

    def connection_lost(self, exc: Exception | None) -> None:
        watch = self._watch
        self._transport = None
        reason = watch.reason if watch and watch.reason else f"connection lost: {exc}" if exc else "closed by peer"
        if watch is not None and watch.kept and not watch.reason and not self._state & _BY_STOP:
            watch.is_lost, watch.reason = True, reason
            self._state &= _BEHIND  # commands that have arrived are carried out, whoever hears of it
            self._wait_for_turn(watch)
        else:
            self._leave(watch, reason)

    def _leave(self, watch: _Watch | None, reason: str = "") -> None:
        """The connection is over: forget what is unfinished, and tell."""
        subscriber, self._subscriber = self._subscriber, None
        self._forget_rest()
        self._listener.leave(self, watch.held_bytes if watch else 0, entered=subscriber is not None)
        if subscriber is not None:
            subscriber.tell(Closed(reason or (watch.reason if watch else "")))

    def _forget_rest(self) -> None:
        self.forget_unfinished()
        if self._watch is not None:
            self._watch.kept, self._watch.taken_bytes = b"", 0

    def stop_receiving(self) -> None:
        """Ignore further input: what was received last is answered, and then the connection is closed."""
        self._forget_rest()
        self._resume(_BY_ANYBODY)
        self._state |= _ENDED
        self._watched().closing_at_s = self._listener.clock()

    @property
    def receives(self) -> bool:
        """Whether what comes is to be read at all."""
        return self._subscriber is not None and not self._state & _ENDED

    @property
    def is_doing_much(self) -> bool:
        """Whether what was told is not done yet, and counted among what is held for all."""
        return self._watch is not None and self._watch.being_done_bytes > 0

    @property
    def presumes(self) -> bool:
        """Whether a peer that has not said who it is has begun more than anybody needs for that."""
        return self.unfinished_bytes > STRANGER_BYTES_MAX and self._listener.is_stranger(self)

    # --- the subscriber's side ---

    @property
    def subscriber(self) -> Told | None:
        """Who is told what comes; None once the connection is gone, or if it was turned away."""
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
        """From now on this is who is told."""
        self._subscriber = subscriber

    def send(self, replies: Sequence[ReplyT]) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or self._state & _SAID_GOODBYE:
            return
        data = self.encode(replies)
        transport.write(data)
        waiting = transport.get_write_buffer_size()
        if waiting > WATCHED_BYTES_MIN:
            self._weigh(replies, len(data), waiting)

    def hang_up(self) -> None:
        """Perhaps thousands end at once: the listener closes a few in each turn."""
        self._listener.depart(self)

    def close(self, reason: str) -> None:
        """Shut our side behind the last answer; what still comes is thrown away, so that the answer is not lost."""
        if self._watch is not None and self._watch.is_lost:
            self._leave_early(self._watch)
        if self._transport is None or self._transport.is_closing() or self._state & _SAID_GOODBYE:
            return
        if not self._state & _ENDED:
            self.stop_receiving()
        watch = self._watched()
        watch.reason = reason
        watch.closing_at_s = self._listener.clock()
        if self._transport.can_write_eof():
            self._state |= _SAID_GOODBYE
            self._transport.write_eof()  # the peer closes when it has read that far, or the sweep does
        else:
            self._transport.close()

    def refuse(self, replies: Sequence[ReplyT], reason: str) -> None:
        """Say these, and close, without ever having a subscriber."""
        self._state |= _ENDED
        if replies:
            self.send(replies)
        self.close(reason)

    def finish(self) -> None:
        """Close altogether: the peer has closed, or had time to."""
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

    def expel(self, reason: str) -> None:
        """Drop it, and have the log say why: its peer has done what it should not, and may never hear so."""
        if self._transport is not None and not (self._state & _SAID_GOODBYE or self._transport.is_closing()):
            self._listener.admission.expelled(self.peer, reason)
        self.drop(reason)

    def stop_reading(self) -> None:
        self._pause(_BY_STOP)
        if self._watch is not None and self._watch.is_lost:
            self._leave_early(self._watch)

    def _leave_early(self, watch: _Watch) -> None:
        """What a lost connection still had to say is not taken any more."""
        if self._subscriber is not None:
            self._leave(watch)

    def pause(self) -> None:
        self._pause(_BY_SUBSCRIBER)

    def resume(self) -> None:
        self._resume(_BY_SUBSCRIBER)

    # --- bounds ---

    def keep(self, size_bytes: int) -> bool:
        """A little is nothing to count, and of a connection that is gone nothing is."""
        if size_bytes <= WATCHED_BYTES_MIN:
            size_bytes = 0
        if self._transport is not None and (size_bytes or self._watch is not None):
            watch = self._watched()
            if watch.being_done_bytes != size_bytes:
                watch.being_done_bytes = size_bytes
                self._hold()
        return not self._listener.admission.crowded

    def check(self, now_s: float) -> None:
        """Look at the connection again, if something was unusual (the listener's sweep)."""
        watch, transport = self._watch, self._transport
        if watch is None or transport is None:
            return
        if watch.closing_at_s is not None and now_s - watch.closing_at_s >= FRAME_S_MAX:
            self.drop(watch.reason or "it did not close in time")
        elif watch.frame_since_s is not None and now_s - watch.frame_since_s >= FRAME_S_MAX and not self._state:
            self.expel(f"a line was not complete after {FRAME_S_MAX:g} s")
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

    def _weigh(self, replies: Sequence[ReplyT], size: int, waiting: int) -> None:
        """See whether the peer reads what it is sent."""
        watch, now_s = self._watched(), self._listener.clock()
        if watch.backlog is None:
            watch.backlog = Backlog(waiting - size, now_s)
        crowded = self.pauses_early or self._listener.admission.crowded
        self._hold()
        self._obey(watch.backlog.wrote(size, waiting, now_s, burst=self.is_burst(replies), crowded=crowded))

    def _obey(self, verdict: Verdict) -> None:
        if verdict is Verdict.PAUSE:
            self._pause(_BY_BACKLOG)
        elif verdict is Verdict.RESUME:
            self._resume(_BY_BACKLOG)
        elif verdict is Verdict.DROP:
            self.expel("it does not read its answers")

    def _pause(self, by: int) -> None:
        if self._state & _ENDED:
            return
        if self._transport is not None and not self._state and not self._transport.is_closing():
            self._transport.pause_reading()
        self._state |= by

    def _resume(self, by: int) -> None:
        was, self._state = self._state, self._state & ~by
        if self._state == _BEHIND and was != _BEHIND and self._watch is not None:
            self._wait_for_turn(self._watch)
        if not was or self._state or self._transport is None or self._transport.is_closing():
            return
        if self._watch is not None and self._watch.frame_since_s is not None:
            self._watch.frame_since_s = self._listener.clock()  # the peer could not go on while we did not read
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
        held = transport.get_write_buffer_size() + self.unfinished_bytes + watch.kept_bytes + watch.being_done_bytes
        self._listener.admission.held_bytes += held - watch.held_bytes
        watch.held_bytes = held
