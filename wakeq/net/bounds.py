"""Bounds: the memory and the deadlines of one connection, by TCP or by WebSocket.

    unsent replies, incomplete commands, unfinished work --> pause reading, resume it, drop the connection

Every connection counts into the memory that all connections of a node hold (`Admission`).  The bounds judge sizes and
moments only: they never see a command or a reply, and only their door acts on the socket.
"""

from collections.abc import Callable
from typing import Protocol

from wakeq.actors.sessions.door import FRAME_S_MAX, Admission, Backlog, Verdict

# With fewer unsent replies, and less unfinished work, a connection needs no watching.
WATCHED_BYTES_MIN = 64 * 1024

# Bits for the reasons to pause reading.  `BY_REST`: the connection has sent more than its share.
BY_SESSION, BY_BACKLOG, BY_STOP, BY_REST = 1, 2, 4, 8


class BoundedDoor(Protocol):
    """The part of a door that its bounds use."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes of replies that wait to be sent."""

    @property
    def received_bytes(self) -> int:
        """Bytes that were received and have not been sent to the session as commands."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def drop(self, reason: str, /) -> None: ...

    def expel(self, reason: str, /) -> None: ...

    def give_up(self) -> None:
        """End the connection, because its peer does not read."""


class Bounds:
    """The bounds of one connection.

    The door is an argument and no field: the two would keep each other alive.
    """

    __slots__ = (
        "_admission", "_backlog", "_clock", "closing_at_s", "held_bytes", "paused", "reason", "unfinished_since_s",
        "work_bytes",
    )  # fmt: skip

    def __init__(self, admission: Admission, clock: Callable[[], float]) -> None:
        # Counts the memory of all connections.
        self._admission = admission
        self._clock = clock
        # The bits of all reasons for which reading is paused.
        self.paused = 0
        # Judges the unsent replies, while there are many.
        self._backlog: Backlog | None = None
        # Bytes of commands that the session has not finished.
        self.work_bytes = 0
        # This connection's part of the memory of all.
        self.held_bytes = 0
        # Since when the last command is incomplete.
        self.unfinished_since_s: float | None = None
        # When the connection began to close, and the reason that the session hears.
        self.closing_at_s: float | None = None
        self.reason = ""

    @property
    def at_rest(self) -> bool:
        """Whether nothing needs watching.  Held bytes do, because they count until they are gone."""
        is_open = self._backlog is None and self.unfinished_since_s is None and self.closing_at_s is None
        return is_open and not self.held_bytes and not self.paused

    def pause(self, door: BoundedDoor, by: int) -> None:
        """Read nothing until every reason to pause has been taken back by `resume`."""
        if not self.paused:
            door.pause_reading()
        self.paused |= by

    def resume(self, door: BoundedDoor, by: int) -> None:
        """Read again, unless there is another reason to pause."""
        was_paused, self.paused = self.paused, self.paused & ~by
        if was_paused and not self.paused:
            if self.unfinished_since_s is not None:
                # The peer could not complete its command while nothing was read.
                self.unfinished_since_s = self._clock()
            door.resume_reading()

    def begin_closing(self) -> None:
        """Start the time in which the connection must have closed."""
        self.closing_at_s = self._clock()

    def hold(self, door: BoundedDoor) -> None:
        """Count the memory of this connection anew."""
        held_bytes = door.unsent_bytes + door.received_bytes + self.work_bytes
        self._admission.held_bytes += held_bytes - self.held_bytes
        self.held_bytes = held_bytes

    def release(self) -> None:
        """Count nothing any more, because the connection is gone."""
        self._admission.held_bytes -= self.held_bytes
        self.held_bytes = 0

    def keep(self, door: BoundedDoor, size_bytes: int) -> None:
        """Count the bytes of unfinished commands; a small amount counts as none."""
        if size_bytes <= WATCHED_BYTES_MIN:
            size_bytes = 0
        if size_bytes != self.work_bytes:
            self.work_bytes = size_bytes
            self.hold(door)

    def wrote(self, door: BoundedDoor, size: int, *, burst: bool, crowded: bool = False) -> None:
        """Judge the peer after a write that left much unsent; a `crowded` connection may have less unsent."""
        unsent, now_s = door.unsent_bytes, self._clock()
        if self._backlog is None:
            self._backlog = Backlog(unsent - size, now_s)
        self.hold(door)
        crowded = crowded or self._admission.crowded
        self._obey(door, self._backlog.wrote(size, unsent, now_s, burst=burst, crowded=crowded))

    def check(self, door: BoundedDoor, now_s: float) -> None:
        """Drop a connection whose peer has missed a deadline or does not read; called every second."""
        if self.closing_at_s is not None and now_s - self.closing_at_s >= FRAME_S_MAX:
            door.drop(self.reason or "it did not close in time")
        elif self._is_late(now_s):
            door.expel(f"a command was not complete after {FRAME_S_MAX:g} s")
        elif self._backlog is not None:
            unsent = door.unsent_bytes
            self._obey(door, self._backlog.check(unsent, now_s))
            if unsent <= WATCHED_BYTES_MIN:
                self._backlog = None
        self.hold(door)

    def _is_late(self, now_s: float) -> bool:
        since_s = self.unfinished_since_s
        return since_s is not None and now_s - since_s >= FRAME_S_MAX and not self.paused and self.closing_at_s is None

    def _obey(self, door: BoundedDoor, verdict: Verdict) -> None:
        if verdict is Verdict.PAUSE:
            # The input of a closing connection is read and discarded: unread, it would destroy the last answer.
            if self.closing_at_s is None:
                self.pause(door, BY_BACKLOG)
        elif verdict is Verdict.RESUME:
            self.resume(door, BY_BACKLOG)
        elif verdict is Verdict.DROP:
            door.give_up()
