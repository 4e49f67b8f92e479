"""The look at a queue without Spark: what is in it, and in which state."""

from typing import Any

import pytest

from tests.helpers.clients.bulk import MemoryClient
from wakeq.client.bulk import Columns
from wakeq.pipeline.stream.options import read_options
from wakeq.protocol.errors import BadSettings
from wakeq.protocol.wire.worker.blocks import pack

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytestmark = pytest.mark.spark


def rows_of(client: MemoryClient, monkeypatch: pytest.MonkeyPatch, **options: str) -> list[dict[str, Any]]:
    from wakeq.pipeline.stream import source

    monkeypatch.setattr(source, "client_of", lambda _address: client)
    reader = source.QueueReader(read_options({"queue": "q", "minPartitions": "2"} | options))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_unpublished_messages_are_not_shown(client: MemoryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in range(3):
        client.stash("q", "t", part, Columns(1, ["body"], pack([("body", [b"hidden"])])), keep=60)
    client.publish("q", "a")
    client.publish("q", "late", delay=9)

    rows = rows_of(client, monkeypatch, includeState="true")

    assert [(row["body"], row["state"]) for row in rows] == [(b"a", "ready"), (b"late", "delayed")]
    assert "state" not in rows_of(client, monkeypatch)[0]


def test_stream_with_the_state_column_is_refused() -> None:
    from wakeq.pipeline.stream.source import QueueSource

    source = QueueSource({"queue": "q", "includestate": "true"})

    assert source.schema().endswith(", state string")
    with pytest.raises(BadSettings, match="includeState"):
        source.streamReader(source.schema())
