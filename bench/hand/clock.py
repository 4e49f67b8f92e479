"""HandClock: the clocks of this process, which stand still until a caller moves them.

    stop() --> time.time, time.monotonic, time.perf_counter ... read this clock      advance(seconds) --> all of them

Where clocks stand still, no turn is cut short because the machine is busy, and no sync looks slow.  A clock must be
stopped before any module is imported that keeps a function of `time` for itself.
"""

import math
import time
from collections.abc import Callable

WALL_S = 1_700_000_000
RUNNING_S = 1_000  # since the machine was started
NS_A_SECOND = 1_000_000_000


class HandClock:
    """One moment for all clocks of the process."""

    def __init__(self) -> None:
        self._passed_ns = 0

    def stop(self) -> None:
        """Put this clock in the place of the machine's clocks, until the process ends."""
        running_ns, wall_ns = self._reader(RUNNING_S), self._reader(WALL_S)
        for name in ("monotonic", "perf_counter"):
            setattr(time, f"{name}_ns", running_ns)
            setattr(time, name, lambda: running_ns() / NS_A_SECOND)
        time.time_ns, time.time = wall_ns, lambda: wall_ns() / NS_A_SECOND
        time.clock_gettime_ns = lambda clock: running_ns()

    def _reader(self, start_s: int) -> Callable[[], int]:
        return lambda: start_s * NS_A_SECOND + self._passed_ns

    def advance(self, seconds: float) -> None:
        """Let so much time pass, rounded up: a timer that is due then must not be found a little early."""
        self._passed_ns += math.ceil(seconds * NS_A_SECOND)
