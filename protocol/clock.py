"""ClusterClock: the time that is stamped into the log; it never goes back and never jumps.

    readings of the wall clock and the monotonic clock --> the moment in milliseconds

The clock runs with the monotonic clock and leans towards the wall clock by at most 1 %. It never reads a clock itself,
and no monotonic time ever leaves it.

A gap between two readings does not show whether the process stood still or had nothing to do. So the owner calls `now`
from a timer at least every `HEARTBEAT_MS`, also when there is no work; then a gap beyond `PAUSE_MS` means that the
process stood still (stopped, swapped out, a frozen machine). Such a gap adds `PAUSE_MS` at once; the clock leans into
the rest, so that leases and delays do not all end at the moment of waking.

A start adds the time in which the node was down, and no more. A lease that was given while the clock lagged behind the
wall clock must not end early because of a restart. So a node keeps a `Mark` on its disk: the cluster clock beside the
clocks of the machine. Before an entry is stamped by a clock that has moved against them, the mark is written again.

All nodes that agree on a leader have its clock, which is part of every heartbeat. A new leader begins with
`clock_to_lead_by`, so that a node whose own clock is wrong does not impose it on the others.

While the clock leans forward it runs ahead of true time, and a delay counted by it would end early. So a delay that
begins then is counted as a `span_on`, 1 % longer, and takes its true time.
"""

from collections.abc import Sequence
from typing import NamedTuple

# The owner reads the clock at least this often.
HEARTBEAT_MS = 500
# A longer gap is a pause, and adds no more than this at once.
PAUSE_MS = 2_000
# A change of the distance to the wall clock that is worth a report.
STEP_REPORT_MS = 1_000
# A distance to the wall clock that readings in whole milliseconds cannot show.
NEAR_MS = 2
# The clock counts hundredths of a millisecond, so 1 % of a millisecond is one unit.
UNITS = 100
# A move against the clocks of the machine that is recorded before an entry is stamped.
MOVE_MS = 100


class Mark(NamedTuple):
    """The cluster clock beside the clocks of a machine, at one instant."""

    cluster_ms: int
    wall_ms: int
    # Since the machine was started, including the time in which it was suspended.
    boot_ms: int
    # Identifies this start of the machine; empty if it is not known.
    boot_id: bytes

    def cluster_ms_at(self, wall_ms: int, boot_ms: int, boot_id: bytes) -> int:
        """Return the cluster clock at this moment.

        Within one boot only the time that has passed counts, because the wall clock may have been set. After another
        boot only the wall clock knows how long the machine was off.
        """
        if boot_id and boot_id == self.boot_id and boot_ms >= self.boot_ms:
            return self.cluster_ms + boot_ms - self.boot_ms
        return self.cluster_ms + wall_ms - self.wall_ms


def clock_to_lead_by(clocks: Sequence[tuple[int, bool]]) -> int:
    """Return the clock with which a new leader begins, from its own clock and those of its voters.

    Each clock comes with whether a leader has set it since that node started. A majority answered the heartbeats of the
    last leader, so one of these voters has its time, unless all have been restarted since: then the lowest clock can
    end no lease early.
    """
    heard = [at_ms for at_ms, has_heard in clocks if has_heard]
    return max(heard) if heard else min(at_ms for at_ms, _ in clocks)


def span_on(clock_behind_ms: int, true_ms: int) -> int:
    """Return how far a clock that is this far behind may advance in this much true time."""
    return true_ms + min(clock_behind_ms, -(-true_ms // UNITS))


class ClusterClock:
    """The clock of a leader, or of a follower that may lead later."""

    __slots__ = ("_monotonic_ms", "_reported_ms", "_time", "behind_ms", "step_ms")

    def __init__(self, at_ms: int, wall_ms: int, monotonic_ms: int) -> None:
        # How far the wall clock was ahead of this clock at the last reading; negative if it was behind.
        self.step_ms = 0
        # How far this clock has still to lean forward.
        self.behind_ms = 0
        self._reported_ms = 0
        self.set(at_ms, wall_ms, monotonic_ms)

    def set(self, at_ms: int, wall_ms: int, monotonic_ms: int) -> None:
        """Continue from this moment, whatever the wall clock says: it comes from a leader, or from an entry of the log.

        A node that leads later measures from there by its own monotonic clock: no lease is shortened because its wall
        clock is ahead.
        """
        self._time = at_ms * UNITS
        self._monotonic_ms = monotonic_ms
        self.step_ms = step_ms = wall_ms - at_ms
        self.behind_ms = step_ms if step_ms >= NEAR_MS else 0

    def now(self, wall_ms: int, monotonic_ms: int, *, leans: bool = True) -> int:
        """Return the moment; both readings are of this same instant.

        Only the clock that counts leans: the clock of a node that was cut off for long would otherwise move far from
        it.
        """
        # At the same monotonic time there is nothing to run or lean.
        if monotonic_ms != self._monotonic_ms:
            gap_ms = max(0, monotonic_ms - self._monotonic_ms)
            run_ms = min(gap_ms, PAUSE_MS)
            time = self._time + run_ms * UNITS
            lean = wall_ms * UNITS - time
            # In units: 1 % of the time that has passed.
            lean_max = run_ms if leans else 0
            self._time = time + max(-lean_max, min(lean_max, lean))
            self._monotonic_ms = max(self._monotonic_ms, monotonic_ms)
        at_ms = self._time // UNITS
        self.step_ms = step_ms = wall_ms - at_ms
        self.behind_ms = step_ms if step_ms >= NEAR_MS else 0
        return at_ms

    def take_step_ms(self) -> int | None:
        """Return `step_ms` once after the wall clock was stepped or the process paused, else None.

        A distance that shrinks while the clock leans is not reported.
        """
        step_ms, reported_ms = self.step_ms, self._reported_ms
        if abs(step_ms - reported_ms) >= STEP_REPORT_MS:
            self._reported_ms = step_ms
            return step_ms
        if abs(step_ms) < abs(reported_ms):
            self._reported_ms = step_ms
        return None
