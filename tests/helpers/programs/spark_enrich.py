"""A Spark driver to be killed: a streaming query that reads one queue and writes the results to another.

    python tests/helpers/programs/spark_enrich.py BROKER FOLDER [TIMEOUT]

It ends when what was there at its start is done; its claims last for TIMEOUT seconds without it, or a day.  In FOLDER
lie the checkpoint, and a file by which one task of all runs kills its own worker.  Tasks are tried again.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

BATCH = 50


def main(broker: str, folder: Path, timeout: str = "86400") -> None:
    """Run the query to its end."""
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import udf

    # Spark finds the format with this Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
    spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.local.dir", str(folder)).getOrCreate()
    frame = spark.readStream.format("wakeq").option("broker", broker).option("queue", "in")
    frame = frame.option("maxOffsetsPerTrigger", str(BATCH)).option("minPartitions", "2")
    frame = frame.option("timeout", timeout).load()
    made_of_it = frame.select(udf(enrich(folder / "a-worker-died"), "binary")("body").alias("body"))
    writer = made_of_it.writeStream.format("wakeq").option("broker", broker).option("queue", "out")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


def enrich(marker: Path) -> Callable[[bytes], bytes]:
    """Add to a body; the first of all tasks dies in the middle of it."""

    def add(body: bytes) -> bytes:
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return bytes(body) + b"!"

    return add


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
