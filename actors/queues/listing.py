"""Listing: the figures of many queues, asked for a slice at a time.

    names --> a slice of them is asked --> all of it answered --> the next slice ... --> one answer with every row

If all were asked at once, other messages would have to wait for thousands of queues.  A queue that is gone when its
turn comes is left out.  Pure: Queues does the asking.
"""

from collections.abc import Sequence
from typing import Any

from wakeq.protocol.queue.orders import ReplyTo
from wakeq.protocol.queue.outcomes import Refusal

SLICE_QUEUES = 128  # queues that are asked or told at once, by flushes too: a few milliseconds of work


class Listing:
    """The figures of many queues, for one asker."""

    __slots__ = ("_missing", "_names", "_rows", "asker", "brief")

    def __init__(self, asker: ReplyTo, names: Sequence[str], *, brief: bool = False) -> None:
        # Who gets the rows.
        self.asker = asker
        # Whether gauges are wanted, instead of all figures.
        self.brief = brief
        # The queues, in the order of the rows.
        self._names = names
        # The answers of the queues asked so far: figures, Gauges, a Refusal, or None for no answer yet.
        self._rows: list[Any] = []
        # How many of these queues have not answered.
        self._missing = 0

    def next_slice(self) -> list[tuple[int, str]]:
        """Return the place and name of those to ask now; nothing when all were asked."""
        start = len(self._rows)
        names = self._names[start : start + SLICE_QUEUES]
        self._rows += [None] * len(names)
        self._missing += len(names)
        return list(enumerate(names, start))

    def add(self, place: int, row: Any) -> bool:
        """Take an answer; return whether the slice is complete."""
        self._rows[place] = row
        self._missing -= 1
        return not self._missing

    @property
    def rows(self) -> list[Any]:
        """The figures of those that exist."""
        return [row for row in self._rows if row is not None and type(row) is not Refusal]
