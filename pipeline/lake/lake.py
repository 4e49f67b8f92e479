"""A lake as its readers see it: what `wakeq pipeline archive` has put into a folder, as one data frame.

LAKE (Parquet) --> what really happened, of all days and clusters; what was published, whichever way
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wakeq.protocol.errors import DamagedFile, StorageError, WrongVersion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOTE_FOLDER = "_wakeq"  # a name that readers of Parquet pass over, as they do those with a dot
VERSION = 3  # in 1 and 2 what was put aside was told as published
MESSAGE = ("cluster", "queue", "uid")  # which names a message: clusters may share a lake, and count alike
OF_STASHED = ("priority", "size", "until", "body")  # what is told where a message was put aside


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
