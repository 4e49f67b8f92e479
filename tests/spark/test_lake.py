"""A lake as its readers see it: what was put aside arrives when it is published, and never if it is not."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.journal.files import rows_of
from tests.helpers.programs.started import eventually
from wakeq.cli.entry import main
from wakeq.client.bulk import BulkClient
from wakeq.pipeline.lake import archive
from wakeq.pipeline.stream.options import write_options

pytestmark = [pytest.mark.spark, pytest.mark.long]


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
