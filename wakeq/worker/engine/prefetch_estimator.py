"""PrefetchEstimator: how many messages a pool may fetch ahead, from how long its handlers take.

A message that waits inside a busy worker cannot go to an idle one. So nothing is fetched ahead unless handlers are
short, and then only as many messages as will start within AHEAD_S. Pure: durations are passed in.
"""

AHEAD_S = 0.05
# The weight of the newest batch in the running mean.
WEIGHT = 0.25


class PrefetchEstimator:
    """The running mean of the duration of a handler, and the prefetch that follows from it."""

    def __init__(self, *, slots: int, prefetch_max: int) -> None:
        self._slots = slots
        self._prefetch_max = prefetch_max
        self._mean_s: float | None = None

    def finished(self, handlers: int, total_s: float) -> None:
        """Note that so many handlers took `total_s` together."""
        mean_s = total_s / handlers
        self._mean_s = mean_s if self._mean_s is None else self._mean_s + WEIGHT * (mean_s - self._mean_s)

    def stalled(self, waited_s: float) -> None:
        """Note that a prefetched message has waited for so long: handlers are not short any more."""
        self._mean_s = max(self._mean_s or 0.0, waited_s)

    @property
    def prefetch(self) -> int:
        """How many messages to hold beyond those that can start at once."""
        if self._mean_s is None or self._mean_s >= AHEAD_S:
            return 0
        return min(self._prefetch_max, int(self._slots * AHEAD_S / max(self._mean_s, 1e-6)))
