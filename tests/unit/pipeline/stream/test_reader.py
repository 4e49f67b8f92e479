"""The stream's reader without Spark: what it asks of the broker when Spark asks it."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.clients.bulk import MemoryClient
from wakeq.pipeline.stream.options import read_options
from wakeq.protocol.errors import Disconnected, EpochExpired, Forbidden

Readers = Callable[..., Any]
pytestmark = pytest.mark.spark


@pytest.fixture
def reader(client: MemoryClient, monkeypatch: pytest.MonkeyPatch) -> Readers:
    """Return what makes a reader, as each run of a query does."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from wakeq.pipeline.stream import reader as stream
    from wakeq.pipeline.stream.renewals import Renewals

    monkeypatch.setattr(stream, "client_of", lambda _address: client)
    monkeypatch.setattr(Renewals, "keep", lambda _self, _source: None)  # a thread, on a real clock
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


def test_finished_batch_is_settled_when_spark_asks_for_the_next(client: MemoryClient, reader: Readers) -> None:
    publish(client, 3)
    nightly = reader()
    nightly.prepareForTriggerAvailableNow()

    batches_of(nightly, nightly.initialOffset())

    assert client.stats("q")["acked"] == 3


def test_restart_without_new_messages_settles_the_last_batch(client: MemoryClient, reader: Readers) -> None:
    publish(client, 2)
    before = reader()
    last = next_offset(before, before.initialOffset())
    assert client.stats("q")["acked"] == 0, "that batch has not run yet"

    assert batches_of(reader(), last) == last

    assert client.stats("q")["acked"] == 2


def lapsed(client: MemoryClient, reader: Any, days: int = 0) -> dict[str, Any]:
    """Return the offset of a batch whose claim has lapsed while it ran."""
    publish(client, 2)
    offset = next_offset(reader, reader.initialOffset())
    client.machine.advance(301 + days * 86_400)
    return offset


@pytest.mark.parametrize("days", [0, 3])
def test_query_with_a_lapsed_claim_stops_with_a_reason(client: MemoryClient, reader: Readers, days: int) -> None:
    running = reader()
    offset = lapsed(client, running, days)
    client.stage("q", "another", 1, count=1)  # whatever is claimed makes the broker look for what it can forget

    for _ in range(2):
        with pytest.raises(EpochExpired, match=r"epoch 1 of queue q .* may be processed twice"):
            running.commit(offset)
        with pytest.raises(EpochExpired, match=r"epoch 1 of queue q .* may be processed twice"):
            next_offset(running, offset)


def test_lapsed_claim_that_may_continue_gives_an_empty_batch_and_then_the_messages(
    client: MemoryClient, reader: Readers
) -> None:
    running = reader(failOnDataLoss="false")
    offset = lapsed(client, running)

    assert running.partitions(running.initialOffset(), offset) == []
    assert next_offset(running, offset)["epoch"] == 2


def test_epoch_that_expires_during_a_read_fails_its_task(client: MemoryClient, reader: Readers) -> None:
    running = reader(failOnDataLoss="false")
    publish(client, 2)
    begin = running.initialOffset()
    slices = running.partitions(begin, next_offset(running, begin))
    client.machine.advance(301)

    with pytest.raises(EpochExpired, match="was not settled in time"):
        list(running.read(slices[0]))


def test_named_source_without_a_checkpoint_continues_behind_its_last_batch(
    client: MemoryClient, reader: Readers
) -> None:
    publish(client, 3)
    client.stage("q", "s", 5_000, count=1)
    client.settle("q", "s", 5_000)
    anew = reader()

    assert next_offset(anew, anew.initialOffset())["epoch"] == 5_001


def test_named_source_without_a_checkpoint_begins_with_open_messages(client: MemoryClient, reader: Readers) -> None:
    publish(client, 3)
    for epoch in (7, 8):
        client.stage("q", "s", epoch, count=1)
    anew = reader()

    first = next_offset(anew, anew.initialOffset())

    assert (first["epoch"], next_offset(anew, first)["epoch"]) == (7, 8)


@pytest.mark.parametrize("ready", [0, 3])
def test_messages_staged_by_an_unrecorded_batch_are_in_the_next_one_with_ready_messages(
    client: MemoryClient, reader: Readers, ready: int
) -> None:
    publish(client, 2)
    client.stage("q", "s", 1, count=2)
    publish(client, ready)
    nightly = reader()
    nightly.prepareForTriggerAvailableNow()

    batches_of(nightly, nightly.initialOffset())

    assert client.stats("q")["acked"] == 2 + ready


def test_checkpoint_of_another_broker_is_named_as_such(client: MemoryClient, reader: Readers) -> None:
    publish(client, 1)
    there = reader(broker="there:2601")
    end = next_offset(there, there.initialOffset())
    client.release("q", "s")
    here = reader(broker="here:2601")

    with pytest.raises(
        EpochExpired, match="the checkpoint is of a query that read from there:2601, and this is here:2601"
    ):
        list(here.read(here.partitions(here.initialOffset(), end)[0]))


def test_failed_renewal_ends_the_query(client: MemoryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from wakeq.pipeline.stream.renewals import Renewals

    answers = iter([EpochExpired("nothing is open"), Disconnected("for now"), Forbidden("no right to fetch from q")])

    def renew(*_about: object, timeout: int) -> int:
        raise next(answers)

    monkeypatch.setattr(client, "renew", renew)
    renewals = Renewals(read_options({"queue": "q"}), connect=lambda _address: client, sleep=lambda _span_s: None)

    renewals.keep("s")
    assert renewals.thread is not None
    renewals.thread.join(timeout=10)

    with pytest.raises(Forbidden, match="no right"):
        renewals.keep("s")
