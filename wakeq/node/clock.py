"""NodeClock: the cluster clock as the processes of a node read it: one moment for each of their turns.

    wall clock, monotonic clock, turn --> now_ms, stamp_ms        what other nodes tell --> follow, reach, lead
    the mark that was kept --> where a start begins               a moved clock --> another mark to keep

Somebody must read it every HEARTBEAT_MS, or it takes a gap for a pause.
"""

from collections.abc import Sequence
from typing import Protocol

from wakeq.actors.runtime import Runtime
from wakeq.actors.runtime.clock import Clock
from wakeq.protocol.clock import HEARTBEAT_MS, MOVE_MS, ClusterClock, Mark, clock_to_lead_by

NEVER_MS = -1 << 62  # from anything
FOLLOWER_KEEPS_MS = 1_000  # for so long a follower keeps no later clock: heartbeats that come late move it to and fro


class Keeper(Protocol):
    """What a clock that has moved has to be told to."""

    @property
    def clock_ms(self) -> int:
        """The last moment that the log knows."""

    def keep_clock(self, mark: Mark) -> None:
        """Have the mark on disk before any entry that is stamped from now on."""

    def wake_timers(self) -> None:
        """The moment may be later than those who sleep believe."""


class NodeClock:
    """See the head of this file."""

    def __init__(self, clock: Clock, runtime: Runtime, last_ms: int, kept: Mark | None = None) -> None:
        self.has_heard = False  # it was set by a leader since the start, or has led
        self._clock = clock
        self._runtime = runtime
        self._kept = kept
        self._keeper: Keeper | None = None
        self._wall_ahead_ms = self._boot_ahead_ms = NEVER_MS  # of the cluster clock, by the mark of this boot
        if kept is not None and kept.boot_id == clock.boot_id:
            self._note(kept)
        self._leads = False
        self._look_at_ms = 0  # the monotonic moment from which the clock of the boot is to be read again
        self._keeps_at_ms = 0  # the monotonic moment from which a node that does not lead may keep a later clock
        self._start(last_ms)

    def begin(self, keeper: Keeper) -> None:
        """Begin behind the last moment that the log knows, now that it has been read."""
        self._start(keeper.clock_ms)
        self._keeper = keeper

    def _start(self, last_ms: int) -> None:
        self._last_ms = last_ms
        clock, kept = self._clock, self._kept
        at_ms = wall_ms = clock.wall_ms()
        if kept is not None:
            # The clock may have moved by so much since its mark was written; a start may make things late, never early.
            at_ms = kept.cluster_ms_at(wall_ms, clock.boot_ms(), clock.boot_id) - MOVE_MS
        self._time = ClusterClock(max(last_ms, at_ms), wall_ms, clock.monotonic_ms())
        self._moment_turn, self._moment_ms = -1, 0

    # --- what other nodes tell --------------------------------------------------------------------------------------

    def follow(self, at_ms: int) -> None:
        """Another node leads: its clock is the time."""
        self.step_down()
        self.has_heard = True
        self._set(at_ms)

    def reach(self, stamp_ms: int) -> None:
        """An entry of the log is of this moment, so it cannot be earlier."""
        if stamp_ms > self._last_ms:
            self._last_ms = stamp_ms
            if stamp_ms > self.now_ms():
                self._set(stamp_ms)

    def lead(self, votes: Sequence[tuple[int, bool]]) -> None:
        """This node leads from now on; see `clock_to_lead_by`."""
        at_ms = clock_to_lead_by([(self.now_ms(), self.has_heard), *votes])
        self.has_heard = self._leads = True
        self._look_at_ms = 0  # its first stamp is made by a clock that was compared
        self._set(max(at_ms, self._last_ms))
        if self._keeper is not None:
            self._keeper.wake_timers()

    def step_down(self) -> None:
        """This node leads no longer; what it has stamped may still stand in its log."""
        if self._leads:
            self._leads = False
            self._last_ms = max(self._last_ms, self.stamp_ms())

    def _set(self, at_ms: int) -> None:
        self._time.set(at_ms, self._clock.wall_ms(), self._clock.monotonic_ms())
        self._moment_turn = -1

    # --- reading ----------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Return the moment; within one turn of the processes it is one moment."""
        turn = self._runtime.turn_id
        if turn != self._moment_turn or not turn & 1:
            self._moment_turn = turn
            wall_ms, monotonic_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
            self._moment_ms = self._time.now(wall_ms, monotonic_ms, leans=self._leads)
            moved_ms = wall_ms - self._moment_ms - self._wall_ahead_ms
            if monotonic_ms >= self._look_at_ms or not -MOVE_MS <= moved_ms <= MOVE_MS:
                self._look(wall_ms, monotonic_ms)
        return self._moment_ms

    def _look(self, wall_ms: int, monotonic_ms: int) -> None:
        """Have the clock's mark written if it has moved: whatever is stamped by this moment is written behind it.

        The clock of the boot is read at each heartbeat only: what moves the cluster clock against it moves that against
        the wall clock too, unless this was set back by as much as the machine was suspended.
        """
        self._look_at_ms = monotonic_ms + HEARTBEAT_MS
        if self._keeper is None or not self.has_heard:  # a guess until then, by clocks that may be wrong
            return
        at_ms, boot_ms = self._moment_ms, self._clock.boot_ms()
        wall_moved_ms, boot_moved_ms = wall_ms - at_ms - self._wall_ahead_ms, boot_ms - at_ms - self._boot_ahead_ms
        is_earlier = max(wall_moved_ms, boot_moved_ms) > MOVE_MS  # than a start by the mark would take it for
        if not is_earlier and min(wall_moved_ms, boot_moved_ms) >= -MOVE_MS:
            return
        if not (self._leads or is_earlier) and monotonic_ms < self._keeps_at_ms:
            return
        self._keeps_at_ms = monotonic_ms + FOLLOWER_KEEPS_MS
        mark = Mark(at_ms, wall_ms, boot_ms, self._clock.boot_id)
        self._note(mark)
        self._keeper.keep_clock(mark)

    def _note(self, mark: Mark) -> None:
        self._wall_ahead_ms = mark.wall_ms - mark.cluster_ms
        self._boot_ahead_ms = mark.boot_ms - mark.cluster_ms

    def stamp_ms(self) -> int:
        """Return a moment that is not before the true one: a delay counted from it never ends early."""
        return self.now_ms() + self._clock.rounding_ms

    def behind_ms(self) -> int:
        """Return how far it has still to lean forward."""
        return self._time.behind_ms

    def step_ms(self) -> int:
        """Return how far the wall clock is ahead of it."""
        return self._time.step_ms

    def take_step_ms(self) -> int | None:
        """Return that once after the wall clock was stepped or the process paused, else None."""
        return self._time.take_step_ms()
