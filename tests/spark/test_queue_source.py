"""The data source `wakeq` with Spark: peek, stream, write, and what is left when something is done twice."""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.network.listening import watched
from tests.helpers.network.ports import free_ports
from tests.helpers.programs.started import eventually
from wakeq.cli.entry import main
from wakeq.client.bulk import BulkClient
from wakeq.pipeline.stream.options import write_options

pytest.importorskip("pyspark", reason="pyspark is not installed")

from examples.pipeline.enrich import start
from wakeq.pipeline import autoack
from wakeq.pipeline.stream.checkpoint import Checkpoint
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


def test_failed_job_leaves_no_stashed_message(world: World) -> None:
    frame = world.spark.range(30_000).coalesce(1)  # the first 10,000 are stashed before the last one is reached
    frame = frame.selectExpr("if(id = 29999, raise_error('boom'), cast(id as string)) as body")

    with pytest.raises(Exception, match="boom"):
        frame.write.format("wakeq").option("broker", world.address).mode("append").save("q")

    stats = world.client.stats("q")  # which the first stash has made
    assert (stats["stashed"], stats["ready"], world.fetched("q")) == (0, 0, [])


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

    settled = [settle_checkpoint(Checkpoint(str(world.tmp_path / "checkpoint"))) for _ in range(2)]

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


class Upper:
    """A query from queue `in` to queue `out`, which can be run again and again on one checkpoint."""

    def __init__(self, world: World, **options: Any) -> None:
        self.world = world
        self.options = {"maxMessagesPerTrigger": 10, **options}
        self.checkpoint = world.tmp_path / "c"

    def run(self, expression: str = "concat(cast(body as string), '!')", **trigger: bool) -> tuple[int, int]:
        """Run it to its end; return how many messages it has acknowledged and published, over all runs."""
        self.write(self.world.stream("in", **self.options).selectExpr(f"{expression} as body"), **trigger)
        return self.world.client.stats("in")["acked"], self.world.client.stats("out")["published"]

    def write(self, frame: Any, **trigger: bool) -> None:
        writer = frame.writeStream.format("wakeq").option("broker", self.world.address).option("queue", "out")
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        writer.trigger(**(trigger or {"availableNow": True})).start().awaitTermination()
        eventually(lambda: not readers_of_this_driver(), "nobody is left who renews the claims")

    def forget_commit(self, batch: int) -> None:
        """Make it look as if the driver had died between the commit of the sink and its own note of it."""
        noted = self.checkpoint / "commits" / str(batch)
        noted.unlink()
        (noted.parent / f".{batch}.crc").unlink()


def test_enriched_messages_arrive_once_although_runs_are_killed(world: World) -> None:
    world.publish("in", 20)
    upper = Upper(world, maxMessagesPerTrigger=20)

    assert upper.run(once=True) == (0, 20), "one batch, and none is looked for behind it"
    upper.forget_commit(0)
    assert upper.run() == (20, 20), "the batch comes again, and is settled although nothing is new"
    world.publish("in", 5, start=20)
    assert upper.run() == (25, 25), "the last batch of a run is settled in it"
    assert upper.run() == (25, 25)
    assert sorted(world.fetched("out")) == sorted(f"m{i}!" for i in range(25))


def test_published_batch_does_not_come_back_when_the_driver_is_away_for_longer_than_the_claim(world: World) -> None:
    world.publish("in", 10)
    upper = Upper(world, timeout=5)
    assert upper.run(once=True) == (0, 10)
    upper.forget_commit(0)

    eventually(lambda: world.client.stats("in")["staged"] == 0, "the claim has ended")
    assert (world.client.stats("in")["acked"], world.client.stats("in")["ready"]) == (10, 0)
    world.publish("in", 3, start=10)

    assert upper.run() == (13, 13)
    assert sorted(world.fetched("out")) == sorted(f"m{i}!" for i in range(13))


