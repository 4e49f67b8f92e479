"""The stream's reader without Spark: what it asks of the broker when Spark asks it."""

import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.helpers.clients.bulk import MemoryClient
from wakeq.client.bulk import Columns
from wakeq.pipeline.stream import tasks
from wakeq.pipeline.stream.broker import Broker
from wakeq.pipeline.stream.options import read_options
from wakeq.pipeline.stream.tasks import Batch
from wakeq.protocol.errors import (
    BrokerUnreachable,
    Disconnected,
    EpochExpired,
    EpochOld,
    EpochSettled,
    Forbidden,
    QueueNotFound,
)
from wakeq.protocol.wire.worker.blocks import pack

Readers = Callable[..., Any]
pytestmark = pytest.mark.spark


class Spark:
    """Stands in for Spark's tasks: the batch in which the next task runs, None outside of a query."""

    def __init__(self) -> None:
        self.batch: Batch | None = Batch("a", 1, "run-1")

    def begins(self, run: str, epoch: int = 1) -> None:
        """Let a run of the query begin with this batch."""
        self.batch = Batch("a", epoch, run)


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Spark:
    made = Spark()
    monkeypatch.setattr(tasks, "current_batch", lambda: made.batch)
    monkeypatch.setattr(tasks, "master", lambda: "local[2]")
    return made


