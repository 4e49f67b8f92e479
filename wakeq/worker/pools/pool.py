"""Pool: where handlers run, as the engine sees it, and the way back from there.

    engine --submit--> Pool (threads, a loop of coroutines, processes) --FinishedJobs--> engine

A pool never talks to the broker and decides nothing: it runs what it is given, oldest first, `slots` at once.
"""

import asyncio
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias

from wakeq.worker.engine.job import Job
from wakeq.worker.outcome import Failed, Outcome

ABANDONED_MAX = (
    100  # handlers that go on though nobody wants them; then their places stay empty, and the pool is worn out
)
JUDGE_AGAIN_S = 5  # until a message comes back of which the end could not be judged

Ended: TypeAlias = tuple[Job, Outcome, float]  # with how long the handler took, in seconds


class Pool(Protocol):
    """A place with room for `slots` handlers at once."""

    slots: int

    @property
    def worn_out(self) -> bool:
        """Handlers that nobody can end are too many now, or hold up the rest: only a new process has all places."""

    def start(self) -> None: ...

    def submit(self, jobs: Sequence[Job]) -> None:
        """Run these when there is room."""

    def take_back(self) -> list[Job]:
        """Those that have not started; they will not."""

    def abandon(self, job: Job) -> bool:
        """Nobody wants this handler any more: end it if it can be ended, and fill its place.

        True: it can, and its end will be returned; to say it again is to insist.  False: it is left to itself.
        """

    def stop(self) -> None:
        """Start nothing more, and let go of what is idle.  What still runs is not waited for."""


def drain_waiting(waiting: deque[Job]) -> list[Job]:
    """Take the jobs that no thread has taken meanwhile."""
    taken = []
    while True:
        try:
            taken.append(waiting.pop())
        except IndexError:
            return taken


def crashed_outcome(error: BaseException) -> Failed:
    """The outcome when not even the judgement on a handler came to its end: its place must go on with the next one.

    It is not told to the log, whose filters and handlers are the user's and may be what raised.
    """
    with suppress(Exception):
        traceback.print_exception(error)
    return Failed(f"what became of its handler could not be judged: {type(error).__name__}", JUDGE_AGAIN_S)


class FinishedJobs:
    """What came of the handlers, gathered from any thread; the loop is woken once for many."""

    def __init__(self, loop: asyncio.AbstractEventLoop, collect: Callable[[list[Ended]], None]) -> None:
        self._loop = loop
        self._collect = collect
        self._ended: deque[Ended] = deque()
        self._woken = False

    def put(self, job: Job, outcome: Outcome, span_s: float) -> None:
        """From any thread.  First the result, then the look at the flag: so none is left lying."""
        self._ended.append((job, outcome, span_s))
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self.gather)
            except RuntimeError:  # the loop is closed: the worker has ended, and this message was given back
                self._ended.clear()

    def gather(self) -> None:
        """On the loop: hand over what has come together."""
        self._woken = False
        gathered = []
        while self._ended:
            gathered.append(self._ended.popleft())
        if gathered:
            self._collect(gathered)
