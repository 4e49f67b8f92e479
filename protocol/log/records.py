"""Records: entries --> bytes.  The log, the peers and the pipeline share this layout.

    in   entries (`entries.py`) and the moment of each
    out  bytes, big-endian and versioned; `reader.py` decodes them

`docs/files.md` describes every byte; a change here changes that page and a version number.

An entry begins with HEAD and the queue's name.  Then come `count` ITEMs of fixed size, one for each message, so that a
reader can gather columns without decoding.  The fields without a fixed size come last.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

import msgspec
from msgspec.structs import astuple

from wakeq.protocol.log.entries import (
    Ack,
    Claim,
    ClaimAction,
    CreateQueue,
    DeleteQueue,
    Delivered,
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
    Released,
    Requeued,
    SetAside,
    Stash,
    Unstash,
    UpdateQueue,
)
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
    head_of,
    pack_alike,
    sized,
    text_of,
)
from wakeq.protocol.queue.ledger.uniform import UniformBatch

NO_FOREIGN = sized(b"")  # of an acknowledgement of this queue's own messages alone

_to_msgpack = msgspec.msgpack.Encoder().encode
_pack_head = HEAD.pack
_pack_item = ITEM.pack


def encode_entry(entry: Entry, at_ms: int) -> bytes:
    """Return the bytes of an entry, stamped."""
    return ENCODERS[type(entry)](entry, at_ms)


def _encode_publish(entry: Publish, at_ms: int) -> bytes:
    drafts, name, flags = entry.drafts, entry.queue.encode(), 0
    if entry.atomic or entry.forced or entry.must_exist or entry.oversized:
        flags = _publish_flags(entry)
    # A client that publishes to many queues sends one message at a time: keep that case fast.
    if len(drafts) == 1 and not (entry.id or entry.session):
        head = _pack_head(ENTRY_VERSION, 1, entry.door, flags, 1, at_ms, 0, entry.worker, len(name))
        body, priority, delay_ms, expires_ms, timeout_ms, headers, alias = astuple(drafts[0])
        if not (headers or alias):
            item = _pack_item(0, 0, len(body), 0, delay_ms, priority, expires_ms, timeout_ms, 0)
            return b"".join((head, name, item, body))
        raw = alias.encode()
        item = _pack_item(0, len(headers), len(body), 0, delay_ms, priority, expires_ms, timeout_ms, len(raw))
        return b"".join((head, name, item, body, headers, raw))
    extra = b""
    if entry.id or entry.session:
        flags, extra = _about_once(entry, flags)
    numbers: int | Sequence[int] = entry.workers or 0
    if entry.session:
        numbers = entry.ordinals[0] if entry.atomic else entry.ordinals
    head = _pack_head(ENTRY_VERSION, 1, entry.door, flags, len(drafts), at_ms, 0, entry.worker, len(name)) + name
    if type(drafts) is UniformBatch:
        return b"".join((head, drafts.items(numbers), extra, drafts.bodies))
    if entry.alike:
        texts = [d.body for d in drafts]
        return b"".join((head, pack_alike(list(map(len, texts)), drafts[0], numbers), extra, *texts))
    parts = [head]
    parts += [
        _pack_item(
            0,
            len(d.headers),
            len(d.body),
            number,
            d.delay_ms,
            d.priority,
            d.expires_ms,
            d.timeout_ms,
            len(d.alias.encode()) if d.alias else 0,
        )
        for d, number in zip(drafts, _each(numbers, len(drafts)), strict=True)
    ]
    parts.append(extra)
    if any([d.headers or d.alias for d in drafts]):
        parts += [part for d in drafts for part in (d.body, d.headers, d.alias.encode())]
    else:
        parts += [d.body for d in drafts]
    return b"".join(parts)


def _each(numbers: int | Sequence[int], count: int) -> Iterable[int]:
    """Return the number of each item, where one may be that of all."""
    return repeat(numbers, count) if isinstance(numbers, int) else numbers


def _about_once(entry: Publish, flags: int) -> tuple[int, bytes]:
    """Return flags and fields by which a publish that comes again is known."""
    fields = b""
    if entry.id:
        flags |= FLAG_ID
        fields += text_of(entry.id)
    if entry.session:
        flags |= FLAG_SESSION
        fields += text_of(entry.session)
    return flags, fields


def _publish_flags(entry: Publish) -> int:
    """Return the flags that add no fields."""
    flags = FLAG_ATOMIC * entry.atomic | FLAG_FORCED * entry.forced
    return flags | FLAG_MUST_EXIST * entry.must_exist | FLAG_OVERSIZED * entry.oversized


def _encode_delivered(entry: Delivered, at_ms: int) -> bytes:
    name, kind, count, first = entry.queue.encode(), Kind.DELIVERED, len(entry.numbers), entry.first_sequence
    head = _pack_head(ENTRY_VERSION, kind, entry.door, 0, count, at_ms, entry.queue_id, entry.worker, len(name))
    # Workers on many queues get and acknowledge one message at a time: keep that case fast here and below.
    if count == 1 and not entry.workers:
        (number,), (until,) = entry.numbers, entry.untils_ms
        return b"".join((head, name, _pack_item(0, 0, 0, number, until, 0, first, 0, 0)))
    rows = zip(entry.numbers, entry.untils_ms, entry.workers or repeat(0, count), strict=True)
    items = [
        _pack_item(0, 0, 0, number, until, 0, sequence, worker, 0)
        for sequence, (number, until, worker) in enumerate(rows, first)
    ]
    return b"".join((head, name, *items))


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
    kind = Kind.DEAD if entry.dead else Kind.MOVED if entry.moved else Kind.ACK
    name, flags, count = entry.queue.encode(), FLAG_DELIVERED * entry.delivered, len(entry.numbers)
    head = _pack_head(ENTRY_VERSION, kind, entry.door, flags, count, at_ms, entry.queue_id, entry.worker, len(name))
    if count == 1 and not (entry.workers or entry.foreign or entry.publishes):
        (number,), ((term, sequence),) = entry.numbers, entry.tokens
        return b"".join((head, name, _pack_item(0, 0, 0, number, 0, term, sequence, 0, 0), NO_FOREIGN))
    rows = zip(entry.numbers, entry.tokens, entry.workers or repeat(0, count), strict=True)
    items = [_pack_item(0, 0, 0, number, 0, term, sequence, worker, 0) for number, (term, sequence), worker in rows]
    foreign = sized(_to_msgpack(entry.foreign)) if entry.foreign else NO_FOREIGN
    follows = [sized(_encode_publish(publish, at_ms)) for publish in entry.publishes]
    return b"".join((head, name, *items, foreign, *follows))


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
    claimed = entry.slices, entry.until_ms, entry.first_sequence
    rest = entry.source, entry.epoch, *claimed, entry.reader, entry.batch, entry.run
    return b"".join((head, *items, _to_msgpack(rest)))


def _encode_stash(entry: Stash, at_ms: int) -> bytes:
    drafts = entry.drafts
    head = head_of(Kind.STASH, entry.queue, len(drafts), at_ms, worker=entry.worker, door=entry.door, flags=FLAG_ATOMIC)
    about = sized(_to_msgpack((entry.stash, entry.part, entry.keep_ms, entry.writer, entry.epoch)))
    if type(drafts) is UniformBatch:
        return b"".join((head, drafts.items(0), about, drafts.bodies))
    items = [
        _pack_item(0, len(d.headers), len(d.body), 0, d.delay_ms, d.priority, d.expires_ms, d.timeout_ms, 0)
        for d in drafts
    ]
    return b"".join((head, *items, about, *[part for draft in drafts for part in (draft.body, draft.headers)]))


def _encode_unstash(entry: Unstash, at_ms: int) -> bytes:
    about = entry.stashes, entry.writer, entry.epoch, entry.run, entry.id, entry.reader, entry.sources
    return head_of(Kind.UNSTASH, entry.queue, 0, at_ms, flags=entry.action) + _to_msgpack(about)


def _encode_requeued(entry: Requeued, at_ms: int) -> bytes:
    items = [_pack_item(0, 0, 0, number, 0, 0, 0, 0, 0) for number in entry.numbers]
    about = {"queue_id": entry.queue_id, "flags": FLAG_REQUEUED}
    return head_of(Kind.MOVED, entry.queue, len(items), at_ms, **about) + b"".join(items)


ENCODERS: dict[type, Callable[[Any, int], bytes]] = {
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
