"""Timings: how long the messages of a queue waited and were worked on, and why deliveries ended without an ACK.  Pure.

    spans in milliseconds --> counts by bucket, which only grow --> metrics, series

Each queue has one, and all queues of a node together have another.  Only the leader counts.  Nothing here is kept for a
single message.
"""

from bisect import bisect_left
from collections.abc import Sequence

from wakeq.protocol.log.entries import Reason

# The largest spans of the buckets but the last one, which takes the rest: from a millisecond to a day.
BOUNDS_MS = (
    1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000,
    300_000, 1_800_000, 7_200_000, 86_400_000,
)  # fmt: skip
# Almost every span is short, and its bucket is looked up instead of searched for.
SHORT_MS = 10_000
BUCKETS = bytes(bisect_left(BOUNDS_MS, ms) for ms in range(SHORT_MS + 1))


class Timings:
    """The counts of one queue, or of all queues."""

    __slots__ = ("ended", "waited_ms", "waits", "worked_ms", "works")

    def __init__(self) -> None:
        # Deliveries by bucket of the time for which their message was ready; and the sum of these times.
        self.waits = [0] * (len(BOUNDS_MS) + 1)
        self.waited_ms = 0
        # Acknowledgements by bucket of the time since the delivery; and the sum of these times.
        self.works = [0] * (len(BOUNDS_MS) + 1)
        self.worked_ms = 0
        # Deliveries that ended without an acknowledgement, by reason.
        self.ended = [0] * len(Reason)


def bucket_of(span_ms: int) -> int:
    """Return the bucket of a span.  Where each call counts, this is spelled out."""
    return BUCKETS[span_ms] if 0 <= span_ms <= SHORT_MS else bisect_left(BOUNDS_MS, span_ms)


def count_work(timings: Timings, total: Timings, span_ms: int, count: int) -> None:
    """Count acknowledgements so long after their deliveries, in a queue and in all of them."""
    bucket = bucket_of(span_ms)
    for one in (timings, total):
        one.works[bucket] += count
        one.worked_ms += count * span_ms


def percentile_ms(counts: Sequence[int], share: float) -> float | None:
    """Return the span that this share of the counted ones does not exceed, as exactly as buckets tell; None for none.

    Within a bucket the spans are taken to be spread evenly; those above the last bound are taken to be equal to it.
    """
    wanted = sum(counts) * share
    if not wanted:
        return None
    below = 0
    for place, bound_ms in enumerate(BOUNDS_MS):
        count = counts[place]
        if below + count >= wanted:
            first_ms = BOUNDS_MS[place - 1] if place else 0
            return first_ms + (bound_ms - first_ms) * (wanted - below) / count
        below += count
    return float(BOUNDS_MS[-1])
