"""QueueStreamReader: a queue as a stream, at least once, with batches that never change.

    latestOffset --> SETTLE finished batches, STAGE: the messages of an epoch are fixed      partitions --> its slices
    read --> SLICE: a task may be repeated; it names query, batch and run                    commit --> SETTLE

An offset names broker, queue, source and epoch, so that it can be settled from a checkpoint. The driver's process
renews the claims of noted batches as long as it lives. Then they lapse after `timeout`, and the messages return to the
queue, unless the sink `wakeq` has published what was made of them. A batch whose claim has lapsed goes on as an empty
one.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from wakeq.client.bulk import BulkClient, Claimed
from wakeq.pipeline.stream import tasks
from wakeq.pipeline.stream.columns import in_blocks
from wakeq.pipeline.stream.offsets import MARK, settle_offset
from wakeq.pipeline.stream.options import NAMED_CLAIM_S, ReadOptions
from wakeq.pipeline.stream.renewals import Renewals
from wakeq.protocol.errors import BadSettings, EpochExpired, EpochSettled, QueueNotFound, WakeqError
from wakeq.protocol.wire.worker.codec import Block
from wakeq.protocol.wire.worker.commands import BLOCK_ROWS_MAX

READ_ROWS = 10_000
# A task costs about 35 ms, so a small batch is not divided further, unless option minPartitions asks for it.
TASK_ROWS_MIN = 100
# Tries to stage: an open epoch may end meanwhile, and a source has at most two open epochs.
STAGES_MAX = 4
# Spark asks for the backlog as often as for messages.
REPORT_EVERY_S = 1.0

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

logger = logging.getLogger("wakeq.pipeline")


@dataclass(slots=True)
class Slices(InputPartition):
    """A part of an epoch: slices from one to before another."""

    # The broker in the offset.
    broker: str
    source: str
    epoch: int
    start: int
    end: int
    # The epoch was over when its batch was planned, so it has no messages for this run.
    is_over: bool = False


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A queue as a stream of staged claims."""

    def __init__(self, options: ReadOptions, parallelism: int) -> None:
        self._options = options
        # The number of slices of an epoch.
        self._slices = options.partitions or parallelism
        self._source = options.source or secrets.token_hex(8)
        # How many messages this run may still take; None: no limit.
        self._left: int | None = None
        # Whether this run ends by itself instead of waiting for messages.
        self._ends = False
        # When an attempt found nothing; 0: the last one found something.
        self._asked_s = 0.0
        # When the last batch was planned; of the first one, when the query began.
        self._planned_s = time.monotonic()
        # Source and number of the last epoch that was staged here, and of the last one that was settled here.
        self._staged: tuple[str, int] | None = None
        self._settled: tuple[str, int] | None = None
        # The batches of this run that went on as empty ones because their claims had lapsed.
        self._lapsed = 0
        self._has_warned = False
        # The last report of the backlog, and when it was made.
        self._report: dict[str, Any] | None = None
        self._reported_s = -REPORT_EVERY_S
        self._renewals = Renewals(options)

    def _ask(self, call: Callable[[BulkClient], T]) -> T:
        return self._options.broker.ask(call)

    # --- in the driver ---------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._offset(self._source, Claimed(0))

    def _offset(self, source: str, claimed: Claimed) -> dict[str, Any]:
        sizes, where = claimed.sizes, {"broker": self._options.broker.address, "queue": self._options.queue}
        about = {"source": source, "epoch": claimed.epoch, "slices": len(sizes), "messages": sum(sizes)}
        return {MARK: 1, **where, **about}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.messages_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Limit this run to the messages that are ready now."""
        self._ends = True
        self._left = int(self._stats().get("ready", 0))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._check(start)
        # Trigger `once` asks for everything.
        self._ends |= isinstance(limit, ReadAllAvailable)
        # Spark asks for the next offset when everything before it has run and is in the checkpoint.
        self.commit(start)
        options, source, left = self._options, start["source"], self._left
        # An earlier run staged an epoch that is not in the checkpoint.
        is_left_over = left is not None and self._has_open(source)
        if left == 0 and not is_left_over:
            return start
        self._pace()
        if left is None and self._waits_for_more():
            return start
        # The first claim of a source is in no checkpoint yet: if the driver dies now, nobody knows its name.
        timeout_s = options.timeout_s if start["epoch"] else min(options.timeout_s, NAMED_CLAIM_S)
        staged = self._stage(source, start["epoch"] + 1, self._count(limit), timeout_s)
        if staged is None:
            return start
        if left is not None and not is_left_over:
            self._left = left - sum(staged.sizes)
        self._asked_s, self._planned_s = 0.0, time.monotonic()
        self._staged = source, staged.epoch
        return self._offset(source, staged)

    def _count(self, limit: ReadLimit) -> int:
        """Return the number of messages to claim."""
        count = BLOCK_ROWS_MAX if isinstance(limit, ReadAllAvailable) else getattr(limit, "max_rows", BLOCK_ROWS_MAX)
        count = min(count, BLOCK_ROWS_MAX, BLOCK_ROWS_MAX if self._left is None else self._left)
        if self._options.bytes_max:
            stats = self._stats()
            mean = stats["bytes"] / stats["size"] if stats.get("size") else 1.0
            count = min(count, int(self._options.bytes_max / max(mean, 1.0)))
        return max(1, count)

    def _waits_for_more(self) -> bool:
        """Whether so few messages are ready that the batch is put off."""
        options = self._options
        if not options.messages_min or time.monotonic() >= self._planned_s + options.delay_s:
            return False
        return int(self._stats().get("ready", 0)) < options.messages_min

    def _stats(self) -> dict[str, Any]:
        """Return the figures of the queue; none if it does not exist."""
        try:
            return self._ask(lambda client: client.stats(self._options.queue))
        except QueueNotFound:
            self._note_missing()
            return {}

    def _note_missing(self) -> None:
        queue, address = self._options.queue, self._options.broker.address
        fails = self._options.fails_on_missing_queue
        # A nightly job with a wrong name would succeed every night otherwise.
        if self._ends if fails is None else fails:
            raise QueueNotFound(
                f"queue {queue} does not exist at {address}; check option queue, or publish to it first"
                + ("; if it may be missing, set failOnMissingQueue to false" if fails is None else "")
            )
        if not self._has_warned:
            then = "ends without messages" if self._ends else "waits for it"
            logger.warning("queue %s does not exist at %s; the query %s", queue, address, then)
            self._has_warned = True

    def _has_open(self, source: str) -> bool:
        options = self._options
        try:
            return self._ask(lambda client: client.renew(options.queue, source, timeout=options.timeout_s)) > 0
        except (EpochExpired, QueueNotFound):
            return False

    def _stage(self, source: str, epoch: int, count: int, timeout_s: int) -> Claimed | None:
        """Claim the next epoch: this one, or a later one if an earlier run had claimed it already."""
        options = self._options
        for _ in range(STAGES_MAX):
            try:
                return self._claim(source, epoch, count, timeout_s)
            except (EpochExpired, EpochSettled):
                epoch = max(epoch + 1, self._ask(lambda client: client.next_epoch(options.queue, source)))
            except QueueNotFound:
                self._note_missing()
                return None
        raise BadSettings(
            f"source {source} of queue {options.queue} is used by another query, too; give each one its own source"
        )

    def _claim(self, source: str, epoch: int, count: int, timeout_s: int) -> Claimed | None:
        queue, slices = self._options.queue, self._slices
        return self._ask(
            lambda client: client.stage(queue, source, epoch, count=count, slices=slices, timeout=timeout_s)
        )

    def _pace(self) -> None:
        """Wait before another attempt if there was nothing: Spark asks a hundred times a second."""
        wait_s = self._asked_s + self._options.poll_s - time.monotonic()
        if self._asked_s and wait_s > 0:
            time.sleep(wait_s)
        self._asked_s = time.monotonic()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the backlog for the progress of the query; None if the broker does not tell it."""
        now_s = time.monotonic()
        if now_s >= self._reported_s + REPORT_EVERY_S:
            self._reported_s = now_s
            try:
                stats = self._options.broker.client().stats(self._options.queue)
            # The query itself tells what is wrong, at its next call.
            except WakeqError:
                self._report = None
            else:
                oldest_ms = stats.get("oldest_ready_ms")
                age_s = max(0, int(time.time() - oldest_ms / 1000)) if oldest_ms else 0
                about = {"ready": stats["ready"], "delayed": stats["delayed"], "oldest_s": age_s}
                self._report = {"queue": self._options.queue, **about, "lapsed": self._lapsed}
        return self._report

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Slices]:
        self._check(end)
        named = end["source"], end["epoch"]
        if named == (start["source"], start["epoch"]):
            return []
        if named != self._staged and self._is_over(end):
            return [Slices(end["broker"], *named, 0, 1, is_over=True)]
        # Spark has noted the batch in its checkpoint.
        self._renewals.keep(end["source"])
        # The first slices are the larger ones, so the last ones of a small epoch are empty.
        slices = min(end["slices"], end["messages"])
        size = 1 if self._options.partitions else -(-slices * TASK_ROWS_MIN // end["messages"])
        return [Slices(end["broker"], *named, at, min(at + size, slices)) for at in range(0, slices, size)]

    def _is_over(self, offset: dict[str, Any]) -> bool:
        """Whether a batch of an earlier run has lost its messages; then it goes on as an empty one."""
        options, part = self._options, (offset["source"], offset["epoch"], 0)
        try:
            self._ask(lambda client: client.read_slice(options.queue, *part, offset=0, count=1))
        except EpochExpired as error:
            if offset["broker"] != options.broker.address and options.fails_on_data_loss:
                raise self._expired(offset["epoch"], offset["broker"], "") from error
            self._lapsed += 1
            logger.warning("%s; the batch goes on without them", self._expired(offset["epoch"], offset["broker"], ""))
            return True
        except (EpochSettled, QueueNotFound):
            return True
        return False

    def commit(self, end: dict[str, Any]) -> None:
        """Settle everything up to an offset: Spark itself reports a batch late, and the last one never."""
        named = end["source"], end["epoch"]
        if not end["epoch"] or named == self._settled:
            return
        try:
            self._ask(lambda client: settle_offset(end, client))
        except QueueNotFound:
            # The messages were deleted together with the queue.
            pass
        except EpochExpired as error:
            # The broker would know if the sink was its own, and had published the batch or its empty repetition.
            if self._options.fails_on_data_loss:
                raise self._expired(
                    end["epoch"],
                    end["broker"],
                    ", and the batch may be processed twice; set failOnDataLoss to false to continue",
                ) from error
        self._settled = named

    def _expired(self, epoch: int, broker: str, consequence: str) -> EpochExpired:
        options = self._options
        # A broker that moved to another address knows the epoch.
        if broker != options.broker.address:
            return EpochExpired(
                f"epoch {epoch} of queue {options.queue} is over, or was never here: the checkpoint is of a query that "
                f"read from {broker}, and this is {options.broker.address}; use another checkpoint, or that broker"
            )
        back = "was released, or not settled in time: its messages are back in the queue"
        return EpochExpired(f"epoch {epoch} of queue {options.queue} {back}{consequence}")

    def _check(self, offset: dict[str, Any]) -> None:
        if offset.get("queue") != self._options.queue:
            had = offset.get("queue")
            raise BadSettings(f"the checkpoint is of queue {had!r}, not of {self._options.queue!r}; use another one")

    def __getstate__(self) -> dict[str, Any]:
        # The renewing thread is not pickled.
        return self.__dict__ | {"_renewals": Renewals(self._options)}

    # --- in the workers --------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, Slices), "as planned"
        tasks.spare_imports()
        self._options.broker.check_is_shared(tasks.master())
        for place in range(partition.start, partition.end):
            yield from self._read_slice(partition, place)

    def _read_slice(self, part: Slices, place: int) -> "Iterator[pa.RecordBatch]":
        from wakeq.pipeline.stream.arrow_blocks import batch_of

        options, offset = self._options, 0
        while True:
            try:
                block = self._look(part, place, offset)
            except (EpochExpired, EpochSettled, QueueNotFound) as error:
                # The broker knows now that this run goes on without the messages.
                if part.is_over and (not isinstance(error, EpochSettled) or not options.fails_on_data_loss):
                    return
                raise self._ended(part, error) from error
            if block.rows and part.is_over:
                # Publishing would take the whole epoch for processed, and this is a part of it.
                raise EpochExpired(
                    f"epoch {part.epoch} of queue {options.queue} was over when the batch was planned, and is open: "
                    "another driver runs on the same checkpoint; end one of them, and start the other one again"
                )
            if block.rows:
                yield batch_of(block, options.queue, options.columns)
            if not block.next:
                return
            offset = block.next

    def _look(self, part: Slices, place: int, offset: int) -> Block:
        queue, batch = self._options.queue, tasks.current_batch()
        named = (part.source, part.epoch, place)
        columns = in_blocks(self._options.columns)
        about: dict[str, Any] = {"offset": offset, "count": READ_ROWS, "columns": columns}
        # A batch whose run is not known is one of `foreachBatch`, whose writes do not name their reader.
        if batch is not None and batch.run:
            about |= {"reader": batch.reader, "batch": batch.epoch, "run": batch.run}
        return self._ask(lambda client: client.read_slice(queue, *named, **about))

    def _ended(self, part: Slices, error: WakeqError) -> WakeqError:
        """Return the error for an epoch that ended before this task had read it."""
        if isinstance(error, EpochExpired):
            return self._expired(part.epoch, part.broker, "; start the query again, it continues with later messages")
        if isinstance(error, EpochSettled):
            return EpochSettled(
                f"epoch {part.epoch} of queue {self._options.queue} is acknowledged, and this query has not finished "
                "its batch: another driver runs on the same checkpoint or a copy of it, or another program settled its "
                "source; end that one, or set failOnDataLoss to false to continue with later messages"
            )
        return error
