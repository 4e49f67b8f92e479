"""ThreadPool: plain handlers, each in a thread.

Jobs lie in one deque from which the threads take them; one that finds nothing lies down with a bell of its own.  Who
brings work rings one bell, and who takes work while more lies there rings the next: so a burst of short jobs
costs a few wake-ups and not one for each.

A thread cannot be ended from outside.  One whose handler is abandoned is left to itself and ends when the handler does;
another one takes its place.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from wakeq.worker.engine.job import Job
from wakeq.worker.outcome import Outcome
from wakeq.worker.pools.call import call
from wakeq.worker.pools.pool import ABANDONED_MAX, FinishedJobs, crashed_outcome, drain_waiting


class ThreadPool:
    """`slots` threads that run handlers."""

    can_end = False  # a handler that runs

    def __init__(self, slots: int, returns: FinishedJobs, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.slots = slots
        self._finished = returns
        self._clock = clock
        self._waiting: deque[Job] = deque()
        self._idle: list[threading.Lock] = []  # the bells of those who lie down, the last one on top
        self._lock = threading.Lock()  # between the end of a handler and its being abandoned
        self._left = 0
        self._stopped = False

    @property
    def worn_out(self) -> bool:
        return self._left > ABANDONED_MAX

    def start(self) -> None:
        for _ in range(self.slots):
            self._start_thread()

    def submit(self, jobs: Sequence[Job]) -> None:
        self._waiting.extend(jobs)
        self._ring()

    def take_back(self) -> list[Job]:
        return drain_waiting(self._waiting)

    def abandon(self, job: Job) -> bool:
        with self._lock:
            if job.ended:
                return True
            known, job.abandoned = job.abandoned, True
        if not known:
            self.leave(job)
        return self.can_end

    def stop(self) -> None:
        self._stopped = True
        while self._idle:
            self._ring()

    def run(self, job: Job) -> Outcome:
        """Run the handler here; a pool of processes runs it elsewhere."""
        return call(job.task, job.message)

    def leave(self, job: Job) -> None:
        """The handler of this job is abandoned, and cannot be ended: have another thread in its place."""
        with self._lock:
            self._left += 1
        if not self.worn_out and not self._stopped:
            self._start_thread()

    def came_back(self) -> bool:
        """An abandoned handler has ended after all; whether its thread is one too many now."""
        with self._lock:
            self._left -= 1
        return True

    def end_thread(self) -> None:
        """Called by each thread when it ends."""

    def _start_thread(self) -> None:
        threading.Thread(target=self._work, name="wakeq-handler", daemon=True).start()

    def _ring(self) -> None:
        """Wake one who lies down, if there is one."""
        try:
            bell = self._idle.pop()
        except IndexError:
            return
        bell.release()

    def _work(self) -> None:
        bell = threading.Lock()
        bell.acquire()
        ended = False
        while not ended and not self._stopped:
            try:
                job = self._waiting.popleft()
            except IndexError:
                self._lie_down(bell)
                continue
            if self._waiting and self._idle:
                self._ring()
            ended = self._handle(job)
        self.end_thread()

    def _lie_down(self, bell: threading.Lock) -> None:
        """Sleep until the bell rings.  The bell is laid down before the last look, so that no job comes in between."""
        self._idle.append(bell)
        if self._waiting or self._stopped:
            try:
                self._idle.remove(bell)
            except ValueError:
                pass  # somebody took it, and rings
            else:
                return
        bell.acquire()

    def _handle(self, job: Job) -> bool:
        """Run one job; whether this thread was given up meanwhile."""
        began_s = job.started_s = self._clock()
        try:
            outcome = self.run(job)
        except BaseException as error:
            outcome = crashed_outcome(error)
        with self._lock:
            job.ended = True
        self._finished.put(job, outcome, self._clock() - began_s)
        return job.abandoned and self.came_back()
