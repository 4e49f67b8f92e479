"""Records: entries <-> bytes.  The log, the peers and the pipeline share this layout.

In: entries of `commands`, stamped.  Out: bytes, big-endian, versioned; and back.  `docs/files.md` says every
byte; a change here changes that page and a version number.  Damage raises BadRecord, never anything else.

An entry begins with HEAD and the queue's name; then come `count` ITEMs of fixed size, one for each message, so that
a reader can gather columns without decoding; then whatever has no fixed size.
"""

import struct
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from wakeq.protocol.catalog import Policies
from wakeq.protocol.commands import (
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
from wakeq.protocol.raft.membership import Config
from wakeq.protocol.record_layout import (
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
    head_of,
    sized,
    take,
    take_sized,
    take_text,
    text_of,
)

_PUBLISH = bytes([Kind.PUBLISH])

_to_msgpack = msgspec.msgpack.Encoder().encode
_pack_head = HEAD.pack
_pack_item = ITEM.pack


def encode_entry(entry: Entry, at_ms: int) -> bytes:
    """Return the bytes of an entry, stamped."""
    return _ENCODERS[type(entry)](entry, at_ms)


def _encode_publish(entry: Publish, at_ms: int) -> bytes:
    if len(entry.drafts) == 1 and not (entry.id or entry.session):
        return _encode_publish_of_one(entry, entry.drafts[0], at_ms)
    flags = _publish_flags(entry)
    extra = []
    if entry.id:
        flags |= FLAG_ID
        extra.append(text_of(entry.id))
    ordinals: Iterable[int] = [0] * len(entry.drafts)
    if entry.session:
        flags |= FLAG_SESSION
        extra.append(text_of(entry.session))
        ordinals = entry.ordinals * len(entry.drafts) if entry.atomic else entry.ordinals
    drafts = entry.drafts
    raw = entry.queue.encode()
    if entry.packed is not None:
        items, bodies = entry.packed
        head = _pack_head(ENTRY_VERSION, 1, entry.door, flags, len(drafts), at_ms, 0, entry.worker, len(raw)) + raw
        return b"".join((head, items, *extra, bodies))
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


def _publish_flags(entry: Publish) -> int:
    """Return the flags that say nothing about further fields."""
    flags = FLAG_ATOMIC * entry.atomic | FLAG_FORCED * entry.forced
    return flags | FLAG_MUST_EXIST * entry.must_exist | FLAG_OVERSIZED * entry.oversized


def _encode_publish_of_one(entry: Publish, draft: Draft, at_ms: int) -> bytes:
    """The hot path of those who publish to many queues: the same bytes without a list of anything."""
    flags = _publish_flags(entry)
    name, body, headers = entry.queue.encode(), draft.body, draft.headers
    head = _pack_head(ENTRY_VERSION, 1, entry.door, flags, 1, at_ms, 0, entry.worker, len(name)) + name
    spans = draft.delay_ms, draft.priority, draft.expires_ms, draft.timeout_ms
    if draft.alias:
        alias = draft.alias.encode()
        return b"".join((head, _pack_item(0, len(headers), len(body), 0, *spans, len(alias)), body, headers, alias))
    return b"".join((head, _pack_item(0, len(headers), len(body), 0, *spans, 0), body, headers))


def _encode_delivered(entry: Delivered, at_ms: int) -> bytes:
    first = entry.first_sequence
    items = [
        _pack_item(0, 0, 0, number, until, 0, first + i, 0, 0)
        for i, (number, until) in enumerate(zip(entry.numbers, entry.untils_ms, strict=True))
    ]
    head = head_of(
        Kind.DELIVERED, entry.queue, len(items), at_ms, queue_id=entry.queue_id, worker=entry.worker, door=entry.door
    )
    return head + b"".join(items)


def _encode_extended(entry: Extended, at_ms: int) -> bytes:
    pairs = zip(entry.numbers, entry.untils_ms, strict=True)
    items = [_pack_item(0, 0, 0, number, until, 0, 0, 0, 0) for number, until in pairs]
    return head_of(Kind.EXTENDED, entry.queue, len(items), at_ms, queue_id=entry.queue_id) + b"".join(items)


def _encode_released(entry: Released, at_ms: int) -> bytes:
    error = entry.error.encode()
    rows = zip(entry.numbers, entry.dues_ms, entry.tokens, strict=True)
    items = [
        _pack_item(entry.reason, 0, 0, number, due, term, sequence, 0, 0) for number, due, (term, sequence) in rows
    ]
    head = head_of(Kind.RELEASED, entry.queue, len(items), at_ms, queue_id=entry.queue_id)
    return head + b"".join(items) + error


def _encode_ack(entry: Ack, at_ms: int) -> bytes:
    rows = zip(entry.numbers, entry.tokens, strict=True)
    items = [_pack_item(0, 0, 0, number, 0, term, sequence, 0, 0) for number, (term, sequence) in rows]
    kind = Kind.DEAD if entry.dead else Kind.MOVED if entry.moved else Kind.ACK
    flags = FLAG_DELIVERED * entry.delivered
    about = {"queue_id": entry.queue_id, "worker": entry.worker, "door": entry.door, "flags": flags}
    head = head_of(kind, entry.queue, len(items), at_ms, **about)
    foreign = _to_msgpack(entry.foreign) if entry.foreign else b""
    follows = [sized(_encode_publish(publish, at_ms)) for publish in entry.publishes]
    return b"".join([head, *items, sized(foreign), *follows])


def _encode_expired(entry: Expired, at_ms: int) -> bytes:
    items = [_pack_item(0, 0, 0, number, 0, 0, 0, 0, 0) for number in entry.numbers]
    return head_of(Kind.EXPIRED, entry.queue, len(items), at_ms, queue_id=entry.queue_id) + b"".join(items)


def _encode_claim(entry: Claim, at_ms: int) -> bytes:
    tokens, first = entry.tokens, entry.first_sequence
    if entry.action is ClaimAction.STAGED:
        tokens = [(0, sequence) for sequence in range(first, first + len(entry.numbers))]
    rows = zip(entry.numbers, tokens, strict=True)
    items = [_pack_item(0, 0, 0, number, entry.until_ms, term, sequence, 0, 0) for number, (term, sequence) in rows]
    about = {"queue_id": entry.queue_id, "worker": entry.worker, "door": entry.door, "flags": entry.action}
    head = head_of(Kind.CLAIM, entry.queue, len(items), at_ms, **about)
    rest = entry.source, entry.epoch, entry.slices, entry.until_ms, entry.first_sequence
    return b"".join((head, *items, _to_msgpack(rest)))


def _encode_stash(entry: Stash, at_ms: int) -> bytes:
    drafts = entry.drafts
    items = [
        _pack_item(0, len(d.headers), len(d.body), 0, d.delay_ms, d.priority, d.expires_ms, d.timeout_ms, 0)
        for d in drafts
    ]
    head = head_of(Kind.STASH, entry.queue, len(items), at_ms, worker=entry.worker, door=entry.door, flags=FLAG_ATOMIC)
    about = sized(_to_msgpack((entry.stash, entry.part, entry.keep_ms)))
    return b"".join((head, *items, about, *[part for draft in drafts for part in (draft.body, draft.headers)]))


def _encode_unstash(entry: Unstash, at_ms: int) -> bytes:
    about = _to_msgpack((entry.stashes, entry.writer, entry.epoch))
    return head_of(Kind.UNSTASH, entry.queue, 0, at_ms, flags=entry.action) + about


def _encode_requeued(entry: Requeued, at_ms: int) -> bytes:
    items = [_pack_item(0, 0, 0, number, 0, 0, 0, 0, 0) for number in entry.numbers]
    about = {"queue_id": entry.queue_id, "flags": FLAG_REQUEUED}
    return head_of(Kind.MOVED, entry.queue, len(items), at_ms, **about) + b"".join(items)


_ENCODERS: dict[type, Callable[[Any, int], bytes]] = {
    Publish: _encode_publish,
    Delivered: _encode_delivered,
    Extended: _encode_extended,
    Released: _encode_released,
    Ack: _encode_ack,
    Expired: _encode_expired,
    CreateQueue: lambda e, at: head_of(Kind.CREATE, e.queue, 0, at) + _to_msgpack(e.policies),
    UpdateQueue: lambda e, at: head_of(Kind.UPDATE, e.queue, 0, at) + _to_msgpack(e.changes),
    DeleteQueue: lambda e, at: head_of(Kind.DELETE, e.queue, 0, at),
    PurgeQueue: lambda e, at: head_of(Kind.PURGE, e.queue, 0, at),
    SetAside: lambda e, at: head_of(Kind.SET_ASIDE, e.queue, 0, at) + _to_msgpack((e.index, e.reason)),
    Imported: lambda e, at: head_of(Kind.IMPORTED, e.queue, 0, at),
    Noop: lambda e, at: head_of(Kind.NOOP, e.queue, 0, at),
    Claim: _encode_claim,
    Stash: _encode_stash,
    Unstash: _encode_unstash,
    Members: lambda e, at: head_of(Kind.MEMBERS, e.queue, 0, at) + _to_msgpack(e.config),
    PauseQueue: lambda e, at: head_of(Kind.PAUSE, e.queue, 0, at) + _to_msgpack(e.until_ms),
    Requeued: _encode_requeued,
}


def decode_entry(payload: bytes) -> tuple[Entry, int]:
    """Return an entry and its moment."""
    try:
        version, kind, door, flags, count, at_ms, queue_id, worker, name_size = HEAD.unpack_from(payload)
        if version != ENTRY_VERSION:
            raise BadRecord(f"entry of version {version}; this release reads {ENTRY_VERSION}")
        start = HEAD.size + name_size
        name = take(payload, HEAD.size, start).decode()
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
    door, flags, queue_id, worker = head
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
        case Kind.PAUSE:
            return PauseQueue(name, msgspec.msgpack.decode(payload[end:], type=int))
        case Kind.MOVED if flags & FLAG_REQUEUED:
            return Requeued(name, queue_id, numbers)
        case Kind.MOVED:
            return _decode_ack(kind, name, items, payload, end, head)
        case Kind.CLAIM:
            return _decode_claim(name, items, payload[end:], head)
        case Kind.STASH:
            about, at = take_sized(payload, end)
            drafts = _take_drafts(items, payload, at)
            return Stash(name, drafts, *msgspec.msgpack.decode(about, type=tuple[str, int, int]), door, worker)
        case Kind.UNSTASH:
            action, named = UnstashAction(head[1]), tuple[list[tuple[str, int]], str, int]
            return Unstash(name, action, *msgspec.msgpack.decode(payload[end:], type=named))
        case Kind.MEMBERS:
            return Members(msgspec.msgpack.decode(payload[end:], type=Config), name)


def _decode_publish(
    name: str, items: list[tuple[int, ...]], payload: bytes, at: int, head: tuple[int, int, int, int]
) -> Publish:
    door, flags, _, worker = head
    entry_id = session = ""
    if flags & FLAG_ID:
        entry_id, at = take_text(payload, at)
    if flags & FLAG_SESSION:
        session, at = take_text(payload, at)
    drafts = _take_drafts(items, payload, at)
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
        must_exist=bool(flags & FLAG_MUST_EXIST),
        oversized=bool(flags & FLAG_OVERSIZED),
    )