def test_unpublished_batch_comes_back_and_the_query_goes_on_by_itself(world: World) -> None:
    world.publish("in", 10)
    upper = Upper(world, timeout=5)
    with pytest.raises(Exception, match="boom"):
        upper.run("if(cast(body as string) = 'm7', raise_error('boom'), 'x')")

    eventually(lambda: world.client.stats("in")["staged"] == 0, "the claim has lapsed")
    assert world.client.stats("in")["ready"] == 10

    assert upper.run() == (10, 10)
    assert sorted(world.fetched("out")) == sorted(f"m{i}!" for i in range(10))
    assert world.client.stats("out")["stashed"] == 0


def test_state_of_a_query_survives_a_driver_that_dies_behind_a_publish(world: World) -> None:
    world.publish("in", 3)
    upper = Upper(world)

    def run(**trigger: bool) -> None:
        upper.write(world.stream("in").selectExpr("cast(body as string) as body").dropDuplicates(["body"]), **trigger)

    run(once=True)
    upper.forget_commit(0)
    run()
    world.publish("in", 4)  # three of them are known
    run()

    assert sorted(world.fetched("out")) == ["m0", "m1", "m2", "m3"]


def test_write_in_foreach_batch_publishes_once_without_options(world: World) -> None:
    world.publish("in", 10)
    upper = Upper(world)
    seen: list[list[str]] = []

    def publish(frame: Any, batch: int) -> None:
        seen.append(sorted(bytes(row.body).decode() for row in frame.select("body").collect()))
        writer = frame.select("body").write.format("wakeq").option("broker", world.address).mode("append")
        writer.save("out")
        writer.option("writer", "second").save("out")

    for _ in range(2):
        world.run(world.stream("in"), publish, "c", once=True)
        upper.forget_commit(0)

    assert seen == [sorted(f"m{i}" for i in range(10))] * 2, "the batch was repeated, with its messages"
    assert Counter(world.fetched("out")) == {f"m{i}": 2 for i in range(10)}


def test_second_write_of_one_batch_without_a_name_is_refused(world: World) -> None:
    world.publish("in", 1)

    def publish(frame: Any, batch: int) -> None:
        for _ in range(2):
            frame.select("body").write.format("wakeq").option("broker", world.address).mode("append").save("out")

    with pytest.raises(Exception, match=r"nothing was published to queue out.* set option writer"):
        world.run(world.stream("in"), publish)
    assert world.client.stats("out")["published"] == 1


def test_query_waits_for_a_broker_that_is_not_there_yet(spark: Any, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    reader = spark.readStream.format("wakeq").option("broker", f"127.0.0.1:{port}").option("queue", "in")
    writer = reader.load().select("body").writeStream.format("wakeq").option("broker", f"127.0.0.1:{port}")
    query = writer.option("queue", "out").option("checkpointLocation", str(tmp_path / "c")).start()
    eventually(lambda: "Getting offsets" in query.status["message"], "the query asks its broker, which is not there")

    with BrokerProcess(tmp_path / "data", "--worker-port", str(port)), BulkClient(f"127.0.0.1:{port}") as client:
        client.publish_many("in", ["a", "b"])
        eventually(lambda: bool(client.queues("out")) and client.stats("out")["published"] == 2, "it has gone on")
        query.stop()


def test_progress_of_a_query_has_the_backlog(world: World) -> None:
    world.publish("in", 12)
    world.client.publish("in", "late", delay=600)
    frame = world.stream("in", maxMessagesPerTrigger=10)
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(world.tmp_path / "c"))

    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()

    (source,) = query.recentProgress[0]["sources"]
    backlog = json.loads(source["latestOffset"]) if isinstance(source["latestOffset"], str) else source["latestOffset"]
    assert {name: backlog[name] for name in ("queue", "ready", "delayed", "lapsed")} == {
        "queue": "in", "ready": 2, "delayed": 1, "lapsed": 0,
    }  # fmt: skip
    assert backlog["oldest_s"] >= 0


