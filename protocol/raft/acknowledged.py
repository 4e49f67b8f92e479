"""Acknowledged: up to which committed entry each disk is known to have the log.  Pure.

    what the leader sees of its followers, what heartbeats and votes tell --> the highest index of each disk

It is a fact that never changes, so it may travel late and by anybody.  A node whose own disk has less is on an old
copy of it, or on one that was set back, and finds that out by itself as soon as it is told.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from wakeq.protocol.raft.messages import Told

DISKS_MAX: Final = 16  # more are kept by nobody: no cluster has so many voters


class Acknowledged:
    """Invariant: an index never falls, and there are at most DISKS_MAX of them."""

    def __init__(self, known: Iterable[tuple[int, int]] = ()) -> None:
        self._by_disk = dict(known)

    def of(self, disk_id: int) -> int:
        """Return up to where this disk must have the log; 0 if nothing is known of it."""
        return self._by_disk.get(disk_id, 0)

    def learn(self, told: Sequence[tuple[int, int]]) -> None:
        """Take what a leader tells; of too many disks those stay of which it tells."""
        by_disk = self._by_disk
        for disk_id, index in told:
            if index > by_disk.get(disk_id, 0):
                by_disk[disk_id] = index
        if len(by_disk) > DISKS_MAX:
            current = {disk_id for disk_id, _ in told}
            kept = sorted(by_disk.items(), key=lambda item: (item[0] in current, item[1]), reverse=True)
            self._by_disk = dict(kept[:DISKS_MAX])

    def told(self) -> Told:
        """Return all of it, in the order of the disks: to be told to others, or to be kept."""
        return tuple(sorted(self._by_disk.items()))
