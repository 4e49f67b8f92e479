"""Loading: the rows of a source become messages, batch by batch, each once, however often the command is repeated.

    Files, LakeMessages --> batches with their positions --> STASH, UNSTASH (writer: the load, epoch: the position)

The broker knows how far a load has come: the same command continues there, at any rate.  The order of the rows, and so
their positions, depend on the source alone, not on the condition or the size of the batches.
"""

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from wakeq.client.bulk import BulkClient
from wakeq.pipeline.stream.arrow_blocks import columns_of
from wakeq.protocol.errors import EpochOld, QueueNotFound

BATCH_ROWS = 10_000
STASH_S = 600


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages, and the position of the source behind them."""

    end: int
    messages: pa.RecordBatch


class Source(Protocol):
    """Rows in an order that never changes; each part has positions of its own, from 1."""

    @property
    def identity(self) -> object:
        """All that decides about the messages; its text is the same in every run."""
        ...

    @property
    def parts(self) -> Sequence[str]: ...

    def batches(self, part: str, after: int, rows: int) -> Iterator[Batch]:
        """Yield what is behind a position, at most so many messages at once, and no empty batch."""
        ...

    def count(self, part: str, after: int) -> int:
        """Return the number of messages behind a position."""
        ...


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a load."""

    # Published by this run.
    rows: int
    # Another run has published some before.
    continues: bool


def load(
    client: BulkClient,
    source: Source,
    queue: str,
    *,
    name: str | None = None,
    rate: int | None = None,
    batch_rows: int = BATCH_ROWS,
    tell: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Publish every row of the source once; at most `rate` messages a second."""
    batch_rows = min(batch_rows, rate or batch_rows)
    progress = Progress(0, continues=False)
    for part, writer in _writers(source, queue, name):
        done = _position(client, queue, writer)
        progress = Progress(progress.rows, progress.continues or done > 0)
        for batch in source.batches(part, done, batch_rows):
            began_s = time.monotonic()
            rows = _publish(client, queue, writer, batch)
            progress = Progress(progress.rows + rows, progress.continues or rows == 0)
            tell(progress)
            if rate is not None:
                time.sleep(max(0.0, began_s + batch.messages.num_rows / rate - time.monotonic()))
    return progress


def count(client: BulkClient, source: Source, queue: str, *, name: str | None = None) -> int:
    """Return the number of messages that `load` would publish."""
    writers = _writers(source, queue, name)
    return sum(source.count(part, _position(client, queue, writer)) for part, writer in writers)


def _writers(source: Source, queue: str, name: str | None) -> list[tuple[str, str]]:
    """Return each part with the name under which the broker knows it."""
    if name is None:
        name = hashlib.sha256(repr((source.identity, queue)).encode()).hexdigest()[:32]
    return [(part, f"load-{name}-{part}" if part else f"load-{name}") for part in source.parts]


def _publish(client: BulkClient, queue: str, writer: str, batch: Batch) -> int:
    """Publish a batch unless another run did; return the number of messages."""
    # A new name: under an old one the broker may have rows of an earlier run, with other contents.
    stash = f"load-{secrets.token_hex(16)}"
    try:
        for part, columns in enumerate(columns_of(batch.messages)):
            client.stash(queue, stash, part, columns, keep=STASH_S, writer=writer, epoch=batch.end)
        # What earlier runs have stashed and did not publish is dropped with this.
        stashes = [(stash, batch.messages.num_rows)]
        return client.publish_stashes(queue, stashes, writer=writer, epoch=batch.end)
    except EpochOld:
        # Another run is loading the same rows, and was faster; the broker has dropped these.
        return 0


def _position(client: BulkClient, queue: str, writer: str) -> int:
    try:
        return client.writer_epoch(queue, writer)
    except QueueNotFound:
        return 0
