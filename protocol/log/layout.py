"""The layout that all entries share: head, items, fields with their own length (docs/files.md).

This file is pure and below `records.py`, which knows the content of each kind of entry.  Damage raises BadRecord.
"""

import struct
from array import array
from collections.abc import Sequence
from sys import byteorder

from wakeq.protocol.errors import StorageError, WrongVersion
from wakeq.protocol.log.entries import Draft, Kind

ENTRY_VERSION = 1
# version, kind, door, flags, count of items, moment ms, queue id (0 = by name), worker, length of the name
HEAD = struct.Struct(">BBBBIqqIB")
# reason, length of headers, size of body, number, moment ms, priority, extra, timeout ms or spare, length of alias
ITEM = struct.Struct(">HHIqqqqqI")
SIZE_OFFSET = 4  # of the body, in an item
NUMBER_OFFSET = 8  # of the number; of a publish the number in its session or, without a session, the connection
FLAG_ATOMIC = 1
FLAG_ID = 2
FLAG_SESSION = 4
FLAG_FORCED = 8
FLAG_MUST_EXIST = 16
FLAG_OVERSIZED = 32
FLAG_DELIVERED = 64
FLAG_REQUEUED = 1  # of MOVED: the messages stay where they are and are due now


class BadRecord(StorageError):
    """Bytes of an entry, a row or a chunk that do not make sense."""

    code = "BAD_RECORD"


class LaterRecord(BadRecord):
    """An entry with a good checksum that this release cannot read: a later release wrote it."""

    code = WrongVersion.code
    exit_status = WrongVersion.exit_status

    def __init__(self, what: str) -> None:
        super().__init__(f"an entry of {what}, which only a later release knows; use that one, or a later one")


def head_of(
    kind: Kind,
    name: str,
    count: int,
    at_ms: int,
    *,
    door: int = 0,
    flags: int = 0,
    queue_id: int = 0,
    worker: int = 0,
) -> bytes:
    raw = name.encode()
    return HEAD.pack(ENTRY_VERSION, kind, door, flags, count, at_ms, queue_id, worker, len(raw)) + raw


def pack_alike(sizes: Sequence[int], draft: Draft, numbers: int | Sequence[int]) -> bytes:
    """Return the items of messages that differ in bodies and numbers alone, without a loop over them.

    The numbers are those in a session, or connections: one that all share, or one for each.
    """
    shared = numbers if isinstance(numbers, int) else 0
    item = ITEM.pack(0, 0, 0, shared, draft.delay_ms, draft.priority, draft.expires_ms, draft.timeout_ms, 0)
    items = bytearray(item * len(sizes))
    _put_column(items, SIZE_OFFSET, array("I", sizes))
    if not isinstance(numbers, int):
        _put_column(items, NUMBER_OFFSET, array("q", numbers))
    return bytes(items)


def _put_column(items: bytearray, offset: int, column: "array[int]") -> None:
    if byteorder == "little":
        column.byteswap()
    raw, width = column.tobytes(), column.itemsize
    for place in range(width):
        items[offset + place :: ITEM.size] = raw[place::width]


def _take_column(items: bytes, offset: int, kind: str) -> "array[int]":
    column = array(kind)
    width = column.itemsize
    raw = bytearray(len(items) // ITEM.size * width)
    for place in range(width):
        raw[place::width] = items[offset + place :: ITEM.size]
    column.frombytes(raw)
    if byteorder == "little":
        column.byteswap()
    return column


def unpack_alike(items: bytes) -> tuple["array[int]", Draft, "int | array[int]"] | None:
    """Return sizes, what is shared and the numbers of items, at least one, if messages differ in nothing else."""
    _, headers_size, _, number, delay_ms, priority, expires_ms, timeout_ms, alias_size = ITEM.unpack_from(items)
    last = ITEM.unpack_from(items, len(items) - ITEM.size)
    if headers_size or alias_size or last[4:] != (delay_ms, priority, expires_ms, timeout_ms, alias_size):
        return None
    sizes = _take_column(items, SIZE_OFFSET, "I")
    shape = Draft(b"", priority, delay_ms, expires_ms, timeout_ms)
    if last[3] == number and pack_alike(sizes, shape, number) == items:
        return sizes, shape, number
    numbers = _take_column(items, NUMBER_OFFSET, "q")
    return (sizes, shape, numbers) if pack_alike(sizes, shape, numbers) == items else None


def text_of(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">H", len(raw)) + raw


def sized(raw: bytes) -> bytes:
    return struct.pack(">I", len(raw)) + raw


def take_text(payload: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">H", payload, at)
    return take(payload, at + 2, at + 2 + size).decode(), at + 2 + size


def take_sized(payload: bytes, at: int) -> tuple[bytes, int]:
    (size,) = struct.unpack_from(">I", payload, at)
    return take(payload, at + 4, at + 4 + size), at + 4 + size


def take(payload: bytes, start: int, end: int) -> bytes:
    if end > len(payload):
        raise BadRecord(f"an entry ends at {len(payload)}, within a field that goes on to {end}")
    return payload[start:end]
