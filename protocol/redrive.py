"""Redrive: which queue a dead letter goes back to, and with which headers.  Pure.

    headers of a letter --> Origins, which may ask for the dead-letter queue of its origin --> the queue, or None

The clients and the HTTP API move letters in their own ways; the rules are these.
"""

from collections.abc import Mapping

from wakeq.protocol.errors import BadName
from wakeq.protocol.names import DEAD_SUFFIX, check_name

# Headers with this prefix are the broker's own, and say why a message became a dead letter.
OWN_PREFIX = "wakeq-"
# The queue that a dead letter comes from.
ORIGIN = "wakeq-origin"
# How often a message was redriven.
REDRIVEN = "wakeq-redriven"


def redriven_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that the publisher gave, and how often the message was redriven."""
    own = {name: value for name, value in headers.items() if not name.startswith(OWN_PREFIX)}
    before = headers.get(REDRIVEN, "")
    return own | {REDRIVEN: str(int(before) + 1 if before.isascii() and before.isdigit() else 1)}


class Origins:
    """The queues to which the letters of one dead-letter queue may go back.

    Any client that may publish to the dead-letter queue can forge an origin.  So a letter stays if the queue that it
    names does not send its dead letters here, unless `anywhere` allows it.
    """

    def __init__(self, queue: str, *, anywhere: bool) -> None:
        self._queue = queue
        self._anywhere = anywhere
        # Origins that send their dead letters here; a deleted queue is recognised by its name.
        self._members = {queue.removesuffix(DEAD_SUFFIX)} if queue.endswith(DEAD_SUFFIX) else set[str]()
        # Other queues that were named as origins.
        self.strangers: set[str] = set()

    def origin_of(self, headers: Mapping[str, str]) -> str | None:
        """Return the origin that a letter names, or None if it names no other queue."""
        try:
            origin = check_name(headers[ORIGIN])
        except (KeyError, BadName):
            return None
        return None if origin == self._queue else origin

    def is_unknown(self, origin: str) -> bool:
        """Whether `learn` must be called before `allows`."""
        return not (self._anywhere or origin in self._members or origin in self.strangers)

    def learn(self, origin: str, dead_letter: str | None) -> None:
        """Learn the dead-letter queue of an origin; None if there is no such queue."""
        (self._members if dead_letter == self._queue else self.strangers).add(origin)

    def allows(self, origin: str) -> bool:
        """Whether a letter may go back to this origin."""
        return self._anywhere or origin in self._members
