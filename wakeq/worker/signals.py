"""StopSignals: what SIGTERM and SIGINT mean for a worker, and with which status its process ends.

    0    all handlers ended
    1    some had not ended after the grace, and their messages were given back
    130, 143   a second SIGINT, or SIGTERM, ended it at once

The handlers of the signals that were there before are there again afterwards.  The main thread sleeps on a socket that
every signal writes to: one that another thread receives, or that comes just before it falls asleep, wakes it all the
same, where a wait for a lock would go on.
"""

import multiprocessing
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
BY_SIGNAL = 128  # and the signal's number


class StopSignals:
    """Counts the signals that ask for an end, and tells how many there were."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell
        self._received: list[int] = []
        self._before: dict[signal.Signals, Any] = {}
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._bell_before = -1

    def __enter__(self) -> Self:
        self._bell_before = signal.set_wakeup_fd(self._bell.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._bell_before)
        self._bell.close()
        self._ear.close()

    def wait_for(self, ended: "Future[int]") -> int:
        """The result of the future; signals are told while it is waited for."""
        ended.add_done_callback(self._ring)
        while not ended.done():
            self._ear.recv(1)
        return ended.result()

    def _ring(self, _ended: "Future[int]") -> None:
        with suppress(OSError):  # closed: a signal came first, and the end was seen then
            self._bell.send(b"\0")

    def exit(self, left: int) -> None:
        """Return if nothing was cut short; else end the process with the status that says what was."""
        if len(self._received) > 1:
            sys.exit(BY_SIGNAL + self._received[-1])
        if left:
            sys.exit(LEFT_UNFINISHED)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self._received.append(number)
        self._tell(len(self._received))


def refuse_in_child() -> None:
    """A spawned process imports the main module anew; if that runs the worker there, say how to avoid it."""
    if multiprocessing.parent_process() is not None and multiprocessing.current_process().name == CHILD_NAME:
        raise BadHandler(
            "worker.run() was reached in a process of the worker; put it under `if __name__ == '__main__':`"
        )
