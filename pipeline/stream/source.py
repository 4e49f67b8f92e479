"""The data source `wakeq`: a queue as a data frame, as a stream, and as what data frames are written to.

    spark.read  --> QueueReader (peek)          spark.readStream  --> QueueStreamReader (staged claims)
    df.write    --> QueueWriter                 df.writeStream    --> QueueStreamWriter (staged publishes)

A class that Spark pickles and sends around: what it holds are options, no connection.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from wakeq.pipeline.stream.arrow_blocks import COLUMNS
from wakeq.pipeline.stream.options import read_options, write_options
from wakeq.pipeline.stream.peek import QueueReader
from wakeq.protocol.errors import BadSettings

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from wakeq.pipeline.stream.reader import QueueStreamReader
    from wakeq.pipeline.stream.sink import QueueStreamWriter, QueueWriter


class QueueSource(DataSource):
    """See the head of this file."""

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
            raise BadSettings("option includeState is of a look: what a stream reads is claimed for it, all of it")
        return QueueStreamReader(options)

    def writer(self, schema: "StructType", overwrite: bool) -> "QueueWriter":
        from wakeq.pipeline.stream.sink import QueueWriter

        return QueueWriter(write_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "QueueStreamWriter":  # noqa: N802
        from wakeq.pipeline.stream.sink import QueueStreamWriter

        return QueueStreamWriter(write_options(self.options), schema)
