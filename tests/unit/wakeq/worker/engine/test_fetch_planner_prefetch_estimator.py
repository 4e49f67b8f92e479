"""Tests of PrefetchEstimator: no prefetch for long handlers, a bounded one for short handlers."""

from wakeq.worker.engine.fetch_planner import PrefetchEstimator


def test_prefetch_is_zero_before_the_first_handler_ended() -> None:
    assert PrefetchEstimator(slots=8, prefetch_max=512).prefetch == 0


def test_prefetch_for_short_handlers_is_what_will_start_soon() -> None:
    estimator = PrefetchEstimator(slots=8, prefetch_max=512)

    estimator.finished(10, 10 * 0.005)

    # 8 slots, 50 ms ahead, 5 ms for each message.
    assert estimator.prefetch == 80


def test_prefetch_never_exceeds_its_maximum() -> None:
    estimator = PrefetchEstimator(slots=8, prefetch_max=512)

    estimator.finished(10, 0.0)

    assert estimator.prefetch == 512


def test_prefetch_ends_when_handlers_become_long() -> None:
    estimator = PrefetchEstimator(slots=8, prefetch_max=512)
    estimator.finished(100, 0.001)

    estimator.finished(1, 1.0)

    assert estimator.prefetch == 0


def test_prefetch_resumes_when_handlers_become_short() -> None:
    estimator = PrefetchEstimator(slots=8, prefetch_max=512)
    estimator.finished(1, 1.0)

    for _ in range(20):
        estimator.finished(10, 0.001)

    assert estimator.prefetch > 0


def test_prefetch_ends_when_a_prefetched_message_waits_long() -> None:
    estimator = PrefetchEstimator(slots=8, prefetch_max=512)
    estimator.finished(100, 0.001)

    estimator.stalled(3.0)

    assert estimator.prefetch == 0
