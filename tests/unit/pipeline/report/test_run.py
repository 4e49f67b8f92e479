"""The report on generated histories says what plain Python counts, event by event."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.helpers.journal.files import AT_MS, EVERYTHING, JournalFiles, rows_of
from tests.helpers.journal.oracle import Figures, figures_of, percentile
from tests.helpers.journal.random_life import Life, broker_of_one
from wakeq.pipeline.journal import plan as journal_plan
from wakeq.pipeline.lake import archive
from wakeq.pipeline.report.embedded import Embedded
from wakeq.pipeline.report.events import Limits, events_in
from wakeq.pipeline.report.report import LEAVING, WORKERS_MAX, QueueReport, Report, Spans, Tables
from wakeq.pipeline.report.run import make_report, write_report
from wakeq.protocol.catalog import Policies
from wakeq.protocol.errors import StorageError
from wakeq.protocol.log.entries import Ack, CreateQueue, Delivered, Draft, Noop, Publish, Stash, Unstash, UnstashAction

STEPS = 300
JOBS = CreateQueue("jobs", Policies())


@pytest.fixture(scope="module", params=[3, 8])
def history(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker's directory after a random life, with crashes and sealed segments in it."""
    path = tmp_path_factory.mktemp("life") / "data"
    life = Life(broker_of_one(path), random.Random(request.param))
    for _ in range(STEPS):
        life.step()
        life.broker.advance(0.37)
    life.end()
    return path


@pytest.fixture(scope="module")
def made(history: Path) -> Iterator[tuple[Report, Tables]]:
    """The report of all of it, read in several spans."""
    before, journal_plan.SPAN_BYTES_MIN = journal_plan.SPAN_BYTES_MIN, 4_000
    yield make_report(Embedded(), events_in([history]))
    journal_plan.SPAN_BYTES_MIN = before


def test_report_of_a_random_history_equals_the_oracle(made: tuple[Report, Tables], history: Path) -> None:
    report, _tables = made

    expected = figures_of(rows_of(history, wanted=EVERYTHING))
    assert {queue.name for queue in report.queues} == expected.keys()
    for queue in report.queues:
        check(queue, expected[queue.name])


def check(queue: QueueReport, oracle: Figures) -> None:
    assert {event: count for event, count in queue.events.items() if count} == dict(oracle.events)
    assert queue.refused == dict(oracle.refused)
    assert queue.releases == dict(oracle.releases)
    assert queue.dead_letters == dict(oracle.dead_letters)
    assert queue.redeliveries == oracle.redeliveries
    assert queue.redelivered == oracle.redelivered
    assert queue.cancelled == oracle.cancelled
    assert queue.backlog_last == len(oracle.held), queue.name
    assert queue.bytes_published == oracle.bytes_published
    assert sum(queue.published) == sum(queue.hours) == queue.events["published"]
    assert sum(queue.done) == sum(queue.events.get(event, 0) for event in LEAVING)
    check_spans(queue.waiting, oracle.waiting_s)
    check_spans(queue.working, oracle.working_s)


def check_spans(spans: Spans, values: list[float]) -> None:
    assert spans.messages == len(values)
    if values:
        for percent, found in ((50, spans.p50_s), (90, spans.p90_s), (99, spans.p99_s)):
            assert found == pytest.approx(percentile(values, percent), rel=0.01, abs=0.001)


def test_report_of_a_lake_equals_that_of_the_journal(
    made: tuple[Report, Tables], history: Path, tmp_path: Path
) -> None:
    archive([history], tmp_path / "lake", bodies=True)

    report, tables = make_report(Embedded(), events_in([tmp_path / "lake"]))

    # A lake has events, and a journal also entries without one, before and after them.
    same_time = Limits(report.since_s * 1000, report.until_s * 1000)
    assert report == make_report(Embedded(), events_in([history], same_time))[0]
    assert len(tables.spans) == len(made[1].spans)


def test_lake_at_an_address_is_reported_on(tmp_path: Path) -> None:
    path, address = lives_of(tmp_path / "data", 2, messages=5), f"memory://{tmp_path.name}"
    archive([path], address)

    report, _tables = make_report(Embedded(), events_in([address]))

    assert report == make_report(Embedded(), events_in([path]))[0]


