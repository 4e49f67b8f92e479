"""A lake as its readers see it: what `wakeq pipeline archive` has put into a folder, as one data frame.

LAKE (Parquet) --> what really happened, of all days and clusters
"""

from pathlib import Path
from typing import TYPE_CHECKING

from wakeq.protocol.errors import StorageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def check_lake(lake: Path) -> None:
    """Refuse what is no lake before Spark is started for it."""
    if not any(lake.glob("date=*")):
        raise StorageError(f"{lake}: is no lake; fill one with wakeq pipeline archive DATA_DIR --to {lake}")


def happened(spark: "SparkSession", lake: Path) -> "DataFrame":
    """Return what was done and not refused."""
    return spark.read.parquet(str(lake)).where("outcome = 'done'")


def arrived(events: "DataFrame") -> "DataFrame":
    """Return what was published, without what was put aside and dropped: nobody ever could have that."""
    dropped = events.where("event = 'dropped'").select("queue", "uid")
    return events.where("event = 'published'").join(dropped, ["queue", "uid"], "left_anti")
