"""Replaying: what an archive says was published becomes messages again.

    LAKE (Parquet), queue, a condition of Spark's SQL --> rows with a body --> the sink of `wakeq`, all or nothing

The archive must have been made with bodies.  Nothing in it is changed.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from wakeq.pipeline.lake.lake import arrivals, happened
from wakeq.protocol.errors import BadSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def published(spark: "SparkSession", lake: Path, queue: str, where: str) -> "DataFrame":
    """Return what was published to a queue and fits the condition."""
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
    """Publish these events again, all in one step; return how many."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    messages = frame.select("body", "priority").observe(seen, f.count(f.lit(1)).alias("messages"))
    messages.write.format("wakeq").option("broker", broker).option("queue", queue).mode("append").save()
    return int(seen.get["messages"])
