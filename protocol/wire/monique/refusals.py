"""Why a frame of MoniQue was refused, in words that its sender can use.

    a frame that could not be decoded --> error_in --> MoniqueError

Looks at the frame a second time, piece by piece, so that the way of good frames need not.  Must never show what a peer
sent, make objects of what is not known, or raise.
"""

from typing import Any

import msgspec
from msgspec import Struct

from wakeq.protocol.wire.monique.commands import FROM_CLIENT, FROM_SERVER, Subscriptions
from wakeq.protocol.wire.monique.errors import UNKNOWN_MESSAGE, BadEncoding, BadFrame, BadTransfer, MoniqueError

UNDECODABLE = (msgspec.DecodeError, UnicodeError, RecursionError)


class UnknownCommand(BadFrame):
    """A command that is none of the nine."""

    def __init__(self) -> None:
        super().__init__(UNKNOWN_MESSAGE)


class WrongDirection(BadFrame):
    """A command that only a server sends."""

    def __init__(self, command: str) -> None:
        super().__init__(f"<{command}> message could not be sent from the client")


class FrameTooLong(BadTransfer):
    """A frame beyond the limit.  It was not looked at."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a frame of {size} bytes, the limit is {limit}; split the message or raise the limit")


class _Envelope(Struct, frozen=True, gc=False):
    """Any frame, its data not looked at."""

    command: str
    data: msgspec.Raw


class _AnyTagged(Struct, frozen=True, gc=False):
    """What is pushed, its tag not looked at."""

    message: bytes
    tag: msgspec.Raw


_ENVELOPES = msgspec.msgpack.Decoder(_Envelope)
_SUBSCRIPTIONS = msgspec.msgpack.Decoder(Subscriptions)
_DATA: dict[str, msgspec.msgpack.Decoder[Any]] = {
    "ping": msgspec.msgpack.Decoder(int),
    "subscribe": _SUBSCRIPTIONS,
    "unsubscribe": _SUBSCRIPTIONS,
    "push_to_mq": msgspec.msgpack.Decoder(_AnyTagged),
}


def error_in(frame: bytes) -> MoniqueError:
    """Return what is wrong with a client's frame."""
    try:
        envelope = _ENVELOPES.decode(frame)
    except msgspec.ValidationError as error:
        return BadFrame(f"{UNKNOWN_MESSAGE}: {error}; a frame is a MessagePack map of command and data")
    except UNDECODABLE as error:
        return BadEncoding(f"{UNKNOWN_MESSAGE}: it is not MessagePack: {error}")
    if envelope.command in FROM_SERVER:
        return WrongDirection(envelope.command)
    if envelope.command not in FROM_CLIENT:
        return UnknownCommand()
    return _error_in_data(envelope)


def _error_in_data(envelope: _Envelope) -> MoniqueError:
    where = f"{UNKNOWN_MESSAGE}: data of {envelope.command}"
    try:
        _DATA[envelope.command].decode(envelope.data)
    except UNDECODABLE as error:
        return BadFrame(f"{where}: {error}")
    return BadFrame(f"{where}: the tag must be str, in UTF-8, or bin")
