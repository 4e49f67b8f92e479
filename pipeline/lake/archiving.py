"""The archive: the events since the last run become Parquet files of a lake.

    journals --> steps: Parquet in memory --> notes, and PLACE/date=2026-01-31/<cluster>-<first>-<last>.parquet

Only entries whose outcome is known are archived, so nothing in a lake ever changes.  A step is a stretch of the log
with a bounded number of events and bytes; notes.py records it.  In memory are one step and one piece of the log.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as parquet

from wakeq.pipeline.journal.directory import LOG_FOLDER
from wakeq.pipeline.journal.numbers import Numbering
from wakeq.pipeline.journal.plan import History
from wakeq.pipeline.journal.plan import Place as Source
from wakeq.pipeline.journal.rows import Wanted
from wakeq.pipeline.journal.table import steps_of
from wakeq.pipeline.lake.facts import FACTS_NAME, Facts, agree
from wakeq.pipeline.lake.notes import Notes
from wakeq.pipeline.lake.place import Place, place_at
from wakeq.protocol.errors import BadSettings, StorageError

# In one step; a step may exceed this by one piece of the log.
STEP_EVENTS = 2_000_000
STEP_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Archived:
    """The result of a run."""

    events: int
    files: int
    # Entries that were gone before they were archived.
    missing: int
    next_index: int
    # The place creates a name once.  If it does not, two archives at once may add the same events.
    is_exclusive: bool


class Archive:
    """The part of a lake that belongs to one cluster."""

    def __init__(self, place: Place, cluster: str, facts: Facts) -> None:
        self._place = place
        self._cluster = cluster
        self._schema = facts.schema
        self.notes = Notes(place, cluster)
        # Files with a final name, by this run.
        self.files = 0
        # The step: its events, and its files by date, in memory.
        self._rows = 0
        self._days: dict[str, tuple[parquet.ParquetWriter, pa.BufferOutputStream]] = {}

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the journal gives."""
        return tuple(name for name in self._schema.names if name != "cluster")

    def add(self, batch: pa.RecordBatch, index: int, numbering: Numbering) -> None:
        """Add the events up to an index; finish the step when there are enough of them."""
        for date, rows in _by_date(batch):
            if date not in self._days:
                sink = pa.BufferOutputStream()
                self._days[date] = parquet.ParquetWriter(sink, self._schema, compression="zstd"), sink
            cluster = pa.repeat(self._cluster, rows.num_rows)
            self._days[date][0].write_batch(pa.record_batch([cluster, *rows.columns], schema=self._schema))
        self._rows += batch.num_rows
        if self._rows >= STEP_EVENTS or sum(sink.tell() for _, sink in self._days.values()) >= STEP_BYTES:
            self.finish(index, numbering)

    def finish(self, index: int, numbering: Numbering) -> None:
        """End the step with this entry: write its files and record it."""
        first = self.notes.last.next_index
        if index < first:
            return
        files, contents = {}, {}
        for date, (writer, sink) in self._days.items():
            writer.close()
            name = self.notes.unfinished_name(date)
            files[name] = f"date={date}/{self._cluster}-{first:019d}-{index:019d}.parquet"
            contents[name] = sink.getvalue().to_pybytes()
            self._place.write(name, contents[name])
        counters = numbering.counters if numbering.complete else None
        self.notes.record(index + 1, counters, self._rows, files, contents)
        self.files += len(files)
        self._days, self._rows = {}, 0


def archive(
    sources: Sequence[Source],
    lake: str | Path,
    *,
    bodies: bool = False,
    skip_gaps: bool = False,
    tell: Callable[[int, int], None] = lambda done, through: None,
) -> Archived:
    """Bring a lake, at a path or an address, up to date.

    `tell` is called with the number of archived events and the last entry.  Without `skip_gaps`, a lake that has begun
    ends before entries that none of the sources has.
    """
    place = place_at(lake)
    # Afterwards its own name would mean the lake.
    if place.names(LOG_FOLDER):
        raise BadSettings(f"{place.address} is the data directory of a broker; name another folder for the lake")
    history = History(sources)
    if not history.stretches:
        raise StorageError(f"{sources[0]}: nothing has happened yet; run the broker first")
    kept = Archive(place, history.cluster, agree(place, bodies=bodies))
    is_exclusive = place.refuses_second(FACTS_NAME)
    before = kept.notes.last.events
    missing = 0
    wanted = Wanted(columns=kept.columns)
    for span in history.spans(cores=1, after=kept.notes.last.next_index - 1, settled_only=True):
        first, next_index = span.stretches[0].first_index, kept.notes.last.next_index
        if next_index < first:
            if next_index > 1 and not skip_gaps:
                raise _gap(next_index, first - 1)
            missing += first - next_index
        if first == next_index and kept.notes.last.counters is not None:
            span = replace(span, counters=kept.notes.last.counters, complete=True)
        numbering = Numbering(span.counters, complete=span.complete)
        reached = 0
        for reached, batch in steps_of(span, wanted, numbering):
            kept.add(batch, reached, numbering)
            tell(kept.notes.last.events - before, reached)
        kept.finish(reached, numbering)
    last = kept.notes.last
    return Archived(last.events - before, kept.files, missing, last.next_index, is_exclusive)


def _gap(first_index: int, last_index: int) -> StorageError:
    return StorageError(
        f"entries {first_index} to {last_index} are in none of these places, or nothing in them says what became "
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
