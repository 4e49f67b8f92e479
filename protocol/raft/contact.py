"""Contact: the heartbeat rounds of a leader, and when a majority last answered one.  Pure.

    begin(now), answered(round, now) --> since when the quorum is known to stand behind this leader

What counts is when a round was begun, not when its answers came: an answer may have been under way for long.
Moments are this node's monotonic milliseconds and never leave it; a round travels as a number.
"""

from collections import deque


class Contact:
    """Invariant: rounds grow by one; only those that no majority has answered yet are kept."""

    def __init__(self, now_ms: int) -> None:
        self.round = 0
        self.heard_ms: int | None = None  # when the last round was begun that a majority has answered
        self.heard_round = 0
        self.took_ms: int | None = None  # from its begin until a majority had answered it
        self.begun_ms = now_ms  # of the last round
        self._open: deque[tuple[int, int]] = deque()

    @property
    def open_rounds(self) -> int:
        return len(self._open)

    def begin(self, now_ms: int) -> int:
        """Begin a round; return its number."""
        self.round += 1
        self.begun_ms = now_ms
        self._open.append((self.round, now_ms))
        return self.round

    def answered(self, number: int, now_ms: int) -> bool:
        """A majority has answered this round, hence those before it; return whether that is news."""
        if number <= self.heard_round:
            return False
        self.heard_round = number
        while self._open and self._open[0][0] <= number:
            self.heard_ms = self._open.popleft()[1]
        if self.heard_ms is not None:
            self.took_ms = now_ms - self.heard_ms
        return True

    def is_within(self, span_ms: int, now_ms: int) -> bool:
        """Whether a majority has answered a round that was begun less than so long ago."""
        return self.heard_ms is not None and now_ms - self.heard_ms < span_ms
