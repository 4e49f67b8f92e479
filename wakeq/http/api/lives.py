"""Lives: the lives of messages, read from the log and the journal for the routes that tell of them.

    queue, queue id, number --> MessageLife; how a message ended

The thread that reads the journal reads this too, a piece at a time, and the loop gives each piece away anew: so a long
search keeps neither messages nor other readers waiting, and ends when the caller has gone.  It is limited in time.
"""

import time
from contextlib import suppress

from wakeq.http.api.journal import Journal
from wakeq.protocol.log.events import MessageEvent
from wakeq.storage.log.history import HistoryFiles
from wakeq.storage.log.message_life import MessageLife

# The client waits for up to 60 s.
SEARCH_S_MAX = 30.0


class Lives:
    """Searches the history of a node for single messages."""

    def __init__(self, journal: Journal, files: HistoryFiles) -> None:
        self._journal = journal
        self._files = files

    async def read(self, queue: str, queue_id: int, number: int, *, is_living: bool) -> MessageLife:
        """Search to the end, or until the time is over; then the life is not complete."""
        life = MessageLife(self._files, queue, queue_id, number, is_living=is_living)
        until_s = time.monotonic() + SEARCH_S_MAX
        try:
            async with self._journal.turn():
                while time.monotonic() < until_s and not await self._journal.read(life.step):
                    pass
        finally:
            # The thread may be in the middle of a step, if the caller has gone: it ends with that.
            with suppress(ValueError):
                life.close()
        return life

    async def ending_of(self, queue: str, queue_id: int, number: int) -> MessageEvent | None:
        """Return how a message ended, if the history still has it."""
        events = (await self.read(queue, queue_id, number, is_living=False)).events
        return events[-1] if events and events[-1].is_end else None
