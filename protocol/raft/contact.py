"""Contact: the heartbeat rounds of a leader, and when a majority last answered one.  Pure.

    begin(now), answered(round, now) --> the last moment at which a quorum is known to have followed this leader

The begin of a round counts, not the arrival of its answers: an answer may have travelled for long.  Moments are this
node's monotonic milliseconds and never leave it; a round travels as a number.
"""

from collections import deque


class Contact:
    """Invariant: each round adds one; only rounds that no majority has answered yet are kept."""

    def __init__(self, now_ms: int) -> None:
        self.round = 0  # the newest one
        self.begun_ms = now_ms  # when it began
        self.heard_round = 0  # the newest one that a majority has answered
        self.heard_ms: int | None = None  # when that one began
        self.took_ms: int | None = None  # how long its majority took to answer
        self._open: deque[tuple[int, int]] = deque()  # (round, begin) of those without a majority

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
        """Note that a majority answered this round, and so all rounds before it; return whether that is news."""
        if number <= self.heard_round:
            return False
        self.heard_round = number
        while self._open and self._open[0][0] <= number:
            self.heard_ms = self._open.popleft()[1]
        if self.heard_ms is not None:
            self.took_ms = now_ms - self.heard_ms
        return True

    def is_within(self, span_ms: int, now_ms: int) -> bool:
        """Whether a majority has answered a round that began less than `span_ms` ago."""
        return self.heard_ms is not None and now_ms - self.heard_ms < span_ms
