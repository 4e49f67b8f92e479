"""How many workers: the model's known values, and what must be true of any answer."""

from fractions import Fraction
from math import factorial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.journal.files import AT_MS, CLUSTER, JOBS, JournalFiles
from wakeq.pipeline.lake import archive
from wakeq.pipeline.report.embedded import Embedded
from wakeq.pipeline.report.events import lake_events
from wakeq.pipeline.report.forecast import DAY_MS, HourForecast, forecast, waits_longer, workers_for
from wakeq.protocol.log.entries import (
    Ack,
    Claim,
    ClaimAction,
    Delivered,
    Draft,
    Entry,
    Noop,
    Publish,
    Stash,
    Unstash,
    UnstashAction,
)
from wakeq.protocol.log.records import encode_entry


def erlang_c(load: Fraction, workers: int) -> Fraction:
    """Return the part that waits, as the textbook writes it."""
    terms = [load**busy / factorial(busy) for busy in range(workers)]
    full = load**workers / factorial(workers) * workers / (workers - load)
    return full / (sum(terms) + full)


@pytest.mark.parametrize(("load", "workers"), [("1/2", 1), ("2", 3), ("10", 12), ("199/2", 100)])
def test_waiting_part_equals_erlang_c(load: str, workers: int) -> None:
    expected = erlang_c(Fraction(load), workers)

    assert waits_longer(float(Fraction(load)), workers, service_s=1, wait_s=0) == pytest.approx(float(expected))


@given(st.floats(0.001, 500), st.floats(0.001, 10), st.floats(0.001, 60), st.floats(50, 99.9))
def test_forecast_is_the_smallest_sufficient_number(
    rate: float, service_s: float, wait_s: float, percent: float
) -> None:
    workers = workers_for(rate, service_s, wait_s=wait_s, percent=percent)

    load = rate * service_s
    late = 1 - percent / 100
    assert workers > load
    assert waits_longer(load, workers, service_s, wait_s) <= late
    assert workers - 1 <= load or waits_longer(load, workers - 1, service_s, wait_s) > late


def test_queue_without_arrivals_needs_no_worker() -> None:
    assert workers_for(0, 5, wait_s=1, percent=90) == 0


def test_queue_whose_work_takes_no_time_needs_one_worker() -> None:
    assert workers_for(13.9, 0, wait_s=1, percent=90) == 1


def forecast_of(lake: Path) -> list[HourForecast]:
    return forecast(Embedded(), lake_events(lake), wait_s=1, percent=95)


def test_stashed_messages_arrive_when_they_are_published_and_others_never(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    rows = [Draft(b"x", 7), Draft(b"y")]
    files.write(
        JOBS,
        Stash("jobs", rows, "lost attempt", 0, 1000),
        Stash("jobs", rows, "attempt", 0, 1000),
        Unstash("jobs", UnstashAction.PUBLISHED, [("attempt", 2)], "writer", 1),
        Publish("jobs", [Draft(b"z")]),
    )
    files.outcomes(0, (4, 2, 3), queues=[(1, 6, "jobs")])
    archive([files.path], tmp_path / "lake")

    (hour,) = forecast_of(tmp_path / "lake")

    assert hour.arrivals_mean_per_s * 3600 == pytest.approx(3)


def test_work_time_is_measured_from_later_acknowledged_deliveries_only(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    lease = [AT_MS + 60_000]
    files.write(
        JOBS,
        Publish("jobs", [Draft(b"worked"), Draft(b"claimed"), Draft(b"at once")]),
        Claim("jobs", 1, ClaimAction.STAGED, "source", 1, [2], until_ms=lease[0]),
        Delivered("jobs", 1, [1], lease, 2, worker=5),
        Ack("jobs", 1, [1], [(1, 2)], worker=5),
        Ack("jobs", 1, [3], [(0, 0)], worker=6, delivered=True),
        *[Noop()] * 100,
        Claim("jobs", 1, ClaimAction.SETTLED, "source", 1, [2], [(1, 1)]),
    )
    files.outcomes(0, queues=[(1, 4, "jobs")])
    archive([files.path], tmp_path / "lake")

    (hour,) = forecast_of(tmp_path / "lake")

    assert hour.service_s == 1


def write_at(files: JournalFiles, at_ms: int, entry: Entry) -> None:
    files.log.append_many(files.log.last_index + 1, 1, [encode_entry(entry, at_ms)])
    batch = files.log.take_buffer()
    assert batch is not None
    files.log.write(batch)


def test_every_day_between_the_first_and_the_last_counts_and_the_worst_is_the_peak(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    for day, messages in ((0, 6), (3, 2)):
        write_at(files, AT_MS + day * DAY_MS, Publish("jobs", [Draft(b"x")] * messages))
    files.outcomes(0, queues=[(1, 9, "jobs")])
    archive([files.path], tmp_path / "lake")

    (hour,) = forecast_of(tmp_path / "lake")

    assert (hour.hour, hour.days, hour.service_s, hour.workers_peak) == (22, 4, None, None)
    assert (hour.arrivals_mean_per_s * 3600, hour.arrivals_peak_per_s * 3600) == pytest.approx((2, 6))


def test_hour_without_work_has_the_work_time_of_the_whole_queue(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    write_at(files, AT_MS, Publish("jobs", [Draft(b"x")]))
    write_at(files, AT_MS, Delivered("jobs", 1, [1], [AT_MS + 60_000], 1, worker=5))
    write_at(files, AT_MS + 4000, Ack("jobs", 1, [1], [(1, 1)], worker=5))
    write_at(files, AT_MS + DAY_MS // 2, Publish("jobs", [Draft(b"x")]))
    files.outcomes(0, queues=[(1, 3, "jobs")])
    archive([files.path], tmp_path / "lake")

    assert [hour.service_s for hour in forecast_of(tmp_path / "lake")] == [4, 4]


def test_messages_of_two_clusters_with_equal_uids_have_their_own_work_time(tmp_path: Path) -> None:
    for cluster, taken_ms in ((CLUSTER, 2000), (CLUSTER[::-1], 4000)):
        files = JournalFiles(tmp_path / cluster.hex(), cluster=cluster)
        write_at(files, AT_MS, Publish("jobs", [Draft(b"x")]))
        write_at(files, AT_MS, Delivered("jobs", 1, [1], [AT_MS + 60_000], 1, worker=5))
        write_at(files, AT_MS + taken_ms, Ack("jobs", 1, [1], [(1, 1)], worker=5))
        files.outcomes(0, queues=[(1, 2, "jobs")])
        archive([files.path], tmp_path / "lake")

    (hour,) = forecast_of(tmp_path / "lake")

    assert (hour.service_s, hour.arrivals_mean_per_s * 3600) == pytest.approx((3, 2))
