"""Record reader: bytes --> entries; the inverse of `records.py`.

Damage raises BadRecord, never another error.
"""

import struct
from collections.abc import Callable, Sequence

import msgspec

from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import (
    Ack,
    Claim,
    ClaimAction,
    CreateQueue,
    DeleteQueue,
    Delivered,
    Draft,
    Entry,
    Expired,
    Extended,
    Imported,
    Kind,
    Members,
    Noop,
    PauseQueue,
    Publish,
    PurgeQueue,
    Reason,
    Released,
    Requeued,
    SetAside,
    Stash,
    Token,
    Unstash,
    UnstashAction,
    UpdateQueue,
)
from wakeq.protocol.log.format import HEADER_BYTES, RECORD_BYTES, Read, Walk
from wakeq.protocol.log.layout import (
    ENTRY_VERSION,
    FLAG_ATOMIC,
    FLAG_DELIVERED,
    FLAG_FORCED,
    FLAG_ID,
    FLAG_MUST_EXIST,
    FLAG_OVERSIZED,
    FLAG_REQUEUED,
    FLAG_SESSION,
    HEAD,
    ITEM,
    BadRecord,
    LaterRecord,
    take,
    take_sized,
    take_text,
    unpack_alike,
)
from wakeq.protocol.queue.ledger.uniform import UNIFORM_MIN, UniformBatch, shape_of
from wakeq.protocol.raft.membership import Config

# Of a record in the log, before its CRC.
LENGTH_BYTES = 4
_PUBLISH = bytes([Kind.PUBLISH])
_PUBLISHING = {Kind.PUBLISH, Kind.STASH}

_ClaimFields = tuple[str, int, int, int, int, str, int, str]
_UnstashFields = tuple[list[tuple[str, int]], str, int, str, str, str, list[str]]

_from_msgpack = msgspec.msgpack.decode


class _Parts(msgspec.Struct, frozen=True, gc=False):
    """The parts of an entry, before its kind is decoded."""

    kind: Kind
    name: str
    items: list[tuple[int, ...]]  # empty for messages that are published: `_take_drafts` reads those
    payload: bytes
    start: int  # offset of the items
    end: int  # offset behind them
    door: int
    flags: int
    queue_id: int
    worker: int

    @property
    def numbers(self) -> list[int]:
        return [item[3] for item in self.items]

    @property
    def moments_ms(self) -> list[int]:
        return [item[4] for item in self.items]

    @property
    def tokens(self) -> list[Token]:
        return [(item[5], item[6]) for item in self.items]

    @property
    def workers(self) -> Sequence[int]:
        """The connection of each message, if there are several; else nothing."""
        return () if self.worker else _workers_in([item[7] for item in self.items])

    @property
    def rest(self) -> bytes:
        return self.payload[self.end :]


def first_moment(read: Read, *, end: int, seed: int, index: int) -> int | None:
    """Return the moment in ms of the first record of a segment, which is read up to `end`; None if it is not whole."""
    length = int.from_bytes(read(HEADER_BYTES, LENGTH_BYTES), "big")
    walk = Walk(
        read, offset=HEADER_BYTES, end=min(end, HEADER_BYTES + RECORD_BYTES + length), seed=seed, next_index=index
    )
    first = next(iter(walk), None)
    return None if first is None else int(HEAD.unpack_from(first[2])[5])


