"""Whatever is killed in the middle of a batch, nothing is lost; and with the sink of `wakeq`, nothing comes twice."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.clusters.processes import Cluster
from tests.helpers.journal.files import rows_of
from tests.helpers.network.ports import free_ports
from tests.helpers.programs.started import eventually
from wakeq.client.bulk import BulkClient
from wakeq.protocol.errors import QueueNotFound

pytest.importorskip("pyspark", reason="pyspark is not installed")

from wakeq.pipeline.stream.checkpoint import Checkpoint
from wakeq.pipeline.stream.settling import settle_checkpoint

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.usefixtures("needs_spark")]

ROOT = Path(__file__).parents[2]
MESSAGES = 300
DEADLINE_S = 600.0  # some start a virtual machine of their own, and the machine may have much else to do


@contextmanager
def driver(address: str, folder: Path, *timeout: str) -> Iterator[subprocess.Popen[bytes]]:
    """A driver with its virtual machine and its workers, in a group of their own."""
    command = [sys.executable, str(ROOT / "tests" / "helpers" / "programs" / "spark_enrich.py"), address, str(folder)]
    command += timeout
    log = (folder / "driver.log").open("ab")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.close()


def wait_until_published(client: BulkClient, count: int, is_running: Callable[[], bool]) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < until_s:
        try:
            if client.stats("out")["published"] >= count:
                break
        except QueueNotFound:
            pass
        assert is_running(), "the query ended before its time"
        time.sleep(0.02)
    else:
        raise AssertionError(f"{count} messages were not published in time")


def test_messages_arrive_once_although_driver_worker_and_broker_are_killed(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"  # the same after a restart: drivers look for it there
    with BrokerProcess(tmp_path / "data", "--worker-port", str(port)) as broker:
        client = BulkClient(address)
        expected = [f"m{i}" for i in range(MESSAGES)]
        client.publish_many("in", expected)

        with driver(address, tmp_path) as first:
            wait_until_published(client, MESSAGES // 6, lambda: first.poll() is None)
            os.killpg(first.pid, signal.SIGKILL)
            first.wait()
        with driver(address, tmp_path) as second:
            wait_until_published(client, MESSAGES // 2, lambda: second.poll() is None)
            broker.kill()
            broker.start()
            assert second.wait(DEADLINE_S) == 0, (tmp_path / "driver.log").read_text()[-3000:]
        settle_checkpoint(Checkpoint(str(tmp_path / "checkpoint")))

        assert (tmp_path / "a-worker-died").exists()
        got = [message.body.decode() for message in client.fetch_many("out", 1000)]
        assert sorted(got) == sorted(f"{body}!" for body in expected)
        assert [client.stats("in")[name] for name in ("size", "leased")] == [0, 0]
        assert client.stats("out")["stashed"] == 0, "attempts that did not count have left nothing"


def test_messages_arrive_once_although_the_driver_is_away_for_longer_than_its_claim(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        client = BulkClient(broker.address)
        expected = [f"m{i}" for i in range(MESSAGES)]
        client.publish_many("in", expected)

        with driver(broker.address, tmp_path, "5") as first:
            wait_until_published(client, MESSAGES // 6, lambda: first.poll() is None)
            os.killpg(first.pid, signal.SIGKILL)
            first.wait()
        eventually(lambda: client.stats("in")["staged"] == 0, "its claim has ended")
        with driver(broker.address, tmp_path, "300") as second:
            assert second.wait(DEADLINE_S) == 0, (tmp_path / "driver.log").read_text()[-3000:]

        got = [message.body.decode() for message in client.fetch_many("out", 1000)]
        assert sorted(got) == sorted(f"{body}!" for body in expected)
        assert [client.stats("in")[name] for name in ("size", "acked")] == [0, MESSAGES]
        assert client.stats("out")["stashed"] == 0


def test_messages_arrive_once_although_the_leader_is_killed(spark: Any, tmp_path: Path) -> None:
    expected = [f"m{i}" for i in range(2 * MESSAGES)]
    with Cluster(tmp_path) as cluster:
        client = BulkClient(cluster.addresses)
        client.publish_many("in", expected)
        query = enriching(spark, cluster.addresses, str(tmp_path / "checkpoint"))

        wait_until_published(client, MESSAGES // 6, lambda: query.isActive)
        cluster.leader().kill()
        assert client.stats("out")["published"] < len(expected), "it was killed too late"
        assert query.awaitTermination(DEADLINE_S)
        settle_checkpoint(Checkpoint(str(tmp_path / "checkpoint")))

        messages = client.fetch_many("out", 1000)
        assert sorted(message.body.decode() for message in messages) == sorted(f"{body}!" for body in expected)
        assert [client.stats("in")[name] for name in ("size", "leased")] == [0, 0]
        check_each_is_told_once([node.data_dir for node in cluster.nodes], {message.uid for message in messages})


def check_each_is_told_once(places: list[Path], out: set[str]) -> None:
    """Wait until the nodes tell together what each message of both queues went through, before the kill and behind."""
    events = [("in", "published"), ("in", "acked"), ("out", "published")]

    def told() -> dict[tuple[str, str], Counter[str]]:
        rows = [row for row in rows_of(*places) if row["outcome"] == "done"]
        assert len({(row["index"], row["place"]) for row in rows}) == len(rows)
        return {one: Counter(row["uid"] for row in rows if (row["queue"], row["event"]) == one) for one in events}

    eventually(lambda: all(len(uids) >= 2 * MESSAGES for uids in told().values()), "all of it is told")
    for event, uids in told().items():
        assert (len(uids), set(uids.values())) == (2 * MESSAGES, {1}), f"{event} of three nodes counts once"
    assert set(told()["out", "published"]) == out


def enriching(spark: Any, broker: str, checkpoint: str) -> Any:
    """Start a query that adds something to each body, in small batches, until nothing is left."""
    reader = spark.readStream.format("wakeq").option("broker", broker).option("queue", "in")
    frame = reader.option("maxOffsetsPerTrigger", "30").option("minPartitions", "2").load()
    writer = frame.selectExpr("concat(cast(body as string), '!') as body").writeStream.format("wakeq")
    writer = writer.option("broker", broker).option("queue", "out").option("checkpointLocation", checkpoint)
    return writer.trigger(availableNow=True).start()
