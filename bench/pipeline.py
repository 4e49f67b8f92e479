"""Blocks and Spark on a queue, beside the client's batches in the same run: `python -m bench.pipeline`.

    a broker of its own --> publish_many, fetch_many; publish_block; Spark: write, peek, stream --> rates and ratios

One round warms everything up; of the others the medians of the rates, and of the ratios within a round, are shown.
Batches of texts and blocks take turns, for so long that many snapshots are due meanwhile: what the broker does behind
them then falls to both alike.  The broker's disk is whatever holds the temporary directory.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from wakeq.client.bulk import BulkClient, Columns
from wakeq.pipeline.spark import session_for
from wakeq.protocol.wire.worker.blocks import pack

FETCHED = 1_000  # what fetch_many takes at most
BATCH = 10_000  # what is published together, as texts or as a block
PUBLISH_TIMES = 3  # as many messages as in other steps: a snapshot is due about every 230,000, and takes a second
BARS = {"publish_block": 1.2, "spark write": 0.7, "spark peek": 0.7, "spark stream": 0.7}
AGAINST = {
    "publish_block": "publish_many",
    "spark write": "publish_many",
    "spark peek": "fetch_many",
    "spark stream": "fetch_many",
}


@contextmanager
def broker() -> Iterator[str]:
    """A broker with its data in a directory that goes with it."""
    with tempfile.TemporaryDirectory(prefix="wakeq-bench-") as folder:
        ports = ["--worker-port", "0", "--http-port", "0", "--taskflux-port", "0"]
        command = [sys.executable, "-m", "wakeq", "serve", "--data-dir", folder, *ports]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            ready = re.search(r"worker=(\S+)", process.stdout.readline())
            assert ready is not None, "the broker did not start"
            yield ready[1]
        finally:
            process.terminate()
            process.wait()


class Bench:
    """One round after the other on one broker; each figure has queues of its own, emptied in between."""

    def __init__(self, spark: Any, address: str, count: int, size: int) -> None:
        self.spark = spark
        self.address = address
        self.client = BulkClient(address)
        self.count = count
        self.body = b"x" * size
        self.texts = [self.body.decode()] * BATCH
        self.columns = Columns(BATCH, ["body"], pack([("body", [self.body] * BATCH)]))
        self.folder = Path(tempfile.mkdtemp(prefix="wakeq-bench-"))

    def round(self, number: int) -> dict[str, float]:
        """Return the messages a second of each figure."""
        rates = self.publish()
        for _ in range(self.count // BATCH):
            self.client.publish_many("json", self.texts)
        rates |= {
            "spark write": self._rate(self.write),
            "fetch_many": self._rate(self.fetch_many),
            "spark peek": self._rate(self.peek),
            "spark stream": self._rate(lambda: self.stream(number)),
        }
        for queue in ("json", "spark"):
            self.client.purge(queue)
        return rates

    def _rate(self, step: Callable[[], None]) -> float:
        began_s = time.perf_counter()
        step()
        return self.count / (time.perf_counter() - began_s)

    def publish(self) -> dict[str, float]:
        """Publish a batch of texts, a block, a batch of texts ...; return the messages a second of both."""
        steps: dict[str, Callable[[], object]] = {
            "publish_many": lambda: self.client.publish_many("texts", self.texts),
            "publish_block": lambda: self.client.publish_block("block", self.columns),
        }
        spent_s = dict.fromkeys(steps, 0.0)
        count = PUBLISH_TIMES * self.count
        for _ in range(count // BATCH):
            for name, step in steps.items():
                began_s = time.perf_counter()
                step()
                spent_s[name] += time.perf_counter() - began_s
        for queue in ("texts", "block"):
            self.client.purge(queue)
        return {name: count / spent_s[name] for name in steps}

    def fetch_many(self) -> None:
        """Fetch and acknowledge, as the stream does."""
        for _ in range(self.count // FETCHED):
            self.client.ack_many(self.client.fetch_many("json", FETCHED))

    def write(self) -> None:
        frame = self.spark.range(self.count, numPartitions=2).selectExpr(f"repeat('x', {len(self.body)}) as body")
        frame.write.format("wakeq").option("broker", self.address).mode("append").save("spark")

    def peek(self) -> None:
        frame = self.spark.read.format("wakeq").option("broker", self.address).load("spark")
        frame.write.format("noop").mode("overwrite").save()

    def stream(self, number: int) -> None:
        reader = self.spark.readStream.format("wakeq").option("broker", self.address).option("queue", "spark")
        frame = reader.option("maxOffsetsPerTrigger", "100000").option("minPartitions", "2").load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(self.folder / str(number)))
        writer.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with broker() as address, session_for("wakeq bench", master="local[2,4]") as spark:
        bench = Bench(spark, address, given.messages, given.bytes)
        bench.round(0)
        rounds = [bench.round(number) for number in range(1, given.rounds + 1)]
    sys.stdout.write(f"{given.messages:,} messages of {given.bytes} bytes, {os.cpu_count()} cores, medians\n")
    for name in rounds[0]:
        line = f"{name:14s} {median(one[name] for one in rounds):12,.0f}/s"
        if name in AGAINST:
            ratio = median(one[name] / one[AGAINST[name]] for one in rounds)
            verdict = "met" if ratio >= BARS[name] else "MISSED"
            line += f"   {ratio:5.2f} of {AGAINST[name]}, at least {BARS[name]}: {verdict}"
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
