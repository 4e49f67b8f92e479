"""A lake as its readers see it: what `wakeq pipeline archive` has put into a folder, as one data frame.

LAKE (Parquet) --> what really happened, of all days and clusters; what was published, whichever way
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wakeq.protocol.errors import BadSettings, DamagedFile, StorageError, WrongVersion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOTE_FOLDER = "_wakeq"  # a name that readers of Parquet pass over, as they do those with a dot
VERSION = 3  # in 1 and 2 what was put aside was told as published
MESSAGE = ("cluster", "queue", "uid")  # which names a message: clusters may share a lake, and count alike
OF_STASHED = ("priority", "size", "until", "body")  # what is told where a message was put aside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def check_lake(lake: Path) -> None:
    """Refuse what is no lake before Spark is started for it."""
    if not any(lake.glob("date=*")):
        raise StorageError(f"{lake}: is not a lake; create one with wakeq pipeline archive DATA_DIR --to {lake}")
    for path in (lake / NOTE_FOLDER).glob("*.json"):
        facts_in(path)


def facts_in(path: Path) -> dict[str, Any]:
    """Return what the note of one cluster says of how far the lake has come."""
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
