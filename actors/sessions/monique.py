"""MoniqueSubscriber: one WebSocket connection of MoniQue.

    Received (door) --> Conversation --> intents --> exchange --> Done --> Conversation --> answers --> door
                                                     exchange --> Pushed --> frames --> door

The conversation knows the order of answers, the exchange who hears what; here is what begins and ends a connection.
Without the exchange there is no connection: its subscriptions would be gone, so the client is to come again.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from wakeq.actors.monique.counters import MoniqueCounters
from wakeq.actors.monique.mail import Do, Done, Introduce, Leave, Pushed
from wakeq.actors.runtime import Down, Process
from wakeq.actors.sessions.connection_facts import describe
from wakeq.actors.sessions.door import Closed, Door, Received
from wakeq.actors.sessions.in_flight import bound_reading
from wakeq.actors.sessions.operator_mail import Describe
from wakeq.protocol.wire.monique.commands import Reply
from wakeq.protocol.wire.monique.conversation import Conversation


class PushingDoor(Door[Reply], Protocol):
    """A connection to which more is written than answers."""

    def push(self, frames: Sequence[bytes], /) -> None:
        """Write whole frames, which may be on their way to many."""


class MoniqueSubscriber(Process):
    """See the head of this file."""

    def __init__(self, door: PushingDoor, worker: int, exchange: Process, tally: MoniqueCounters) -> None:
        super().__init__()
        self._door = door
        self._worker = worker
        self._exchange = exchange
        self._tally = tally
        self._conversation = Conversation()
        self._in_flight_bytes = 0
        self._paused = False

    def on_start(self) -> None:
        self.runtime.monitor(self, self._exchange)

    def on_receive(self, message: Any) -> None:
        kind = type(message)
        if kind is Pushed:
            self._tally.pushed += len(message.parcels)
            self._door.push([parcel.frame for parcel in message.parcels])
        elif kind is Received:
            self._in_flight_bytes += message.size_bytes
            intents = self._conversation.receive(message.commands)
            if intents:
                self._exchange.tell(Do(self, intents))
            self._answer()
        elif kind is Done:
            self._conversation.resolve(message.outcomes)
            self._answer()
        elif kind is Closed:
            self.stop()
        elif kind is Describe:
            facts = describe(self, self._worker, self._door, in_flight=self._conversation.in_flight)
            self._exchange.tell(Introduce(self, message.asker, facts))
        else:
            assert kind is Down, message
            self._door.close("internal error; connect again")

    def on_stop(self) -> None:
        self._exchange.tell(Leave(self))

    def on_failure(self, *_: Any) -> None:
        self._door.close("internal error; connect again")
        self._exchange.tell(Leave(self))

    def _answer(self) -> None:
        """Say what is known, and read no more while too much is under way."""
        answers = self._conversation.answers()
        if answers:
            self._door.send(answers)
        in_flight = self._conversation.in_flight
        if not in_flight:
            self._in_flight_bytes = 0
        self._paused = bound_reading(
            self._door, is_paused=self._paused, in_flight=in_flight, in_flight_bytes=self._in_flight_bytes
        )