def test_columns_are_chosen_by_options_or_a_schema(world: World) -> None:
    world.publish("q", 2)
    reader = world.spark.read.format("wakeq").option("broker", world.address)

    assert reader.option("includeBody", "false").load("q").columns == [
        "uid", "queue", "priority", "delivery", "published",
    ]  # fmt: skip
    assert sorted(bytes(row.body) for row in reader.schema("body binary").load("q").collect()) == [b"m0", b"m1"]
    with pytest.raises(Exception, match="column body is binary, not string; correct"):
        reader.schema("body string").load("q").count()
    stream = world.spark.readStream.format("wakeq").option("broker", world.address).schema("colour string")
    with pytest.raises(Exception, match="a message has no column colour"):
        world.run(stream.load("q"), Kept())


@pytest.mark.parametrize("trigger", ["availableNow", "once"])
def test_missing_queue_ends_a_run_that_does_not_wait_for_messages(world: World, trigger: str) -> None:
    with pytest.raises(Exception, match=f"queue nowhere does not exist at {world.address}"):
        world.run(world.stream("nowhere"), Kept(), **{trigger: True})
    world.run(world.stream("nowhere", failOnMissingQueue="false"), Kept(), "other")


def test_released_batch_is_ready_at_once(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.publish("q", 4)

    def fail(frame: Any, batch: int) -> None:
        raise ValueError("the sink is away")

    with pytest.raises(Exception, match="the sink is away"):
        world.run(world.stream("q"), fail)
    assert world.client.stats("q")["staged"] == 4

    assert main(["pipeline", "release", str(world.tmp_path / "checkpoint")]) == 0

    assert capsys.readouterr().err == f"wakeq: queue q: 0 messages acknowledged, 4 released, at {world.address}\n"
    assert sorted(world.fetched("q")) == ["m0", "m1", "m2", "m3"]


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


def test_ended_epoch_goes_on_empty_and_then_a_foreign_sink_stops(world: World) -> None:
    world.publish("q", 4)

    def fail(frame: Any, batch: int) -> None:
        raise ValueError("the sink is away")

    with pytest.raises(Exception, match="the sink is away"):
        world.run(world.stream("q"), fail)
    (path,) = (world.tmp_path / "checkpoint" / "offsets").glob("0")
    world.client.release("q", json.loads(path.read_text().splitlines()[2])["source"])
    sink = Kept()

    with pytest.raises(Exception, match=r"was released, or not settled in time.* may be processed twice"):
        world.run(world.stream("q"), sink)
    assert sink.batches == {0: []}
    world.run(world.stream("q", failOnDataLoss="false"), sink)

    assert sink.all == ["m0", "m1", "m2", "m3"]


def test_batch_that_somebody_settled_stops_the_query(world: World) -> None:
    world.publish("q", 4)

    def fail(frame: Any, batch: int) -> None:
        raise ValueError("the sink is away")

    with pytest.raises(Exception, match="the sink is away"):
        world.run(world.stream("q"), fail)
    (path,) = (world.tmp_path / "checkpoint" / "offsets").glob("0")
    offset = json.loads(path.read_text().splitlines()[2])
    world.client.settle("q", offset["source"], offset["epoch"])
    world.publish("q", 3, start=4)

    with pytest.raises(Exception, match="epoch 1 of queue q is acknowledged"):
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
        ("maxMessagePerTrigger", "7", "did you mean maxMessagesPerTrigger"),
        ("maxOffsetsPerTrigger", "many", "option maxMessagesPerTrigger is 'many'"),
        ("broker", "127.0.0.1:1", "no broker answers at 127.0.0.1:1"),
    ],
)
def test_wrong_option_is_one_line_with_advice(world: World, option: str, value: str, complaint: str) -> None:
    with pytest.raises(Exception, match=complaint):
        world.spark.read.format("wakeq").option("queue", "q").option(option, value).load().count()


def test_unpublishable_column_is_named(world: World) -> None:
    with pytest.raises(Exception, match="column id cannot be published; select body"):
        world.spark.range(3).write.format("wakeq").option("broker", world.address).mode("append").save("q")
