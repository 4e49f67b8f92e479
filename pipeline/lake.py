"""A lake: the history of brokers as Parquet files in a folder; written by `archive`, read by Spark and DuckDB.

    data directories --> LAKE/date=2026-01-31/<cluster>-<first>-<last>.parquet      LAKE/_wakeq/<cluster>.json: progress
    LAKE --> events that took effect, of all days and clusters; the SQL of published messages

Only entries whose outcome is known are archived, so nothing in the lake ever changes.  A step is a stretch of the log:
its files get their final names, then the note records the progress.  A run that was killed leaves at most files beyond
the note; the next run removes them and repeats that stretch.  One piece of the log at a time is in memory.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as parquet

from wakeq.pipeline.journal.numbers import Numbering
from wakeq.pipeline.journal.plan import History, Place
from wakeq.pipeline.journal.rows import KINDS, USUAL, Wanted
from wakeq.pipeline.journal.table import steps_of
from wakeq.protocol.errors import BadSettings, DamagedFile, StorageError, WrongVersion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# In one step; a step may exceed this by one piece of the log.
STEP_EVENTS = 2_000_000
# By whether the lake has bodies.
COLUMNS = {False: USUAL, True: (*USUAL, "body")}

# Readers of Parquet skip names that begin with _ or a dot.
NOTE_FOLDER = "_wakeq"
# In versions 1 and 2 stashed messages were recorded as published.
VERSION = 3
# The key of a message: clusters may share a lake, and their numbers repeat.
MESSAGE = ("cluster", "queue", "uid")
# These columns are known when a message is stashed, not when it is published.
OF_STASHED = ("priority", "size", "until", "body")


@dataclass(slots=True)
class Note:
    """The progress of one cluster: the next entry, and the counters of its queues before that."""

    next_index: int = 1
    # How far each queue has counted; None if that is not known for all of them.
    counters: dict[str, tuple[int, int]] | None = None
    events: int = 0
    has_bodies: bool = True


@dataclass(frozen=True, slots=True)
class Archived:
    """The result of a run.  `missing` is the number of entries that were gone before they were archived."""

    events: int
    files: int
    missing: int
    next_index: int


class Archive:
    """The part of a lake that belongs to one cluster."""

    def __init__(self, lake: Path, cluster: str, *, has_bodies: bool) -> None:
        self.columns = COLUMNS[has_bodies]
        self._lake = lake
        self._has_bodies = has_bodies
        self._cluster = cluster
        self._note_path = lake / NOTE_FOLDER / f"{cluster}.json"
        _check_bodies(lake, has_bodies=has_bodies)
        self.note = _read_note(self._note_path)
        self.files = 0
        self._writers: dict[str, parquet.ParquetWriter] = {}
        self._rows = 0
        self._remove_unfinished()

    def add(self, batch: pa.RecordBatch, index: int, numbering: Numbering) -> None:
        """Add the events up to an index; finish the step when there are enough of them."""
        for date, rows in _by_date(batch):
            if date not in self._writers:
                self._writers[date] = self._open(date)
            self._writers[date].write_batch(rows)
        self._rows += batch.num_rows
        if self._rows >= STEP_EVENTS:
            self.finish(index, numbering)

    def finish(self, index: int, numbering: Numbering) -> None:
        """Give the files of a step their final names, then record the progress."""
        if index < self.note.next_index:
            return
        for date, writer in self._writers.items():
            writer.close()
            name = f"{self._cluster}-{self.note.next_index:019d}-{index:019d}.parquet"
            unfinished = self._unfinished(date)
            _sync(unfinished)
            os.replace(unfinished, unfinished.with_name(name))
            _sync(unfinished.parent)
            self.files += 1
        # The folder of a day may be new.
        _sync(self._lake)
        counters = numbering.counters if numbering.complete else None
        self.note = Note(index + 1, counters, self.note.events + self._rows, self._has_bodies)
        self._writers, self._rows = {}, 0
        _write_note(self._note_path, self.note)

    def _open(self, date: str) -> parquet.ParquetWriter:
        path = self._unfinished(date)
        path.parent.mkdir(exist_ok=True)
        schema = pa.schema([(name, KINDS[name]) for name in self.columns])
        return parquet.ParquetWriter(path, schema, compression="zstd")

    def _unfinished(self, date: str) -> Path:
        return self._lake / f"date={date}" / f".{self._cluster}.unfinished"

    def _remove_unfinished(self) -> None:
        """Remove files of a step that was not recorded; it is repeated."""
        for path in self._lake.glob(f"date=*/.{self._cluster}.unfinished"):
            path.unlink()
        for path in self._lake.glob(f"date=*/{self._cluster}-*.parquet"):
            if int(path.stem.split("-")[1]) >= self.note.next_index:
                path.unlink()


def archive(
    directories: Sequence[Place],
    lake: Path,
    *,
    bodies: bool = False,
    skip_gaps: bool = False,
    tell: Callable[[int, int], None] = lambda done, through: None,
) -> Archived:
    """Bring a lake up to date; `tell` is called with the number of archived events and the last entry.

    Without `skip_gaps`, a lake that has begun ends before entries that none of the directories has.
    """
    history = History(directories)
    if not history.stretches:
        raise StorageError(f"{directories[0]}: nothing has happened yet; run the broker first")
    with _locked(lake):
        return _bring_up_to_date(history, Archive(lake, history.cluster, has_bodies=bodies), skip_gaps, tell)


def _bring_up_to_date(history: History, kept: Archive, skip_gaps: bool, tell: Callable[[int, int], None]) -> Archived:
    before = kept.note.events
    missing = 0
    wanted = Wanted(columns=kept.columns)
    for span in history.spans(cores=1, after=kept.note.next_index - 1, settled_only=True):
        first = span.stretches[0].first_index
        if kept.note.next_index < first:
            if kept.note.next_index > 1 and not skip_gaps:
                raise _gap(kept.note.next_index, first - 1)
            missing += first - kept.note.next_index
        if first == kept.note.next_index and kept.note.counters is not None:
            span = replace(span, counters=kept.note.counters, complete=True)
        numbering = Numbering(span.counters, complete=span.complete)
        reached = 0
        for reached, batch in steps_of(span, wanted, numbering):
            kept.add(batch, reached, numbering)
            tell(kept.note.events - before, reached)
        kept.finish(reached, numbering)
    return Archived(kept.note.events - before, kept.files, missing, kept.note.next_index)


def _gap(first_index: int, last_index: int) -> StorageError:
    return StorageError(
        f"entries {first_index} to {last_index} are in none of these directories, or nothing in them says what became "
        "of them; give those of the other nodes of the cluster too, or with --skip-gaps leave them out for ever"
    )


def _by_date(batch: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
    """Divide a batch by days; the moments of a log never decrease."""
    found = []
    days = compute.floor_temporal(batch.column("at"), unit="day").cast(pa.int64())
    start = 0
    for run in compute.run_end_encode(days).run_ends.to_pylist() if batch.num_rows else ():
        day = datetime.fromtimestamp(days[start].as_py() / 1_000_000, UTC)
        found.append((f"{day:%Y-%m-%d}", batch.slice(start, run - start)))
        start = run
    return found


@contextmanager
def _locked(lake: Path) -> Iterator[None]:
    """Lock the lake: two runs would take each other's unfinished files."""
    folder = lake / NOTE_FOLDER
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in new:
        _sync(path.parent)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(f"{lake}: another archive is writing to it; wait until it has ended") from None
        yield


