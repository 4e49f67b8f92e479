"""serve: the main function of a process of a ProcessPool: reads a job from the pipe, runs it, writes the outcome.

The process ends when the pipe is closed, so it never outlives its worker. Only the worker reacts to the signals of a
terminal.
"""

import os
import signal
import threading
from collections.abc import Callable
from functools import cache
from importlib import import_module
from multiprocessing import connection, parent_process
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

from wakeq.worker.pools.call import call
from wakeq.worker.pools.parent_death import kill_with_parent
from wakeq.worker.task import Task

# A terminal or supervisor sends these to the worker and its children; the worker decides when a child ends.
GROUP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# The exit code of a child whose worker died.
ORPHANED = 1


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
    while True:
        try:
            module, name, message = pipe.recv()
        except (EOFError, OSError):
            return
        task = _task(module, name)
        if set_up is not None:
            set_up()
            set_up = None
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
