"""NodeClock: the cluster clock as the actors of a node read it: one moment for each turn.

    wall clock, monotonic clock, turn --> now_ms, stamp_ms        times of other nodes --> follow, reach, lead
    the saved mark --> where a start begins                       a moved clock --> another mark to save

It must be read every HEARTBEAT_MS, or it takes the gap for a pause of the process.
"""

from collections.abc import Sequence
from typing import Protocol

from wakeq.actors.runtime import Runtime
from wakeq.actors.runtime.clock import Clock
from wakeq.protocol.clock import HEARTBEAT_MS, MOVE_MS, ClusterClock, Mark, clock_to_lead_by

# Further away than any moment.
NEVER_MS = -1 << 62
# A follower saves a later clock no more often than this: late heartbeats move its clock back and forth.
FOLLOWER_SAVES_MS = 1_000


class ClockKeeper(Protocol):
    """The log and the timers, as the clock needs them."""

    @property
    def clock_ms(self) -> int:
        """The last moment that the log knows."""

    def keep_clock(self, mark: Mark) -> None:
        """Save the mark on disk before any entry that is stamped from now on."""

    def wake_timers(self) -> None:
        """Tell the timers that the clock may have moved ahead of what they assume."""


class NodeClock:
    """The clock of one node."""

    def __init__(self, clock: Clock, runtime: Runtime, last_ms: int, kept: Mark | None = None) -> None:
        # Whether a leader has set this clock since the start, or this node has led.
        self.has_heard = False
        self._clock = clock
        self._runtime = runtime
        self._kept = kept
        self._keeper: ClockKeeper | None = None
        # How far the wall clock and the boot clock are ahead of the cluster clock, by the last mark of this boot.
        self._wall_ahead_ms = self._boot_ahead_ms = NEVER_MS
        if kept is not None and kept.boot_id == clock.boot_id:
            self._remember(kept)
        self._leads = False
        # The last moment that the log knows; the clock neither begins nor leads before it.
        self._last_ms = last_ms
        self._time: ClusterClock
        # The turn of the last reading, and the moment that it gave.
        self._moment_turn, self._moment_ms = -1, 0
        # The monotonic moment from which the boot clock is read again.
        self._compare_at_ms = 0
        # The monotonic moment from which a follower may save a later clock.
        self._saves_at_ms = 0
        self._start(last_ms)

    def begin(self, keeper: ClockKeeper) -> None:
        """Continue after the last moment that the log knows, once the log has been read."""
        self._start(keeper.clock_ms)
        self._keeper = keeper

    def _start(self, last_ms: int) -> None:
        self._last_ms = last_ms
        clock, kept = self._clock, self._kept
        at_ms = wall_ms = clock.wall_ms()
        if kept is not None:
            # The clock may have moved this far since its mark was saved; a start may make events late, never early.
            at_ms = kept.cluster_ms_at(wall_ms, clock.boot_ms(), clock.boot_id) - MOVE_MS
        self._time = ClusterClock(max(last_ms, at_ms), wall_ms, clock.monotonic_ms())
        self._moment_turn, self._moment_ms = -1, 0

    # --- times of other nodes ---------------------------------------------------------------------------------------

    def follow(self, at_ms: int) -> None:
        """Take the clock of the node that leads."""
        self.step_down()
        self.has_heard = True
        self._set(at_ms)

    def reach(self, stamp_ms: int) -> None:
        """Advance to the stamp of an entry in the log: the present cannot be earlier."""
        if stamp_ms > self._last_ms:
            self._last_ms = stamp_ms
            if stamp_ms > self.now_ms():
                self._set(stamp_ms)

    def lead(self, votes: Sequence[tuple[int, bool]]) -> None:
        """Begin to lead with the latest clock that the voters know; see `clock_to_lead_by`."""
        at_ms = clock_to_lead_by([(self.now_ms(), self.has_heard), *votes])
        self.has_heard = self._leads = True
        # The first stamp of a leader must come from a clock that was compared.
        self._compare_at_ms = 0
        self._set(max(at_ms, self._last_ms))
        if self._keeper is not None:
            self._keeper.wake_timers()

    def step_down(self) -> None:
        """End leading; entries with this node's stamps may still be in its log."""
        if self._leads:
            self._leads = False
            self._last_ms = max(self._last_ms, self.stamp_ms())

    def _set(self, at_ms: int) -> None:
        self._time.set(at_ms, self._clock.wall_ms(), self._clock.monotonic_ms())
        self._moment_turn = -1

    # --- reading ----------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Return the present moment, which stays the same within one turn of an actor."""
        turn = self._runtime.turn_id
        if turn != self._moment_turn or not turn & 1:
            self._moment_turn = turn
            wall_ms, monotonic_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
            self._moment_ms = self._time.now(wall_ms, monotonic_ms, leans=self._leads)
            moved_ms = wall_ms - self._moment_ms - self._wall_ahead_ms
            if monotonic_ms >= self._compare_at_ms or not -MOVE_MS <= moved_ms <= MOVE_MS:
                self._compare(wall_ms, monotonic_ms)
        return self._moment_ms

    def _compare(self, wall_ms: int, monotonic_ms: int) -> None:
        """Save a mark if the cluster clock has moved; later stamps are written after it.

        The boot clock is read at each heartbeat only.  A move against it is a move against the wall clock too, unless
        the wall clock was set back by exactly as long as the machine was suspended.
        """
        self._compare_at_ms = monotonic_ms + HEARTBEAT_MS
        # Until a leader is heard this clock is a guess, from clocks that may be wrong.
        if self._keeper is None or not self.has_heard:
            return
        at_ms, boot_ms = self._moment_ms, self._clock.boot_ms()
        wall_moved_ms, boot_moved_ms = wall_ms - at_ms - self._wall_ahead_ms, boot_ms - at_ms - self._boot_ahead_ms
        # Whether the clock is now earlier than a start would assume from the mark.
        is_earlier = max(wall_moved_ms, boot_moved_ms) > MOVE_MS
        if not is_earlier and min(wall_moved_ms, boot_moved_ms) >= -MOVE_MS:
            return
        if not (self._leads or is_earlier) and monotonic_ms < self._saves_at_ms:
            return
        self._saves_at_ms = monotonic_ms + FOLLOWER_SAVES_MS
        mark = Mark(at_ms, wall_ms, boot_ms, self._clock.boot_id)
        self._remember(mark)
        self._keeper.keep_clock(mark)

    def _remember(self, mark: Mark) -> None:
        self._wall_ahead_ms = mark.wall_ms - mark.cluster_ms
        self._boot_ahead_ms = mark.boot_ms - mark.cluster_ms

    def stamp_ms(self) -> int:
        """Return a moment that is not before the true one, so that a delay counted from it never ends early."""
        return self.now_ms() + self._clock.rounding_ms

    def behind_ms(self) -> int:
        """Return how far the clock still has to catch up."""
        return self._time.behind_ms

    def step_ms(self) -> int:
        """Return how far the wall clock is ahead of the cluster clock."""
        return self._time.step_ms

    def take_step_ms(self) -> int | None:
        """Return that difference once after a step of the wall clock or a pause of the process, else None."""
        return self._time.take_step_ms()
