"""Steps: what is done with very many messages of one queue, a slice of them at a time.

    a generator that yields between its steps --> taken by whoever has time for a step; its value is the result

Between two steps nobody else may look at the queue or change it.  Few messages are one step.  Pure.
"""

from collections.abc import Generator, Iterator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]

# The messages of one step, a microsecond for each at most; and where each takes up to three.
STEP_MESSAGES = 4_096
STEP_ENDINGS = 1_024


def slices(count: int, size: int = 0) -> Iterator[slice]:
    """Yield the slices of so many messages, the first ones first."""
    size = size or STEP_MESSAGES
    for start in range(0, count, size):
        yield slice(start, min(count, start + size))
