"""Lives: the lives of messages, read from the log and the journal for the routes that tell of them.

    queue, queue id, number --> MessageLife; how a message ended

The thread that reads the journal reads this too, a piece at a time, and the loop gives each piece away anew: so a long
search keeps neither messages nor other readers waiting, and ends when it is cancelled.  Searches have turns of their
own, and are limited in time.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from wakeq.http.api.journal import Journal
from wakeq.protocol.errors import Busy, StorageError
from wakeq.protocol.log.events import MessageEvent
from wakeq.storage.log.history import HistoryFiles
from wakeq.storage.log.message_life import MessageLife

# The client waits for up to 60 s.
SEARCH_S_MAX = 30.0
SEARCHING_MAX = 4
WAITING_MAX = 16
# The outcomes of entries are written about every second; what is newer than them is left out.
OUTCOMES_S_MAX = 3.0
LOOK_AGAIN_S = 0.02


class Lives:
    """Searches the history of a node for single messages."""

    def __init__(
        self, journal: Journal, files: HistoryFiles, applied_index: Callable[[], int], flushed_index: Callable[[], int]
    ) -> None:
        self._journal = journal
        self._files = files
        self._applied_index = applied_index
        self._flushed_index = flushed_index
        self._turns = asyncio.Semaphore(SEARCHING_MAX)
        # Searches that have a turn, or wait for one.
        self._count = 0

    async def read(self, queue: str, queue_id: int, number: int, *, is_living: bool) -> MessageLife:
        """Search to the end, or until the time is over; then the life is not complete."""
        async with self._turn():
            await self._wait_for_outcomes()
            life = MessageLife(self._files, queue, queue_id, number, is_living=is_living)
            until_s = time.monotonic() + SEARCH_S_MAX
            try:
                while time.monotonic() < until_s and not await self._journal.read(life.step):
                    pass
            finally:
                # The thread may be in the middle of a step, if the caller has gone: it ends with that.
                with suppress(ValueError):
                    life.close()
            return life

    async def ending_of(self, queue: str, queue_id: int, number: int) -> MessageEvent | None:
        """Return how a message ended; None if the history does not have it, or cannot be read now."""
        try:
            events = (await self.read(queue, queue_id, number, is_living=False)).events
        except (Busy, StorageError):
            return None
        return events[-1] if events and events[-1].is_end else None

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        if self._count >= SEARCHING_MAX + WAITING_MAX:
            raise Busy(f"{WAITING_MAX} searches for messages are waiting already; try again later")
        self._count += 1
        try:
            async with self._turns:
                yield
        finally:
            self._count -= 1

    async def _wait_for_outcomes(self) -> None:
        """Wait until the outcomes of all that has happened by now are written down, or some seconds."""
        index, until_s = self._applied_index(), time.monotonic() + OUTCOMES_S_MAX
        while self._flushed_index() < index and time.monotonic() < until_s:
            await asyncio.sleep(LOOK_AGAIN_S)
