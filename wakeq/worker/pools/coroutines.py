"""CoroutinePool: `async def` handlers, on a loop and a thread of their own.

The loop is not the engine's: a handler that forgets to await holds up the others here, but no lease.  An abandoned
handler is cancelled; if it goes on all the same, its place is filled by another one.  If not even the cancelling comes
to its turn, or nothing else behind it, nothing will start here any more, and the pool is worn out.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from wakeq.worker.engine.job import Job
from wakeq.worker.outcome import Failed, Outcome
from wakeq.worker.pools.call import call_async
from wakeq.worker.pools.pool import ABANDONED_MAX, FinishedJobs, crashed_outcome, drain_waiting

HUNG_S = 3.0  # that a handler goes on without an await after it was abandoned


class CoroutinePool:
    """A loop with room for `slots` handlers at once."""

    def __init__(self, slots: int, returns: FinishedJobs, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.slots = slots
        self._finished = returns
        self._clock = clock
        self._waiting: deque[Job] = deque()
        self._running: dict[Job, asyncio.Task[Outcome]] = {}
        self._left: set[Job] = set()  # those of them that were abandoned; they take no places
        self._abandoned_s: deque[float] = deque()  # when, of those from which the loop has not come back yet
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="wakeq-coroutines", daemon=True)
        self._stopped = False

    @property
    def worn_out(self) -> bool:
        return len(self._left) > ABANDONED_MAX or self._held_up_s >= HUNG_S

    @property
    def _held_up_s(self) -> float:
        """For how long the loop has not come back from a handler that was abandoned."""
        try:
            return self._clock() - self._abandoned_s[0]
        except IndexError:
            return 0.0

    @property
    def _room(self) -> int:
        """How many may start now."""
        return 0 if len(self._left) > ABANDONED_MAX else self.slots + len(self._left) - len(self._running)

    def start(self) -> None:
        self._thread.start()

    def submit(self, jobs: Sequence[Job]) -> None:
        self._waiting.extend(jobs)
        self._tell(self._fill)

    def take_back(self) -> list[Job]:
        return drain_waiting(self._waiting)

    def abandon(self, job: Job) -> bool:
        self._abandoned_s.append(self._clock())
        self._tell(partial(self._cancel, job))
        return True

    def stop(self) -> None:
        self._stopped = True
        if self._thread.is_alive():
            self._tell(self._end_if_idle)
        else:  # it has ended, or never began
            self._loop.close()

    def _tell(self, what: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: the last handler has ended
            self._loop.call_soon_threadsafe(what)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _fill(self) -> None:
        """Start what there is room for."""
        while self._room > 0 and not self._stopped:
            try:
                job = self._waiting.popleft()
            except IndexError:
                return
            job.started_s = self._clock()
            task = self._loop.create_task(call_async(job.task, job.message))
            task.add_done_callback(partial(self._ended, job, job.started_s))
            self._running[job] = task

    def _ended(self, job: Job, began_s: float, task: asyncio.Task[Outcome]) -> None:
        self._finished.put(job, _outcome_of(task), self._clock() - began_s)
        del self._running[job]
        self._left.discard(job)
        self._fill()
        self._end_if_idle()

    def _cancel(self, job: Job) -> None:
        if task := self._running.get(job):
            task.cancel()
            self._left.add(job)
            self._fill()
        self._loop.call_soon(self._abandoned_s.popleft)  # behind the handler, which now hears of it

    def _end_if_idle(self) -> None:
        if self._stopped and not self._running:
            self._loop.stop()


def _outcome_of(task: asyncio.Task[Outcome]) -> Outcome:
    """What came of a handler, however it ended."""
    if task.cancelled():
        return Failed("cancelled before it began")
    error = task.exception()
    return task.result() if error is None else crashed_outcome(error)
