"""A journal with a few lives of messages, and what a lake tells of them.

history(folder, batches) --> files of a journal      add(files, batch) --> one more batch
rows_in(address) --> the events that any reader of Parquet finds there
"""

from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

from tests.helpers.journal.files import EVERYTHING, JournalFiles, rows_of
from wakeq.pipeline.lake.place import place_at
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import Ack, CreateQueue, Draft, Publish

EVENTS_A_BATCH = 5


def history(folder: Path, batches: int = 4) -> JournalFiles:
    """Some batches of lives, each in a segment of its own; all but the last message of each are acknowledged."""
    files = JournalFiles(folder / "data")
    files.write(CreateQueue("jobs", Policies()))
    for batch in range(batches):
        add(files, batch)
    return files


def add(files: JournalFiles, batch: int) -> None:
    after, first = files.log.last_index, 3 * batch + 1
    files.write(
        Publish("jobs", [Draft(b"body %d" % place) for place in range(3)]),
        Ack("jobs", 1, [first, first + 1], [(1, 1), (1, 2)]),
    )
    files.outcomes(after if batch else 0, (files.log.last_index, 1, -1), queues=[(1, first + 3, "jobs")])
    files.seal()


def rows_in(address: str | Path) -> list[dict[str, Any]]:
    """Return the rows of all files in folders `date=...`, whatever the notes say, in the order of the log."""
    place = place_at(address)
    rows: list[dict[str, Any]] = []
    for name in place.data_files():
        rows += parquet.read_table(place.path_of(name), filesystem=place.filesystem, partitioning=None).to_pylist()
    return sorted(rows, key=lambda row: (row["cluster"], row["index"], row["place"]))


def without_cluster(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "cluster"} for row in rows]


def told_by(*journals: Path) -> list[dict[str, Any]]:
    """Return what a lake with bodies should have of these journals, apart from the cluster."""
    return rows_of(*journals, wanted=EVERYTHING)
