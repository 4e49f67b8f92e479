"""Readable: a body as people read it.

    bytes --> what it is (json, messagepack, text, binary), and a text: indented, decoded, as it is, or in hexadecimal

The text is for reading only and may be cut: whoever wants the body itself fetches the message.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from wakeq.http.api.selection import cut

TEXT_BYTES_MAX = 256 << 10
HEX_BYTES_MAX = 16 << 10
LINE_BYTES = 16


class Readable(msgspec.Struct, frozen=True):
    """A body for people; `is_cut`: only its beginning is shown."""

    format: str
    text: str
    size: int
    is_cut: bool = False


def readable(body: bytes) -> Readable:
    """Find out what a body is, and write it as a text."""
    if len(body) <= TEXT_BYTES_MAX:
        for name, write in (("json", _json), ("messagepack", _messagepack)):
            text = write(body)
            if text is not None:
                return Readable(name, text, len(body))
    part = cut(body, TEXT_BYTES_MAX)
    text = _text(part)
    if text is not None:
        return Readable("text", text, len(body), len(part) < len(body))
    return Readable("binary", _hex(body[:HEX_BYTES_MAX]), len(body), len(body) > HEX_BYTES_MAX)


def _json(body: bytes) -> str | None:
    try:
        # It checks and indents without decoding, so numbers stay as they were written.
        return msgspec.json.format(body, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _messagepack(body: bytes) -> str | None:
    if _text(body) is not None:
        return None
    try:
        found = msgspec.msgpack.decode(body)
        # Nearly any single byte is a number in MessagePack.
        if not isinstance(found, dict | list):
            return None
        return msgspec.json.format(msgspec.json.encode(_plain(found)), indent=2).decode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError, TypeError, OverflowError):
        return None


def _plain(value: Any) -> Any:
    """Return a decoded value with what JSON cannot carry as text."""
    match value:
        case Mapping():
            return {key if isinstance(key, str) else str(_plain(key)): _plain(one) for key, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case bytes():
            text = _text(value)
            return value.hex(" ") if text is None else text
        case msgspec.msgpack.Ext():
            return {"extension": value.code, "data": bytes(value.data).hex(" ")}
        case _:
            return value


def _text(body: bytes) -> str | None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() or all(char.isprintable() or char.isspace() for char in text) else None


def _hex(body: bytes) -> str:
    lines = []
    for start in range(0, len(body), LINE_BYTES):
        part = body[start : start + LINE_BYTES]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<{3 * LINE_BYTES - 1}}  {letters}")
    return "\n".join(lines)
