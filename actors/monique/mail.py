"""What MoniQue's processes say to each other, and a message on its way to many.

    session, ZeroMQ --> Do, Join, Leave, Relayed, Technical --> exchange --> Pushed, Technical --> subscribers
                                          exchange --> Keep, Cancel --> tasks --> Kept --> exchange

Plain data, but for Parcel, which makes each form of a message when it is first asked for, once for all.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from wakeq.actors.runtime import Process
from wakeq.protocol.queue.orders import ReplyTo
from wakeq.protocol.wire.monique.codec import encode
from wakeq.protocol.wire.monique.commands import PushedFromMq, Tagged
from wakeq.protocol.wire.monique.errors import MoniqueError
from wakeq.protocol.wire.monique.exchange import Subscription
from wakeq.protocol.wire.monique.messages import check_for_components
from wakeq.protocol.wire.monique.transfers import Transfer
from wakeq.protocol.wire.slots import Slot
from wakeq.protocol.wire.websocket import BINARY, frame

_UNCHECKED = object()


class Parcel:
    """A message on its way to any number of subscribers."""

    __slots__ = ("_flaw", "_frame", "transfer")

    def __init__(self, transfer: Transfer) -> None:
        self.transfer = transfer
        self._frame: bytes | None = None
        self._flaw: object = _UNCHECKED

    @property
    def frame(self) -> bytes:
        """What a WebSocket client is sent, the frame's head included."""
        if self._frame is None:
            pushed = PushedFromMq(Tagged(self.transfer.message, self.transfer.tag.text))
            self._frame = frame(BINARY, encode([pushed])[0])
        return self._frame

    @property
    def flaw(self) -> MoniqueError | None:
        """Why a component could not unpack it, or None."""
        if self._flaw is _UNCHECKED:
            try:
                check_for_components(self.transfer.message)
                self._flaw = None
            except MoniqueError as error:
                self._flaw = error
        assert self._flaw is None or isinstance(self._flaw, MoniqueError)
        return self._flaw


class Do(Struct, frozen=True, gc=False):
    """What a connection wants done, in this order; the outcome of each slot is None, or why it was not done."""

    subscriber: Process
    slots: Sequence[Slot]


class Join(Struct, frozen=True, gc=False):
    """This process wants such messages; one that `checks` drops those that components could not read."""

    subscriber: Process
    subscriptions: Sequence[Subscription]
    checks: bool = False


class Leave(Struct, frozen=True, gc=False):
    """The subscriber has gone."""

    subscriber: Process


class Introduce(Struct, frozen=True, gc=False):
    """Tell an operator about this subscriber: what it says of itself, and how many subscriptions it has."""

    subscriber: Process
    asker: ReplyTo
    facts: Mapping[str, Any]


class Pushed(Struct, frozen=True, gc=False):
    """Messages that a subscriber wants, in the order in which the exchange took them."""

    parcels: Sequence[Parcel]


class Relayed(Struct, frozen=True, gc=False):
    """What components sent on the communication layer; the asker is answered when more of it may come."""

    transfers: Sequence[Transfer]
    asker: ReplyTo | None = None


class Technical(Struct, frozen=True, gc=False):
    """What is on the technical layer: from components to the exchange, and from there to all of them."""

    transfers: Sequence[Transfer]
    asker: ReplyTo | None = None  # is answered when it has been passed on


class JoinTechnical(Struct, frozen=True, gc=False):
    """This process is to be told what is on the technical layer."""

    process: Process


class Changed(Struct, frozen=True, gc=False):
    """At a port to which components connect: one came or went, or can take something again."""

    components: Sequence[int]  # who is there now, each by a number that no other one gets


class Rest(Struct, frozen=True, gc=False):
    """Give components nothing more; their answers still count."""


class Task(Struct, frozen=True, gc=False):
    """A message with a route; whoever pushed it by WebSocket waits for the outcome in the slot."""

    parcel: Parcel
    queue: str
    slot: Slot | None = None


class Keep(Struct, frozen=True, gc=False):
    """Tasks to be kept on their queues; then they may be passed on.  The asker is answered when more may come."""

    tasks: Sequence[Task]
    exchange: Process
    asker: ReplyTo | None = None


class Kept(Struct, frozen=True, gc=False):
    """These tasks are on their queues, or nobody wants them any more: pass them on, then answer those who wait."""

    tasks: Sequence[Task]


class Cancel(Struct, frozen=True, gc=False):
    """The task with this id is killed."""

    task_id: str


def say_done(asker: ReplyTo | None) -> None:
    """Answer who waits until something is over."""
    if asker is not None:
        asker.tell(None)
