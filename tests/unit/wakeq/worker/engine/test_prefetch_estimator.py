"""Proves how far ahead a pool fetches: nothing for long handlers, much for short ones, and never for hoarding."""

from wakeq.worker.engine.prefetch_estimator import PrefetchEstimator


def test_nothing_is_fetched_ahead_before_it_is_known_how_long_handlers_take() -> None:
    assert PrefetchEstimator(slots=8, prefetch_max=512).prefetch == 0


def test_for_short_handlers_so_much_is_fetched_as_will_start_soon() -> None:
    estimator = PrefetchEstimator(slots=8, prefetch_max=512)

    estimator.finished(10, 10 * 0.005)

    assert estimator.prefetch == 80  # 8 slots, 50 ms, 5 ms each


def test_it_never_holds_more_than_was_allowed() -> None:
    estimator = PrefetchEstimator(slots=8, prefetch_max=512)

    estimator.finished(10, 0.0)

    assert estimator.prefetch == 512


def test_handlers_that_become_long_end_it_soon() -> None:
    estimator = PrefetchEstimator(slots=8, prefetch_max=512)
    estimator.finished(100, 0.001)

    estimator.finished(1, 1.0)

    assert estimator.prefetch == 0


def test_handlers_that_become_short_begin_it_again() -> None:
    estimator = PrefetchEstimator(slots=8, prefetch_max=512)
    estimator.finished(1, 1.0)

    for _ in range(20):
        estimator.finished(10, 0.001)

    assert estimator.prefetch > 0


def test_what_lay_about_for_long_shows_that_handlers_are_not_short_any_more() -> None:
    estimator = PrefetchEstimator(slots=8, prefetch_max=512)
    estimator.finished(100, 0.001)

    estimator.stalled(3.0)

    assert estimator.prefetch == 0
