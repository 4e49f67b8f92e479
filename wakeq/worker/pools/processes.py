"""ProcessPool: plain handlers, each in a spawned process, for work that hogs the processor, leaks, or crashes.

    thread of the pool (Child) <--pipe--> child process (serve): one job at a time, an outcome for each

Each thread of the pool owns one child and waits for it. If a child dies, the one message that it was handling has
failed, and the child is replaced. Processes are spawned, never forked: a child imports the handler by module and name.
A child ends when its pipe is closed, so it never outlives its worker; only the worker reacts to the signals of a
terminal.
"""

import atexit
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from functools import cache
from importlib import import_module
from multiprocessing import connection, parent_process, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Any

from wakeq.worker.context import picklable
from wakeq.worker.engine.leases import Job
from wakeq.worker.hooks import Hooks
from wakeq.worker.outcome import Outcome, Released, failed, log_arguments
from wakeq.worker.parameters import BadHandler
from wakeq.worker.pools.call import call
from wakeq.worker.pools.pool import FinishedJobs
from wakeq.worker.pools.threads import ThreadPool
from wakeq.worker.resources import CLOSE_S
from wakeq.worker.signals import CHILD_NAME, kill_with_parent
from wakeq.worker.task import Task

log = logging.getLogger("wakeq.worker")

# An idle child has so much time to close its resources and to end after its pipe was closed.
END_S = CLOSE_S
# The delay of a message for which no process could be started.
START_AGAIN_S = 5

# A terminal or supervisor sends these to the worker and its children; the worker decides when a child ends.
GROUP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# The exit code of a child whose worker died.
ORPHANED = 1


class Child:
    """One process, and the worker's end of its pipe."""

    def __init__(self, set_up: Callable[[], None] | None) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe: Connection
        self._pipe, far_end = context.Pipe()
        self._process = context.Process(target=serve, args=(far_end, set_up), name=CHILD_NAME, daemon=True)
        _start_shielded(self._process)
        far_end.close()
        # Without this the interpreter waits at its exit for the process, which waits for its pipe to be closed.
        atexit.register(self.kill)

    def run(self, job: Job) -> Outcome | None:
        """Run the job in the process; return None if the process died."""
        try:
            self._pipe.send((job.task.handler.__module__, job.task.handler.__qualname__, picklable(job.message)))
            outcome: Outcome = self._pipe.recv()
        except (EOFError, OSError):
            return None
        return outcome

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """Close the pipe, at which the process ends by itself; kill it if it does not."""
        self._pipe.close()
        self._process.join(END_S)
        self._process.kill()
        atexit.unregister(self.kill)

    def exit_reason(self) -> str:
        """Return in words how the process died."""
        self._process.join(END_S)
        atexit.unregister(self.kill)
        code = self._process.exitcode
        if code is not None and code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        return f"its process ended with exit code {code}"


class ProcessPool(ThreadPool):
    """`slots` processes that run handlers."""

    can_end = True

    def __init__(self, slots: int, finished: FinishedJobs, set_up: Callable[[], None] | None = None) -> None:
        """`set_up` is called in each process, before its first handler."""
        super().__init__(slots, finished)
        self._set_up = set_up
        # The child of each thread.
        self._own = threading.local()
        self._running: dict[Job, Child] = {}
        # The number of threads that have not ended.
        self._threads = 0

    def start(self) -> None:
        self._threads, self.closed = self.slots, Future()
        super().start()

    def run(self, job: Job) -> Outcome:
        child: Child | None = getattr(self._own, "child", None)
        if child is None:
            try:
                child = self._own.child = Child(self._set_up)
            # No memory is left, or too many processes or files are open.
            except OSError as error:
                log.error("%s: could not start a process for %s: %s", job.message.queue, job.message.uid, error)
                return Released(f"could not start a process for it: {error}", START_AGAIN_S)
        self._running[job] = child
        # The job may have been abandoned while its process was starting.
        if job.is_abandoned:
            child.kill()
        try:
            outcome = child.run(job)
        finally:
            # From here on the child must not be killed for this job.
            with self._lock:
                del self._running[job]
        if outcome is None:
            self._own.child = None
            return self._died(job, child.exit_reason())
        return outcome

    def end_abandoned(self, job: Job) -> None:
        with self._lock:
            if child := self._running.get(job):
                # Its thread goes on with a new child.
                child.kill()

    def abandoned_ended(self) -> bool:
        return False

    def thread_ends(self) -> None:
        child: Child | None = getattr(self._own, "child", None)
        try:
            if child is not None:
                child.end()
        finally:
            with self._lock:
                self._threads -= 1
                if self._threads == 0 and self.closed is not None:
                    self.closed.set_result(None)

    def _died(self, job: Job, exit_reason: str) -> Outcome:
        outcome = failed(exit_reason, job.task.retry, job.message.failures, random.random())
        if not job.is_abandoned:
            log.error(*log_arguments(job.message, outcome))
        return outcome


def _start_shielded(process: SpawnProcess) -> None:
    """Start a process with the signals to the process group blocked, until `serve` has installed its handlers."""
    # The tracker would otherwise start with the first process and unblock the signals.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def check_importable(task: Task[..., Any]) -> None:
    """Raise BadHandler if a new process cannot import the task by its module and name."""
    module, name = task.handler.__module__, task.handler.__qualname__
    advice = "a process must be able to import the function: define it at the top of a module"
    if "<" in name:
        raise BadHandler(f"{module}.{name} is a local function or a lambda; {advice}")
    home = sys.modules.get(module)
    if module == "__main__" and not hasattr(home, "__file__"):
        raise BadHandler(f"{name} was typed at a prompt, or read from standard input; {advice}")
    found: Any = home
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not task:
        raise BadHandler(f"{module}.{name} is {found!r} and not the task; {advice}")


def serve(pipe: Connection, set_up: Callable[[], None] | None) -> None:
    """Run jobs until the pipe is closed. `set_up` is called once, after the module of the program was imported."""
    for number in GROUP_SIGNALS:
        # Programs that a handler starts would inherit SIG_IGN, but do not inherit a handler.
        signal.signal(number, _ignore)
    # The worker has blocked them until here.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)
    parent = parent_process()
    assert parent is not None
    assert parent.pid is not None
    # This works even while a handler lets no other thread run.
    kill_with_parent(parent.pid)
    threading.Thread(target=_end_with_parent, args=(parent.sentinel,), daemon=True).start()
    # Resources that a handler of this process asks for are opened then, and closed at its end.
    prepared: list[Hooks] = []
    with ExitStack() as stack:
        while True:
            try:
                module, name, message = pipe.recv()
            except (EOFError, OSError):
                return
            task = _task(module, name)
            if set_up is not None:
                set_up()
                set_up = None
            if task.hooks not in prepared:
                stack.enter_context(task.hooks.opening_on_demand())
                prepared.append(task.hooks)
            pipe.send(call(task, message))


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Go on; if the handler has to end, the worker kills this process."""


@cache
def _task(module: str, name: str) -> Task[..., Any]:
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    assert isinstance(found, Task), f"{module}.{name} is {found!r}, not a task"
    return found


def _end_with_parent(sentinel: int) -> None:
    """Exit when the worker ends; a worker that is killed may not close the pipe."""
    connection.wait([sentinel])
    os._exit(ORPHANED)
