"""Holders: which subscriber holds what, on queues that take it back when he goes.

    messages are handed out --> note        he goes --> take_from: what he still holds

Pure.  What is over otherwise is forgotten now and then, and passed over.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

HOLDING_MIN = 4_096  # numbers that are remembered with a subscriber although it holds most of them no longer


class Lease(Protocol):
    """As much as has to be known of a lease here."""

    holder: Any


class Holders:
    """Who holds what of `held`, which belongs to somebody else."""

    __slots__ = ("_held", "_numbers")

    def __init__(self, held: Mapping[int, Lease]) -> None:
        self._held = held
        self._numbers: dict[Any, set[int]] = {}  # may name what is over

    def note(self, holder: Any, numbers: Sequence[int]) -> None:
        """Remember what was handed out to a subscriber."""
        mine = self._numbers.setdefault(holder, set())
        if len(mine) > 2 * len(self._held) + HOLDING_MIN:
            mine.intersection_update(self._held)
        mine.update(numbers)

    def note_all(self) -> None:
        """Remember it of all that is out: until now nobody had to."""
        self._numbers.clear()
        for number, lease in self._held.items():
            if lease.holder is not None and lease.holder.alive:
                self._numbers.setdefault(lease.holder, set()).add(number)

    def take_from(self, holder: Any) -> list[int]:
        """Return what a subscriber that is gone still holds, and forget him."""
        held = self._held
        return [n for n in self._numbers.pop(holder, ()) if n in held and held[n].holder is holder]
