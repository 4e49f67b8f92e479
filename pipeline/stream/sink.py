"""QueueWriter, QueueStreamWriter: data frames become messages, all of a job or a micro-batch in one step.

    write (in the tasks) --> STASH, under the name of the attempt          commit (in the driver) --> UNSTASH

The messages of an attempt are invisible until the driver publishes exactly the attempts that count; the broker drops
the others in the same step. A micro-batch that is written again publishes nothing: the broker knows query and batch,
which only tasks know, so they tell the driver. The sink never reads a checkpoint, and only tasks import Arrow: Spark
commits each batch in a new process.
"""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from wakeq.client.bulk import Columns
from wakeq.pipeline.stream import tasks
from wakeq.pipeline.stream.columns import check_writable
from wakeq.pipeline.stream.options import WriteOptions
from wakeq.protocol.errors import BadSettings, EpochExpired, EpochOld, EpochSettled, QueueNotFound, StashExpired
from wakeq.protocol.wire.worker.commands import ID_CHARS_MAX, STASH_PARTS_MAX

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Identity:
    """Under which names a job or a batch is published."""

    writer: str
    # 0 for a job, which publishes once.
    epoch: int = 0
    # The query whose messages are settled in the same step; only of a stream.
    reader: str = ""
    # The start of the query: in another one, the batch is a repetition.
    run: str = ""


@dataclass
class Stashed(WriterCommitMessage):
    """The stashes of one attempt, with their numbers of messages."""

    identity: Identity
    stashes: list[tuple[str, int]]


