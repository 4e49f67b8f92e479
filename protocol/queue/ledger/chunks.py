"""Chunks: the columns of neighbouring message numbers, and their bytes in the state store, so that a start reads no
messages.

`docs/files.md` says every byte; a change here changes that page and a version number.  Damage raises BadRecord, never
anything else.
"""

import struct
import zlib
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from sys import byteorder

from wakeq.protocol.log.layout import BadRecord

_CRC = struct.Struct(">I")
CHUNK_SHIFT = 9
CHUNK = 1 << CHUNK_SHIFT
MASK = CHUNK - 1
_CHUNK_HEAD = struct.Struct(">BBH")  # version, which columns, rows; then comes a CRC-32 of this and of what follows it
_CHUNK_BODY = _CHUNK_HEAD.size + _CRC.size
_COLUMNS = (("priorities", "q", 1), ("dues", "q", 2), ("expiries", "q", 4), ("timeouts", "q", 8))
CHUNK_SIDES = 16
_FLAGS = 31
CHUNK_VERSION = 1


class Chunk:
    """Columns of neighbouring numbers: size + 1 of body and headers, 0 for none; others only if used."""

    __slots__ = ("dues", "expiries", "living", "only_sizes", "priorities", "sizes", "timeouts")

    def __init__(self, skipped: int = 0) -> None:
        self.only_sizes = True  # no other column is used
        self.sizes = array("I", bytes(4 * skipped))
        self.living = 0
        self.priorities: array[int] | None = None
        self.dues: array[int] | None = None
        self.expiries: array[int] | None = None
        self.timeouts: array[int] | None = None

    def fill(self, name: str, values: list[int]) -> None:
        """Append to an optional column, which begins to exist when a value differs from 0."""
        column = getattr(self, name)
        if column is None:
            if not any(values):
                return
            before = len(self.sizes)
            column = array("q", [0]) * before
            self.put(name, column)
        column.extend(values)

    def put(self, name: str, column: "array[int]") -> None:
        """Set an optional column."""
        setattr(self, name, column)
        self.only_sizes = False

    def drop_dues(self) -> None:
        """Forget due moments of which none is set."""
        self.dues = None
        self.only_sizes = all(getattr(self, name) is None for name, _, _ in _COLUMNS)

    def copied(self) -> "Chunk":
        """Return columns of their own."""
        copy = Chunk.__new__(Chunk)  # whose constructor would make columns to be thrown away
        copy.sizes, copy.living, copy.only_sizes = self.sizes[:], self.living, self.only_sizes
        copy.priorities = copy.dues = copy.expiries = copy.timeouts = None
        if not self.only_sizes:
            for name, _, _ in _COLUMNS:
                column = getattr(self, name)
                setattr(copy, name, None if column is None else column[:])
        return copy

    def level(self) -> None:
        """Bring every optional column to the length of the sizes (after a part without values for it)."""
        if self.only_sizes:
            return
        rows = len(self.sizes)
        for name, code, _ in _COLUMNS:
            column = getattr(self, name)
            if column is not None and len(column) < rows:
                column.extend(array(code, [0]) * (rows - len(column)))


def encode_chunk(chunk: Chunk, sides: Sequence[int]) -> bytes:
    """Return the bytes of a chunk; `sides` are the offsets of rows that have more to say in their record."""
    if chunk.only_sizes and not sides:
        body, head = _big_endian(chunk.sizes), _CHUNK_HEAD.pack(CHUNK_VERSION, 0, len(chunk.sizes))
        return head + _CRC.pack(zlib.crc32(body, zlib.crc32(head))) + body
    flags = CHUNK_SIDES if sides else 0
    parts = [_big_endian(chunk.sizes)]
    for name, _, flag in _COLUMNS:
        column = getattr(chunk, name)
        if column is not None:
            flags |= flag
            parts.append(_big_endian(column))
    if sides:
        parts.append(_big_endian(array("H", sides)))
    body = b"".join(parts)
    head = _CHUNK_HEAD.pack(CHUNK_VERSION, flags, len(chunk.sizes))
    return b"".join((head, _CRC.pack(zlib.crc32(body, zlib.crc32(head))), body))


def decode_chunk(value: bytes) -> tuple[Chunk, list[int]]:
    """Return a chunk and the offsets of the rows with a side."""
    if len(value) < _CHUNK_BODY:
        raise BadRecord(f"an index record of {len(value)} bytes, where at least {_CHUNK_BODY} are needed")
    version, flags, rows = _CHUNK_HEAD.unpack_from(value)
    (checksum,) = _CRC.unpack_from(value, _CHUNK_HEAD.size)
    body = value[_CHUNK_BODY:]
    if zlib.crc32(body, zlib.crc32(value[: _CHUNK_HEAD.size])) != checksum:
        raise BadRecord("an index record with a wrong checksum")
    if version != CHUNK_VERSION:
        raise BadRecord(f"an index record of version {version}; this release reads {CHUNK_VERSION}")
    chunk = Chunk()
    if not flags and len(body) == 4 * rows and rows <= CHUNK:  # as nearly all are
        chunk.sizes = _native("I", body)
        chunk.living = rows - chunk.sizes.count(0)
        return chunk, []
    widths = [4, *(0 if not flags & flag else 8 if code == "q" else 4 for _, code, flag in _COLUMNS)]
    ends = [0, *accumulate(width * rows for width in widths)]
    sides_bytes = len(body) - ends[-1]
    is_known = rows <= CHUNK and not flags & ~_FLAGS
    if not is_known or sides_bytes < 0 or sides_bytes % 2 or (sides_bytes and not flags & CHUNK_SIDES):
        raise BadRecord(f"an index record of {rows} rows with columns {flags:#x} in {len(body)} bytes")
    columns = [body[start:end] for start, end in pairwise(ends)]
    chunk.sizes = _native("I", columns[0])
    for (name, code, flag), raw in zip(_COLUMNS, columns[1:], strict=True):
        if flags & flag:
            chunk.put(name, _native(code, raw))
    chunk.living = rows - chunk.sizes.count(0)
    sides = list(_native("H", body[ends[-1] :])) if flags & CHUNK_SIDES else []
    if any(offset >= rows or not chunk.sizes[offset] for offset in sides):
        raise BadRecord(f"an index record of {rows} rows, with more to say of one that is not there")
    return chunk, sides


def _big_endian(column: "array[int]") -> bytes:
    if byteorder == "little":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def _native(code: str, raw: bytes) -> "array[int]":
    column = array(code, raw)
    if byteorder == "little":
        column.byteswap()
    return column
