"""Handshakes: the connections of a port whose other end has not proved yet who it is.

    enter(source, end) --> a place; if there are too many, the oldest one of the source that has the most is ended
    leave(place)       --> it is known now, or gone

So whoever only connects, however often, ends his own connections first, and never keeps out who comes from elsewhere.
A place has no limit of time of its own: who holds it sees to that.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

HANDSHAKES_MAX: Final = 256


class Place:
    """One connection.  `end` is called at most once, when it has to make room."""

    __slots__ = ("end", "source")

    def __init__(self, source: str, end: Callable[[], None]) -> None:
        self.source = source
        self.end = end


class Handshakes:
    """See the head of this file."""

    def __init__(self, most: int = HANDSHAKES_MAX) -> None:
        self._most = most
        self._count = 0
        self._by_source: dict[str, OrderedDict[Place, None]] = {}  # each in the order in which they came

    def __len__(self) -> int:
        return self._count

    def enter(self, source: str, end: Callable[[], None]) -> Place:
        """Give a connection from there a place."""
        place = Place(source, end)
        self._by_source.setdefault(source, OrderedDict())[place] = None
        self._count += 1
        if self._count > self._most:
            crowd: OrderedDict[Place, None] = max(self._by_source.values(), key=len)
            victim = next(iter(crowd))
            self.leave(victim)
            victim.end()
        return place

    def leave(self, place: Place) -> None:
        """Free a place; more than once does no harm."""
        places = self._by_source.get(place.source)
        if places is None or place not in places:
            return
        del places[place]
        self._count -= 1
        if not places:
            del self._by_source[place.source]
