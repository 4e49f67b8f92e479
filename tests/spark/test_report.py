"""Both engines say the same of one history: DuckDB in this process, and Spark."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.helpers.journal.files import AT_MS, CLUSTER, JournalFiles, rows_of
from tests.helpers.journal.random_life import Life, broker_of_one
from wakeq.pipeline.journal import plan as journal_plan
from wakeq.pipeline.lake import archive
from wakeq.pipeline.report.embedded import Embedded
from wakeq.pipeline.report.events import Events, Limits, events_in, lake_events
from wakeq.pipeline.report.forecast import ARRIVALS, SERVICE, forecast
from wakeq.pipeline.report.on_spark import PARTS, OnSpark
from wakeq.pipeline.report.queries import PERIOD, counts_query, spans_query
from wakeq.pipeline.report.run import make_report
from wakeq.protocol.catalog import Policies
from wakeq.protocol.errors import StorageError
from wakeq.protocol.log.entries import (
    Ack,
    Claim,
    ClaimAction,
    CreateQueue,
    Delivered,
    Draft,
    Noop,
    Publish,
    Stash,
    Unstash,
    UnstashAction,
)

# Words of both dialects have no meaning in a name.
QUEUE = 'it\'s \\ "quoted" {queue}'
pytestmark = [pytest.mark.spark, pytest.mark.long]
STEPS = 400
SEEDS = (3, 8)
QUERIES = (PERIOD, counts_query(1), counts_query(60), spans_query(), ARRIVALS, SERVICE)


@pytest.fixture(scope="module", params=SEEDS)
def life(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker's directory after a random life: stashes, claims, purges, dead letters, crashes, sealed segments."""
    path = tmp_path_factory.mktemp("life") / "data"
    life = Life(broker_of_one(path), random.Random(request.param))
    for _ in range(STEPS):
        life.step()
        life.broker.advance(0.37)
    bury_one(life)
    life.end()
    return path


def bury_one(life: Life) -> None:
    """Make a dead letter: not every random life has one."""
    life.client.call("PUB", "b-long-name", message="last", priority=-9)
    last = life.client.call("FET", "b-long-name")
    reply = life.client.call("NACK", "b-long-name", uid=last["uid"], lease=last["lease"], dead=True)
    assert reply["cmd"] == "oknack", reply


@pytest.fixture
def in_several_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_plan, "SPAN_BYTES_MIN", 4_000)


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    """Return the rows in an order of their own: neither engine promises one."""
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def check_engines(spark: Any, events: Events) -> None:
    """Ask both engines each question."""
    embedded, on_spark = Embedded().run(events, *QUERIES), OnSpark(spark).run(events, *QUERIES)

    for query, ours, theirs in zip(QUERIES, embedded, on_spark, strict=True):
        assert rows(ours) == rows(theirs), query.sql
        assert [str(kind) for kind in ours.schema.types] == [str(kind) for kind in theirs.schema.types], query.sql


@pytest.mark.usefixtures("in_several_spans")
def test_random_life_gets_equal_figures_from_both_engines(spark: Any, life: Path) -> None:
    events = events_in([life])

    done = {row["event"] for row in rows_of(life) if row["outcome"] == "done"}
    assert done >= {"stashed", "purged", "dead", "released", "cancelled", "expired", "moved"}
    check_engines(spark, events)


