"""ManualTime: a clock and a `call_later` that move only when a test says so.

    advance(seconds) --> callbacks that are due, in order, each followed by settle() --> the new time

It replaces the wall clock (`now_ms`), the monotonic clock (`monotonic_s`) and the loop's timer. `tick` is called with
each span of time that passes, so that another manual clock can follow. No real clock is read, and nothing sleeps.
"""

import heapq
import math
from collections.abc import Callable

US_PER_S = 1_000_000
# Cancelled callbacks are removed after so many calls of `call_later`.
CLEAR_EVERY = 1_000


class ManualHandle:
    """The handle of a callback."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Cancel the callback."""
        self.callback = None


class ManualTime:
    """A manual clock. `settle` runs the system under test until it is idle, such as runtime.run_until_idle."""

    def __init__(
        self,
        *,
        start_ms: int = 1_700_000_000_000,
        start_monotonic_s: float = 1000.0,
        settle: Callable[[], object] = lambda: None,
        tick: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        self.settle = settle
        # How many callbacks were run.
        self.calls = 0
        self._tick = tick
        self._start_ms = start_ms
        self._start_monotonic_s = start_monotonic_s
        # Whole microseconds, so that many small steps do not drift.
        self._passed_us = 0
        # Orders callbacks of the same moment.
        self._order = 0
        self._waiting: list[tuple[int, int, ManualHandle]] = []

    def now_ms(self) -> int:
        """Return the time of the wall clock in milliseconds."""
        return self._start_ms + self._passed_us // 1000

    def monotonic_s(self) -> float:
        """Return the time of the monotonic clock."""
        return self._start_monotonic_s + self._passed_us / US_PER_S

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> ManualHandle:
        """Call back when so much time has passed, never earlier."""
        handle = ManualHandle(callback)
        self._order += 1
        due_us = self._passed_us + max(0, math.ceil(round(delay_s * US_PER_S, 3)))
        heapq.heappush(self._waiting, (due_us, self._order, handle))
        if len(self._waiting) > CLEAR_EVERY and self._order % CLEAR_EVERY == 0:
            self._waiting = [entry for entry in self._waiting if entry[2].callback is not None]
            heapq.heapify(self._waiting)
        return handle

    @property
    def waiting(self) -> int:
        """How many callbacks are waiting."""
        return sum(handle.callback is not None for _, _, handle in self._waiting)

    def forget(self) -> None:
        """Cancel all callbacks."""
        self._waiting.clear()

    def advance(self, seconds: float) -> None:
        """Let time pass. Every callback runs at exactly the moment at which it is due."""
        if seconds < 0:
            raise ValueError(f"cannot advance the time by {seconds} s; it only goes forward")
        until_us = self._passed_us + round(seconds * US_PER_S)
        self.settle()
        while self._call_next(until_us):
            self.settle()
        self._pass_until(until_us)
        self.settle()

    def advance_to_next(self, seconds: float) -> bool:
        """Let time pass up to the next callback and run it. Return False if there is none within so many seconds."""
        if not self._call_next(self._passed_us + round(seconds * US_PER_S)):
            return False
        self.settle()
        return True

    def _call_next(self, until_us: int) -> bool:
        while self._waiting and self._waiting[0][0] <= until_us:
            due_us, _, handle = heapq.heappop(self._waiting)
            callback, handle.callback = handle.callback, None
            if callback is not None:
                self._pass_until(due_us)
                self.calls += 1
                callback()
                return True
        return False

    def _pass_until(self, moment_us: int) -> None:
        span_us = moment_us - self._passed_us
        if span_us > 0:
            self._passed_us = moment_us
            self._tick(span_us / US_PER_S)
