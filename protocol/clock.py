"""ClusterClock: the time that is stamped into the log; it never goes back and never jumps.

In go readings of the wall clock and of the monotonic clock, out comes the moment in milliseconds.  The
clock runs with the monotonic one and leans towards the wall clock by at most 1 %.  It never reads a clock
itself, and nothing monotonic ever leaves it.

Stalled or idle?  A gap between two readings does not tell.  So the owner calls `now` from a timer at
least every `HEARTBEAT_MS` while it runs, whether there is work or not; then a gap beyond `PAUSE_MS` means
that the process stood still (stopped, swapped out, a frozen machine).  Such a gap counts as `PAUSE_MS` at
once; the rest is leaned in, so that leases and delays do not all end in the moment of waking.

A start adds what was really spent down and no more.  A lease that was given while the clock lagged behind the wall
clock must not end early because of a restart.  So a node keeps a `Mark` on its disk: where the clock stood beside the
clocks of the machine.  Before an entry is stamped by a clock that has moved against them, the mark is written anew.

Of nodes that agree on a leader, all have its clock: it goes with every heartbeat.  A new leader begins with
`clock_to_lead_by`, so that a node with a wrong clock of its own does not bring it along.

While it leans forward it runs ahead of true time, and a delay counted by it would end early.  So a delay that begins
then is counted as a `span_on`, by the same 1 % longer, and takes as long as it was to take.
"""

from collections.abc import Sequence
from typing import NamedTuple

HEARTBEAT_MS = 500  # the owner reads the clock at least so often
PAUSE_MS = 2_000  # a longer gap is a pause, and adds no more than this at once
STEP_REPORT_MS = 1_000  # a change of the distance to the wall clock that is worth a report
NEAR_MS = 2  # of the wall clock: readings in whole milliseconds do not tell more
UNITS = 100  # the clock counts hundredths of a millisecond, so 1 % of a millisecond is one
MOVE_MS = 100  # against the clocks of the machine, which is written down before anything is stamped by it


class Mark(NamedTuple):
    """Where the cluster clock stood beside the clocks of a machine, at one instant."""

    cluster_ms: int
    wall_ms: int
    boot_ms: int  # since the machine was started, those included in which it was suspended
    boot_id: bytes  # which start of the machine that was; empty if it is not known

    def cluster_ms_at(self, wall_ms: int, boot_ms: int, boot_id: bytes) -> int:
        """Return where the cluster clock is by now.

        Within one boot nothing counts but the time that has passed, for the wall clock may have been set.  After
        another boot only the wall clock knows how long the machine was off.
        """
        if boot_id and boot_id == self.boot_id and boot_ms >= self.boot_ms:
            return self.cluster_ms + boot_ms - self.boot_ms
        return self.cluster_ms + wall_ms - self.wall_ms


def clock_to_lead_by(clocks: Sequence[tuple[int, bool]]) -> int:
    """Return where a new leader begins, by its own clock and those of its voters.

    Beside each stands whether a leader has set it since that node started.  The last leader's heartbeats were answered
    by a majority, so one of these voters has its time, unless all have started again since: then the lowest of them
    can end no lease early.
    """
    heard = [at_ms for at_ms, has_heard in clocks if has_heard]
    return max(heard) if heard else min(at_ms for at_ms, _ in clocks)


def span_on(clock_behind_ms: int, true_ms: int) -> int:
    """Return how far a clock that is so far behind may get in so much true time."""
    return true_ms + min(clock_behind_ms, -(-true_ms // UNITS))


class ClusterClock:
    """The leader's clock, or the one that a follower keeps to lead with."""

    __slots__ = ("_monotonic_ms", "_reported_ms", "_time", "_wall_ms")

    def __init__(self, at_ms: int, wall_ms: int, monotonic_ms: int) -> None:
        self._reported_ms = 0
        self.set(at_ms, wall_ms, monotonic_ms)

    def set(self, at_ms: int, wall_ms: int, monotonic_ms: int) -> None:
        """Continue from this moment, which a leader or an entry of the log gave, whatever the wall clock says.

        A new leader measures from there by its own monotonic clock, so no lease is cut short because its wall clock is
        ahead.
        """
        self._time = at_ms * UNITS
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms

    def now(self, wall_ms: int, monotonic_ms: int, *, leans: bool = True) -> int:
        """Return the moment; the readings are of this same instant.

        Only the clock that counts leans: one that has been cut off for long would else be far from it.
        """
        if monotonic_ms == self._monotonic_ms:  # no time has passed in which to run or lean
            self._wall_ms = wall_ms
            return self._time // UNITS
        gap_ms = max(0, monotonic_ms - self._monotonic_ms)
        run_ms = min(gap_ms, PAUSE_MS)
        time = self._time + run_ms * UNITS
        lean = wall_ms * UNITS - time
        lean_max = run_ms if leans else 0  # in hundredths of a millisecond: 1 % of what has passed
        self._time = time + max(-lean_max, min(lean_max, lean))
        self._wall_ms = wall_ms
        self._monotonic_ms = max(self._monotonic_ms, monotonic_ms)
        return self._time // UNITS

    @property
    def behind_ms(self) -> int:
        """How far it has still to lean forward."""
        step_ms = self._wall_ms - self._time // UNITS
        return step_ms if step_ms >= NEAR_MS else 0

    @property
    def step_ms(self) -> int:
        """How far the wall clock was ahead of this clock at the last reading; negative if it was behind."""
        return self._wall_ms - self._time // UNITS

    def take_step_ms(self) -> int | None:
        """Return `step_ms` once after the wall clock was stepped or the process paused, else None.

        That the distance shrinks while the clock leans in is no news.
        """
        step_ms, reported_ms = self.step_ms, self._reported_ms
        if abs(step_ms - reported_ms) >= STEP_REPORT_MS:
            self._reported_ms = step_ms
            return step_ms
        if abs(step_ms) < abs(reported_ms):
            self._reported_ms = step_ms
        return None
