"""SkippedEntries: the entries of the log that this node leaves out because they crash their queue.  Pure.

SetAside, or what the state store knows of earlier ones --> is it skipped? --> what the next flush writes down
"""

from collections.abc import Iterable

import msgspec

from wakeq.protocol.log.entries import SetAside


class SkippedEntries:
    """All nodes skip the same ones."""

    def __init__(self) -> None:
        # The index of each.
        self.indexes: set[int] = set()
        # Those whose SetAside stands further on in the log, as a start has found.
        self._foreseen: dict[int, SetAside] = {}
        # The record of each that was skipped since the last flush.
        self._unwritten: dict[int, bytes] = {}

    def restore(self, indexes: Iterable[int]) -> None:
        """Take those that the state store knows."""
        self.indexes.update(indexes)

    def foresee(self, entries: Iterable[SetAside]) -> None:
        """Take those that the log names further on, so that a flush before that is right; before any mail."""
        self._foreseen = {entry.index: entry for entry in entries}
        self.indexes.update(self._foreseen)

    def take_foreseen(self, index: int) -> SetAside | None:
        """Return what a start has found about an entry, the first time that somebody asks."""
        return self._foreseen.pop(index, None)

    def skip(self, entry: SetAside) -> None:
        """Skip an entry, and have the next flush record that the state does not contain it."""
        self.indexes.add(entry.index)
        self._unwritten[entry.index] = msgspec.msgpack.encode({"queue": entry.queue, "reason": entry.reason})

    @property
    def has_unwritten(self) -> bool:
        return bool(self._unwritten)

    def take_unwritten(self) -> dict[int, bytes]:
        """Return the records of those that were skipped since the last call."""
        unwritten, self._unwritten = self._unwritten, {}
        return unwritten
