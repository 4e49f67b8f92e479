"""FetchPlanner: what a pool of handlers asks the broker next, so that it is never deaf and never hoards.

    answers, wakes, connections, free places  -->  FetchPlanner  -->  Fetch, Sleep; is it sated?

Pure: no socket, no clock, no task.  For each queue there is one question under way at most.  The rule it keeps: while
the pool has room, and the limit too, a queue is being asked, or the broker knows, on the connection there is, that we
sleep on it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from wakeq.worker.engine.message_limit import MessageLimit

FETCH_MAX = 1000  # messages that the broker hands out at once


@dataclass(frozen=True, slots=True)
class Fetch:
    """Ask for up to `count` messages; that there is none only counts if nothing was doubted since."""

    queue: str
    count: int
    doubts: int = 0


@dataclass(frozen=True, slots=True)
class Sleep:
    """Say that we sleep; it only counts on the connection that it was said on."""

    queue: str
    connection: int


Question: TypeAlias = Fetch | Sleep


class QueueState(Enum):
    HUNGRY = auto()  # to be asked for messages as soon as there is room
    FETCHING = auto()
    TIRED = auto()  # there was nothing: to be told that we sleep
    FALLING_ASLEEP = auto()
    STIRRED = auto()  # woken before the answer to Sleep came: that answer is old already
    ASLEEP = auto()
    PAUSED = auto()  # refused; asked again when it is resumed


EMPTY = (
    QueueState.TIRED,
    QueueState.FALLING_ASLEEP,
    QueueState.ASLEEP,
)  # the last that was heard of the queue is that it has nothing


class FetchPlanner:
    """The moods of the queues that one pool of handlers serves, and the room that they share."""

    def __init__(self, queues: Iterable[str], *, slots: int, limit: MessageLimit | None = None) -> None:
        self._moods = dict.fromkeys(
            queues, QueueState.HUNGRY
        )  # in the order of turns: the first was served longest ago
        self._slots = slots
        self._limit = limit or MessageLimit()
        self._ahead = 0
        self._held = 0
        self._reserved = 0  # for the answers to the fetches under way
        self._connection = 0
        self._doubts = 0
        self._online = False
        self._closed = False

    # What was heard -----------------------------------------------------------------------------------------

    def connected(self) -> None:
        """There is a new connection, on which nobody knows that we sleep."""
        self._online = True
        self._connection += 1
        self._rouse()

    def lost(self) -> None:
        self._online = False
        self._rouse()

    def answered(self, question: Fetch, count: int) -> None:
        """So many messages came."""
        self._release(question, came=count)
        self._held += count
        empty = not count and question.doubts == self._doubts
        self._moods[question.queue] = QueueState.TIRED if empty else QueueState.HUNGRY

    def slept(self, question: Sleep) -> None:
        """The broker has taken note."""
        still = self._online and question.connection == self._connection
        stirred = self._moods[question.queue] is QueueState.STIRRED
        self._moods[question.queue] = QueueState.ASLEEP if still and not stirred else QueueState.HUNGRY

    def refused(self, question: Question) -> None:
        """The question came to nothing; the queue is not asked before it is resumed."""
        if isinstance(question, Fetch):
            self._release(question, came=0)
        self._moods[question.queue] = QueueState.PAUSED

    def resumed(self, queue: str) -> None:
        if self._moods[queue] is QueueState.PAUSED:
            self._moods[queue] = QueueState.HUNGRY

    def awoken(self, queue: str) -> None:
        """There may be something.  While we fetch it says nothing new: Sleep will be answered with it again."""
        match self._moods.get(queue):
            case QueueState.ASLEEP:
                self._moods[queue] = QueueState.HUNGRY
            case QueueState.FALLING_ASLEEP:
                self._moods[queue] = QueueState.STIRRED
            case _:
                pass

    def doubt(self) -> None:
        """Of what was settled some may have gone back to a queue, or on to the next: they are to be asked again."""
        self._doubts += 1
        for queue, mood in self._moods.items():
            if mood is QueueState.FALLING_ASLEEP:
                self._moods[queue] = QueueState.STIRRED
            elif mood in EMPTY:
                self._moods[queue] = QueueState.HUNGRY

    def freed(self, count: int) -> None:
        """So many messages are no longer held."""
        self._held -= count

    def reach(self, ahead: int) -> None:
        """How many messages to hold beyond those that can start at once."""
        self._ahead = ahead

    def close(self) -> None:
        """Ask nothing more; what is under way may still be answered."""
        self._closed = True

    # What to say --------------------------------------------------------------------------------------------

    def questions(self) -> list[Question]:
        """What to ask now.  Each of them must be followed by answered, slept or refused."""
        if self._closed or not self._online:
            return []
        asked: list[Question] = []
        for queue, mood in list(self._moods.items()):
            if mood is QueueState.TIRED and self._limit.left:
                asked.append(Sleep(queue, self._connection))
                self._moods[queue] = QueueState.FALLING_ASLEEP
            elif mood is QueueState.HUNGRY and (room := self._room()):
                asked.append(Fetch(queue, room, self._doubts))
                self._reserved += room
                self._limit.ask(room)
                del self._moods[queue]  # to the end of the line
                self._moods[queue] = QueueState.FETCHING
        return asked

    @property
    def sated(self) -> bool:
        """Nothing is held, and all queues have said that they have nothing since there was doubt."""
        return not self._held and all(mood in EMPTY for mood in self._moods.values())

    def _room(self) -> int:
        """How many to ask for; 0 while it is not worth a question yet."""
        room = self._slots + self._ahead - self._held - self._reserved
        return int(min(room, FETCH_MAX, self._limit.left)) if room > self._ahead // 2 else 0

    def _release(self, question: Fetch, *, came: int) -> None:
        """What was set aside for the answer to a fetch is not needed any more."""
        self._reserved -= question.count
        self._limit.answered(question.count, came=came)

    def _rouse(self) -> None:
        for queue, mood in self._moods.items():
            if mood is QueueState.ASLEEP:
                self._moods[queue] = QueueState.HUNGRY
