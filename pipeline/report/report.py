"""The report: what a broker did in a stretch of time, as plain values for a page or a program.

    rows of counts, spans and workers --> Report

Pure: no engine, no file, no clock. Everything is on a complete grid of time; unknown values are left out, not guessed.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

# After one of these events a message is not in its queue any more.
LEAVING = (
    "acked",
    "cancelled",
    "expired",
    "dead",
    "moved",
)
# The bins of spans grow by this factor.
BIN_GROWTH = 1.01
BUCKETS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)
POINTS_MAX = 240
PERCENTILES = (50, 90, 99)
EVENTS = ("published", "delivered", "acked", "released", "expired", "dead")
WORKERS_MAX = 20
# With fewer messages a percentile of one worker means nothing.
WORKER_MESSAGES_MIN = 5
HOUR_S = 3600
HOURS = 24
Row = dict[str, Any]
Numbers = npt.NDArray[np.int64]


@dataclass(slots=True)
class Spans:
    """Durations of one kind: their number, and percentiles in seconds; None if there are none."""

    messages: int = 0
    p50_s: float | None = None
    p90_s: float | None = None
    p99_s: float | None = None


@dataclass(slots=True)
class QueueReport:
    """One queue, all its incarnations together."""

    name: str
    events: dict[str, int]
    bytes_published: int
    refused: dict[str, int]
    # By reason.
    releases: dict[str, int]
    # By reason.
    dead_letters: dict[str, int]
    # Messages that were delivered more than once.
    redelivered: int
    redeliveries: int
    # Messages that were acknowledged without a delivery.
    cancelled: int
    backlog_first: int
    backlog_last: int
    backlog_max: int
    waiting: Spans
    working: Spans
    # These three are on the grid of the report.
    published: list[int]
    done: list[int]
    backlog: list[int]
    # Published messages by the hour of the day (UTC).
    hours: list[int]


@dataclass(slots=True)
class WorkerReport:
    """One connection of a worker."""

    worker: int
    messages: int
    working: Spans


@dataclass(slots=True)
class Report:
    """The whole report; moments are whole seconds since 1970."""

    since_s: int
    until_s: int
    bucket_s: int
    grid_s: list[int]
    events: dict[str, int]
    # The queue with most events comes first.
    queues: list[QueueReport]
    # The slowest comes first.
    workers: list[WorkerReport]
    version: int = 1


@dataclass(frozen=True, slots=True)
class Tables:
    """What an engine counted (queries.py), and of spans the name of the queue."""

    counts: list[Row] = field(default_factory=list)
    spans: list[Row] = field(default_factory=list)
    workers: list[Row] = field(default_factory=list)


@dataclass(slots=True)
class _Queue:
    """The rows of one queue."""

    counts: list[Row] = field(default_factory=list)
    spans: list[Row] = field(default_factory=list)

    @property
    def lives(self) -> list[Row]:
        return [row for row in self.spans if row["kind"] == "life"]


def bucket_for(since_s: int, until_s: int) -> int:
    """Return the width of a column of the grid, so that there are not too many columns."""
    length_s = until_s - since_s
    return next((bucket for bucket in BUCKETS_S if length_s / bucket <= POINTS_MAX), BUCKETS_S[-1])


def report_of(tables: Tables, since_s: int, until_s: int, bucket_s: int) -> Report:
    """Make the report from the tables."""
    first_s = since_s // bucket_s * bucket_s
    grid = np.arange(first_s, max(until_s, first_s + 1), bucket_s, dtype=np.int64)
    rows: defaultdict[str, _Queue] = defaultdict(_Queue)
    for row in tables.counts:
        rows[row["queue"]].counts.append(row)
    for row in tables.spans:
        rows[row["queue"]].spans.append(row)
    queues = [_queue_report(name, queue, grid, bucket_s) for name, queue in rows.items() if queue.counts]
    queues.sort(key=lambda queue: (-sum(queue.events.values()), queue.name))
    totals = {event: sum(queue.events[event] for queue in queues) for event in EVENTS}
    return Report(since_s, until_s, bucket_s, grid.tolist(), totals, queues, _workers(tables.workers))


def _queue_report(name: str, queue: _Queue, grid: Numbers, bucket_s: int) -> QueueReport:
    done = [row for row in queue.counts if row["outcome"] == "done"]
    backlog = _backlog(queue, done, grid, bucket_s)
    return QueueReport(
        name=name,
        events=_sums(done, "event") | {event: _sum(done, event) for event in EVENTS},
        bytes_published=sum(row["bytes"] or 0 for row in done if row["event"] == "published")
        + sum(row["stashed_bytes"] for row in queue.lives),
        refused=_sums((row for row in queue.counts if row["outcome"] not in ("done", "open")), "outcome"),
        releases=_sums((row for row in done if row["event"] == "released"), "reason"),
        dead_letters=_sums((row for row in done if row["event"] == "dead"), "reason"),
        redelivered=sum(row["redelivered"] for row in queue.lives),
        redeliveries=sum(row["redeliveries"] for row in queue.lives),
        cancelled=_sum(done, "cancelled"),
        backlog_first=sum(row["from_before"] for row in queue.lives),
        backlog_last=int(backlog[-1]),
        backlog_max=int(backlog.max()),
        waiting=_spans(row for row in queue.spans if row["kind"] == "waiting"),
        working=_spans(row for row in queue.spans if row["kind"] == "working"),
        published=_on_grid(done, ("published",), grid, bucket_s).tolist(),
        done=_on_grid(done, LEAVING, grid, bucket_s).tolist(),
        backlog=backlog.tolist(),
        hours=_hours(done),
    )


def _sum(rows: Iterable[Row], event: str) -> int:
    return sum(row["events"] for row in rows if row["event"] == event)


def _sums(rows: Iterable[Row], key: str) -> dict[str, int]:
    """Return the number of events by a key, the largest first."""
    sums: defaultdict[str, int] = defaultdict(int)
    for row in rows:
        sums[row[key] or "unknown"] += row["events"]
    return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))


def _on_grid(rows: Iterable[Row], events: tuple[str, ...], grid: Numbers, bucket_s: int) -> Numbers:
    counts = np.zeros(len(grid), dtype=np.int64)
    for row in rows:
        if row["event"] in events:
            counts[(row["at_s"] - grid[0]) // bucket_s] += row["events"]
    return counts


def _hours(done: Iterable[Row]) -> list[int]:
    hours = [0] * HOURS
    for row in done:
        if row["event"] == "published":
            hours[row["at_s"] // HOUR_S % HOURS] += row["events"]
    return hours


# Backlog ----------------------------------------------------------------------------------------------------------


def _backlog(queue: _Queue, done: list[Row], grid: Numbers, bucket_s: int) -> Numbers:
    """Return the number of messages at the end of each column of the grid.

    Each incarnation is counted separately, because its messages are gone when the queue is emptied. An incarnation
    begins with the messages that were published before and ended in this time; other earlier messages are not known.
    """
    total = np.zeros(len(grid), dtype=np.int64)
    before = {(row["cluster"], row["incarnation"]): row["from_before"] for row in queue.lives}
    by_incarnation: defaultdict[tuple[str, int | None], list[Row]] = defaultdict(list)
    for row in done:
        if row["event"] == "published" or row["event"] in LEAVING:
            by_incarnation[row["cluster"], row["incarnation"]].append(row)
    ends = sorted((row["emptied"], row["at_s"], row["cluster"]) for row in done if row["emptied"] is not None)
    for (cluster, incarnation), rows in by_incarnation.items():
        change = _on_grid(rows, ("published",), grid, bucket_s) - _on_grid(rows, LEAVING, grid, bucket_s)
        held = before.get((cluster, incarnation), 0) + np.cumsum(change)
        later = (at_s for index, at_s, of in ends if of == cluster and incarnation is not None and index > incarnation)
        end_s = next(later, None)
        if end_s is not None:
            held[(end_s - grid[0]) // bucket_s :] = 0
        total += np.maximum(held, 0)
    return total


# Percentiles ------------------------------------------------------------------------------------------------------


def _spans(rows: Iterable[Row]) -> Spans:
    """Return the percentiles of spans that were counted in bins."""
    by_bin: defaultdict[int, int] = defaultdict(int)
    for row in rows:
        by_bin[row["bin"]] += row["messages"]
    if not by_bin:
        return Spans()
    bins = np.array(sorted(by_bin), dtype=np.int64)
    ends = np.cumsum([by_bin[bin_] for bin_ in bins.tolist()])
    count = int(ends[-1])
    ranks = [max(1, int(np.ceil(count * percent / 100))) for percent in PERCENTILES]
    return Spans(count, *_seconds(middle_ms(bins[np.searchsorted(ends, ranks)])))


def _seconds(ms: npt.NDArray[np.float64]) -> list[float]:
    return [float(value) for value in (ms / 1000).round(4)]


def middle_ms(bins: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the span for each bin."""
    return np.where(bins == 0, 0.0, BIN_GROWTH ** (bins - 0.5))


