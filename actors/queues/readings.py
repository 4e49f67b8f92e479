"""Readings: which queues a reader has read from, and in which batch, over all queues of this node.

    a queue has applied who reads its sources --> note          whoever publishes for a reader --> queues_of

It follows from the ledgers of the queues, and is the same on every node that has applied the same entries.  It may be
asked only while no queue is behind the others.  Must never say anything about a single message.
"""

from collections.abc import Callable, Mapping


class Readings:
    """The last batch of each reader, by the queue that it reads from."""

    def __init__(self) -> None:
        # By queue: the last batch of each reader of its sources; queues without readers are left out.
        self._batches: dict[str, Mapping[str, int]] = {}
        # Whether a queue of this node may not have applied all that others have: it does so in steps, or is rebuilt.
        self.is_behind: Callable[[], bool] = lambda: False

    def note(self, queue: str, batches: Mapping[str, int]) -> None:
        """Take the readers of a queue, in place of those that were noted before."""
        if batches:
            self._batches[queue] = batches
        else:
            self._batches.pop(queue, None)

    def queues_of(self, reader: str, batch: int) -> list[str]:
        """Return the queues that a reader has read in this batch, by name."""
        return sorted(queue for queue, batches in self._batches.items() if batches.get(reader) == batch)
