"""The interface of the state store: tables, checkpoints, views, and the rules that every store keeps.

    one checkpoint after the other, each with its index of the log --> records by key, and views that never change

`StateStore` keeps the records in LMDB, `MemoryStore` in memory.  A store never looks inside a value.  Of keys it knows
only enough to remove a deleted queue.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain, compress, islice
from operator import le
from struct import Struct
from typing import Final, NamedTuple, Protocol
from zlib import crc32

# The numbers are part of the interface between actors and storage; the names are on disk.
MESSAGES: Final = 1  # Qname-uid -> value
INDEX: Final = 2  # queue id, chunk number -> value
QUEUES: Final = 3  # queue id -> value
DEDUP: Final = 4  # queue id, kind, id -> value
GRAVES: Final = 5  # id of a deleted queue -> prefix of its keys in MESSAGES
META: Final = 6  # about the store itself; no checkpoint may touch it
CHECKPOINT_TABLES: Final = (MESSAGES, INDEX, QUEUES, DEDUP, GRAVES)
TABLE_NAMES: Final[Mapping[int, bytes]] = {
    MESSAGES: b"messages",
    INDEX: b"index",
    QUEUES: b"queues",
    DEDUP: b"dedup",
    GRAVES: b"graves",
    META: b"meta",
}

FORMAT: Final = 1  # of the whole directory; a higher number was written by a newer release
FORMAT_KEY: Final = b"format"
CLUSTER_KEY: Final = b"cluster"
NODE_KEY: Final = b"node"
APPLIED_KEY: Final = b"applied"

KEY_BYTES_MAX: Final = 511  # LMDB's own limit; a queue name of 255 bytes stays far below
GRAVE_TAIL_BYTES: Final = 8  # of a key behind a grave's prefix in MESSAGES; longer keys belong to other queues
SWEEP_RECORDS: Final = 1000  # removed in one transaction, so that the writer is never busy for long

_NUMBER = Struct(">Q")
_APPLIED = Struct(">QQQ")
_CHECKSUM = Struct(">I")


class Pairs:
    """Keys and values, side by side."""

    __slots__ = ("_last", "_parts", "keys")

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self.keys: list[bytes] = []
        self._parts: list[Iterable[bytes]] = []  # the values, in the order of the keys
        self._last: list[bytes] | None = None  # the last part, if more values may be appended to it
        self.extend(pairs)

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return zip(self.keys, chain.from_iterable(self._parts), strict=True)

    def append(self, pair: tuple[bytes, bytes]) -> None:
        """Append a key and its value."""
        if self._last is None:
            self._last = []
            self._parts.append(self._last)
        self.keys.append(pair[0])
        self._last.append(pair[1])

    def add(self, keys: Sequence[bytes], values: Iterable[bytes]) -> None:
        """Append keys and as many values, which must allow several iterations."""
        self.keys += keys
        self._parts.append(values)
        self._last = None

    def extend(self, pairs: "Iterable[tuple[bytes, bytes]] | Pairs") -> None:
        """Append several pairs, in their order."""
        if isinstance(pairs, Pairs):
            self.keys += pairs.keys
            self._parts += pairs._parts
            self._last = None
        else:
            for pair in pairs:
                self.append(pair)

    def without(self, gone: Set[bytes]) -> "Pairs":
        """Return the pairs without these keys."""
        if gone.isdisjoint(self.keys):
            return self
        return Pairs(compress(self, [key not in gone for key in self.keys]))

    def in_order(self) -> "Pairs":
        """Return the pairs sorted by key; pairs with one key keep their order."""
        keys = self.keys
        if all(map(le, keys, islice(keys, 1, None))):
            return self
        values = list(chain.from_iterable(self._parts))
        places = sorted(range(len(keys)), key=keys.__getitem__)
        found = Pairs()
        found.add([keys[place] for place in places], [values[place] for place in places])
        return found


class Applied(NamedTuple):
    """The last entry of the log that the state contains, and the cluster clock at that entry."""

    log_index: int
    term: int
    clock_ms: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All changes between two indexes of the log; they are committed together or not at all.

    A key that is put and deleted in one checkpoint is absent afterwards: its message was published and removed in
    between.  Of two puts of one key the later one stays.  The applied index never falls.
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
    """The figures of an operator: `pages` shows growth, `oldest_reader_behind` a forgotten reader."""

    pages: int  # ever used in the file
    free_pages: int  # not part of the newest state: free, or pinned by a reader
    page_bytes: int
    map_bytes: int
    file_bytes: int
    readers: int  # open views, including those of other processes
    oldest_reader_behind: int  # transactions committed since the oldest view was opened
    records: Mapping[int, int]  # by table

    @property
    def living_bytes(self) -> int:
        """The size of the newest state; 0 in a store that has no pages."""
        return (self.pages - self.free_pages) * self.page_bytes

    @property
    def reusable_bytes(self) -> int:
        """How much can be written before the file grows."""
        return self.free_pages * self.page_bytes


class View(Protocol):
    """The state at the moment when the view was opened; any thread may read it."""

    def get(self, table: int, key: bytes) -> bytes | None:
        """Return the value of one key."""

    def scan(self, table: int, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield all records whose key begins with `prefix`, in the order of their keys."""

    def count(self, table: int) -> int:
        """Return the number of records in a table, without reading them."""

    def applied(self) -> Applied:
        """Return the applied index of this state."""


