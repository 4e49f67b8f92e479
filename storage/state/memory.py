"""MemoryStore: the state store without a disk, for tests, simulation and embedded use.

It accepts the same checkpoints and gives the same answers as `StateStore`, also in views that were opened earlier.  Its
content ends with the process.  It never changes a table that a view is using.
"""

import contextlib
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice

from wakeq.protocol.errors import Busy
from wakeq.storage.state.store import (
    APPLIED_KEY,
    DEDUP,
    GRAVE_TAIL_BYTES,
    GRAVES,
    INDEX,
    MESSAGES,
    META,
    SWEEP_RECORDS,
    TABLE_NAMES,
    Applied,
    Checkpoint,
    StoreStats,
    arrange,
    decode_applied,
    encode_applied,
    new_meta,
)


class MemoryView:
    """The state at the moment when the view was opened; usable only inside its `with` block."""

    def __init__(self, tables: dict[int, "_Table"]) -> None:
        self._tables = tables

    def get(self, table: int, key: bytes) -> bytes | None:
        """Return the value of one key."""
        return self._table(table).records.get(key)

    def scan(self, table: int, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield all records whose key begins with `prefix`, in the order of their keys."""
        records = self._table(table).records
        for key in self._table(table).keys_from(prefix):
            # Raise if the view was closed meanwhile.
            self._table(table)
            yield key, records[key]

    def count(self, table: int) -> int:
        """Return the number of records in a table."""
        return len(self._table(table).records)

    def applied(self) -> Applied:
        """Return the applied index of this state."""
        found = decode_applied(self._table(META).records[APPLIED_KEY])
        assert found is not None
        return found

    def close(self) -> None:
        """Release the tables; they may then be changed in place again."""
        for table in self._tables.values():
            table.views -= 1
        self._tables = {}

    def _table(self, table: int) -> "_Table":
        if not self._tables:
            raise Busy("the view was closed meanwhile; read again")
        return self._tables[table]


class MemoryStore:
    """One node's state in memory.  See `Store` for what the methods promise."""

    def __init__(self, cluster_id: bytes = b"", node_id: int = 0) -> None:
        self._tables = {table: _Table() for table in TABLE_NAMES}
        for key, value in new_meta(cluster_id, node_id).items():
            self._tables[META].put(key, value)
        self._lock = threading.Lock()  # a checkpoint is seen whole or not at all
        self._views = 0  # open ones
        self._applied = Applied(0, 0, 0)
        self._is_closed = False

    def commit(self, checkpoint: Checkpoint) -> None:
        """Bring the state to the checkpoint's index."""
        assert checkpoint.applied[:2] >= self._applied[:2], f"{checkpoint.applied} is older than {self._applied}"
        tables = arrange(checkpoint)
        with self._open():
            for table, puts, deletes in tables:
                records = self._own(table)
                for key, value in puts:
                    records.put(key, value)
                for key in deletes:
                    records.delete(key)
            self._own(META).put(APPLIED_KEY, encode_applied(checkpoint.applied))
            self._applied = checkpoint.applied

    def sweep(self, limit: int = SWEEP_RECORDS) -> bool:
        """Remove up to `limit` records of deleted queues; return whether more are left."""
        with self._open():
            left = limit
            for queue_id, messages in sorted(self._tables[GRAVES].records.items()):
                left -= self._delete_prefix(MESSAGES, messages, left, key_bytes=len(messages) + GRAVE_TAIL_BYTES)
                for table in (INDEX, DEDUP):
                    left -= self._delete_prefix(table, queue_id, left)
                if left == 0:
                    return True
                self._own(GRAVES).delete(queue_id)
            return False

    def release_memory(self) -> bool:
        """Do nothing: writing needs no memory of its own here."""
        return True

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of these keys in MESSAGES, all of one moment."""
        with self._open():
            return list(map(self._tables[MESSAGES].records.get, keys))

    @contextlib.contextmanager
    def read(self) -> Iterator[MemoryView]:
        """Open a view for the block."""
        with self._open():
            view = MemoryView(dict(self._tables))
            self._views += 1
            for table in self._tables.values():
                table.views += 1
        try:
            yield view
        finally:
            with self._lock:
                self._views -= 1
                view.close()

    def applied(self) -> Applied:
        """Return the last entry of the log that the state contains."""
        return self._applied

    def stats(self) -> StoreStats:
        """Return the figures that an operator watches; there are no pages and no files."""
        with self._open():
            records = {table: len(content.records) for table, content in self._tables.items()}
            return StoreStats(
                pages=0,
                free_pages=0,
                page_bytes=0,
                map_bytes=0,
                file_bytes=0,
                readers=self._views,
                oldest_reader_behind=0,
                records=records,
            )

    def reader_check(self) -> int:
        """Return 0: readers live in this process and end with it."""
        return 0

    def close(self) -> None:
        """Close the store; a second call does nothing."""
        self._is_closed = True

    @contextlib.contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            if self._is_closed:
                raise Busy("the store was closed meanwhile; read again")
            yield

    def _own(self, table: int) -> "_Table":
        """Return a table that no view is using; copy it if one is."""
        if self._tables[table].views:
            self._tables[table] = self._tables[table].copy()
        return self._tables[table]

    def _delete_prefix(self, table: int, prefix: bytes, limit: int, *, key_bytes: int = 0) -> int:
        if not prefix or not limit:
            return 0
        found = self._tables[table].keys_from(prefix)
        keys = list(islice((key for key in found if not key_bytes or len(key) == key_bytes), limit))
        if keys:
            own = self._own(table)
            for key in keys:
                own.delete(key)
        return len(keys)


class _Table:
    """Records and the order of their keys, which is computed when it is needed.

    Invariant: every key of `records` is in `_order`; keys of deleted records may remain there for a while.
    """

    __slots__ = ("_is_sorted", "_order", "records", "views")

    def __init__(self) -> None:
        self.records: dict[bytes, bytes] = {}
        self.views = 0  # open views that use this table; while there are any, it must not change
        self._order: list[bytes] = []
        self._is_sorted = True  # whether `_order` is

    def copy(self) -> "_Table":
        copy = _Table()
        copy.records = dict(self.records)
        copy._order = list(self.records)
        copy._is_sorted = False
        return copy

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self.records:
            self._is_sorted = self._is_sorted and (not self._order or self._order[-1] < key)
            self._order.append(key)
        self.records[key] = value

    def delete(self, key: bytes) -> None:
        self.records.pop(key, None)
        if len(self._order) > 2 * len(self.records) + SWEEP_RECORDS:
            self._order = list(self.records)
            self._is_sorted = False

    def keys_from(self, prefix: bytes) -> Iterator[bytes]:
        """Yield the keys that begin with `prefix`, in order."""
        if not self._is_sorted:
            # Make a new list: another thread may be iterating over the old one.
            self._order = sorted(self._order)
            self._is_sorted = True
        order, records = self._order, self.records
        last = None
        for position in range(bisect_left(order, prefix), len(order)):
            key = order[position]
            if not key.startswith(prefix):
                return
            # A key may have been deleted, or be there twice because it was put again.
            if key in records and key != last:
                yield key
            last = key