@pytest.mark.usefixtures("in_several_spans")
def test_limits_choose_the_same_events_in_both_engines(spark: Any, life: Path) -> None:
    moments = [round(row["at"].timestamp() * 1000) for row in rows_of(life)]
    limits = Limits(moments[len(moments) // 3], moments[len(moments) // 2], "a")

    check_engines(spark, events_in([life], limits))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake of two clusters; the counters of both are equal."""
    for number, cluster in enumerate((CLUSTER, CLUSTER[::-1])):
        archive([claims_and_stashes(tmp_path / str(number), cluster)], tmp_path / "lake")
    return tmp_path / "lake"


def claims_and_stashes(path: Path, cluster: bytes = CLUSTER) -> Path:
    files = JournalFiles(path, cluster=cluster)
    lease = [AT_MS + 60_000]
    files.write(
        CreateQueue(QUEUE, Policies()),
        Publish(QUEUE, [Draft(b"worked"), Draft(b"claimed"), Draft(b"at once")]),
        Claim(QUEUE, 1, ClaimAction.STAGED, "source", 1, [2], until_ms=lease[0]),
        Delivered(QUEUE, 1, [1], lease, 2, worker=5),
        Ack(QUEUE, 1, [1], [(1, 2)], worker=5),
        Ack(QUEUE, 1, [3], [(0, 0)], worker=6, delivered=True),
        *[Noop()] * 100,
        Claim(QUEUE, 1, ClaimAction.SETTLED, "source", 1, [2], [(1, 1)]),
        Stash(QUEUE, [Draft(b"x", 7), Draft(b"y", delay_ms=9_000_000)], "lost attempt", 0, 1000),
        Stash(QUEUE, [Draft(b"x", 7), Draft(b"y", delay_ms=9_000_000)], "attempt", 0, 1000),
        Unstash(QUEUE, UnstashAction.PUBLISHED, [("attempt", 2)], "writer", 1),
    )
    files.outcomes(0, (110, 2, 6), queues=[(1, 8, QUEUE)])
    return path


def test_lake_of_several_clusters_gets_equal_figures_from_both_engines(spark: Any, lake: Path) -> None:

    check_engines(spark, events_in([lake]))
    check_engines(spark, lake_events(lake, Limits(since_ms=AT_MS + 3000, until_ms=AT_MS + 10_000, queue=QUEUE)))
    forecasts = [forecast(one, lake_events(lake), wait_s=1, percent=95) for one in (Embedded(), OnSpark(spark))]
    assert forecasts[0] == forecasts[1]
    assert QUEUE in {hour.queue for hour in forecasts[0]}


def test_slowest_workers_are_the_same_when_each_message_has_its_own(spark: Any, tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "data")
    files.write(CreateQueue("jobs", Policies()), Publish("jobs", [Draft(b"x")] * 200))
    for worker in range(1, 41):
        numbers = list(range(5 * worker - 4, 5 * worker + 1))
        files.write(
            Delivered("jobs", 1, numbers, [AT_MS + 10**6] * 5, numbers[0], worker=worker),
            *[Noop()] * (worker % 7),
            Ack("jobs", 1, numbers, [(1, number) for number in numbers], worker=worker),
        )
    files.outcomes(0, queues=[(1, 201, "jobs")])

    check_engines(spark, events_in([files.path]))


@pytest.mark.parametrize("limits", [Limits(queue="nobody's"), Limits(since_ms=AT_MS * 2)])
def test_nothing_is_equal_to_nothing(spark: Any, tmp_path: Path, limits: Limits) -> None:
    path = claims_and_stashes(tmp_path / "data")

    check_engines(spark, events_in([path], limits))
    assert make_report(Embedded(), events_in([path], limits))[0].queues == []


@pytest.mark.parametrize("engine", [lambda spark: Embedded(), OnSpark])
def test_journal_without_entries_is_refused_in_words(spark: Any, tmp_path: Path, engine: Callable[[Any], Any]) -> None:
    files = JournalFiles(tmp_path / "data")
    files.log.close()

    with pytest.raises(StorageError, match="nothing has happened yet"):
        make_report(engine(spark), events_in([files.path]))


def test_report_is_the_same_and_leaves_the_session_as_it_was(spark: Any, tmp_path: Path) -> None:
    events = events_in([claims_and_stashes(tmp_path / "data")])
    before = spark.conf.get(PARTS)
    views = [table.name for table in spark.catalog.listTables()]

    report, tables = make_report(OnSpark(spark), events)

    assert report == make_report(Embedded(), events)[0]
    assert {row["queue"] for row in tables.spans} == {QUEUE}
    assert spark.conf.get(PARTS) == before
    assert [table.name for table in spark.catalog.listTables()] == views
