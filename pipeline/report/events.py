"""The events that a report or a forecast is about: those of a journal, or those of a lake.

    the places that the user named --> JournalEvents | LakeEvents --> columns that a query relies on, for either engine

| Column | |
|---|---|
| `cluster` | keeps brokers apart that share a lake |
| `queue`, `event`, `outcome`, `reason`, `size`, `worker` | as in the journal |
| `at_ms`, `until_ms` | the moments in ms |
| `entry` | the index in the log |
| `incarnation`, `number` | the two parts of a uid |

An engine gives the columns of the source the name `e`; DuckDB would take a bare `at` for a word of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from wakeq.pipeline.journal.plan import History, Place, is_url
from wakeq.pipeline.journal.rows import Wanted
from wakeq.pipeline.journal.table import events_of, period_of
from wakeq.pipeline.lake import NOTE_FOLDER, Lake
from wakeq.pipeline.report.queries import Query
from wakeq.protocol.errors import BadSettings

# For each column of a query: the column of the source that it comes from, and its value in SQL.
USUAL = {
    "queue": ("queue", "e.queue"), "event": ("event", "e.event"), "outcome": ("outcome", "e.outcome"),
    "reason": ("reason", "e.reason"), "size": ("size", "e.size"), "worker": ("worker", "e.worker"),
    "at_ms": ("at", "unix_millis(e.at)"), "until_ms": ("until", "unix_millis(e.until)"), "entry": ("index", "e.index"),
}  # fmt: skip
OF_JOURNAL = USUAL | {
    # It has one cluster; a value has to come from somewhere.
    "cluster": ("event", "''"),
    "incarnation": ("incarnation", "e.incarnation"),
    "number": ("number", "e.number"),
}
OF_LAKE = OF_JOURNAL | {
    # So many digits of a random number tell clusters apart, and DuckDB stores a text of at most 12 in place.
    "cluster": ("cluster", "substr(e.cluster, 1, 12)")
}
# Batches and files of a lake: pyarrow's own numbers take more than a gigabyte.
READ_AHEAD = 1
DONE = "e.outcome = 'done'"


@dataclass(frozen=True, slots=True)
class Limits:
    """Which events count; moments in ms, `until_ms` is not included."""

    since_ms: int | None = None
    until_ms: int | None = None
    queue: str | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """Events that can be read once, with the columns of their source.

    If all queries are about events that took effect, there are no others.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class JournalEvents:
    """The events in the journal of one cluster."""

    # What the user named.
    sources: tuple[Place, ...]
    history: History
    limits: Limits = Limits()

    def period_ms(self) -> tuple[int, int] | None:
        """Return the moments of the first event and of the last one; None if nothing has happened."""
        return period_of(self.history)

    def wanted_by(self, *queries: Query) -> Wanted:
        """Return what has to be read for these queries; `outcome` too, for the engine to choose by it."""
        names = {OF_JOURNAL[name][0]: None for query in queries for name in query.columns}
        done_only = all(query.done_only for query in queries)
        limits = self.limits
        return Wanted(
            columns=tuple(names if done_only else names | {"outcome": None}), done_only=done_only,
            since_ms=limits.since_ms, until_ms=limits.until_ms, queue=limits.queue,
        )  # fmt: skip

    def stream(self, *queries: Query) -> Stream:
        """Return what has to be read for these queries, in log order."""
        wanted = self.wanted_by(*queries)
        spans = self.history.spans(cores=1, since_ms=wanted.since_ms, until_ms=wanted.until_ms)
        return Stream(wanted.schema, (batch for span in spans for batch in events_of(span, wanted)))


@dataclass(frozen=True, slots=True)
class LakeEvents:
    """The events in a lake, perhaps of several clusters."""

    lake: Lake
    limits: Limits = Limits()

    def stream(self, *queries: Query) -> Stream:
        """Return what has to be read for these queries."""
        import pyarrow.compute as compute

        limits, field, moment = self.limits, compute.field, self.lake.schema.field("at").type
        chosen = compute.scalar(True)
        if all(query.done_only for query in queries):
            chosen &= field("outcome") == "done"
        if limits.since_ms is not None:
            chosen &= field("at") >= pa.scalar(1000 * limits.since_ms, moment)
        if limits.until_ms is not None:
            chosen &= field("at") < pa.scalar(1000 * limits.until_ms, moment)
        if limits.queue is not None:
            chosen &= field("queue") == limits.queue
        names = {OF_LAKE[name][0]: None for query in queries for name in query.columns} | {"outcome": None}
        scanner = self.lake.dataset().scanner(
            columns=list(names), filter=chosen, batch_readahead=READ_AHEAD, fragment_readahead=READ_AHEAD
        )
        return Stream(scanner.projected_schema, iter(scanner.to_batches()))


Events = JournalEvents | LakeEvents


def events_in(sources: Sequence[Place], limits: Limits = Limits()) -> Events:
    """Return the events in the data directories of a cluster, or in a lake."""
    lakes = [source for source in sources if is_lake(source)]
    if not lakes:
        return JournalEvents(tuple(sources), History(sources), limits)
    if len(sources) > 1:
        raise BadSettings(f"{lakes[0]} is a lake; name it alone, or only data directories")
    return lake_events(str(lakes[0]), limits)


def lake_events(lake: str | Path, limits: Limits = Limits()) -> LakeEvents:
    """Return the events in a lake, or refuse what is none."""
    return LakeEvents(Lake(lake), limits)


def is_lake(source: Place) -> bool:
    """Whether this is a folder that `archive` has made, or an address that is not the one of a broker."""
    if "://" in str(source):
        return not is_url(source)
    return (Path(source) / NOTE_FOLDER).is_dir()


def limited(events: Events, limits: Limits) -> Events:
    """Return the same events with other limits."""
    return replace(events, limits=limits)


def projection(events: Events, query: Query) -> list[str]:
    """Return the columns of a query, each as an expression of SQL with its name."""
    known = OF_JOURNAL if isinstance(events, JournalEvents) else OF_LAKE
    return [f"{known[name][1]} as {name}" for name in query.columns]
