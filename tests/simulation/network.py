"""Network: loses, repeats, delays and reorders messages, separates nodes, and delivers old messages again.

    send --> no, one or two deliveries some time later

It never changes a message: damage is for the checksums to find, not for the core.
"""

from typing import TYPE_CHECKING, Any

from tests.simulation.entries import Entry

if TYPE_CHECKING:
    from tests.simulation.world import World

REMEMBERED = 64


class Network:
    """The links between all nodes."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.cuts: set[tuple[int, int]] = set()  # (from, to): no message passes
        knobs = world.knobs
        self.is_quiet = False  # all faults are over
        self._drop, self._twice = knobs.drop, 1.0 - knobs.duplicate
        self._late = knobs.late
        self._stale = knobs.stale
        self._election_us = knobs.settings.election_ms * 1000
        self._last_us: dict[tuple[int, int], int] = {}  # the last delivery, for links that keep the order
        self._old: list[tuple[Any, list[Entry]]] = []  # messages to be delivered again

    def calm(self) -> None:
        """Deliver every message soon and once from now on."""
        self.is_quiet = True
        self.cuts.clear()

    def send(self, message: Any, entries: list[Entry]) -> None:
        if self.is_quiet:
            self._deliver_after(message, entries, 1_000 + int(self.world.random() * 4_000))
            return
        chance = self.world.random()
        if chance < self._drop:
            return
        span_us = self._span_us()
        self._deliver_after(message, entries, span_us)
        if chance > self._twice:
            self._deliver_after(message, entries, self._span_us())
        if self._stale and chance < self._drop + self._stale:
            self._remember(message, entries)

    def _span_us(self) -> int:
        random = self.world.random
        span_us = 200 + int(random() * self.world.knobs.delay_us)
        if self._late and random() < self._late:
            span_us += int(random() * 3 * self._election_us)
        return span_us

    def _deliver_after(self, message: Any, entries: list[Entry], span_us: int) -> None:
        if self.world.knobs.is_ordered:
            pair = (message.sender, message.receiver)
            at_us = max(self.world.now_us + span_us, self._last_us.get(pair, 0))
            self._last_us[pair] = at_us
            span_us = at_us - self.world.now_us
        self.world.at(span_us, self._deliver, (message, entries))

    def _deliver(self, what: tuple[Any, list[Entry]]) -> None:
        message, entries = what
        if self.cuts and (message.sender, message.receiver) in self.cuts:
            return
        self.world.deliver(message, entries, self._deliver)

    def _remember(self, message: Any, entries: list[Entry]) -> None:
        """Keep a message that is delivered again much later, perhaps in another life of its receiver."""
        self._old.append((message, entries))
        if len(self._old) > REMEMBERED:
            again = self._old.pop(int(self.world.random() * REMEMBERED))
            self.world.at(int(self.world.random() * self._election_us), self._deliver, again)
