"""Signals: what SIGTERM and SIGINT do to a worker, the exit status of its process, and the end of its child processes.

    0    all handlers ended
    1    some had not ended after the grace period, and their messages were released
    130, 143   a second SIGINT, or SIGTERM, ended the worker at once

The previous signal handlers are restored at the end. The main thread sleeps on a socket to which every signal writes.
So a signal wakes it even if another thread receives it, or if it comes just before the thread falls asleep; a wait for
a lock would go on in these cases.
"""

import ctypes
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

from wakeq.worker.parameters import BadHandler

CHILD_NAME = "wakeq-handler-process"
LEFT_UNFINISHED = 1
# The number of the signal is added.
BY_SIGNAL = 128

PR_SET_PDEATHSIG = 1
# Loaded in advance: between fork and exec nothing may be loaded.
_libc = ctypes.CDLL(None, use_errno=True)


class StopSignals:
    """Counts the signals that ask for a stop, and calls `on_signal` with their number so far."""

    def __init__(self, on_signal: Callable[[int], None]) -> None:
        self._on_signal = on_signal
        self._received: list[int] = []
        # The handlers and the wakeup socket that were installed before.
        self._before: dict[signal.Signals, Any] = {}
        # Signals write to one end, and the main thread reads from the other.
        self._write_end, self._read_end = socket.socketpair()
        self._write_end.setblocking(False)
        self._wakeup_before = -1

    def __enter__(self) -> Self:
        self._wakeup_before = signal.set_wakeup_fd(self._write_end.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        self._write_end.close()
        self._read_end.close()

    def wait_for(self, ended: "Future[int]") -> int:
        """Wait for a future and return its result; signals are handled meanwhile."""
        ended.add_done_callback(self._wake)
        while not ended.done():
            self._read_end.recv(1)
        return ended.result()

    def _wake(self, _ended: "Future[int]") -> None:
        # If the socket is closed, a signal came first and `wait_for` has returned.
        with suppress(OSError):
            self._write_end.send(b"\0")

    def exit(self, left: int) -> None:
        """Exit with the matching status if anything was cut short; else return."""
        if len(self._received) > 1:
            sys.exit(BY_SIGNAL + self._received[-1])
        if left:
            sys.exit(LEFT_UNFINISHED)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self._received.append(number)
        self._on_signal(len(self._received))


def refuse_in_child() -> None:
    """Raise BadHandler if the main module runs the worker again when a spawned process imports it."""
    if multiprocessing.parent_process() is not None and multiprocessing.current_process().name == CHILD_NAME:
        raise BadHandler(
            "worker.run() was called in a child process of the worker; put it under `if __name__ == '__main__':`"
        )


def kill_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends.

    Call this in the new process. The parent must not end the thread that started this process while it runs.
    """
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    # The parent may have ended before the call.
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
