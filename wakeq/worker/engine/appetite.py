"""Appetite: what a pool of handlers asks the broker next, so that it is never deaf and never hoards.

    answers, wakes, connections, free places  -->  Appetite  -->  Fetch, Sleep; is it sated?

Pure: no socket, no clock, no task.  For each queue there is one question under way at most.  The rule it keeps: while
the pool has room, and the quota too, a queue is being asked, or the broker knows, on the connection there is, that we
sleep on it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from wakeq.worker.engine.quota import Quota

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


class Mood(Enum):
    HUNGRY = auto()  # to be asked for messages as soon as there is room
    FETCHING = auto()
    TIRED = auto()  # there was nothing: to be told that we sleep
    FALLING_ASLEEP = auto()
    STIRRED = auto()  # woken before the answer to Sleep came: that answer is old already
    ASLEEP = auto()
    PAUSED = auto()  # refused; asked again when it is resumed


EMPTY = (Mood.TIRED, Mood.FALLING_ASLEEP, Mood.ASLEEP)  # the last that was heard of the queue is that it has nothing


class Appetite:
    """The moods of the queues that one pool of handlers serves, and the room that they share."""

    def __init__(self, queues: Iterable[str], *, slots: int, quota: Quota | None = None) -> None:
        self._moods = dict.fromkeys(queues, Mood.HUNGRY)  # in the order of turns: the first was served longest ago
        self._slots = slots
        self._quota = quota or Quota()
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
        self._moods[question.queue] = Mood.TIRED if empty else Mood.HUNGRY

    def slept(self, question: Sleep) -> None:
        """The broker has taken note."""
        still = self._online and question.connection == self._connection
        stirred = self._moods[question.queue] is Mood.STIRRED
        self._moods[question.queue] = Mood.ASLEEP if still and not stirred else Mood.HUNGRY

    def refused(self, question: Question) -> None:
        """The question came to nothing; the queue is not asked before it is resumed."""
        if isinstance(question, Fetch):
            self._release(question, came=0)
        self._moods[question.queue] = Mood.PAUSED

    def resumed(self, queue: str) -> None:
        if self._moods[queue] is Mood.PAUSED:
            self._moods[queue] = Mood.HUNGRY

    def awoken(self, queue: str) -> None:
        """There may be something.  While we fetch it says nothing new: Sleep will be answered with it again."""
        match self._moods.get(queue):
            case Mood.ASLEEP:
                self._moods[queue] = Mood.HUNGRY
            case Mood.FALLING_ASLEEP:
                self._moods[queue] = Mood.STIRRED
            case _:
                pass

    def doubt(self) -> None:
        """Of what was settled some may have gone back to a queue, or on to the next: they are to be asked again."""
        self._doubts += 1
        for queue, mood in self._moods.items():
            if mood is Mood.FALLING_ASLEEP:
                self._moods[queue] = Mood.STIRRED
            elif mood in EMPTY:
                self._moods[queue] = Mood.HUNGRY

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
            if mood is Mood.TIRED and self._quota.left:
                asked.append(Sleep(queue, self._connection))
                self._moods[queue] = Mood.FALLING_ASLEEP
            elif mood is Mood.HUNGRY and (room := self._room()):
                asked.append(Fetch(queue, room, self._doubts))
                self._reserved += room
                self._quota.ask(room)
                del self._moods[queue]  # to the end of the line
                self._moods[queue] = Mood.FETCHING
        return asked

    @property
    def sated(self) -> bool:
        """Nothing is held, and all queues have said that they have nothing since there was doubt."""
        return not self._held and all(mood in EMPTY for mood in self._moods.values())

    def _room(self) -> int:
        """How many to ask for; 0 while it is not worth a question yet."""
        room = self._slots + self._ahead - self._held - self._reserved
        return int(min(room, FETCH_MAX, self._quota.left)) if room > self._ahead // 2 else 0

    def _release(self, question: Fetch, *, came: int) -> None:
        """What was set aside for the answer to a fetch is not needed any more."""
        self._reserved -= question.count
        self._quota.answered(question.count, came=came)

    def _rouse(self) -> None:
        for queue, mood in self._moods.items():
            if mood is Mood.ASLEEP:
                self._moods[queue] = Mood.HUNGRY
