"""Embedded: queries that run in this process, by DuckDB: no Java, no server, nothing to start.

    events, queries --> an Arrow table for each query

The events are read once: each batch goes to all queries, which run at the same time, each in its own thread. A few
batches are in memory; groups that do not fit go to files in a temporary folder. Nothing else is written.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from queue import Empty, Queue
from typing import Any

import duckdb
import pyarrow as pa

from wakeq.pipeline.report.events import DONE, Events, projection
from wakeq.pipeline.report.interrupts import uninterrupted
from wakeq.pipeline.report.queries import Query
from wakeq.protocol.errors import QueryFailed

# Beside this, the batches and the modules take about 300 MB.
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "500MB",
    # The order of the rows means nothing.
    "preserve_insertion_order": False,
    # A report works without a network.
    "autoinstall_known_extensions": False,
}
# The number that may wait for one query.
BATCHES_MAX = 4
# The pause between two interrupts of queries that go on.
LOOK_S = 0.05
# The name of the batches in SQL.
FEED = "feed"
# A function of Spark under the name that it has there.
MACRO = "create macro unix_millis(moment) as epoch_ms(moment)"


class Feed:
    """Batches of events on their way to one query, from one thread to another."""

    def __init__(self, schema: pa.Schema) -> None:
        # For the query; it takes the batches when it needs them.
        self.reader = pa.RecordBatchReader.from_batches(schema, self)
        # None is the end.
        self._waiting: Queue[pa.RecordBatch | None] = Queue(BATCHES_MAX)
        # The query needs no more.
        self.is_over = False

    def put(self, batch: pa.RecordBatch | None) -> None:
        """Pass on a batch, or None after the last one; wait while too many of them wait."""
        if not self.is_over:
            self._waiting.put(batch)

    def close(self) -> None:
        """Take no more batches, and none of those that wait: the query has ended, perhaps too early."""
        self.is_over = True
        with suppress(Empty):
            while True:
                self._waiting.get_nowait()
        # A thread of DuckDB may still wait for the next batch.
        self._waiting.put(None)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._waiting.get()) is not None:
            yield batch


class Embedded:
    """Runs queries by DuckDB."""

    def __init__(self, tell: Callable[[int], None] = lambda events: None) -> None:
        # Called with the number of events that have been read.
        self._tell = tell

    def run(self, events: Events, *queries: Query) -> list[pa.Table]:
        """Return the answers, in the order of the queries."""
        with tempfile.TemporaryDirectory(prefix="wakeq-report-") as folder:
            try:
                with duckdb.connect(config=SETTINGS | {"temp_directory": folder}) as database:
                    return self._run(database, events, queries)
            except duckdb.Error as error:
                raise QueryFailed(f"DuckDB failed: {str(error).splitlines()[0]}") from None

    def _run(self, database: duckdb.DuckDBPyConnection, events: Events, queries: Sequence[Query]) -> list[pa.Table]:
        cursors = [database.cursor() for _ in queries]
        with ThreadPoolExecutor(len(queries), thread_name_prefix="wakeq-query") as threads:
            running = list[Future[Any]]()
            try:
                # Also this in a thread: DuckDB makes a RuntimeError of an interrupt of the main one.
                _start(threads, running, database.execute, [(MACRO,)])
                running.pop().result()
                self._ask(threads, running, cursors, events, queries)
                return [answer.result() for answer in running]
            except BaseException:
                # Of an interrupt, too: the threads have to end.  A query that has not begun yet does not notice it.
                while wait(running, timeout=LOOK_S).not_done:
                    for cursor in cursors:
                        cursor.interrupt()
                raise

    def _ask(
        self,
        threads: ThreadPoolExecutor,
        running: list[Future[Any]],
        cursors: Sequence[duckdb.DuckDBPyConnection],
        events: Events,
        queries: Sequence[Query],
    ) -> None:
        """Give each batch to all queries."""
        stream = events.stream(*queries)
        feeds = [Feed(stream.schema) for _ in queries]
        # If all queries are about events that took effect, the stream has no others.
        has_others = not all(query.done_only for query in queries)
        asked = [
            (cursor, feed, _select(events, query, done_only=query.done_only and has_others))
            for cursor, feed, query in zip(cursors, feeds, queries, strict=True)
        ]
        _start(threads, running, _ask_feed, asked)
        read = 0
        try:
            for batch in stream.batches:
                for feed in feeds:
                    feed.put(batch)
                read += batch.num_rows
                self._tell(read)
                # A query that ends before the last batch has failed.
                if any(feed.is_over for feed in feeds):
                    break
        finally:
            for feed in feeds:
                feed.put(None)


def _start(
    threads: ThreadPoolExecutor, running: list[Future[Any]], function: Callable[..., Any], calls: Iterable[Any]
) -> None:
    """Start these calls; the pool would not wait for a thread during whose start it was interrupted."""
    with uninterrupted():
        running += [threads.submit(function, *call) for call in calls]


def _ask_feed(cursor: duckdb.DuckDBPyConnection, feed: Feed, sql: str) -> pa.Table:
    try:
        cursor.register(FEED, feed.reader)
        return cursor.sql(sql).to_arrow_table()
    finally:
        feed.close()


def _select(events: Events, query: Query, *, done_only: bool) -> str:
    """Return the query about the columns that it needs of a feed."""
    where = f" where {DONE}" if done_only else ""
    return query.sql.format(events=f"(select {', '.join(projection(events, query))} from {FEED} e{where})")
