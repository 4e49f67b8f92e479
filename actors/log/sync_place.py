"""SyncPlace: where to sync the log next: in its thread, or on the event loop.

    how long syncs took --> whether the next one may be done on the loop

On a fast disk, handing a sync over to a thread costs as much as the sync itself.  Pure; it reads no clock.
"""

from collections import deque

FAST_SYNC_S = 0.0005
SYNCS_LOOKED_AT = 16
SLOW_SYNCS_MAX = 2  # of the last SYNCS_LOOKED_AT; if more were slow, the next is done in the thread
STALL_S = 0.005
STALL_PAUSE_S = 10.0  # no sync on the loop for so long after one that stalled it


class SyncPlace:
    """Where to sync: in the thread, or on the loop while the disk is faster than the hand-over to a thread."""

    def __init__(self) -> None:
        self._slow = deque([True] * SYNCS_LOOKED_AT, maxlen=SYNCS_LOOKED_AT)
        self._not_before_s = 0.0

    def on_loop(self, now_s: float) -> bool:
        return now_s >= self._not_before_s and self._slow.count(True) <= SLOW_SYNCS_MAX

    def took(self, seconds: float, now_s: float, *, on_loop: bool) -> None:
        """Learn from a sync; after one that stalled the loop, none is done there for a while."""
        self._slow.append(seconds >= FAST_SYNC_S)
        if on_loop and seconds >= STALL_S:
            self._not_before_s = now_s + STALL_PAUSE_S
