"""ProcessPool: plain handlers, each in a spawned process: for work that hogs the processor, leaks, or crashes.

    thread of the pool <--pipe--> child process (child.py): one job at a time, a outcome for each

Each thread of the pool owns one child and waits for it.  A child that dies is a failure of the one message that it
worked on, and is replaced.  Processes are spawned, never forked: a child imports the handler by module and name.
"""

import atexit
import logging
import multiprocessing
import random
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from wakeq.worker.delivery import parcel_of
from wakeq.worker.engine.job import Job
from wakeq.worker.outcome import Outcome, Returned, failed, telling
from wakeq.worker.parameters import BadHandler
from wakeq.worker.pools.child import GROUP_SIGNALS, serve
from wakeq.worker.pools.pool import FinishedJobs
from wakeq.worker.pools.threads import ThreadPool
from wakeq.worker.signals import CHILD_NAME
from wakeq.worker.task import Task

log = logging.getLogger("wakeq.worker")

END_S = 5.0  # for an idle child to end when its pipe is closed
MAKE_AGAIN_S = 5  # until a message comes back for which no process could be made


class Child:
    """One process and our end of its pipe."""

    def __init__(self, set_up: Callable[[], None] | None) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe: Connection
        self._pipe, far_end = context.Pipe()
        self._process = context.Process(target=serve, args=(far_end, set_up), name=CHILD_NAME, daemon=True)
        _start_shielded(self._process)
        far_end.close()
        atexit.register(self.kill)  # or the end of the interpreter waits for a process that waits for it

    def run(self, job: Job) -> Outcome | None:
        """Have the job done there; None if the process died."""
        try:
            self._pipe.send((job.task.handler.__module__, job.task.handler.__qualname__, parcel_of(job.message)))
            outcome: Outcome = self._pipe.recv()
        except (EOFError, OSError):
            return None
        return outcome

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """Let it go; it ends by itself when its pipe is closed."""
        self._pipe.close()
        self._process.join(END_S)
        self._process.kill()
        atexit.unregister(self.kill)

    def exit_reason(self) -> str:
        """It has died: how, in words."""
        self._process.join(END_S)
        atexit.unregister(self.kill)
        code = self._process.exitcode
        if code is not None and code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        return f"its process ended with exit code {code}"


class ProcessPool(ThreadPool):
    """`slots` processes that run handlers."""

    can_end = True

    def __init__(self, slots: int, returns: FinishedJobs, set_up: Callable[[], None] | None = None) -> None:
        """`set_up` is called in each process, before its first handler."""
        super().__init__(slots, returns)
        self._set_up = set_up
        self._own = threading.local()  # the child of each thread
        self._running: dict[Job, Child] = {}

    def run(self, job: Job) -> Outcome:
        child: Child | None = getattr(self._own, "child", None)
        if child is None:
            try:
                child = self._own.child = Child(self._set_up)
            except OSError as error:  # no memory, too many processes or open files
                log.error("%s: no process could be made for %s: %s", job.message.queue, job.message.uid, error)
                return Returned(f"no process could be made for it: {error}", MAKE_AGAIN_S)
        self._running[job] = child
        if job.abandoned:  # while its process was being made
            child.kill()
        try:
            outcome = child.run(job)
        finally:
            with self._lock:  # from now on nobody may kill it for this job
                del self._running[job]
        if outcome is None:
            self._own.child = None
            return self._died(job, child.exit_reason())
        return outcome

    def leave(self, job: Job) -> None:
        with self._lock:
            if child := self._running.get(job):
                child.kill()  # its thread goes on with a new one

    def came_back(self) -> bool:
        return False

    def end_thread(self) -> None:
        child: Child | None = getattr(self._own, "child", None)
        if child is not None:
            child.end()

    def _died(self, job: Job, exit_reason: str) -> Outcome:
        outcome = failed(exit_reason, job.task.retry, job.message.failures, random.random())
        if not job.abandoned:
            log.error(*telling(job.message, outcome))
        return outcome


def _start_shielded(process: SpawnProcess) -> None:
    """Start it with the signals blocked that reach the whole group, until it can stay in spite of them (child.py)."""
    resource_tracker.ensure_running()  # its own start, with the first process, would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def check_importable(task: Task[..., Any]) -> None:
    """Raise BadHandler if a new process could not find the task by its module and name."""
    module, name = task.handler.__module__, task.handler.__qualname__
    advice = "a process needs a function that it can import: define it at the top of a module"
    if "<" in name:
        raise BadHandler(f"{module}.{name} is a local function or a lambda; {advice}")
    home = sys.modules.get(module)
    if module == "__main__" and not hasattr(home, "__file__"):
        raise BadHandler(f"{name} was typed in, or read from standard input; {advice}")
    found: Any = home
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not task:
        raise BadHandler(f"{module}.{name} is {found!r} now and not the task; {advice}")
