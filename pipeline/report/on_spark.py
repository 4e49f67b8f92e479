"""OnSpark: queries that run in a session of Spark, for events that have outgrown one machine.

    events, queries --> a data frame of the columns that a query needs --> an Arrow table for each query

The session belongs to someone else: it is used, and its settings are as before afterwards.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from wakeq.pipeline.report.events import DONE, Events, JournalEvents, LakeEvents, projection
from wakeq.pipeline.report.queries import Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTS = "spark.sql.shuffle.partitions"
# Of the journal, for each part in which Spark groups; the part has to fit into the memory of a task.
PART_BYTES = 32 * 1024 * 1024


class OnSpark:
    """Runs queries in a session of Spark."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark

    def run(self, events: Events, *queries: Query) -> list[pa.Table]:
        """Return the answers, in the order of the queries."""
        with self._in_small_parts(events):
            return [self._answer(events, query) for query in queries]

    def _answer(self, events: Events, query: Query) -> pa.Table:
        frame = self._of_journal(events, query) if isinstance(events, JournalEvents) else self._of_lake(events, query)
        columns = frame.alias("e").selectExpr(*projection(events, query))
        return self._spark.sql(query.sql, events=columns).toArrow()

    def _of_journal(self, events: JournalEvents, query: Query) -> "DataFrame":
        from wakeq.pipeline.journal.source import JournalSource, options_of

        self._spark.dataSource.register(JournalSource)
        options = options_of(events.sources, events.wanted_by(query))
        return self._spark.read.format("wakeq-journal").options(**options).load()

    def _of_lake(self, events: LakeEvents, query: Query) -> "DataFrame":
        from pyspark.sql import functions as f

        frame = self._spark.read.parquet(events.lake.address).alias("e")
        limits = events.limits
        if query.done_only:
            frame = frame.where(DONE)
        if limits.since_ms is not None:
            frame = frame.where(f"e.at >= timestamp_millis({limits.since_ms})")
        if limits.until_ms is not None:
            frame = frame.where(f"e.at < timestamp_millis({limits.until_ms})")
        if limits.queue is not None:
            frame = frame.where(f.col("queue") == limits.queue)
        return frame

    @contextmanager
    def _in_small_parts(self, events: Events) -> Iterator[None]:
        """Let Spark group in parts that fit into memory; it joins parts that are too small."""
        before = self._spark.conf.get(PARTS)
        if isinstance(events, JournalEvents):
            self._spark.conf.set(PARTS, str(max(int(before), events.history.size_bytes // PART_BYTES)))
        try:
            yield
        finally:
            self._spark.conf.set(PARTS, before)
