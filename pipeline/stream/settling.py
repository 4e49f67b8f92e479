"""Settling: acknowledges the finished batches of a query, which Spark itself does late or never.

    progress of a query --> its offsets --> SETTLE          a checkpoint --> its last batches --> SETTLE, RELEASE

A running query settles a batch when the next one is planned. Both ways here do that earlier, the second one for a query
that was stopped before; doing it twice changes nothing.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from wakeq.client.bulk import BulkClient
from wakeq.pipeline.stream.broker import Broker
from wakeq.pipeline.stream.checkpoint import Checkpoint
from wakeq.pipeline.stream.offsets import offset_of, settle_offset
from wakeq.protocol.errors import BadSettings, EpochExpired, EpochSettled, QueueNotFound, WakeqError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("wakeq.pipeline")


class Settling:
    """Settles in a thread of its own: Spark calls all listeners of all queries one after the other, and must not wait.

    A later offset also settles all earlier ones, so only the last offset of each source waits. A program that ends
    waits for the remaining ones.
    """

    def __init__(self, reach: Callable[[str], Broker] = Broker) -> None:
        # How to reach the broker at an address.
        self._reach = reach
        self._lock = threading.Lock()
        # The last finished offset by broker, queue and source.
        self._finished: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._thread = ThreadPoolExecutor(1, "wakeq-settling")

    def finished(self, offset: dict[str, Any]) -> None:
        """Settle everything up to this offset, soon."""
        key = offset["broker"], offset["queue"], offset["source"]
        with self._lock:
            waits = key in self._finished
            self._finished[key] = offset
        if not waits:
            self._thread.submit(self._settle, key)

    def _settle(self, key: tuple[str, str, str]) -> None:
        with self._lock:
            offset = self._finished.pop(key)
        try:
            settle_offset(offset, self._reach(offset["broker"]).client())
        except (EpochExpired, QueueNotFound):
            # The query gets the same error itself.
            pass
        except WakeqError as error:
            logger.warning(
                "queue %s: a finished batch was not settled: %s; the next batch settles it, too", key[1], error
            )
        except Exception:
            # Nobody waits for the result of this thread, so an exception must be logged here.
            logger.exception("queue %s: a finished batch was not settled", key[1])


def autoack(
    spark: "SparkSession",
    *,
    token: str = "",
    tokenFile: str = "",  # noqa: N803
    tls: str = "",
) -> Any:
    """Settle each batch of all queries of a session as soon as it is finished; return the listener.

    `token`, `tokenFile` and `tls` are those of the queries' options; default is the environment.
    """
    from pyspark.sql.streaming import StreamingQueryListener

    settling = Settling(partial(Broker, token=token, token_file=tokenFile, tls=tls))

    class Settler(StreamingQueryListener):
        """Called by Spark after every batch."""

        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            """Do nothing: no batch is finished yet."""

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            for source in event.progress.sources:
                offset = offset_of(source.endOffset)
                if offset is not None:
                    settling.finished(offset)

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            """Do nothing: no batch was finished since."""

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            """Do nothing: all finished batches were reported before."""

    listener = Settler()
    spark.streams.addListener(listener)
    return listener


@dataclass(frozen=True, slots=True)
class Settled:
    """What was settled in one queue that a query reads."""

    queue: str
    broker: str
    # The number of messages that were acknowledged.
    acknowledged: int
    # The number of messages of a batch that is not finished, whose claim goes on.
    held: int = 0


@dataclass(frozen=True, slots=True)
class Released:
    """What became of the claims of a query in one queue that it reads."""

    queue: str
    broker: str
    acknowledged: int
    released: int


def settle_checkpoint(checkpoint: Checkpoint, broker: str | None = None) -> list[Settled]:
    """Settle the last finished batch of a checkpoint, at its own broker or at the given one.

    All of its queues are settled before the first error is raised.
    """
    finished = {_name_of(offset): offset for offset in checkpoint.finished()}
    settled: list[Settled] = []
    failed: WakeqError | None = None
    for offset in checkpoint.planned():
        address = broker or offset["broker"]
        client, done = Broker(address).client(), finished.get(_name_of(offset))
        try:
            count = settle_offset(done, client) if done is not None else 0
            settled.append(Settled(offset["queue"], address, count, _held(offset, client) if offset["epoch"] else 0))
        except (EpochExpired, QueueNotFound) as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return settled


def _name_of(offset: dict[str, Any]) -> tuple[str, str]:
    return offset["queue"], offset["source"]


def _held(offset: dict[str, Any], client: BulkClient) -> int:
    """Return how many messages the claim of a planned batch has; 0 if it is over, or what came of it is published."""
    try:
        client.read_slice(offset["queue"], offset["source"], offset["epoch"], 0, offset=0, count=1, columns=["uid"])
    except (EpochExpired, EpochSettled):
        return 0
    return int(offset["messages"])


def release_checkpoint(checkpoint: Checkpoint, broker: str | None = None) -> list[Released]:
    """Release what a query has claimed and not finished; what it has finished is settled first."""
    finished = {_name_of(offset): offset for offset in checkpoint.finished()}
    released = []
    for offset in checkpoint.planned():
        address, acknowledged, count = broker or offset["broker"], 0, 0
        client, done = Broker(address).client(), finished.get(_name_of(offset))
        # If the queue was deleted, its messages were, too.
        with suppress(QueueNotFound):
            with suppress(EpochExpired):
                acknowledged = settle_offset(done, client) if done is not None else 0
            more, count = _release(client, *_name_of(offset))
            acknowledged += more
        released.append(Released(offset["queue"], address, acknowledged, count))
    return released


def release_source(client: BulkClient, queue: str, source: str) -> tuple[int, int]:
    """End the claims of a source; return how many messages were acknowledged, because published, and released."""
    before = client.next_epoch(queue, source)
    ended = _release(client, queue, source)
    if before == 1 and not any(ended):
        raise BadSettings(
            f"queue {queue} knows no source {source}; `wakeq pipeline claims {queue}` lists those with claims"
        )
    return ended


def _release(client: BulkClient, queue: str, source: str) -> tuple[int, int]:
    # Of the epochs before this one, those that are open are published.
    through, acknowledged = client.next_epoch(queue, source) - 1, 0
    if through:
        with suppress(EpochExpired):
            acknowledged = client.settle(queue, source, through)
    return acknowledged, client.release(queue, source)
