"""The journal as a table: what has happened in a broker, one row an event, in Arrow batches.

    data directories --> History.spans --> events_of(span) --> record batches with the columns of SCHEMA

No Spark and no server in it: files in, columns out.  An entry that did nothing is told apart by its `outcome`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pyarrow as pa

from wakeq.pipeline.journal_columns import (
    OF_QUEUES,
    Bools,
    Entries,
    Ints,
    Items,
    Rows,
    entries_of,
    items_of,
    windows,
)
from wakeq.pipeline.journal_numbers import Numbered, Numbering
from wakeq.pipeline.journal_plan import Span
from wakeq.pipeline.journal_texts import column, uids_of, words
from wakeq.pipeline.journal_walk import Piece, pieces_of
from wakeq.protocol.commands import Kind, Reason, Result
from wakeq.protocol.dead_letters import REASON
from wakeq.protocol.outcomes import WHOLE
from wakeq.protocol.record_layout import FLAG_ID, FLAG_SESSION, ITEM

EVENTS: dict[int, str] = {
    Kind.PUBLISH: "published", Kind.DELIVERED: "delivered", Kind.EXTENDED: "extended", Kind.RELEASED: "released",
    Kind.ACK: "acked", Kind.EXPIRED: "expired", Kind.DEAD: "dead", Kind.CREATE: "created", Kind.UPDATE: "updated",
    Kind.DELETE: "deleted", Kind.PURGE: "purged",
}  # fmt: skip
KINDS = 256
OPEN = 1  # the outcome of an entry that no node is known to have applied yet
DOORS: list[str | None] = [
    "broker",
    "worker",
    "websocket",
    "taskflux",
    "monique",
]  # by number, as actors/door.py has them
SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("queue", pa.string()),
        ("uid", pa.string()),
        ("event", pa.string()),
        ("outcome", pa.string()),
        ("priority", pa.int64()),
        ("delivery", pa.int64()),
        ("worker", pa.int64()),
        ("door", pa.string()),
        ("reason", pa.string()),
        ("size", pa.int32()),
        ("until", pa.timestamp("us", tz="UTC")),
        ("index", pa.int64()),
        ("place", pa.int32()),
    ]
)
BODY = pa.field("body", pa.binary())

_EVENT_WORDS: list[str | None] = [EVENTS.get(kind) for kind in range(KINDS)]
_REASON_WORDS: list[str | None] = [None] + [reason.name.lower() for reason in Reason if reason]
_CODES = {int(result): result.name.lower() for result in Result} | {OPEN: "open"}
_LOWEST = min(_CODES)
_OUTCOME_WORDS: list[str | None] = [_CODES.get(code, "refused") for code in range(_LOWEST, OPEN + 1)]
_WITH_UNTIL = (Kind.PUBLISH, Kind.DELIVERED, Kind.EXTENDED, Kind.RELEASED)
_WITH_DELIVERY = (Kind.DELIVERED, Kind.RELEASED, Kind.ACK, Kind.DEAD)
_REASON_CODES = {reason.name.lower(): int(reason) for reason in Reason if reason}
_US_A_MS = 1000
LENGTH_FIELD = np.dtype([("size", ">u2")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which events, and whether with their bodies; moments in ms, `until_ms` is not included."""

    since_ms: int | None = None
    until_ms: int | None = None
    queue: str | None = None
    body: bool = False

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA.append(BODY) if self.body else SCHEMA


ALL = Wanted()


def events_of(span: Span, wanted: Wanted = ALL) -> Iterator[pa.RecordBatch]:
    """Yield what happened in a span."""
    numbering = Numbering(span.counters, complete=span.complete)
    reached = 0
    for stretch in span.stretches:
        for piece in pieces_of(replace(stretch, first_index=max(stretch.first_index, reached + 1))):
            reached = piece.first_index + len(piece.starts) - 1
            batch = _events_in(piece, span, numbering, wanted)
            if batch.num_rows:
                yield batch


@dataclass(slots=True)
class Codes:
    """What became of entries and items: 0 done, below 0 refused, OPEN not known."""

    entry: Ints
    item: Ints
    found: Ints  # numbers of messages that were named by a foreign uid, 0 where there is none


