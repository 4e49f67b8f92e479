"""A lake as data frames of Spark.

    PLACE --> events that took effect, and published messages
    messages --> publishes to a queue

Spark is imported when a function is called.
"""

from typing import TYPE_CHECKING

from wakeq.pipeline.lake.reading import MESSAGE, OF_STASHED
from wakeq.protocol.errors import BadSettings

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def happened(spark: "SparkSession", lake: "Path") -> "DataFrame":
    """Return the events that took effect, with their clusters."""
    from pyspark.sql import functions as f

    cluster = f.regexp_extract("_metadata.file_name", "^[0-9a-f]+", 0)
    return spark.read.parquet(str(lake)).withColumn("cluster", cluster).where("outcome = 'done'")


def arrivals(events: "DataFrame") -> "DataFrame":
    """Return published messages with priority, size and body.

    Messages of a stash have these from the stashing; a stash that was never published is left out.
    """
    published = events.where("event = 'published'")
    told_there = [name for name in OF_STASHED if name in events.columns]
    stashed = events.where("event = 'stashed'").select(*MESSAGE, *told_there)
    later = published.where("size is null").drop(*told_there).join(stashed, list(MESSAGE))
    return published.where("size is not null").unionByName(later)


def published(spark: "SparkSession", lake: "Path", queue: str, where: str) -> "DataFrame":
    """Return the messages that were published to a queue and match the condition."""
    from pyspark.errors import AnalysisException, ParseException

    events = happened(spark, lake)
    if "body" not in events.columns:
        raise BadSettings(f"{lake} has no bodies; archive with --bodies, into another folder")
    try:
        chosen: DataFrame = arrivals(events.where(events.queue == queue)).where(where)
    except (AnalysisException, ParseException) as error:
        raise BadSettings(f"--where {where!r}: {str(error).strip().splitlines()[0]}") from None
    return chosen


def replay(frame: "DataFrame", broker: str, queue: str) -> int:
    """Publish these messages again, all in one step; return their number."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    messages = frame.select("body", "priority").observe(seen, f.count(f.lit(1)).alias("messages"))
    messages.write.format("wakeq").option("broker", broker).option("queue", queue).mode("append").save()
    return int(seen.get["messages"])
