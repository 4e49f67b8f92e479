"""Supervisor: starts processes, and starts again the one that failed.

    Child(name, start, essential) --> start() --> Down --> start() ... too often --> TooManyRestarts

One for one: the others go on.  A child that stops by itself is forgotten.  It never decides what a failure
means: where restarting does not help, it fails itself, and who watches it decides (the node ends).
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wakeq.actors.runtime.links import Down
from wakeq.actors.runtime.runtime import Process


@dataclass(frozen=True, slots=True)
class Child:
    """A process to keep running.  An essential one is never restarted: its end, even a stop, ends all."""

    name: str
    start: Callable[[], Process]
    essential: bool = False


class TooManyRestarts(RuntimeError):
    """Children failed faster than the supervisor may restart them; the cause is the last failure."""


class EssentialEnded(RuntimeError):
    """A child without which nothing works has ended; the cause is its failure, if it had one."""


class Supervisor(Process):
    """Keeps its children running; tell it a Child to add one."""

    def __init__(
        self,
        children: Sequence[Child] = (),
        *,
        restarts_max: int = 10,
        within_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._first_children = children
        self._restarts_max = restarts_max
        self._within_s = within_s
        self._clock = clock
        self._running: dict[Process, Child] = {}  # in the order of starting
        self._restarts: deque[float] = deque(maxlen=restarts_max + 1)  # moments

    def on_start(self) -> None:
        """Start the children in order; what the first start of one raises ends the supervisor."""
        for child in self._first_children:
            self._start(child)

    def on_receive(self, message: Child | Down) -> None:
        """Add a child, or see to one that has ended."""
        if isinstance(message, Child):
            self._start(message)
            return
        child = self._running.pop(message.process)
        if child.essential:
            raise EssentialEnded(f"{child.name} has ended; nothing works without it") from message.reason
        if message.reason is not None:
            self._restart(child, message.reason)

    def on_stop(self) -> None:
        """Stop the children, the last one first."""
        for process in reversed(self._running):
            process.stop()

    def on_failure(self, *_error: object) -> None:
        """Stop the children: they would run unwatched."""
        self.on_stop()

    def _start(self, child: Child) -> None:
        process = child.start()
        self._running[process] = child
        self.runtime.monitor(self, process, tag=child.name)

    def _restart(self, child: Child, reason: BaseException) -> None:
        """Start it again, and again if that fails too; ended by the limit."""
        while True:
            self._count(child, reason)
            try:
                self._start(child)
                return
            except Exception as error:
                reason = error

    def _count(self, child: Child, reason: BaseException) -> None:
        now_s = self._clock()
        self._restarts.append(now_s)
        if len(self._restarts) > self._restarts_max and now_s - self._restarts[0] <= self._within_s:
            raise TooManyRestarts(
                f"{self._restarts_max + 1} failures within {self._within_s} s, the last one of {child.name}"
            ) from reason