def _events_in(piece: Piece, span: Span, numbering: Numbering, wanted: Wanted) -> pa.RecordBatch:
    entries = entries_of(piece)
    items = items_of(entries)
    codes = _codes_of(entries, items, span)
    added = np.concatenate([[0], np.cumsum(codes.item >= 0)])
    bounds = np.append(items.first, len(items.entry))
    accepted = added[bounds[1:]] - added[bounds[:-1]]
    numbered = numbering.number(entries, accepted, codes.entry < 0)
    ordinal = added[:-1] - added[items.first][items.entry]  # among those of its entry that were not refused
    return _batch(entries, items, codes, numbered, ordinal, _chosen(entries, items, wanted), wanted)


def _codes_of(entries: Entries, items: Items, span: Span) -> Codes:
    entry = np.where(entries.index > span.through, OPEN, 0)
    item = np.zeros(len(items.entry), dtype=np.int64)
    found = np.zeros(len(items.entry), dtype=np.int64)
    low, high = np.searchsorted(span.notes[:, 0], [entries.index[0], entries.index[-1] + 1])
    notes = span.notes[low:high]
    if len(notes):
        whole = notes[notes[:, 1] == WHOLE]
        entry[np.isin(entries.index, whole[:, 0])] = int(Result.UNKNOWN)
        for index, _, code in whole.tolist():
            entry[np.searchsorted(entries.index, index) : np.searchsorted(entries.index, index, side="right")] = code
        single = notes[notes[:, 1] != WHOLE]
        own = np.searchsorted(entries.index, single[:, 0])
        rows = items.first[own] + single[:, 1]
        refused = single[:, 2] < 0
        item[rows[refused]] = single[refused, 2]
        found[rows[~refused]] = single[~refused, 2]
        _both_rows(entries, items, item)
    of_entry = entry[items.entry]
    return Codes(entry, np.where(of_entry != 0, of_entry, item), found)


def _both_rows(entries: Entries, items: Items, item: Ints) -> None:
    """An acknowledgement that is the delivery too has two rows for each message: what is noted is of both."""
    extra = np.flatnonzero(items.is_extra)
    item[extra + entries.counts[items.entry[extra]]] = item[extra]


def _chosen(entries: Entries, items: Items, wanted: Wanted) -> Bools:
    """Return which rows are wanted."""
    has_event = np.array([word is not None for word in _EVENT_WORDS])
    chosen = has_event[entries.kind]
    at = entries.heads["at"].astype(np.int64)
    if wanted.since_ms is not None:
        chosen &= at >= wanted.since_ms
    if wanted.until_ms is not None:
        chosen &= at < wanted.until_ms
    if wanted.queue is not None:
        code = entries.names.index(wanted.queue) if wanted.queue in entries.names else -1
        chosen &= entries.name == code
    return chosen[items.entry]


def _batch(
    entries: Entries, items: Items, codes: Codes, numbered: Numbered, ordinal: Ints, chosen: Bools, wanted: Wanted
) -> pa.RecordBatch:
    keep = slice(None) if chosen.all() else np.flatnonzero(chosen)
    entry, rows, code = items.entry[keep], items.rows[keep], codes.item[keep]
    heads, kind = entries.heads[entry], entries.kind[entry]
    is_extra = items.is_extra[keep]
    kind = np.where(is_extra, int(Kind.DELIVERED), kind)
    published, of_queue = kind == Kind.PUBLISH, np.isin(kind, OF_QUEUES)
    found = codes.found[keep]
    number = np.where(published, numbered.first_number[entry] + ordinal[keep], rows["number"])
    number = np.where(found > 0, found, number)
    queue_id = np.where(published, numbered.queue_id[entry], heads["queue_id"].astype(np.int64))
    has_uid = ~of_queue & (queue_id > 0) & (number > 0) & ~(published & (code < 0))
    at = heads["at"].astype(np.int64)
    until, has_until = _until_of(kind, rows, at)
    has_until &= ~is_extra  # it is over at once
    sequence = rows["fourth"].astype(np.int64)
    columns = [
        column(at * _US_A_MS, SCHEMA.field("at").type),
        words(list(entries.names), entries.name[entry].astype(np.int32)),
        uids_of(queue_id, number, has_uid),
        words(_EVENT_WORDS, kind.astype(np.int32)),
        words(_OUTCOME_WORDS, (code - _LOWEST).astype(np.int32)),
        column(rows["third"].astype(np.int64), pa.int64(), published),
        column(sequence, pa.int64(), _has_delivery(kind, sequence)),
        column(heads["worker"].astype(np.int64), pa.int64(), heads["worker"] > 0),
        words(DOORS, np.minimum(heads["door"], len(DOORS) - 1).astype(np.int32)),
        words(_REASON_WORDS, _reasons_of(entries, entry, kind, rows)),
        column(rows["size"].astype(np.int32), pa.int32(), published),
        column(until * _US_A_MS, SCHEMA.field("until").type, has_until),
        column(entries.index[entry], pa.int64()),
        column((np.arange(len(items.entry))[keep] - _rows_before(entries, items)[entry]).astype(np.int32), pa.int32()),
    ]
    if wanted.body:
        columns.append(_bodies_of(entries, items, keep, published))
    return pa.RecordBatch.from_arrays(columns, schema=wanted.schema)


