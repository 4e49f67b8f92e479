"""Checkpoints: the changes of queues become one checkpoint of the state store, and records become queues again.

    changes of queues --> make_checkpoint --> a checkpoint          a view of the store --> load_queues --> queues

Apart from the store that it is given, this file is pure.  It runs in the thread of the store, never on the loop.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, compress
from typing import Any, NamedTuple

import msgspec

from wakeq.protocol.errors import REBUILD, DamagedFile
from wakeq.protocol.log.layout import BadRecord
from wakeq.protocol.log.rows import DeliveryRecord, FreshRows, decode_row, with_deliveries
from wakeq.protocol.queue.bodies import Stretch
from wakeq.protocol.queue.ledger.chunks import CHUNK_SHIFT, Chunk, decode_chunk, encode_chunk
from wakeq.protocol.queue.ledger.ledger import Delta
from wakeq.protocol.queue.ledger.publishers import Once, Session
from wakeq.protocol.queue.ledger.staging import TYPES as STAGED_TYPES
from wakeq.protocol.queue.ledger.staging import Name
from wakeq.protocol.raft.membership import Config
from wakeq.protocol.uid import NUMBER_MAX, QUEUE_ID_MAX, UidMaker, prefix
from wakeq.storage.state.store import (
    CHECKPOINT_TABLES,
    DEDUP,
    GRAVES,
    INDEX,
    MESSAGES,
    QUEUES,
    Checkpoint,
    Pairs,
    Store,
    View,
    with_checksum,
    without_checksum,
)

KEY = struct.Struct(">QQ")
ID = struct.Struct(">Q")
SKIPPED_BIT = 1 << 63  # a QUEUES key with this bit is the index of a skipped entry, not the id of a queue
MEMBERS_KEY = b"\xff" * 8  # in QUEUES: the members of the cluster, by entry; no id is as high
BY_ID, BY_SESSION, BY_ALIAS = b"i", b"s", b"a"
STAGED_KINDS = frozenset(map(str.encode, STAGED_TYPES))


class _Named(msgspec.Struct):
    """The field that every QUEUES record of a queue has."""

    name: str


class QueueDelta(NamedTuple):
    """The changes of one queue in a checkpoint."""

    name: str
    queue_id: int
    fresh: Sequence[Stretch]  # new messages, in the order of their numbers
    moments: Sequence[tuple[int, int]]  # (first number, time of publication) of the new messages
    aliases: Mapping[int, str]  # uids of imported messages among the new ones
    columns: Mapping[int, tuple[int, int]]  # (due, expiry) of new messages that have either
    sides: Mapping[int, DeliveryRecord]  # of new messages
    rewrites: Mapping[str, DeliveryRecord]  # stored messages to be written again, by uid
    gone: Sequence[int]  # stored messages that were removed; the delta names the imported ones
    delta: Delta
    meta: bytes
    next_number: int


class Grave(NamedTuple):
    """A deleted queue; a queue of the same name may exist again under another id."""

    name: str
    queue_id: int


def key_of(name: str, uid: str) -> bytes:
    return name.encode() + b"-" + uid.encode()


def keys_of(name: str, uids: Sequence[str]) -> list[bytes]:
    """Return the keys of messages that were not imported: their uids contain no line end."""
    start = name + "-"
    return (start + f"\n{start}".join(uids)).encode().split(b"\n")


def make_checkpoint(
    store: Store,
    applied: tuple[int, int, int],
    deltas: Sequence[QueueDelta],
    graves: Sequence[Grave],
    skipped: dict[int, bytes],
    members: Sequence[tuple[int, Config]] = (),
) -> Checkpoint:
    """Encode all changes; read the rows that have to be written again."""
    puts = {table: Pairs() for table in CHECKPOINT_TABLES}
    deletes: dict[int, list[bytes]] = {table: [] for table in CHECKPOINT_TABLES}
    for grave in graves:
        deletes[QUEUES].append(ID.pack(grave.queue_id))
        puts[GRAVES].append((ID.pack(grave.queue_id), key_of(grave.name, prefix(grave.queue_id))))
    for queue in deltas:
        delta = queue.delta
        if queue.gone:
            deletes[MESSAGES] += keys_of(queue.name, UidMaker(queue.queue_id).uids(sorted(queue.gone)))
        if delta.aliases_gone:
            deletes[MESSAGES] += [key_of(queue.name, uid) for uid in delta.aliases_gone]
        if queue.queue_id:
            if queue.fresh:
                _put_fresh(queue, puts[MESSAGES])
            if queue.rewrites:
                _put_rewrites(store, queue, puts[MESSAGES])
            _put_index(queue, puts[INDEX], deletes[INDEX])
            if delta.ids or delta.sessions or delta.staged or delta.aliases_gone or queue.aliases:
                _put_publishers(queue, puts[DEDUP], deletes[DEDUP])
            puts[QUEUES].append((ID.pack(queue.queue_id), with_checksum(queue.meta)))
    for index, reason in skipped.items():
        puts[QUEUES].append((ID.pack(index | SKIPPED_BIT), with_checksum(reason)))
    if members:
        puts[QUEUES].append((MEMBERS_KEY, with_checksum(msgspec.msgpack.encode(members))))
    return Checkpoint(*applied, list(puts.items()), list(deletes.items()))


def _put_fresh(queue: QueueDelta, puts: Pairs) -> None:
    maker, keys = UidMaker(queue.queue_id), list[bytes]()
    for first, drafts, kept in queue.fresh:
        run = maker.keys_of_run(queue.name + "-", first, first + len(drafts))
        keys += run if kept is None else compress(run, kept)
    if queue.aliases:
        numbers = chain.from_iterable([one.numbers(0, len(one.drafts)) for one in queue.fresh])
        known = ((queue.aliases.get(number), key) for number, key in zip(numbers, keys, strict=True))
        keys = [key if alias is None else key_of(queue.name, alias) for alias, key in known]
    puts.add(keys, FreshRows(queue.fresh, queue.moments, queue.columns, queue.sides))


def _put_rewrites(store: Store, queue: QueueDelta, puts: Pairs) -> None:
    keys = [key_of(queue.name, uid) for uid in queue.rewrites]
    for key, value, side in zip(keys, store.get_many(keys), queue.rewrites.values(), strict=True):
        try:
            puts.append((key, with_deliveries(_found(value, key), side)))
        except BadRecord as error:
            found = f"{error}: key {key!r}"
            raise DamagedFile("state/data.mdb", 0, found=found, expected="whole records", hint=REBUILD) from error


def _put_index(queue: QueueDelta, puts: Pairs, deletes: list[bytes]) -> None:
    for chunk_id, chunk, sides in queue.delta.chunks:
        key = KEY.pack(queue.queue_id, chunk_id)
        if chunk is None:
            deletes.append(key)
        else:
            puts.append((key, encode_chunk(chunk, sides)))


def _put_publishers(queue: QueueDelta, puts: Pairs, deletes: list[bytes]) -> None:
    start = ID.pack(queue.queue_id)
    encode = msgspec.msgpack.encode
    rows: list[tuple[bytes, Any]] = [(start + BY_ID + name.encode(), once) for name, once in queue.delta.ids]
    rows += [(start + BY_SESSION + name.encode(), session) for name, session in queue.delta.sessions]
    rows += [(start + BY_ALIAS + alias.encode(), number) for number, alias in queue.aliases.items()]
    rows += [(start + BY_ALIAS + alias.encode(), None) for alias in queue.delta.aliases_gone]
    for key, value in rows:
        if value is None:
            deletes.append(key)
        else:
            puts.append((key, with_checksum(encode(value))))
    for (kind, name), staged in queue.delta.staged:
        key = start + (kind + name).encode()
        if staged is None:
            deletes.append(key)
        else:
            puts.append((key, with_checksum(staged)))


def _found(value: bytes | None, key: bytes) -> bytes:
    if value is None:
        raise BadRecord(f"message {key!r} in the index, and not in the table")
    return value


# Loading ----------------------------------------------------------------------------------------------------------


class StoredQueue(NamedTuple):
    """The content of the store for one queue, without the bodies."""

    meta: bytes
    chunks: list[tuple[int, Chunk]]
    sides: dict[int, DeliveryRecord]
    aliases: dict[int, str]
    ids: list[tuple[str, Once]]
    sessions: list[tuple[str, Session]]
    staged: list[tuple[Name, bytes]] = []


Records = Iterator[tuple[bytes, bytes]]


class _InOrder:
    """The records of a table, read once for all queues, which must be requested in the order of their ids."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._next = next(records, None)  # the first record that was not yielded
        self._requested = b""  # the id of the last queue

    def of(self, start: bytes) -> Records:
        """Yield the records of a queue, by its id."""
        assert start > self._requested, "queues must be requested in the order of their ids"
        self._requested = start
        while (record := self._next) is not None and (queue_id := record[0][: ID.size]) <= start:
            self._next = next(self._records, None)
            # Records of deleted queues are left out.
            if queue_id == start:
                yield record


