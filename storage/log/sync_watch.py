"""SyncWatch: says so while a sync on the event loop hangs.

    since_s, written by the loop --> the thread looks at it every second --> a warning in the log

A lone node on a fast disk syncs on its loop, and a loop that hangs can say nothing.  It changes nothing and waits for
nobody.  A node of a cluster syncs in a thread, and has no need of it.
"""

import logging
import threading
import time
from typing import Final

LOOK_S: Final = 1.0
HANGS_S: Final = 1.0  # a sync that is under way for longer is reported
AGAIN_S: Final = 10.0  # between two reports

logger = logging.getLogger("wakeq.raft_log")


class SyncWatch:
    """See the head of this file.  Without `start` it only keeps a number."""

    def __init__(self) -> None:
        self.since_s = 0.0  # perf_counter when the sync began that is under way on the loop; 0 while none is
        self._told_s = 0.0
        self._told_since_s = 0.0  # of which sync
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look, in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="wakeq-watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closed.wait(LOOK_S):
            self.look(time.perf_counter())

    def look(self, now_s: float) -> None:
        """Report the sync that is under way if it has been for too long."""
        since_s = self.since_s
        if not since_s or now_s - since_s < HANGS_S:
            return
        if self._told_since_s == since_s and now_s - self._told_s < AGAIN_S:
            return
        self._told_since_s, self._told_s = since_s, now_s
        logger.warning(
            "the disk does not answer: a sync of the log has been under way for %.1f s, and all clients wait for it",
            now_s - since_s,
        )

    def close(self) -> None:
        """Look no more."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
