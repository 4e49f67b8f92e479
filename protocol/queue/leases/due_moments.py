"""DueMoments: which messages of a queue become available later, and which expire.

    due, expires (ledger) --> calendars --> no longer delayed, expired: once each

The middle layer of Leases.  Pure: it tells no process anything, and time comes in as a number.  A message that is out
with a worker neither becomes due nor expires; when it comes back it is looked at again.
"""

from typing import Any

import msgspec

from wakeq.protocol.log.entries import Token
from wakeq.protocol.queue.leases.audience import NEVER, Audience
from wakeq.protocol.queue.leases.lease_ends import FELL_DUE_MAX
from wakeq.protocol.queue.ledger.ledger import Ledger
from wakeq.protocol.queue.order.calendar import Calendar

EXCESS_MAX = 4_096  # moments of gone messages that a calendar may hold before they are cleared away


class Held(msgspec.Struct, gc=False):
    """A message that is out with a worker."""

    until_ms: int
    token: Token
    holder: Any
    worker: int


class DueMoments(Audience):
    """See the head of this file."""

    __slots__ = ("delayed", "expiries", "held", "ledger")

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger
        self.held: dict[int, Held] = {}
        self.delayed: Calendar | None = None  # made when the first message needs it: most queues have none
        self.expiries: Calendar | None = None

    def _delay(self, number: int, due_ms: int) -> None:
        if self.delayed is None:
            self.delayed = Calendar()
        self.delayed.add(due_ms, number)

    def _watch_expiry(self, number: int) -> None:
        expires_ms = self.ledger.columns.expires_of(number)
        if expires_ms:
            if self.expiries is None:
                self.expiries = Calendar()
            self.expiries.add(expires_ms, number)

    def _first_due_ms(self) -> int:
        """Return the earliest of these moments, or perhaps an earlier one."""
        moment_ms = NEVER
        if self.delayed:
            moment_ms = self.delayed.next_due_ms() or NEVER
        if self.expiries:
            moment_ms = min(moment_ms, self.expiries.next_due_ms() or NEVER)
        return moment_ms

    def _no_longer_delayed(self, now_ms: int) -> list[int]:
        return self.delayed.take_due(now_ms, self._due_of, FELL_DUE_MAX) if self.delayed else []

    def _due_of(self, number: int) -> int:
        if number in self.held or not self.ledger.columns.lives(number):
            return 0
        return self.ledger.due_of(number)

    def expired(self, now_ms: int) -> list[int]:
        """Return the messages that have expired and are not out with a worker."""
        return self.expiries.take_due(now_ms, self._expiry_of, FELL_DUE_MAX) if self.expiries else []

    def _expiry_of(self, number: int) -> int:
        # one that is out is looked at again when it comes back, one that is stashed when it is published
        if number in self.held or not self.ledger.columns.lives(number) or self.ledger.columns.is_hidden(number):
            return 0
        return self.ledger.columns.expires_of(number)

    def _forget_gone(self) -> None:
        """Keep the calendars from filling up with messages that are gone."""
        for calendar in (self.expiries, self.delayed):
            if calendar:
                excess = len(calendar) - self.ledger.columns.living - calendar.dead
                if excess > EXCESS_MAX:
                    calendar.forget(excess)
                if calendar.needs_compaction:
                    calendar.compact(self.ledger.columns.lives)
