"""ThreadPool: plain handlers, each in a thread.

Jobs wait in one deque from which the threads take them. A thread that finds no job sleeps on a bell of its own. A
submit rings one bell, and a thread that takes a job while more are waiting rings the next one. So a burst of short jobs
costs a few wake-ups and not one for each job.

A thread cannot be ended from outside. If its handler is abandoned, the thread ends when the handler does, and another
thread takes its slot at once.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from wakeq.worker.engine.leases import Job
from wakeq.worker.outcome import Outcome
from wakeq.worker.pools.call import call
from wakeq.worker.pools.pool import ABANDONED_MAX, FinishedJobs, drain_waiting, undetermined


class ThreadPool:
    """`slots` threads that run handlers."""

    # Whether a running handler can be ended.
    can_end = False

    def __init__(self, slots: int, finished: FinishedJobs, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.slots = slots
        self.closed: Future[None] | None = None
        self._finished = finished
        self._clock = clock
        self._waiting: deque[Job] = deque()
        # The bells of the sleeping threads; the thread that fell asleep last is woken first.
        self._idle: list[threading.Lock] = []
        # Makes the end of a handler and its abandonment exclude each other.
        self._lock = threading.Lock()
        # Abandoned handlers that still run.
        self._abandoned = 0
        self._stopped = False

    @property
    def is_stuck(self) -> bool:
        return self._abandoned > ABANDONED_MAX

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
            if job.has_ended:
                return True
            was_abandoned, job.is_abandoned = job.is_abandoned, True
        if not was_abandoned:
            self.end_abandoned(job)
        return self.can_end

    def stop(self) -> None:
        self._stopped = True
        while self._idle:
            self._ring()

    # A pool of processes overrides these four ---------------------------------------------------------------

    def run(self, job: Job) -> Outcome:
        """Run the handler in this thread."""
        return call(job.task, job.message)

    def end_abandoned(self, job: Job) -> None:
        """Start another thread: that of the abandoned handler cannot be ended."""
        with self._lock:
            self._abandoned += 1
        if not self.is_stuck and not self._stopped:
            self._start_thread()

    def abandoned_ended(self) -> bool:
        """Note that an abandoned handler has ended. Return whether its thread is surplus now."""
        with self._lock:
            self._abandoned -= 1
        return True

    def thread_ends(self) -> None:
        """Called by each thread before it ends."""

    # --------------------------------------------------------------------------------------------------------

    def _start_thread(self) -> None:
        threading.Thread(target=self._work, name="wakeq-handler", daemon=True).start()

    def _ring(self) -> None:
        """Wake one sleeping thread, if there is one."""
        try:
            bell = self._idle.pop()
        except IndexError:
            return
        bell.release()

    def _work(self) -> None:
        bell = threading.Lock()
        bell.acquire()
        is_surplus = False
        while not is_surplus and not self._stopped:
            try:
                job = self._waiting.popleft()
            except IndexError:
                self._sleep(bell)
                continue
            if self._waiting and self._idle:
                self._ring()
            is_surplus = self._handle(job)
        self.thread_ends()

    def _sleep(self, bell: threading.Lock) -> None:
        """Sleep until the bell rings."""
        # The bell is listed before the last check for jobs, so that no job is missed in between.
        self._idle.append(bell)
        if self._waiting or self._stopped:
            try:
                self._idle.remove(bell)
            except ValueError:
                # Another thread has taken the bell and is about to ring it.
                pass
            else:
                return
        bell.acquire()

    def _handle(self, job: Job) -> bool:
        """Run one job. Return whether this thread has become surplus."""
        began_s = job.started_s = self._clock()
        self._finished.began(job)
        try:
            outcome = self.run(job)
        except BaseException as error:
            outcome = undetermined(error)
        with self._lock:
            job.has_ended = True
        self._finished.put(job, outcome, self._clock() - began_s)
        return job.is_abandoned and self.abandoned_ended()
