"""Columns of the log: the fields of entries and of their items, gathered without decoding records one by one.

    piece --> Entries: a row for each record, and for each follow-up in it --> Items: a row for each event

Fields stay as they are in the file; docs/files.md says what they mean for each kind of entry. An entry that does to
many messages what others do to one is read as those: a claim, for example, as deliveries.
"""

from dataclasses import dataclass
from struct import Struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wakeq.pipeline.journal.walk import Piece
from wakeq.protocol.log.entries import ClaimAction, Kind, UnstashAction
from wakeq.protocol.log.format import RECORD_BYTES
from wakeq.protocol.log.layout import FLAG_DELIVERED, FLAG_REQUEUED, HEAD, ITEM

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.void]

RECORD_FIELDS = np.dtype([("length", ">u4"), ("crc", ">u4"), ("index", ">u8"), ("term", ">u8"), ("place", ">u4")])
HEAD_FIELDS = np.dtype(
    [
        ("version", "u1"), ("kind", "u1"), ("door", "u1"), ("flags", "u1"), ("count", ">u4"), ("at", ">i8"),
        ("queue_id", ">i8"), ("worker", ">u4"), ("name_size", "u1"),
    ]
)  # fmt: skip
ITEM_FIELDS = np.dtype(
    [
        ("reason", ">u2"), ("headers_size", ">u2"), ("size", ">u4"), ("number", ">i8"), ("moment", ">i8"),
        ("third", ">i8"), ("fourth", ">i8"), ("fifth", ">i8"), ("alias_size", ">u4"),
    ]
)  # fmt: skip
SIZE_FIELD = np.dtype([("size", ">u4")])
assert HEAD_FIELDS.itemsize == HEAD.size
assert ITEM_FIELDS.itemsize == ITEM.size
_SIZE = Struct(">I").unpack_from
# Kinds of events that have no kind of entry: a move that leaves messages on their queue, an unstash that publishes, and
# the acknowledgement of a message that was never delivered.
REQUEUED = 255
REVEALED = 254
CANCELLED = 253
READ_AS: dict[tuple[int, int], int] = {
    (Kind.CLAIM, ClaimAction.STAGED): Kind.DELIVERED,
    (Kind.CLAIM, ClaimAction.SETTLED): Kind.ACK,
    (Kind.CLAIM, ClaimAction.FINISHED): Kind.ACK,
    (Kind.CLAIM, ClaimAction.LAPSED): Kind.RELEASED,
    (Kind.CLAIM, ClaimAction.RELEASED): Kind.RELEASED,
    (Kind.MOVED, FLAG_REQUEUED): REQUEUED,
    (Kind.UNSTASH, UnstashAction.PUBLISHED): REVEALED,
}
# Entries with new messages, each of which gets a number.
WITH_DRAFTS = (Kind.PUBLISH, Kind.STASH)
# Entries without items: the notes name the messages.
OF_STASHES = (Kind.UNSTASH, REVEALED)
WITH_FOLLOW_UPS = (Kind.ACK, Kind.DEAD, Kind.MOVED)
# Entries whose items may each name a connection, in the field `fifth`.
WITH_WORKERS = (Kind.DELIVERED, Kind.ACK, Kind.DEAD, Kind.MOVED)
# Entries without items: the event is about the queue.
OF_QUEUES = (Kind.CREATE, Kind.UPDATE, Kind.DELETE, Kind.PURGE)


@dataclass(slots=True)
class Entries:
    """One row for each entry, in log order; a follow-up comes after the entry that contains it."""

    data: bytes
    index: Ints
    # Where the payload of each entry begins.
    starts: Ints
    ends: Ints
    heads: Rows
    # The kind as which each entry is read.
    kind: Ints
    counts: Ints
    names: list[str]
    # For each entry, its place in `names`.
    name: Ints
    items_at: Ints
    items_end: Ints
    is_follow_up: Bools


@dataclass(slots=True)
class Items:
    """One row for each event. `rows` has the fields of the items; where an event has no item, they are those of any
    item.
    """

    # For each row, the row of its entry.
    entry: Ints
    # For each row, its place in the entry.
    place: Ints
    rows: Rows
    # For each entry, its first row.
    first: Ints
    # The row is the delivery of a message that its entry delivers and acknowledges at once.
    is_extra: Bools


def windows(data: bytes, fields: np.dtype[np.void]) -> Rows:
    """Return a view in which row n are the fields that begin at byte n."""
    return np.ndarray((max(0, len(data) - fields.itemsize + 1),), fields, data, strides=(1,))


