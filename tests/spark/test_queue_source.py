"""The data source `wakeq` with Spark: peek, stream, write, and what is left when something is done twice."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.network.listening import watched
from tests.helpers.programs.started import eventually
from wakeq.client.bulk import BulkClient
from wakeq.pipeline.stream.options import write_options

pytest.importorskip("pyspark", reason="pyspark is not installed")

from examples.pipeline.enrich import start
from wakeq.pipeline import autoack
from wakeq.pipeline.stream.settling import Settled, settle_checkpoint

pytestmark = [pytest.mark.spark, pytest.mark.long]

RUNNER = b"python_streaming_source_runner"


class World:
    """A broker, a client of it, and Spark."""

    def __init__(self, spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
        self.spark = spark
        self.broker = broker
        self.tmp_path = tmp_path
        host, port = broker.worker_address
        self.address = f"{host}:{port}"
        self.client = BulkClient(self.address)

    def publish(self, queue: str, count: int, start: int = 0) -> list[str]:
        bodies = [f"m{start + i}" for i in range(count)]
        self.client.publish_many(queue, bodies)
        return bodies

    def stream(self, queue: str, **options: Any) -> Any:
        reader = self.spark.readStream.format("wakeq").option("broker", self.address).option("queue", queue)
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load()

    def run(self, frame: Any, sink: Any, checkpoint: str = "checkpoint", **trigger: Any) -> None:
        """Run a query over what is there now, to its end."""
        writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(self.tmp_path / checkpoint))
        query = writer.trigger(**(trigger or {"availableNow": True})).start()
        query.awaitTermination()

    def fetched(self, queue: str) -> list[str]:
        return [message.body.decode() for message in self.client.fetch_many(queue, 1000)]


@pytest.fixture
def world(spark: Any, tmp_path: Path) -> Iterator[World]:
    with BrokerProcess(tmp_path / "data") as broker:
        made = World(spark, broker, tmp_path)
        with made.client:
            yield made


class Kept:
    """A sink that keeps what each batch held."""

    def __init__(self) -> None:
        self.batches: dict[int, list[str]] = {}

    def __call__(self, frame: Any, batch: int) -> None:
        self.batches[batch] = sorted(bytes(row.body).decode() for row in frame.collect())

    @property
    def all(self) -> list[str]:
        return sorted(body for bodies in self.batches.values() for body in bodies)


def readers_of_this_driver() -> list[int]:
    """The processes in which sources of running queries live, and renew their claims."""
    return [pid for pid in (int(path.name) for path in Path("/proc").glob("[0-9]*")) if _is_reader(pid)]


def _is_reader(pid: int) -> bool:
    try:
        return RUNNER in Path(f"/proc/{pid}/cmdline").read_bytes() and os.getsid(pid) == os.getsid(0)
    except OSError:  # it has ended meanwhile
        return False


def test_peek_shows_messages_and_changes_nothing(world: World) -> None:
    world.client.publish("q", "a", priority=3, headers={"trace": "1"})
    world.publish("q", 4)
    reader = world.spark.read.format("wakeq").option("broker", world.address).option("includeHeaders", "true")
    reader = reader.option("includeState", "true")

    rows = reader.load("q").orderBy("uid").collect()

    assert [bytes(row.body) for row in rows] == [b"a", b"m0", b"m1", b"m2", b"m3"]
    assert (rows[0].priority, rows[0].headers, rows[0].queue, rows[0].delivery) == (3, {"trace": "1"}, "q", 1)
    assert {row.state for row in rows} == {"ready"}
    assert world.client.stats("q")["ready"] == 5
    assert reader.load("q").count() == 5


def test_job_publishes_all_its_rows_in_order_of_priority(world: World) -> None:
    frame = world.spark.createDataFrame(
        [("late", 9, None), ("first", -1, {"a": "b"})], "body string, priority int, headers map<string,string>"
    )

    frame.write.format("wakeq").option("broker", world.address).option("queue", "q").mode("append").save()

    messages = world.client.fetch_many("q", 10)
    assert [message.body for message in messages] == [b"first", b"late"]
    assert messages[0].headers == {"a": "b"}
    assert world.client.stats("q")["stashed"] == 0


def test_failed_job_publishes_no_stashed_message(world: World) -> None:
    frame = world.spark.range(30_000).coalesce(1)  # the first 10,000 are put aside before the last one is reached
    frame = frame.selectExpr("if(id = 29999, raise_error('boom'), cast(id as string)) as body")

    with pytest.raises(Exception, match="boom"):
        frame.write.format("wakeq").option("broker", world.address).mode("append").save("q")

    stats = world.client.stats("q")
    assert stats["stashed"] > 0, "nothing was put aside, so nothing was proved"
    assert (stats["ready"], world.fetched("q")) == (0, [])


def test_available_now_reads_present_messages_in_limited_batches(world: World) -> None:
    bodies = world.publish("q", 25)
    sink = Kept()

    world.run(world.stream("q", maxOffsetsPerTrigger=10), sink)

    assert [len(batch) for batch in sink.batches.values()] == [10, 10, 5]
    assert sink.all == sorted(bodies)
    assert world.client.stats("q")["acked"] == 25


def test_checkpoint_is_settled_up_to_its_last_finished_batch(world: World) -> None:
    world.publish("q", 5)
    world.run(world.stream("q"), Kept(), once=True)  # it does not look for a second batch
    assert world.client.stats("q")["staged"] == 5

    settled = [settle_checkpoint(world.tmp_path / "checkpoint") for _ in range(2)]

    assert settled == [[Settled("q", world.address, 5)], [Settled("q", world.address, 0)]]
    assert world.client.stats("q")["size"] == world.client.stats("q")["leased"] == 0


def test_autoack_settles_the_last_batch_too(world: World) -> None:
    world.publish("q", 25)
    listener = autoack(world.spark)
    try:
        world.run(world.stream("q", maxOffsetsPerTrigger=10), Kept())
        world.spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        world.spark.streams.removeListener(listener)

    eventually(lambda: world.client.stats("q")["acked"] == 25, "the last batch is settled, beside Spark")


def test_failed_batch_is_the_same_after_a_restart(world: World) -> None:
    world.publish("q", 20)

    def fail(frame: Any, batch: int) -> None:
        raise ValueError("the sink is away")

    with pytest.raises(Exception, match="the sink is away"):
        world.run(world.stream("q", maxOffsetsPerTrigger=10), fail)
    eventually(lambda: not readers_of_this_driver(), "nobody is left who renews the claim of a query that has ended")
    world.client.publish("q", "urgent", priority=-9)
    sink = Kept()
    world.run(world.stream("q", maxOffsetsPerTrigger=10), sink)

    assert sink.batches[0] == sorted(f"m{i}" for i in range(10))
    assert sink.all == sorted([*(f"m{i}" for i in range(20)), "urgent"])


def test_query_opens_no_port_to_foreign_workers(world: World) -> None:
    world.publish("q", 20)
    sink = Kept()

    with watched(world.spark.sparkContext._gateway.proc.pid) as opened:
        world.run(world.stream("q"), sink)

    assert len(sink.all) == 20
    assert opened == set()


def test_queries_on_one_queue_share_its_messages(world: World) -> None:
    bodies = world.publish("q", 200)
    sinks = [Kept(), Kept()]
    queries = []
    for place, sink in enumerate(sinks):
        frame = world.stream("q", maxOffsetsPerTrigger=20)
        writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(world.tmp_path / f"c{place}"))
        queries.append(writer.trigger(availableNow=True).start())
    for query in queries:
        query.awaitTermination()

    assert sorted(sinks[0].all + sinks[1].all) == sorted(bodies)


def test_enriched_messages_arrive_once_although_runs_are_killed(world: World) -> None:
    world.publish("in", 20)
    frame = world.stream("in", maxOffsetsPerTrigger=10).selectExpr("concat(cast(body as string), '!') as body")
    writer = frame.writeStream.format("wakeq").option("broker", world.address).option("queue", "out")
    writer = writer.option("checkpointLocation", str(world.tmp_path / "c"))

    def run(**trigger: bool) -> tuple[int, int]:
        writer.trigger(**(trigger or {"availableNow": True})).start().awaitTermination()
        return world.client.stats("in")["acked"], world.client.stats("out")["published"]

    assert run(once=True) == (0, 20), "one batch, and none is looked for behind it"
    noted = world.tmp_path / "c" / "commits" / "0"
    noted.unlink()  # as if the driver had died between the sink's commit and its own
    (noted.parent / ".0.crc").unlink()
    assert run() == (20, 20), "the batch comes again, and is settled although nothing is new"
    world.publish("in", 5, start=20)
    assert run() == (25, 25), "the last batch of a run is settled in it"
    assert run() == (25, 25)
    assert sorted(world.fetched("out")) == sorted(f"m{i}!" for i in range(25))


def test_example_makes_a_bill_of_each_order(world: World) -> None:
    world.client.publish_many("orders", [{"id": i, "item": item, "count": i} for i, item in ((1, "tea"), (2, "cake"))])

    start(world.spark, world.address, str(world.tmp_path / "c"), stop_when_empty=True).awaitTermination()

    bills = sorted((message.json() for message in world.client.fetch_many("bills", 9)), key=lambda bill: bill["id"])
    assert bills == [{"id": 1, "item": "tea", "cost": 3.5}, {"id": 2, "item": "cake", "cost": 8.5}]


def test_task_with_many_pieces_stashes_them_under_several_names(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.types import StringType, StructField, StructType

    from wakeq.pipeline.stream import sink

    body = StructType([StructField("body", StringType())])
    monkeypatch.setattr(sink, "STASH_PARTS_MAX", 2)
    writer = sink.QueueWriter(write_options({"broker": world.address, "queue": "q"}), body, overwrite=False)
    batches = [pa.RecordBatch.from_pydict({"body": [f"m{i}"]}) for i in range(5)]

    stashed = writer.write(iter(batches))
    writer.commit([None, stashed])

    assert [rows for _, rows in stashed.stashes] == [2, 2, 1]
    assert world.fetched("q") == [f"m{i}" for i in range(5)]


def test_ended_epoch_raises_or_is_left_to_a_later_one(world: World) -> None:
    world.publish("q", 4)

    def fail(frame: Any, batch: int) -> None:
        raise ValueError("the sink is away")

    with pytest.raises(Exception, match="the sink is away"):
        world.run(world.stream("q"), fail)
    (path,) = (world.tmp_path / "checkpoint" / "offsets").glob("0")
    offset = json.loads(path.read_text().splitlines()[2])
    world.client.settle("q", offset["source"], offset["epoch"])
    world.publish("q", 3, start=4)

    with pytest.raises(Exception, match="was not settled in time"):
        world.run(world.stream("q"), Kept())
    sink = Kept()
    world.run(world.stream("q", failOnDataLoss="false"), sink)

    assert sink.all == ["m4", "m5", "m6"]


def test_query_that_was_paused_too_long_stops_with_a_reason(world: World) -> None:
    bodies = world.publish("q", 3)

    def stands_still(frame: Any, batch: int) -> None:
        frame.collect()
        eventually(lambda: len(readers_of_this_driver()) == 1, "those of queries before this one have ended")
        (reader,) = readers_of_this_driver()
        os.kill(reader, signal.SIGSTOP)
        try:
            eventually(lambda: world.client.stats("q")["staged"] == 0, "the claim has lapsed")
        finally:
            os.kill(reader, signal.SIGCONT)

    with pytest.raises(Exception, match=r"epoch 1 of queue q .* may be processed twice"):
        world.run(world.stream("q", timeout=5), stands_still)
    assert world.client.stats("q")["ready"] == 3
    sink = Kept()
    world.run(world.stream("q", failOnDataLoss="false"), sink)

    assert sink.all == bodies
    assert world.client.stats("q")["acked"] == 3


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("colour", "red", "unknown option colour; wakeq knows broker, queue"),
        ("maxOffsetsPerTrigger", "many", "option maxOffsetsPerTrigger is 'many'"),
        ("broker", "127.0.0.1:1", "no broker answers at 127.0.0.1:1"),
    ],
)
def test_wrong_option_is_one_line_with_advice(world: World, option: str, value: str, complaint: str) -> None:
    with pytest.raises(Exception, match=complaint):
        world.spark.read.format("wakeq").option("queue", "q").option(option, value).load().count()


def test_unpublishable_column_is_named(world: World) -> None:
    with pytest.raises(Exception, match="column id cannot be published; select body"):
        world.spark.range(3).write.format("wakeq").option("broker", world.address).mode("append").save("q")
