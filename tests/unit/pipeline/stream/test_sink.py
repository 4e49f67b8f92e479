"""The sink without Spark: which writes it refuses before anything is done, and what it asks of the broker."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.helpers.clients.bulk import MemoryClient
from wakeq.pipeline.stream import tasks
from wakeq.pipeline.stream.broker import Broker
from wakeq.pipeline.stream.options import write_options
from wakeq.pipeline.stream.tasks import Batch
from wakeq.protocol.errors import BadField, BadSettings, EpochExpired, EpochOld, EpochSettled, StashExpired

Writers = Callable[..., Any]
pytest.importorskip("pyspark", reason="pyspark is not installed")
pytestmark = pytest.mark.spark


def schema_of(**kinds: str) -> Any:
    """A schema of Spark, made without one: the name of each type as its class begins."""
    from pyspark.sql import types

    headers = types.MapType(types.StringType(), types.StringType())
    made = {name: headers if kind == "Map" else getattr(types, f"{kind}Type")() for name, kind in kinds.items()}
    return types.StructType([types.StructField(name, kind) for name, kind in made.items()])


class Spark:
    """Stands in for Spark's tasks: the batch in which the next task runs, None outside of a query."""

    def __init__(self) -> None:
        self.batch: Batch | None = None


@pytest.fixture
def spark(client: MemoryClient, monkeypatch: pytest.MonkeyPatch) -> Spark:
    made = Spark()
    monkeypatch.setattr(tasks, "current_batch", lambda: made.batch)
    monkeypatch.setattr(tasks, "master", lambda: "local[2]")
    monkeypatch.setattr(Broker, "client", lambda _self: client)
    return made


@pytest.fixture
def writer(spark: Spark) -> Writers:
    """Return what makes the writer of a job."""
    from wakeq.pipeline.stream import sink

    def make(schema: Any = None, **options: str) -> Any:
        schema = schema or schema_of(body="String")
        return sink.QueueWriter(write_options({"queue": "q"} | options), schema, overwrite=False)

    return make


@pytest.fixture
def stream_writer(spark: Spark) -> Writers:
    """Return what makes the writer of a query."""
    from wakeq.pipeline.stream import sink

    def make(**options: str) -> Any:
        options = {"queue": "q", "checkpointlocation": "s3a://nobody/reads/this", "reconnectfor": "0"} | options
        return sink.QueueStreamWriter(write_options(options, is_stream=True), schema_of(body="String"))

    return make


def stash(writer: Any, *bodies: str) -> Any:
    """Run one attempt of one task."""
    return writer.write(iter([batch(body=list(bodies))] if bodies else []))


def bodies_in(client: MemoryClient, queue: str = "q") -> list[str]:
    return [message.body.decode() for message in client.fetch_many(queue, 99)]


