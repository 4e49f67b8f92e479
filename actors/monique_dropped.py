"""Dropped: what is said of transfers that are not passed on, for whoever sent them over ZeroMQ hears nothing.

error --> note --> one line of the log a second at most: the reason of this one, and how many others were not said

What the end of a burst left out is said with the next drop, whenever that is.
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime

from wakeq.protocol.wire.monique.errors import MoniqueError

SAID_EVERY_MS = 1_000

logger = logging.getLogger("wakeq.monique")


class Dropped:
    """For one place, which is named in each line."""

    def __init__(self, where: str, now_ms: Callable[[], int], count: Callable[[], None]) -> None:
        """`count` is called for each."""
        self._where = where
        self._now_ms = now_ms
        self._count = count
        self._said_ms = 0
        self._unsaid = 0

    def note(self, error: MoniqueError) -> None:
        """One more."""
        self._count()
        self._unsaid += 1
        now_ms = self._now_ms()
        if now_ms - self._said_ms >= SAID_EVERY_MS:
            others = f", and {self._unsaid - 1} others since {_moment(self._said_ms)}" if self._unsaid > 1 else ""
            logger.warning("%s: dropped (%d): %s%s", self._where, error.number, error, others)
            self._said_ms, self._unsaid = now_ms, 0


def _moment(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
