"""RateLimitedLog: lines about what others do, at most one a second, however often they do it.

    log(text) --> one line, with the number of lines that were left out since the last one
    tick()    --> the last line of a burst, with the number of the others

Nobody who can cause a line may be able to fill the disk with them.  A text that quotes a peer has at most an id of it,
short and escaped.  Where nobody calls tick(), the end of a burst is reported with the next line.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

PAUSE_MS = 1_000


class RateLimitedLog:
    """The lines of one kind."""

    def __init__(
        self, logger: logging.Logger, now_ms: Callable[[], int] | None = None, *, level: int = logging.WARNING
    ) -> None:
        self._logger = logger
        self._level = level
        self._now_ms = now_ms or _wall_ms  # since 1970
        self._logged_ms = -PAUSE_MS  # when the last line was written
        self._left_out = 0  # lines since then
        self._last = ""  # of those

    def log(self, text: str) -> None:
        """Write a line, unless one was written just now."""
        if self._is_too_soon():
            self._left_out += 1
            self._last = text
        else:
            self._write(text, self._left_out)

    def tick(self) -> None:
        """Write the last line that a burst left out, after a while; called now and then."""
        if self._left_out and not self._is_too_soon():
            self._write(self._last, self._left_out - 1)

    def _is_too_soon(self) -> bool:
        return 0 <= self._now_ms() - self._logged_ms < PAUSE_MS  # less than 0: somebody has set the clock back

    def _write(self, text: str, left_out: int) -> None:
        others = ""
        if left_out:
            others = f", and {left_out} other{'s' * (left_out > 1)} since {_moment(self._logged_ms)}"
        self._logger.log(self._level, "%s%s", text, others)
        self._logged_ms, self._left_out, self._last = self._now_ms(), 0, ""


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _moment(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
