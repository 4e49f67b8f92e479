"""Codec: the frames of MoniQue over WebSocket, one MessagePack map each.

    frames --> decode --> [Command | Bad]         (server)        [Reply] --> encode --> frames
    frames --> decode_replies --> [Reply]         (client)        [Command] --> encode --> frames

What one read brought is one list; a frame that is no good becomes a Bad in its place, and nothing else suffers.
Clients' tags may be text or bytes and keep their form, for the answer has the same.  Must never make more objects than
a good frame has: the decoder knows the types, walks over what it does not know, and stops at the first wrong value.
"""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from wakeq.protocol.wire.monique.commands import (
    Bad,
    Command,
    Error,
    Ping,
    Pong,
    PushedFromMq,
    PushedToMq,
    PushToMq,
    Reply,
    Subscribe,
    Subscribed,
    Tagged,
    Unsubscribe,
    Unsubscribed,
)
from wakeq.protocol.wire.monique.errors import REASON_CHARS_MAX, BadFrame
from wakeq.protocol.wire.monique.messages import MESSAGE_BYTES_MAX
from wakeq.protocol.wire.monique.refusals import UNDECODABLE, FrameTooLong, error_in
from wakeq.protocol.wire.monique.tags import TAG_BYTES_MAX, read_tag, unwrapped

FRAME_ROOM_BYTES = TAG_BYTES_MAX + 1024  # for everything in a frame that is not the packed message
FRAME_BYTES_MAX = MESSAGE_BYTES_MAX + FRAME_ROOM_BYTES


class _OldPushedFromMq(Struct, frozen=True, gc=False, tag_field="command", tag="pushed_from_mq"):
    """With the tag as bytes, perhaps wrapped twice, as servers before August 2018 sent it."""

    data: Tagged[bytes]


# The decoder cannot choose between text and bytes by itself, so the old form has one of its own.
_COMMANDS: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Ping | Subscribe | Unsubscribe | PushToMq[str])
_OLD_COMMANDS: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(PushToMq[bytes])
_REPLIES: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(
    Pong | Subscribed | Unsubscribed | PushedToMq[str] | PushedFromMq
)
_OLD_REPLIES = msgspec.msgpack.Decoder(PushedToMq[bytes] | _OldPushedFromMq)
_ERRORS = msgspec.msgpack.Decoder(Error)
_ENCODER = msgspec.msgpack.Encoder()


def encode(frames: Iterable[Command | Reply]) -> list[bytes]:
    """Return the frames, to be sent as binary ones."""
    return [_ENCODER.encode(frame) for frame in frames]


# --- The server's side ---


def decode(frames: Iterable[bytes], frame_bytes_max: int = FRAME_BYTES_MAX) -> list[Command | Bad]:
    """Return the commands of frames, in their order.  Tags are not read yet."""
    return [_decode_one(frame, frame_bytes_max) for frame in frames]


def _decode_one(frame: bytes, frame_bytes_max: int) -> Command | Bad:
    if len(frame) > frame_bytes_max:
        return Bad(FrameTooLong(len(frame), frame_bytes_max))
    try:
        return _COMMANDS.decode(frame)
    except UNDECODABLE:
        pass
    try:
        return _OLD_COMMANDS.decode(frame)
    except UNDECODABLE:
        return Bad(error_in(frame))


# --- The client's side ---


def decode_replies(frames: Iterable[bytes]) -> list[Reply]:
    """Return what a server said, or raise BadFrame or BadTag."""
    return [_decode_reply(frame) for frame in frames]


def _decode_reply(frame: bytes) -> Reply:
    try:
        return _REPLIES.decode(frame)
    except UNDECODABLE as error:
        reply = _decode_old_reply(frame)
        if reply is None:
            raise BadFrame(f"the server sent what this client cannot read: {str(error)[:REASON_CHARS_MAX]}") from None
        return reply


def _decode_old_reply(frame: bytes) -> Reply | None:
    """Return a reply with its tag as bytes, or an error, which is not a command."""
    try:
        old = _OLD_REPLIES.decode(frame)
    except UNDECODABLE:
        try:
            return _ERRORS.decode(frame)
        except UNDECODABLE:
            return None
    if isinstance(old, PushedToMq):
        return old
    return PushedFromMq(Tagged(old.data.message, read_tag(unwrapped(old.data.tag)).text))
