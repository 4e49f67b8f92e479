"""Patience: whether to try once more to reach a broker that went away, and when.

Pauses grow until the span is over; a connection that lasted makes it all new, one that broke at once does not, so
that a command which kills its broker is not repeated for ever.
"""

import time

PAUSE_S_MIN, PAUSE_S_MAX = 0.05, 1.0


class Patience:
    """How long to try again: pauses that grow, and anew after a connection that lasted."""

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._pause_s = PAUSE_S_MIN
        self._lost_at_s: float | None = None
        self._found_at_s: float | None = None

    def renew(self) -> None:
        """There is a connection."""
        self._found_at_s = time.monotonic()

    def pause(self) -> bool:
        """Wait before the next attempt; False if there were enough of them."""
        now_s = time.monotonic()
        if self._found_at_s is not None and now_s - self._found_at_s > self._span_s:
            self._lost_at_s, self._pause_s = None, PAUSE_S_MIN
        self._found_at_s = None
        if self._lost_at_s is None:
            self._lost_at_s = now_s
        if now_s + self._pause_s > self._lost_at_s + self._span_s:
            return False
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, PAUSE_S_MAX)
        return True
