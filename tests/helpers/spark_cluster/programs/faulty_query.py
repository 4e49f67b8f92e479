"""A streaming query from queue `in` to queue `out`, in which something is killed; `spark-submit faulty_query.py JSON`.

    die     the point at which the driver kills itself, in a batch with messages: staged, planned, stashed, published,
            logged; empty for none
    work    kills: a Python worker, an executor and the broker are killed in the middle of a task, each once;
            leads: the leader of a cluster of brokers is killed in each batch; holds: all tasks wait for the file `go`

It ends when what was there at its start is done.  What happened is told by files in the folder.  Spark sends classes
and functions of a program by value, so executors need nothing of it.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from wakeq.pipeline import register
from wakeq.pipeline.stream.reader import QueueStreamReader
from wakeq.pipeline.stream.sink import QueueStreamWriter
from wakeq.pipeline.stream.source import QueueSource

ROWS = 500


def die(group: int) -> None:
    """Kill the driver with everything that it started."""
    os.killpg(group, signal.SIGKILL)
    # Some Pythons of Spark have a group of their own.
    os.kill(os.getpid(), signal.SIGKILL)


class DyingReader(QueueStreamReader):
    """A source that ends its driver; `group` and `point` are of the class."""

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        if start["epoch"] and self.point == "logged":
            die(self.group)
        found = super().latestOffset(start, limit)
        # The source of the first batch is in the checkpoint: otherwise the claim would have to time out.
        if start["epoch"] and found["epoch"] > start["epoch"] and self.point == "staged":
            die(self.group)
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        if self.point == "planned":
            die(self.group)
        return super().partitions(start, end)


class DyingWriter(QueueStreamWriter):
    """A sink that ends its driver."""

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        if self.point == "stashed":
            die(self.group)
        super().commit(messages, batchId)
        if self.point == "published":
            die(self.group)


def dying_source(group: int, point: str) -> type[QueueSource]:
    """Return the data source `wakeq`, whose driver ends at one point."""

    class Dying(QueueSource):
        def streamReader(self, schema: Any) -> Any:  # noqa: N802
            return changed(super().streamReader(schema), DyingReader)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
            return changed(super().streamWriter(schema, overwrite), DyingWriter)

    def changed(made: Any, kind: type) -> Any:
        made.__class__ = type(kind.__name__, (kind,), {"group": group, "point": point})
        return made

    return Dying


def killing(folder: Path) -> Callable[[bytes], bytes]:
    """Return bodies as they are; some of them kill."""

    def is_first(name: str) -> bool:
        try:
            (folder / name).open("x").close()
        except FileExistsError:
            return False
        return True

    def executor() -> int:
        pid = os.getpid()
        while b"ExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return pid

    def work(body: bytes) -> bytes:
        if body == b"m400" and is_first("python-is-killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        if body == b"m800" and is_first("executor-is-killed"):
            os.kill(executor(), signal.SIGKILL)
        if body == b"m1300":
            have_killed("broker", folder)
        return body

    return work


def have_killed(name: str, folder: Path) -> None:
    """Ask the test to kill something, and wait until it has."""
    (folder / f"kill-{name}").touch()
    while not (folder / f"killed-{name}").exists():
        time.sleep(0.02)


def leading(folder: Path) -> Callable[[bytes], bytes]:
    """Return bodies as they are; the leader of the brokers is killed in the middle of each batch but the last."""

    def work(body: bytes) -> bytes:
        if body in (b"m300", b"m800", b"m1300"):
            have_killed(body.decode(), folder)
        return body

    return work


def holding(folder: Path) -> Callable[[bytes], bytes]:
    """Return bodies as they are, when the file `go` is there."""

    def work(body: bytes) -> bytes:
        (folder / f"working-{os.getppid()}").touch()
        while not (folder / "go").exists():
            time.sleep(0.02)
        return body

    return work


def main(broker: str, folder: Path, checkpoint: str, point: str, work: str) -> None:
    spark = SparkSession.builder.appName(f"faulty-{point or work}").getOrCreate()
    register(spark)
    if point:
        spark.dataSource.register(dying_source(os.getpgrp(), point))
    reader = spark.readStream.format("wakeq").option("broker", broker).option("queue", "in")
    frame = reader.option("maxOffsetsPerTrigger", str(ROWS)).option("minPartitions", "2").load()
    works = {"kills": killing, "leads": leading, "holds": holding}
    body = udf(works[work](folder), "binary", useArrow=False)("body").alias("body") if work else "body"
    writer = frame.select(body).writeStream.format("wakeq").option("broker", broker).option("queue", "out")
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    main(given["broker"], Path(given["folder"]), given["checkpoint"], given["point"], given["work"])
