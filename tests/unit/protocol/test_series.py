"""Series: rates and percentiles of each step, gaps, and the bound of the memory."""

import math
import sys

from wakeq.config.settings import KNOWN
from wakeq.protocol.queue.timings import Timings, bucket_of
from wakeq.protocol.series import DAY_S, HALF_HOUR_S, LONG_STEP_S, NAMES, STEP_S, Look, Series

AT_S = 1_800_000_000
MIB = 1 << 20


def look(published: int, *, ready: int = 0, waits_ms: tuple[int, ...] = ()) -> Look:
    timings = Timings()
    for span_ms in waits_ms:
        timings.waits[bucket_of(span_ms)] += 1
    return Look((published, 0, 0, 0), (ready, 0, 0), timings.waits, timings.works)


def values(series: Series, name: str, step_s: int = STEP_S, last_s: int = DAY_S) -> list[float | None]:
    """Return the values of a name; None for what is not known."""
    answer = series.answer(step_s, last_s)
    column = answer["series"][name]  # type: ignore[index]
    assert len(column) == len(answer["at_s"])  # type: ignore[arg-type]
    return [None if math.isnan(value) else round(value, 3) for value in column]


def test_count_of_a_step_is_its_growth_per_second() -> None:
    series = Series()

    for place, published in enumerate((100, 150, 150, 175)):
        series.take(AT_S + place * STEP_S, look(published))

    assert values(series, "published") == [None, 5, 0, 2.5]
    assert series.answer(STEP_S, DAY_S)["at_s"] == [AT_S, AT_S + 10, AT_S + 20, AT_S + 30]


def test_counter_that_began_again_grew_from_zero() -> None:
    series = Series()

    for place, published in enumerate((100, 20)):
        series.take(AT_S + place * STEP_S, look(published))

    assert values(series, "published") == [None, 2]


def test_counter_of_another_incarnation_grew_from_zero_even_if_it_is_larger() -> None:
    series = Series()

    series.take(AT_S, look(100)._replace(incarnation=1))
    series.take(AT_S + STEP_S, look(150)._replace(incarnation=2))

    assert values(series, "published") == [None, 15]


def test_failures_of_another_incarnation_go_on_from_those_of_the_one_before() -> None:
    series = Series()

    series.take(AT_S, Look((100, 50, 0, 40), (0, 0, 0), incarnation=1))
    series.take(AT_S + STEP_S, Look((0, 0, 0, 40), (0, 0, 0), incarnation=2))
    series.take(AT_S + 2 * STEP_S, Look((0, 0, 0, 50), (0, 0, 0), incarnation=3))

    assert values(series, "failed") == [None, 0, 1]


def test_first_step_is_compared_with_the_look_it_starts_from() -> None:
    series = Series()

    series.start_from(AT_S - 5, look(100))
    series.take(AT_S, look(150))

    assert values(series, "published") == [10]


def test_percentiles_are_those_of_the_step_and_unknown_if_nothing_was_delivered() -> None:
    series = Series()
    early, late = (5,) * 100, (2_000,) * 10

    for place, waits_ms in enumerate(((), early, early, early + late)):
        series.take(AT_S + place * STEP_S, look(0, waits_ms=waits_ms))

    p50, p99 = values(series, "wait_p50_s"), values(series, "wait_p99_s")
    assert (p50[0], p50[2]) == (None, None)
    assert 0 < (p50[1] or 0) <= 0.005
    assert 1 < (p50[3] or 0) <= (p99[3] or 0) <= 2.5, "what was delivered earlier does not count"


def test_percentiles_after_all_counts_began_again_are_those_of_the_new_counts() -> None:
    series = Series()

    for place, seen in enumerate((look(0, waits_ms=(5, 5)), Look((0,) * 4, (0,) * 3), look(0, waits_ms=(2_000,)))):
        series.take(AT_S + place * STEP_S, seen)

    p50 = values(series, "wait_p50_s")
    assert p50[:2] == [None, None]
    assert 1 < (p50[2] or 0) <= 2.5


def test_steps_without_a_look_are_unknown_and_the_next_is_not_compared_over_the_gap() -> None:
    series = Series()

    series.take(AT_S, look(10, ready=1))
    series.take(AT_S + 50, look(500, ready=2))

    assert values(series, "ready") == [1, None, None, None, None, 2]
    assert values(series, "published")[-1] is None


def test_long_ring_has_the_growth_of_five_minutes() -> None:
    series = Series()

    for place in range(61):
        series.take(AT_S + place * STEP_S, look(place * 30))

    assert values(series, "published", LONG_STEP_S) == [None, 3, 3]
    assert series.answer(LONG_STEP_S, DAY_S)["at_s"] == [AT_S, AT_S + 300, AT_S + 600]


def test_ring_forgets_the_oldest_step_and_shows_as_many_as_are_wanted() -> None:
    series = Series()
    steps = HALF_HOUR_S // STEP_S

    for place in range(steps + 7):
        series.take(AT_S + place * STEP_S, look(0, ready=place))

    assert values(series, "ready") == list(range(7, steps + 7))
    assert values(series, "ready", last_s=30) == [steps + 4, steps + 5, steps + 6]


def test_gap_longer_than_the_ring_leaves_nothing_known() -> None:
    series = Series()

    series.take(AT_S, look(0, ready=1))
    series.take(AT_S + 10 * DAY_S, look(0, ready=2))

    assert values(series, "ready") == [None] * (HALF_HOUR_S // STEP_S - 1) + [2]


def test_step_that_was_taken_keeps_its_values() -> None:
    series = Series()

    for ready in (1, 2):
        series.take(AT_S, look(0, ready=ready))

    assert values(series, "ready") == [1]


def test_unknown_counter_has_no_rate() -> None:
    series = Series()

    series.take(AT_S, look(0))
    series.take(AT_S + STEP_S, Look((5, None, None, None), (None, None, None), None, None))

    assert values(series, "published") == [None, 0.5]
    assert [values(series, name)[1] for name in NAMES[1:]] == [None] * (len(NAMES) - 1)


def test_most_series_that_the_settings_allow_fit_into_their_memory() -> None:
    series = Series()
    many = look(10**9, waits_ms=(1,) * 1_000)
    for place in range(2):
        series.take(AT_S + place * LONG_STEP_S, many)

    node_bytes, queue_bytes = size_of(Series(DAY_S)), size_of(series)

    most = KNOWN["metrics.series_queues_max"].most
    assert most is not None
    # 200 bytes are for the name, and its place in the tables.
    assert node_bytes + most * (queue_bytes + 200) < 32 * MIB


def size_of(series: Series) -> int:
    """Return the bytes of a series and of everything that it alone has."""
    total, seen, left = 0, set[int](), [series]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        if isinstance(one, list | tuple):
            left += one
        left += [getattr(one, name) for name in getattr(type(one), "__slots__", ()) if hasattr(one, name)]
    return total
