"""The stream's reader without Spark: what it asks of the broker when Spark asks it."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.memory_bulk import MemoryClient
from wakeq.pipeline.options import read_options
from wakeq.protocol.errors import EpochExpired

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


def lapsed(client: MemoryClient, reader: Any) -> dict[str, Any]:
    """Return the offset of a batch whose claim has lapsed while it ran."""
    publish(client, 2)
    offset = next_offset(reader, reader.initialOffset())
    client.machine.advance(301)
    return offset


def test_a_query_whose_claim_lapsed_while_a_batch_ran_says_so_and_stops(client: MemoryClient, reader: Readers) -> None:
    running = reader()
    offset = lapsed(client, running)

    for _ in range(2):
        with pytest.raises(EpochExpired, match=r"epoch 1 of queue q .* may be done twice"):
            running.commit(offset)
        with pytest.raises(EpochExpired, match=r"epoch 1 of queue q .* may be done twice"):
            next_offset(running, offset)


def test_who_told_it_to_go_on_gets_an_empty_batch_and_the_messages_in_a_later_one(
    client: MemoryClient, reader: Readers
) -> None:
    running = reader(failOnDataLoss="false")
    offset = lapsed(client, running)

    assert running.partitions(running.initialOffset(), offset) == []
    assert next_offset(running, offset)["epoch"] == 2


def test_a_slice_that_ends_while_it_is_read_fails_its_task_whatever_was_said(
    client: MemoryClient, reader: Readers
) -> None:
    running = reader(failOnDataLoss="false")
    publish(client, 2)
    begin = running.initialOffset()
    slices = running.partitions(begin, next_offset(running, begin))
    client.machine.advance(301)

    with pytest.raises(EpochExpired, match="was not settled in time"):
        list(running.read(slices[0]))
