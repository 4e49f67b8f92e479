"""Clock: where readings of time come from; the system's, or one that a test moves.

Out come milliseconds.  Wall time is what people mean by the time and may be stepped; monotonic time only ever
grows, and means nothing in another process.  Nobody else in the server reads a clock: it is passed in.
"""

import time
from typing import Protocol


def elapsed_ms() -> int:
    """Return milliseconds since the machine was started, those included in which it was suspended.

    What nodes promise each other is measured by it: the others go on while a machine sleeps, and its monotonic clock
    does not.
    """
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Clock(Protocol):
    """Two readings, in whole milliseconds; a true moment is less than `rounding_ms` later than its reading."""

    rounding_ms: int

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970, UTC."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since some moment in this process's past."""


class SystemClock:
    """The machine's clocks; under freezegun the frozen ones, for both are looked up at each call."""

    rounding_ms = 1

    def wall_ms(self) -> int:
        return int(time.time() * 1_000)

    def monotonic_ms(self) -> int:
        return int(time.monotonic() * 1_000)


class ManualClock:
    """A clock that stands still until it is moved."""

    rounding_ms = 0

    def __init__(self, wall_ms: int = 1_700_000_000_000, monotonic_ms: int = 0) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, after_ms: int) -> None:
        """Let time pass."""
        assert after_ms >= 0
        self._wall_ms += after_ms
        self._monotonic_ms += after_ms

    def step_wall(self, by_ms: int) -> None:
        """Set the wall clock forward, or back if negative; no time passes."""
        self._wall_ms += by_ms