def test_report_can_be_limited_to_a_queue_and_a_time(history: Path, tmp_path: Path) -> None:
    rows = [row for row in rows_of(history) if row["queue"] == "a"]
    since_ms, until_ms = (round(rows[len(rows) * part // 3]["at"].timestamp() * 1000) for part in (1, 2))
    archive([history], tmp_path / "lake")
    limits = Limits(since_ms, until_ms, "a")

    report, _tables = make_report(Embedded(), events_in([history], limits))
    of_lake, _tables = make_report(Embedded(), events_in([tmp_path / "lake"], limits))

    chosen = [row for row in rows if since_ms <= row["at"].timestamp() * 1000 < until_ms and row["outcome"] == "done"]
    assert [queue.name for queue in report.queues] == ["a"]
    assert report.events["published"] == sum(row["event"] == "published" for row in chosen) > 0
    assert (report.since_s, report.until_s) == (since_ms // 1000, -(-until_ms // 1000))
    assert of_lake == report


def test_page_json_and_tables_are_written(made: tuple[Report, Tables], tmp_path: Path) -> None:
    report, tables = made

    written = write_report(report, tables, tmp_path / "out" / "report.html", tmp_path / "tables")

    page = written[0].read_text()
    assert page.startswith("<!doctype html>")
    assert "<script" not in page
    assert "b-long-name" in page
    values = msgspec.json.decode(written[1].read_bytes())
    assert values["events"] == report.events
    assert [path.name for path in written[2:]] == ["counts.parquet", "spans.parquet", "workers.parquet"]


def lives_of(path: Path, workers: int, *, messages: int) -> Path:
    """Write the work of many workers, each on so many messages of its own, for `worker` seconds."""
    files = JournalFiles(path)
    files.write(JOBS, Publish("jobs", [Draft(b"x")] * (workers * messages)))
    for worker in range(1, workers + 1):
        numbers = list(range(messages * (worker - 1) + 1, messages * worker + 1))
        files.write(
            Delivered("jobs", 1, numbers, [AT_MS + 10**7] * messages, numbers[0], worker=worker),
            *[Noop()] * (worker - 1),
            Ack("jobs", 1, numbers, [(1, number) for number in numbers], worker=worker),
        )
    files.outcomes(0, queues=[(1, workers * messages + 1, "jobs")])
    return path


def test_only_the_slowest_workers_leave_the_engine(tmp_path: Path) -> None:
    """As many workers as messages would need as much memory as the journal."""
    path = lives_of(tmp_path / "data", WORKERS_MAX + 5, messages=6)

    report, tables = make_report(Embedded(), events_in([path]))

    assert [one.worker for one in report.workers] == list(range(WORKERS_MAX + 5, 5, -1))
    assert len(tables.workers) == WORKERS_MAX
    assert (report.workers[0].messages, report.workers[0].working.messages) == (6, 6)
    assert report.workers[0].working.p90_s == pytest.approx(WORKERS_MAX + 5, rel=0.01)


def test_workers_with_few_messages_are_left_out(tmp_path: Path) -> None:
    path = lives_of(tmp_path / "data", 9, messages=4)

    report, tables = make_report(Embedded(), events_in([path]))

    assert (report.workers, tables.workers) == ([], [])
    assert report.queues[0].working.messages == 36


def test_work_is_counted_from_the_last_delivery_and_for_its_worker(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    numbers, lease = [1, 2, 3, 4, 5], [AT_MS + 10**7] * 5
    files.write(
        JOBS,
        Publish("jobs", [Draft(b"x")] * 5),
        Delivered("jobs", 1, numbers, lease, 1, worker=9),
        *[Noop()] * 50,
        Delivered("jobs", 1, numbers, lease, 6, worker=3),
        Ack("jobs", 1, numbers, [(1, number + 5) for number in numbers], worker=3),
    )
    files.outcomes(0, queues=[(1, 6, "jobs")])

    report, _tables = make_report(Embedded(), events_in([files.path]))

    (queue,), (worker,) = report.queues, report.workers
    assert queue.working.p50_s == pytest.approx(1, rel=0.01)
    assert queue.waiting.p50_s == pytest.approx(1, rel=0.01)
    assert (queue.redelivered, queue.redeliveries, worker.worker) == (5, 5, 3)


def test_stashed_message_waits_from_its_publish_or_from_the_end_of_its_delay(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(
        JOBS,
        Stash("jobs", [Draft(b"x"), Draft(b"y", delay_ms=10_000)], "s", 0, 1000),
        Unstash("jobs", UnstashAction.PUBLISHED, [("s", 2)], "writer", 1),
        *[Noop()] * 20,
        Delivered("jobs", 1, [1, 2], [AT_MS + 10**7] * 2, 1, worker=9),
    )
    files.outcomes(0, (3, 2, 1), queues=[(1, 3, "jobs")])

    report, _tables = make_report(Embedded(), events_in([files.path]))

    # Published at 3 s, due at 3 s and at 12 s, delivered at 24 s.
    waiting = report.queues[0].waiting
    assert (waiting.messages, waiting.p50_s, waiting.p99_s) == pytest.approx((2, 12, 21), rel=0.01)


def test_equal_counters_of_two_clusters_in_a_lake_are_kept_apart(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for number, entries in enumerate(([Publish("jobs", [Draft(b"x")] * 3)], [Stash("jobs", [Draft(b"x")], "s", 0, 9)])):
        files = JournalFiles(tmp_path / str(number), cluster=bytes([number]) * 16)
        files.write(JOBS, *entries, Unstash("jobs", UnstashAction.PUBLISHED, [("s", 1)], "writer", 1))
        files.outcomes(0, *([(3, 1, 1)] if number else []), queues=[(1, 4, "jobs")])
        archive([files.path], lake)

    report, _tables = make_report(Embedded(), events_in([lake]))

    (queue,) = report.queues
    assert (queue.events["published"], queue.bytes_published, queue.backlog_last) == (4, 4, 4)


def test_journal_without_entries_is_refused_in_words(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")

    with pytest.raises(StorageError, match="nothing has happened yet"):
        make_report(Embedded(), events_in([files.path]))


@pytest.mark.parametrize("limits", [Limits(since_ms=2 * AT_MS), Limits(until_ms=AT_MS // 2), Limits(until_ms=0)])
def test_report_of_a_time_in_which_nothing_happened_is_empty(tmp_path: Path, limits: Limits) -> None:
    path = lives_of(tmp_path / "data", 1, messages=1)

    report, _tables = make_report(Embedded(), events_in([path], limits))

    assert (report.queues, report.workers, report.events["published"]) == ([], [], 0)
