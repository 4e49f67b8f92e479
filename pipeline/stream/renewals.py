"""Renewals: the claims of a source stay open for as long as the process lives that plans its batches.

keep(source) --> a thread --> RENEW, three times in each timeout          what it cannot do --> raised by the next keep

It has a connection of its own: that of the reader may be waiting for an answer.
"""

import threading
import time
from collections.abc import Callable

from wakeq.client.bulk import BulkClient
from wakeq.pipeline.stream.options import ReadOptions
from wakeq.protocol.errors import NOT_NOW, EpochExpired, QueueNotFound

RENEWALS_A_TIMEOUT = 3
NOTHING_OPEN = (EpochExpired, QueueNotFound)


class Renewals:
    """See the head of this file."""

    def __init__(
        self,
        options: ReadOptions,
        *,
        connect: Callable[[str], BulkClient] = BulkClient,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._connect = connect
        self._sleep = sleep
        self._source = ""
        self._failed: Exception | None = None
        self.thread: threading.Thread | None = None

    def keep(self, source: str) -> None:
        """Renew what is open of this source from now on; raise what kept it from that."""
        if self._failed is not None:
            raise self._failed
        if self._source != source:
            self._source = source
            self.thread = threading.Thread(target=self._run, args=(source,), name="wakeq-renew", daemon=True)
            self.thread.start()

    def _run(self, source: str) -> None:
        options, client = self._options, None
        while self._source == source:
            try:
                client = client or self._connect(options.broker)
                client.renew(options.queue, source, timeout=options.timeout_s)
            except (*NOTHING_OPEN, *NOT_NOW):
                pass  # there will be something, or the broker again: who reads hears of it if it was too late
            except Exception as error:  # a thread has nobody to raise it to
                self._failed = error
                return
            self._sleep(options.timeout_s / RENEWALS_A_TIMEOUT)
