"""Entries and queue state <-> bytes.  The log, the peers, the state store and the pipeline share these layouts.

In: entries of `commands`, rows of a ledger.  Out: bytes, big-endian, versioned; and back.  `docs/files.md` says every
byte; a change here changes that page and a version number.  Damage raises BadRecord, never anything else.

An entry begins with HEAD and the queue's name; then come `count` ITEMs of fixed size, one for each message, so that
a reader can gather columns without decoding; then whatever has no fixed size.
"""

import struct
import zlib
from array import array
from collections.abc import Callable, Iterable
from itertools import accumulate, pairwise
from sys import byteorder
from typing import Any

import msgspec

from wakeq.protocol.catalog import Policies
from wakeq.protocol.commands import (
    Ack,
    CreateQueue,
    DeleteQueue,
    Delivered,
    Draft,
    Entry,
    Expired,
    Extended,
    Imported,
    Kind,
    Noop,
    Publish,
    PurgeQueue,
    Reason,
    Released,
    SetAside,
    Token,
    UpdateQueue,
)
from wakeq.protocol.errors import StorageError

ENTRY_VERSION = 1
# version, kind, door, flags, count of items, moment ms, queue id (0 = by name), worker, length of the name
HEAD = struct.Struct(">BBBBIqqIB")
# reason, length of headers, size of body, number, moment ms, priority, extra, timeout ms or spare, length of alias
ITEM = struct.Struct(">HHIqqqqqI")
FLAG_ATOMIC = 1
FLAG_ID = 2
FLAG_SESSION = 4
FLAG_FORCED = 8
_PUBLISH = bytes([Kind.PUBLISH])

_to_msgpack = msgspec.msgpack.Encoder().encode
_pack_head = HEAD.pack
_pack_item = ITEM.pack


class BadRecord(StorageError):
    """Bytes of an entry or of a stored row that do not make sense."""

    code = "BAD_RECORD"


# Entries ----------------------------------------------------------------------------------------------------------


def encode_entry(entry: Entry, at_ms: int) -> bytes:
    """Return the bytes of an entry, stamped."""
    return _ENCODERS[type(entry)](entry, at_ms)


def _head(kind: Kind, name: str, count: int, at_ms: int, **more: int) -> bytes:
    raw = name.encode()
    door, flags, queue_id, worker = (more.get(key, 0) for key in ("door", "flags", "queue_id", "worker"))
    return _pack_head(ENTRY_VERSION, kind, door, flags, count, at_ms, queue_id, worker, len(raw)) + raw


def _encode_publish(entry: Publish, at_ms: int) -> bytes:
    if len(entry.drafts) == 1 and not (entry.id or entry.session):
        return _encode_publish_of_one(entry, entry.drafts[0], at_ms)
    flags = FLAG_ATOMIC * entry.atomic | FLAG_FORCED * entry.forced
    extra = []
    if entry.id:
        flags |= FLAG_ID
        extra.append(_text(entry.id))
    ordinals: Iterable[int] = [0] * len(entry.drafts)
    if entry.session:
        flags |= FLAG_SESSION
        extra.append(_text(entry.session))
        ordinals = entry.ordinals * len(entry.drafts) if entry.atomic else entry.ordinals
    drafts = entry.drafts
    raw = entry.queue.encode()
    parts = [
        _pack_head(ENTRY_VERSION, 1, entry.door, flags, len(drafts), at_ms, 0, entry.worker, len(raw)),
        raw,
        *[
            _pack_item(
                0,
                len(d.headers),
                len(d.body),
                n,
                d.delay_ms,
                d.priority,
                d.expires_ms,
                d.timeout_ms,
                len(d.alias.encode()) if d.alias else 0,
            )
            for d, n in zip(drafts, ordinals, strict=True)
        ],
        *extra,
    ]
    if any([d.headers or d.alias for d in drafts]):
        for draft in drafts:
            parts += (draft.body, draft.headers, draft.alias.encode())
    else:
        parts += [draft.body for draft in drafts]
    return b"".join(parts)


