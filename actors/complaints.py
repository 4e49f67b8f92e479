"""Complaints: log lines about what others do, at most one in a while, however often they do it.

    say(text) --> one line, and how many were left out since the last one

Whoever can make us write a line must not be able to fill the disk with them.  Of what a peer sent a text carries an id
at most, short and escaped.  What the end of a burst left out is said with the next complaint, whenever that is.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

PAUSE_MS = 1_000


class Complaints:
    """See the head of this file."""

    def __init__(self, logger: logging.Logger, now_ms: Callable[[], int] | None = None) -> None:
        self._logger = logger
        self._now_ms = now_ms or _wall_ms  # since 1970
        self._said_ms = -PAUSE_MS
        self._unsaid = 0

    def say(self, text: str) -> None:
        """Write it, unless something was written just now."""
        now_ms = self._now_ms()
        if 0 <= now_ms - self._said_ms < PAUSE_MS:  # less than 0: somebody has set the clock back
            self._unsaid += 1
            return
        others = ""
        if self._unsaid:
            others = f", and {self._unsaid} other{'s' * (self._unsaid > 1)} since {_moment(self._said_ms)}"
        self._logger.warning("%s%s", text, others)
        self._said_ms, self._unsaid = now_ms, 0


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _moment(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
