"""Clock: where readings of time come from.

Out come milliseconds.  Wall time is what people mean by the time and may be stepped; monotonic time only ever
grows, and means nothing in another process.  Nobody else in the server reads a clock: it is passed in.
"""

import time
from pathlib import Path
from typing import Protocol
from uuid import UUID

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def elapsed_ms() -> int:
    """Return milliseconds since the machine was started, those included in which it was suspended.

    What nodes promise each other is measured by it: the others go on while a machine sleeps, and its monotonic clock
    does not.
    """
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Clock(Protocol):
    """Readings in whole milliseconds; what is made of two is less than `rounding_ms` before the true moment."""

    rounding_ms: int
    boot_id: bytes  # which start of the machine this is; empty if it is not known

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970, UTC."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since some moment in this process's past."""

    def boot_ms(self) -> int:
        """Return milliseconds since the machine was started, those included in which it was suspended."""


class SystemClock:
    """The machine's clocks; under freezegun the frozen ones, for both are looked up at each call."""

    rounding_ms = 2

    def __init__(self) -> None:
        self.boot_id = _boot_id()

    def wall_ms(self) -> int:
        return int(time.time() * 1_000)

    def monotonic_ms(self) -> int:
        return int(time.monotonic() * 1_000)

    def boot_ms(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def _boot_id() -> bytes:
    try:
        return UUID(BOOT_ID.read_text().strip()).bytes
    except (OSError, ValueError):  # a sandbox that hides it: every start counts as one of another boot
        return b""
