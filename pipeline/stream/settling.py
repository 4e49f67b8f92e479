"""Settling: acknowledges the finished batches of a query, which Spark itself does late or never.

    progress of a query --> its offsets --> SETTLE          a checkpoint --> the offsets of its last batch --> SETTLE

A running query settles a batch when the next one is planned. Both ways here do that earlier, the second one for a query
that was stopped before; doing it twice changes nothing.
"""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wakeq.pipeline.stream.options import client_of
from wakeq.pipeline.stream.reader import offset_of, settle_offset
from wakeq.protocol.errors import BadSettings, EpochExpired, QueueNotFound, WakeqError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("wakeq.pipeline")


class Settling:
    """Settles in a thread of its own: Spark calls all listeners of all queries one after the other, and must not wait.

    A later offset also settles all earlier ones, so only the last offset of each source waits. A program that ends
    waits for the remaining ones.
    """

    def __init__(self) -> None:
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
            settle_offset(offset, client_of(offset["broker"]))
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


def autoack(spark: "SparkSession") -> Any:
    """Settle each batch of all queries of a session as soon as it is finished; return the listener."""
    from pyspark.sql.streaming import StreamingQueryListener

    settling = Settling()

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
    # The number of messages that were acknowledged now.
    count: int


def settle_checkpoint(checkpoint: Path, broker: str | None = None) -> list[Settled]:
    """Settle the last finished batch of a checkpoint, at its own broker or at the given one."""
    lines = _finished_offsets(checkpoint)
    offsets = [offset for offset in map(offset_of, lines) if offset is not None]
    if lines and not offsets:
        raise BadSettings(f"{checkpoint}: no stream of its query is a queue of wakeq")
    return [_settle(offset, broker or offset["broker"]) for offset in offsets]


def _settle(offset: dict[str, Any], broker: str) -> Settled:
    return Settled(offset["queue"], broker, settle_offset(offset, client_of(broker)))


def _finished_offsets(checkpoint: Path) -> list[str]:
    """Return the offsets of the last finished batch of a checkpoint."""
    commits, offsets = checkpoint / "commits", checkpoint / "offsets"
    if not offsets.is_dir():
        raise BadSettings(f"{checkpoint} is not the checkpoint of a streaming query: it has no directory offsets")
    batches = [int(path.name) for path in commits.glob("*") if path.name.isdecimal()]
    if not batches:
        return []
    lines = (offsets / str(max(batches))).read_text(encoding="utf-8").splitlines()
    # The first two lines are a version and Spark's own data.
    return lines[2:]
