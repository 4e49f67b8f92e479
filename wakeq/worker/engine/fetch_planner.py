"""FetchPlanner: what a pool of handlers asks the broker next, so that it misses no message and hoards none.

    answers, wake-ups, connections, free slots  -->  FetchPlanner  -->  Fetch, Sleep; are all queues empty?

MessageLimit and PrefetchEstimator say how many messages it may ask for. All are pure: no socket, no clock, no task.
Each queue has at most one request outstanding. The invariant: while the pool has a free slot and the limit of messages
is not reached, each queue is being fetched from, or the broker knows, on the current connection, that this worker
sleeps on it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

AHEAD_S = 0.05
# The weight of the newest batch in the running mean.
WEIGHT = 0.25

# The broker delivers at most so many messages at once.
FETCH_MAX = 1000


class MessageLimit:
    """How many messages all pools of a worker may still fetch in one run. Without a limit it only counts them.

    The room in a fetch is reserved until its answer, so that two fetches never bring more than the limit.
    """

    def __init__(self, limit: int | None = None) -> None:
        # Without the messages that were released before a handler began.
        self.taken = 0
        self._limit = math.inf if limit is None else limit
        # Room in outstanding fetches.
        self._reserved = 0

    @property
    def left(self) -> float:
        """How many messages may be asked for now."""
        return self._limit - self.taken - self._reserved

    @property
    def is_reached(self) -> bool:
        return self.taken >= self._limit

    def reserve(self, count: int) -> None:
        self._reserved += count

    def end_reservation(self, reserved: int, *, received: int) -> None:
        """Note the answer to a fetch for `reserved` messages."""
        self._reserved -= reserved
        self.taken += received

    def untried(self, count: int) -> None:
        """Note that messages were released before a handler began; others may be fetched instead."""
        self.taken -= count


class PrefetchEstimator:
    """How many messages a pool may fetch ahead, by the running mean of the duration of its handlers.

    A message that waits inside a busy worker cannot go to an idle one. So nothing is fetched ahead unless handlers are
    short, and then only as many messages as will start within AHEAD_S.
    """

    def __init__(self, *, slots: int, prefetch_max: int) -> None:
        self._slots = slots
        self._prefetch_max = prefetch_max
        self._mean_s: float | None = None

    def finished(self, handlers: int, total_s: float) -> None:
        """Note that so many handlers took `total_s` together."""
        mean_s = total_s / handlers
        self._mean_s = mean_s if self._mean_s is None else self._mean_s + WEIGHT * (mean_s - self._mean_s)

    def stalled(self, waited_s: float) -> None:
        """Note that a prefetched message has waited for so long: handlers are not short any more."""
        self._mean_s = max(self._mean_s or 0.0, waited_s)

    @property
    def prefetch(self) -> int:
        """How many messages to hold beyond those that can start at once."""
        if self._mean_s is None or self._mean_s >= AHEAD_S:
            return 0
        return min(self._prefetch_max, int(self._slots * AHEAD_S / max(self._mean_s, 1e-6)))


@dataclass(frozen=True, slots=True)
class Fetch:
    """Ask for up to `count` messages. An empty answer counts only if `rechecks` has not changed since."""

    queue: str
    count: int
    rechecks: int = 0


@dataclass(frozen=True, slots=True)
class Sleep:
    """Ask to be woken. The answer counts only for the connection on which this was sent."""

    queue: str
    connection: int


Request: TypeAlias = Fetch | Sleep


class QueueState(Enum):
    # A fetch is sent as soon as there is room.
    TO_FETCH = auto()
    FETCHING = auto()
    # The queue was empty; the next request is Sleep.
    TO_SLEEP = auto()
    SLEEP_SENT = auto()
    # The broker woke this worker before it answered Sleep, so that answer is out of date.
    WOKEN_EARLY = auto()
    SLEEPING = auto()
    # A request was refused; the queue is not asked before it is resumed.
    PAUSED = auto()


# The last answer of the broker was that the queue is empty.
EMPTY = (QueueState.TO_SLEEP, QueueState.SLEEP_SENT, QueueState.SLEEPING)


class FetchPlanner:
    """The states of the queues that one pool of handlers serves, and the slots that they share."""

    def __init__(self, queues: Iterable[str], *, slots: int, limit: MessageLimit | None = None) -> None:
        # In the order of turns: the first queue was served longest ago.
        self._states = dict.fromkeys(queues, QueueState.TO_FETCH)
        self._slots = slots
        self._limit = limit or MessageLimit()
        # How many messages may be held beyond those that can start at once.
        self._prefetch = 0
        self._held = 0
        # Room for the answers to outstanding fetches.
        self._reserved = 0
        # The number of the current connection.
        self._connection = 0
        self._rechecks = 0
        self._online = False
        self._closed = False

    # Events -------------------------------------------------------------------------------------------------

    def connected(self) -> None:
        """Note a new connection, on which the broker does not know that this worker sleeps."""
        self._online = True
        self._connection += 1
        self._wake_sleeping()

    def lost(self) -> None:
        self._online = False
        self._wake_sleeping()

    def fetched(self, request: Fetch, count: int) -> None:
        """Note that a fetch brought `count` messages."""
        self._end_reservation(request, received=count)
        self._held += count
        is_empty = not count and request.rechecks == self._rechecks
        self._states[request.queue] = QueueState.TO_SLEEP if is_empty else QueueState.TO_FETCH

    def slept(self, request: Sleep) -> None:
        """Note that the broker will wake this worker."""
        is_current = self._online and request.connection == self._connection
        is_woken = self._states[request.queue] is QueueState.WOKEN_EARLY
        self._states[request.queue] = QueueState.SLEEPING if is_current and not is_woken else QueueState.TO_FETCH

    def refused(self, request: Request) -> None:
        """Note that a request failed; the queue is not asked before it is resumed."""
        if isinstance(request, Fetch):
            self._end_reservation(request, received=0)
        self._states[request.queue] = QueueState.PAUSED

    def resumed(self, queue: str) -> None:
        if self._states[queue] is QueueState.PAUSED:
            self._states[queue] = QueueState.TO_FETCH

    def woken(self, queue: str) -> None:
        """Note that the queue may have a message. A fetch that is under way will find it."""
        match self._states.get(queue):
            case QueueState.SLEEPING:
                self._states[queue] = QueueState.TO_FETCH
            case QueueState.SLEEP_SENT:
                self._states[queue] = QueueState.WOKEN_EARLY
            case _:
                pass

    def recheck(self) -> None:
        """Ask all empty queues again: a message may have returned to its queue, or a follow-up arrived on another."""
        self._rechecks += 1
        for queue, state in self._states.items():
            if state is QueueState.SLEEP_SENT:
                self._states[queue] = QueueState.WOKEN_EARLY
            elif state in EMPTY:
                self._states[queue] = QueueState.TO_FETCH

    def released(self, count: int) -> None:
        """Note that `count` messages are not held any more."""
        self._held -= count

    def set_prefetch(self, count: int) -> None:
        """Hold up to `count` messages beyond those that can start at once."""
        self._prefetch = count

    def close(self) -> None:
        """Plan no more requests; outstanding ones may still be answered."""
        self._closed = True

    # Requests -----------------------------------------------------------------------------------------------

    def next_requests(self) -> list[Request]:
        """Return the requests to send now. Each must be followed by `fetched`, `slept` or `refused`."""
        if self._closed or not self._online:
            return []
        requests: list[Request] = []
        for queue, state in list(self._states.items()):
            if state is QueueState.TO_SLEEP and self._limit.left:
                requests.append(Sleep(queue, self._connection))
                self._states[queue] = QueueState.SLEEP_SENT
            elif state is QueueState.TO_FETCH and (room := self._room()):
                requests.append(Fetch(queue, room, self._rechecks))
                self._reserved += room
                self._limit.reserve(room)
                # The queue moves to the end of the order of turns.
                del self._states[queue]
                self._states[queue] = QueueState.FETCHING
        return requests

    @property
    def all_empty(self) -> bool:
        """No message is held, and since the last recheck every queue was found empty."""
        return not self._held and all(state in EMPTY for state in self._states.values())

    def _room(self) -> int:
        """Return how many messages to ask for; 0 until at least half of the prefetch is used up."""
        room = self._slots + self._prefetch - self._held - self._reserved
        return int(min(room, FETCH_MAX, self._limit.left)) if room > self._prefetch // 2 else 0

    def _end_reservation(self, request: Fetch, *, received: int) -> None:
        self._reserved -= request.count
        self._limit.end_reservation(request.count, received=received)

    def _wake_sleeping(self) -> None:
        for queue, state in self._states.items():
            if state is QueueState.SLEEPING:
                self._states[queue] = QueueState.TO_FETCH
