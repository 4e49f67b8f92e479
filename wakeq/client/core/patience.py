"""Patience: whether to try once more to reach a broker that went away, and after which pause.

Pauses grow until the span is over; an answer or a connection that lasted makes it all new, one that broke at once
does not, so that a command which kills its broker is not repeated for ever.  It is told what time it is, and never
waits itself.
"""

PAUSE_S_MIN, PAUSE_S_MAX = 0.05, 1.0
ELECTION_PAUSE_S, ELECTION_S_MAX = 0.1, 3.0  # while nodes look for a leader, which they find within seconds
LASTED_S_MIN = 1.0  # a connection that ended sooner was of no use, however short the patience is


class Patience:
    """How long to try again: pauses that grow, until the span is over or it was of use."""

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._pause_s = PAUSE_S_MIN
        self._lost_at_s: float | None = None
        self._found_at_s: float | None = None

    def found(self, now_s: float) -> None:
        """There is a connection."""
        self._found_at_s = now_s

    def begin(self, now_s: float) -> bool:
        """The connection ended.  True if it was of use: then it is worth to try at once."""
        if self._found_at_s is not None and now_s - self._found_at_s > max(self._span_s, LASTED_S_MIN):
            self.renew()
        self._found_at_s = None
        is_new = self._lost_at_s is None
        if is_new:
            self._lost_at_s = now_s
        return is_new

    def pause_s(self, now_s: float, *, is_election: bool = False) -> float | None:
        """How long to wait before the next attempt; None if there were enough of them."""
        if self._lost_at_s is None:
            self._lost_at_s = now_s
        pause_s = self._pause_s
        if is_election and now_s < self._lost_at_s + ELECTION_S_MAX:
            pause_s = min(pause_s, ELECTION_PAUSE_S)
        if now_s + pause_s > self._lost_at_s + self._span_s:
            return None
        self._pause_s = min(pause_s * 2, PAUSE_S_MAX)
        return pause_s

    def renew(self) -> None:
        """It was of use, or somebody asks once more after it had ended."""
        self._lost_at_s, self._pause_s = None, PAUSE_S_MIN
