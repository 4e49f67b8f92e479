"""QueueReader: what is in a queue, as a data frame; nothing in the queue changes.

    the queue's numbers, in as many spans as partitions --> peeks in blocks --> Arrow batches

Messages that come or go while it reads may be in it or not: it is a look, not a moment.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from wakeq.pipeline.stream.arrow_blocks import batch_of
from wakeq.pipeline.stream.connections import client_of
from wakeq.pipeline.stream.options import ReadOptions

PEEK_ROWS = 10_000


@dataclass(slots=True)
class SpanOfNumbers(InputPartition):
    """Messages behind one number, up to another."""

    after: int
    last: int


class QueueReader(DataSourceReader):
    """Plans in the driver, reads in the workers."""

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
