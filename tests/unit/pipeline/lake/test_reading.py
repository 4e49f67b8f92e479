"""A lake as its readers get it: files, columns, and messages by SQL."""

from pathlib import Path

import duckdb
import pytest

from tests.helpers.journal.files import CLUSTER, JournalFiles
from tests.helpers.lakes.lives import history, told_by, without_cluster
from tests.helpers.lakes.places import Kind
from wakeq.pipeline.lake.archiving import archive
from wakeq.pipeline.lake.reading import Lake, arrivals_sql
from wakeq.protocol.catalog import Policies
from wakeq.protocol.errors import StorageError
from wakeq.protocol.log.entries import CreateQueue, Draft, Publish, Stash, Unstash, UnstashAction

COLUMNS = ("at", "queue", "uid", "event", "outcome", "priority", "delivery", "worker", "door", "reason", "size",
           "until", "index", "place", "incarnation", "number")  # fmt: skip


def arrived(lake: str | Path) -> list[tuple[object, ...]]:
    """Return cluster, body, priority and size of the messages that arrived."""
    events = Lake(lake).dataset()
    query = arrivals_sql("events", ("cluster", "at", "index", "place", "until", "body", "priority", "size"))
    with duckdb.connect() as connection:
        connection.register("events", events)
        found = connection.sql(f"SELECT cluster, body, priority, size FROM ({query}) ORDER BY cluster, index, place")
        return found.fetchall()


@pytest.mark.parametrize("bodies", [False, True])
def test_lake_says_its_columns_and_its_files(kind: Kind, tmp_path: Path, bodies: bool) -> None:
    files, address = history(tmp_path), kind.address()
    archive([files.path], address, bodies=bodies)

    lake = Lake(address)

    assert lake.has_bodies == bodies
    assert lake.columns == ("cluster", *COLUMNS, *(("body",) if bodies else ()))
    assert lake.files == [f"{address}/date=2023-11-14/{CLUSTER.hex()}-{1:019d}-{9:019d}.parquet"]
    assert lake.address == address


def test_dataset_of_a_lake_has_all_events(kind: Kind, tmp_path: Path) -> None:
    files, address = history(tmp_path), kind.address()
    archive([files.path], address, bodies=True)

    table = Lake(address).dataset().to_table()

    assert without_cluster(table.to_pylist()) == told_by(files.path)
    assert set(table.column("cluster").to_pylist()) == {CLUSTER.hex()}


def test_dataset_of_one_cluster_has_no_events_of_another(kind: Kind, tmp_path: Path) -> None:
    files, address = history(tmp_path), kind.address()
    other = JournalFiles(tmp_path / "two", cluster=CLUSTER[::-1])
    other.write(CreateQueue("other", Policies()))
    other.outcomes(0, queues=[(1, 1, "other")])
    for path in (files.path, other.path):
        archive([path], address, bodies=True)
    lake = Lake(address)

    with duckdb.connect() as connection:
        connection.register("events", lake.dataset(CLUSTER[::-1].hex()))
        found = connection.sql("SELECT cluster, queue, event FROM events WHERE outcome = 'done'").fetchall()

    assert lake.clusters == [CLUSTER.hex(), CLUSTER[::-1].hex()]
    assert found == [(CLUSTER[::-1].hex(), "other", "created")]
    assert without_cluster(lake.dataset(CLUSTER.hex()).to_table().to_pylist()) == told_by(files.path)


def test_files_of_a_lake_are_read_by_any_engine_without_its_notes(tmp_path: Path) -> None:
    files, lake = history(tmp_path), tmp_path / "lake"
    archive([files.path], lake)

    found = duckdb.sql(f"SELECT event, count(*) FROM '{lake}/date=*/*.parquet' GROUP BY event ORDER BY event")

    assert found.fetchall() == [("acked", 8), ("created", 1), ("published", 12)]


def test_place_without_events_is_not_a_lake(kind: Kind) -> None:
    address = kind.address()

    with pytest.raises(StorageError, match="is not a lake, or has no events yet; make one with wakeq pipeline arch"):
        Lake(address)


def test_message_of_a_stash_arrives_with_its_fields_when_it_is_published(tmp_path: Path) -> None:
    files, lake = JournalFiles(tmp_path / "data"), tmp_path / "lake"
    rows = [Draft(b"xx", 7), Draft(b"y")]
    files.write(
        CreateQueue("jobs", Policies()),
        Stash("jobs", rows, "lost attempt", 0, 1000),
        Stash("jobs", rows, "attempt", 0, 1000),
        Stash("jobs", [Draft(b"undecided")], "undecided", 0, 1000),
        Unstash("jobs", UnstashAction.PUBLISHED, [("attempt", 2)], "writer", 1),
        Unstash("jobs", UnstashAction.LAPSED, [("lost attempt", 0)]),
        Publish("jobs", [Draft(b"z", 3)]),
    )
    files.outcomes(0, (5, 2, 3), (6, 2, 1), queues=[(1, 7, "jobs")])
    archive([files.path], lake, bodies=True)

    assert [found[1:] for found in arrived(lake)] == [(b"xx", 7, 2), (b"y", 0, 1), (b"z", 3, 1)]


def test_clusters_with_equal_counters_keep_their_stashes_apart(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for cluster, body in ((CLUSTER, b"x"), (CLUSTER[::-1], b"y")):
        files = JournalFiles(tmp_path / cluster.hex(), cluster=cluster)
        attempt = Unstash("jobs", UnstashAction.PUBLISHED, [("attempt", 1)], "writer", 1)
        files.write(CreateQueue("jobs", Policies()), Stash("jobs", [Draft(body)], "attempt", 0, 1000), attempt)
        files.outcomes(0, (3, 1, 1), queues=[(1, 2, "jobs")])
        archive([files.path], lake, bodies=True)

    assert arrived(lake) == [(CLUSTER.hex(), b"x", 0, 1), (CLUSTER[::-1].hex(), b"y", 0, 1)]