def _rows_before(entries: Entries, items: Items) -> Ints:
    """Return for each entry the first row of its record; a follow-up is in the record of its acknowledgement."""
    return items.first[np.searchsorted(entries.index, entries.index)]


def _until_of(kind: Ints, rows: Rows, at: Ints) -> tuple[Ints, Bools]:
    """Return the moment until which a message cannot be had, and where there is one."""
    moment = rows["moment"].astype(np.int64)
    is_known = np.isin(kind, _WITH_UNTIL) & (moment > 0)
    return np.where(kind == Kind.PUBLISH, at + moment, moment), is_known


def _has_delivery(kind: Ints, sequence: Ints) -> Bools:
    return np.isin(kind, _WITH_DELIVERY) & (sequence > 0)


def _reasons_of(entries: Entries, entry: Ints, kind: Ints, rows: Rows) -> Ints:
    """Return why deliveries ended; of a dead letter the letter says it."""
    reasons = np.where(kind == Kind.RELEASED, rows["reason"], 0).astype(np.int64)
    for row in np.flatnonzero(kind == Kind.DEAD).tolist():
        reasons[row] = _reason_in_letter(entries, int(entry[row]) + 1)
    return reasons


def _reason_in_letter(entries: Entries, letter: int) -> int:
    if letter >= len(entries.kind) or not entries.is_follow_up[letter]:
        return 0
    at = int(entries.items_at[letter])
    _, headers_size, size = ITEM.unpack_from(entries.data, at)[:3]
    start = int(entries.items_end[letter]) + size
    headers = msgspec.msgpack.decode(entries.data[start : start + headers_size]) if headers_size else {}
    return _REASON_CODES.get(headers.get(REASON, ""), 0)


def _bodies_of(entries: Entries, items: Items, keep: Ints | slice, published: Bools) -> pa.Array:
    """Return the bodies of published messages."""
    if not len(items.entry):
        return pa.array([], pa.binary())
    sizes = items.rows["size"].astype(np.int64)
    used = sizes + items.rows["headers_size"] + items.rows["alias_size"]
    before = np.cumsum(used) - used
    starts = _texts_end(entries)[items.entry] + before - before[np.minimum(items.first, len(before) - 1)][items.entry]
    data = memoryview(entries.data)
    rows = zip(published.tolist(), starts[keep].tolist(), sizes[keep].tolist(), strict=True)
    return pa.array([data[start : start + size] if is_one else None for is_one, start, size in rows], pa.binary())


def _texts_end(entries: Entries) -> Ints:
    """Return where the bodies of a publish begin, behind its id and its session."""
    end = entries.items_end.copy()
    flags = entries.heads["flags"]
    lengths = windows(entries.data, LENGTH_FIELD)
    for flag in (FLAG_ID, FLAG_SESSION):
        chosen = np.flatnonzero((flags & flag > 0) & (entries.kind == Kind.PUBLISH))
        end[chosen] += 2 + lengths[end[chosen]]["size"].astype(np.int64)
    return end