class Store(Protocol):
    """One node's state.  One thread calls `commit`, `sweep` and `release_memory`; any thread calls the rest."""

    def commit(self, checkpoint: Checkpoint) -> None:
        """Bring the state to the checkpoint's index; when this returns, it is on disk."""

    def sweep(self, limit: int = SWEEP_RECORDS) -> bool:
        """Remove up to `limit` records of deleted queues; return whether more are left."""

    def release_memory(self) -> bool:
        """Free the memory that only writing needed; return False, without effect, while a view is open."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of these keys in MESSAGES, all of one moment."""

    def read(self) -> AbstractContextManager[View]:
        """Open a view for the block.  Keep it short: the space of records that it sees cannot be reused."""

    def applied(self) -> Applied:
        """Return the last entry of the log that the state contains."""

    def stats(self) -> StoreStats:
        """Return the figures that an operator watches."""

    def reader_check(self) -> int:
        """Release the pages that dead readers pin; return the number of those readers."""

    def close(self) -> None:
        """Close the store; a second call does nothing."""


class TableChanges(NamedTuple):
    """The changes of a checkpoint to one table, sorted by key: neighbours share pages, which is four times as fast."""

    table: int
    puts: Pairs
    deletes: list[bytes]


def arrange(checkpoint: Checkpoint) -> list[TableChanges]:
    """Sort a checkpoint by table and key, without the puts that it deletes itself."""
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
    assert table in CHECKPOINT_TABLES, f"a checkpoint may not touch table {table}"
    if deletes and puts:
        puts = puts.without(set(deletes))
    puts = puts.in_order()
    deletes.sort()
    sizes = set(map(len, deletes)).union(map(len, puts.keys))
    assert not sizes or 0 < min(sizes) <= max(sizes) <= KEY_BYTES_MAX, "a key has 1 to 511 bytes"
    return TableChanges(table, puts, deletes)


def with_checksum(value: bytes) -> bytes:
    """Return a value with the checksum that every record in META and some others have."""
    return value + _CHECKSUM.pack(crc32(value))


def without_checksum(record: bytes) -> bytes | None:
    """Return the value of a record without its checksum, or None if the checksum is wrong."""
    value = record[: -_CHECKSUM.size]
    return value if len(record) >= _CHECKSUM.size and record == with_checksum(value) else None


def encode_number(number: int) -> bytes:
    """Return the value of `format` or `node` in META."""
    return with_checksum(_NUMBER.pack(number))


def decode_number(record: bytes) -> int | None:
    """Return the number, or None if the record is damaged."""
    value = without_checksum(record)
    if value is None or len(value) != _NUMBER.size:
        return None
    number: int = _NUMBER.unpack(value)[0]
    return number


def encode_applied(applied: Applied) -> bytes:
    """Return the value of `applied` in META."""
    return with_checksum(_APPLIED.pack(*applied))


def decode_applied(record: bytes) -> Applied | None:
    """Return the applied entry, or None if the record is damaged."""
    value = without_checksum(record)
    if value is None or len(value) != _APPLIED.size:
        return None
    return Applied(*_APPLIED.unpack(value))


def new_meta(cluster_id: bytes, node_id: int) -> dict[bytes, bytes]:
    """Return the records of META in an empty store."""
    return {
        FORMAT_KEY: encode_number(FORMAT),
        CLUSTER_KEY: with_checksum(cluster_id),
        NODE_KEY: encode_number(node_id),
        APPLIED_KEY: encode_applied(Applied(0, 0, 0)),
    }
