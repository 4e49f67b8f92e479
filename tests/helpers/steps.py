"""What a piece of work costs, counted and not timed: the result is the same on every machine, however busy it is.

    work --> steps: the lines of Python that it ran through        work --> peak_bytes: by how much memory grew at most

A search inside C runs through no line of Python; with `Counted` numbers as keys each of its comparisons is one.
"""

import gc
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from wakeq.protocol.queue.steps import Steps

T = TypeVar("T")


class Counted(int):
    """A number whose comparisons and hashes are steps."""

    def __eq__(self, other: object) -> bool:
        return int.__eq__(self, other)

    def __lt__(self, other: int) -> bool:
        return int.__lt__(self, other)

    def __hash__(self) -> int:
        return int.__hash__(self)


def steps(work: Callable[[], object]) -> int:
    """Return how many lines of Python `work` runs through, in this thread.

    The collector of garbage rests meanwhile: it would run the finalizers of whatever another test has left.
    """
    count, collected = 0, gc.isenabled()

    def trace(_frame: FrameType, event: str, _argument: Any) -> Callable[..., Any]:
        nonlocal count
        if event == "line":
            count += 1
        return trace

    before = sys.gettrace()
    gc.disable()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        if collected:
            gc.enable()
    return count


def peak_bytes(work: Callable[[], object]) -> int:
    """Return by how much memory grew at most while `work` ran: a copy of something large is as large again.

    The garbage collector rests meanwhile, for the same reason.
    """
    collected = gc.isenabled()
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before_bytes = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        work()
        return tracemalloc.get_traced_memory()[1] - before_bytes
    finally:
        tracemalloc.stop()
        if collected:
            gc.enable()


def in_one_go(steps: Steps[T]) -> T:
    """Take all steps of a piece of long work, one right after the other; return its value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
