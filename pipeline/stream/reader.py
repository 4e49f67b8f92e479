"""QueueStreamReader: a queue as a stream, at least once, with batches that stay what they were.

    latestOffset --> SETTLE what ran, STAGE: the messages of an epoch are fixed         partitions --> its slices
    read --> SLICE: no side effect, so a task may be tried again                        commit --> SETTLE

An offset names broker, queue, source and epoch, so that whoever finds one in a checkpoint can settle it.  Claims are
renewed from the driver's process for as long as that lives; then they lapse, and the messages go back.
"""

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from wakeq.client.bulk import BulkClient, Claimed
from wakeq.pipeline.stream.arrow_blocks import batch_of
from wakeq.pipeline.stream.options import ReadOptions, client_of
from wakeq.protocol.errors import NOT_NOW, BadSettings, EpochExpired, QueueNotFound
from wakeq.protocol.wire.worker.commands import BLOCK_ROWS_MAX

RENEWALS_A_TIMEOUT = 3
NOTHING_OPEN = (EpochExpired, QueueNotFound)

MARK = "wakeq"  # by which an offset is known as ours
READ_ROWS = 10_000
STAGES_MAX = 4  # tries: what is open may end while it is asked for, and of a source two epochs are open at most


class Renewals:
    """See the head of this file."""

    def __init__(
        self,
        options: ReadOptions,
        *,
        connect: Callable[[str], BulkClient] = BulkClient,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._connect = connect
        self._sleep = sleep
        self._source = ""
        self._failed: Exception | None = None
        self.thread: threading.Thread | None = None

    def keep(self, source: str) -> None:
        """Renew what is open of this source from now on; raise what kept it from that."""
        if self._failed is not None:
            raise self._failed
        if self._source != source:
            self._source = source
            self.thread = threading.Thread(target=self._run, args=(source,), name="wakeq-renew", daemon=True)
            self.thread.start()

    def _run(self, source: str) -> None:
        options, client = self._options, None
        while self._source == source:
            try:
                client = client or self._connect(options.broker)
                client.renew(options.queue, source, timeout=options.timeout_s)
            except (*NOTHING_OPEN, *NOT_NOW):
                pass  # there will be something, or the broker again: who reads hears of it if it was too late
            except Exception as error:  # a thread has nobody to raise it to
                self._failed = error
                return
            self._sleep(options.timeout_s / RENEWALS_A_TIMEOUT)


@dataclass(slots=True)
class Slice(InputPartition):
    """A part of an epoch."""

    broker: str  # where its offset was made
    source: str
    epoch: int
    place: int


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the head of this file."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._source = options.source or secrets.token_hex(8)
        self._left: int | None = None  # messages that this run may still take; None: as many as come
        self._looked_s = 0.0
        self._settled: tuple[str, int] | None = None  # the last epoch that was settled here
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
        """What is ready now is what this run takes."""
        options = self._options
        try:
            self._left = int(client_of(options.broker).stats(options.queue)["ready"])
        except QueueNotFound:
            self._left = 0

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._check(start)
        self.commit(start)  # Spark asks for more when all up to here has run and is noted in the checkpoint
        source, left = start["source"], self._left
        is_left_over = left is not None and self._has_open(source)  # a run before this did not come to write it down
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
        """Claim the next epoch: this one, or whichever comes next where a run before this went further."""
        options, client = self._options, client_of(self._options.broker)
        self._pace()
        about = {"count": count, "slices": options.partitions, "timeout": options.timeout_s}
        for _ in range(STAGES_MAX):
            try:
                claimed = client.stage(options.queue, source, epoch, **about)
            except EpochExpired:
                epoch = max(epoch + 1, client.next_epoch(options.queue, source))
            except QueueNotFound:
                return None
            else:
                if claimed is not None:
                    self._looked_s = 0.0
                return claimed
        raise BadSettings(
            f"source {source} of queue {options.queue} is used by another query too; give each its own by option source"
        )

    def _pace(self) -> None:
        """Spark asks a hundred times a second: look again only after a while if there was nothing."""
        wait_s = self._looked_s + self._options.poll_s - time.monotonic()
        if self._looked_s and wait_s > 0:
            time.sleep(wait_s)
        self._looked_s = time.monotonic()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Slice]:
        self._check(end)
        if end["epoch"] == start["epoch"] and end["source"] == start["source"]:
            return []
        if not self._options.fails_on_data_loss and self._is_over(end):
            return []
        self._renewals.keep(end["source"])
        return [Slice(end["broker"], end["source"], end["epoch"], place) for place in range(end["slices"])]

    def _is_over(self, offset: dict[str, Any]) -> bool:
        """Whether the messages of a batch are back: then all of it is left to a later one, and not a part."""
        options, part = self._options, (offset["source"], offset["epoch"], 0)
        try:
            client_of(options.broker).read_slice(options.queue, *part, offset=0, count=1)
        except EpochExpired:
            return True
        return False

    def commit(self, end: dict[str, Any]) -> None:
        """Settle everything up to an offset: Spark itself tells of a batch late, and of the last one never."""
        named = end["source"], end["epoch"]
        if not end["epoch"] or named == self._settled:
            return
        try:
            settle_offset(end, client_of(self._options.broker))
        except QueueNotFound:
            pass  # with it went what was to be settled
        except EpochExpired as error:
            if self._options.fails_on_data_loss:
                raise self._too_late(
                    end["epoch"],
                    end["broker"],
                    ", and what the batch did may be done twice; set failOnDataLoss to false to go on",
                ) from error
        self._settled = named

    def _too_late(self, epoch: int, broker: str, consequence: str) -> EpochExpired:
        options = self._options
        if broker != options.broker:  # it may have moved; but then it knows the epoch
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
        return self.__dict__ | {"_renewals": Renewals(self._options)}  # no thread goes along

    # --- in the workers --------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Slice), "as planned"
        options, offset = self._options, 0
        client, part = client_of(options.broker), (partition.source, partition.epoch, partition.place)
        while True:
            try:
                block = client.read_slice(options.queue, *part, offset=offset, count=READ_ROWS)
            except EpochExpired as error:
                raise self._too_late(
                    partition.epoch,
                    partition.broker,
                    "; start with a new checkpoint, or set failOnDataLoss to false to go on with what comes",
                ) from error
            if block.rows:
                yield batch_of(block, options.queue, has_headers=options.has_headers)
            if not block.next:
                return
            offset = block.next


def offset_of(text: str | None) -> dict[str, Any] | None:
    """Return an offset as it stands in a checkpoint or in a progress report, if it is ours."""
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) and MARK in found else None


def settle_offset(offset: dict[str, Any], client: BulkClient) -> int:
    """Acknowledge everything up to an offset; again does nothing."""
    return client.settle(offset["queue"], offset["source"], offset["epoch"]) if offset["epoch"] else 0
