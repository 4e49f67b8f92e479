"""PrefetchEstimator: how far ahead a pool may fetch, from how long its handlers take.

A message that waits inside a busy worker is one that an idle worker does not get, so nothing is fetched ahead
unless handlers are short; then as many as will start within AHEAD_S.  Pure: it is told, it never measures.
"""

AHEAD_S = 0.05
WEIGHT = 0.25  # of the newest batch in the running mean


class PrefetchEstimator:
    """The running mean of how long a handler takes."""

    def __init__(self, *, slots: int, prefetch: int) -> None:
        self._slots = slots
        self._ahead_max = prefetch
        self._mean_s: float | None = None

    def took(self, handlers: int, span_s: float) -> None:
        """So many handlers took so long together."""
        mean_s = span_s / handlers
        self._mean_s = mean_s if self._mean_s is None else self._mean_s + WEIGHT * (mean_s - self._mean_s)

    def stalled(self, span_s: float) -> None:
        """What was fetched ahead has waited so long and nobody came for it: handlers are not short any more."""
        self._mean_s = max(self._mean_s or 0.0, span_s)

    @property
    def ahead(self) -> int:
        """How many messages to hold beyond those that can start at once."""
        if self._mean_s is None or self._mean_s >= AHEAD_S:
            return 0
        return min(self._ahead_max, int(self._slots * AHEAD_S / max(self._mean_s, 1e-6)))
