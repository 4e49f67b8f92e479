"""Dequeues: those of one connection that are under way, as if one began when the one before it was over.

    [Intent, ...] --> ask --> Want (queue) --> found, found_nothing, refused --> (Intent, outcome), ...

The queue is asked for as many records as there are Dequeues, without a wait.  If there is none, the first of them
waits, alone: others who wait must not come behind those whose turn it is not yet.  Pure; knows no queue.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from wakeq.actors.messages import Delivery as HandedOut
from wakeq.actors.messages import Want
from wakeq.protocol.commands import Token
from wakeq.protocol.wire.taskflux.intents import Delivery, Intent, Outcome
from wakeq.protocol.wire.taskflux.packets import EMPTY, Dequeue, Record, Response


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
    holding = Holding(found.uid, found.queue_id, found.number, found.token, lease_ms)
    return Delivery(Record(found.priority, found.body, found.number), holding)


class Question(Struct, frozen=True, gc=False, eq=False):
    """What a queue is asked for at one time: the ticket of its answer."""

    dequeues: "Dequeues"
    want: Want


class Dequeues:
    """See the head of this file.  They are all of one queue."""

    __slots__ = ("_intents", "_is_dry", "_stopped", "question", "queue")

    def __init__(self, intents: Sequence[Intent]) -> None:
        self._intents = deque(intents)  # those that are not over
        self._is_dry = len(intents) == 1  # there was nothing just now; one alone may as well wait from the start
        self._stopped = False
        self.question: Question | None = None  # what the queue has still to answer; an older answer came before
        self.queue: str = self._first().queue

    @property
    def are_over(self) -> bool:
        return not self._intents

    def stop(self) -> None:
        """Nobody waits any more: what is not there now is empty."""
        self._stopped = True

    def ask(self) -> Question:
        """Return what to ask the queue for now."""
        want = Want(None, 1, self._wait_ms()) if self._is_dry else Want(None, len(self._intents))
        self.question = Question(self, want)
        return self.question

    def found(self, outcomes: Sequence[Outcome]) -> list[tuple[Intent, Outcome]]:
        """The first of them have what they came for."""
        over = [(self._intents.popleft(), outcome) for outcome in outcomes]
        self._is_dry = len(self._intents) == 1
        return over

    def found_nothing(self) -> list[tuple[Intent, Outcome]]:
        """There was nothing, perhaps after a wait: return those for whom it is over."""
        over: list[tuple[Intent, Outcome]] = []
        if self._is_dry:  # it has waited
            over.append((self._intents.popleft(), EMPTY))
        while self._intents and not self._wait_ms():
            over.append((self._intents.popleft(), EMPTY))
        self._is_dry = True
        return over

    def refused(self, answer: Response) -> list[tuple[Intent, Outcome]]:
        """The queue serves nobody: so it would say to each of them."""
        over: list[tuple[Intent, Outcome]] = [(intent, answer) for intent in self._intents]
        self._intents.clear()
        return over

    def _first(self) -> Dequeue:
        work: Any = self._intents[0].work
        assert isinstance(work, Dequeue), "nothing else is dequeued"
        return work

    def _wait_ms(self) -> int:
        return 0 if self._stopped else self._first().timeout_ms