class _Writer:
    """The common part of both writers."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_writable({field.name: field.dataType.simpleString() for field in schema.fields})
        self._options = options

    def _stash(self, batches: "Iterator[pa.RecordBatch]", identity: Identity) -> Stashed:
        from wakeq.pipeline.stream.arrow_blocks import columns_of

        tasks.spare_imports()
        options, stashed = self._options, Stashed(identity, [])
        options.broker.check_is_shared(tasks.master())
        absent = {"delay": options.delay, "priority": options.priority}
        pieces = (columns for batch in batches for columns in columns_of(batch, **absent))
        for place, columns in enumerate(pieces):
            part = place % STASH_PARTS_MAX
            name, rows = stashed.stashes.pop() if part else (secrets.token_hex(12), 0)
            try:
                self._send(identity, name, part, columns)
            except EpochOld:
                # It was published, by another run or another attempt of this task, and this attempt is dropped.
                return Stashed(identity, [])
            stashed.stashes.append((name, rows + columns.rows))
        return stashed

    def _send(self, identity: Identity, name: str, part: int, columns: Columns) -> None:
        options = self._options
        options.broker.ask(
            lambda client: client.stash(
                options.queue, name, part, columns, writer=identity.writer, epoch=identity.epoch, keep=options.keep_s,
                delay=options.delay, priority=options.priority, expires=options.expires,
            )
        )  # fmt: skip

    def _publish(self, messages: Sequence[Stashed | None]) -> None:
        """Publish the attempts that count; the others are dropped with that."""
        stashed = [one for one in messages if one is not None]
        # A write without any task has nothing to publish.
        if not stashed:
            return
        identity, stashes = stashed[0].identity, [stash for one in stashed for stash in one.stashes]
        if not stashes and not identity.epoch:
            self._drop(identity)
            return
        options = self._options
        # It is one request, however often it is sent.
        request = secrets.token_hex(12)
        try:
            options.broker.ask(
                lambda client: client.publish_stashes(
                    options.queue, stashes, writer=identity.writer, epoch=identity.epoch, reader=identity.reader,
                    run=identity.run, id=request,
                )
            )  # fmt: skip
        except StashExpired as error:
            raise StashExpired(
                f"the stash for queue {options.queue} expired after {options.keep_s} s, or is not complete: nothing "
                "was published; write again, with a larger option keep if the job takes so long"
            ) from error
        except EpochOld as error:
            raise EpochOld(
                f"nothing was published to queue {options.queue} by writer {identity.writer}: epoch {identity.epoch} "
                f"or a later one was published already; {_reason_of_old(identity)}"
            ) from error
        except EpochExpired as error:
            raise EpochExpired(
                f"nothing was published to queue {options.queue}: the messages that the batch was made of are back in "
                "their queue, because their claim was released, or not renewed in time; start the query again, it "
                "continues with them"
            ) from error
        except EpochSettled as error:
            raise EpochSettled(
                f"nothing was published to queue {options.queue}: the messages of the batch were acknowledged or "
                "published already, by another driver on the same checkpoint (end one of them), by hand, or under "
                "another queue or writer of the sink; `wakeq pipeline release CHECKPOINT` ends such a batch, then "
                "start again"
            ) from error

    def _drop(self, identity: Identity) -> None:
        """Drop everything that was stashed for this epoch."""
        queue, writer, epoch = self._options.queue, identity.writer, identity.epoch
        # Without a queue there are no stashes.
        with suppress(QueueNotFound):
            self._options.broker.ask(lambda client: client.drop_writer(queue, writer=writer, epoch=epoch))


def _name_in(batch: tasks.Batch, writer: str) -> str:
    """Return the name of a writer within a query: a query with a new checkpoint is another writer."""
    if not writer:
        return batch.reader
    most = ID_CHARS_MAX - len(batch.reader) - 1
    if len(writer) > most:
        raise BadSettings(f"option writer has {len(writer)} characters; within a query it may have {most}")
    return f"{batch.reader}/{writer}"


def _reason_of_old(identity: Identity) -> str:
    if identity.reader:
        return "another driver runs on the same checkpoint; end one of them"
    if identity.run:
        return "a second write of one batch to one queue needs a name of its own, so set option writer"
    return "epochs of a writer only grow, so set a higher one"


class QueueWriter(_Writer, DataSourceArrowWriter):
    """A job: all of its messages appear, or none. Within `foreachBatch`, they appear once for each batch."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        super().__init__(options, schema)
        if overwrite:
            raise BadSettings('a queue cannot be overwritten; write with .mode("append")')
        if options.epoch and not options.writer:
            raise BadSettings(f"option epoch is {options.epoch}, but there is no writer; give option writer, too")
        # Pickled with the writer, so all tasks and the driver have the same.
        self._job = Identity(f"job-{secrets.token_hex(12)}")

    def _identity(self) -> Identity:
        options, batch = self._options, tasks.current_batch()
        if options.epoch:
            return Identity(options.writer, options.epoch)
        if batch is not None:
            if not batch.run and not options.writer:
                raise BadSettings(
                    "the jobs of this batch are in a group of their own (setJobGroup), so repeated writes are not "
                    "recognised; name each write of a batch with option writer"
                )
            return Identity(_name_in(batch, options.writer), batch.epoch, run=batch.run)
        if options.writer:
            raise BadSettings(
                f"writer {options.writer!r} needs option epoch, a number that grows with each write; or leave it out"
            )
        return self._job

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Stashed:
        return self._stash(iterator, self._identity())

    def commit(self, messages: Sequence[Any]) -> None:
        self._publish(messages)

    def abort(self, messages: Sequence[Any]) -> None:
        # If no task has told its identity, this is most likely a job; other stashes expire.
        self._drop(next((one.identity for one in messages if one is not None), self._job))


class QueueStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """A query: the messages of each micro-batch appear once."""

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Stashed:
        batch = tasks.current_batch()
        if batch is None or not batch.run:
            raise BadSettings("Spark does not tell the id of this query; use a trigger with micro-batches")
        name = _name_in(batch, self._options.writer)
        return self._stash(iterator, Identity(name, batch.epoch, batch.reader, batch.run))

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        self._publish(messages)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        # What no task has told about is dropped when the next batch is published.
        for identity in {one.identity for one in messages if one is not None}:
            self._drop(identity)
