"""QueueStreamReader: a queue as a stream, at least once, with batches that never change.

    latestOffset --> SETTLE finished batches, STAGE: the messages of an epoch are fixed      partitions --> its slices
    read --> SLICE: without side effects, so a task may be repeated                          commit --> SETTLE

An offset names broker, queue, source and epoch, so that it can be settled from a checkpoint. The driver's process
renews the claims as long as it lives; then they time out, and the messages return to the queue.
"""

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from wakeq.client.bulk import BulkClient, Claimed
from wakeq.pipeline.stream.arrow_blocks import batch_of
from wakeq.pipeline.stream.options import ReadOptions, client_of
from wakeq.pipeline.stream.renewals import Renewals
from wakeq.protocol.errors import BadSettings, EpochExpired, EpochSettled, QueueNotFound
from wakeq.protocol.wire.worker.commands import BLOCK_ROWS_MAX

# An offset with this key is one of this data source.
MARK = "wakeq"
READ_ROWS = 10_000
# Tries to stage: an open epoch may end meanwhile, and a source has at most two open epochs.
STAGES_MAX = 4


@dataclass(slots=True)
class Slice(InputPartition):
    """A part of an epoch."""

    # The broker in the offset.
    broker: str
    source: str
    epoch: int
    place: int


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A queue as a stream of staged claims."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._source = options.source or secrets.token_hex(8)
        # How many messages this run may still take; None: no limit.
        self._left: int | None = None
        self._asked_s = 0.0
        # Source and number of the last epoch that was settled here.
        self._settled: tuple[str, int] | None = None
        self._renewals = Renewals(options)

    # --- in the driver ---------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._offset(self._source, 0, 0)

    def _offset(self, source: str, epoch: int, slices: int) -> dict[str, Any]:
        where = {"broker": self._options.broker, "queue": self._options.queue}
        return {MARK: 1, **where, "source": source, "epoch": epoch, "slices": slices}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.messages_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Limit this run to the messages that are ready now."""
        options = self._options
        try:
            self._left = int(client_of(options.broker).stats(options.queue)["ready"])
        except QueueNotFound:
            self._left = 0

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._check(start)
        # Spark asks for the next offset when everything before it has run and is in the checkpoint.
        self.commit(start)
        source, left = start["source"], self._left
        # An earlier run staged an epoch that is not in the checkpoint.
        is_left_over = left is not None and self._has_open(source)
        count = BLOCK_ROWS_MAX if isinstance(limit, ReadAllAvailable) else getattr(limit, "max_rows", BLOCK_ROWS_MAX)
        count = min(count, BLOCK_ROWS_MAX) if left is None else min(count, BLOCK_ROWS_MAX, left)
        if count <= 0 and not is_left_over:
            return start
        staged = self._stage(source, start["epoch"] + 1, max(1, count))
        if staged is None:
            return start
        if left is not None and not is_left_over:
            self._left = left - sum(staged.sizes)
        self._renewals.keep(source)
        return self._offset(source, staged.epoch, len(staged.sizes))

    def _has_open(self, source: str) -> bool:
        options = self._options
        try:
            return client_of(options.broker).renew(options.queue, source, timeout=options.timeout_s) > 0
        except (EpochExpired, QueueNotFound):
            return False

    def _stage(self, source: str, epoch: int, count: int) -> Claimed | None:
        """Claim the next epoch: this one, or a later one if an earlier run had claimed it already."""
        options, client = self._options, client_of(self._options.broker)
        self._pace()
        about = {"count": count, "slices": options.partitions, "timeout": options.timeout_s}
        for _ in range(STAGES_MAX):
            try:
                claimed = client.stage(options.queue, source, epoch, **about)
            except (EpochExpired, EpochSettled):
                epoch = max(epoch + 1, client.next_epoch(options.queue, source))
            except QueueNotFound:
                return None
            else:
                if claimed is not None:
                    self._asked_s = 0.0
                return claimed
        raise BadSettings(
            f"source {source} of queue {options.queue} is used by another query, too; give each one its own source"
        )

    def _pace(self) -> None:
        """Wait before another attempt if there was nothing: Spark asks a hundred times a second."""
        wait_s = self._asked_s + self._options.poll_s - time.monotonic()
        if self._asked_s and wait_s > 0:
            time.sleep(wait_s)
        self._asked_s = time.monotonic()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Slice]:
        self._check(end)
        if end["epoch"] == start["epoch"] and end["source"] == start["source"]:
            return []
        if not self._options.fails_on_data_loss and self._is_over(end):
            return []
        self._renewals.keep(end["source"])
        return [Slice(end["broker"], end["source"], end["epoch"], place) for place in range(end["slices"])]

    def _is_over(self, offset: dict[str, Any]) -> bool:
        """Whether the messages of a batch have returned to the queue; then all of it is left to a later batch."""
        options, part = self._options, (offset["source"], offset["epoch"], 0)
        try:
            client_of(options.broker).read_slice(options.queue, *part, offset=0, count=1)
        except (EpochExpired, EpochSettled):
            return True
        return False

    def commit(self, end: dict[str, Any]) -> None:
        """Settle everything up to an offset: Spark itself reports a batch late, and the last one never."""
        named = end["source"], end["epoch"]
        if not end["epoch"] or named == self._settled:
            return
        try:
            settle_offset(end, client_of(self._options.broker))
        except QueueNotFound:
            # The messages were deleted together with the queue.
            pass
        except EpochExpired as error:
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
        if broker != options.broker:
            return EpochExpired(
                f"epoch {epoch} of queue {options.queue} is over, or was never here: the checkpoint is of a query that "
                f"read from {broker}, and this is {options.broker}; use another checkpoint, or that broker"
            )
        back = "was not settled in time: its messages are back in the queue"
        return EpochExpired(f"epoch {epoch} of queue {options.queue} {back}{consequence}")

    def _check(self, offset: dict[str, Any]) -> None:
        if offset.get("queue") != self._options.queue:
            had = offset.get("queue")
            raise BadSettings(f"the checkpoint is of queue {had!r}, not of {self._options.queue!r}; use another one")

    def __getstate__(self) -> dict[str, Any]:
        # The renewing thread is not pickled.
        return self.__dict__ | {"_renewals": Renewals(self._options)}

    # --- in the workers --------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Slice), "as planned"
        options, offset = self._options, 0
        client, part = client_of(options.broker), (partition.source, partition.epoch, partition.place)
        while True:
            try:
                block = client.read_slice(options.queue, *part, offset=offset, count=READ_ROWS)
            except EpochExpired as error:
                raise self._expired(
                    partition.epoch,
                    partition.broker,
                    "; start with a new checkpoint, or set failOnDataLoss to false to continue with later messages",
                ) from error
            if block.rows:
                yield batch_of(block, options.queue, has_headers=options.has_headers)
            if not block.next:
                return
            offset = block.next


def offset_of(text: str | None) -> dict[str, Any] | None:
    """Return an offset from a checkpoint or progress report; None if it belongs to another data source."""
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) and MARK in found else None


def settle_offset(offset: dict[str, Any], client: BulkClient) -> int:
    """Acknowledge everything up to an offset; a repetition does nothing."""
    return client.settle(offset["queue"], offset["source"], offset["epoch"]) if offset["epoch"] else 0
