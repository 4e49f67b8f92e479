"""Histogram: how often something took how long, or how much, in buckets that only grow.  Pure.

observe(value) --> counts, sum --> whoever exports them
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

SYNC_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
GROUP_ENTRIES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
STALL_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Histogram:
    """Values by their size.  Where each call counts, `observe` may be spelled out."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds  # the largest values of the buckets but the last, which takes the rest
        self.counts = [0] * (len(bounds) + 1)  # of the values in each bucket
        self.total = 0.0  # of all values

    def observe(self, value: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each bound with how many values are not above it; the last bound is infinite."""
        yield from zip((*self.bounds, float("inf")), accumulate(self.counts), strict=True)
