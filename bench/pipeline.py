"""What Spark costs on a queue, beside the raw client in the same run: `python -m bench.pipeline`.

    a broker of its own --> blocks, claims and stashes by the raw client; Spark: write, peek, stream --> CPU and rates

What counts is the CPU of the broker and of Python for one message: the virtual machine of Spark is Spark's own, and by
the clock it takes the two cores that the others need.  One round warms everything up; of the others the medians of the
ratios within a round are shown.  `--latency` measures micro-batches and an idle stream instead.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from wakeq.client.bulk import BulkClient, Columns
from wakeq.pipeline.spark import session_for
from wakeq.protocol.wire.worker.blocks import pack

FETCHED = 1_000  # what fetch_many takes at most
BATCH = 10_000  # what is published together, as texts or as a block
EPOCH = 100_000  # messages of a batch of a stream, and of a claim
KEEP_S = 600
# Of CPU: at most.
CPU_BARS = {
    "spark write": ("publish_block", 1.4),
    "spark peek": ("peek_block", 1.4),
    "spark stream": ("claim and publish", 1.4),
}
# Of the rate by the clock of blocks to that of texts: at least.
BLOCKS_TO_TEXTS = 1.2
# As many messages as in other steps: a snapshot is due about every 230,000, and takes a second.
PUBLISH_TIMES = 3
CLAIM_US_MAX = 5.0
LATENCY_S_MAX = 0.3
IDLE_PERCENT_MAX = 1.0
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a step took for each message: of the clock, and of CPU."""

    clock_us: float
    broker_us: float
    python_us: float

    @property
    def cpu_us(self) -> float:
        return self.broker_us + self.python_us


@contextmanager
def broker() -> Iterator[tuple[str, int]]:
    """A broker with its data in a directory that goes with it: its address, and its process."""
    with tempfile.TemporaryDirectory(prefix="wakeq-bench-") as folder:
        ports = ["--worker-port", "0", "--http-port", "0", "--taskflux-port", "0"]
        command = [sys.executable, "-m", "wakeq", "serve", "--data-dir", folder, *ports]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert process.stdout is not None
            ready = re.search(r"worker=(\S+)", process.stdout.readline())
            assert ready is not None, "the broker did not start"
            yield ready[1], process.pid
        finally:
            process.terminate()
            process.wait()


# CPU ----------------------------------------------------------------------------------------------------------------


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process, with its threads that have ended."""
    return _times_of(pid)[0]


def _times_of(pid: int) -> tuple[float, float]:
    """Return the CPU seconds of a process, and those of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own, children = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
    return own * TICK_S, children * TICK_S


def _descendants_of(pid: int) -> list[int]:
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            found += [child, *_descendants_of(child)]
    return found


def cpu_below(pid: int) -> float:
    """Return the CPU seconds of everything that a process has started, but not its own."""
    spent = _times_of(pid)[1]
    for child in _descendants_of(pid):
        try:
            spent += sum(_times_of(child))
        except OSError:
            # The process has ended meanwhile: it counts with its parent's children.
            continue
    return spent


