"""QueueWriter, QueueStreamWriter: data frames become messages, all of a job or a micro-batch in one step.

    write (in the tasks) --> STASH, under the name of the attempt          commit (in the driver) --> UNSTASH

What an attempt has stashed is seen by nobody until the driver publishes exactly the attempts that count; the others
lapse.  A micro-batch that is committed again publishes nothing: the broker knows the query and the epoch.
"""

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import fs
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from wakeq.pipeline.arrow_blocks import check_writable, columns_of
from wakeq.pipeline.connections import client_of
from wakeq.pipeline.options import WriteOptions
from wakeq.protocol.errors import BadSettings
from wakeq.protocol.wire.worker_commands import STASH_PARTS_MAX


@dataclass
class Stashed(WriterCommitMessage):
    """What one attempt has stashed: the name of each stash, and how many messages it has."""

    stashes: list[tuple[str, int]]


class _Writer:
    """What both have in common."""

    def __init__(self, options: WriteOptions, names: Sequence[str]) -> None:
        check_writable(names)
        self._options = options

    def _stash(self, batches: Iterator[pa.RecordBatch]) -> Stashed:
        options, stashes = self._options, list[tuple[str, int]]()
        client = client_of(options.broker)
        shared = {"delay": options.delay, "expires": options.expires, "priority": options.priority}
        pieces = (columns for batch in batches for columns in columns_of(batch))
        for place, columns in enumerate(pieces):
            part = place % STASH_PARTS_MAX
            name, rows = stashes.pop() if part else (secrets.token_hex(12), 0)
            client.stash(options.queue, name, part, columns, keep=options.keep_s, **shared)
            stashes.append((name, rows + columns.rows))
        return Stashed(stashes)

    def _publish(self, messages: Sequence[Any], writer: str, epoch: int) -> None:
        options, stashes = self._options, _stashes_of(messages)
        if stashes:
            client_of(options.broker).publish_stashes(options.queue, stashes, writer=writer, epoch=epoch)

    def _drop(self, messages: Sequence[Any]) -> None:
        stashes = _stashes_of(messages)
        if stashes:
            client_of(self._options.broker).drop_stashes(self._options.queue, stashes)


def _stashes_of(messages: Sequence[Any]) -> list[tuple[str, int]]:
    """Return what all attempts have stashed; of one that failed there is nothing to tell."""
    return [stash for one in messages if one is not None for stash in one.stashes]


class QueueWriter(_Writer, DataSourceArrowWriter):
    """A job: all of its messages appear, or none."""

    def __init__(self, options: WriteOptions, names: Sequence[str], *, overwrite: bool) -> None:
        super().__init__(options, names)
        if overwrite:
            raise BadSettings('a queue cannot be overwritten; write with .mode("append")')
        if options.writer and not options.epoch:
            raise BadSettings(
                f"writer {options.writer!r} needs option epoch, a number that grows with each write; or leave both out"
            )
        self._writer = options.writer or f"job-{secrets.token_hex(12)}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stashed:
        return self._stash(iterator)

    def commit(self, messages: Sequence[Any]) -> None:
        self._publish(messages, self._writer, self._options.epoch or 1)

    def abort(self, messages: Sequence[Any]) -> None:
        self._drop(messages)


class QueueStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """A query: each of its micro-batches appears once."""

    def __init__(self, options: WriteOptions, names: Sequence[str]) -> None:
        super().__init__(options, names)
        if not options.writer and not options.checkpoint:
            raise BadSettings("give option checkpointLocation, or a name of this query by option writer")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stashed:
        return self._stash(iterator)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        writer = self._options.writer or f"query-{query_id(self._options.checkpoint)}"
        self._publish(messages, writer, batchId + 1)  # epochs count from 1

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        self._drop(messages)


def query_id(checkpoint: str) -> str:
    """Return the id that Spark gave a query: a new one when its checkpoint was removed and it begins anew."""
    place, path = fs.FileSystem.from_uri(checkpoint) if "://" in checkpoint else (fs.LocalFileSystem(), checkpoint)
    try:
        with place.open_input_stream(f"{path.removeprefix('file:')}/metadata") as file:
            return str(json.loads(file.read())["id"])
    except (OSError, ValueError, KeyError) as error:
        raise BadSettings(
            f"the id of the query cannot be read from {checkpoint}/metadata ({error}); give it a name by option writer"
        ) from None
