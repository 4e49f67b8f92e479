"""Complaints: log lines about what strangers do, at most one in a while, however many there are.

    say(text) --> one line, and how many were left out since the last one

Whoever can make us write a line must not be able to fill the disk with them.  Texts never carry what a peer sent.
"""

import logging
from collections.abc import Callable

PAUSE_MS = 1_000


class Complaints:
    """See the head of this file."""

    def __init__(self, logger: logging.Logger, now_ms: Callable[[], int]) -> None:
        self._logger = logger
        self._now_ms = now_ms
        self._next_ms = 0
        self._left_out = 0

    def say(self, text: str) -> None:
        """Write it, unless something was written just now."""
        now_ms = self._now_ms()
        if now_ms < self._next_ms:
            self._left_out += 1
            return
        more = f" (and {self._left_out} times more or less the same)" if self._left_out else ""
        self._logger.warning("%s%s", text, more)
        self._next_ms, self._left_out = now_ms + PAUSE_MS, 0
