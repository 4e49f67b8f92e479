"""The state store as everyone sees it: tables, cuts, views, and what must be true of every store.

In goes one `Checkpoint` after the other, each with the index of the log that it brings the state to; out come
records by key and views that stay as they were.  `StateStore` keeps them in LMDB, `MemoryStore` in memory.

A store has no opinion on values and never looks inside one.  Of keys it knows only what it needs to bury a
queue.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple, Protocol
from zlib import crc32

from wakeq.storage.state.pairs import Pairs

# The numbers are part of the interface between actors and storage, the names are what stands on disk.
MESSAGES: Final = 1  # Qname-uid -> value
INDEX: Final = 2  # queue id, chunk number -> value
QUEUES: Final = 3  # queue id -> value
DEDUP: Final = 4  # queue id, kind, id -> value
GRAVES: Final = 5  # queue id of a dead incarnation -> prefix of its keys in MESSAGES
META: Final = 6  # what the store knows about itself; no cut may touch it
CHECKPOINT_TABLES: Final = (MESSAGES, INDEX, QUEUES, DEDUP, GRAVES)
TABLE_NAMES: Final[Mapping[int, bytes]] = {
    MESSAGES: b"messages",
    INDEX: b"index",
    QUEUES: b"queues",
    DEDUP: b"dedup",
    GRAVES: b"graves",
    META: b"meta",
}

FORMAT: Final = 1  # of the whole directory; a number above it is a newer release's
FORMAT_KEY: Final = b"format"
CLUSTER_KEY: Final = b"cluster"
NODE_KEY: Final = b"node"
APPLIED_KEY: Final = b"applied"

KEY_BYTES_MAX: Final = 511  # LMDB's own limit; a queue name of 255 bytes stays far below
GRAVE_TAIL_BYTES: Final = 8  # behind a grave's prefix, in MESSAGES: the number.  Longer keys are of other queues
SWEEP_RECORDS: Final = 1000  # removed in one transaction, so that the writer is never away for long

_NUMBER = Struct(">Q")
_APPLIED = Struct(">QQQ")
_CHECKSUM = Struct(">I")


class Applied(NamedTuple):
    """How far the log is contained in the state, and the cluster clock at that entry."""

    log_index: int
    term: int
    clock_ms: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything that changed between two indexes of the log; it lands whole or not at all.

    A key that is put and deleted in one cut is gone afterwards: a message that came and went meanwhile.
    Of two puts of one key the later one stays.  The applied index never goes back.
    """

    applied_index: int
    applied_term: int
    clock_ms: int
    puts: Sequence[tuple[int, Iterable[tuple[bytes, bytes]]]] = ()
    deletes: Sequence[tuple[int, Sequence[bytes]]] = ()

    @property
    def applied(self) -> Applied:
        return Applied(self.applied_index, self.applied_term, self.clock_ms)


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What an operator watches: growth is seen in `pages`, a forgotten reader in `oldest_reader_behind`."""

    pages: int  # ever used in the file
    free_pages: int  # of these, not part of the newest state: free, or pinned by a reader
    page_bytes: int
    map_bytes: int
    file_bytes: int
    readers: int  # open views, those of other processes included
    oldest_reader_behind: int  # transactions that were committed since the oldest of them began
    records: Mapping[int, int]  # by table

    @property
    def living_bytes(self) -> int:
        """What the newest state takes; 0 in a store that has no pages."""
        return (self.pages - self.free_pages) * self.page_bytes

    @property
    def reusable_bytes(self) -> int:
        """What can be written before the file grows."""
        return self.free_pages * self.page_bytes


class View(Protocol):
    """The state as it was when the view was opened, from whatever thread it is read."""

    def get(self, table: int, key: bytes) -> bytes | None:
        """Return the value of one key."""

    def scan(self, table: int, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Give all records whose key begins with `prefix`, in the order of their keys."""

    def count(self, table: int) -> int:
        """Return the number of records in a table, without reading them."""

    def applied(self) -> Applied:
        """Return the applied index of this state."""


