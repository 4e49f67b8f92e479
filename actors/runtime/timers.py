"""Timers: the one process that owns all deadlines.

    SetAlarm(owner, at_ms), ClearAlarm(owner) --> heap --> Alarm(now_ms) to the owner, once, never early

Time is the cluster clock that is passed in; sleeping is the loop's `call_later`, also passed in.  It wakes
for the earliest deadline only.  It knows nothing of what a deadline is for, and reads no clock of its own.
"""

import heapq
from collections.abc import Callable
from typing import NamedTuple, Protocol, assert_never

from wakeq.actors.runtime.runtime import Process

# Alarms that go out for one message; the rest goes out for the next, behind the mail of the others.
ALARMS_PER_TURN_MAX = 1024
# Heap entries that may be stale before any are cleared away, beyond as many as are live.
STALE_ENTRIES_MAX = 64
# The cluster clock may run ahead of the monotonic clock by 1 %.  So a long sleep ends after 99 % of the way,
# and what is left is slept as a shorter one; under a tenth of a second that 1 % is at most a millisecond.
SLEEP_PERCENT = 99
SLEEP_WHOLE_MS = 100
SLEEP_MS_MAX = 3_600_000  # loops have bounds of their own for a sleep


class SetAlarm(NamedTuple):
    """Wake owner at that moment instead of at any other."""

    owner: Process
    at_ms: int


class ClearAlarm(NamedTuple):
    """Let owner sleep."""

    owner: Process


class Alarm(NamedTuple):
    """What the owner is told: its deadline has come."""

    now_ms: int


class Wake(NamedTuple):
    """The loop's sleep is over."""


class Handle(Protocol):
    """What call_later returns."""

    def cancel(self) -> None:
        """Do not call any more."""


class Timers(Process):
    """All deadlines, one for each owner.

    `_deadlines` is the truth.  A heap entry counts only while it agrees with it; the others are stale, and
    are never more than the live ones and STALE_ENTRIES_MAX together.  Owners that have ended go when the heap
    has doubled.
    """

    def __init__(self, now_ms: Callable[[], int], call_later: Callable[[float, Callable[[], None]], Handle]) -> None:
        super().__init__()
        self._now_ms = now_ms
        self._call_later = call_later
        self._deadlines: dict[Process, int] = {}
        self._heap: list[tuple[int, int, Process]] = []  # (at_ms, order of setting, owner)
        self._order = 0
        self._compact_at = STALE_ENTRIES_MAX  # entries; owners that have ended count as live until then
        self._handle: Handle | None = None
        self._wakes_at_ms = 0  # what _handle sleeps for, if there is one

    def set(self, owner: Process, at_ms: int) -> None:
        """Tell SetAlarm; from any thread."""
        self.tell(SetAlarm(owner, at_ms))

    def clear(self, owner: Process) -> None:
        """Tell ClearAlarm; from any thread."""
        self.tell(ClearAlarm(owner))

    def on_receive(self, message: SetAlarm | ClearAlarm | Wake) -> None:
        """Change a deadline, or fire what is due."""
        match message:
            case SetAlarm(owner, at_ms):
                self._set(owner, at_ms)
            case ClearAlarm(owner):  # the sleep stays: one idle waking costs less than a new sleep
                self._deadlines.pop(owner, None)
            case Wake():
                self._fire()
            case _:
                assert_never(message)

    def on_stop(self) -> None:
        """Give the sleep back."""
        self._sleep_not()

    def on_failure(self, *_error: object) -> None:
        """Give the sleep back."""
        self._sleep_not()

    def _set(self, owner: Process, at_ms: int) -> None:
        if not owner.alive or self._deadlines.get(owner) == at_ms:
            return
        self._deadlines[owner] = at_ms
        self._order += 1
        heapq.heappush(self._heap, (at_ms, self._order, owner))
        if len(self._heap) > min(2 * len(self._deadlines) + STALE_ENTRIES_MAX, self._compact_at):
            self._compact()
        self._sleep_until(self._heap[0][0])

    def _compact(self) -> None:
        """Keep the live entries only; paid for by as many pushes as there are entries."""
        kept = {}
        for at_ms, order, owner in self._heap:
            if self._deadlines.get(owner) == at_ms and owner.alive:
                kept[owner] = (at_ms, order, owner)
        self._deadlines = {owner: entry[0] for owner, entry in kept.items()}
        self._heap = list(kept.values())
        heapq.heapify(self._heap)
        self._compact_at = 2 * len(kept) + STALE_ENTRIES_MAX

    def _fire(self) -> None:
        self._sleep_not()  # whoever set the clock may have told Wake before the sleep was over
        now_ms = self._now_ms()
        alarm = Alarm(now_ms)
        heap, deadlines = self._heap, self._deadlines
        for _ in range(ALARMS_PER_TURN_MAX):
            if not heap or heap[0][0] > now_ms:
                break
            at_ms, _order, owner = heapq.heappop(heap)
            if deadlines.get(owner) == at_ms:
                del deadlines[owner]
                owner.tell(alarm)
        self._skip_stale()
        if heap:
            self._sleep_until(heap[0][0])

    def _skip_stale(self) -> None:
        """Take stale entries off the top, so that nobody wakes for them."""
        while self._heap and self._deadlines.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)

    def _sleep_until(self, at_ms: int) -> None:
        """Sleep for at_ms, unless a sleep that ends no later is under way."""
        if self._handle is not None:
            if self._wakes_at_ms <= at_ms:
                return
            self._handle.cancel()
        left_ms = max(0, at_ms - self._now_ms())
        if left_ms > SLEEP_WHOLE_MS:
            left_ms = min(left_ms * SLEEP_PERCENT // 100, SLEEP_MS_MAX)
        self._wakes_at_ms = at_ms
        self._handle = self._call_later(left_ms / 1000, self._wake)

    def _sleep_not(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _wake(self) -> None:
        self.tell(Wake())
