"""Handshakes: the connections of a port whose peers have not authenticated yet.

    enter(source, end) --> a place; if there are too many, the oldest one of the source that has the most is ended
    leave(place)       --> the peer has authenticated, or is gone

So a source that connects again and again ends its own connections first, and never keeps out other sources.  A place
has no deadline; its holder sets one.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

HANDSHAKES_MAX: Final = 256


class Place:
    """One connection.  `end` is called at most once, when the connection has to make room."""

    __slots__ = ("end", "source")

    def __init__(self, source: str, end: Callable[[], None]) -> None:
        self.source = source
        self.end = end


class Handshakes:
    """The places of one port."""

    def __init__(self, most: int = HANDSHAKES_MAX) -> None:
        self._most = most
        self._count = 0
        # The places of each source, the oldest first.
        self._by_source: dict[str, OrderedDict[Place, None]] = {}

    def __len__(self) -> int:
        return self._count

    def enter(self, source: str, end: Callable[[], None]) -> Place:
        """Give a connection from this source a place."""
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
