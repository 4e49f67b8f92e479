"""Pool: where handlers run, as the engine sees it, and the way of their outcomes back to the engine.

    engine --submit--> Pool (threads, a loop of coroutines, processes) --FinishedJobs--> engine

A pool never talks to the broker and decides nothing. It runs the jobs that it is given, oldest first, `slots` at once.
"""

import asyncio
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import NamedTuple, Protocol

from wakeq.worker.engine.leases import Job
from wakeq.worker.hooks import Began
from wakeq.worker.listeners import Listeners
from wakeq.worker.outcome import Failed, Outcome

# With more abandoned handlers that still run, their slots stay empty and the pool is stuck.
ABANDONED_MAX = 100
# The delay of a retry after the outcome of a handler could not be determined.
RETRY_AFTER_S = 5


class FinishedJob(NamedTuple):
    job: Job
    outcome: Outcome
    duration_s: float


class Pool(Protocol):
    """A place in which `slots` handlers run at once."""

    slots: int
    # Done when a stopped pool has closed what its handlers opened; None if that is not up to the pool.
    closed: "Future[None] | None"

    @property
    def is_stuck(self) -> bool:
        """Too many handlers cannot be ended, or one of them blocks the others: only a new process has all slots."""

    def start(self) -> None: ...

    def submit(self, jobs: Sequence[Job]) -> None:
        """Run jobs as soon as there is room."""

    def take_back(self) -> list[Job]:
        """Return the jobs that have not started; they will not start any more."""

    def abandon(self, job: Job) -> bool:
        """Give up a handler: end it if that is possible, and fill its slot.

        Return True if it can be ended; its outcome will follow, and a second call tries again. Return False if it
        cannot be ended; it then runs on by itself.
        """

    def stop(self) -> None:
        """Start no more jobs and release idle resources. Running handlers are not waited for."""


def drain_waiting(waiting: deque[Job]) -> list[Job]:
    """Remove all jobs from a deque from which other threads may take jobs at the same time."""
    jobs = []
    while True:
        try:
            jobs.append(waiting.pop())
        except IndexError:
            return jobs


def undetermined(error: BaseException) -> Failed:
    """Return the outcome for a handler whose own outcome could not be determined. Its slot can go on with the next job.

    The error is not logged: filters and handlers of logging belong to the program and may be what has raised it.
    """
    with suppress(Exception):
        traceback.print_exception(error)
    return Failed(f"the outcome of its handler could not be determined: {type(error).__name__}", RETRY_AFTER_S)


class FinishedJobs:
    """Outcomes of handlers, from any thread. The loop is woken once for many of them; listeners hear of the begin."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        collect: Callable[[list[FinishedJob]], None],
        listeners: Listeners | None = None,
    ) -> None:
        self._loop = loop
        self._collect = collect
        self._listeners = listeners
        self._finished: deque[FinishedJob] = deque()
        # A call of `gather` is scheduled.
        self._is_woken = False

    def began(self, job: Job) -> None:
        """Tell the listeners that a handler begins. May be called in any thread."""
        if self._listeners is not None:
            self._listeners.put(Began(job.task, job.message))

    def put(self, job: Job, outcome: Outcome, duration_s: float) -> None:
        """Pass an outcome on to the loop. May be called in any thread."""
        # The outcome is added before the flag is read; in the other order it could be left behind.
        self._finished.append(FinishedJob(job, outcome, duration_s))
        if not self._is_woken:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self.gather)
            # The loop is closed: the worker has ended and released this message.
            except RuntimeError:
                self._finished.clear()

    def gather(self) -> None:
        """Pass all outcomes so far to `collect`. Must be called on the loop."""
        self._is_woken = False
        gathered = []
        while self._finished:
            gathered.append(self._finished.popleft())
        if gathered:
            self._collect(gathered)
