"""Audience: who waits for the messages of a queue, who sleeps, and who was woken and has not fetched yet.

    FET with wait --> wait ... next_waiter, waits_over --> end_wait        ISLP --> sleep ... woken --> fetched, gone

A part of Leases.  Pure: it tells no process anything, and time comes in as a number.  It knows nothing of messages.

The wake contract: while messages are ready, sleepers are woken until nobody sleeps, or there are as many woken ones
that have not fetched yet as there are messages; a sleeper that did not ask for this restraint is woken in any case, as
the original's document says.  It holds at every moment, not only when a message comes: `to_wake` is asked after every
change, and says who is to be woken.
"""

from collections import OrderedDict, deque
from typing import Any

import msgspec

from wakeq.protocol.queue.empty import EMPTY_DICT

NEVER = 1 << 62  # milliseconds: later than any moment
WOKEN_GRACE_MS = 5_000  # if a woken worker has not fetched by then, another one is woken


class WaitingFetch(msgspec.Struct, gc=False, eq=False):
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
        self.waiters: deque[WaitingFetch] | None = None  # first come, first served; may hold some that ended
        self._waiting: dict[Any, list[WaitingFetch]] = EMPTY_DICT  # those that have not ended, by session
        self._first_wait_ms = NEVER  # no wait ends before
        self._ended = 0  # of the waiters
        self.sleepers: OrderedDict[Any, None] = EMPTY_DICT  # in the order in which they are woken
        self.always_woken: dict[Any, None] = EMPTY_DICT  # the sleepers that did not ask to be woken only for a message
        self.woken: dict[Any, int] = EMPTY_DICT  # woken and not fetched yet -> until when we expect it to

    def next_moment_ms(self) -> int:
        """Return when to look again: a wait is over by then, or somebody who was woken is expected no longer."""
        moment_ms = self._first_wait_ms if self.waiters else NEVER
        return min(moment_ms, next(iter(self.woken.values()))) if self.woken else moment_ms

    # --- who waits -------------------------------------------------------------------------------------------------

    def wait(self, waiter: WaitingFetch) -> None:
        """Let a FET wait for a message."""
        if self.waiters is None:
            self.waiters, self._waiting = deque(), {}
        self.waiters.append(waiter)
        self._waiting.setdefault(waiter.session, []).append(waiter)
        self._first_wait_ms = min(self._first_wait_ms, waiter.until_ms)

    def next_waiter(self) -> WaitingFetch | None:
        """Return the FET that has waited longest, leaving it in its place."""
        while self.waiters and self.waiters[0].ended:
            self.waiters.popleft()
            self._ended -= 1
        return self.waiters[0] if self.waiters else None

    def end_wait(self, waiter: WaitingFetch) -> None:
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

    def waits_of(self, session: Any) -> list[WaitingFetch]:
        """Return the fetches of a session that wait."""
        return list(self._waiting.get(session, ()))

    def all_waits(self) -> list[WaitingFetch]:
        return [waiter for waiter in self.waiters or () if not waiter.ended]

    def waits_over(self, now_ms: int) -> list[WaitingFetch]:
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

    def note_fetch(self, subscriber: Any) -> None:
        """A subscriber fetched: it is neither asleep nor still expected."""
        if self.woken:
            self.woken.pop(subscriber, None)
        if self.sleepers:
            self.sleepers.pop(subscriber, None)
        if self.always_woken:
            self.always_woken.pop(subscriber, None)

    def expect(self, now_ms: int) -> None:
        """Expect those no longer who were woken and have not fetched in time."""
        while self.woken and next(iter(self.woken.values())) <= now_ms:
            self.woken.pop(next(iter(self.woken)))

    def to_wake(self, ready: int, wake: str, now_ms: int) -> list[Any]:
        """Take the sleepers to wake for so many ready messages off the list; `wake` is the queue's policy."""
        chosen = self.woken_by_any(wake) if self.always_woken or wake == "all" else []
        while self.sleepers and ready > len(self.woken):
            subscriber, _ = self.sleepers.popitem(last=False)
            if self.always_woken:
                self.always_woken.pop(subscriber, None)
            if self.woken is EMPTY_DICT:
                self.woken = {}
            self.woken[subscriber] = now_ms + WOKEN_GRACE_MS
            chosen.append(subscriber)
        return chosen

    def woken_by_any(self, wake: str) -> list[Any]:
        """Take the sleepers that any message wakes, by the queue's policy, off the list."""
        match wake:
            case "all":
                chosen = list(self.sleepers)
            case "sleeper":
                chosen = list(self.always_woken)
            case _:
                return []
        for subscriber in chosen:
            del self.sleepers[subscriber]
        if self.always_woken:
            self.always_woken.clear()
        return chosen

    def forget(self, subscriber: Any) -> None:
        """Forget a subscriber that ended or left the group."""
        self.note_fetch(subscriber)
        for waiter in self.waits_of(subscriber):
            self.end_wait(waiter)
