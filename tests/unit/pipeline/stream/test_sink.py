"""The sink without Spark: which writes it refuses before anything is done, and what it asks of the broker."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.helpers.clients.bulk import MemoryClient
from wakeq.pipeline.stream.options import write_options
from wakeq.protocol.errors import BadField, BadSettings, StashExpired

Writers = Callable[..., Any]
pytest.importorskip("pyspark", reason="pyspark is not installed")
pytestmark = pytest.mark.spark


def schema_of(**kinds: str) -> Any:
    """A schema of Spark, made without one: the name of each type as its class begins."""
    from pyspark.sql import types

    headers = types.MapType(types.StringType(), types.StringType())
    made = {name: headers if kind == "Map" else getattr(types, f"{kind}Type")() for name, kind in kinds.items()}
    return types.StructType([types.StructField(name, kind) for name, kind in made.items()])


@pytest.fixture
def writer(client: MemoryClient, monkeypatch: pytest.MonkeyPatch) -> Writers:
    """Return what makes the writer of a job."""
    from wakeq.pipeline.stream import sink

    monkeypatch.setattr(sink, "client_of", lambda _address: client)

    def make(schema: Any = None, **options: str) -> Any:
        schema = schema or schema_of(body="String")
        return sink.QueueWriter(write_options({"queue": "q"} | options), schema, overwrite=False)

    return make


def batch(**columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_batch_write_with_a_writer_names_its_epoch(writer: Writers) -> None:
    with pytest.raises(BadSettings, match="writer 'nightly' needs option epoch"):
        writer(writer="nightly")
    with pytest.raises(BadSettings, match="option epoch is 7, but there is no writer; give option writer, too"):
        writer(epoch="7")

    writer(writer="nightly", epoch="7")
    writer()


@pytest.mark.parametrize(
    ("kinds", "complaint"),
    [
        ({"body": "Integer"}, "column body is int; it must be string or binary"),
        ({"body": "Binary", "priority": "String"}, "column priority is string; it must be a whole number"),
        ({"body": "String", "delay": "Double"}, "column delay is double; it must be a whole number"),
        ({"body": "String", "headers": "String"}, "column headers is string; it must be map<string,string>"),
    ],
)
def test_column_of_a_wrong_type_is_named_before_the_job_runs(
    writer: Writers, kinds: dict[str, str], complaint: str
) -> None:
    with pytest.raises(BadField, match=complaint):
        writer(schema_of(**kinds))

    writer(schema_of(body="Binary", priority="Short", delay="Long", headers="Map"))


def test_unnamed_job_occupies_no_writer(client: MemoryClient, writer: Writers) -> None:
    job = writer()

    for _ in range(2):  # as if the answer to the first one had been lost
        job.commit([job.write(iter([batch(body=["a"])]))])

    assert [message.body for message in client.fetch_many("q", 9)] == [b"a"]
    assert client.writer_epoch("q", job._writer) == 0


def test_row_without_a_priority_has_that_of_the_option(client: MemoryClient, writer: Writers) -> None:
    job = writer(schema_of(body="String", priority="Long"), priority="5")

    job.commit([job.write(iter([batch(body=["a", "b"], priority=pa.array([None, 9], pa.int64()))]))])

    assert [message.priority for message in client.fetch_many("q", 9)] == [5, 9]


def test_stash_published_too_late_is_refused_with_advice(client: MemoryClient, writer: Writers) -> None:
    job = writer(keep="60")
    stashed = job.write(iter([batch(body=["a"])]))
    client.machine.advance(61)

    with pytest.raises(StashExpired, match=r"after 60 s, or is not complete: nothing was published; .* option keep"):
        job.commit([stashed])