def entries_of(piece: Piece) -> Entries:
    """Gather the heads of all entries of a piece."""
    data, starts = piece.data, piece.starts
    records = windows(data, RECORD_FIELDS)[starts]
    index = piece.first_index + np.arange(len(starts), dtype=np.int64)
    ends = starts + RECORD_BYTES + records["length"].astype(np.int64)
    starts = starts + RECORD_BYTES
    entries = _with_heads(data, index, starts, ends, np.zeros(len(starts), dtype=np.bool_))
    follow_ups = _follow_ups_of(entries)
    if not follow_ups:
        return entries
    places, more_starts, more_ends = (np.array(column, dtype=np.int64) for column in zip(*follow_ups, strict=True))
    order = np.argsort(np.concatenate([np.arange(len(starts)), places]), kind="stable")
    return _with_heads(
        data,
        np.concatenate([index, index[places]])[order],
        np.concatenate([starts, more_starts])[order],
        np.concatenate([ends, more_ends])[order],
        np.concatenate([np.zeros(len(starts), dtype=np.bool_), np.ones(len(places), dtype=np.bool_)])[order],
    )


def _with_heads(data: bytes, index: Ints, starts: Ints, ends: Ints, is_follow_up: Bools) -> Entries:
    heads = windows(data, HEAD_FIELDS)[starts]
    sizes = heads["name_size"].astype(np.int64)
    names, name = _names_of(data, starts + HEAD.size, sizes)
    counts = heads["count"].astype(np.int64)
    items_at = starts + HEAD.size + sizes
    kind = _kinds_of(heads)
    items_end = items_at + counts * ITEM.size
    return Entries(data, index, starts, ends, heads, kind, counts, names, name, items_at, items_end, is_follow_up)


def _kinds_of(heads: Rows) -> Ints:
    kind = heads["kind"].astype(np.int64)
    if (kind >= Kind.CLAIM).any():
        for (written_as, flags), read_as in READ_AS.items():
            kind[(heads["kind"] == written_as) & (heads["flags"] == flags)] = read_as
    return kind


def _names_of(data: bytes, at: Ints, sizes: Ints) -> tuple[list[str], Ints]:
    """Return the different names, and for each entry which one it has."""
    names: list[str] = []
    name = np.zeros(len(at), dtype=np.int64)
    for size in np.unique(sizes):
        chosen = np.flatnonzero(sizes == size)
        if size == 0:
            texts, codes = [""], np.zeros(len(chosen), dtype=np.int64)
        else:
            fields = np.dtype([("name", f"V{size}")])
            raw = windows(data, fields)[at[chosen]]
            if (raw == raw[0]).all():
                texts, codes = [bytes(raw[0]["name"]).decode()], np.zeros(len(chosen), dtype=np.int64)
            else:
                texts, codes = _encoded(raw, int(size))
        name[chosen] = codes + len(names)
        names += texts
    return names, name


def _encoded(raw: Rows, size: int) -> tuple[list[str], Ints]:
    array = pa.Array.from_buffers(pa.binary(size), len(raw), [None, pa.py_buffer(raw.tobytes())]).dictionary_encode()
    texts = [value.decode() for value in array.dictionary.to_pylist()]
    # `to_numpy` would import pandas if it is installed.
    return texts, np.frombuffer(array.indices.buffers()[1], np.int32, len(raw)).astype(np.int64)


def _follow_ups_of(entries: Entries) -> list[tuple[int, int, int]]:
    """Return (entry, start, end) of each publish within an acknowledgement, or within a move."""
    may_have = np.isin(entries.heads["kind"], WITH_FOLLOW_UPS)
    acks = np.flatnonzero(may_have & (entries.ends > entries.items_end + 4))
    data, found = entries.data, []
    for place in acks.tolist():
        position, end = int(entries.items_end[place]), int(entries.ends[place])
        # Skip the foreign uids.
        position += 4 + _SIZE(data, position)[0]
        while position < end:
            start = position + 4
            position = start + _SIZE(data, position)[0]
            found.append((place, start, position))
    return found


def items_of(entries: Entries, named: Ints) -> Items:
    """Gather the items of all entries, one row for each event; `named` counts messages that appear only in notes."""
    per_queue = np.isin(entries.kind, OF_QUEUES)
    at_once = (entries.heads["flags"] & FLAG_DELIVERED > 0) & (entries.kind == Kind.ACK)
    counts = np.where(per_queue, 1, entries.counts) + named
    # An entry that delivers and acknowledges at once has two events for each message.
    rows = np.where(at_once, 2 * counts, counts)
    first = np.cumsum(rows) - rows
    entry = np.repeat(np.arange(len(rows)), rows)
    place = np.arange(len(entry)) - first[entry]
    is_extra = at_once[entry] & (place < counts[entry])
    place = np.where(at_once[entry], place % np.maximum(1, counts[entry]), place)
    has_item = place < entries.counts[entry]
    at = np.where(has_item, entries.items_at[entry] + ITEM.size * place, 0)
    return Items(entry, place, windows(entries.data, ITEM_FIELDS)[at], first, is_extra)
