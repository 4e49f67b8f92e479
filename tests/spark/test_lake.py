"""A lake as its readers see it: what was put aside arrives when it is published, and never if it is not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.journal.files import CLUSTER, JournalFiles, rows_of
from tests.helpers.programs.started import eventually
from wakeq.cli.entry import main
from wakeq.client.bulk import BulkClient
from wakeq.pipeline.lake import archive, published
from wakeq.pipeline.stream.options import write_options
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import (
    CreateQueue,
    Draft,
    Publish,
    Stash,
    Unstash,
    UnstashAction,
)

pytestmark = [pytest.mark.spark, pytest.mark.long]


def bodies(spark: Any, lake: Path, where: str = "true") -> list[bytes]:
    return sorted(bytes(row.body) for row in published(spark, lake, "jobs", where).collect())


def test_stashed_messages_are_archived_only_once_published(spark: Any, tmp_path: Path) -> None:
    files, lake = JournalFiles(tmp_path / "data"), tmp_path / "lake"
    rows = [Draft(b"x", 7), Draft(b"y")]
    files.write(
        CreateQueue("jobs", Policies()),
        Stash("jobs", rows, "lost attempt", 0, 1000),
        Stash("jobs", rows, "attempt", 0, 1000),
        Stash("jobs", [Draft(b"undecided")], "undecided", 0, 1000),
        Unstash("jobs", UnstashAction.PUBLISHED, [("attempt", 2)], "writer", 1),
        Unstash("jobs", UnstashAction.LAPSED, [("lost attempt", 0)]),
        Publish("jobs", [Draft(b"z")]),
    )
    files.outcomes(0, (5, 2, 3), (6, 2, 1), queues=[(1, 7, "jobs")])
    archive([files.path], lake, bodies=True)

    assert bodies(spark, lake) == [b"x", b"y", b"z"]
    assert bodies(spark, lake, "priority = 7") == [b"x"]


def published_in(data: Path) -> int:
    return sum((row["event"], row["outcome"]) == ("published", "done") for row in rows_of(data))


def test_job_with_a_repeated_task_is_archived_and_replayed_once(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql.types import StringType, StructField, StructType

    from wakeq.pipeline.stream.sink import QueueWriter

    def attempt(*, dies: bool) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"body": ["m0", "m1"]})
        if dies:
            raise RuntimeError("the worker dies")
        yield pa.RecordBatch.from_pydict({"body": ["m2"]})

    lake = tmp_path / "lake"
    with BrokerProcess(tmp_path / "data") as broker:
        address = ":".join(map(str, broker.worker_address))
        options = write_options({"broker": address, "queue": "jobs"})
        writer = QueueWriter(options, StructType([StructField("body", StringType())]), overwrite=False)
        with pytest.raises(RuntimeError, match="the worker dies"):
            writer.write(attempt(dies=True))
        writer.commit([writer.write(attempt(dies=False))])
        eventually(lambda: published_in(broker.data_dir) == 3, "the journal tells of what was published")
        archive([broker.data_dir], lake, bodies=True)

        command = ["--broker", address, "pipeline", "replay", str(lake), "--queue", "jobs", "--where", "true"]
        assert main([*command, "--to", "again"]) == 0

        stashed = [row for row in rows_of(broker.data_dir) if (row["queue"], row["event"]) == ("jobs", "stashed")]
        assert len(stashed) == 5, "the first attempt had put something aside"
        again = [message.body for message in BulkClient(address).fetch_many("again", 10)]
        assert sorted(again) == bodies(spark, lake) == [b"m0", b"m1", b"m2"]


def test_stash_that_ends_after_an_archive_is_in_the_next_archive(spark: Any, tmp_path: Path) -> None:
    files, lake = JournalFiles(tmp_path / "data"), tmp_path / "lake"
    files.write(CreateQueue("jobs", Policies()), Stash("jobs", [Draft(b"x")], "attempt", 0, 1000))
    files.outcomes(0, queues=[(1, 2, "jobs")])
    archive([files.path], lake, bodies=True)
    before = bodies(spark, lake)

    files.write(Unstash("jobs", UnstashAction.PUBLISHED, [("attempt", 1)], "writer", 1))
    files.outcomes(2, (3, 1, 1), queues=[(1, 2, "jobs")], lists_all=False)
    archive([files.path], lake, bodies=True)

    assert (before, bodies(spark, lake)) == ([], [b"x"])


def test_clusters_with_equal_counters_keep_their_stashes_apart(spark: Any, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for cluster, body in ((CLUSTER, b"x"), (CLUSTER[::-1], b"y")):
        files = JournalFiles(tmp_path / cluster.hex(), cluster=cluster)
        attempt = Unstash("jobs", UnstashAction.PUBLISHED, [("attempt", 1)], "writer", 1)
        files.write(CreateQueue("jobs", Policies()), Stash("jobs", [Draft(body)], "attempt", 0, 1000), attempt)
        files.outcomes(0, (3, 1, 1), queues=[(1, 2, "jobs")])
        archive([files.path], lake, bodies=True)

    assert bodies(spark, lake) == [b"x", b"y"]
