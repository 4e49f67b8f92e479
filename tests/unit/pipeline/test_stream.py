"""The stream's reader without Spark: what it asks of the broker when Spark asks it."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.memory_bulk import MemoryClient
from wakeq.pipeline.options import read_options

Readers = Callable[..., Any]


@pytest.fixture
def reader(client: MemoryClient, monkeypatch: pytest.MonkeyPatch) -> Readers:
    """Return what makes a reader, as each run of a query does."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from wakeq.pipeline import stream

    monkeypatch.setattr(stream, "client_of", lambda _address: client)
    monkeypatch.setattr(stream.QueueStreamReader, "_renew", lambda _self, _source: None)  # a thread, on a real clock
    return lambda **options: stream.QueueStreamReader(read_options({"queue": "q", "source": "s"} | options))


def next_offset(reader: Any, start: dict[str, Any]) -> dict[str, Any]:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    offset: dict[str, Any] = reader.latestOffset(start, ReadMaxRows(2))
    return offset


def publish(client: MemoryClient, count: int) -> None:
    for number in range(count):
        client.publish("q", f"m{number}")


def batches_of(reader: Any, start: dict[str, Any]) -> dict[str, Any]:
    """Plan batches, as Spark does, until there is nothing more; each ends before the next is planned."""
    while (end := next_offset(reader, start)) != start:
        start = end
    return start


def test_what_ran_is_settled_when_spark_asks_for_more(client: MemoryClient, reader: Readers) -> None:
    publish(client, 3)
    nightly = reader()
    nightly.prepareForTriggerAvailableNow()

    batches_of(nightly, nightly.initialOffset())

    assert client.stats("q")["acked"] == 3


def test_a_restart_that_finds_nothing_new_settles_the_last_batch(client: MemoryClient, reader: Readers) -> None:
    publish(client, 2)
    before = reader()
    last = next_offset(before, before.initialOffset())
    assert client.stats("q")["acked"] == 0, "that batch has not run yet"

    assert batches_of(reader(), last) == last

    assert client.stats("q")["acked"] == 2
