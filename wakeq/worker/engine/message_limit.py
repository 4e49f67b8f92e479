"""MessageLimit: how many messages a worker may still fetch, in all of its pools together, and how many it has fetched.

    limit, room in outstanding fetches, received messages  -->  MessageLimit  -->  left, is_reached, taken

Pure. The room in a fetch is reserved until its answer, so that two fetches never bring more than the limit.
"""

import math


class MessageLimit:
    """The messages of one run of a worker. Without a limit it only counts them."""

    def __init__(self, limit: int | None = None) -> None:
        # Without the messages that were released before a handler began.
        self.taken = 0
        self._limit = math.inf if limit is None else limit
        # Room in outstanding fetches.
        self._reserved = 0

    @property
    def left(self) -> float:
        """How many messages may be asked for now."""
        return self._limit - self.taken - self._reserved

    @property
    def is_reached(self) -> bool:
        return self.taken >= self._limit

    def reserve(self, count: int) -> None:
        self._reserved += count

    def end_reservation(self, reserved: int, *, received: int) -> None:
        """Note the answer to a fetch for `reserved` messages."""
        self._reserved -= reserved
        self.taken += received

    def untried(self, count: int) -> None:
        """Note that messages were released before a handler began; others may be fetched instead."""
        self.taken -= count