class Bench:
    """One round after the other on one broker; the queues are emptied in between."""

    def __init__(self, spark: Any, address: str, broker_pid: int, count: int, size: int) -> None:
        self.spark = spark
        self.address = address
        self.broker_pid = broker_pid
        # The virtual machine, whose children are the Python workers.
        self.spark_pid = spark.sparkContext._gateway.proc.pid
        self.client = BulkClient(address)
        self.count = count
        self.body = b"x" * size
        self.texts = [self.body.decode()] * BATCH
        self.columns = Columns(BATCH, ["body"], pack([("body", [self.body] * BATCH)]))
        self.folder = Path(tempfile.mkdtemp(prefix="wakeq-bench-"))
        # The next epoch of the raw client's claims, and of its publishes.
        self.epoch = 1

    def round(self, number: int) -> dict[str, Cost]:
        """Return what each step costs for a message."""
        costs = {
            "publish_many": self._cost(self.publish_many),
            "publish_block": self._cost(self.publish_block),
            "spark write": self._cost(self.write, by_spark=True),
            "fetch_many": self._cost(self.fetch_many),
            "peek_block": self._cost(self.peek_block),
            "spark peek": self._cost(self.peek, by_spark=True),
        }
        costs["claim"] = self._cost(self.claim)
        self.publish_block()
        costs["claim and publish"] = self._cost(self.claim_and_publish)
        costs["spark stream"] = self._cost(lambda: self.stream(number), by_spark=True)
        for queue in ("texts", "block", "spark", "out"):
            self.client.purge(queue)
        return costs

    def _cost(self, step: Callable[[], None], *, by_spark: bool = False) -> Cost:
        # What the steps before have left to be written belongs to them.
        time.sleep(1.0)
        # The driver of a query only waits, and the workers of Spark do nothing for the raw client.
        python: Callable[[], float] = (lambda: cpu_below(self.spark_pid)) if by_spark else time.process_time
        broker_s, python_s = cpu_of(self.broker_pid), python()
        began_s = time.perf_counter()
        step()
        clock_s = time.perf_counter() - began_s
        time.sleep(1.0)
        broker_s, python_s = cpu_of(self.broker_pid) - broker_s, python() - python_s
        share = 1e6 / self.count
        return Cost(clock_s * share, broker_s * share, python_s * share)

    def blocks_to_texts(self) -> float:
        """Publish a batch of texts, a block, a batch of texts ...; return the ratio of the rates.

        In turns, because what the broker writes behind them falls to whoever is published meanwhile.
        """
        steps: dict[str, Callable[[], object]] = {
            "texts": lambda: self.client.publish_many("texts", self.texts),
            "block": lambda: self.client.publish_block("block", self.columns),
        }
        spent_s = dict.fromkeys(steps, 0.0)
        for _ in range(PUBLISH_TIMES * self.count // BATCH):
            for name, step in steps.items():
                began_s = time.perf_counter()
                step()
                spent_s[name] += time.perf_counter() - began_s
        for queue in steps:
            self.client.purge(queue)
        return spent_s["texts"] / spent_s["block"]

    # The raw client -------------------------------------------------------------------------------------------------

    def publish_many(self) -> None:
        for _ in range(self.count // BATCH):
            self.client.publish_many("texts", self.texts)

    def publish_block(self) -> None:
        for _ in range(self.count // BATCH):
            self.client.publish_block("block", self.columns)

    def fetch_many(self) -> None:
        """Fetch and acknowledge."""
        for _ in range(self.count // FETCHED):
            self.client.ack_many(self.client.fetch_many("texts", FETCHED))

    def peek_block(self) -> None:
        after = 0
        while True:
            block = self.client.peek_block("block", after=after, count=BATCH)
            if not block.next:
                return
            after = block.next

    def claim(self) -> None:
        """Stage, read and settle everything on a queue."""
        while self._claim_epoch() is not None:
            self.client.settle("block", "raw", self.epoch)
            self.epoch += 1

    def claim_and_publish(self) -> None:
        """Do what a stream from queue to queue does, one step after the other."""
        while (blocks := self._claim_epoch()) is not None:
            stash, rows = f"stash-{self.epoch}", 0
            for part, block in enumerate(blocks):
                columns = Columns(BATCH, ["body"], self.columns.block)
                self.client.stash("out", stash, part, columns, keep=KEEP_S)
                rows += block.rows
            self.client.publish_stashes("out", [(stash, rows)], writer="raw", epoch=self.epoch)
            self.client.settle("block", "raw", self.epoch)
            self.epoch += 1

    def _claim_epoch(self) -> list[Any] | None:
        """Claim an epoch and read it in blocks; None if nothing is left."""
        if self.client.stage("block", "raw", self.epoch, count=EPOCH, slices=2, timeout=KEEP_S) is None:
            return None
        blocks, part = [], ("block", "raw", self.epoch)
        for place in range(2):
            offset = 0
            while True:
                block = self.client.read_slice(*part, place, offset=offset, count=BATCH)
                blocks.append(block)
                if not block.next:
                    break
                offset = block.next
        return blocks

    # Spark ----------------------------------------------------------------------------------------------------------

    def write(self) -> None:
        frame = self.spark.range(self.count, numPartitions=2).selectExpr(f"repeat('x', {len(self.body)}) as body")
        frame.write.format("wakeq").option("broker", self.address).mode("append").save("spark")

    def peek(self) -> None:
        reader = self.spark.read.format("wakeq").option("broker", self.address).option("minPartitions", "2")
        reader.load("spark").write.format("noop").mode("overwrite").save()

    def stream(self, number: int) -> None:
        """Move a queue to another one, in large batches."""
        reader = self.spark.readStream.format("wakeq").option("broker", self.address).option("queue", "spark")
        frame = reader.option("maxOffsetsPerTrigger", str(EPOCH)).option("minPartitions", "2").load()
        writer = frame.select("body").writeStream.format("wakeq").option("broker", self.address).option("queue", "out")
        writer = writer.option("checkpointLocation", str(self.folder / str(number)))
        writer.trigger(availableNow=True).start().awaitTermination()

    # Latency --------------------------------------------------------------------------------------------------------

    def latencies(self, count: int, pause_s: float) -> tuple[list[float], float]:
        """Return how many seconds single messages take through a stream, and the CPU of an idle one in percent."""
        reader = self.spark.readStream.format("wakeq").option("broker", self.address).option("queue", "ask")
        writer = reader.option("minPartitions", "1").load().select("body").writeStream.format("wakeq")
        writer = writer.option("broker", self.address).option("queue", "answer")
        writer = writer.option("checkpointLocation", str(self.folder / "latency"))
        self.client.publish("ask", "warm")
        query = writer.trigger(processingTime="100 milliseconds").start()
        found: list[float] = []
        with BulkClient(self.address) as worker:
            worker.ack_many(worker.fetch_many("answer", 1, wait=60))
            for _ in range(count):
                sent_s = time.perf_counter()
                self.client.publish("ask", "x")
                answers = worker.fetch_many("answer", 1, wait=60)
                found.append(time.perf_counter() - sent_s)
                worker.ack_many(answers)
                threading.Event().wait(pause_s)
        idle_s, began_s = cpu_of(self.broker_pid), time.perf_counter()
        threading.Event().wait(15)
        percent = 100 * (cpu_of(self.broker_pid) - idle_s) / (time.perf_counter() - began_s)
        query.stop()
        return found, percent


def _print_costs(rounds: list[dict[str, Cost]]) -> None:
    sys.stdout.write(f"{'':18s} {'rate':>12s} {'broker us':>10s} {'python us':>10s}\n")
    for name in rounds[0]:
        costs = [one[name] for one in rounds]
        rate = median(1e6 / cost.clock_us for cost in costs)
        line = f"{name:18s} {rate:10,.0f}/s {median(c.broker_us for c in costs):10.2f}"
        line += f" {median(c.python_us for c in costs):10.2f}"
        if name in CPU_BARS:
            other, most = CPU_BARS[name]
            ratio = median(one[name].cpu_us / one[other].cpu_us for one in rounds)
            by_clock = median(one[other].clock_us / one[name].clock_us for one in rounds)
            line += f"   CPU {ratio:4.2f} of {other}, at most {most}: {_verdict(ratio <= most)}; rate {by_clock:4.2f}"
        if name == "claim":
            spent_us = median(cost.broker_us for cost in costs)
            line += f"   broker at most {CLAIM_US_MAX} us: {_verdict(spent_us <= CLAIM_US_MAX)}"
        sys.stdout.write(f"{line}\n")


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency", action="store_true", help="micro-batches and an idle stream")
    given = parser.parse_args()
    with broker() as (address, pid), session_for("wakeq bench", master="local[2,4]") as spark:
        bench = Bench(spark, address, pid, given.messages, given.bytes)
        if given.latency:
            found, percent = bench.latencies(60, 0.3)
            p50 = median(found)
            sys.stdout.write(f"latency of a micro-batch: p50 {p50:.3f} s, worst {max(found):.3f} s, at most ")
            sys.stdout.write(f"{LATENCY_S_MAX}: {_verdict(p50 <= LATENCY_S_MAX)}\n")
            sys.stdout.write(f"idle stream: {percent:.2f} % of a core of the broker, at most {IDLE_PERCENT_MAX}: ")
            sys.stdout.write(f"{_verdict(percent <= IDLE_PERCENT_MAX)}\n")
            return
        bench.round(0)
        rounds = [bench.round(number) for number in range(1, given.rounds + 1)]
        ratio = median(bench.blocks_to_texts() for _ in range(given.rounds))
    sys.stdout.write(f"{given.messages:,} messages of {given.bytes} bytes, {os.cpu_count()} cores, medians\n")
    _print_costs(rounds)
    sys.stdout.write(f"publish_block: rate {ratio:4.2f} of publish_many, in turns, at least {BLOCKS_TO_TEXTS}: ")
    sys.stdout.write(f"{_verdict(ratio >= BLOCKS_TO_TEXTS)}\n")


if __name__ == "__main__":
    main()
