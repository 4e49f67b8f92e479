"""Timings: the bucket of a span, and percentiles from counts."""

import pytest

from wakeq.protocol.queue.timings import BOUNDS_MS, SHORT_MS, Timings, bucket_of, percentile_ms


def counts_of(*spans_ms: int) -> list[int]:
    counts = Timings().waits
    for span_ms in spans_ms:
        counts[bucket_of(span_ms)] += 1
    return counts


@pytest.mark.parametrize("bound_ms", BOUNDS_MS)
def test_span_that_equals_a_bound_is_in_its_bucket_and_a_longer_one_in_the_next(bound_ms: int) -> None:
    place = BOUNDS_MS.index(bound_ms)

    assert (bucket_of(bound_ms), bucket_of(bound_ms + 1)) == (place, place + 1)


def test_short_and_long_spans_meet_without_a_gap() -> None:
    assert bucket_of(0) == 0
    assert bucket_of(SHORT_MS) <= bucket_of(SHORT_MS + 1)
    assert bucket_of(10**12) == len(BOUNDS_MS)


def test_percentile_of_nothing_is_none() -> None:
    assert percentile_ms(counts_of(), 0.5) is None


def test_percentile_lies_within_the_bucket_of_its_span() -> None:
    counts = counts_of(*[3] * 90, *[700] * 9, 40_000)

    assert 1 < (percentile_ms(counts, 0.5) or 0) <= 5
    assert 500 < (percentile_ms(counts, 0.95) or 0) <= 1_000
    assert 30_000 < (percentile_ms(counts, 1.0) or 0) <= 60_000


def test_percentile_above_the_last_bound_is_that_bound() -> None:
    assert percentile_ms(counts_of(BOUNDS_MS[-1] + 1), 0.5) == BOUNDS_MS[-1]
