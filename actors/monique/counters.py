"""MoniqueCounters: counts of MoniQue since the node began, for the metrics; they only grow.

    actors of MoniQue --> one more --> MoniqueCounters --> the metrics

There is one object for all actors, because they come and go with leadership.  It also builds the functions that count
and log dropped messages.
"""

import logging
from collections.abc import Callable
from typing import Final, Literal

from wakeq.actors.rate_limited_log import RateLimitedLog
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


class MoniqueCounters:
    """Counters of one node."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        # Messages received, by source.
        self.taken: dict[Source, int] = dict.fromkeys(SOURCES, 0)
        # Messages sent to WebSocket clients, once for each client.
        self.pushed = 0
        self.dropped: dict[DroppedAt, int] = dict.fromkeys(DROPPED_AT, 0)
        # Tasks of specs with a route, by fate.
        self.tasks: dict[Fate, int] = dict.fromkeys(FATES, 0)
        self._now_ms = now_ms

    def dropper(self, place: DroppedAt, where: str) -> Callable[[MoniqueError], None]:
        """Return a function that counts and logs a dropped message; `where` stands in the log line.

        The log is the only place to report it: a sender over ZeroMQ gets no answer.
        """
        complaints = RateLimitedLog(logger, self._now_ms)

        def note(error: MoniqueError) -> None:
            self.dropped[place] += 1
            complaints.log(f"{where}: dropped ({error.number}): {error}")

        return note