@pytest.fixture
def reader(client: MemoryClient, spark: Spark, monkeypatch: pytest.MonkeyPatch) -> Readers:
    """Return what makes a reader, as each run of a query does."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from wakeq.pipeline.stream.reader import QueueStreamReader
    from wakeq.pipeline.stream.renewals import Renewals

    monkeypatch.setattr(Broker, "client", lambda _self: client)
    monkeypatch.setattr(Renewals, "keep", lambda _self, _source: None)  # a thread, on a real clock
    usual = {"queue": "q", "source": "s", "reconnectFor": "0"}
    return lambda **options: QueueStreamReader(read_options(usual | options, is_stream=True), 2)


def next_offset(reader: Any, start: dict[str, Any]) -> dict[str, Any]:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    offset: dict[str, Any] = reader.latestOffset(start, ReadMaxRows(2))
    return offset


def bodies_of(reader: Any, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    """Run the tasks of a batch."""
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return [body.decode() for batch in batches for body in batch["body"].to_pylist()]


def publish_batch(client: MemoryClient, spark: Spark, bodies: list[str]) -> int:
    """Write a batch to queue `out`, as the sink does; return how many messages it published."""
    batch = spark.batch
    assert batch is not None
    stashes = []
    if bodies:
        block = Columns(len(bodies), ["body"], pack([("body", [body.encode() for body in bodies])]))
        with suppress(EpochOld):
            client.stash("out", batch.run, 0, block, keep=600, writer=batch.reader, epoch=batch.epoch)
            stashes = [(batch.run, len(bodies))]
    about = {"writer": batch.reader, "epoch": batch.epoch, "reader": batch.reader, "run": batch.run}
    return client.publish_stashes("out", stashes, **about)


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
def test_query_with_a_foreign_sink_stops_after_a_lapse_with_a_reason(
    client: MemoryClient, reader: Readers, days: int
) -> None:
    running = reader()
    offset = lapsed(client, running, days)
    client.stage("q", "another", 1, count=1)  # whatever is claimed makes the broker look for what it can forget

    for _ in range(2):
        with pytest.raises(EpochExpired, match=r"epoch 1 of queue q .* may be processed twice"):
            running.commit(offset)
        with pytest.raises(EpochExpired, match=r"epoch 1 of queue q .* may be processed twice"):
            next_offset(running, offset)


def test_lapsed_batch_goes_on_empty_and_its_messages_come_later(
    client: MemoryClient, reader: Readers, spark: Spark, caplog: pytest.LogCaptureFixture
) -> None:
    first = reader()
    offset = lapsed(client, first)
    again = reader(failOnDataLoss="false")
    spark.begins("run-2")

    assert bodies_of(again, again.initialOffset(), offset) == []
    following = next_offset(again, offset)

    assert bodies_of(again, offset, following) == ["m0", "m1"]
    assert following["epoch"] == 2
    assert caplog.messages == [
        "epoch 1 of queue q was released, or not settled in time: its messages are back in the queue; the batch goes "
        "on without them"
    ]
    assert again.reportLatestOffset()["lapsed"] == 1


def test_query_with_our_sink_goes_on_by_itself_after_a_lapse(
    client: MemoryClient, reader: Readers, spark: Spark
) -> None:
    first = reader()
    publish(client, 2)
    begin = first.initialOffset()
    offset = next_offset(first, begin)
    assert bodies_of(first, begin, offset) == ["m0", "m1"]
    client.machine.advance(301)  # and nothing was published
    again = reader()
    spark.begins("run-2")

    assert publish_batch(client, spark, bodies_of(again, begin, offset)) == 0
    following = next_offset(again, offset)
    spark.begins("run-2", 2)
    assert publish_batch(client, spark, bodies_of(again, offset, following)) == 2
    assert next_offset(again, following) == following

    reader().commit(offset)  # as `wakeq pipeline settle` does later
    assert client.stats("q")["acked"] == 2
    assert [message.body for message in client.fetch_many("out", 9)] == [b"m0", b"m1"]


def test_repetition_of_a_published_batch_has_the_same_messages(
    client: MemoryClient, reader: Readers, spark: Spark
) -> None:
    first = reader()
    publish(client, 2)
    begin = first.initialOffset()
    offset = next_offset(first, begin)
    assert publish_batch(client, spark, bodies_of(first, begin, offset)) == 2
    again = reader()
    spark.begins("run-2")

    bodies = bodies_of(again, begin, offset)

    assert bodies == ["m0", "m1"], "the state of a query needs them again"
    assert publish_batch(client, spark, bodies) == 0
    assert next_offset(again, offset) == offset
    assert (client.stats("q")["acked"], client.stats("out")["published"]) == (2, 2)


def test_batch_that_was_published_long_ago_is_repeated_as_an_empty_one(
    client: MemoryClient, reader: Readers, spark: Spark, caplog: pytest.LogCaptureFixture
) -> None:
    first = reader()
    publish(client, 2)
    begin = first.initialOffset()
    offset = next_offset(first, begin)
    publish_batch(client, spark, bodies_of(first, begin, offset))
    client.machine.advance(301)
    again = reader()
    spark.begins("run-2")

    assert bodies_of(again, begin, offset) == []
    assert publish_batch(client, spark, []) == 0
    assert next_offset(again, offset) == offset

    assert (client.stats("q")["acked"], client.stats("q")["ready"], client.stats("out")["published"]) == (2, 0, 2)
    assert not caplog.messages, "nothing has come back"


def test_messages_that_were_read_before_a_lapse_are_not_published(
    client: MemoryClient, reader: Readers, spark: Spark
) -> None:
    running = reader()
    publish(client, 2)
    begin = running.initialOffset()
    bodies = bodies_of(running, begin, next_offset(running, begin))
    client.machine.advance(301)

    with pytest.raises(EpochExpired):
        publish_batch(client, spark, bodies)

    assert client.stats("q")["ready"] == 2


def test_epoch_that_expires_during_a_read_fails_its_task(client: MemoryClient, reader: Readers) -> None:
    running = reader()
    publish(client, 2)
    begin = running.initialOffset()
    slices = running.partitions(begin, next_offset(running, begin))
    client.machine.advance(301)

    with pytest.raises(
        EpochExpired, match=r"was released, or not settled in time.* start the query again, it continues"
    ):
        list(running.read(slices[0]))


def test_batch_that_somebody_settled_stops_the_query_with_a_reason(
    client: MemoryClient, reader: Readers, spark: Spark
) -> None:
    first = reader()
    publish(client, 2)
    begin = first.initialOffset()
    offset = next_offset(first, begin)
    client.settle("q", "s", offset["epoch"])
    again = reader()
    spark.begins("run-2")

    with pytest.raises(
        EpochSettled, match=r"epoch 1 of queue q is acknowledged.* another driver runs on the same check"
    ):
        bodies_of(again, begin, offset)

    assert bodies_of(reader(failOnDataLoss="false"), begin, offset) == []


def test_epoch_that_turns_out_to_be_open_is_not_read_in_part(
    client: MemoryClient, reader: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = reader(minPartitions="2")
    publish(client, 2)
    begin = running.initialOffset()
    end = next_offset(running, begin)
    again = reader()
    monkeypatch.setattr(again, "_is_over", lambda _offset: True)  # and another driver renews the claim in time
    (part,) = again.partitions(begin, end)

    with pytest.raises(EpochExpired, match="epoch 1 of queue q was over when the batch was planned, and is open"):
        list(again.read(part))


def test_task_whose_run_is_not_known_reads_without_a_name(
    client: MemoryClient, reader: Readers, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def read_slice(*part: Any, **about: Any) -> Any:
        asked.append(about)
        return type(client).read_slice(client, *part, **about)

    monkeypatch.setattr(client, "read_slice", read_slice)
    running = reader()
    publish(client, 1)
    begin = running.initialOffset()
    end = next_offset(running, begin)

    for run in ("run-1", ""):
        spark.begins(run)
        assert bodies_of(running, begin, end) == ["m0"]

    assert [about.get("reader") for about in asked] == ["query-a", None]


def test_batch_whose_queue_was_deleted_goes_on_empty(client: MemoryClient, reader: Readers, spark: Spark) -> None:
    first = reader()
    publish(client, 2)
    begin = first.initialOffset()
    offset = next_offset(first, begin)
    client.delete_queue("q")
    again = reader()
    spark.begins("run-2")

    assert bodies_of(again, begin, offset) == []
    assert publish_batch(client, spark, []) == 0
    assert next_offset(again, offset) == offset


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
    client.machine.advance(301)
    here = reader(broker="here:2601")

    with pytest.raises(
        EpochExpired, match="the checkpoint is of a query that read from there:2601, and this is here:2601"
    ):
        here.partitions(here.initialOffset(), end)


@pytest.mark.parametrize(
    ("messages", "options", "expected"),
    [
        (1, {}, [(0, 1)]),
        (2, {}, [(0, 2)]),
        (150, {}, [(0, 2)]),
        (200, {}, [(0, 1), (1, 2)]),
        (2, {"minPartitions": "3"}, [(0, 1), (1, 2)]),
    ],
)
def test_small_batch_is_read_by_few_tasks(
    client: MemoryClient, reader: Readers, messages: int, options: dict[str, str], expected: list[tuple[int, int]]
) -> None:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    publish(client, messages)
    running = reader(**options)
    begin = running.initialOffset()
    end = running.latestOffset(begin, ReadMaxRows(1_000))

    parts = running.partitions(begin, end)

    assert [(part.start, part.end) for part in parts] == expected
    assert len(bodies_of(running, begin, end)) == messages


def test_batch_is_limited_in_bytes_by_the_mean_size(client: MemoryClient, reader: Readers) -> None:
    for _ in range(4):
        client.publish("q", "x" * 1_000)
    running = reader(maxBytesPerTrigger="1k")
    plenty = reader(maxBytesPerTrigger="1m", source="t")

    assert next_offset(running, running.initialOffset())["messages"] == 1
    assert next_offset(plenty, plenty.initialOffset())["messages"] == 2


def test_batch_waits_for_its_least_number_of_messages_or_the_delay(
    client: MemoryClient, reader: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wakeq.pipeline.stream import reader as module

    now = [1_000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module.time, "sleep", lambda span_s: now.__setitem__(0, now[0] + span_s))
    publish(client, 1)
    running = reader(minMessagesPerTrigger="2", maxTriggerDelay="60s")
    begin = running.initialOffset()

    assert next_offset(running, begin) == begin
    publish(client, 1)
    first = next_offset(running, begin)
    assert first["messages"] == 2, "there are enough"
    publish(client, 1)
    assert next_offset(running, first) == first
    now[0] += 60
    assert next_offset(running, first)["messages"] == 1, "it has waited long enough"


def test_available_messages_do_not_wait_for_more(client: MemoryClient, reader: Readers) -> None:
    publish(client, 1)
    nightly = reader(minMessagesPerTrigger="5")
    nightly.prepareForTriggerAvailableNow()

    assert next_offset(nightly, nightly.initialOffset())["messages"] == 1


def test_first_claim_is_short_until_its_batch_is_in_the_checkpoint(
    client: MemoryClient, reader: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wakeq.pipeline.stream.renewals import Renewals

    kept: list[str] = []
    monkeypatch.setattr(Renewals, "keep", lambda _self, source: kept.append(source))
    publish(client, 4)
    lost = reader(timeout="86400", source="t")
    next_offset(lost, lost.initialOffset())
    client.machine.advance(301)
    assert client.stats("q")["staged"] == 0, "nobody knows the name of this claim"
    running = reader(timeout="86400")
    begin = running.initialOffset()
    first = next_offset(running, begin)
    assert kept == []

    running.partitions(begin, first)
    assert kept == ["s"], "it is renewed from now on"
    client.settle("q", "s", 1)
    next_offset(running, first)
    client.machine.advance(301)

    assert client.stats("q")["staged"] == 2, "the source is in the checkpoint"


def test_missing_queue_is_told_once_and_waited_for(
    client: MemoryClient, reader: Readers, caplog: pytest.LogCaptureFixture
) -> None:
    running = reader(broker="b:1", pollInterval="1")
    begin = running.initialOffset()

    for _ in range(3):
        assert next_offset(running, begin) == begin
    assert caplog.messages == ["queue q does not exist at b:1; the query waits for it"]
    publish(client, 1)

    assert next_offset(running, begin)["messages"] == 1


def test_missing_queue_may_be_an_error(client: MemoryClient, reader: Readers) -> None:
    running = reader(failOnMissingQueue="true", broker="b:1")

    with pytest.raises(QueueNotFound, match="queue q does not exist at b:1; check option queue"):
        next_offset(running, running.initialOffset())


def test_missing_queue_ends_a_run_that_does_not_wait_for_messages(client: MemoryClient, reader: Readers) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    available, once = reader(broker="b:1"), reader(broker="b:1")

    with pytest.raises(QueueNotFound, match=r"queue q does not exist at b:1; .* set failOnMissingQueue to false"):
        available.prepareForTriggerAvailableNow()
    with pytest.raises(QueueNotFound, match="queue q does not exist at b:1"):
        once.latestOffset(once.initialOffset(), ReadAllAvailable())


def test_missing_queue_counts_as_an_empty_one_where_that_is_wanted(
    client: MemoryClient, reader: Readers, caplog: pytest.LogCaptureFixture
) -> None:
    running = reader(failOnMissingQueue="false", broker="b:1")
    running.prepareForTriggerAvailableNow()

    begin = running.initialOffset()

    assert next_offset(running, begin) == begin
    assert caplog.messages == ["queue q does not exist at b:1; the query ends without messages"]


def test_backlog_is_reported_and_asked_for_once_a_second(
    client: MemoryClient, reader: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wakeq.pipeline.stream import reader as module

    now = [1_000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module.time, "time", lambda: client.machine.now_ms() / 1000)
    publish(client, 2)
    client.publish("q", "late", delay=60)
    client.machine.advance(7)
    running = reader()

    report = running.reportLatestOffset()
    publish(client, 1)

    assert report == {"queue": "q", "ready": 2, "delayed": 1, "oldest_s": 7, "lapsed": 0}
    assert running.reportLatestOffset() is report
    now[0] += 1
    assert running.reportLatestOffset()["ready"] == 3


def test_backlog_that_the_broker_does_not_tell_is_left_out(
    client: MemoryClient, reader: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = reader()
    assert running.reportLatestOffset() is None, "there is no queue"

    def unreachable(_self: Broker) -> MemoryClient:
        raise BrokerUnreachable("it is away")

    monkeypatch.setattr(Broker, "client", unreachable)
    assert reader().reportLatestOffset() is None


def test_columns_that_are_not_wanted_are_not_made(client: MemoryClient, reader: Readers) -> None:
    publish(client, 1)
    running = reader(columns="priority,uid")
    begin = running.initialOffset()

    (part,) = running.partitions(begin, next_offset(running, begin))
    (batch,) = running.read(part)

    assert batch.schema.names == ["priority", "uid"]


def test_reader_is_pickled_without_its_thread(reader: Readers) -> None:
    copy = pickle.loads(pickle.dumps(reader()))

    assert copy.initialOffset()["source"] == "s"


@pytest.mark.parametrize(
    ("timeout", "pauses"),
    [("86400", [3_600.0, 10.0, 3_600.0]), ("300", [100.0, 10.0, 100.0]), ("6", [2.0, 2.0, 2.0])],
)
def test_claims_are_renewed_hourly_and_three_times_in_a_short_timeout(
    client: MemoryClient, monkeypatch: pytest.MonkeyPatch, timeout: str, pauses: list[float]
) -> None:
    from wakeq.pipeline.stream.renewals import Renewals

    answers = iter([None, Disconnected("for now"), EpochExpired("nothing is open"), Forbidden("it is over")])
    asked: list[int] = []
    slept: list[float] = []

    def renew(*_about: object, timeout: int) -> int:
        asked.append(timeout)
        if (answer := next(answers)) is not None:
            raise answer
        return 1

    monkeypatch.setattr(client, "renew", renew)
    options = read_options({"queue": "q", "timeout": timeout}, is_stream=True)
    renewals = Renewals(options, connect=lambda: client, sleep=slept.append)

    renewals.keep("s")
    assert renewals.thread is not None
    renewals.thread.join(timeout=10)

    assert slept == pauses
    assert asked == [int(timeout)] * 4


def test_failed_renewal_ends_the_query(client: MemoryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from wakeq.pipeline.stream.renewals import Renewals

    answers = iter([EpochExpired("nothing is open"), Disconnected("for now"), Forbidden("no right to fetch from q")])

    def renew(*_about: object, timeout: int) -> int:
        raise next(answers)

    monkeypatch.setattr(client, "renew", renew)
    renewals = Renewals(read_options({"queue": "q"}), connect=lambda: client, sleep=lambda _span_s: None)

    renewals.keep("s")
    assert renewals.thread is not None
    renewals.thread.join(timeout=10)

    with pytest.raises(Forbidden, match="no right"):
        renewals.keep("s")
