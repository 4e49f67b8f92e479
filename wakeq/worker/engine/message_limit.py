"""MessageLimit: how many messages a worker may still take, in all of its pools together, and how many it took.

    limit, what was asked for, what came  -->  MessageLimit  -->  left, spent, taken

Pure.  What a fetch asks for is set aside until its answer, so that two of them never bring more than the limit.
"""

import math


class MessageLimit:
    """The messages of one run of a worker.  Without a limit it only counts them."""

    def __init__(self, limit: int | None = None) -> None:
        self.taken = 0  # those that were given back untried are not among them
        self._limit = math.inf if limit is None else limit
        self._asked = 0  # by fetches under way

    @property
    def left(self) -> float:
        """How many may be asked for now."""
        return self._limit - self.taken - self._asked

    @property
    def spent(self) -> bool:
        """Whether the limit is reached."""
        return self.taken >= self._limit

    def ask(self, count: int) -> None:
        self._asked += count

    def answered(self, asked: int, *, came: int) -> None:
        self._asked -= asked
        self.taken += came

    def untried(self, count: int) -> None:
        """So many were given back before a handler had begun with them; others may be taken instead."""
        self.taken -= count
