"""A report from the journal to the file: Spark counts, then the page, the JSON and the tables are written.

    events (a data frame) --> counts by time, spans of waiting and of work in bins --> Arrow tables
    tables, a stretch of time --> Report --> report.html, report.json, Parquet

There are two passes over the events: one counts them, one gathers the events of each message.  Spans are counted in
bins that grow by one percent, so that a percentile is exact to half of that, however many spans there are.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as parquet

from wakeq.pipeline.journal.plan import History, Place
from wakeq.pipeline.journal.rows import Wanted
from wakeq.pipeline.journal.table import period_of
from wakeq.pipeline.report.page import page_of
from wakeq.pipeline.report.report import BIN_GROWTH, LEAVING, Report, Tables, bucket_for, report_of
from wakeq.protocol.errors import StorageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTS = "spark.sql.shuffle.partitions"
PARTS_A_CORE = 4

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COUNT_COLUMNS = ("at", "queue", "event", "outcome", "reason", "size", "incarnation", "index")
LIFE_COLUMNS = ("at", "event", "until", "worker", "size", "incarnation", "number")
FACTS = ("redelivered", "redeliveries", "from_before", "stashed_bytes")
SPAN_KINDS = ("waiting", "working", "life")


def make_report(spark: "SparkSession", directories: Sequence[Place], wanted: Wanted) -> tuple[Report, Tables]:
    """Count the events and make the report."""
    period = period_of(History(directories))
    if period is None:
        raise StorageError(f"{directories[0]}: nothing has happened yet; run the broker first")
    since_ms = max(period[0], wanted.since_ms or period[0])
    until_ms = min(period[1] + 1, wanted.until_ms or period[1] + 1)
    since_s, until_s = since_ms // 1000, max(since_ms // 1000 + 1, -(-until_ms // 1000))
    bucket_s = bucket_for(since_s, until_s)
    wanted = replace(wanted, since_ms=since_ms, until_ms=until_ms)
    counted = _events(spark, directories, replace(wanted, columns=COUNT_COLUMNS))
    lives = lives_of(_events(spark, directories, replace(wanted, columns=LIFE_COLUMNS, done_only=True)))
    with _in_small_parts(spark):
        counts = counts_of(counted, bucket_s)
        tables = Tables(counts, spans_of(lives, counts))
    return report_of(tables, since_s, until_s, bucket_s), tables


@contextmanager
def _in_small_parts(spark: "SparkSession") -> Iterator[None]:
    """Let Spark group in parts that fit into memory; it joins parts that are too small."""
    before = int(spark.conf.get(PARTS))
    spark.conf.set(PARTS, str(max(before, PARTS_A_CORE * spark.sparkContext.defaultParallelism)))
    try:
        yield
    finally:
        spark.conf.set(PARTS, str(before))


def _events(spark: "SparkSession", directories: Sequence[Place], wanted: Wanted) -> "DataFrame":
    from wakeq.pipeline.journal.source import JournalSource, options_of

    spark.dataSource.register(JournalSource)
    return spark.read.format("wakeq-journal").options(**options_of(directories, wanted)).load()


def write_report(report: Report, tables: Tables, out: Path, parquet_folder: Path | None) -> list[Path]:
    """Write the page, the JSON beside it, and the tables if a folder is given; return the written paths."""
    written = [out, out.with_suffix(".json")]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page_of(report), encoding="utf-8")
    written[1].write_bytes(msgspec.json.format(msgspec.json.encode(asdict(report)), indent=1))
    if parquet_folder is not None:
        parquet_folder.mkdir(parents=True, exist_ok=True)
        for name in ("counts", "spans"):
            path = parquet_folder / f"{name}.parquet"
            parquet.write_table(getattr(tables, name), path)
            written.append(path)
    return written


def counts_of(events: "DataFrame", bucket_s: int) -> pa.Table:
    """Count events by time, queue and incarnation, event, outcome and reason.

    An event that emptied a queue has a row of its own, with its index in `emptied`.
    """
    from pyspark.sql import functions as f

    bucket = (f.floor(f.unix_millis("at") / (1000 * bucket_s)) * bucket_s).alias("at_s")
    emptied = f.when(f.col("event").isin("purged", "deleted"), f.col("index")).alias("emptied")
    keys = [bucket, "queue", "incarnation", "event", "outcome", "reason", emptied]
    return _table(events.groupBy(*keys).agg(f.count("*").alias("events"), f.sum("size").alias("bytes")))


def lives_of(events: "DataFrame") -> "DataFrame":
    """Gather the events of each message, of those that took effect.

    A stashed message is due when it is published, or later if its delay, which is known from the stashing, is longer.
    All values are numbers: with texts or structs Spark would sort the events instead of hashing them.
    """
    from pyspark.sql import functions as f

    at, event = f.unix_millis("at"), f.col("event")

    def when(name: str, value: "Column") -> "Column":
        return f.when(event == name, value)

    return (
        events.where(f.col("number").isNotNull())
        .groupBy("incarnation", "number")
        .agg(
            f.min(when("published", f.unix_millis(f.coalesce("until", "at")))).alias("published_ms"),
            f.max(when("stashed", f.unix_millis("until"))).alias("delayed_ms"),
            f.sum(when("stashed", f.col("size"))).alias("stashed_bytes"),
            f.min(when("delivered", at)).alias("first_ms"),
            f.max(when("delivered", at)).alias("last_ms"),
            f.max_by("worker", when("delivered", at)).alias("worker"),
            f.max(when("acked", at)).alias("acked_ms"),
            f.count(when("delivered", f.lit(1))).alias("deliveries"),
            f.max(event.isin(*LEAVING)).alias("is_over"),
        )
        .withColumn("due_ms", f.when(f.col("published_ms").isNotNull(), f.greatest("published_ms", "delayed_ms")))
    )


def spans_of(lives: "DataFrame", counts: pa.Table) -> pa.Table:
    """Count spans by queue and bin: of waiting for the first delivery, and of the work after the last.

    A third kind of row, `life`, has facts that need the whole life of a message, by queue and incarnation.
    """
    from pyspark.sql import functions as f

    nothing, zero = f.lit(None).cast("bigint"), f.lit(0).cast("bigint")
    deliveries = f.col("deliveries")

    def span(kind: str, ms: "Column", worker: "Column", *facts: "Column") -> "Column":
        named = zip(FACTS, facts or [zero] * len(FACTS), strict=True)
        values = (fact.cast("bigint").alias(name) for name, fact in named)
        return f.struct(f.lit(SPAN_KINDS.index(kind)).alias("kind"), ms.alias("ms"), worker.alias("worker"), *values)

    waited = f.col("first_ms") - f.col("due_ms")
    spans = f.array(
        # `greatest` ignores nulls, so a null has to be excluded first.
        span("waiting", f.when(waited.isNotNull(), f.greatest(zero, waited)), nothing),
        span("working", f.col("acked_ms") - f.col("last_ms"), f.col("worker")),
        span(
            "life", zero, nothing,
            deliveries > 1, f.greatest(zero, deliveries - 1),
            f.col("due_ms").isNull() & f.col("is_over"),
            f.when(f.col("due_ms").isNotNull(), f.coalesce("stashed_bytes", zero)).otherwise(zero),
        ),
    )  # fmt: skip
    rows = lives.select("incarnation", f.explode(spans).alias("span")).where(f.col("span.ms").isNotNull())
    keys = ("incarnation", "span.kind", "span.worker", _bin(f.col("span.ms")).alias("bin"))
    sums = (f.sum(f"span.{name}").alias(name) for name in FACTS)
    return _named(_table(rows.groupBy(*keys).agg(f.count("*").alias("messages"), *sums)), counts)


def _named(spans: pa.Table, counts: pa.Table) -> pa.Table:
    """Add the name of the queue and the kind in words; Spark would take much longer for it than Arrow."""
    known = counts.filter(compute.is_valid(counts["incarnation"])).group_by(["incarnation", "queue"]).aggregate([])
    kinds = pa.array(SPAN_KINDS).take(spans["kind"].combine_chunks().cast(pa.int32()))
    return spans.drop_columns("kind").append_column("kind", kinds).join(known, "incarnation", join_type="inner")


def _bin(ms: "Column") -> Any:
    from pyspark.sql import functions as f

    return f.when(ms <= 0, f.lit(0)).otherwise(1 + f.floor(f.log(ms) / float(np.log(BIN_GROWTH)))).cast("int")


def _table(frame: "DataFrame") -> pa.Table:
    table: pa.Table = frame.toArrow()
    return table
