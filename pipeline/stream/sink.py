"""QueueWriter, QueueStreamWriter: data frames become messages, all of a job or a micro-batch in one step.

    write (in the tasks) --> STASH, under the name of the attempt          commit (in the driver) --> UNSTASH

The messages of an attempt are invisible until the driver publishes exactly the attempts that count; the others expire.
A micro-batch that is committed again publishes nothing: the broker knows the query and the epoch.
"""

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import fs
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from wakeq.pipeline.stream.arrow_blocks import check_writable, columns_of
from wakeq.pipeline.stream.options import WriteOptions, client_of
from wakeq.protocol.errors import BadField, BadSettings, StashExpired
from wakeq.protocol.wire.worker.commands import STASH_PARTS_MAX

# The type `void` is a column of nulls only.
_NUMBER = "a whole number", ("tinyint", "smallint", "int", "bigint", "void")
# Spark's names of the types for each column.
KINDS = {
    "body": ("string or binary", ("string", "binary")),
    "priority": _NUMBER,
    "delay": _NUMBER,
    "headers": ("map<string,string>", ("map<string,string>", "void")),
}


@dataclass
class Stashed(WriterCommitMessage):
    """The stashes of one attempt: their names and numbers of messages."""

    stashes: list[tuple[str, int]]


class _Writer:
    """The common part of both writers."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        _check_columns(schema)
        self._options = options

    def _stash(self, batches: Iterator[pa.RecordBatch]) -> Stashed:
        options, stashes = self._options, list[tuple[str, int]]()
        client, numbers = client_of(options.broker), {"delay": options.delay, "priority": options.priority}
        pieces = (columns for batch in batches for columns in columns_of(batch, **numbers))
        for place, columns in enumerate(pieces):
            part = place % STASH_PARTS_MAX
            name, rows = stashes.pop() if part else (secrets.token_hex(12), 0)
            about = {"keep": options.keep_s, "expires": options.expires, **numbers}
            client.stash(options.queue, name, part, columns, **about)  # type: ignore[arg-type]
            stashes.append((name, rows + columns.rows))
        return Stashed(stashes)

    def _publish(self, messages: Sequence[Any], writer: str, epoch: int) -> None:
        options, stashes = self._options, _stashes_of(messages)
        if not stashes:
            return
        try:
            client_of(options.broker).publish_stashes(options.queue, stashes, writer=writer, epoch=epoch)
        except StashExpired as error:
            raise StashExpired(
                f"the stash for queue {options.queue} expired after {options.keep_s} s, or is not complete: nothing "
                "was published; write again, with a larger option keep if the job takes so long"
            ) from error

    def _drop(self, messages: Sequence[Any]) -> None:
        stashes = _stashes_of(messages)
        if stashes:
            client_of(self._options.broker).drop_stashes(self._options.queue, stashes)


def _check_columns(schema: StructType) -> None:
    """Refuse columns and types that cannot be published."""
    check_writable(schema.names)
    for field in schema.fields:
        kind = field.dataType.simpleString()
        words, kinds = KINDS[field.name]
        # The name of a string type may be followed by its collation.
        if kind.split()[0] not in kinds:
            raise BadField(f"column {field.name} is {kind}; it must be {words}")


def _stashes_of(messages: Sequence[Any]) -> list[tuple[str, int]]:
    """Return the stashes of all attempts; a failed attempt has none."""
    return [stash for one in messages if one is not None for stash in one.stashes]


class QueueWriter(_Writer, DataSourceArrowWriter):
    """A job: all of its messages appear, or none."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        super().__init__(options, schema)
        if overwrite:
            raise BadSettings('a queue cannot be overwritten; write with .mode("append")')
        if options.writer and not options.epoch:
            raise BadSettings(
                f"writer {options.writer!r} needs option epoch, a number that grows with each write; or leave both out"
            )
        if options.epoch and not options.writer:
            raise BadSettings(f"option epoch is {options.epoch}, but there is no writer; give option writer, too")
        self._writer = options.writer or f"job-{secrets.token_hex(12)}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stashed:
        return self._stash(iterator)

    def commit(self, messages: Sequence[Any]) -> None:
        # Without an epoch, the writer is a job that publishes once.
        self._publish(messages, self._writer, self._options.epoch)

    def abort(self, messages: Sequence[Any]) -> None:
        self._drop(messages)


class QueueStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """A query: the messages of each micro-batch appear once."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        if not options.writer and not options.checkpoint:
            raise BadSettings("give option checkpointLocation, or name this query with option writer")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stashed:
        return self._stash(iterator)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        writer = self._options.writer or f"query-{query_id(self._options.checkpoint)}"
        # Epochs count from 1.
        self._publish(messages, writer, batchId + 1)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        self._drop(messages)


def query_id(checkpoint: str) -> str:
    """Return the id that Spark gave a query; a query whose checkpoint was removed gets a new one."""
    place, path = fs.FileSystem.from_uri(checkpoint) if "://" in checkpoint else (fs.LocalFileSystem(), checkpoint)
    try:
        with place.open_input_stream(f"{path.removeprefix('file:')}/metadata") as file:
            return str(json.loads(file.read())["id"])
    except (OSError, ValueError, KeyError) as error:
        raise BadSettings(
            f"the id of the query cannot be read from {checkpoint}/metadata ({error}); set option writer"
        ) from None
