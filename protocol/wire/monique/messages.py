"""The message: nine fields in a MessagePack map, packed once by whoever makes it and passed on as it is.

    packed bytes --> decode_message --> Message          Message --> encode_message --> packed bytes
    packed bytes --> check_for_components --> nothing, or BadMessage

Messages from before 0.1.6, as those printed in the document, have id and pid as bytes; here they are text as soon as
they are read.  Whoever packs such a message again keeps its form with `ids_as_bytes`.  Must never write what a
component could not read: encode_message refuses it.
"""

import re
from collections.abc import Callable, Collection
from typing import Literal

import msgspec
from msgspec import Struct, field

from wakeq.protocol.uid import ALPHABET
from wakeq.protocol.wire.monique.errors import REASON_CHARS_MAX, BadEncoding, BadMessage, ErrorCode, MoniqueError
from wakeq.protocol.wire.monique.tags import FIELDS, SEPARATOR, TAG_BYTES_MAX, TYPES, Tag, Type

Encoding = Literal["JSON", "MessagePack"]

ENCODINGS: frozenset[str] = frozenset(("JSON", "MessagePack"))
ID_CHARS = 40
MESSAGE_BYTES_MAX = 16 << 20  # packed; the protocol recommends at most 1 MB of data
NEVER = 0  # of expires_at_ms

_SPEC = re.compile(r"[a-z0-9-]+(_[a-z0-9-]+)?\Z")
_UINT64_MAX = 2**64 - 1


class Message(Struct, frozen=True, gc=False, kw_only=True):
    """One message.  Fields stand in the order in which the printed examples have their keys."""

    created_at_ms: int = field(name="created_at")
    creator: str
    data: bytes
    encoding: Encoding
    expires_at_ms: int = field(name="expires_at")
    id: str
    pid: str
    spec: str
    type: Type


