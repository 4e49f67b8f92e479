"""Payloads: the bytes of the last entries of the log, for peers that follow closely.

    put, truncate_from --> get: the bytes of first .. last, or None if they have to be read from the log

Bounded by bytes; what is dropped first is what was put in first.
"""

from collections import deque
from collections.abc import Sequence
from itertools import islice

KEPT_BYTES_MAX = 16 << 20


class Payloads:
    """Invariant: the entries that are kept have consecutive indexes."""

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._first_index = 1
        self._kept: deque[bytes] = deque()
        self._bytes = 0

    def put(self, first_index: int, payloads: Sequence[bytes]) -> None:
        """Keep entries; if they do not go on where the others end, the others are forgotten."""
        if first_index != self._first_index + len(self._kept):
            self.clear()
            self._first_index = first_index
        self._kept.extend(payloads)
        self._bytes += sum(map(len, payloads))
        while self._bytes > self._bytes_max and len(self._kept) > 1:
            self._bytes -= len(self._kept.popleft())
            self._first_index += 1

    def get(self, first: int, last: int) -> list[bytes] | None:
        """Return the entries from first to last, None if one of them is not kept."""
        start = first - self._first_index
        count = last - first + 1
        if start < 0 or start + count > len(self._kept):
            return None
        if start * 2 <= len(self._kept):
            return list(islice(self._kept, start, start + count))
        behind = len(self._kept) - start - count  # near the end it is quicker to come from there
        found = list(islice(reversed(self._kept), behind, behind + count))
        found.reverse()
        return found

    def truncate_from(self, index: int) -> None:
        while self._kept and self._first_index + len(self._kept) > index:
            self._bytes -= len(self._kept.pop())

    def clear(self) -> None:
        self._kept.clear()
        self._bytes = 0
