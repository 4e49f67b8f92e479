"""UnderWay: what one TaskFlux connection has begun and knows no outcome of, and what may begin beside it.

    Intent --> begin --> take --> whoever does it --> end
    Packet --> may_begin --> whether its turn has come

Pure; it must never ask what an outcome was.
"""

from wakeq.protocol.wire.taskflux.intents import Intent, Return, StopWaiting, Store, Take
from wakeq.protocol.wire.taskflux.packets import (
    Bad,
    Count,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    Dequeues,
    Enqueue,
    Enqueues,
    ListQueues,
    Packet,
)

_LOOKING = frozenset((Dequeue, Dequeues, Count, ListQueues))
_CHANGING = frozenset((Store, Return))
_AFTER_RETURN = _LOOKING | {Enqueue, Enqueues}
_ALONE = frozenset((Dequeue, Take, ListQueues, CreateQueue, DeleteQueue))  # a list is of one moment


class UnderWay:
    """See the head of this file."""

    __slots__ = ("_begun", "_changing", "_is_waiting", "_returning", "count", "is_exclusive", "is_held_up")

    def __init__(self) -> None:
        self.count = 0  # intents that have no outcome yet
        self.is_exclusive = False  # there is one before whose end nothing begins
        self.is_held_up = False  # the client does not read: nothing more is begun that brings it much
        self._is_waiting = False  # that one is a Dequeue, which may wait for its record
        self._changing = 0  # those whose effect a Dequeue, Count or ListQueues would have to see
        self._returning = (
            0  # of them, those which an Enqueue would have to see: what is back takes room, and stands first
        )
        self._begun: list[Intent] = []  # those that nobody has taken yet

    def begin(self, intent: Intent) -> None:
        """Have something done."""
        kind = type(intent.work)
        if kind in _CHANGING:
            self._changing += 1
            self._returning += kind is Return
        elif kind in _ALONE:
            self.is_exclusive, self._is_waiting = True, kind is Dequeue
        self.count += 1
        self._begun.append(intent)

    def end(self, intent: Intent) -> None:
        """The outcome of an intent is known."""
        kind = type(intent.work)
        if kind in _CHANGING:
            self._changing -= 1
            self._returning -= kind is Return
        elif kind in _ALONE:
            self.is_exclusive = self._is_waiting = False
        self.count -= 1

    def may_begin(self, packet: Packet | Bad) -> bool:
        """Whether nothing that is under way must be over first."""
        if self.is_exclusive or (self._returning and type(packet) in _AFTER_RETURN):
            return False
        return not ((self._changing or self.is_held_up) and type(packet) in _LOOKING)

    def stop_waiting(self) -> None:
        """Have a Dequeue that waits for its record end now; nothing comes of that but its own outcome."""
        if self._is_waiting:
            self._begun.append(Intent(StopWaiting()))

    def take(self) -> list[Intent]:
        """Return, once, what was begun."""
        begun, self._begun = self._begun, []
        return begun
