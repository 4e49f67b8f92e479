"""A lake as its readers see it: what was put aside arrives when it is published, and never if it is not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.journal.files import JournalFiles, rows_of
from tests.helpers.programs.started import eventually
from wakeq.cli.entry import main
from wakeq.client.bulk import BulkClient
from wakeq.pipeline.lake.archiving import archive
from wakeq.pipeline.lake.reading import Lake, arrivals_sql
from wakeq.pipeline.stream.options import write_options
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import CreateQueue, Draft, Publish, Stash, Unstash, UnstashAction

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_query_of_arrivals_gives_the_same_on_spark_and_on_duckdb(spark: Any, tmp_path: Path) -> None:
    files, lake = JournalFiles(tmp_path / "data"), tmp_path / "lake"
    files.write(
        CreateQueue("jobs", Policies()),
        Stash("jobs", [Draft(b"x", 7, delay_ms=3_600_000)], "attempt", 0, 1000),
        Stash("jobs", [Draft(b"undecided")], "undecided", 0, 1000),
        Unstash("jobs", UnstashAction.PUBLISHED, [("attempt", 1)], "writer", 1),
        Publish("jobs", [Draft(b"z", 3), Draft(b"late", delay_ms=3_600_000)]),
    )
    files.outcomes(0, (4, 1, 1), queues=[(1, 5, "jobs")])
    archive([files.path], lake, bodies=True)
    chosen = f"SELECT * FROM ({arrivals_sql('events', Lake(lake).columns)}) ORDER BY index, place"
    dataset = Lake(lake).dataset()

    with duckdb.connect() as connection:
        connection.register("events", dataset)
        embedded = connection.sql(chosen).to_arrow_table()
    spark.read.parquet(str(lake)).createOrReplaceTempView("events")
    clustered = spark.sql(chosen).toArrow()

    assert clustered.to_pylist() == embedded.to_pylist()
    assert [row["body"] for row in clustered.to_pylist()] == [b"x", b"z", b"late"]
    assert [row["until"] is not None for row in clustered.to_pylist()] == [True, False, True]


def published_in(data: Path) -> int:
    return sum((row["event"], row["outcome"]) == ("published", "done") for row in rows_of(data))


def test_job_with_a_repeated_task_is_archived_and_loaded_once(needs_spark: None, tmp_path: Path) -> None:
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

        command = ["--broker", address, "pipeline", "load", str(lake), "--queue", "jobs"]
        assert main([*command, "--to", "again"]) == 0

        stashed = [row for row in rows_of(broker.data_dir) if (row["queue"], row["event"]) == ("jobs", "stashed")]
        assert len(stashed) == 5, "the first attempt had put something aside"
        again = [message.body for message in BulkClient(address).fetch_many("again", 10)]
        assert sorted(again) == [b"m0", b"m1", b"m2"]