class Store(Protocol):
    """One node's state.  All of `commit`, `sweep` and `rest` on one thread; everything else from any."""

    def commit(self, checkpoint: Checkpoint) -> None:
        """Bring the state to the cut's index; what returns is on disk."""

    def sweep(self, limit: int = SWEEP_RECORDS) -> bool:
        """Remove up to `limit` records of buried queues; return whether more are left."""

    def release_memory(self) -> bool:
        """Give back the memory that was only needed for writing; False if somebody looks, and it has to wait."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of these keys in MESSAGES, all of one moment."""

    def read(self) -> AbstractContextManager[View]:
        """Open a view, which ends with the block.  Keep it short: what it sees cannot be reused."""

    def applied(self) -> Applied:
        """Return how far the log is contained."""

    def stats(self) -> StoreStats:
        """Return what an operator watches."""

    def reader_check(self) -> int:
        """Release what dead readers pin; return how many there were."""

    def close(self) -> None:
        """End all use; closing twice does nothing."""


class TableChanges(NamedTuple):
    """What a cut does to one table, sorted by key: neighbours share pages, worth a factor of four."""

    table: int
    puts: Pairs
    deletes: list[bytes]


def arrange(checkpoint: Checkpoint) -> list[TableChanges]:
    """Sort a cut by table and key, without the puts that it deletes itself."""
    puts: dict[int, Pairs] = {}
    deletes: dict[int, list[bytes]] = {}
    for table, pairs in checkpoint.puts:
        puts.setdefault(table, Pairs()).extend(pairs)
    for table, keys in checkpoint.deletes:
        deletes.setdefault(table, []).extend(keys)
    return [
        _arrange_table(table, puts.get(table, Pairs()), deletes.get(table, []))
        for table in sorted(puts.keys() | deletes.keys())
    ]


def _arrange_table(table: int, puts: Pairs, deletes: list[bytes]) -> TableChanges:
    assert table in CHECKPOINT_TABLES, f"a cut may not touch table {table}"
    if deletes and puts:
        puts = puts.without(set(deletes))
    puts = puts.in_order()
    deletes.sort()
    sizes = set(map(len, deletes)).union(map(len, puts.keys))
    assert not sizes or 0 < min(sizes) <= max(sizes) <= KEY_BYTES_MAX, "a key has 1 to 511 bytes"
    return TableChanges(table, puts, deletes)


def with_checksum(value: bytes) -> bytes:
    """Add the checksum that every record in META carries."""
    return value + _CHECKSUM.pack(crc32(value))


def without_checksum(record: bytes) -> bytes | None:
    """Return the value of a record in META, or None if it is not what was written."""
    value = record[: -_CHECKSUM.size]
    return value if len(record) >= _CHECKSUM.size and record == with_checksum(value) else None


def encode_number(number: int) -> bytes:
    """Give the value of `format` and `node` in META."""
    return with_checksum(_NUMBER.pack(number))


def decode_number(record: bytes) -> int | None:
    """Return the number, or None if the record is damaged."""
    value = without_checksum(record)
    if value is None or len(value) != _NUMBER.size:
        return None
    number: int = _NUMBER.unpack(value)[0]
    return number


def encode_applied(applied: Applied) -> bytes:
    """Give the value of `applied` in META."""
    return with_checksum(_APPLIED.pack(*applied))


def decode_applied(record: bytes) -> Applied | None:
    """Return how far the log is contained, or None if the record is damaged."""
    value = without_checksum(record)
    if value is None or len(value) != _APPLIED.size:
        return None
    return Applied(*_APPLIED.unpack(value))


def new_meta(cluster_id: bytes, node_id: int) -> dict[bytes, bytes]:
    """Give the records of META in a store that has seen nothing yet."""
    return {
        FORMAT_KEY: encode_number(FORMAT),
        CLUSTER_KEY: with_checksum(cluster_id),
        NODE_KEY: encode_number(node_id),
        APPLIED_KEY: encode_applied(Applied(0, 0, 0)),
    }
