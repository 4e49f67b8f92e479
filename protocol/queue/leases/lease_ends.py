"""LeaseEnds: when leases end; what was leased together ends together.

    leases begin, are put off --> add        a moment comes --> take_ended: those whose lease is over by then

Pure.  An end is skipped if its lease ended earlier or was extended.
"""

import heapq
from collections.abc import Mapping
from typing import Protocol

from wakeq.protocol.queue.leases.audience import NEVER

ENDS_MIN = 4_096  # ends that may be kept although their leases are over
DUE_MAX = 4_096  # what falls due together is looked at in batches of about this many


class Ending(Protocol):
    """The part of a lease that matters here."""

    until_ms: int


class LeaseEnds:
    """The ends of the leases in `held`, which belongs to Leases."""

    __slots__ = ("_count", "_ends", "_held")

    def __init__(self, held: Mapping[int, Ending]) -> None:
        self._held = held
        self._ends: list[tuple[int, int, list[int]]] = []  # (until, any order, numbers)
        self._count = 0  # numbers in all of them

    @property
    def first_ms(self) -> int:
        """The first end, or perhaps an earlier moment."""
        return self._ends[0][0] if self._ends else NEVER

    def add(self, until_ms: int, numbers: list[int]) -> None:
        """These leases end at that moment, unless they end before or are extended."""
        heapq.heappush(self._ends, (until_ms, numbers[0], numbers))
        self._count += len(numbers)
        if self._count > 2 * len(self._held) + ENDS_MIN:
            self._compact()

    def _compact(self) -> None:
        together: dict[int, list[int]] = {}
        for number, lease in self._held.items():
            together.setdefault(lease.until_ms, []).append(number)
        self._ends = [(until_ms, 0, numbers) for until_ms, numbers in together.items()]
        heapq.heapify(self._ends)
        self._count = len(self._held)

    def take_ended(self, now_ms: int) -> list[int]:
        """Return leases that are over; they are not returned again unless they are extended."""
        over: list[int] = []
        ends, held = self._ends, self._held
        while ends and ends[0][0] <= now_ms and len(over) < DUE_MAX:
            until_ms, _, numbers = heapq.heappop(ends)
            self._count -= len(numbers)
            for number in numbers:
                lease = held.get(number)
                if lease is not None and lease.until_ms == until_ms:
                    over.append(number)
        return over
