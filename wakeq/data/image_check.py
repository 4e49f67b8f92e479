"""ImageCheck: checks the state that was loaded from an image before any node serves it.

    state store, header of the image --> nothing, or DamagedFile that names a value no broker can have written

Checksums reveal what a disk did.  They reveal nothing about an image that somebody changed or that a faulty program
wrote, and a number out of range would end in a crash much later.  So every number is checked against its range, every
text against its encoding, and the tables against each other.  It changes nothing, and holds one queue at a time.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from wakeq.actors.queue.state import QueueMeta
from wakeq.protocol.catalog import SECONDS_MAX, check
from wakeq.protocol.errors import DamagedFile, StorageError, WakeqError
from wakeq.protocol.log.entries import PAUSE_MS_MAX
from wakeq.protocol.log.layout import BadRecord
from wakeq.protocol.log.rows import DeliveryRecord, Row, decode_row
from wakeq.protocol.names import check_name
from wakeq.protocol.queue.ledger.chunks import CHUNK, CHUNK_SHIFT, Chunk
from wakeq.protocol.queue.ledger.ledger import Totals
from wakeq.protocol.queue.ledger.publishers import Once, Session
from wakeq.protocol.queue.ledger.staging import (
    JOB,
    READERS_MAX,
    RUNS_MAX,
    SETTLED_RANGES_MAX,
    SOURCE,
    STASH,
    UNENDING_MS,
    WRITER,
    Epoch,
    Put,
    Source,
    Writer,
    staged_of,
)
from wakeq.protocol.raft.membership import Config
from wakeq.protocol.uid import NUMBER_MAX, QUEUE_ID_MAX, UidMaker
from wakeq.protocol.wire.worker.commands import (
    ADDRESS_CHARS_MAX,
    BLOCK_ROWS_MAX,
    SLICES_MAX,
    STASH_PARTS_MAX,
    UID_CHARS_MAX,
)
from wakeq.storage.state.checkpoint import SKIPPED_BIT, StoredQueue, key_of, load_members, load_queues, load_skipped
from wakeq.storage.state.snapshot import NUMBER_END, SnapshotHeader
from wakeq.storage.state.store import DEDUP, INDEX, MESSAGES, QUEUES, Store, View

# The end of any future moment, in years beyond reach.
MOMENT_MS_END = 1 << 47
NODE_MAX = 65_535
SEQUENCE_END = 1 << 62
# The end of a count of deliveries, which is stored with 32 bits and still grows.
COUNT_END = 1 << 31
INT64_END = 1 << 63
UINT64_END = 1 << 64
TIMEOUT_MS_MAX = SECONDS_MAX * 1000
EXPECTED = "a value that a broker can have written"
HINT = "its checksums are right, so it was changed or a faulty program wrote it: use another one"


def check_state(store: Store, header: SnapshotHeader, path: Path, *, with_messages: bool) -> None:
    """Refuse an implausible state that was loaded from the image at `path`; its messages only where time allows."""
    try:
        with store.read() as view:
            _check_cluster(view, header)
            messages = _check_queues(view, header, with_messages=with_messages)
            if with_messages and messages != view.count(MESSAGES):
                raise BadRecord(f"{view.count(MESSAGES)} messages, and {messages} in the queues")
    except DamagedFile as error:
        raise DamagedFile(path, 0, found=error.found, expected=EXPECTED, hint=HINT) from None
    except (StorageError, Implausible) as error:
        raise DamagedFile(path, 0, found=str(error), expected=EXPECTED, hint=HINT) from None


class Implausible(WakeqError):
    """A number or a text that no broker writes; it never leaves this file."""

    code = "BAD_RECORD"


def _within(what: str, number: int, low: int, end: int) -> None:
    """Refuse a number outside `low <= number < end`."""
    if not low <= number < end:
        raise Implausible(f"{what} is {number}")


# The cluster ------------------------------------------------------------------------------------------------------


class _SkippedEntry(msgspec.Struct):
    """The record of an entry that all nodes skip."""

    queue: str
    reason: str


def _check_cluster(view: View, header: SnapshotHeader) -> None:
    last = -1
    for index, config in load_members(view):
        _within("the entry of a change of members", index, last + 1, header.last_index + 1)
        _check_config(config)
        last = index
    for index, record in load_skipped(view).items():
        _within("a skipped entry", index, 0, min(SKIPPED_BIT, header.last_index + 1))
        _decoded(record, _SkippedEntry, f"the record of skipped entry {index}")


def _check_config(config: Config) -> None:
    numbers = [member.node_id for member in config.members]
    if numbers != sorted(set(numbers)) or not any(member.voter for member in config.members):
        raise Implausible(f"the members of the cluster are {numbers}, or none of them votes")
    _within("the level of the cluster", config.level, 1, NUMBER_END)
    for member in config.members:
        _within("the number of a node", member.node_id, 0, NODE_MAX + 1)
        _within("the disk of a node", member.disk_id, 0, UINT64_END)
        if len(member.address) > ADDRESS_CHARS_MAX or not (member.address.isascii() and member.address.isprintable()):
            raise Implausible(f"the address of node {member.node_id} is {member.address[:ADDRESS_CHARS_MAX]!a}")


def _decoded(value: bytes, kind: Any, what: str) -> Any:
    try:
        return msgspec.msgpack.decode(value, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Implausible(f"{what} cannot be read: {error}") from None


# Queues -----------------------------------------------------------------------------------------------------------


def _check_queues(view: View, header: SnapshotHeader, *, with_messages: bool) -> int:
    """Check every queue; return the number of their messages."""
    names: set[str] = set()
    ids: set[int] = set()
    count = 0
    keys = (int.from_bytes(key, "big") for key, _ in view.scan(QUEUES))
    stored_ids = [number for number in keys if not number & SKIPPED_BIT]
    for queue_id, stored in zip(stored_ids, load_queues(view), strict=True):
        meta = QueueMeta.read(stored.meta)
        try:
            check(check_name(meta.name), meta.policies)
        except WakeqError as error:
            raise Implausible(str(error)) from None
        if meta.name in names or meta.id != queue_id:
            raise Implausible(f"queue {meta.name!r} exists twice, or has the numbers {meta.id} and {queue_id}")
        names.add(meta.name)
        ids.add(meta.id)
        try:
            count += _check_queue(view, header, meta, stored, with_messages=with_messages)
        except Implausible as error:
            raise Implausible(f"in queue {meta.name!r}: {error}") from None
    for table in (INDEX, DEDUP):
        orphans = {key[:8] for key, _ in view.scan(table)} - {number.to_bytes(8, "big") for number in ids}
        if orphans:
            raise Implausible(f"a record belongs to queue {min(orphans).hex()}, which does not exist")
    return count


def _check_queue(
    view: View, header: SnapshotHeader, meta: QueueMeta, stored: StoredQueue, *, with_messages: bool
) -> int:
    _check_meta(meta, header)
    living = 0
    for chunk_id, chunk in stored.chunks:
        _check_chunk(meta, chunk_id, chunk)
        living += chunk.living
    for number, alias in stored.aliases.items():
        _within("the number of an imported message", number, 1, meta.next_number)
        if not 0 < len(alias) <= UID_CHARS_MAX or not alias.isprintable():
            raise Implausible(f"the uid of an imported message is {alias[:UID_CHARS_MAX]!a}")
    for side in stored.sides.values():
        _check_side(side, header)
    for name, once in stored.ids:
        _check_once(name, once)
    for name, session in stored.sessions:
        _check_session(name, session)
    chunks = dict(stored.chunks)
    for (kind, name), value in stored.staged:
        _check_staged(kind, name, staged_of(kind, name, value), chunks, stored.sides)
    if with_messages:
        _check_messages(view, meta, stored)
    return living


def _check_meta(meta: QueueMeta, header: SnapshotHeader) -> None:
    _within("its number", meta.id, 1, min(QUEUE_ID_MAX, header.last_index) + 1)
    _within("the number of its next message", meta.next_number, 1, NUMBER_MAX + 1)
    _within("the moment of its creation", meta.created_ms, 0, MOMENT_MS_END)
    if meta.paused_until_ms != PAUSE_MS_MAX:
        _within("the end of its pause", meta.paused_until_ms, 0, MOMENT_MS_END)
    for name in Totals.__struct_fields__:
        _within(f"its total of {name}", getattr(meta.totals, name), 0, INT64_END)


def _check_chunk(meta: QueueMeta, chunk_id: int, chunk: Chunk) -> None:
    base, rows = chunk_id << CHUNK_SHIFT, len(chunk.sizes)
    # A chunk ends where it is full or where the next message will be.
    if rows != min(CHUNK, meta.next_number - base):
        raise Implausible(
            f"the index has {rows} messages from number {base}, but the next message has number {meta.next_number}"
        )
    if base == 0 and rows and chunk.sizes[0]:
        raise Implausible("a message has the number 0")
    for what, column, low, end in (
        ("the delay of a message", chunk.dues, -MOMENT_MS_END, MOMENT_MS_END),
        ("the expiry of a message", chunk.expiries, 0, MOMENT_MS_END),
        ("the timeout of a message", chunk.timeouts, 0, TIMEOUT_MS_MAX + 1),
    ):
        if column:
            _within(what, min(column), low, end)
            _within(what, max(column), low, end)


def _check_side(side: DeliveryRecord, header: SnapshotHeader) -> None:
    _within("the deliveries of a message", side.deliveries, 0, COUNT_END)
    if side.failures > side.deliveries:
        raise Implausible(f"a message failed {side.failures} times in {side.deliveries} deliveries")
    _within("the term of a delivery", side.term, 0, header.last_term + 1)
    _within("the number of a delivery", side.sequence, 0, SEQUENCE_END)
    _within("the moment at which a message is due again", side.due_ms, 0, MOMENT_MS_END)
    if side.until_ms != UNENDING_MS:
        _within("the end of a lease", side.until_ms, 0, MOMENT_MS_END)


def _check_span(what: str, first: int, count: int) -> None:
    _within(f"the first message of {what}", first, 0, NUMBER_MAX + 1)
    _within(f"the number of messages of {what}", count, 0, min(BLOCK_ROWS_MAX, NUMBER_MAX - first) + 1)


def _check_once(name: str, once: Once) -> None:
    what = f"the publish with the id {name!a}"
    queue_id, first, count, at_ms = once
    _within(f"the queue of {what}", queue_id, 0, QUEUE_ID_MAX + 1)
    _check_span(what, first, count)
    _within(f"the moment of {what}", at_ms, 0, MOMENT_MS_END)


def _check_session(name: str, session: Session) -> None:
    what = f"the session {name!a}"
    _within(f"the last number of {what}", session.highest, 0, INT64_END)
    _within(f"the moment of {what}", session.used_ms, 0, MOMENT_MS_END)
    for number, (queue_id, first, count) in session.outcomes.items():
        _within(f"a number of {what}", number, 0, session.highest + 1)
        _within(f"a queue of {what}", queue_id, 0, QUEUE_ID_MAX + 1)
        _check_span(what, first, count)


# Staged -----------------------------------------------------------------------------------------------------------


def _check_staged(kind: str, name: str, one: Any, chunks: dict[int, Chunk], sides: dict[int, DeliveryRecord]) -> None:
    what = f"{ {SOURCE: 'the source', STASH: 'the stash', WRITER: 'the writer', JOB: 'the job'}[kind] } {name!a}"
    match one:
        case Source():
            _within(f"the last epoch of {what}", one.highest, 0, INT64_END)
            _within(f"the moment of {what}", one.used_ms, 0, MOMENT_MS_END)
            _within(f"the ranges of settled epochs of {what}", len(one.settled), 0, SETTLED_RANGES_MAX + 1)
            end = 0
            for first, last in one.settled:
                _within(f"the first of some settled epochs of {what}", first, end + 1, one.highest + 1)
                _within(f"the last of some settled epochs of {what}", last, first, one.highest + 1)
                end = last
            _within(f"the readers of {what}", len(one.readers), 0, READERS_MAX + 1)
            for reading in one.readers.values():
                _within(f"the epoch of {what} that is read", reading.epoch, 0, one.highest + 1)
                _within(f"the batch of {what}", reading.batch, 0, INT64_END)
                _within(f"the runs of {what}", len(reading.runs), 0, RUNS_MAX + 1)
            for epoch in one.epochs:
                _check_epoch(what, one, epoch, sides)
        case Put():
            _within(f"the end of {what}", one.until_ms, 0, MOMENT_MS_END)
            _within(f"the epoch of {what}", one.epoch, 0, INT64_END)
            _check_parts(what, one, chunks)
        case Writer():
            _within(f"the last epoch of {what}", one.highest, 0, INT64_END)
            _within(f"the moment of {what}", one.used_ms, 0, MOMENT_MS_END)


def _check_epoch(what: str, source: Source, epoch: Epoch, sides: dict[int, DeliveryRecord]) -> None:
    _within(f"an epoch of {what}", epoch.epoch, 1, source.highest + 1)
    _within(f"the slices of {what}", epoch.slices, 1, SLICES_MAX + 1)
    _within(f"the end of {what}", epoch.until_ms, 0, MOMENT_MS_END)
    _within(f"the term of {what}", epoch.term, 0, NUMBER_END)
    _within(f"the first delivery of {what}", epoch.first_sequence, 0, SEQUENCE_END)
    _within(f"the messages of {what}", len(epoch.numbers), 0, BLOCK_ROWS_MAX + 1)
    for number, token in epoch.rows():
        side = sides.get(number)
        # The message was released and may be anywhere.
        if number < 0 or side is None:
            _within(f"a message of {what}", number, -1, NUMBER_MAX + 1)
        elif side.until_ms == UNENDING_MS and token != (side.term, side.sequence):
            raise Implausible(f"message {number} of {what} belongs to another delivery")


def _check_parts(what: str, put: Put, chunks: dict[int, Chunk]) -> None:
    """Every stashed message exists and is hidden."""
    for part, (first, count) in put.parts.items():
        _within(f"a part of {what}", part, 0, STASH_PARTS_MAX)
        _check_span(what, first, count)
        for number in range(first, first + count):
            chunk, offset = chunks.get(number >> CHUNK_SHIFT), number & ((1 << CHUNK_SHIFT) - 1)
            is_there = chunk is not None and offset < len(chunk.sizes) and chunk.sizes[offset] > 0
            if not is_there or chunk is None or chunk.dues is None or chunk.dues[offset] >= 0:
                raise Implausible(f"message {number} of {what} does not exist, or is not hidden")


# Messages ---------------------------------------------------------------------------------------------------------


def _check_messages(view: View, meta: QueueMeta, stored: StoredQueue) -> None:
    """Every message of the index is in the table, with the same values."""
    uid_of = UidMaker(meta.id).uid
    for number, row, columns in _rows(stored):
        key = key_of(meta.name, stored.aliases.get(number) or uid_of(number))
        value = view.get(MESSAGES, key)
        if value is None:
            raise Implausible(f"message {key!r} is in the index but not in the table")
        _check_row(f"message {key!r}", decode_row(value), row, columns, has_side=number in stored.sides)


def _rows(stored: StoredQueue) -> Iterator[tuple[int, int, tuple[int, int, int, int]]]:
    """Yield the number, size, and (priority, due moment, expiry, timeout) of each living message."""
    for chunk_id, chunk in stored.chunks:
        columns = (chunk.priorities, chunk.dues, chunk.expiries, chunk.timeouts)
        for offset, size in enumerate(chunk.sizes):
            if size:
                priority, due_ms, expires_ms, timeout_ms = (0 if one is None else one[offset] for one in columns)
                due_ms = due_ms if due_ms >= 0 else -1 - due_ms
                yield (chunk_id << CHUNK_SHIFT) + offset, size - 1, (priority, due_ms, expires_ms, timeout_ms)


def _check_row(what: str, row: Row, size: int, columns: tuple[int, int, int, int], *, has_side: bool) -> None:
    priority, due_ms, expires_ms, timeout_ms = columns
    if len(row.body) + len(row.headers) != size or (row.side is not None) != has_side:
        raise Implausible(f"{what} differs from its index: {len(row.body)} and {len(row.headers)} bytes, not {size}")
    if (row.priority, row.expires_ms, row.timeout_ms) != (priority, expires_ms, timeout_ms):
        raise Implausible(f"{what} has another priority, expiry or timeout than its index")
    if row.side is None and row.due_ms != due_ms:
        raise Implausible(f"{what} has another delay than its index")
    _within(f"the moment of {what}", row.published_ms, 0, MOMENT_MS_END)
    if row.headers:
        _decoded(row.headers, dict[str, str], f"the headers of {what}")