def decode_entry(payload: bytes) -> tuple[Entry, int]:
    """Return an entry and its moment."""
    try:
        version, kind, door, flags, count, at_ms, queue_id, worker, name_size = HEAD.unpack_from(payload)
        if version != ENTRY_VERSION:
            raise LaterRecord(f"version {version}")
        if kind not in _DECODERS:
            raise LaterRecord(f"kind {kind}")
        start = HEAD.size + name_size
        name = take(payload, HEAD.size, start).decode()
        end = start + count * ITEM.size
        if end > len(payload):
            raise BadRecord("an entry ends inside its items")
        items = [] if kind in _PUBLISHING else list(ITEM.iter_unpack(payload[start:end]))
        parts = _Parts(Kind(kind), name, items, payload, start, end, door, flags, queue_id, worker)
        return _DECODERS[parts.kind](parts), at_ms
    except (struct.error, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise BadRecord(f"an entry cannot be decoded: {error}") from None


def _decode_publish(parts: _Parts) -> Publish:
    flags, payload, at = parts.flags, parts.payload, parts.end
    entry_id = session = ""
    if flags & FLAG_ID:
        entry_id, at = take_text(payload, at)
    if flags & FLAG_SESSION:
        session, at = take_text(payload, at)
    drafts, numbers = _take_drafts(parts, at)
    ordinals = numbers if session else ()
    workers = () if session or parts.worker else _workers_in(numbers)
    atomic = bool(flags & FLAG_ATOMIC)
    return Publish(
        parts.name,
        drafts,
        atomic=atomic,
        id=entry_id,
        session=session,
        ordinals=ordinals[:1] if atomic else ordinals,
        forced=bool(flags & FLAG_FORCED),
        door=parts.door,
        worker=parts.worker,
        must_exist=bool(flags & FLAG_MUST_EXIST),
        oversized=bool(flags & FLAG_OVERSIZED),
        workers=workers,
    )


def _workers_in(numbers: list[int]) -> Sequence[int]:
    """Return connections, or nothing if no item names one: then the entry is of the connection in its head."""
    return numbers if any(numbers) else ()


def _take_drafts(parts: _Parts, at: int) -> tuple[Sequence[Draft], list[int]]:
    """Return the messages whose bodies begin at a place, and their numbers in a session, or their connections."""
    payload, raw = parts.payload, parts.payload[parts.start : parts.end]
    if len(raw) >= UNIFORM_MIN * ITEM.size and (found := unpack_alike(raw)) is not None:
        sizes, shape, numbers = found
        end = at + sum(sizes)
        if end > len(payload):
            raise BadRecord("a publish entry ends inside a body")
        shared = shape.priority, shape.delay_ms, shape.expires_ms, shape.timeout_ms
        return UniformBatch(payload[at:end], sizes, shape_of(*shared)), [numbers] * len(sizes) if isinstance(
            numbers, int
        ) else numbers.tolist()
    return _take_unlike(list(ITEM.iter_unpack(raw)), payload, at)


def _take_unlike(items: list[tuple[int, ...]], payload: bytes, at: int) -> tuple[Sequence[Draft], list[int]]:
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
    return drafts, [item[3] for item in items]


def _decode_delivered(parts: _Parts) -> Delivered:
    first = parts.items[0][6] if parts.items else 0
    about = parts.numbers, parts.moments_ms, first, parts.worker, parts.door, parts.workers
    return Delivered(parts.name, parts.queue_id, *about)


def _decode_released(parts: _Parts) -> Released:
    reason = Reason(parts.items[0][0]) if parts.items else Reason.NONE
    error = parts.rest.decode()
    return Released(parts.name, parts.queue_id, parts.numbers, parts.moments_ms, parts.tokens, reason, error)


def _decode_ack(parts: _Parts) -> Ack:
    payload = parts.payload
    raw, at = take_sized(payload, parts.end)
    foreign = _from_msgpack(raw, type=dict[int, str]) if raw else {}
    publishes = []
    while at < len(payload):
        raw, at = take_sized(payload, at)
        # Check the kind before decoding: otherwise follow-ups within follow-ups would recurse.
        if raw[1:2] != _PUBLISH:
            raise BadRecord("a follow-up is not a publish")
        inner, _ = decode_entry(raw)
        assert isinstance(inner, Publish), "its kind says so"
        publishes.append(inner)
    return Ack(
        parts.name,
        parts.queue_id,
        parts.numbers,
        parts.tokens,
        publishes,
        foreign,
        dead=parts.kind is Kind.DEAD,
        worker=parts.worker,
        door=parts.door,
        delivered=bool(parts.flags & FLAG_DELIVERED),
        moved=parts.kind is Kind.MOVED,
        workers=parts.workers,
    )


def _decode_moved(parts: _Parts) -> Ack | Requeued:
    if parts.flags & FLAG_REQUEUED:
        return Requeued(parts.name, parts.queue_id, parts.numbers)
    return _decode_ack(parts)


def _decode_claim(parts: _Parts) -> Claim:
    action = ClaimAction(parts.flags)
    source, epoch, slices, until_ms, first, *read = _from_msgpack(parts.rest, type=_ClaimFields)
    tokens = [] if action is ClaimAction.STAGED else parts.tokens
    about = action, source, epoch, parts.numbers, tokens, first, slices, until_ms
    return Claim(parts.name, parts.queue_id, *about, parts.worker, parts.door, *read)


def _decode_stash(parts: _Parts) -> Stash:
    about, at = take_sized(parts.payload, parts.end)
    drafts, _ = _take_drafts(parts, at)
    named = _from_msgpack(about, type=tuple[str, int, int, str, int])
    return Stash(parts.name, drafts, *named, parts.door, parts.worker)


def _decode_unstash(parts: _Parts) -> Unstash:
    named = _from_msgpack(parts.rest, type=_UnstashFields)
    return Unstash(parts.name, UnstashAction(parts.flags), *named)


_DECODERS: dict[Kind, Callable[[_Parts], Entry]] = {
    Kind.PUBLISH: _decode_publish,
    Kind.DELIVERED: _decode_delivered,
    Kind.EXTENDED: lambda p: Extended(p.name, p.queue_id, p.numbers, p.moments_ms),
    Kind.RELEASED: _decode_released,
    Kind.ACK: _decode_ack,
    Kind.DEAD: _decode_ack,
    Kind.EXPIRED: lambda p: Expired(p.name, p.queue_id, p.numbers),
    Kind.CREATE: lambda p: CreateQueue(p.name, _from_msgpack(p.rest, type=Policies)),
    Kind.UPDATE: lambda p: UpdateQueue(p.name, _from_msgpack(p.rest, type=dict[str, object])),
    Kind.DELETE: lambda p: DeleteQueue(p.name),
    Kind.PURGE: lambda p: PurgeQueue(p.name),
    Kind.SET_ASIDE: lambda p: SetAside(p.name, *_from_msgpack(p.rest, type=tuple[int, str])),
    Kind.IMPORTED: lambda p: Imported(p.name),
    Kind.NOOP: lambda p: Noop(p.name),
    Kind.MEMBERS: lambda p: Members(_from_msgpack(p.rest, type=Config), p.name),
    Kind.CLAIM: _decode_claim,
    Kind.STASH: _decode_stash,
    Kind.UNSTASH: _decode_unstash,
    Kind.PAUSE: lambda p: PauseQueue(p.name, _from_msgpack(p.rest, type=int)),
    Kind.MOVED: _decode_moved,
}