def _take_drafts(items: list[tuple[int, ...]], payload: bytes, at: int) -> list[Draft]:
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
    return drafts


def _decode_claim(name: str, items: list[tuple[int, ...]], rest: bytes, head: tuple[int, int, int, int]) -> Claim:
    door, action, queue_id, worker = head
    source, epoch, slices, until_ms, first = msgspec.msgpack.decode(rest, type=tuple[str, int, int, int, int])
    numbers = [item[3] for item in items]
    tokens = [] if action == ClaimAction.STAGED else [(item[5], item[6]) for item in items]
    about = ClaimAction(action), source, epoch, numbers, tokens, first, slices, until_ms
    return Claim(name, queue_id, *about, worker, door)


def _decode_ack(
    kind: Kind, name: str, items: list[tuple[int, ...]], payload: bytes, at: int, head: tuple[int, int, int, int]
) -> Ack:
    door, flags, queue_id, worker = head
    raw, at = take_sized(payload, at)
    foreign = msgspec.msgpack.decode(raw, type=dict[int, str]) if raw else {}
    publishes = []
    while at < len(payload):
        raw, at = take_sized(payload, at)
        if raw[1:2] != _PUBLISH:  # looked at first: a follow-up within a follow-up is not decoded at all
            raise BadRecord("a follow-up is not a publish")
        inner, _ = decode_entry(raw)
        assert isinstance(inner, Publish), "its kind says so"
        publishes.append(inner)
    numbers = [item[3] for item in items]
    tokens: list[Token] = [(item[5], item[6]) for item in items]
    is_dead, delivered, moved = kind is Kind.DEAD, bool(flags & FLAG_DELIVERED), kind is Kind.MOVED
    return Ack(name, queue_id, numbers, tokens, publishes, foreign, is_dead, worker, door, delivered, moved)
