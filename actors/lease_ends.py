"""LeaseEnds: when leases end; what was handed out together ends together.

    leases begin, are put off --> add        a moment comes --> take_over: those whose lease is over by then

Pure.  A lease that is over otherwise, or was put off, is passed over when its old end comes.
"""

import heapq
from collections.abc import Mapping
from typing import Protocol

from wakeq.actors.audience import NEVER

ENDS_MIN = 4_096  # ends that are kept although most of these leases are over
FELL_DUE_MAX = 4_096  # what falls due together is looked at in batches of about this many


class Lease(Protocol):
    """As much as has to be known of a lease here."""

    until_ms: int


class LeaseEnds:
    """The ends of `held`, which belongs to somebody else."""

    __slots__ = ("_count", "_ends", "_held")

    def __init__(self, held: Mapping[int, Lease]) -> None:
        self._held = held
        self._ends: list[tuple[int, int, list[int]]] = []  # (until, any order, numbers)
        self._count = 0  # numbers in all of them

    @property
    def first_ms(self) -> int:
        """Never later than the first end."""
        return self._ends[0][0] if self._ends else NEVER

    def add(self, until_ms: int, numbers: list[int]) -> None:
        """Look at these leases at that moment."""
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

    def take_over(self, now_ms: int) -> list[int]:
        """Return leases that are over; they will not be returned again unless they are put off."""
        over: list[int] = []
        ends, held = self._ends, self._held
        while ends and ends[0][0] <= now_ms and len(over) < FELL_DUE_MAX:
            until_ms, _, numbers = heapq.heappop(ends)
            self._count -= len(numbers)
            for number in numbers:
                lease = held.get(number)
                if lease is not None and lease.until_ms == until_ms:
                    over.append(number)
        return over