def load_queues(view: View) -> Iterator[StoredQueue]:
    """Yield every queue of a view that was not deleted."""
    index, publishers = _InOrder(view.scan(INDEX)), _InOrder(view.scan(DEDUP))
    for start, name, meta in _living(view):
        yield _load_queue(view, start, name, meta, index=index.of(start), publishers=publishers.of(start))


def load_queue(view: View, name: str) -> StoredQueue | None:
    """Return the queue of that name, if there is one."""
    for start, found, meta in _living(view):
        if found == name:
            index, publishers = view.scan(INDEX, start), view.scan(DEDUP, start)
            return _load_queue(view, start, name, meta, index=index, publishers=publishers)
    return None


def _living(view: View) -> Iterator[tuple[bytes, str, bytes]]:
    """Yield id, name and meta of each queue."""
    for key, record in view.scan(QUEUES):
        queue_id = _number_in(key)
        if not queue_id & SKIPPED_BIT:
            if queue_id > QUEUE_ID_MAX:
                raise BadRecord(f"a queue with the number {queue_id}, at most {QUEUE_ID_MAX} is possible")
            meta = _whole(record, f"QUEUES record {queue_id}")
            yield key, decoded(meta, _Named, f"QUEUES record {queue_id}").name, meta


def load_skipped(view: View) -> dict[int, bytes]:
    """Return the skipped entries, by index."""
    rows = ((_number_in(key), value) for key, value in view.scan(QUEUES) if key != MEMBERS_KEY)
    return {i & ~SKIPPED_BIT: _whole(value, f"QUEUES record {i}") for i, value in rows if i & SKIPPED_BIT}