class _ComponentMessage(Message, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """As Message, and nothing else that an unpacker could stumble over."""


class _OldMessage(Struct, frozen=True, gc=False):
    """As Message, but id and pid may be bytes."""

    created_at: int
    creator: str
    data: bytes
    encoding: Encoding
    expires_at: int
    id: msgspec.Raw
    pid: msgspec.Raw
    spec: str
    type: Type


class _OldComponentMessage(_OldMessage, frozen=True, gc=False, forbid_unknown_fields=True):
    """As _OldMessage, and nothing else that an unpacker could stumble over."""


class _ErrorData(Struct, frozen=True, gc=False):
    code: int
    message: str


_MESSAGES = msgspec.msgpack.Decoder(Message)
_COMPONENT_MESSAGES = msgspec.msgpack.Decoder(_ComponentMessage)
_OLD_MESSAGES: msgspec.msgpack.Decoder[_OldMessage] = msgspec.msgpack.Decoder(_OldMessage)
_OLD_COMPONENT_MESSAGES: msgspec.msgpack.Decoder[_OldMessage] = msgspec.msgpack.Decoder(_OldComponentMessage)
_TEXTS = msgspec.msgpack.Decoder(str)
_BYTES = msgspec.msgpack.Decoder(bytes)
_UNDECODABLE = (msgspec.DecodeError, UnicodeError, RecursionError)


def decode_message(packed: bytes) -> Message:
    """Return the message, or raise BadMessage or BadEncoding.  Fields that are not known are ignored."""
    try:
        return _MESSAGES.decode(packed)
    except _UNDECODABLE:
        return _read_old(packed, _OLD_MESSAGES)


def check_for_components(packed: bytes) -> None:
    """Raise BadMessage or BadEncoding unless it has the nine fields, id and pid in either form, and no other.

    A Python component starts again at a message that it cannot unpack, and loses its task (section 8).
    """
    try:
        _COMPONENT_MESSAGES.decode(packed)
    except _UNDECODABLE:
        _read_old(packed, _OLD_COMPONENT_MESSAGES)


def ids_as_bytes(packed: bytes) -> list[str]:
    """Return which of `id` and `pid` are bytes in a message that can be read."""
    try:
        _MESSAGES.decode(packed)
    except _UNDECODABLE:
        old = _OLD_MESSAGES.decode(packed)
        return [name for name, raw in (("id", old.id), ("pid", old.pid)) if not _is_text(raw)]
    return []


def encode_message(message: Message, ids_as_bytes: Collection[str] = ()) -> bytes:
    """Return the packed message, or raise BadMessage if a field is not as the protocol has it.

    The ids that are named, `id` or `pid`, are written as bytes.
    """
    for name, is_good, rule in (
        ("spec", _SPEC.match(message.spec), "one part of a-z, 0-9 and -, or two with _ between"),
        ("type", message.type in TYPES, "config, result, error or data"),
        ("encoding", message.encoding in ENCODINGS, "JSON or MessagePack"),
        ("id", message.id, "given"),
        ("created_at", 0 <= message.created_at_ms <= _UINT64_MAX, "a moment from 0 to 2^64 - 1 ms"),
        ("expires_at", 0 <= message.expires_at_ms <= _UINT64_MAX, "a moment from 0 to 2^64 - 1 ms"),
    ):
        if not is_good:
            raise BadMessage(f"the message cannot be sent: its {name} must be {rule}")
    tag_of(message)
    packed = msgspec.msgpack.encode(_with_old_ids(message, ids_as_bytes) if ids_as_bytes else message)
    if len(packed) > MESSAGE_BYTES_MAX:
        raise BadMessage(f"the message has {len(packed)} bytes, at most {MESSAGE_BYTES_MAX} are accepted; split it")
    return packed


def tag_of(message: Message) -> Tag:
    """Return the tag that travels with the message, or raise BadMessage if a field cannot be in one."""
    tag = Tag(type=message.type, spec=message.spec, id=message.id, pid=message.pid, creator=message.creator)
    text = tag.text
    if text.count(SEPARATOR) != FIELDS - 1:
        raise BadMessage(f"spec, id, pid or creator of the message has a {SEPARATOR} in it, so it can have no tag")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise BadMessage(f"spec, id, pid or creator of the message cannot be sent as text: {error}") from None
    if size > TAG_BYTES_MAX:
        raise BadMessage(f"the message's tag would be longer than {TAG_BYTES_MAX} bytes; shorten its creator")
    return tag


def make_id(randbelow: Callable[[int], int]) -> str:
    """Return a fresh id; `randbelow(n)` draws from 0 to n - 1."""
    return "".join(ALPHABET[randbelow(len(ALPHABET))] for _ in range(ID_CHARS))


def expires_after_ms(message: Message, now_ms: int) -> int | None:
    """Return how long the answer is still wanted: 0 is for ever, as in a Draft; None is no more."""
    if message.expires_at_ms == NEVER:
        return 0
    left_ms = message.expires_at_ms - now_ms
    return left_ms if left_ms > 0 else None


def error_data(code: ErrorCode, text: str) -> bytes:
    """Return the data of a message of type error.  Its encoding is JSON."""
    return msgspec.json.encode(_ErrorData(code, text))


def _with_old_ids(message: Message, names: Collection[str]) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(message, builtin_types=(bytes,))
    return {name: str(value).encode() if name in names else value for name, value in fields.items()}


def _read_old(packed: bytes, decoder: msgspec.msgpack.Decoder[_OldMessage]) -> Message:
    try:
        old = decoder.decode(packed)
        return Message(
            created_at_ms=old.created_at,
            creator=old.creator,
            data=old.data,
            encoding=old.encoding,
            expires_at_ms=old.expires_at,
            id=_text_of(old.id),
            pid=_text_of(old.pid),
            spec=old.spec,
            type=old.type,
        )
    except _UNDECODABLE as error:
        raise _error_of(error) from None


def _text_of(raw: msgspec.Raw) -> str:
    try:
        return _TEXTS.decode(raw)
    except msgspec.ValidationError:
        return _BYTES.decode(raw).decode("ascii")


def _is_text(raw: msgspec.Raw) -> bool:
    try:
        _TEXTS.decode(raw)
    except _UNDECODABLE:
        return False
    return True


def _error_of(error: Exception) -> MoniqueError:
    reason = str(error)[:REASON_CHARS_MAX]
    if isinstance(error, msgspec.ValidationError):
        return BadMessage(f"the packed message is not one with the nine fields: {reason}")
    return BadEncoding(f"the packed message is not MessagePack: {reason}")
