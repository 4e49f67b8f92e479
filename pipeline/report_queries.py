"""What a report asks of Spark: from events by the million to tables of a few thousand rows.

    events (a data frame) --> counts by time, spans of waiting and of work in bins, who was slow --> Arrow tables

Two passes over the events: one counts them, one brings together what happened to each message.  Spans are counted in
bins of one part in a hundred, so that a percentile is right to half of that, however many there are.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COUNT_COLUMNS = ("at", "queue", "event", "outcome", "reason", "size", "incarnation", "index")
LIFE_COLUMNS = ("at", "queue", "event", "until", "worker", "incarnation", "number")
FACTS = ("redelivered", "redeliveries", "cancelled", "from_before")
BIN_GROWTH = 1.01


def counts_of(events: "DataFrame", bucket_s: int) -> pa.Table:
    """Count events by time, queue and incarnation, event, outcome and reason; name those that emptied a queue."""
    from pyspark.sql import functions as f

    bucket = (f.floor(f.unix_millis("at") / (1000 * bucket_s)) * bucket_s).alias("at_s")
    keys = [bucket, "queue", "incarnation", "event", "outcome", "reason"]
    emptied = f.when(f.col("event").isin("purged", "deleted"), f.col("index"))
    counts = (f.count("*").alias("events"), f.sum("size").alias("bytes"), f.collect_list(emptied).alias("emptied"))
    return _table(events.groupBy(*keys).agg(*counts))


def lives_of(events: "DataFrame") -> "DataFrame":
    """Bring together what happened to each message; only of those that were done and not refused."""
    from pyspark.sql import functions as f

    at, event = f.unix_millis("at"), f.col("event")

    def when(name: str, value: "Column") -> "Column":
        return f.when(event == name, value)

    return events.groupBy("incarnation", "number").agg(
        f.first("queue").alias("queue"),
        f.min(when("published", f.unix_millis(f.coalesce("until", "at")))).alias("due_ms"),
        f.min(when("delivered", at)).alias("first_ms"),
        f.max(when("delivered", f.struct(at.alias("ms"), f.col("worker").alias("worker")))).alias("last"),
        f.max(when("acked", at)).alias("acked_ms"),
        f.sum(when("delivered", f.lit(1))).alias("deliveries"),
        f.max(event.isin("acked", "dead", "expired", "dropped")).alias("is_over"),
    )


def spans_of(lives: "DataFrame") -> pa.Table:
    """Count spans by queue and bin: of waiting for the first delivery, and of the work after the last.

    A third kind of row, `life`, has what else only the whole life of a message tells, by queue and incarnation.
    """
    from pyspark.sql import functions as f

    nothing, zero = f.lit(None).cast("bigint"), f.lit(0).cast("bigint")
    deliveries, is_acked = f.coalesce("deliveries", zero), f.col("acked_ms").isNotNull()

    def span(kind: str, ms: "Column", worker: "Column", *facts: "Column") -> "Column":
        names = ("incarnation", "redelivered", "redeliveries", "cancelled", "from_before")
        values = (column.cast("bigint").alias(name) for name, column in zip(names, facts, strict=True))
        return f.struct(f.lit(kind).alias("kind"), ms.alias("ms"), worker.alias("worker"), *values)

    waited = f.col("first_ms") - f.col("due_ms")
    waiting = f.when(waited.isNotNull(), f.greatest(zero, waited))  # `greatest` passes over nulls
    working = f.col("acked_ms") - f.col("last.ms")
    facts = (
        f.col("incarnation"), deliveries > 1, f.greatest(zero, deliveries - 1), is_acked & (deliveries == 0),
        f.col("due_ms").isNull() & f.col("is_over"),
    )  # fmt: skip
    spans = f.array(
        span("waiting", waiting, nothing, nothing, zero, zero, zero, zero),
        span("working", working, f.col("last.worker"), nothing, zero, zero, zero, zero),
        span("life", zero, nothing, *facts),
    )
    rows = lives.select("queue", f.explode(spans).alias("span")).where(f.col("span.ms").isNotNull())
    keys = ("queue", "span.kind", "span.worker", "span.incarnation", _bin(f.col("span.ms")).alias("bin"))
    sums = (f.sum(f"span.{name}").alias(name) for name in FACTS)
    return _table(rows.groupBy(*keys).agg(f.count("*").alias("messages"), *sums))


def _bin(ms: "Column") -> Any:
    from pyspark.sql import functions as f

    return f.when(ms <= 0, f.lit(0)).otherwise(1 + f.floor(f.log(ms) / float(np.log(BIN_GROWTH)))).cast("int")


def bins_of(ms: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the bins of spans, as Spark computes them."""
    bins = 1 + np.floor(np.log(np.maximum(ms, 1)) / np.log(BIN_GROWTH))
    return np.where(ms <= 0, 0, bins).astype(np.int64)


def middle_ms(bins: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the span that a bin stands for."""
    return np.where(bins == 0, 0.0, BIN_GROWTH ** (bins - 0.5))


def _table(frame: "DataFrame") -> pa.Table:
    table: pa.Table = frame.toArrow()
    return table
