"""Replaying: what an archive says was published becomes messages again.

    LAKE (Parquet), queue, a condition of Spark's SQL --> rows with a body --> the sink of `wakeq`, all or nothing

The archive must have been made with bodies.  Nothing in it is changed.
"""

from pathlib import Path
from typing import TYPE_CHECKING

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
        is_published = (frame.queue == queue) & (frame.event == "published") & (frame.outcome == "done")
        events: DataFrame = frame.where(is_published).where(where)
        missing = events.where("body is null").count()
    except (AnalysisException, ParseException) as error:
        raise BadSettings(f"--where {where!r}: {str(error).splitlines()[0]}") from None
    if missing:
        raise BadSettings(f"{missing:,} of these messages were archived without their bodies; archive with --bodies")
    return events


def replay(frame: "DataFrame", broker: str, queue: str) -> int:
    """Publish these events again, all in one step; return how many."""
    messages = frame.select("body", "priority").persist()
    try:
        count = int(messages.count())
        messages.write.format("wakeq").option("broker", broker).option("queue", queue).mode("append").save()
        return count
    finally:
        messages.unpersist()
