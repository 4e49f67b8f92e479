"""Renewals: keeps the claims of a source open as long as the process lives that plans its batches.

    keep(source) --> a thread --> RENEW, each hour          an error --> raised by the next keep

It has a connection of its own: that of the reader may be waiting for an answer.
"""

import threading
import time
from collections.abc import Callable

from wakeq.client.bulk import BulkClient
from wakeq.pipeline.stream.options import ReadOptions
from wakeq.protocol.errors import NOT_NOW, EpochExpired, QueueNotFound

# A claim that lasts for less than three hours is renewed three times in its timeout.
RENEW_EVERY_S = 3_600
RENEWALS_A_TIMEOUT = 3
# The pause after an attempt that did not reach the broker.
RETRY_S = 10.0
NOTHING_OPEN = (EpochExpired, QueueNotFound)


class Renewals:
    """Renews the claims of one source at a time."""

    def __init__(
        self,
        options: ReadOptions,
        *,
        connect: Callable[[], BulkClient] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._connect = connect or options.broker.connect
        self._sleep = sleep
        self._source = ""
        self._failed: Exception | None = None
        self.thread: threading.Thread | None = None

    def keep(self, source: str) -> None:
        """Renew the open claims of this source from now on; raise an error that prevented that."""
        if self._failed is not None:
            raise self._failed
        if self._source != source:
            self._source = source
            self.thread = threading.Thread(target=self._run, args=(source,), name="wakeq-renew", daemon=True)
            self.thread.start()

    def _run(self, source: str) -> None:
        options, client = self._options, None
        every_s = min(RENEW_EVERY_S, options.timeout_s / RENEWALS_A_TIMEOUT)
        while self._source == source:
            pause_s = every_s
            try:
                client = client or self._connect()
                client.renew(options.queue, source, timeout=options.timeout_s)
            except NOTHING_OPEN:
                # If an epoch expires meanwhile, the reader gets that error.
                pass
            except NOT_NOW:
                pause_s = min(every_s, RETRY_S)
            except Exception as error:
                # Nobody waits for the result of this thread; the next `keep` raises the error.
                self._failed = error
                return
            self._sleep(pause_s)