# The note ---------------------------------------------------------------------------------------------------------


def _check_bodies(lake: Path, *, has_bodies: bool) -> None:
    """Refuse a run that differs in bodies from the first archive: all files of a lake have the same columns."""
    notes = (_read_note(path) for path in sorted((lake / NOTE_FOLDER).glob("*.json")))
    known = next(notes, None)
    if known is not None and known.has_bodies != has_bodies:
        has, what = ("has", "archive with --bodies") if known.has_bodies else ("has no", "archive without --bodies")
        raise BadSettings(f"{lake} {has} bodies; {what}, or into another folder")


def _read_note(path: Path) -> Note:
    try:
        facts = facts_in(path)
    except FileNotFoundError:
        return Note()
    try:
        counters = facts["counters"]
        known = (
            None if counters is None else {name: (queue_id, number) for name, (queue_id, number) in counters.items()}
        )
        return Note(facts["next_index"], known, facts["events"], facts["bodies"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise damaged_note(path, str(facts)) from None


def _write_note(path: Path, note: Note) -> None:
    unfinished = path.with_suffix(".unfinished")
    facts = {
        "version": VERSION, "bodies": note.has_bodies, "next_index": note.next_index, "events": note.events,
        "counters": note.counters,
    }  # fmt: skip
    unfinished.write_text(json.dumps(facts), encoding="utf-8")
    _sync(unfinished)
    os.replace(unfinished, path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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


class Lake:
    """A lake as its readers get it: checked, with its columns and the files that the notes record."""

    def __init__(self, address: str | Path) -> None:
        check_lake(Path(address))
        self.address = str(address)
        self._notes = {path.stem: facts_in(path) for path in (Path(address) / NOTE_FOLDER).glob("*.json")}
        self.has_bodies = all(bool(note["bodies"]) for note in self._notes.values())
        self.columns = COLUMNS[self.has_bodies]

    @property
    def clusters(self) -> list[str]:
        return sorted(self._notes)

    def dataset(self, cluster: str) -> Any:
        """Return the events of one cluster as a dataset of pyarrow; DuckDB reads it as a table."""
        import pyarrow.dataset as dataset

        schema = pa.schema([(name, KINDS[name]) for name in self.columns])
        paths = sorted(Path(self.address).glob(f"date=*/{cluster}-*.parquet"))
        recorded = [str(path) for path in paths if int(path.stem.split("-")[1]) < self._notes[cluster]["next_index"]]
        return dataset.dataset(recorded, schema=schema, format="parquet")


def arrivals_sql(events: str, columns: tuple[str, ...]) -> str:
    """Return a query of published messages, for DuckDB and Spark; `events` is a table of a lake or a subquery of it.

    Messages of a stash have priority, size, moment and body from the stashing; a stash that was never published is left
    out, and so is a publish that was refused.
    """
    later = [name for name in OF_STASHED if name in columns]
    chosen = ", ".join(f"coalesce(p.{name}, s.{name}) AS {name}" if name in later else f"p.{name}" for name in columns)
    told = ", ".join((*MESSAGE, *later))
    same = " AND ".join(f"p.{name} = s.{name}" for name in MESSAGE)
    return (
        f"SELECT {chosen} FROM {events} p "
        f"LEFT JOIN (SELECT {told} FROM {events} WHERE event = 'stashed' AND outcome = 'done') s ON {same} "
        "WHERE p.event = 'published' AND p.outcome = 'done' AND coalesce(p.size, s.size) IS NOT NULL"
    )
