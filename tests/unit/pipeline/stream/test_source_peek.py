"""The look at a queue without Spark: what is in it, and in which state."""

from typing import Any

import pytest

from tests.helpers.clients.bulk import MemoryClient
from wakeq.client.bulk import BulkClient, Columns
from wakeq.pipeline.stream import tasks
from wakeq.pipeline.stream.broker import Broker
from wakeq.pipeline.stream.options import read_options
from wakeq.protocol.errors import BadSettings
from wakeq.protocol.wire.worker.blocks import pack

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytestmark = pytest.mark.spark


def rows_of(client: MemoryClient, monkeypatch: pytest.MonkeyPatch, **options: str) -> list[dict[str, Any]]:
    from wakeq.pipeline.stream import source

    monkeypatch.setattr(Broker, "client", lambda _self: client)
    reader = source.QueueReader(read_options({"queue": "q"} | options), 2)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def schema_of(ddl: str) -> Any:
    """Return a schema of Spark, made without a session."""
    from pyspark.sql import types

    kinds = {"string": types.StringType(), "binary": types.BinaryType(), "int": types.IntegerType()}
    fields = [column.split() for column in ddl.split(", ")]
    return types.StructType([types.StructField(name, kinds[kind]) for name, kind in fields])


def test_unpublished_messages_are_not_shown(client: MemoryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in range(3):
        client.stash("q", "t", part, Columns(1, ["body"], pack([("body", [b"hidden"])])), keep=60)
    client.publish("q", "a")
    client.publish("q", "late", delay=9)

    rows = rows_of(client, monkeypatch, includeState="true")

    assert [(row["body"], row["state"]) for row in rows] == [(b"a", "ready"), (b"late", "delayed")]
    assert "state" not in rows_of(client, monkeypatch)[0]


@pytest.mark.parametrize(
    ("columns", "sent"),
    [("queue", ["priority"]), ("published,queue", ["published_ms"]), ("uid,delivery", ["uid", "deliveries"])],
)
def test_columns_that_are_not_wanted_are_not_sent(
    client: MemoryClient, monkeypatch: pytest.MonkeyPatch, columns: str, sent: list[str]
) -> None:
    client.publish("q", "a")
    blocks: list[Any] = []
    monkeypatch.setattr(
        client,
        "peek_block",
        lambda queue, **about: blocks.append(BulkClient.peek_block(client, queue, **about)) or blocks[-1],
    )

    (row,) = rows_of(client, monkeypatch, columns=columns)

    assert ",".join(row) == columns
    assert blocks[-1].columns == sent


def test_stream_with_the_state_column_is_refused() -> None:
    from wakeq.pipeline.stream.source import QueueSource

    source = QueueSource({"queue": "q", "includestate": "true"})

    assert source.schema().endswith(", state string")
    with pytest.raises(BadSettings, match=r"column state is for spark\.read only"):
        source.streamReader(schema_of("uid string, state string"))


def test_columns_of_a_schema_are_read_in_its_order(client: MemoryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from wakeq.pipeline.stream.source import QueueSource

    monkeypatch.setattr(Broker, "client", lambda _self: client)
    client.publish("q", "a")
    reader = QueueSource({"queue": "q"}).reader(schema_of("body binary, delivery int"))

    (batch,) = [batch for part in reader.partitions() for batch in reader.read(part)]

    assert batch.to_pylist() == [{"body": b"a", "delivery": 1}]
    assert batch.schema.names == ["body", "delivery"]


def test_schema_that_does_not_fit_is_refused_before_anything_runs() -> None:
    from wakeq.pipeline.stream.source import QueueSource

    for plan in (QueueSource({"queue": "q"}).reader, QueueSource({"queue": "q"}).streamReader):
        with pytest.raises(BadSettings, match="column body is binary, not string"):
            plan(schema_of("body string"))


def test_loopback_broker_is_refused_on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    from wakeq.pipeline.stream import source

    monkeypatch.setattr(tasks, "master", lambda: "yarn")
    reader = source.QueueReader(read_options({"queue": "q", "broker": "localhost:2601"}), 2)

    with pytest.raises(BadSettings, match="localhost:2601 is another place on each machine, and the master is yarn"):
        next(reader.read(source.SpanOfNumbers(0, 1)))


@pytest.mark.parametrize(("options", "parts"), [({}, 3), ({"minPartitions": "5"}, 5)])
def test_queue_is_divided_as_spark_runs_tasks_or_as_an_option_says(
    client: MemoryClient, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], parts: int
) -> None:
    from wakeq.pipeline.stream.source import QueueSource

    monkeypatch.setattr(Broker, "client", lambda _self: client)
    for number in range(15):
        client.publish("q", f"m{number}")
    registered = type("QueueSource", (QueueSource,), {"parallelism": 3})

    assert len(registered({"queue": "q"} | options).reader(schema_of("uid string")).partitions()) == parts
