"""MoniqueSession: one WebSocket connection of MoniQue.

    door --> conversation.receive --> Do --> exchange --> slots with outcomes --> flush --> door
                                             exchange --> Pushed --> frames --> door

It holds a door and a conversation.  The conversation knows the order of answers, the exchange who hears what; here is
what begins and ends a connection.  Without the exchange there is no connection: its subscriptions would be gone, so the
client is to come again.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from wakeq.actors.monique.counters import MoniqueCounters
from wakeq.actors.monique.mail import Do, Introduce, Leave, Pushed
from wakeq.actors.runtime import Down, Process
from wakeq.actors.sessions.door import Closed, Door, Received, bound_reading, describe
from wakeq.actors.sessions.operator_mail import Describe
from wakeq.protocol.wire.monique.commands import Reply
from wakeq.protocol.wire.monique.conversation import Conversation
from wakeq.protocol.wire.slots import Slot


class Flush(Struct, frozen=True, gc=False):
    """To itself: there are outcomes."""


FLUSH = Flush()


class PushingDoor(Door[Reply], Protocol):
    """A connection to which more is written than answers."""

    def push(self, frames: Sequence[bytes], /) -> None:
        """Write whole frames, which may be on their way to many."""


class MoniqueSession(Process):
    """See the head of this file."""

    def __init__(
        self, door: PushingDoor, number: int, exchange: Process, counters: MoniqueCounters, since_ms: int
    ) -> None:
        super().__init__()
        self.number = number  # of the connection
        self.since_ms = since_ms  # when the client connected
        self.is_dirty = False  # there is something to send
        self._door = door
        self._exchange = exchange
        self._counters = counters
        self._conversation = Conversation(self)
        self._in_flight_bytes = 0  # read since the connection last owed no answer
        self._is_paused = False  # nothing more is read from the connection

    def on_start(self) -> None:
        self.runtime.monitor(self, self._exchange)

    # --- what the door and the exchange bring ------------------------------------------------------------------------

    def on_receive(self, message: Any) -> None:
        kind = type(message)
        if kind is Pushed:
            self._counters.pushed += len(message.parcels)
            self._door.push([parcel.frame for parcel in message.parcels])
        elif kind is Received:
            self._in_flight_bytes += message.size_bytes
            self._conversation.receive(message.commands)
            # Outcomes wait for FLUSH, which stands behind the messages that are to be pushed first.
            if not self.is_dirty:
                self.flush()
        elif kind is Flush:
            self.flush()
        elif kind is Closed:
            self.stop()
        elif kind is Describe:
            facts = describe(self, self.number, self._door, self.since_ms, in_flight=self._conversation.in_flight)
            self._exchange.tell(Introduce(self, message.asker, facts))
        else:
            assert kind is Down, message
            self._door.close("internal error; connect again")

    # --- what the conversation needs ---------------------------------------------------------------------------------

    def note_dirty(self) -> None:
        """There is something to send, behind what the exchange has told so far.

        A client that pushes what it has subscribed to hears the message first, and then that it was pushed.
        """
        self.is_dirty = True
        self.tell(FLUSH)

    def do(self, slots: Sequence[Slot]) -> None:
        """Have the exchange do these commands."""
        self._exchange.tell(Do(self, slots))

    # --- out ---------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what may leave, and read no more while too much is under way."""
        self.is_dirty = False
        replies = self._conversation.take_replies()
        if replies:
            self._door.send(replies)
        in_flight = len(self._conversation.slots)
        if not in_flight:
            self._in_flight_bytes = 0
        self._is_paused = bound_reading(
            self._door, is_paused=self._is_paused, in_flight=in_flight, in_flight_bytes=self._in_flight_bytes
        )

    # --- the end -----------------------------------------------------------------------------------------------------

    def on_stop(self) -> None:
        self._end()

    def on_failure(self, *_: Any) -> None:
        self._door.close("internal error; connect again")
        self._end()

    def _end(self) -> None:
        """Leave the exchange, and no circle behind."""
        self._exchange.tell(Leave(self))
        self._conversation.slots.clear()
        del self._conversation
