"""A log and its journal, served over HTTP by a loop in a thread of its own, for readers that block.

SegmentedLog, tokens --> Served: url, journal (the object that serves), until the end of the `with` block
"""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from wakeq.actors.sessions.access import Gate
from wakeq.http.api.api import Api
from wakeq.http.api.journal import Journal
from wakeq.http.callers import Callers
from wakeq.http.server import WebServer
from wakeq.net.listening import bound_socket
from wakeq.storage.log.history import HistoryFiles
from wakeq.storage.log.journal import Journal as JournalFolder
from wakeq.storage.log.journal import Keep
from wakeq.storage.log.segmented_log import SegmentedLog
from wakeq.storage.thread import DiskThread

READY_S_MAX = 10.0
HOST = "127.0.0.1"


class Served:
    """The routes of the journal and no others, for one log."""

    def __init__(self, log: SegmentedLog, gate: Gate | None = None) -> None:
        self.url = ""
        self.journal: Journal
        self._log = log
        self._gate = gate
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self._end: asyncio.Event

    def call(self, work: Callable[[], object]) -> None:
        """Do this on the loop."""
        self._loop.call_soon_threadsafe(work)

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        server = WebServer(gate=self._gate)
        active = self._log.copy_active()
        os.close(active.descriptor)
        self.journal = Journal(active.header.identity, HistoryFiles(self._log), self._disk)
        Api(Callers(HOST, self._gate)).add(server, self.journal.routes())
        server.before_stop(self.journal.stop)
        self.url = f"http://{HOST}:{await server.start(await bound_socket(HOST, 0))}"
        self._ready.set()
        await self._end.wait()
        await server.close()

    def _disk(self, name: str) -> DiskThread:
        return DiskThread(name, self._loop.call_soon_threadsafe)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(READY_S_MAX)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.call(self._end.set)
        self._thread.join(READY_S_MAX)
        self._loop.close()


def log_in(data_dir: Path) -> SegmentedLog:
    """Open the log of a data directory that nobody writes, with its journal."""
    log = SegmentedLog.open(data_dir / "consensus", None, committed_at_least=None, read_only=True)
    log.journal = JournalFolder(data_dir / "journal", Keep(1 << 40, 1 << 40), lambda: 0.0)
    return log
