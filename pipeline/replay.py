"""Replaying: what an archive says was published becomes messages again.

    LAKE (Parquet), queue, a condition of Spark's SQL --> rows with a body --> the sink of `wakeq`, all or nothing

The archive must have been made with bodies.  Nothing in it is changed.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from wakeq.protocol.errors import BadSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def published(spark: "SparkSession", lake: Path, queue: str, where: str) -> "DataFrame":
    """Return what was published to a queue and fits the condition."""
    from pyspark.errors import AnalysisException, ParseException

    if not lake.is_dir():
        raise BadSettings(f"{lake} is no archive; make one with `wakeq pipeline archive DATA_DIR --to {lake}`")
    try:
        frame = spark.read.parquet(str(lake))
        if "body" not in frame.columns:
            raise BadSettings(f"{lake} has no bodies; archive with them to replay")
        events: Any = frame.where((frame.queue == queue) & (frame.event == "published") & (frame.outcome == "done"))
        return events.where(where)
    except (AnalysisException, ParseException) as error:
        raise BadSettings(f"--where {where!r}: {str(error).splitlines()[0]}") from None


def replay(frame: "DataFrame", broker: str, queue: str) -> int:
    """Publish these events again, all in one step; return how many."""
    messages = frame.where("body is not null").select("body", "priority").persist()
    try:
        count = int(messages.count())
        messages.write.format("wakeq").option("broker", broker).option("queue", queue).mode("append").save()
        return count
    finally:
        messages.unpersist()
