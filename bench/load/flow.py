"""Flow: shared by all connections of one cell; it counts the grants of requests and their answers.

Producers ask it for permission, report confirmed publishes, and are called again when there is room; consumers report
finished messages.  It knows no protocol and no socket, and it never sends anything itself.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

QUEUE = "bench"
RESUME_ROOM = 500  # messages: paused producers go on together, so that they still send in batches


@dataclass(frozen=True, slots=True)
class Load:
    """The messages of producers.  Several `queues` or `delays_s` are taken in turn, message by message."""

    body_bytes: int = 100
    window: int = 64  # requests in flight on each connection
    batch: int = 1  # messages in one request
    queues: tuple[str, ...] = (QUEUE,)
    delays_s: tuple[int, ...] = (0,)

    @property
    def body(self) -> bytes:
        return b"x" * self.body_bytes


class Flow:
    """Ends after `seconds` or `count` messages; `backlog_max` is the most that may be sent and not finished.

    With `balanced`, consumers do not fetch more than was published: what the queue held before, it goes on
    holding.
    """

    def __init__(
        self,
        *,
        seconds: float | None = None,
        count: int | None = None,
        backlog_max: int | None = None,
        balanced: bool = False,
    ) -> None:
        self._ends_at = None if seconds is None else time.perf_counter() + seconds
        self._count, self._backlog_max = count, backlog_max
        self._balanced = balanced
        self._paused: list[Callable[[], None]] = []
        self._hungry: list[Callable[[], None]] = []
        self._failures: list[Exception] = []
        self._changed = asyncio.Event()
        self.sent = self.confirmed = self.finished = 0
        self.closed = False

    def grant(self, requests: int, *, batch: int = 1) -> int:
        """Return how many of these requests may be sent now; granted ones count as sent."""
        self._maybe_close(batch)
        if self.closed:
            return 0
        if self._count is not None:
            requests = min(requests, (self._count - self.sent) // batch)
        if self._backlog_max is not None:
            requests = min(requests, max(0, self._room() // batch))
        self.sent += requests * batch
        return requests

    def resume_later(self, go_on: Callable[[], None]) -> None:
        """Call this producer again when there is room; it has nothing in flight that would wake it."""
        self._paused.append(go_on)

    def may_fetch(self, go_on: Callable[[], None]) -> bool:
        """True, or this consumer is called when it may."""
        if not self._balanced or self.finished < self.confirmed:
            return True
        self._hungry.append(go_on)
        return False

    def confirm(self, messages: int) -> None:
        self.confirmed += messages
        if self._hungry and self.finished < self.confirmed:
            hungry, self._hungry = self._hungry, []
            for go_on in hungry:
                go_on()
        self._notice()

    def finish(self, messages: int) -> None:
        self.finished += messages
        if self._paused and (self.sent == self.finished or self._room() >= RESUME_ROOM):
            paused, self._paused = self._paused, []
            for go_on in paused:
                go_on()
        self._notice()

    def close(self) -> None:
        """Grant nothing more; sent requests still finish."""
        self.closed = True
        self._notice()

    def fail(self, error: Exception) -> None:
        """Fail the waits for this flow at once: a connection broke, or a server refused."""
        self._failures.append(error)
        self.closed = True
        self._changed.set()

    async def all_confirmed(self) -> None:
        await self._wait(lambda: self.closed and self.confirmed >= self.sent)

    async def all_finished(self) -> None:
        await self._wait(lambda: self.closed and self.finished >= self.sent)

    def _room(self) -> int:
        backlog = self.sent - self.finished
        return backlog + 1 if self._backlog_max is None else self._backlog_max - backlog

    def _maybe_close(self, batch: int) -> None:
        out_of_time = self._ends_at is not None and time.perf_counter() >= self._ends_at
        out_of_work = self._count is not None and self._count - self.sent < batch
        self.closed = self.closed or out_of_time or out_of_work
        self._notice()

    def _notice(self) -> None:
        if self.closed:
            self._changed.set()

    async def _wait(self, reached: Callable[[], bool]) -> None:
        while not reached() and not self._failures:
            self._changed.clear()
            await self._changed.wait()
        if self._failures:
            raise self._failures[0]
