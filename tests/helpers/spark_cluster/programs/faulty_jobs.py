"""Jobs and a query whose tasks fail or straggle, under speculation; `spark-submit faulty_jobs.py BROKER FOLDER`.

    good      a job: one task fails in the middle, another one waits until a copy of it runs on the other host
    bad       a job: one task fails each time
    stream    a query: a task of its first batch waits until a copy of it runs

Each writes to the queue of its name; the query reads queue `in`.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from wakeq.pipeline import register

ROWS = 1000
SLICES = 2
# Rows are stashed in blocks of so many, so that a task has stashed some when it fails.
BLOCK = 100
FAILING, STRAGGLING = 0, 1


def failing(times: int) -> Callable[[int], str]:
    """Fail in the middle of a task, in its first attempts."""

    def work(row: int) -> str:
        context = TaskContext.get()
        if context.partitionId() == FAILING and context.attemptNumber() < times and row % ROWS == 2 * BLOCK:
            raise ValueError("this attempt fails on purpose")
        return f"r{row}"

    return work


def straggling(folder: Path, name: str) -> Callable[[bytes], bytes]:
    """Wait in the middle of the first attempt of a task until another attempt runs."""
    count = [0]

    def work(body: bytes) -> bytes:
        context = TaskContext.get()
        if context.partitionId() == STRAGGLING and not (folder / f"{name}-done").exists():
            count[0] += 1
            if context.attemptNumber():
                (folder / f"{name}-copy").touch()
            while count[0] == 2 * BLOCK and not context.attemptNumber() and not (folder / f"{name}-copy").exists():
                time.sleep(0.02)
        return body

    return work


def job(spark: SparkSession, broker: str, queue: str, frame: DataFrame) -> None:
    frame.select("body").write.format("wakeq").option("broker", broker).option("queue", queue).mode("append").save()


def main(broker: str, folder: Path) -> None:
    spark = SparkSession.builder.appName("faulty-jobs").getOrCreate()
    register(spark)
    rows = spark.range(0, SLICES * ROWS, 1, SLICES)

    good = rows.select(udf(failing(1), "string", useArrow=False)("id").alias("body"))
    job(
        spark,
        broker,
        "good",
        good.select(udf(straggling(folder, "good"), "string", useArrow=False)("body").alias("body")),
    )

    try:
        job(spark, broker, "bad", rows.select(udf(failing(99), "string", useArrow=False)("id").alias("body")))
    except Exception as error:
        (folder / "bad-error").write_text(str(error))

    reader = spark.readStream.format("wakeq").option("broker", broker).option("queue", "in")
    frame = reader.option("maxOffsetsPerTrigger", str(2 * ROWS)).option("minPartitions", str(SLICES)).load()
    worked = frame.select(udf(straggling(folder, "stream"), "binary", useArrow=False)("body").alias("body"))
    writer = worked.writeStream.format("wakeq").option("broker", broker).option("queue", "stream")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    query.start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
