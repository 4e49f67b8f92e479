"""Acknowledged: the last committed entry that each disk is known to have.  Pure.

    acknowledgements at the leader, heartbeats, votes --> the highest index of each disk

Such a fact stays true for ever, so it may arrive late and from any node.  A node whose own disk has less runs on an old
copy of its disk or on one that was restored, and recognises that as soon as it hears the fact.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from wakeq.protocol.raft.messages import Told

DISKS_MAX: Final = 16  # no cluster has so many voters


class Acknowledged:
    """Invariant: an index never falls, and at most DISKS_MAX disks are kept."""

    def __init__(self, known: Iterable[tuple[int, int]] = ()) -> None:
        self._by_disk = dict(known)  # disk id -> index

    def of(self, disk_id: int) -> int:
        """Return the index up to which this disk must have the log; 0 for an unknown disk."""
        return self._by_disk.get(disk_id, 0)

    def learn(self, told: Sequence[tuple[int, int]]) -> None:
        """Add the facts of a leader.  If there are too many disks, those that the leader names are kept first."""
        by_disk = self._by_disk
        for disk_id, index in told:
            if index > by_disk.get(disk_id, 0):
                by_disk[disk_id] = index
        if len(by_disk) > DISKS_MAX:
            current = {disk_id for disk_id, _ in told}
            kept = sorted(by_disk.items(), key=lambda item: (item[0] in current, item[1]), reverse=True)
            self._by_disk = dict(kept[:DISKS_MAX])

    def told(self) -> Told:
        """Return all facts, in the order of the disks, for a message or for the disk."""
        return tuple(sorted(self._by_disk.items()))
