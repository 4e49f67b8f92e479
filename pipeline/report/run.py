"""A report from its events to the file: an engine counts, then the page, the JSON and the tables are written.

an engine, events --> tables of counts, of spans, of workers --> Report
Report, tables --> report.html, report.json, Parquet
"""

from dataclasses import asdict
from pathlib import Path

import msgspec
import pyarrow as pa

from wakeq.pipeline.report.engine import Engine
from wakeq.pipeline.report.events import Events, JournalEvents, Limits, limited
from wakeq.pipeline.report.page import page_of
from wakeq.pipeline.report.queries import PERIOD, counts_query, spans_query
from wakeq.pipeline.report.report import Report, Tables, bucket_for, report_of
from wakeq.protocol.errors import StorageError

# The tables that a user may want; queries.py says what is in them.
COUNTS = pa.schema(
    [
        ("at_s", pa.int64()), ("cluster", pa.string()), ("queue", pa.string()), ("incarnation", pa.int64()),
        ("event", pa.string()), ("outcome", pa.string()), ("reason", pa.string()), ("emptied", pa.int64()),
        ("events", pa.int64()), ("bytes", pa.int64()),
    ]
)  # fmt: skip
SPANS = pa.schema(
    [
        ("cluster", pa.string()), ("queue", pa.string()), ("incarnation", pa.int64()), ("kind", pa.string()),
        ("bin", pa.int32()), ("messages", pa.int64()), ("redelivered", pa.int64()), ("redeliveries", pa.int64()),
        ("from_before", pa.int64()), ("stashed_bytes", pa.int64()),
    ]
)  # fmt: skip
WORKERS = pa.schema(
    [
        ("cluster", pa.string()), ("worker", pa.int64()), ("messages", pa.int64()), ("p50", pa.int32()),
        ("p90", pa.int32()), ("p99", pa.int32()),
    ]
)  # fmt: skip


def make_report(engine: Engine, events: Events) -> tuple[Report, Tables]:
    """Count the events and make the report."""
    first_ms, last_ms = _period_ms(engine, events)
    limits = events.limits
    since_ms = first_ms if limits.since_ms is None else max(first_ms, limits.since_ms)
    until_ms = last_ms + 1 if limits.until_ms is None else min(last_ms + 1, limits.until_ms)
    since_s, until_s = since_ms // 1000, max(since_ms // 1000 + 1, -(-until_ms // 1000))
    bucket_s = bucket_for(since_s, until_s)
    chosen = limited(events, Limits(since_ms, until_ms, limits.queue))
    tables = _tables(*engine.run(chosen, counts_query(bucket_s), spans_query()))
    return report_of(tables, since_s, until_s, bucket_s), tables


def _tables(counts: pa.Table, spans: pa.Table) -> Tables:
    """Return the rows, with the names of their queues."""
    tables = Tables(counts.to_pylist())
    known = (row for row in tables.counts if row["incarnation"] is not None)
    queues = {(row["cluster"], row["incarnation"]): row["queue"] for row in known}
    for row in spans.to_pylist():
        if row["kind"] == "worker":
            tables.workers.append({name: row[name] for name in WORKERS.names})
            continue
        key = row["cluster"], row["incarnation"]
        if key in queues:
            named = row | {"queue": queues[key]}
            tables.spans.append({name: named[name] for name in SPANS.names})
    return tables


def _period_ms(engine: Engine, events: Events) -> tuple[int, int]:
    """Return the moments of the first event and of the last one, whatever the limits are."""
    if isinstance(events, JournalEvents):
        period = events.period_ms()
        if period is None:
            raise StorageError(f"{events.sources[0]}: nothing has happened yet; run the broker first")
        return period
    (found,) = engine.run(limited(events, Limits()), PERIOD)[0].to_pylist()
    if found["first_ms"] is None:
        raise StorageError(f"{events.lake.address}: has no events yet; archive more")
    return found["first_ms"], found["last_ms"]


def write_report(report: Report, tables: Tables, out: Path, parquet_folder: Path | None) -> list[Path]:
    """Write the page, the JSON beside it, and the tables if a folder is given; return the written paths."""
    try:
        return _write(report, tables, out, parquet_folder)
    except OSError as error:
        raise StorageError(f"{error.filename or out}: cannot be written: {error.strerror or error}") from None


def _write(report: Report, tables: Tables, out: Path, parquet_folder: Path | None) -> list[Path]:
    written = [out, out.with_suffix(".json")]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page_of(report), encoding="utf-8")
    written[1].write_bytes(msgspec.json.format(msgspec.json.encode(asdict(report)), indent=1))
    if parquet_folder is not None:
        import pyarrow.parquet as parquet

        parquet_folder.mkdir(parents=True, exist_ok=True)
        for name, schema in (("counts", COUNTS), ("spans", SPANS), ("workers", WORKERS)):
            path = parquet_folder / f"{name}.parquet"
            parquet.write_table(pa.Table.from_pylist(getattr(tables, name), schema), path)
            written.append(path)
    return written
