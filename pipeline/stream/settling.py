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
from wakeq.pipeline.stream.offsets import offset_of, release_offset, settle_offset
from wakeq.protocol.errors import EpochExpired, QueueNotFound, WakeqError

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


def autoack(spark: "SparkSession", *, token: str = "", token_file: str = "", tls: str = "") -> Any:
    """Settle each batch of all queries of a session as soon as it is finished; return the listener.

    `token`, `token_file` and `tls` are those of the queries' options; default is the environment.
    """
    from pyspark.sql.streaming import StreamingQueryListener

    settling = Settling(partial(Broker, token=token, token_file=token_file, tls=tls))

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
    """The result for one queue that a query reads."""

    queue: str
    broker: str
    # The number of messages that were acknowledged, or released.
    count: int


def settle_checkpoint(checkpoint: Checkpoint, broker: str | None = None) -> list[Settled]:
    """Settle the last finished batch of a checkpoint, at its own broker or at the given one.

    All of its queues are settled before the first error is raised.
    """
    settled: list[Settled] = []
    failed: WakeqError | None = None
    for offset in checkpoint.finished():
        try:
            settled.append(_do(settle_offset, offset, broker))
        except (EpochExpired, QueueNotFound) as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return settled


def release_checkpoint(checkpoint: Checkpoint, broker: str | None = None) -> list[Settled]:
    """Release what a query has claimed and not finished; what it has finished is settled first."""
    with suppress(EpochExpired, QueueNotFound):
        settle_checkpoint(checkpoint, broker)
    return [_release(offset, broker) for offset in checkpoint.planned()]


def _release(offset: dict[str, Any], broker: str | None) -> Settled:
    try:
        return _do(release_offset, offset, broker)
    # The messages were deleted together with the queue.
    except QueueNotFound:
        return Settled(offset["queue"], broker or offset["broker"], 0)


def _do(action: Callable[[dict[str, Any], BulkClient], int], offset: dict[str, Any], broker: str | None) -> Settled:
    address = broker or offset["broker"]
    return Settled(offset["queue"], address, action(offset, Broker(address).client()))
