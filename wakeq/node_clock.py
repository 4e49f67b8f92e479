"""NodeClock: the cluster clock as the processes of a node read it: one moment for each of their turns.

    wall clock, monotonic clock, turn --> now_ms, stamp_ms        stamps of another node that leads --> follow

Somebody must read it every HEARTBEAT_MS, or it takes a gap for a pause.
"""

from wakeq.actors.runtime import Runtime
from wakeq.actors.runtime.clock import Clock
from wakeq.protocol.clock import ClusterClock


class NodeClock:
    """See the head of this file."""

    def __init__(self, clock: Clock, runtime: Runtime, last_ms: int) -> None:
        self._clock = clock
        self._runtime = runtime
        self._moment_turn, self._moment_ms = -1, 0
        self.start(last_ms)

    def start(self, last_ms: int) -> None:
        """Begin behind the last moment that the log knows."""
        self._time = ClusterClock(last_ms, self._clock.wall_ms(), self._clock.monotonic_ms())

    def follow(self, stamp_ms: int) -> None:
        """Another node leads: its stamps are the time."""
        self._time.follow(stamp_ms, self._clock.monotonic_ms())

    def now_ms(self) -> int:
        """Return the moment; within one turn of the processes it is one moment."""
        turn = self._runtime.turn_id
        if turn != self._moment_turn or not turn & 1:
            self._moment_turn = turn
            self._moment_ms = self._time.now(self._clock.wall_ms(), self._clock.monotonic_ms())
        return self._moment_ms

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