def batch(**columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_job_with_a_writer_names_its_epoch(writer: Writers) -> None:
    with pytest.raises(BadSettings, match="writer 'nightly' needs option epoch"):
        stash(writer(writer="nightly"), "a")
    with pytest.raises(BadSettings, match="option epoch is 7, but there is no writer; give option writer, too"):
        writer(epoch="7")

    stash(writer(writer="nightly", epoch="7"), "a")


def test_write_with_the_same_writer_and_epoch_publishes_once(client: MemoryClient, writer: Writers) -> None:
    for _ in range(2):
        nightly = writer(writer="nightly", epoch="7")
        nightly.commit([stash(nightly, "a")])

    assert bodies_in(client) == ["a"]
    late = writer(writer="nightly", epoch="6")
    stashed = stash(late, "b")
    with pytest.raises(
        EpochOld, match=r"by writer nightly: epoch 6 or a later one was .* epochs of a writer only grow"
    ):
        late.commit([stashed])


def test_write_in_foreach_batch_publishes_once_for_each_batch(
    client: MemoryClient, writer: Writers, spark: Spark
) -> None:
    for epoch, run in ((1, "run-1"), (1, "run-2"), (2, "run-2")):
        spark.batch = Batch("a", epoch, run)
        job = writer()
        job.commit([stash(job, f"m{epoch}")])

    assert bodies_in(client) == ["m1", "m2"]
    assert client.writer_epoch("q", "query-a") == 2


def test_second_write_of_one_batch_needs_a_name_of_its_own(client: MemoryClient, writer: Writers, spark: Spark) -> None:
    spark.batch = Batch("a", 1, "run-1")
    first, second, named = writer(), writer(), writer(writer="more")

    first.commit([stash(first, "a")])
    with pytest.raises(EpochOld, match=r"nothing was published to queue q.* second write of one batch.* option writer"):
        second.commit([stash(second, "b")])
    named.commit([stash(named, "c")])

    assert bodies_in(client) == ["a", "c"]
    assert client.writer_epoch("q", "query-a/more") == 1
    assert client.stats("q")["stashed"] == 0


def test_straggler_of_a_published_batch_leaves_nothing(client: MemoryClient, writer: Writers, spark: Spark) -> None:
    spark.batch = Batch("a", 1, "run-1")
    job = writer()
    counts, doubled = stash(job, "a"), stash(job, "a")
    assert client.stats("q")["stashed"] == 2

    job.commit([counts])
    assert client.stats("q")["stashed"] == 0, "the second attempt is dropped with the publish"
    assert stash(job, "a").stashes == [], "and one that comes later stashes nothing"

    assert client.stats("q")["stashed"] == 0
    assert doubled.stashes != counts.stashes
    assert bodies_in(client) == ["a"]


@pytest.mark.parametrize("is_in_batch", [False, True])
def test_aborted_write_leaves_nothing(client: MemoryClient, writer: Writers, spark: Spark, is_in_batch: bool) -> None:
    client.create_queue("q")
    spark.batch = Batch("a", 1, "run-1") if is_in_batch else None
    job = writer()
    done = stash(job, "a")
    stash(job, "b")  # of an attempt that failed afterwards

    job.abort([done, None])

    assert client.stats("q")["stashed"] == 0


def test_job_whose_tasks_all_failed_leaves_nothing(client: MemoryClient, writer: Writers) -> None:
    job = writer()
    stash(job, "a")

    job.abort([None])
    assert client.stats("q")["stashed"] == 0
    assert stash(job, "late").stashes == [], "a straggler finds that the job is over"

    assert client.stats("q")["stashed"] == 0


def test_empty_attempt_counts_and_the_others_are_dropped(client: MemoryClient, writer: Writers) -> None:
    job = writer()
    stash(job, "a")

    job.commit([stash(job)])

    assert (client.stats("q")["stashed"], bodies_in(client)) == (0, [])


def test_batch_of_a_stream_is_published_once_over_all_runs(
    client: MemoryClient, stream_writer: Writers, spark: Spark
) -> None:
    for epoch, run in ((1, "run-1"), (1, "run-2"), (2, "run-2")):
        spark.batch = Batch("a", epoch, run)
        query = stream_writer()
        stashed = stash(query, f"m{epoch}")
        spark.batch = None  # the driver does not know
        query.commit([stashed, None], epoch - 1)

    assert bodies_in(client) == ["m1", "m2"]
    assert client.writer_epoch("q", "query-a") == 2


def test_second_driver_on_one_checkpoint_publishes_nothing(
    client: MemoryClient, stream_writer: Writers, spark: Spark
) -> None:
    for epoch, run in ((1, "run-1"), (2, "run-2")):
        spark.batch = Batch("a", epoch, run)
        query = stream_writer()
        query.commit([stash(query, f"m{epoch}")], epoch - 1)
    spark.batch = Batch("a", 1, "run-1")
    late = stream_writer()
    stashed = stash(late, "m1")

    with pytest.raises(EpochOld, match="another driver runs on the same checkpoint; end one of them"):
        late.commit([stashed], 0)

    assert bodies_in(client) == ["m1", "m2"]


def test_stream_with_a_writer_has_that_name(client: MemoryClient, stream_writer: Writers, spark: Spark) -> None:
    spark.batch = Batch("a", 3, "run-1")
    query = stream_writer(writer="mine")

    query.commit([stash(query, "a")], 2)

    assert client.writer_epoch("q", "query-a/mine") == 3


@pytest.mark.parametrize("is_stream", [False, True])
def test_new_checkpoint_with_the_old_name_publishes_its_own_messages(
    client: MemoryClient, writer: Writers, stream_writer: Writers, spark: Spark, is_stream: bool
) -> None:
    for query, run in (("a", "run-1"), ("b", "run-2")):
        spark.batch = Batch(query, 1, run)
        made = (stream_writer if is_stream else writer)(writer="mine")
        made.commit([stash(made, f"of {query}")], *([0] if is_stream else []))

    assert bodies_in(client) == ["of a", "of b"]


def test_name_that_is_too_long_within_a_query_is_refused(stream_writer: Writers, spark: Spark) -> None:
    query = "01234567-0123-0123-0123-0123456789ab"
    spark.batch = Batch(query, 1, "run-1")

    stash(stream_writer(writer="w" * 77), "a")
    with pytest.raises(BadSettings, match="option writer has 78 characters; within a query it may have 77"):
        stash(stream_writer(writer="w" * 78), "a")


def test_write_of_a_batch_whose_run_is_not_known_needs_a_name(
    client: MemoryClient, writer: Writers, stream_writer: Writers, spark: Spark
) -> None:
    spark.batch = Batch("a", 1, "")

    with pytest.raises(BadSettings, match=r"jobs of this batch are in a group of their own.* option writer"):
        stash(writer(), "a")
    with pytest.raises(BadSettings, match="Spark does not tell the id of this query"):
        stash(stream_writer(), "a")
    for name in ("first", "second", "second"):
        job = writer(writer=name)
        job.commit([stash(job, name)])

    assert bodies_in(client) == ["first", "second"]


def test_batch_without_messages_is_published_too(client: MemoryClient, stream_writer: Writers, spark: Spark) -> None:
    spark.batch = Batch("a", 1, "run-1")
    query = stream_writer()

    query.commit([stash(query)], 0)

    assert client.writer_epoch("q", "query-a") == 1


def test_aborted_batch_leaves_nothing_and_may_be_repeated(
    client: MemoryClient, stream_writer: Writers, spark: Spark
) -> None:
    spark.batch = Batch("a", 1, "run-1")
    query = stream_writer()
    query.abort([stash(query, "a"), None], 0)
    assert client.stats("q")["stashed"] == 0

    spark.batch = Batch("a", 1, "run-2")
    query.commit([stash(query, "a")], 0)

    assert bodies_in(client) == ["a"]


def test_batch_whose_messages_came_back_is_not_published(
    client: MemoryClient, stream_writer: Writers, spark: Spark
) -> None:
    batch = spark.batch = Batch("a", 1, "run-1")
    client.publish("in", "m")
    client.stage("in", "s", 1, count=1, timeout=60)
    client.read_slice("in", "s", 1, 0, offset=0, count=1, reader=batch.reader, batch=1, run=batch.run)
    query = stream_writer()
    stashed = stash(query, "a")
    client.machine.advance(61)

    with pytest.raises(EpochExpired, match=r"nothing was published to queue q.* are back in their queue.* start the q"):
        query.commit([stashed], 0)

    assert client.stats("in")["ready"] == 1


def test_batch_whose_messages_somebody_settled_is_not_published(
    client: MemoryClient, stream_writer: Writers, spark: Spark
) -> None:
    batch = spark.batch = Batch("a", 1, "run-1")
    client.publish("in", "m")
    client.stage("in", "s", 1, count=1)
    client.read_slice("in", "s", 1, 0, offset=0, count=1, reader=batch.reader, batch=1, run=batch.run)
    query = stream_writer()
    stashed = stash(query, "a")
    client.settle("in", "s", 1)

    with pytest.raises(
        EpochSettled, match=r"nothing was published.* acknowledged or published already.* pipeline release"
    ):
        query.commit([stashed], 0)


def test_stream_that_is_not_run_in_batches_is_refused(stream_writer: Writers) -> None:
    with pytest.raises(BadSettings, match="a trigger with micro-batches"):
        stash(stream_writer(), "a")


def test_aborted_write_to_a_missing_queue_has_nothing_to_drop(
    client: MemoryClient, writer: Writers, stream_writer: Writers, spark: Spark
) -> None:
    writer().abort([None])
    spark.batch = Batch("a", 1, "run-1")
    query = stream_writer()

    query.abort([stash(query)], 0)

    assert client.queues("q") == []


def test_write_without_any_task_publishes_nothing(
    client: MemoryClient, writer: Writers, stream_writer: Writers
) -> None:
    writer().commit([])
    stream_writer().commit([], 0)
    stream_writer().abort([None], 0)

    assert client.queues("q") == []


def test_loopback_broker_is_refused_on_a_cluster(writer: Writers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "master", lambda: "spark://m:7077")

    with pytest.raises(BadSettings, match=r"127\.0\.0\.1:2601 is another place on each machine, and the master is sp"):
        stash(writer(broker="127.0.0.1:2601"), "a")


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
    assert client.writer_epoch("q", job._job.writer) == 0


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
