"""The worker protocol's codec: JSON objects, one a line over TCP, one a text frame over WebSocket.

    complete lines --> decode --> [Command | Bad, ...]        [Reply, ...] --> encode --> lines
    commands --> encode_commands --> lines (client)           lines --> decode_replies --> replies (client)

What one read brought is one list.  A command that is no good becomes a Bad in its place; nothing else in the
list suffers.  Must never raise for what a peer sent, except that a client's `decode_replies` raises BadJson.
"""

from collections.abc import Iterable, Sequence
from typing import cast

import msgspec

from wakeq.protocol.errors import BadJson, Refused
from wakeq.protocol.wire.lines import LineReader, LineTooLong, line_bytes_max
from wakeq.protocol.wire.worker_checks import (
    CHECKS,
    Content,
    are_texts,
    body_of,
    check_named,
    contents_of,
    followup_content,
)
from wakeq.protocol.wire.worker_commands import (
    Ack,
    Cluster,
    Command,
    CommandBase,
    CommandId,
    Create,
    Del,
    Drop,
    Fet,
    Followup,
    Hello,
    Islp,
    Item,
    List,
    Nack,
    Peek,
    Ping,
    Policies,
    Pub,
    Purge,
    Retry,
    Settle,
    Stats,
    Sub,
    Touch,
    Uns,
    Update,
    policies_of,
)
from wakeq.protocol.wire.worker_refusals import Bad, decode_alone
from wakeq.protocol.wire.worker_replies import (
    Awk,
    ClusterReply,
    Delivery,
    HelloReply,
    Msg,
    Msgs,
    Nok,
    Nomsg,
    Ok,
    Okack,
    Okcreate,
    Okdrop,
    Oknack,
    Okslp,
    Oksub,
    Oktouch,
    Okuns,
    Okupdate,
    Peeked,
    Pong,
    Purged,
    Queues,
    Reply,
    ReplyBase,
    StatsReply,
    bytes_of,
    nok,
    text_of,
)

__all__ = [
    "Ack",
    "Awk",
    "Bad",
    "Cluster",
    "ClusterReply",
    "Command",
    "CommandBase",
    "CommandId",
    "Content",
    "Create",
    "Del",
    "Delivery",
    "Drop",
    "Fet",
    "Followup",
    "Hello",
    "HelloReply",
    "Islp",
    "Item",
    "LineReader",
    "LineTooLong",
    "List",
    "Msg",
    "Msgs",
    "Nack",
    "Nok",
    "Nomsg",
    "Ok",
    "Okack",
    "Okcreate",
    "Okdrop",
    "Oknack",
    "Okslp",
    "Oksub",
    "Oktouch",
    "Okuns",
    "Okupdate",
    "Peek",
    "Peeked",
    "Ping",
    "Policies",
    "Pong",
    "Pub",
    "Purge",
    "Purged",
    "Queues",
    "Reply",
    "ReplyBase",
    "Retry",
    "Settle",
    "Stats",
    "StatsReply",
    "Sub",
    "Touch",
    "Uns",
    "Update",
    "are_texts",
    "body_of",
    "bytes_of",
    "contents_of",
    "decode",
    "decode_frames",
    "decode_replies",
    "encode",
    "encode_commands",
    "encode_frames",
    "followup_content",
    "line_bytes_max",
    "nok",
    "policies_of",
    "text_of",
]

_COMMANDS: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)
# A reader should accept `error_count` as text too (spec 3): so not strict.
_REPLIES: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply, strict=False)
_ENCODER = msgspec.json.Encoder()
_UNDECODABLE = (msgspec.DecodeError, UnicodeError, RecursionError)


# --- The broker's side ---


def decode(lines: bytes) -> list[Command | Bad]:
    """Return the commands of complete lines, in their order.  Blank lines say nothing."""
    try:
        commands: list[Command] = _COMMANDS.decode_lines(lines)
    except _UNDECODABLE:
        return _decode_each(lines)
    if len(commands) != lines.count(b"\n"):  # blank lines, several objects a line, or one over several lines
        return _decode_each(lines)
    return _check_all(commands)


def decode_frames(frames: Sequence[str | bytes]) -> list[Command | Bad]:
    """Return the commands of text frames, one a frame (as text, or as its UTF-8 bytes)."""
    return [_decode_one(frame) for frame in frames]


def encode(replies: Sequence[Reply]) -> bytes:
    """Return the replies as lines."""
    return _ENCODER.encode_lines(replies)


def encode_frames(replies: Iterable[Reply]) -> list[bytes]:
    """Return the replies as the payloads of text frames."""
    return [_ENCODER.encode(reply) for reply in replies]


def _decode_each(lines: bytes) -> list[Command | Bad]:
    return [_decode_one(line) for line in lines.split(b"\n") if line.strip()]


def _decode_one(text: bytes | str) -> Command | Bad:
    try:
        command = _COMMANDS.decode(text)
    except _UNDECODABLE:
        return decode_alone(text)
    return _check_all([command])[0]


def _check_all(commands: list[Command]) -> list[Command | Bad]:
    """Check what the types could not state.  Of plain PUBs, FETs and ACKs that is the name; one just seen is good."""
    checked = cast(list[Command | Bad], commands)
    name: str | None = None  # the last name that was found good
    for place, command in enumerate(commands):
        kind = type(command)
        if kind is Pub:
            pub = cast(Pub, command)
            text = pub.msg if pub.message is None else pub.message
            plain = text is not None and not (pub.messages or pub.enc or pub.headers)
        elif kind is Ack:
            ack = cast(Ack, command)
            plain = ack.uid is not None and not (ack.uids or ack.leases or ack.publish)
        elif kind in CHECKS:
            plain = kind is Fet
        else:
            continue
        if plain and cast(Pub, command).qname == name:
            continue
        try:
            good = check_named(command) if plain else CHECKS[kind](command)
        except Refused as error:
            checked[place] = Bad(error, command.cmd_id)
        else:
            checked[place] = good
            name = good.qname
    return checked


# --- The client's side ---


def encode_commands(commands: Sequence[Command]) -> bytes:
    """Return the commands as lines."""
    return _ENCODER.encode_lines(commands)


def decode_replies(lines: bytes) -> list[Reply]:
    """Return the replies of complete lines.  A reply that this client does not know is left out."""
    try:
        return _REPLIES.decode_lines(lines)
    except _UNDECODABLE:
        replies = [_decode_reply(line) for line in lines.split(b"\n") if line.strip()]
        return [reply for reply in replies if reply is not None]


def _decode_reply(line: bytes) -> Reply | None:
    try:
        return _REPLIES.decode(line)
    except msgspec.ValidationError as error:
        name = _name_of(line)
        if name is not None and name not in _KNOWN:
            return None
        raise BadJson(f"the broker sent a reply that this client cannot read: {error}") from None
    except _UNDECODABLE as error:
        raise BadJson(f"the broker sent what is not JSON: {error}") from None


def _name_of(line: bytes) -> str | None:
    try:
        given = msgspec.json.decode(line)
    except _UNDECODABLE:
        return None
    name = given.get("cmd") if isinstance(given, dict) else None
    return name if isinstance(name, str) else None


_KNOWN = {
    "ok", "oksub", "okuns", "okack", "oknack", "oktouch", "okslp", "nomsg", "msg", "msgs", "nok", "awk",
    "pong",
    "hello", "queues", "stats", "peeked", "purged", "okcreate", "okupdate", "okdrop", "cluster",
}  # fmt: skip  # fmt: skip
