"""serve: what runs in a process of a ProcessPool: take a job from the pipe, run its handler, answer with the outcome.

The process ends when the pipe does, so it never outlives its worker; the signals of a terminal are the worker's alone.
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

GROUP_SIGNALS = (signal.SIGINT, signal.SIGTERM)  # sent to all of us at once; the worker decides what becomes of us
ORPHANED = 1  # the exit code of a child whose worker died


def serve(pipe: Connection, set_up: Callable[[], None] | None) -> None:
    """Work until the pipe is closed; `set_up` is called once the program's own module has been imported."""
    for number in GROUP_SIGNALS:
        signal.signal(number, _stay)  # not SIG_IGN, which the programs that a handler starts would inherit
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)  # the worker has blocked them until here
    parent = parent_process()
    assert parent is not None
    assert parent.pid is not None
    kill_with_parent(parent.pid)  # also while a handler lets no other thread run
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


def _stay(_number: int, _frame: FrameType | None) -> None:
    """Go on: if the handler is to end, the worker kills this process."""


@cache
def _task(module: str, name: str) -> Task[..., Any]:
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    assert isinstance(found, Task), f"{module}.{name} is {found!r}, not a task"
    return found


def _end_with_parent(sentinel: int) -> None:
    """A worker that is killed closes nothing in an orderly way: do not go on without it."""
    connection.wait([sentinel])
    os._exit(ORPHANED)