def _encode_publish_of_one(entry: Publish, draft: Draft, at_ms: int) -> bytes:
    """The hot path of those who publish to many queues: the same bytes without a list of anything."""
    flags = FLAG_ATOMIC * entry.atomic | FLAG_FORCED * entry.forced
    name, body, headers = entry.queue.encode(), draft.body, draft.headers
    head = _pack_head(ENTRY_VERSION, 1, entry.door, flags, 1, at_ms, 0, entry.worker, len(name)) + name
    spans = draft.delay_ms, draft.priority, draft.expires_ms, draft.timeout_ms
    if draft.alias:
        alias = draft.alias.encode()
        return b"".join((head, _pack_item(0, len(headers), len(body), 0, *spans, len(alias)), body, headers, alias))
    return b"".join((head, _pack_item(0, len(headers), len(body), 0, *spans, 0), body, headers))


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">H", len(raw)) + raw


def _encode_delivered(entry: Delivered, at_ms: int) -> bytes:
    first = entry.first_sequence
    items = [
        _pack_item(0, 0, 0, number, until, 0, first + i, 0, 0)
        for i, (number, until) in enumerate(zip(entry.numbers, entry.untils_ms, strict=True))
    ]
    head = _head(
        Kind.DELIVERED, entry.queue, len(items), at_ms, queue_id=entry.queue_id, worker=entry.worker, door=entry.door
    )
    return head + b"".join(items)


def _encode_extended(entry: Extended, at_ms: int) -> bytes:
    pairs = zip(entry.numbers, entry.untils_ms, strict=True)
    items = [_pack_item(0, 0, 0, number, until, 0, 0, 0, 0) for number, until in pairs]
    return _head(Kind.EXTENDED, entry.queue, len(items), at_ms, queue_id=entry.queue_id) + b"".join(items)


def _encode_released(entry: Released, at_ms: int) -> bytes:
    error = entry.error.encode()
    rows = zip(entry.numbers, entry.dues_ms, entry.tokens, strict=True)
    items = [
        _pack_item(entry.reason, 0, 0, number, due, term, sequence, 0, 0) for number, due, (term, sequence) in rows
    ]
    head = _head(Kind.RELEASED, entry.queue, len(items), at_ms, queue_id=entry.queue_id)
    return head + b"".join(items) + error


def _encode_ack(entry: Ack, at_ms: int) -> bytes:
    rows = zip(entry.numbers, entry.tokens, strict=True)
    items = [_pack_item(0, 0, 0, number, 0, term, sequence, 0, 0) for number, (term, sequence) in rows]
    kind = Kind.DEAD if entry.dead else Kind.ACK
    head = _head(kind, entry.queue, len(items), at_ms, queue_id=entry.queue_id, worker=entry.worker, door=entry.door)
    foreign = _to_msgpack(entry.foreign) if entry.foreign else b""
    follows = [_sized(_encode_publish(publish, at_ms)) for publish in entry.publishes]
    return b"".join([head, *items, _sized(foreign), *follows])


def _sized(raw: bytes) -> bytes:
    return struct.pack(">I", len(raw)) + raw


def _encode_expired(entry: Expired, at_ms: int) -> bytes:
    items = [_pack_item(0, 0, 0, number, 0, 0, 0, 0, 0) for number in entry.numbers]
    return _head(Kind.EXPIRED, entry.queue, len(items), at_ms, queue_id=entry.queue_id) + b"".join(items)


_ENCODERS: dict[type, Callable[[Any, int], bytes]] = {
    Publish: _encode_publish,
    Delivered: _encode_delivered,
    Extended: _encode_extended,
    Released: _encode_released,
    Ack: _encode_ack,
    Expired: _encode_expired,
    CreateQueue: lambda e, at: _head(Kind.CREATE, e.queue, 0, at) + _to_msgpack(e.policies),
    UpdateQueue: lambda e, at: _head(Kind.UPDATE, e.queue, 0, at) + _to_msgpack(e.changes),
    DeleteQueue: lambda e, at: _head(Kind.DELETE, e.queue, 0, at),
    PurgeQueue: lambda e, at: _head(Kind.PURGE, e.queue, 0, at),
    SetAside: lambda e, at: _head(Kind.SET_ASIDE, e.queue, 0, at) + _to_msgpack((e.index, e.reason)),
    Imported: lambda e, at: _head(Kind.IMPORTED, e.queue, 0, at),
    Noop: lambda e, at: _head(Kind.NOOP, e.queue, 0, at),
}


