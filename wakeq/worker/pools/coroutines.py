"""CoroutinePool: `async def` handlers, on a loop and a thread of their own.

The loop is not the engine's: a handler that forgets to await blocks the other handlers, but no extension of a lease. An
abandoned handler is cancelled; if it goes on all the same, another one takes its slot. If a handler blocks the loop, so
that even the cancellation cannot run, no handler will start any more, and the pool is stuck.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from wakeq.worker.engine.leases import Job
from wakeq.worker.outcome import Failed, Outcome
from wakeq.worker.pools.call import call_async
from wakeq.worker.pools.pool import ABANDONED_MAX, FinishedJobs, drain_waiting, undetermined

# An abandoned handler that goes on for so long without an await blocks the loop.
BLOCKED_S = 3.0


class CoroutinePool:
    """A loop that runs `slots` handlers at once."""

    def __init__(
        self,
        slots: int,
        finished: FinishedJobs,
        hold: Callable[[asyncio.Event, Callable[[], None]], Coroutine[Any, Any, None]] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`hold` is run on the loop all the time; it has to return when its event is set: no handler runs any more.

        It may call the function that it gets, and then no further handler begins.
        """
        self.slots = slots
        self._finished = finished
        self._clock = clock
        self._waiting: deque[Job] = deque()
        self._running: dict[Job, asyncio.Task[Outcome]] = {}
        # Running jobs that were abandoned; they take no slots.
        self._abandoned: set[Job] = set()
        # When jobs were abandoned whose cancellation has not run yet.
        self._abandoned_at_s: deque[float] = deque()
        # The pool is stopped and no handler runs.
        self._over = asyncio.Event()
        self._hold = hold
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="wakeq-coroutines", daemon=True)
        self._stopped = False

    @property
    def is_stuck(self) -> bool:
        return len(self._abandoned) > ABANDONED_MAX or self._blocked_s >= BLOCKED_S

    @property
    def _blocked_s(self) -> float:
        """For how long a handler that was abandoned has blocked the loop."""
        try:
            return self._clock() - self._abandoned_at_s[0]
        except IndexError:
            return 0.0

    @property
    def _room(self) -> int:
        """How many jobs may start now."""
        return 0 if len(self._abandoned) > ABANDONED_MAX else self.slots + len(self._abandoned) - len(self._running)

    def start(self) -> None:
        self._thread.start()

    def submit(self, jobs: Sequence[Job]) -> None:
        self._waiting.extend(jobs)
        self._call_soon(self._fill)

    def take_back(self) -> list[Job]:
        return drain_waiting(self._waiting)

    def abandon(self, job: Job) -> bool:
        self._abandoned_at_s.append(self._clock())
        self._call_soon(partial(self._cancel, job))
        return True

    def stop(self) -> None:
        self._stopped = True
        if self._thread.is_alive():
            self._call_soon(self._end_if_idle)
        # The thread has ended, or was never started.
        else:
            self._loop.close()

    def _call_soon(self, callback: Callable[[], None]) -> None:
        # If the loop is closed, the last handler has ended.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._until_over())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    async def _until_over(self) -> None:
        if self._hold is not None:
            await self._hold(self._over, self._start_no_more)
        await self._over.wait()

    def _start_no_more(self) -> None:
        self._stopped = True

    def _fill(self) -> None:
        """Start as many jobs as there is room for."""
        while self._room > 0 and not self._stopped:
            try:
                job = self._waiting.popleft()
            except IndexError:
                return
            job.started_s = self._clock()
            self._finished.began(job)
            task = self._loop.create_task(call_async(job.task, job.message))
            task.add_done_callback(partial(self._ended, job, job.started_s))
            self._running[job] = task

    def _ended(self, job: Job, began_s: float, task: asyncio.Task[Outcome]) -> None:
        self._finished.put(job, _outcome_of(task), self._clock() - began_s)
        del self._running[job]
        self._abandoned.discard(job)
        self._fill()
        self._end_if_idle()

    def _cancel(self, job: Job) -> None:
        if task := self._running.get(job):
            task.cancel()
            self._abandoned.add(job)
            self._fill()
        # Runs after the handler, which now receives the cancellation.
        self._loop.call_soon(self._abandoned_at_s.popleft)

    def _end_if_idle(self) -> None:
        if self._stopped and not self._running:
            self._over.set()


def _outcome_of(task: asyncio.Task[Outcome]) -> Outcome:
    """Return the outcome of a handler, however it ended."""
    if task.cancelled():
        return Failed("cancelled before it began")
    error = task.exception()
    return task.result() if error is None else undetermined(error)
