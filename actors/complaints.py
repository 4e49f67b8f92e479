"""Complaints: log lines about what others do, at most one in a while, however often they do it.

    say(text) --> one line, and how many were left out since the last one
    look()    --> the last one of a burst, and how many more

Whoever can make us write a line must not be able to fill the disk with them.  Of what a peer sent a text carries an id
at most, short and escaped.  Where nobody looks, the end of a burst is said with the next complaint.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

PAUSE_MS = 1_000


class Complaints:
    """See the head of this file."""

    def __init__(
        self, logger: logging.Logger, now_ms: Callable[[], int] | None = None, *, level: int = logging.WARNING
    ) -> None:
        self._logger = logger
        self._level = level
        self._now_ms = now_ms or _wall_ms  # since 1970
        self._said_ms = -PAUSE_MS
        self._unsaid = 0
        self._last = ""  # of those

    def say(self, text: str) -> None:
        """Write it, unless something was written just now."""
        if self._is_too_soon():
            self._unsaid += 1
            self._last = text
        else:
            self._write(text, self._unsaid)

    def look(self) -> None:
        """Write what the end of a burst left out, after a while; called now and then."""
        if self._unsaid and not self._is_too_soon():
            self._write(self._last, self._unsaid - 1)

    def _is_too_soon(self) -> bool:
        return 0 <= self._now_ms() - self._said_ms < PAUSE_MS  # less than 0: somebody has set the clock back

    def _write(self, text: str, unsaid: int) -> None:
        others = ""
        if unsaid:
            others = f", and {unsaid} other{'s' * (unsaid > 1)} since {_moment(self._said_ms)}"
        self._logger.log(self._level, "%s%s", text, others)
        self._said_ms, self._unsaid, self._last = self._now_ms(), 0, ""


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _moment(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
