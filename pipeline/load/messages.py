"""LakeMessages: messages of a lake that were once published to a queue, to be published again.

    a lake with bodies, a queue, a condition --> batches; a position is that of the publish in the log of its cluster

Each cluster is a part.  Its log only grows, so events that are archived later are behind every position.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from wakeq.pipeline.lake import Lake, arrivals_sql
from wakeq.pipeline.load.load import Batch
from wakeq.pipeline.load.sql import SETTINGS, quoted, wrong_condition
from wakeq.protocol.errors import BadSettings, StorageError

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation

# A position is index * PLACES + place: as many messages may one entry publish.
PLACES = 1 << 24
MESSAGE_COLUMNS = ("body", "priority")
OF_A_LAKE = SETTINGS | {"memory_limit": "1GB", "preserve_insertion_order": False}


class LakeMessages:
    """Messages that were published to one queue."""

    def __init__(self, lake: Lake, queue: str, where: str | None = None) -> None:
        if not lake.has_bodies:
            raise BadSettings(f"{lake.address} has no bodies; archive with --bodies, into another place")
        self._lake = lake
        self._queue = queue
        # A condition in SQL about the columns of the lake.
        self._where = where

    def check_queue(self) -> None:
        """Raise BadSettings if the lake knows nothing of the queue, whose name is probably a wrong one."""
        import pyarrow.compute as compute

        is_wanted = compute.field("queue") == self._queue
        if not self._lake.dataset().scanner(columns=["queue"], filter=is_wanted).head(1).num_rows:
            raise BadSettings(f"{self._lake.address} has no events of queue {self._queue}; check --queue")

    @property
    def identity(self) -> object:
        # The messages are those of a cluster, in every lake: one that has grown, moved or been copied is the same.
        return "lake", self._queue, self._where

    @property
    def parts(self) -> Sequence[str]:
        return self._lake.clusters

    def count(self, part: str, after: int) -> int:
        with self._behind(part, after) as messages:
            ((count,),) = messages.count("*").fetchall()
        return int(count)

    def batches(self, part: str, after: int, rows: int) -> Iterator[Batch]:
        columns = ", ".join(("index", "place", *MESSAGE_COLUMNS))
        with self._behind(part, after) as messages:
            answer = messages.project(columns).order("index, place")
            # DuckDB 1.4 has another name for it.
            stream = answer.to_arrow_reader if hasattr(answer, "to_arrow_reader") else answer.fetch_record_batch
            for read in stream(rows):
                for start in range(0, read.num_rows, rows):
                    batch = read.slice(start, rows)
                    yield Batch(_end_of(batch), batch.select(list(MESSAGE_COLUMNS)))

    @contextmanager
    def _behind(self, part: str, after: int) -> Iterator["DuckDBPyRelation"]:
        """Yield the messages behind a position, as a relation of DuckDB; what exceeds its memory goes to files."""
        import duckdb

        index, place = divmod(after, PLACES)
        events = f"(SELECT * FROM events WHERE queue = {quoted(self._queue)})"
        behind = f"index >= {index} AND (index > {index} OR place > {place})"
        # DuckDB has a word `at` of its own; of queues, too, the data source calls the moment `published`.
        arrivals = f"SELECT *, m.at AS published FROM ({arrivals_sql(events, self._lake.columns)}) m"
        with tempfile.TemporaryDirectory(prefix="wakeq-load-") as folder:
            try:
                with duckdb.connect(config=OF_A_LAKE | {"temp_directory": folder}) as database:
                    # A moment in a condition is one of UTC.
                    database.execute("SET TimeZone = 'UTC'")
                    database.register("events", self._lake.dataset(part))
                    messages = database.sql(arrivals).filter(behind)
                    # This takes one expression; in the text of a query a condition could end its own part.
                    yield messages if self._where is None else messages.filter(self._where)
            except (duckdb.Error, pa.ArrowException) as error:
                if self._where is None:
                    raise StorageError(f"{self._lake.address} cannot be read: {str(error).splitlines()[0]}") from None
                hint = "; the moment is called published" if isinstance(error, duckdb.ParserException) else ""
                raise wrong_condition(self._where, error, hint) from None


def _end_of(batch: pa.RecordBatch) -> int:
    index, place = (batch.column(name)[-1].as_py() for name in ("index", "place"))
    if place >= PLACES:
        raise StorageError(f"entry {index} published more than {PLACES:,} messages; a load cannot number them")
    return int(index * PLACES + place)
