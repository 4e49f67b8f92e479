"""SyncWatch: warns while a sync on the event loop hangs.

    since_s, written by the loop --> a thread checks it every second --> a warning in the log

A lone node on a fast disk syncs on its event loop, and a loop that hangs cannot warn.  The watch changes nothing and
waits for nobody.  A node of a cluster syncs in a thread and does not need it.
"""

import logging
import threading
import time
from typing import Final

TICK_S: Final = 1.0
HANGS_S: Final = 1.0  # a sync that takes longer is reported
AGAIN_S: Final = 10.0  # between two reports of one sync

logger = logging.getLogger("wakeq.raft_log")


class SyncWatch:
    """Without `start` this object only keeps a number."""

    def __init__(self) -> None:
        self.since_s = 0.0  # perf_counter at the begin of the current sync on the loop; 0 while there is none
        self._reported_s = 0.0  # when the last report was made
        self._reported_since_s = 0.0  # the `since_s` of the sync that it was about
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to watch, in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="wakeq-watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closed.wait(TICK_S):
            self.tick(time.perf_counter())

    def tick(self, now_s: float) -> None:
        """Report the current sync if it is taking too long."""
        since_s = self.since_s
        if not since_s or now_s - since_s < HANGS_S:
            return
        if self._reported_since_s == since_s and now_s - self._reported_s < AGAIN_S:
            return
        self._reported_since_s, self._reported_s = since_s, now_s
        logger.warning(
            "the disk does not answer: a sync of the log has taken %.1f s so far, and all clients wait for it",
            now_s - since_s,
        )

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
