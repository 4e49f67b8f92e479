"""What is said in MoniQue over WebSocket: one Struct for each of the nine commands, and the map of an error.

A frame is `{command, data}`; the name of the command is the Struct's msgspec tag.  Of `push_to_mq` and its answer there
are two forms, with the tag as text or as bytes: the type parameter says which.
"""

from typing import Annotated, Generic, TypeAlias, TypeVar

from msgspec import Meta, Struct

from wakeq.protocol.wire.monique.errors import MoniqueError
from wakeq.protocol.wire.monique.exchange import SUBSCRIPTIONS_MAX, Subscription

Form_co = TypeVar("Form_co", bound=str | bytes, covariant=True)
Subscriptions = Annotated[tuple[Subscription, ...], Meta(max_length=SUBSCRIPTIONS_MAX)]


class Bad(Struct, frozen=True, gc=False):
    """What stands where a frame could not be understood."""

    error: MoniqueError


class Tagged(Struct, Generic[Form_co], frozen=True, gc=False):
    """A packed message, perhaps encrypted, and the tag that travels with it."""

    message: bytes
    tag: Form_co


# From the client --------------------------------------------------------------------------------------------------


class Ping(Struct, frozen=True, gc=False, tag_field="command", tag="ping"):
    """`data` is the client's time in nanoseconds; the server only gives it back."""

    data: int


class Subscribe(Struct, frozen=True, gc=False, tag_field="command", tag="subscribe"):
    data: Subscriptions


class Unsubscribe(Struct, frozen=True, gc=False, tag_field="command", tag="unsubscribe"):
    data: Subscriptions


class PushToMq(Struct, Generic[Form_co], frozen=True, gc=False, tag_field="command", tag="push_to_mq"):
    data: Tagged[Form_co]


# From the server --------------------------------------------------------------------------------------------------


class Pong(Struct, frozen=True, gc=False, tag_field="command", tag="pong"):
    data: int


class Subscribed(Struct, frozen=True, gc=False, tag_field="command", tag="subscribed"):
    data: Subscriptions


class Unsubscribed(Struct, frozen=True, gc=False, tag_field="command", tag="unsubscribed"):
    data: Subscriptions


class PushedToMq(Struct, Generic[Form_co], frozen=True, gc=False, tag_field="command", tag="pushed_to_mq"):
    """`data` is the tag of the push, in the form in which it came."""

    data: Form_co


class PushedFromMq(Struct, frozen=True, gc=False, tag_field="command", tag="pushed_from_mq"):
    """A message that the client is subscribed to.  Its tag is always text."""

    data: Tagged[str]


class Error(Struct, frozen=True, gc=False):
    """The answer to a frame that was refused.  It is a map of its own, without a command."""

    error: str


FROM_CLIENT = frozenset(("ping", "subscribe", "unsubscribe", "push_to_mq"))
FROM_SERVER = frozenset(("pong", "subscribed", "unsubscribed", "pushed_to_mq", "pushed_from_mq"))

Command: TypeAlias = Ping | Subscribe | Unsubscribe | PushToMq[str | bytes]
Reply: TypeAlias = Pong | Subscribed | Unsubscribed | PushedToMq[str | bytes] | PushedFromMq | Error
