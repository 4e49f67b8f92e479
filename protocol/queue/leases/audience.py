"""Audience: who waits for the messages of a queue, who sleeps, and who was woken and has not fetched yet.

    FET with wait --> wait ... next_waiter, waits_over --> end_wait        ISLP --> sleep ... woken --> fetched, gone

The lowest layer of Leases.  Pure: it tells no process anything, and time comes in as a number.  It knows nothing of
messages.
"""

from collections import OrderedDict, deque
from typing import Any

import msgspec

from wakeq.protocol.queue.empty import EMPTY_DICT

NEVER = 1 << 62  # milliseconds: later than any moment


class Waiter(msgspec.Struct, gc=False, eq=False):
    """A FET that waits for a message."""

    asker: Any  # where its answer goes
    session: Any  # the actor that fetches
    count: int
    until_ms: int
    worker: int
    door: int
    removes: bool = False
    timeout_ms: int = 0
    ended: bool = False


class Audience:
    """Those who want messages of one queue."""

    __slots__ = ("_ended", "_first_wait_ms", "_waiting", "always_woken", "sleepers", "waiters", "woken")

    def __init__(self) -> None:
        self.waiters: deque[Waiter] | None = None  # first come, first served; may hold some that ended
        self._waiting: dict[Any, list[Waiter]] = EMPTY_DICT
        self._first_wait_ms = NEVER
        self._ended = 0  # of the waiters
        self.sleepers: OrderedDict[Any, None] = EMPTY_DICT
        self.always_woken: dict[Any, None] = EMPTY_DICT  # the sleepers that did not ask to be woken only for a message
        self.woken: dict[Any, int] = EMPTY_DICT  # woken and not fetched yet -> until when we expect it to

    def take_over(self, other: "Audience") -> None:
        """Take all of another one, which is not used any more."""
        self.sleepers, self.always_woken, self.woken = other.sleepers, other.always_woken, other.woken
        self.waiters, self._waiting = other.waiters, other._waiting
        self._first_wait_ms, self._ended = other._first_wait_ms, other._ended

    # --- who waits -------------------------------------------------------------------------------------------------

    def wait(self, waiter: Waiter) -> None:
        """Let a FET wait for a message."""
        if self.waiters is None:
            self.waiters, self._waiting = deque(), {}
        self.waiters.append(waiter)
        self._waiting.setdefault(waiter.session, []).append(waiter)
        self._first_wait_ms = min(self._first_wait_ms, waiter.until_ms)

    def next_waiter(self) -> Waiter | None:
        """Return the FET that has waited longest, leaving it in its place."""
        while self.waiters and self.waiters[0].ended:
            self.waiters.popleft()
            self._ended -= 1
        return self.waiters[0] if self.waiters else None

    def end_wait(self, waiter: Waiter) -> None:
        """A waiting FET gets its answer."""
        waiter.ended = True
        self._ended += 1
        others = self._waiting[waiter.session]
        others.remove(waiter)
        if not others:
            del self._waiting[waiter.session]
        assert self.waiters is not None, "it waited"
        if self._ended > len(self.waiters) // 2 + 64:
            self.waiters = deque(other for other in self.waiters if not other.ended)
            self._ended = 0

    def waits_of(self, session: Any) -> list[Waiter]:
        """Return the fetches of a session that wait."""
        return list(self._waiting.get(session, ()))

    def all_waits(self) -> list[Waiter]:
        return [waiter for waiter in self.waiters or () if not waiter.ended]

    def waits_over(self, now_ms: int) -> list[Waiter]:
        """Return the FETs that have waited long enough; the caller ends them."""
        if not self.waiters or self._first_wait_ms > now_ms:
            return []
        living = self.all_waits()
        self._first_wait_ms = min((w.until_ms for w in living if w.until_ms > now_ms), default=NEVER)
        return [waiter for waiter in living if waiter.until_ms <= now_ms]

    # --- who sleeps ------------------------------------------------------------------------------------------------

    def sleep(self, subscriber: Any, *, only_ready: bool) -> None:
        """A subscriber sleeps: until any message comes, or with `only_ready` until there is one for it."""
        if self.woken:
            self.woken.pop(subscriber, None)
        if self.sleepers is EMPTY_DICT:
            self.sleepers = OrderedDict()
        self.sleepers[subscriber] = None
        if not only_ready:
            if self.always_woken is EMPTY_DICT:
                self.always_woken = {}
            self.always_woken[subscriber] = None
        elif self.always_woken:
            self.always_woken.pop(subscriber, None)

    def fetched(self, subscriber: Any) -> None:
        """A subscriber fetched: it is neither asleep nor still expected."""
        if self.woken:
            self.woken.pop(subscriber, None)
        if self.sleepers:
            self.sleepers.pop(subscriber, None)
        if self.always_woken:
            self.always_woken.pop(subscriber, None)

    def gone(self, subscriber: Any) -> None:
        """Forget a subscriber that ended or left the group."""
        self.fetched(subscriber)
        for waiter in self.waits_of(subscriber):
            self.end_wait(waiter)
