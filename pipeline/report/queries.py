"""The queries of a report: Spark turns millions of events into tables of a few thousand rows.

    events (a data frame) --> counts by time, spans of waiting and of work in bins --> Arrow tables

There are two passes over the events: one counts them, one gathers the events of each message. Spans are counted in bins
that grow by one percent, so that a percentile is exact to half of that, however many spans there are.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as compute

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COUNT_COLUMNS = ("at", "queue", "event", "outcome", "reason", "size", "incarnation", "index")
LIFE_COLUMNS = ("at", "event", "until", "worker", "size", "incarnation", "number")
# After one of these events a message is not in its queue any more.
LEAVING = (
    "acked",
    "cancelled",
    "expired",
    "dead",
    "moved",
)
FACTS = ("redelivered", "redeliveries", "from_before", "stashed_bytes")
SPAN_KINDS = ("waiting", "working", "life")
BIN_GROWTH = 1.01


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


def bins_of(ms: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the bins of spans, as Spark computes them."""
    bins = 1 + np.floor(np.log(np.maximum(ms, 1)) / np.log(BIN_GROWTH))
    return np.where(ms <= 0, 0, bins).astype(np.int64)


def middle_ms(bins: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the span for each bin."""
    return np.where(bins == 0, 0.0, BIN_GROWTH ** (bins - 0.5))


def _table(frame: "DataFrame") -> pa.Table:
    table: pa.Table = frame.toArrow()
    return table
