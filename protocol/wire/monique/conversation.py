"""Conversation: one MoniQue connection, without a socket and without an actor.

    commands --> receive: a slot for each; what is to be done goes to the exchange --> outcomes in the slots
    take_replies: the answers that may leave, in the order of the commands

What others push to the client is none of these: it may be sent between any two answers.  Commands that come together
have the effect of being done one after the other, as long as they are done in their order.

It must never look into the exchange, or end a connection: whatever is wrong with a frame, the next one is whole.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, assert_never

from msgspec import Struct

from wakeq.protocol.wire.monique.commands import (
    Bad,
    Command,
    Error,
    Ping,
    Pong,
    PushedToMq,
    PushToMq,
    Reply,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)
from wakeq.protocol.wire.monique.errors import BadTag
from wakeq.protocol.wire.monique.tags import Tag, read_tag
from wakeq.protocol.wire.slots import MISSING, Slot


class Push(Struct, frozen=True, gc=False):
    """This message is to be passed on.  Done when it is: to the exchange, or durably to a queue."""

    tag: Tag
    message: bytes
    said: str | bytes  # the tag in the form in which it came


class Session(Protocol):
    """What a conversation needs of the actor that holds it."""

    is_dirty: bool

    def note_dirty(self) -> None:
        """There is something to send."""

    def do(self, slots: Sequence[Slot]) -> None:
        """Have these commands done, in their order; the outcome of each is None, or why it was not done."""


class Conversation:
    """See the head of this file."""

    __slots__ = ("_session", "slots")

    def __init__(self, session: Session) -> None:
        self.slots: list[Slot] = []  # of what is not answered yet; without a command the outcome is the answer
        self._session = session

    @property
    def in_flight(self) -> int:
        """How many commands have no answer yet."""
        return len(self.slots)

    def receive(self, commands: Iterable[Command | Bad]) -> None:
        """Take what one read brought, and have done what is to be done before it is answered."""
        session = self._session
        begun: list[Slot] = []
        for command in commands:
            match command:
                case PushToMq(data=pushed):
                    try:
                        slot = Slot(session, Push(read_tag(pushed.tag), pushed.message, pushed.tag))
                        begun.append(slot)
                    except BadTag as error:
                        slot = Slot(session, None, Error(str(error)))
                case Subscribe() | Unsubscribe():
                    slot = Slot(session, command)
                    begun.append(slot)
                case Ping(data=time_ns):
                    slot = Slot(session, None, Pong(time_ns))
                case Bad(error=error):
                    slot = Slot(session, None, Error(str(error)))
                case _:
                    assert_never(command)
            self.slots.append(slot)
        if begun:
            session.do(begun)

    def take_replies(self) -> list[Reply]:
        """Return the answers that may leave now: those before the first that is not known."""
        replies: list[Reply] = []
        for slot in self.slots:
            if slot.outcome is MISSING:
                break
            replies.append(_reply_of(slot))
        del self.slots[: len(replies)]
        return replies


def _reply_of(slot: Slot) -> Reply:
    command, outcome = slot.command, slot.outcome
    if command is None:
        return outcome  # type: ignore[no-any-return]
    if outcome is not None:
        return Error(str(outcome))
    match command:
        case Push(said=tag):
            return PushedToMq(tag)
        case Subscribe(data=subscriptions):
            return Subscribed(subscriptions)
        case _:
            assert isinstance(command, Unsubscribe), "nothing else is done"
            return Unsubscribed(command.data)
