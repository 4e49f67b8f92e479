"""One MoniQue connection as its server sees it: what is to be done, and what is answered in which order.

    [Command | Bad] --> receive --> [Intent]        (to be done, in this order)
    [(Intent, error or None)] --> resolve           (what has become of them, in any order)
    answers --> [Reply], in the order of the commands

What others push to the client is none of these: it may be sent between any two answers.  Commands that come together
have the effect of being done one after the other, as long as intents are done in their order.  Pure: it knows no
exchange, and must never end a connection, for whatever is wrong with a frame, the next one is whole.
"""

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias, assert_never

from msgspec import Struct

from wakeq.protocol.errors import WakeqError
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


class Push(Struct, frozen=True, gc=False):
    """This message is to be passed on.  Done when it is: to the exchange, or durably to a queue."""

    tag: Tag
    message: bytes


Work: TypeAlias = Subscribe | Unsubscribe | Push


class Intent(Struct, gc=False, eq=False):
    """Something to be done for the client.  All but `work` is the conversation's own."""

    work: Work
    done: Reply  # the answer, once it is done
    answer: Reply | None = None


class Conversation:
    """See the head of this file."""

    __slots__ = ("_answers",)

    def __init__(self) -> None:
        self._answers: deque[Reply | Intent] = deque()  # in the order of the commands

    @property
    def in_flight(self) -> int:
        """How many commands have no answer that was taken."""
        return len(self._answers)

    def receive(self, commands: Iterable[Command | Bad]) -> list[Intent]:
        """Take what one read brought; return what is to be done now."""
        begun: list[Intent] = []
        for command in commands:
            answer = _begin(command)
            self._answers.append(answer)
            if isinstance(answer, Intent):
                begun.append(answer)
        return begun

    def resolve(self, outcomes: Iterable[tuple[Intent, WakeqError | None]]) -> None:
        """Take what became of intents: None if it was done.  An outcome told twice counts once."""
        for intent, error in outcomes:
            if intent.answer is None:
                intent.answer = intent.done if error is None else Error(str(error))

    def answers(self) -> list[Reply]:
        """Return, once, what can be sent: all answers before the first that is not known."""
        ready: list[Reply] = []
        while self._answers:
            first = self._answers[0]
            answer = first.answer if isinstance(first, Intent) else first
            if answer is None:
                break
            ready.append(answer)
            self._answers.popleft()
        return ready


def _begin(command: Command | Bad) -> Reply | Intent:
    """Return the answer, or what is to be done before there is one."""
    match command:
        case Ping(data=time_ns):
            return Pong(time_ns)
        case Subscribe(data=subscriptions):
            return Intent(command, Subscribed(subscriptions))
        case Unsubscribe(data=subscriptions):
            return Intent(command, Unsubscribed(subscriptions))
        case PushToMq(data=pushed):
            try:
                tag = read_tag(pushed.tag)
            except BadTag as error:
                return Error(str(error))
            return Intent(Push(tag, pushed.message), PushedToMq(pushed.tag))
        case Bad(error=error):
            return Error(str(error))
        case _:
            assert_never(command)
