"""The worker protocol's codec: JSON objects, one a line over TCP, one a text frame over WebSocket.

    complete lines --> decode --> [Command | Bad, ...]        [Reply, ...] --> encode --> lines
    commands --> encode_commands --> lines (client)           lines --> decode_replies --> replies (client)

What one read brought is one list.  A command that is no good becomes a Bad in its place; nothing else in the
list suffers.  Must never raise for what a peer sent, except that a client's `decode_replies` raises BadJson.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from wakeq.protocol.errors import BadField, BadJson, Refused
from wakeq.protocol.names import check_name
from wakeq.protocol.wire.lines import LineReader, LineTooLong, line_bytes_max
from wakeq.protocol.wire.worker.blocks import FRAME_LINE_BYTES_MAX, frame, may_hold_frames, parts_of
from wakeq.protocol.wire.worker.checks import (
    CHECKS,
    Content,
    are_texts,
    body_of,
    contents_of,
    followup_content,
)
from wakeq.protocol.wire.worker.commands import (
    Ack,
    Cluster,
    Command,
    CommandBase,
    CommandId,
    Create,
    Del,
    Drop,
    Fet,
    FetBlock,
    Followup,
    Hello,
    Islp,
    Item,
    List,
    Nack,
    Peek,
    PeekBlock,
    Ping,
    Policies,
    Pub,
    PubBlock,
    Purge,
    Recurring,
    Release,
    Renew,
    Retry,
    Settle,
    SettleEpochs,
    Slice,
    Stage,
    Stash,
    Stats,
    Sub,
    Touch,
    Uns,
    Unstash,
    Update,
    policies_of,
)
from wakeq.protocol.wire.worker.refusals import LONG_BYTES, Bad, decode_alone, is_object, may_be_crowded
from wakeq.protocol.wire.worker.replies import (
    Awk,
    Block,
    ClusterReply,
    Delivery,
    Framed,
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
    Okrelease,
    Okrenew,
    Okrows,
    Oksettle,
    Okslp,
    Okstage,
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
from wakeq.protocol.wire.worker.replies import Slice as SliceReply

__all__ = [
    "Ack",
    "Awk",
    "Bad",
    "Block",
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
    "FetBlock",
    "Followup",
    "Framed",
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
    "Okrelease",
    "Okrenew",
    "Okrows",
    "Oksettle",
    "Okslp",
    "Okstage",
    "Oksub",
    "Oktouch",
    "Okuns",
    "Okupdate",
    "Peek",
    "PeekBlock",
    "Peeked",
    "Ping",
    "Policies",
    "Pong",
    "Pub",
    "PubBlock",
    "Purge",
    "Purged",
    "Queues",
    "Recurring",
    "Release",
    "Renew",
    "Reply",
    "ReplyBase",
    "Retry",
    "Settle",
    "SettleEpochs",
    "Slice",
    "SliceReply",
    "Stage",
    "Stash",
    "Stats",
    "StatsReply",
    "Sub",
    "Touch",
    "Uns",
    "Unstash",
    "Update",
    "are_texts",
    "body_of",
    "bytes_of",
    "contents_of",
    "decode",
    "decode_frames",
    "decode_lines",
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


def _framed(value: object) -> msgspec.Raw:
    """What JSON does not know among replies: one with its block raw behind it."""
    assert isinstance(value, Framed), "everything else is a Struct"
    return msgspec.Raw(_frame_of(value.reply))


_ENCODER = msgspec.json.Encoder()
_REPLY_ENCODER = msgspec.json.Encoder(enc_hook=_framed)
_OBJECT = ("{", b"{")
VALUES_OF_A_COMMAND = 4  # an ordinary one has no more fields
_UNDECODABLE = (msgspec.DecodeError, UnicodeError, RecursionError)


# --- The broker's side ---


def decode(lines: bytes) -> list[Command | Bad]:
    """Return the commands of complete lines and frames, in their order.  Blank lines say nothing."""
    if not may_hold_frames(lines):
        return decode_lines(lines)
    return [
        command
        for text, block in parts_of(lines)
        for command in (decode_lines(text) if block is None else [_decode_frame(text, block)])
    ]


def decode_lines(lines: bytes) -> list[Command | Bad]:
    """Return the commands of complete lines among which there is no frame."""
    if len(lines) > LONG_BYTES and may_be_crowded(lines):
        return _decode_each(lines)
    try:
        commands: list[Any] = _COMMANDS.decode_lines(lines)
    except _UNDECODABLE:
        return _decode_each(lines)
    if len(commands) != lines.count(b"\n"):  # blank lines, several objects a line, or one over several lines
        return _decode_each(lines)
    name: str | None = None  # the last name that was found good
    for place, command in enumerate(commands):
        kind = type(command)
        if kind not in CHECKS:
            continue
        # Of plain PUBs, FETs and ACKs only the name is not stated by the types; one just seen is good.
        if kind is Pub:
            text = command.msg if command.message is None else command.message
            plain = text is not None and not (command.messages or command.enc or command.headers)
        elif kind is Ack:
            plain = command.uid is not None and not (command.uids or command.leases or command.publish)
        else:
            plain = kind is Fet
        try:
            if not plain:
                good = commands[place] = CHECKS[kind](command)
                name = good.qname
            elif command.qname != name:
                name = check_name(command.qname)
        except Refused as error:
            commands[place], name = Bad(error, command.cmd_id), None
    return commands


def weight_of(text: bytes | str) -> int:
    """Return how many commands a text of lines or a frame is worth, about: each message of a batch is work as well."""
    return (text.count(b",") if isinstance(text, bytes) else text.count(",")) // VALUES_OF_A_COMMAND


def decode_frames(frames: Sequence[str | bytes]) -> list[Command | Bad]:
    """Return the commands of text frames, one a frame (as text, or as its UTF-8 bytes)."""
    return [_decode_one(frame) for frame in frames]


def encode(replies: Sequence[Reply]) -> bytes:
    """Return the replies as lines, and those that are Framed as frames."""
    return _REPLY_ENCODER.encode_lines(replies)


def encode_frames(replies: Iterable[Reply]) -> list[bytes]:
    """Return the replies as the payloads of text frames."""
    return [_ENCODER.encode(reply) for reply in replies]


def _decode_each(lines: bytes) -> list[Command | Bad]:
    return [_decode_one(line) for line in lines.split(b"\n") if line.strip()]


def _decode_one(text: bytes | str) -> Command | Bad:
    if (text[:1] not in _OBJECT and not is_object(text)) or (len(text) > LONG_BYTES and may_be_crowded(text)):
        return decode_alone(text)
    try:
        command = _COMMANDS.decode(text)
    except _UNDECODABLE:
        return decode_alone(text)
    check = CHECKS.get(type(command))
    if check is None:
        return command
    try:
        good: Command = check(command)
    except Refused as error:
        return Bad(error, command.cmd_id)
    return good


def _decode_frame(text: bytes, block: bytes) -> Command | Bad:
    """Put a block where it belongs."""
    if len(text) > FRAME_LINE_BYTES_MAX:  # before anything is made of it
        return Bad(BadField(f"the line in a frame has {len(text)} bytes, the limit is {FRAME_LINE_BYTES_MAX}"))
    command = _decode_one(text)
    if isinstance(command, PubBlock):
        return msgspec.structs.replace(command, block=block)
    return command if isinstance(command, Bad) else Bad(BadField("this command has no block"), command.cmd_id)


def _frame_of(said: Block | PubBlock) -> bytes:
    return frame(_ENCODER.encode(msgspec.structs.replace(said, block=b"")), said.block)


# --- The client's side ---


def encode_commands(commands: Sequence[Command]) -> bytes:
    """Return the commands as lines; those with a block as frames."""
    if any([isinstance(command, PubBlock) for command in commands]):
        parts = (
            _frame_of(one) if isinstance(one, PubBlock) and one.block else _ENCODER.encode(one) for one in commands
        )
        return b"".join([part + b"\n" for part in parts])
    return _ENCODER.encode_lines(commands)


def decode_replies(lines: bytes) -> list[Reply]:
    """Return the replies of complete lines and frames.  A reply that this client does not know is left out."""
    if may_hold_frames(lines):
        parts = parts_of(lines)
        return [r for text, block in parts for r in (decode_replies(text) if block is None else _filled(text, block))]
    try:
        return _REPLIES.decode_lines(lines)
    except _UNDECODABLE:
        replies = [_decode_reply(line) for line in lines.split(b"\n") if line.strip()]
        return [reply for reply in replies if reply is not None]


def _filled(text: bytes, block: bytes) -> list[Reply]:
    reply = _decode_reply(text)
    return [msgspec.structs.replace(reply, block=block)] if isinstance(reply, Block) else []


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
    "block", "okrows", "okstage", "slice", "okrenew", "oksettle", "okrelease",
}  # fmt: skip