def load_members(view: View) -> list[tuple[int, Config]]:
    """Return the members of the cluster by entry; nothing if the log never named them."""
    record = view.get(QUEUES, MEMBERS_KEY)
    if record is None:
        return []
    where = "the members of the cluster"
    members: list[tuple[int, Config]] = decoded(_whole(record, where), list[tuple[int, Config]], where)
    return members


def decoded(value: bytes, kind: Any, where: str) -> Any:
    """Decode MessagePack of a given type; raise BadRecord for any other bytes."""
    try:
        return msgspec.msgpack.decode(value, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRecord(f"{where} cannot be read: {error}") from None


def _number_in(key: bytes) -> int:
    if len(key) != ID.size:
        raise BadRecord(f"a QUEUES record under {key!r}, which is not a number of {ID.size} bytes")
    number: int = ID.unpack(key)[0]
    return number


def _whole(record: bytes, where: str) -> bytes:
    value = without_checksum(record)
    if value is None:
        raise BadRecord(f"{where} with a wrong checksum")
    return value


def _load_queue(
    view: View, start: bytes, name: str, meta: bytes, *, index: Records, publishers: Records
) -> StoredQueue:
    """Read the columns of one queue, and only those of its messages that were delivered."""
    uid_of = UidMaker(ID.unpack(start)[0]).uid
    ids, sessions, aliases, staged = _load_publishers(publishers)
    chunks = []
    sides: dict[int, DeliveryRecord] = {}
    for key, value in index:
        if len(key) != KEY.size:
            raise BadRecord(f"an index record under {key!r}, which is not a pair of numbers")
        chunk_id = KEY.unpack(key)[1]
        if chunk_id > NUMBER_MAX >> CHUNK_SHIFT:
            raise BadRecord(f"an index record of messages behind {NUMBER_MAX}, which is the last number")
        chunk, offsets = decode_chunk(value)
        chunks.append((chunk_id, chunk))
        for offset in offsets:
            number = (chunk_id << CHUNK_SHIFT) + offset
            message = key_of(name, aliases.get(number) or uid_of(number))
            row = decode_row(_found(view.get(MESSAGES, message), message))
            if row.side is None:
                raise BadRecord(
                    f"message {message!r} was delivered according to its index, but not according to its record"
                )
            sides[number] = row.side
    return StoredQueue(meta, chunks, sides, aliases, ids, sessions, staged)


def _load_publishers(
    records: Records,
) -> tuple[list[tuple[str, Once]], list[tuple[str, Session]], dict[int, str], list[tuple[Name, bytes]]]:
    staged: list[tuple[Name, bytes]] = []
    ids: list[tuple[str, Once]] = []
    sessions: list[tuple[str, Session]] = []
    aliases: dict[int, str] = {}
    for key, record in records:
        where = f"the record of publisher {key[ID.size :]!r}"
        kind, value = key[ID.size : ID.size + 1], without_checksum(record)
        if value is None:
            raise BadRecord(f"{where} with a wrong checksum")
        try:
            name = key[ID.size + 1 :].decode()
        except UnicodeDecodeError:
            raise BadRecord(f"{where} is under a name that is no text") from None
        if kind == BY_ID:
            ids.append((name, decoded(value, Once, where)))
        elif kind == BY_SESSION:
            sessions.append((name, decoded(value, Session, where)))
        elif kind == BY_ALIAS:
            aliases[decoded(value, int, where)] = name
        elif kind in STAGED_KINDS:
            staged.append(((kind.decode(), name), value))
        else:
            raise BadRecord(f"{where} is of a kind that is not known")
    ids.sort(key=lambda row: row[1][3])
    sessions.sort(key=lambda row: row[1].used_ms)
    return ids, sessions, aliases, staged
