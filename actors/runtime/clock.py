"""Clock: where readings of time come from.

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
    """Two readings, in whole milliseconds; what is made of both is less than `rounding_ms` before the true moment."""

    rounding_ms: int

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970, UTC."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since some moment in this process's past."""


class SystemClock:
    """The machine's clocks; under freezegun the frozen ones, for both are looked up at each call."""

    rounding_ms = 2

    def wall_ms(self) -> int:
        return int(time.time() * 1_000)

    def monotonic_ms(self) -> int:
        return int(time.monotonic() * 1_000)
