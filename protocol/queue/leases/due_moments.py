"""DueMoments: which messages of a queue become due later, and which expire.

    delay, watch_expiry --> calendars --> take_due, take_expired: each number once

A part of Leases.  Pure.  Nothing is taken out when a message goes: its number is passed over when its moment comes, and
cleared away if there are many such.  What the true moment of a number is by then, 0 for none, the caller says.
"""

from collections.abc import Callable

from wakeq.protocol.queue.leases.audience import NEVER
from wakeq.protocol.queue.leases.lease_ends import DUE_MAX
from wakeq.protocol.queue.order.calendar import Calendar, DueOf

EXCESS_MAX = 4_096  # moments of gone messages that a calendar may hold before they are cleared away


class DueMoments:
    """The moments of one queue."""

    __slots__ = ("delayed", "expiries")

    def __init__(self) -> None:
        self.delayed: Calendar | None = None  # made when the first message needs it
        self.expiries: Calendar | None = None

    def delay(self, number: int, due_ms: int) -> None:
        if self.delayed is None:
            self.delayed = Calendar()
        self.delayed.add(due_ms, number)

    def watch_expiry(self, number: int, expires_ms: int) -> None:
        if self.expiries is None:
            self.expiries = Calendar()
        self.expiries.add(expires_ms, number)

    def next_moment_ms(self) -> int:
        """Return the earliest of these moments, or perhaps an earlier one."""
        moments = [calendar.next_due_ms() for calendar in (self.delayed, self.expiries) if calendar]
        return min([moment_ms for moment_ms in moments if moment_ms is not None], default=NEVER)

    def take_due(self, now_ms: int, due_of: DueOf) -> list[int]:
        """Return numbers that are no longer delayed."""
        return self.delayed.take_due(now_ms, due_of, DUE_MAX) if self.delayed else []

    def take_expired(self, now_ms: int, expiry_of: DueOf) -> list[int]:
        """Return numbers that have expired."""
        return self.expiries.take_due(now_ms, expiry_of, DUE_MAX) if self.expiries else []

    def forget_gone(self, living: int, lives: Callable[[int], bool]) -> None:
        """Keep the calendars from filling up with messages that are gone; `living` is how many there are."""
        for calendar in (self.expiries, self.delayed):
            if calendar:
                excess = len(calendar) - living - calendar.dead
                if excess > EXCESS_MAX:
                    calendar.forget(excess)
                if calendar.needs_compaction:
                    calendar.compact(lives)
