"""ManualTime: a clock and a `call_later` that move only when a test says so.

    advance(seconds) --> callbacks that fall due, in order, each followed by settle() --> the new time

It stands in for the cluster clock (`now_ms`), the monotonic clock (`monotonic_s`) and the loop's timer at
once.  It never reads a real clock and never sleeps.
"""

import heapq
import math
from collections.abc import Callable

US_PER_S = 1_000_000


class ManualHandle:
    """What call_later returns."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Do not call any more."""
        self.callback = None


class ManualTime:
    """Time by hand.  `settle` lets the system under test come to rest, such as runtime.run_until_idle."""

    def __init__(
        self,
        *,
        start_ms: int = 1_700_000_000_000,
        start_monotonic_s: float = 1000.0,
        settle: Callable[[], object] = lambda: None,
    ) -> None:
        self.settle = settle
        self.calls = 0  # callbacks that were run
        self._start_ms = start_ms
        self._start_monotonic_s = start_monotonic_s
        self._passed_us = 0  # whole microseconds, so that many small steps do not drift
        self._order = 0
        self._waiting: list[tuple[int, int, ManualHandle]] = []

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds."""
        return self._start_ms + self._passed_us // 1000

    def monotonic_s(self) -> float:
        """Return the monotonic clock."""
        return self._start_monotonic_s + self._passed_us / US_PER_S

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> ManualHandle:
        """Call back once that much time has been advanced; never early."""
        handle = ManualHandle(callback)
        self._order += 1
        due_us = self._passed_us + max(0, math.ceil(round(delay_s * US_PER_S, 3)))
        heapq.heappush(self._waiting, (due_us, self._order, handle))
        if len(self._waiting) > 1000 and self._order % 1000 == 0:
            self._waiting = [entry for entry in self._waiting if entry[2].callback is not None]
            heapq.heapify(self._waiting)
        return handle

    @property
    def waiting(self) -> int:
        """How many callbacks are still to come."""
        return sum(handle.callback is not None for _, _, handle in self._waiting)

    def advance(self, seconds: float) -> None:
        """Let time pass; every callback sees the very moment at which it is due."""
        until_us = self._passed_us + round(seconds * US_PER_S)
        self.settle()
        while self._waiting and self._waiting[0][0] <= until_us:
            due_us, _, handle = heapq.heappop(self._waiting)
            if handle.callback is None:
                continue
            self._passed_us = max(self._passed_us, due_us)
            callback, handle.callback = handle.callback, None
            self.calls += 1
            callback()
            self.settle()
        self._passed_us = until_us
        self.settle()
