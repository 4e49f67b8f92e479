"""Settling: acknowledging what a query has finished, where Spark itself does so late or never.

    progress of a query --> its offsets --> SETTLE          a checkpoint --> the offsets of its last batch --> SETTLE

A running query settles a batch when the next one is planned, or is looked for.  Both ways here do the same earlier, or
for a query that was stopped before it looked again; doing it once more changes nothing.
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
    """Settles beside Spark, which tells all its listeners of all queries one after the other: no broker holds that up.

    What was finished later settles what was before, so of each source only the last offset waits.  A program that ends
    waits for what is left.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._finished: dict[tuple[str, str, str], dict[str, Any]] = {}  # by broker, queue and source
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
            pass  # the query hears of it itself
        except WakeqError as error:
            logger.warning("queue %s: a finished batch is not settled: %s; the next one settles it, too", key[1], error)
        except Exception:  # nobody waits for this thread, and what it raises would be seen by nobody
            logger.exception("queue %s: a finished batch is not settled", key[1])


def autoack(spark: "SparkSession") -> Any:
    """Settle each batch as soon as it is finished, from now on, for all queries of a session; return the listener."""
    from pyspark.sql.streaming import StreamingQueryListener

    settling = Settling()

    class Settler(StreamingQueryListener):
        """Hears of every finished batch."""

        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            """Nothing is finished yet."""

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            for source in event.progress.sources:
                offset = offset_of(source.endOffset)
                if offset is not None:
                    settling.finished(offset)

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            """Nothing was finished since."""

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            """What it finished was heard before."""

    listener = Settler()
    spark.streams.addListener(listener)
    return listener


@dataclass(frozen=True, slots=True)
class Settled:
    """What came of settling one queue that a query reads."""

    queue: str
    broker: str
    count: int  # messages that this acknowledged


def settle_checkpoint(checkpoint: Path, broker: str | None = None) -> list[Settled]:
    """Settle what the last finished batch had read, at its own broker or at this one; nothing if none is finished."""
    lines = _finished_offsets(checkpoint)
    offsets = [offset for offset in map(offset_of, lines) if offset is not None]
    if lines and not offsets:
        raise BadSettings(f"{checkpoint}: no stream of its query is a queue of wakeq")
    return [_settle(offset, broker or offset["broker"]) for offset in offsets]


def _settle(offset: dict[str, Any], broker: str) -> Settled:
    return Settled(offset["queue"], broker, settle_offset(offset, client_of(broker)))


def _finished_offsets(checkpoint: Path) -> list[str]:
    """Return the offsets of the last batch that a checkpoint says is finished."""
    commits, offsets = checkpoint / "commits", checkpoint / "offsets"
    if not offsets.is_dir():
        raise BadSettings(f"{checkpoint} is not the checkpoint of a streaming query: it has no directory offsets")
    batches = [int(path.name) for path in commits.glob("*") if path.name.isdecimal()]
    if not batches:
        return []
    lines = (offsets / str(max(batches))).read_text(encoding="utf-8").splitlines()
    return lines[2:]  # behind the version and Spark's own