def _workers(rows: Iterable[Row]) -> list[WorkerReport]:
    """Return the slowest workers; there is a row for each, with its percentiles as bins."""
    found = []
    for row in rows:
        spans_ms = middle_ms(np.array([row[f"p{percent}"] for percent in PERCENTILES], dtype=np.int64))
        spans = Spans(row["messages"], *_seconds(spans_ms))
        found.append(WorkerReport(row["worker"], row["messages"], spans))
    return sorted(found, key=lambda one: (-(one.working.p90_s or 0.0), one.worker))


def worst_of(queues: Iterable[QueueReport]) -> list[tuple[QueueReport, str]]:
    """Return the queues with problems, and the problems in words; the worst queue first."""
    found = []
    for queue in queues:
        failures = sum(queue.dead_letters.values()) + queue.events["expired"]
        faults: Mapping[str, float] = {
            f"{failures:,} dead or expired": 3.0 * failures / max(1, queue.events["published"]),
            f"{queue.backlog_last:,} left at the end": queue.backlog_last / max(1, queue.events["published"]),
            f"{queue.redeliveries:,} redeliveries": queue.redeliveries / max(1, queue.events["delivered"]),
        }
        reasons = [text for text, weight in faults.items() if weight >= 0.01]
        if reasons:
            found.append((sum(faults.values()), queue, ", ".join(reasons)))
    found.sort(key=lambda row: (-row[0], row[1].name))
    return [(queue, reasons) for _, queue, reasons in found]
