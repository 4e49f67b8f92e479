"""Signals: what SIGTERM and SIGINT mean for a worker, and with which status its process ends.

    0    all handlers ended
    1    some had not ended after the grace, and their messages were given back
    130, 143   a second SIGINT, or SIGTERM, ended it at once

The handlers of the signals that were there before are there again afterwards.
"""

import multiprocessing
import signal
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from wakeq.worker.parameters import BadHandler

CHILD_NAME = "wakeq-handler-process"
LEFT_UNFINISHED = 1
BY_SIGNAL = 128  # and the signal's number


class Signals:
    """Counts the signals that ask for an end, and tells how many there were."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell
        self._received: list[int] = []
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

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
