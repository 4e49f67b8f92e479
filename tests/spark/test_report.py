"""The report on generated histories says what plain Python counts, event by event."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.helpers.journal.files import EVERYTHING, rows_of
from tests.helpers.journal.oracle import Figures, figures_of, percentile
from tests.helpers.journal.random_life import Life, broker_of_one
from wakeq.pipeline.journal import plan as journal_plan
from wakeq.pipeline.journal.rows import ALL, Wanted
from wakeq.pipeline.report.report import QueueReport, Report, Spans, Tables
from wakeq.pipeline.report.run import LEAVING, make_report, write_report

pytestmark = [pytest.mark.spark, pytest.mark.long]
STEPS = 400


@pytest.fixture(scope="module", params=[1, 7])
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
def made(spark_session: Any, history: Path) -> Iterator[tuple[Report, Tables]]:
    """The report of all of it, read in several spans."""
    before, journal_plan.SPAN_BYTES_MIN = journal_plan.SPAN_BYTES_MIN, 4_000
    yield make_report(spark_session, [history], ALL)
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


def test_report_can_be_limited_to_a_queue_and_a_time(spark: Any, history: Path) -> None:
    rows = [row for row in rows_of(history) if row["queue"] == "a"]
    since_ms = int(rows[len(rows) // 2]["at"].timestamp() * 1000)

    report, _tables = make_report(spark, [history], Wanted(queue="a", since_ms=since_ms))

    chosen = [row for row in rows if row["at"].timestamp() * 1000 >= since_ms and row["outcome"] == "done"]
    assert [queue.name for queue in report.queues] == ["a"]
    assert report.events["published"] == sum(row["event"] == "published" for row in chosen)
    assert report.since_s == since_ms // 1000


def test_page_json_and_tables_are_written(made: tuple[Report, Tables], tmp_path: Path) -> None:
    report, tables = made

    written = write_report(report, tables, tmp_path / "out" / "report.html", tmp_path / "tables")

    page = written[0].read_text()
    assert page.startswith("<!doctype html>")
    assert "<script" not in page
    assert "b-long-name" in page
    values = msgspec.json.decode(written[1].read_bytes())
    assert values["events"] == report.events
    assert [path.name for path in written[2:]] == ["counts.parquet", "spans.parquet"]
