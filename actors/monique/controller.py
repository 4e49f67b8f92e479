"""Controller: gives each task of one spec to one of the components that are connected to its port (section 7).

    exchange --> Pushed --> line --> the next component that can take one, in turn

What nobody can take waits here, up to a bound; beyond it the newest is dropped, for nobody promised to keep it.  Tasks
that must not be lost have a route, and a Bridge.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from wakeq.actors.monique.counters import MoniqueCounters
from wakeq.actors.monique.mail import Changed, Join, Parcel, Pushed
from wakeq.actors.runtime import Down, Process
from wakeq.protocol.wire.monique.errors import BadTransfer
from wakeq.protocol.wire.monique.exchange import Subscription

WAITING_MAX = 1_000
WAITING_BYTES_MAX = 64 << 20


class Giver(Protocol):
    """A port with components, of which Changed tells."""

    def can_take(self, component: int, /) -> bool:
        """Whether it is there and has taken what it was given before."""

    def send(self, component: int, frames: Sequence[bytes], /) -> bool:
        """Give it to that component; False if it cannot take it now."""


class Controller(Process):
    """See the head of this file."""

    def __init__(self, spec: str, port: Giver, exchange: Process, counters: MoniqueCounters, *, checks: bool) -> None:
        super().__init__()
        self._spec = spec
        self._port = port
        self._exchange = exchange
        self._checks = checks
        self._components: deque[int] = deque()  # whose turn is next stands first
        self._waiting: deque[Parcel] = deque()
        self._waiting_bytes = 0
        self._dropped = counters.dropper("to_controller", f"to the controller of {spec}")

    def on_start(self) -> None:
        self.runtime.monitor(self, self._exchange)
        self._exchange.tell(Join(self, [Subscription(self._spec, "config")], self._checks))

    def on_receive(self, message: Any) -> None:
        kind = type(message)
        if kind is Pushed:
            self._take(message.parcels)
            self._give()
        elif kind is Changed:
            self._meet(message.components)
            self._give()
        else:
            assert kind is Down, message
            self.stop()

    def _take(self, parcels: Sequence[Parcel]) -> None:
        """Line them up; of more than can wait, those are given out at once that somebody takes."""
        somebody_takes = True
        for parcel in parcels:
            if self._is_full and somebody_takes:
                self._give()
                somebody_takes = not self._is_full
            self._line_up(parcel)

    @property
    def _is_full(self) -> bool:
        return len(self._waiting) >= WAITING_MAX or self._waiting_bytes >= WAITING_BYTES_MAX

    def _line_up(self, parcel: Parcel) -> None:
        if self._checks and parcel.flaw is not None:
            self._dropped(parcel.flaw)
        elif self._is_full:
            self._dropped(BadTransfer(f"{len(self._waiting)} tasks wait, and no component takes them"))
        else:
            self._waiting.append(parcel)
            self._waiting_bytes += len(parcel.transfer.message)

    def _meet(self, components: Sequence[int]) -> None:
        """Keep the turns of those who stay; who comes is the last."""
        there = dict.fromkeys(components)
        stay = {one: None for one in self._components if one in there}
        self._components = deque(stay | there)

    def _give(self) -> None:
        while self._waiting and self._give_one(self._waiting[0].transfer.frames):
            self._waiting_bytes -= len(self._waiting.popleft().transfer.message)

    def _give_one(self, frames: Sequence[bytes]) -> bool:
        """Give it to the first whose turn it is and who can take it; False if nobody can."""
        for _ in range(len(self._components)):
            component = self._components[0]
            self._components.rotate(-1)
            if self._port.send(component, frames):
                return True
        return False
