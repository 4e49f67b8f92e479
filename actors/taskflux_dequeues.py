"""Dequeues: those of one connection that are under way, as if one began when the one before it was over.

    [Intent, ...] --> next_wants --> Want (queue) --> answered --> (Intent, outcome)

The queue is asked for all of them at once, without a wait.  Of those that find nothing the first one waits, and only
when that is over the others are asked for again.  Pure; knows no queue.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from wakeq.actors.messages import Delivery as HandedOut
from wakeq.actors.messages import Want
from wakeq.protocol.commands import Token
from wakeq.protocol.wire.taskflux.intents import Delivery, Intent, Outcome
from wakeq.protocol.wire.taskflux.packets import EMPTY, Dequeue, Record


class Holding(Struct, frozen=True, gc=False):
    """A record that a client holds, by what its queue calls it, and how long one lease of it lasts."""

    uid: str
    queue_id: int
    number: int
    token: Token
    lease_ms: int


def record_of(found: HandedOut) -> Record:
    """Return a message as a record: its number is the id."""
    return Record(found.priority, found.body, found.number)


def delivery_of(found: HandedOut, now_ms: int) -> Delivery:
    """Return a message as a record that the client will hold."""
    lease_ms = found.until_ms - now_ms
    return Delivery(record_of(found), Holding(found.uid, found.queue_id, found.number, found.token, lease_ms))


class Dequeues:
    """See the head of this file.  They are all of one queue."""

    __slots__ = ("_asked", "_intents", "_is_dry", "_is_waiting", "_stopped", "_unserved", "queue")

    def __init__(self, intents: Sequence[Intent]) -> None:
        self._intents = intents
        self._unserved = list(range(len(intents)))  # places of those that are not over, in order
        self._asked = 0  # of these, how many the queue has still to answer
        self._is_dry = len(intents) == 1  # the next one to be asked for would find nothing: it may as well wait
        self._is_waiting = False
        self._stopped = False
        self.queue = self._dequeue(0).queue

    @property
    def are_over(self) -> bool:
        return not self._unserved

    def stop(self) -> None:
        """Nobody waits any more: what is not there now is empty."""
        self._stopped = True

    def next_wants(self) -> list[Want]:
        """Return what to ask the queue for now; nothing while it has still to answer."""
        if self._asked or not self._unserved:
            return []
        first = self._unserved[0]
        wait_ms = 0 if self._stopped else self._dequeue(first).timeout_ms
        self._is_waiting = self._is_dry and wait_ms > 0
        self._is_dry = not self._is_waiting
        if self._is_waiting:
            self._asked = 1
            return [Want(first, 0, wait_ms)]
        self._asked = len(self._unserved)
        return [Want(place, 0) for place in self._unserved]

    def answered(self, place: int, outcome: Outcome | None) -> tuple[Intent, Outcome] | None:
        """Take what the queue had for one of them; return its outcome, unless it has still to wait."""
        self._asked -= 1
        if outcome is None:
            if self._dequeue(place).timeout_ms and not (self._is_waiting or self._stopped):
                return None
            outcome = EMPTY
        self._unserved.remove(place)
        return self._intents[place], outcome

    def _dequeue(self, place: int) -> Dequeue:
        work: Any = self._intents[place].work
        assert isinstance(work, Dequeue), "nothing else is dequeued"
        return work
