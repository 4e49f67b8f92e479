"""The data source `wakeq`: a queue as a data frame, as a stream, and as a target for data frames.

    spark.read  --> QueueReader (peek)          spark.readStream  --> QueueStreamReader (staged claims)
    df.write    --> QueueWriter                 df.writeStream    --> QueueStreamWriter (staged publishes)

Spark pickles these objects and sends them to its workers, so they contain options and no connection.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from wakeq.pipeline.stream.arrow_blocks import COLUMNS, batch_of
from wakeq.pipeline.stream.options import ReadOptions, client_of, read_options, write_options
from wakeq.protocol.errors import BadSettings

PEEK_ROWS = 10_000

if TYPE_CHECKING:
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

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[SpanOfNumbers]:
        options = self._options
        found = client_of(options.broker).peek_block(options.queue, count=1)
        if not found.rows:
            return [SpanOfNumbers(0, 0)]
        first, last = found.next or found.last, found.last
        size = -(-(last - first + 1) // options.partitions)
        return [SpanOfNumbers(at - 1, min(at + size - 1, last)) for at in range(first, last + 1, size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SpanOfNumbers), "as planned"
        options, after = self._options, partition.after
        client = client_of(options.broker)
        while after < partition.last:
            block = client.peek_block(options.queue, after=after, last=partition.last, count=PEEK_ROWS)
            if block.rows:
                yield batch_of(block, options.queue, has_headers=options.has_headers, has_state=options.has_state)
            if not block.next:
                return
            after = block.next


class QueueSource(DataSource):
    """The entry point of Spark: a reader or writer for each kind of use."""

    @classmethod
    def name(cls) -> str:
        return "wakeq"

    def schema(self) -> str:
        options = read_options(self.options)
        headers = ", headers map<string,string>" if options.has_headers else ""
        return COLUMNS + headers + (", state string" if options.has_state else "")

    def reader(self, schema: "StructType") -> QueueReader:
        return QueueReader(read_options(self.options))

    def streamReader(self, schema: "StructType") -> "QueueStreamReader":  # noqa: N802
        from wakeq.pipeline.stream.reader import QueueStreamReader

        options = read_options(self.options)
        if options.has_state:
            raise BadSettings("option includeState is for spark.read only: all messages of a stream are claimed for it")
        return QueueStreamReader(options)

    def writer(self, schema: "StructType", overwrite: bool) -> "QueueWriter":
        from wakeq.pipeline.stream.sink import QueueWriter

        return QueueWriter(write_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "QueueStreamWriter":  # noqa: N802
        from wakeq.pipeline.stream.sink import QueueStreamWriter

        return QueueStreamWriter(write_options(self.options), schema)
