"""Holders: which subscriber holds what, for queues that release leases when a subscriber disconnects.

    messages are leased --> note        a subscriber goes --> take_from: what it still holds

Pure.  Leases that ended otherwise are cleared away now and then, and skipped.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

HOLDING_MIN = 4_096  # numbers that may be kept for a subscriber although it no longer holds most of them


class Holding(Protocol):
    """The part of a lease that matters here."""

    holder: Any


class Holders:
    """Who holds what of `held`, which belongs to Leases."""

    __slots__ = ("_held", "_numbers")

    def __init__(self, held: Mapping[int, Holding]) -> None:
        self._held = held
        self._numbers: dict[Any, set[int]] = {}  # by holder; may include leases that are over

    def note(self, holder: Any, numbers: Sequence[int]) -> None:
        """Remember what was delivered to a subscriber."""
        mine = self._numbers.setdefault(holder, set())
        if len(mine) > 2 * len(self._held) + HOLDING_MIN:
            mine.intersection_update(self._held)
        mine.update(numbers)

    def note_all(self) -> None:
        """Note all leases: the queue has just begun to release on disconnect."""
        self._numbers.clear()
        for number, lease in self._held.items():
            if lease.holder is not None and lease.holder.alive:
                self._numbers.setdefault(lease.holder, set()).add(number)

    def take_from(self, holder: Any) -> list[int]:
        """Return what a subscriber that is gone still holds, and forget the subscriber."""
        held = self._held
        return [n for n in self._numbers.pop(holder, ()) if n in held and held[n].holder is holder]
