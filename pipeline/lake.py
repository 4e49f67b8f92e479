"""A lake as its readers see it: what `wakeq pipeline archive` has put into a folder, as one data frame.

LAKE (Parquet) --> what really happened, of all days and clusters; what was published, whichever way
"""

from pathlib import Path
from typing import TYPE_CHECKING

from wakeq.protocol.errors import StorageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGE = ("cluster", "queue", "uid")  # which names a message: clusters may share a lake, and count alike
OF_STASHED = ("priority", "size", "until", "body")  # what is told where a message was put aside


def check_lake(lake: Path) -> None:
    """Refuse what is no lake before Spark is started for it."""
    if not any(lake.glob("date=*")):
        raise StorageError(f"{lake}: is no lake; fill one with wakeq pipeline archive DATA_DIR --to {lake}")


def happened(spark: "SparkSession", lake: Path) -> "DataFrame":
    """Return what was done and not refused, and in which cluster."""
    from pyspark.sql import functions as f

    cluster = f.regexp_extract("_metadata.file_name", "^[0-9a-f]+", 0)
    return spark.read.parquet(str(lake)).withColumn("cluster", cluster).where("outcome = 'done'")


def arrivals(events: "DataFrame") -> "DataFrame":
    """Return what was published, each with its priority, size and body.

    What was put aside first and published later has these from where it was put aside; what never was is left out.
    """
    published = events.where("event = 'published'")
    told_there = [name for name in OF_STASHED if name in events.columns]
    stashed = events.where("event = 'stashed'").select(*MESSAGE, *told_there)
    later = published.where("size is null").drop(*told_there).join(stashed, list(MESSAGE))
    return published.where("size is not null").unionByName(later)
