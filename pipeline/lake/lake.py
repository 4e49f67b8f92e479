"""A lake as its readers see it: the files that `wakeq pipeline archive` wrote, as one data frame.

LAKE (Parquet) --> events that took effect, of all days and clusters; all published messages; publishes to a queue
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wakeq.protocol.errors import BadSettings, DamagedFile, StorageError, WrongVersion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Readers of Parquet skip names that begin with _ or a dot.
NOTE_FOLDER = "_wakeq"
# In versions 1 and 2 stashed messages were recorded as published.
VERSION = 3
# The key of a message: clusters may share a lake, and their numbers repeat.
MESSAGE = ("cluster", "queue", "uid")
# These columns are known when a message is stashed, not when it is published.
OF_STASHED = ("priority", "size", "until", "body")

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def check_lake(lake: Path) -> None:
    """Refuse a folder that is not a lake, before Spark is started for it."""
    if not any(lake.glob("date=*")):
        raise StorageError(f"{lake}: is not a lake; create one with wakeq pipeline archive DATA_DIR --to {lake}")
    for path in (lake / NOTE_FOLDER).glob("*.json"):
        facts_in(path)


def facts_in(path: Path) -> dict[str, Any]:
    """Return the recorded progress of one cluster."""
    text = path.read_text(encoding="utf-8")
    try:
        facts: dict[str, Any] = json.loads(text)
        version = int(facts["version"])
    except (ValueError, KeyError, TypeError):
        raise damaged_note(path, text) from None
    if version != VERSION:
        raise WrongVersion(
            f"{path}: holds version {version}, this release reads {VERSION}; use the release that wrote it, or archive "
            "into an empty folder"
        )
    return facts


def damaged_note(path: Path, found: str) -> DamagedFile:
    hint = "restore the lake from a copy, or archive into an empty folder"
    return DamagedFile(path, 0, found=found[:60], expected="how far this lake has come", hint=hint)


def happened(spark: "SparkSession", lake: Path) -> "DataFrame":
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


def published(spark: "SparkSession", lake: Path, queue: str, where: str) -> "DataFrame":
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
