"""The data source `wakeq`: a queue as a data frame, as a stream, and as a target for data frames.

    spark.read  --> QueueReader (peek)          spark.readStream  --> QueueStreamReader (staged claims)
    df.write    --> QueueWriter                 df.writeStream    --> QueueStreamWriter (staged publishes)

Spark pickles these objects and sends them to its workers, so they contain options and no connection. Only tasks
import Arrow: Spark starts a new process for much of what it plans.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from wakeq.pipeline.stream import tasks
from wakeq.pipeline.stream.columns import READABLE, check_readable, in_blocks
from wakeq.pipeline.stream.options import ReadOptions, read_options, write_options
from wakeq.protocol.errors import BadSettings
from wakeq.protocol.wire.worker.codec import Block

PEEK_ROWS = 10_000

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from wakeq.pipeline.stream.reader import QueueStreamReader
    from wakeq.pipeline.stream.sink import QueueStreamWriter, QueueWriter


@dataclass(slots=True)
class SpanOfNumbers(InputPartition):
    """The messages after one number, up to another."""

    after: int
    last: int


class QueueReader(DataSourceReader):
    """Reads a queue once, without changing it.

    The driver divides the numbers of the queue into spans, one for each partition, and each worker peeks at its span in
    blocks. Messages that are published or removed meanwhile may be included or not.
    """

    def __init__(self, options: ReadOptions, parallelism: int) -> None:
        self._options = options
        self._partitions = options.partitions or parallelism

    def partitions(self) -> list[SpanOfNumbers]:
        options = self._options
        found = options.broker.ask(lambda client: client.peek_block(options.queue, count=1))
        if not found.rows:
            return [SpanOfNumbers(0, 0)]
        first, last = found.next or found.last, found.last
        size = -(-(last - first + 1) // self._partitions)
        return [SpanOfNumbers(at - 1, min(at + size - 1, last)) for at in range(first, last + 1, size)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from wakeq.pipeline.stream.arrow_blocks import batch_of

        assert isinstance(partition, SpanOfNumbers), "as planned"
        options, after, last = self._options, partition.after, partition.last
        options.broker.check_is_shared(tasks.master())
        while after < last:
            block = self._peek(after, last)
            if block.rows:
                yield batch_of(block, options.queue, options.columns)
            if not block.next:
                return
            after = block.next

    def _peek(self, after: int, last: int) -> Block:
        queue, columns = self._options.queue, in_blocks(self._options.columns)
        return self._options.broker.ask(
            lambda client: client.peek_block(queue, after=after, last=last, count=PEEK_ROWS, columns=columns)
        )


class QueueSource(DataSource):
    """The entry point of Spark: a reader or writer for each kind of use."""

    # How many tasks read at the same time if no option says so. Spark does not tell its planner how many it can run;
    # `wakeq.pipeline.register` asks the session.
    parallelism = 4

    @classmethod
    def name(cls) -> str:
        return "wakeq"

    def schema(self) -> str:
        return ", ".join(f"{name} {READABLE[name]}" for name in read_options(self.options).columns)

    def reader(self, schema: "StructType") -> QueueReader:
        return QueueReader(replace(read_options(self.options), columns=_columns(schema)), self.parallelism)

    def streamReader(self, schema: "StructType") -> "QueueStreamReader":  # noqa: N802
        from wakeq.pipeline.stream.reader import QueueStreamReader

        options = replace(read_options(self.options, is_stream=True), columns=_columns(schema))
        if "state" in options.columns:
            raise BadSettings("column state is for spark.read only: all messages of a stream are claimed for it")
        return QueueStreamReader(options, self.parallelism)

    def writer(self, schema: "StructType", overwrite: bool) -> "QueueWriter":
        from wakeq.pipeline.stream.sink import QueueWriter

        options = write_options(self.options)
        writer = QueueWriter(options, schema, overwrite=overwrite)
        # Here the reason is a line; out of a task it stands within hundreds.
        options.broker.ask(lambda client: client.ping())
        return writer

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "QueueStreamWriter":  # noqa: N802
        from wakeq.pipeline.stream.sink import QueueStreamWriter

        return QueueStreamWriter(write_options(self.options, is_stream=True), schema)


def _columns(schema: "StructType") -> tuple[str, ...]:
    """Return the columns of a schema, which may be the program's own: part of the columns, in any order."""
    return check_readable({field.name: field.dataType.simpleString() for field in schema.fields})