def decode_entry(payload: bytes) -> tuple[Entry, int]:
    """Return an entry and its moment."""
    try:
        version, kind, door, flags, count, at_ms, queue_id, worker, name_size = HEAD.unpack_from(payload)
        if version != ENTRY_VERSION:
            raise BadRecord(f"entry of version {version}; this release reads {ENTRY_VERSION}")
        start = HEAD.size + name_size
        name = _take(payload, HEAD.size, start).decode()
        end = start + count * ITEM.size
        items = list(ITEM.iter_unpack(payload[start:end]))
        if len(items) != count:
            raise BadRecord("an entry ends inside its items")
        return _decode(Kind(kind), name, items, payload, end, (door, flags, queue_id, worker)), at_ms
    except (struct.error, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise BadRecord(f"an entry cannot be decoded: {error}") from None


def _decode(
    kind: Kind, name: str, items: list[tuple[int, ...]], payload: bytes, end: int, head: tuple[int, int, int, int]
) -> Entry:
    door, _, queue_id, worker = head
    numbers = [item[3] for item in items]
    match kind:
        case Kind.PUBLISH:
            return _decode_publish(name, items, payload, end, head)
        case Kind.DELIVERED:
            first = items[0][6] if items else 0
            return Delivered(name, queue_id, numbers, [item[4] for item in items], first, worker, door)
        case Kind.EXTENDED:
            return Extended(name, queue_id, numbers, [item[4] for item in items])
        case Kind.RELEASED:
            reason = Reason(items[0][0]) if items else Reason.NONE
            tokens: list[Token] = [(item[5], item[6]) for item in items]
            return Released(
                name, queue_id, numbers, [item[4] for item in items], tokens, reason, payload[end:].decode()
            )
        case Kind.ACK | Kind.DEAD:
            return _decode_ack(kind, name, items, payload, end, head)
        case Kind.EXPIRED:
            return Expired(name, queue_id, numbers)
        case Kind.CREATE:
            return CreateQueue(name, msgspec.msgpack.decode(payload[end:], type=Policies))
        case Kind.UPDATE:
            return UpdateQueue(name, msgspec.msgpack.decode(payload[end:], type=dict[str, object]))
        case Kind.DELETE:
            return DeleteQueue(name)
        case Kind.PURGE:
            return PurgeQueue(name)
        case Kind.SET_ASIDE:
            return SetAside(name, *msgspec.msgpack.decode(payload[end:], type=tuple[int, str]))
        case Kind.IMPORTED:
            return Imported(name)
        case Kind.NOOP:
            return Noop(name)


def _decode_publish(
    name: str, items: list[tuple[int, ...]], payload: bytes, at: int, head: tuple[int, int, int, int]
) -> Publish:
    door, flags, _, worker = head
    entry_id = session = ""
    if flags & FLAG_ID:
        entry_id, at = _take_text(payload, at)
    if flags & FLAG_SESSION:
        session, at = _take_text(payload, at)
    drafts = []
    for _, headers_size, size, _, delay_ms, priority, expires_ms, timeout_ms, alias_size in items:
        body = payload[at : at + size]
        at += size
        headers = payload[at : at + headers_size]
        at += headers_size
        alias = payload[at : at + alias_size].decode()
        at += alias_size
        drafts.append(Draft(body, priority, delay_ms, expires_ms, timeout_ms, headers, alias))
    if at > len(payload):
        raise BadRecord("a publish entry ends inside a body")
    ordinals = [item[3] for item in items] if session else []
    atomic = bool(flags & FLAG_ATOMIC)
    return Publish(
        name,
        drafts,
        atomic=atomic,
        id=entry_id,
        session=session,
        ordinals=ordinals[:1] if atomic else ordinals,
        forced=bool(flags & FLAG_FORCED),
        door=door,
        worker=worker,
    )


def _take_text(payload: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">H", payload, at)
    return _take(payload, at + 2, at + 2 + size).decode(), at + 2 + size


def _decode_ack(
    kind: Kind, name: str, items: list[tuple[int, ...]], payload: bytes, at: int, head: tuple[int, int, int, int]
) -> Ack:
    door, _, queue_id, worker = head
    raw, at = _take_sized(payload, at)
    foreign = msgspec.msgpack.decode(raw, type=dict[int, str]) if raw else {}
    publishes = []
    while at < len(payload):
        raw, at = _take_sized(payload, at)
        if raw[1:2] != _PUBLISH:  # looked at first: a follow-up within a follow-up is not decoded at all
            raise BadRecord("a follow-up is not a publish")
        inner, _ = decode_entry(raw)
        assert isinstance(inner, Publish), "its kind says so"
        publishes.append(inner)
    numbers = [item[3] for item in items]
    tokens: list[Token] = [(item[5], item[6]) for item in items]
    return Ack(name, queue_id, numbers, tokens, publishes, foreign, kind is Kind.DEAD, worker, door)


def _take_sized(payload: bytes, at: int) -> tuple[bytes, int]:
    (size,) = struct.unpack_from(">I", payload, at)
    return _take(payload, at + 4, at + 4 + size), at + 4 + size


def _take(payload: bytes, start: int, end: int) -> bytes:
    if end > len(payload):
        raise BadRecord(f"an entry ends at {len(payload)}, within a field that goes on to {end}")
    return payload[start:end]


# Rows of the state store ------------------------------------------------------------------------------------------

# status, timeout ms, delay (moment ms), expires (moment ms); then the extension of version 2:
# priority, deliveries, nacks, timeouts, disconnects, term, sequence, until ms, published ms, headers, error, CRC-32
ROW = struct.Struct(">BQQQqIIIIQQQQHHI")
_CRC = struct.Struct(">I")
STATUS_MAX = 255


class Side(msgspec.Struct, gc=False):
    """What a message has beyond its columns once it was delivered: counts, the last delivery, the last error."""

    deliveries: int = 0
    nacks: int = 0
    timeouts: int = 0
    disconnects: int = 0
    term: int = 0
    sequence: int = 0
    until_ms: int = 0  # > 0 while it is out with a worker
    due_ms: int = 0  # when it came back: available from this moment
    error: str = ""


class Row(msgspec.Struct, gc=False):
    """One message as it lies in the state store."""

    body: bytes
    headers: bytes = b""
    priority: int = 0
    timeout_ms: int = 0
    due_ms: int = 0
    expires_ms: int = 0
    published_ms: int = 0
    side: Side | None = None


def encode_row(row: Row) -> bytes:
    """Return the value of a MESSAGES record: the document's fields first, the item last.

    Of a message that was delivered, `due_ms` is what its side says: 0 while it is out.
    """
    side = row.side or _NO_SIDE
    failures = side.deliveries - (side.until_ms > 0)
    error = side.error.encode()
    fixed = ROW.pack(
        min(failures, STATUS_MAX), row.timeout_ms, side.due_ms if row.side else row.due_ms, row.expires_ms,
        row.priority, side.deliveries, side.nacks, side.timeouts, side.disconnects,
        side.term, side.sequence, side.until_ms, row.published_ms, len(row.headers), len(error), 0,
    )  # fmt: skip
    tail = b"".join((row.headers, error, row.body))
    return b"".join((fixed[:-4], _CRC.pack(zlib.crc32(tail, zlib.crc32(fixed[:-4]))), tail))


def encode_fresh(
    fresh: dict[int, tuple[Draft, int]], columns: dict[int, tuple[int, int]], sides: dict[int, Side]
) -> list[bytes]:
    """Return the values of new messages.  Those that only have a body share everything before it."""
    values = []
    head, head_crc, head_ms = b"", 0, -1
    crc32, pack = zlib.crc32, _CRC.pack
    simple = not (sides or columns)
    for number, (draft, at_ms) in fresh.items():
        body, headers, priority, timeout_ms = draft.body, draft.headers, draft.priority, draft.timeout_ms
        if headers or priority or timeout_ms or not (simple or (number not in sides and number not in columns)):
            due_ms, expires_ms = columns.get(number, (0, 0))
            row = Row(body, headers, priority, timeout_ms, due_ms, expires_ms, at_ms, sides.get(number))
            values.append(encode_row(row))
            continue
        if at_ms != head_ms:
            head, head_ms = ROW.pack(*_PLAIN, at_ms, 0, 0, 0)[:-4], at_ms
            head_crc = crc32(head)
        values.append(head + pack(crc32(body, head_crc)) + body)
    return values


_NO_SIDE = Side()
_PLAIN = (0,) * 12  # every field of a row before the moment of publication, of a message that only has a body


def decode_row(value: bytes) -> Row:
    """Return a message as it was stored; raise BadRecord if its checksum does not fit."""
    try:
        (
            _, timeout_ms, due_ms, expires_ms, priority, deliveries, nacks, timeouts, disconnects,
            term, sequence, until_ms, published_ms, headers_size, error_size, checksum,
        ) = ROW.unpack_from(value)  # fmt: skip
    except struct.error:
        raise BadRecord(f"a stored message has {len(value)} bytes, at least {ROW.size} are needed") from None
    if zlib.crc32(value[ROW.size :], zlib.crc32(value[: ROW.size - 4])) != checksum:
        raise BadRecord("the checksum of a stored message does not fit")
    at = ROW.size + headers_size
    headers, error = value[ROW.size : at], value[at : at + error_size]
    side = None
    if deliveries:
        side = Side(
            deliveries, nacks, timeouts, disconnects, term, sequence, until_ms, due_ms, error.decode(errors="replace")
        )
    return Row(value[at + error_size :], headers, priority, timeout_ms, due_ms, expires_ms, published_ms, side)


# An index chunk: the columns of up to CHUNK neighbouring numbers, so that a start reads no messages ---------------

CHUNK_SHIFT = 9
CHUNK = 1 << CHUNK_SHIFT
_CHUNK_HEAD = struct.Struct(">BBH")  # version, which columns, rows; then comes a CRC-32 of this and of what follows it
_CHUNK_BODY = _CHUNK_HEAD.size + _CRC.size
_COLUMNS = (("priorities", "q", 1), ("dues", "q", 2), ("expiries", "q", 4), ("timeouts", "q", 8))
CHUNK_SIDES = 16
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

    def copied(self) -> "Chunk":
        """Return columns of their own."""
        copy = Chunk()
        copy.sizes, copy.living, copy.only_sizes = self.sizes[:], self.living, self.only_sizes
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


def encode_chunk(chunk: Chunk, sides: list[int]) -> bytes:
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
        raise BadRecord(f"an index record has {len(value)} bytes, at least {_CHUNK_BODY} are needed")
    version, flags, rows = _CHUNK_HEAD.unpack_from(value)
    (checksum,) = _CRC.unpack_from(value, _CHUNK_HEAD.size)
    body = value[_CHUNK_BODY:]
    if zlib.crc32(body, zlib.crc32(value[: _CHUNK_HEAD.size])) != checksum:
        raise BadRecord("the checksum of an index record does not fit")
    if version != CHUNK_VERSION:
        raise BadRecord(f"an index record of version {version}; this release reads {CHUNK_VERSION}")
    chunk = Chunk()
    widths = [4, *(0 if not flags & flag else 8 if code == "q" else 4 for _, code, flag in _COLUMNS)]
    ends = [0, *accumulate(width * rows for width in widths)]
    columns = [body[start:end] for start, end in pairwise(ends)]
    chunk.sizes = _native("I", columns[0])
    for (name, code, flag), raw in zip(_COLUMNS, columns[1:], strict=True):
        if flags & flag:
            chunk.put(name, _native(code, raw))
    chunk.living = rows - chunk.sizes.count(0)
    sides = list(_native("H", body[ends[-1] :])) if flags & CHUNK_SIDES else []
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
