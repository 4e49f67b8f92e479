"""Tally: what MoniQue has done since the node began, for the metrics: numbers that only grow.

    processes of MoniQue --> one more --> Tally --> the metrics

One for all of them, for they come and go with leadership.  It also makes what says that something was dropped.
"""

import logging
from collections.abc import Callable
from typing import Final, Literal

from wakeq.actors.complaints import Complaints
from wakeq.protocol.wire.monique.errors import MoniqueError

logger = logging.getLogger("wakeq.monique")

Source = Literal["websocket", "zeromq", "queue"]
DroppedAt = Literal["from_component", "to_component", "to_controller", "kill", "to_queue", "from_queue", "answer"]
Fate = Literal["kept", "refused", "given", "returned", "answered", "killed"]

SOURCES: Final[tuple[Source, ...]] = ("websocket", "zeromq", "queue")
DROPPED_AT: Final[tuple[DroppedAt, ...]] = (
    "from_component",
    "to_component",
    "to_controller",
    "kill",
    "to_queue",
    "from_queue",
    "answer",
)
FATES: Final[tuple[Fate, ...]] = ("kept", "refused", "given", "returned", "answered", "killed")


class Tally:
    """See the head of this file."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.taken: dict[Source, int] = dict.fromkeys(SOURCES, 0)  # messages, by where they came from
        self.pushed = 0  # to WebSocket clients, one for each of them
        self.dropped: dict[DroppedAt, int] = dict.fromkeys(DROPPED_AT, 0)
        self.tasks: dict[Fate, int] = dict.fromkeys(FATES, 0)  # of those with a route
        self._now_ms = now_ms

    def dropper(self, place: DroppedAt, where: str) -> Callable[[MoniqueError], None]:
        """Return what counts and says what is dropped at a place; `where` stands in the log.

        It has to be said there, for whoever sent it over ZeroMQ hears nothing.
        """
        complaints = Complaints(logger, self._now_ms)

        def note(error: MoniqueError) -> None:
            self.dropped[place] += 1
            complaints.say(f"{where}: dropped ({error.number}): {error}")

        return note
