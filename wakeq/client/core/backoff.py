"""ReconnectBackoff: whether to try to reach a lost broker again, and after which pause.

Pauses grow until the time allowed for an outage is used up. An answer, or a connection that lasted, starts the count
anew. A connection that broke at once does not, so that a command which crashes its broker is not repeated for ever.
The caller passes the time in; nothing here waits.
"""

PAUSE_S_MIN, PAUSE_S_MAX = 0.05, 1.0
# An election takes at most a few seconds, so during one the nodes are asked more often.
ELECTION_PAUSE_S, ELECTION_S_MAX = 0.1, 3.0
# A connection that ended sooner was of no use, however short the time allowed for an outage is.
LASTED_S_MIN = 1.0


class ReconnectBackoff:
    """Growing pauses between attempts to connect, for a limited time after a connection was lost."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._pause_s = PAUSE_S_MIN
        self._lost_at_s: float | None = None
        self._connected_at_s: float | None = None

    def connected(self, now_s: float) -> None:
        """Note that a connection was made."""
        self._connected_at_s = now_s

    def lost(self, now_s: float) -> bool:
        """Note that the connection ended. Return True if it had been useful, so that a retry at once makes sense."""
        if self._connected_at_s is not None and now_s - self._connected_at_s > max(self._limit_s, LASTED_S_MIN):
            self.reset()
        self._connected_at_s = None
        is_new_outage = self._lost_at_s is None
        if is_new_outage:
            self._lost_at_s = now_s
        return is_new_outage

    def next_pause_s(self, now_s: float, *, is_election: bool = False) -> float | None:
        """Return how long to wait before the next attempt, or None if the time for attempts is used up."""
        if self._lost_at_s is None:
            self._lost_at_s = now_s
        pause_s = self._pause_s
        if is_election and now_s < self._lost_at_s + ELECTION_S_MAX:
            pause_s = min(pause_s, ELECTION_PAUSE_S)
        if now_s + pause_s > self._lost_at_s + self._limit_s:
            return None
        self._pause_s = min(pause_s * 2, PAUSE_S_MAX)
        return pause_s

    def reset(self) -> None:
        """Start anew: the connection was useful, or a caller asks again after all attempts had failed."""
        self._lost_at_s, self._pause_s = None, PAUSE_S_MIN
