"""Components: all of MoniQue's components over ZeroMQ together, as one subscriber of the exchange.

    PULL --> Taken --> read_transfer --> Relayed, Technical --> exchange --> Pushed, Technical --> PUB
                                             passed_on <-- Answered <-- exchange

They filter by themselves, so they are told everything.  What a component could not unpack is kept from them, unless the
settings say that messages are encrypted: then nobody can know.  It is logged; a WebSocket client was refused it before.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from wakeq.actors.mail import Answered, ReplyByMail
from wakeq.actors.monique.counters import MoniqueCounters
from wakeq.actors.monique.mail import Join, JoinTechnical, Parcel, Pushed, Relayed, Technical
from wakeq.actors.runtime import Down, Process
from wakeq.protocol.wire.monique.errors import MoniqueError
from wakeq.protocol.wire.monique.exchange import ANY, Subscription
from wakeq.protocol.wire.monique.messages import decode_message
from wakeq.protocol.wire.monique.transfers import Transfer, read_transfer

Frames = Sequence[bytes]


class Taken(Struct, frozen=True, gc=False):
    """What one turn of the loop brought on a layer, each transfer as its frames."""

    transfers: Sequence[Frames]
    passed_on: Callable[[], object]  # to be called when all of it is
    is_technical: bool = False


class Publisher(Protocol):
    """A PUB socket."""

    def publish(self, transfers: Sequence[Frames], /) -> None:
        """Tell all who are subscribed to it."""


class Layers(NamedTuple):
    """Where components listen."""

    communication: Publisher
    technical: Publisher


class Components(Process):
    """See the head of this file."""

    def __init__(self, layers: Layers, exchange: Process, counters: MoniqueCounters, *, checks: bool) -> None:
        super().__init__()
        self._layers = layers
        self._exchange = exchange
        self._checks = checks
        self._counters = counters
        self._dropped = counters.dropper("from_component", "from a component")
        self._withheld = counters.dropper("to_component", "to components")

    def on_start(self) -> None:
        self.runtime.monitor(self, self._exchange)
        self._exchange.tell(Join(self, [Subscription(ANY, ANY)], self._checks))
        self._exchange.tell(JoinTechnical(self))

    def on_receive(self, message: Any) -> None:
        kind = type(message)
        if kind is Pushed:
            self._layers.communication.publish(
                [parcel.transfer.frames for parcel in message.parcels if self._may_see(parcel)]
            )
        elif kind is Taken:
            self._take(message)
        elif kind is Answered:
            message.deliver()
        elif kind is Technical:
            self._layers.technical.publish([transfer.frames for transfer in message.transfers])
        else:
            assert kind is Down, message
            self.stop()  # those who are built with the next exchange take over

    def _may_see(self, parcel: Parcel) -> bool:
        if not self._checks or parcel.flaw is None:
            return True
        self._withheld(parcel.flaw)
        return False

    def _take(self, taken: Taken) -> None:
        transfers: list[Transfer] = []
        for frames in taken.transfers:
            try:
                transfer = read_transfer(frames)
                if taken.is_technical:
                    self._look_inside(transfer)
            except MoniqueError as error:
                self._dropped(error)
            else:
                transfers.append(transfer)
        self._counters.taken["zeromq"] += len(transfers)
        asker: ReplyByMail[None] = ReplyByMail(self, lambda _: taken.passed_on())
        self._exchange.tell(Technical(transfers, asker) if taken.is_technical else Relayed(transfers, asker))

    def _look_inside(self, transfer: Transfer) -> None:
        """Raise for what components cannot read: on the technical layer all of them read everything (section 6)."""
        decode_message(transfer.message)
        flaw = Parcel(transfer).flaw if self._checks else None
        if flaw is not None:
            raise flaw
