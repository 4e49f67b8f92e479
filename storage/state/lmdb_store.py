"""StateStore: the state made from the log, in one LMDB environment.

    Checkpoint --> one transaction, one full sync --> tables;   keys, views <-- short read transactions

The store is written behind the log, so no client waits for it; the applied index is in the same transaction as the
entries that it counts.  After the first failed write the store accepts nothing more.  It never looks into a value, and
never lets two threads write: a transaction that another thread commits makes the next one hang.
"""

import contextlib
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, repeat, takewhile
from pathlib import Path
from typing import Final, NoReturn, Self, TypeVar

import lmdb

from wakeq.protocol.errors import StorageError, SyncFailed
from wakeq.storage.state.environment import (
    DATA_FILE,
    MAP_BYTES,
    ResidentPages,
    Tables,
    check_identity,
    commit_failed,
    damaged,
    explained,
    give_freed_back,
    lengthen,
    open_environment,
    open_tables,
)
from wakeq.storage.state.store import (
    APPLIED_KEY,
    DEDUP,
    GRAVE_TAIL_BYTES,
    GRAVES,
    INDEX,
    MESSAGES,
    META,
    SWEEP_RECORDS,
    Applied,
    Checkpoint,
    Pairs,
    StoreStats,
    TableChanges,
    arrange,
    decode_applied,
    encode_applied,
)

T = TypeVar("T")

GROW_WAIT_S: Final = 5.0  # how long a full map waits for open views before it closes them
SCAN_RECORDS: Final = 256  # read from the map at once
SCAN_RECORDS_FIRST: Final = 8  # at first, because often only one or two records have the prefix
SCAN_BYTES: Final = 1 << 20  # read from the map at once, at most


class Gate:
    """A reader-writer lock: views are the readers, an exchange of the map is the writer."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards the two fields below
        self._inside = 0  # open views
        self._is_closed = False

    @contextlib.contextmanager
    def passed(self) -> Iterator[None]:
        """Be inside during the block; wait first while the gate is closed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_closed)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def closed(self, wait_s: float) -> Iterator[None]:
        """Let no view in during the block; wait first, for `wait_s` at most, until no view is inside."""
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: self._inside == 0, wait_s)
        try:
            yield
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()

    @contextlib.contextmanager
    def closed_if_empty(self) -> Iterator[bool]:
        """Close during the block without waiting; yield False and stay open if a view is inside."""
        with self._changed:
            is_closed = self._is_closed = self._inside == 0
        try:
            yield is_closed
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()


class StateView:
    """The state at the moment when the view was opened; usable only inside its `with` block."""

    def __init__(self, path: Path, txn: "lmdb.Transaction[bytes]", tables: Tables, resident: ResidentPages) -> None:
        self._path = path
        self._txn = txn
        self._tables = tables
        self._resident = resident

    def get(self, table: int, key: bytes) -> bytes | None:
        """Return the value of one key."""
        with explained(self._path):
            return self._txn.get(key, db=self._tables[table])

    def scan(self, table: int, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield all records whose key begins with `prefix`, in the order of their keys."""
        with explained(self._path):
            cursor = self._txn.cursor(self._tables[table])
            if not (cursor.set_range(prefix) if prefix else cursor.first()):
                return
            records, count = iter(cursor), SCAN_RECORDS_FIRST
            # Reading records one by one costs three times as much.
            while batch := _some_of(records, count):
                if count < SCAN_RECORDS:
                    count *= 2
                    self._resident.used()
                else:
                    self._resident.check()
                if prefix and not batch[-1][0].startswith(prefix):
                    yield from takewhile(lambda record: record[0].startswith(prefix), batch)
                    return
                yield from batch

    def count(self, table: int) -> int:
        """Return the number of records in a table, without reading them."""
        with explained(self._path):
            return self._txn.stat(self._tables[table])["entries"]

    def applied(self) -> Applied:
        """Return the applied index of this state."""
        found = decode_applied(self.get(META, APPLIED_KEY) or b"")
        if found is None:
            raise damaged(self._path, "a damaged applied index", "the applied index with its checksum")
        return found


class StateStore:
    """One node's state in LMDB.  See `Store` for what the methods promise.

    `commit` and `sweep` belong to the thread that calls one of them first.
    """

    def __init__(self, path: Path, env: lmdb.Environment, tables: Tables, *, read_only: bool) -> None:
        self._path = path
        self._env = env
        self._tables = tables
        self._read_only = read_only
        self._gate = Gate()  # closed while the map is exchanged
        self._resident = ResidentPages(path)
        self._writer: int | None = None  # the thread that owns all write transactions
        self._failure: StorageError | None = None  # the first failed write; nothing is accepted afterwards
        self._applied = Applied(0, 0, 0)  # of the last checkpoint

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        cluster_id: bytes | None,
        node_id: int | None,
        map_bytes: int = MAP_BYTES,
        read_only: bool = False,
    ) -> Self:
        """Open or create the state in `directory`; refuse the state of another node or release.

        Only a reader may leave the identity open (None): it accepts any.
        """
        assert read_only or (cluster_id is not None and node_id is not None)
        path = directory / DATA_FILE
        env = open_environment(directory, map_bytes, read_only=read_only)
        try:
            with explained(path):
                # Before the first page is read.
                lengthen(env, path, read_only=read_only)
                tables = open_tables(env, path, cluster_id, node_id, read_only=read_only)
            store = cls(path, env, tables, read_only=read_only)
            with store.read() as view:
                check_identity(path, view, cluster_id, node_id)
                store._applied = view.applied()
            store.reader_check()
        except BaseException:
            env.close()
            raise
        return store

    # Writing --------------------------------------------------------------------------------------

    def commit(self, checkpoint: Checkpoint) -> None:
        """Bring the state to the checkpoint's index; when this returns, it is on disk."""
        assert checkpoint.applied[:2] >= self._applied[:2], f"{checkpoint.applied} is older than {self._applied}"
        tables = arrange(checkpoint)
        self._transact(partial(self._write, tables, encode_applied(checkpoint.applied)))
        self._applied = checkpoint.applied

    def sweep(self, limit: int = SWEEP_RECORDS) -> bool:
        """Remove up to `limit` records of deleted queues; return whether more are left."""
        with self.read() as view:
            if view.count(GRAVES) == 0:
                return False
        return self._transact(partial(self._sweep, limit))

    def release_memory(self) -> bool:
        """Free the memory of large writes by opening LMDB again; return False, without effect, while a view is open.

        LMDB keeps a copy of each page of its largest transaction until it is closed.
        """
        self._claim_thread()
        self._refuse_after_failure()
        with self._gate.closed_if_empty() as is_closed:
            if not is_closed:
                return False
            self._reopen()
        give_freed_back()
        return True

    def _reopen(self) -> None:
        try:
            map_bytes = self._env.info()["map_size"]
            with self._resident.moving():
                self._env.close()
                self._env = open_environment(self._path.parent, map_bytes, read_only=False)
            self._tables = open_tables(self._env, self._path, None, None, read_only=False)
        except (lmdb.Error, OSError) as error:
            self._latch(error)
        except StorageError as error:
            self._failure = error
            raise

    def _write(self, tables: list[TableChanges], applied: bytes, txn: "lmdb.Transaction[bytes]") -> None:
        for table, puts, deletes in tables:
            database = self._tables[table]
            if puts:
                _put_sorted(txn.cursor(database), puts)
            # LMDB has no call that deletes many keys: this way costs the fewest steps of the interpreter.
            deque(map(txn.delete, deletes, repeat(b""), repeat(database)), maxlen=0)
        txn.put(APPLIED_KEY, applied, db=self._tables[META])

    def _sweep(self, limit: int, txn: "lmdb.Transaction[bytes]") -> bool:
        graves = txn.cursor(self._tables[GRAVES])
        left = limit
        while graves.first():
            queue_id, messages = graves.item()
            message_bytes = len(messages) + GRAVE_TAIL_BYTES
            left -= _delete_prefix(txn.cursor(self._tables[MESSAGES]), messages, left, key_bytes=message_bytes)
            for table in (INDEX, DEDUP):
                left -= _delete_prefix(txn.cursor(self._tables[table]), queue_id, left)
            if left == 0:
                return True
            txn.delete(queue_id, db=self._tables[GRAVES])
        return False

    def _transact(self, change: Callable[["lmdb.Transaction[bytes]"], T]) -> T:
        """Run one write transaction; run it again in a larger map if the map is full; never after a failure."""
        self._claim_thread()
        self._refuse_after_failure()
        try:
            while True:
                try:
                    with self._env.begin(write=True) as txn:
                        result = change(txn)
                except lmdb.MapFullError:
                    self._grow()
                else:
                    lengthen(self._env, self._path, read_only=False)
                    self._resident.check()
                    return result
        except (lmdb.Error, OSError) as error:
            self._latch(error)

    def _claim_thread(self) -> None:
        assert not self._read_only, "this store was opened to be read"
        thread = threading.get_ident()
        self._writer = self._writer or thread
        assert self._writer == thread, "all write transactions belong to one thread"

    def _grow(self) -> None:
        """Double the map.  Wait for open views; those that stay open are closed and raise when they are read."""
        with self._gate.closed(GROW_WAIT_S), self._resident.moving():
            self._env.set_mapsize(self._env.info()["map_size"] * 2)

    def _latch(self, error: lmdb.Error | OSError) -> NoReturn:
        """Accept nothing more: LMDB itself would accept the next transaction as if nothing had been lost."""
        self._failure = commit_failed(self._path, error)
        raise self._failure from error

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            raise SyncFailed(f"{self._path}: not used since an earlier failure: {self._failure}")

    # Reading --------------------------------------------------------------------------------------

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of these keys in MESSAGES, all of one moment."""
        with self._reading(MESSAGES) as txn:
            values = list(map(txn.get, keys))
        self._resident.used()
        return values

    @contextlib.contextmanager
    def read(self) -> Iterator[StateView]:
        """Open a view for the block.  Keep it short: LMDB cannot reuse the pages that a view may read."""
        with self._reading(META) as txn:
            yield StateView(self._path, txn, self._tables, self._resident)

    @contextlib.contextmanager
    def _reading(self, table: int) -> Iterator["lmdb.Transaction[bytes]"]:
        self._refuse_after_failure()
        with self._gate.passed(), explained(self._path):
            txn = self._begin(table)
            try:
                yield txn
            finally:
                txn.abort()

    def _begin(self, table: int) -> "lmdb.Transaction[bytes]":
        try:
            return self._env.begin(self._tables[table])
        # Another process has enlarged the map: use the new size.
        except lmdb.MapResizedError:
            with self._resident.moving():
                self._env.set_mapsize(0)
            return self._env.begin(self._tables[table])

    def applied(self) -> Applied:
        """Return the last entry of the log that the state contains."""
        if not self._read_only:
            return self._applied
        with self.read() as view:
            return view.applied()

    # Watching -------------------------------------------------------------------------------------

    def stats(self) -> StoreStats:
        """Return the figures that an operator watches."""
        self._refuse_after_failure()
        with explained(self._path), self._resident.moving():
            readers = _reader_transactions(self._env.readers())
        with self._reading(META) as txn:
            info, main = self._env.info(), self._env.stat()
            tables = {table: txn.stat(database) for table, database in self._tables.items()}
        pages = info["last_pgno"] + 1
        # The environment itself has two pages.
        used = 2 + sum(_pages_of(stat) for stat in (main, *tables.values()))
        return StoreStats(
            pages=pages,
            free_pages=max(0, pages - used),
            page_bytes=main["psize"],
            map_bytes=info["map_size"],
            file_bytes=self._path.stat().st_size,
            readers=len(readers),
            oldest_reader_behind=max(0, info["last_txnid"] - min(readers, default=info["last_txnid"])),
            records={table: stat["entries"] for table, stat in tables.items()},
        )

    def reader_check(self) -> int:
        """Release the pages that dead readers pin; return the number of those readers."""
        self._refuse_after_failure()
        with explained(self._path), self._resident.moving():
            return self._env.reader_check()

    def close(self) -> None:
        """Close the store; a second call does nothing."""
        with self._resident.moving():
            self._env.close()


def _some_of(records: Iterator[tuple[bytes, bytes]], count: int) -> list[tuple[bytes, bytes]]:
    """Return the next records, `count` or SCAN_BYTES at most; none at the end."""
    batch, room = [], SCAN_BYTES
    for record in islice(records, count):
        batch.append(record)
        room -= len(record[1])
        if room <= 0:
            break
    return batch


def _put_sorted(cursor: "lmdb.Cursor[bytes]", puts: Pairs) -> None:
    """Put records sorted by key.

    Records behind the last key of the table are appended: that fills pages completely, where inserting leaves them half
    to two thirds full.
    """
    behind = bisect_right(puts.keys, cursor.key()) if cursor.last() else 0
    records = iter(puts)
    if behind:
        cursor.putmulti(islice(records, behind))
    consumed, added = cursor.putmulti(records, append=True)
    # LMDB does not append a key for the second time.
    if added < consumed:
        cursor.putmulti(islice(puts, behind, None))


def _delete_prefix(cursor: "lmdb.Cursor[bytes]", prefix: bytes, limit: int, *, key_bytes: int = 0) -> int:
    """Delete up to `limit` records whose key begins with `prefix` and has `key_bytes`; return their number."""
    removed = 0
    more = bool(prefix) and cursor.set_range(prefix)
    while more and removed < limit and cursor.key().startswith(prefix):
        if not key_bytes or len(cursor.key()) == key_bytes:
            # This also moves the cursor to the next record.
            more = cursor.delete()
            removed += 1
        else:
            more = cursor.next()
    return removed


def _pages_of(stat: "lmdb._StatDict") -> int:
    return stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]


def _reader_transactions(table: str) -> list[int]:
    """Return the transactions in LMDB's reader table: lines of process, thread, transaction or `-`."""
    columns = (line.split() for line in table.splitlines())
    return [int(line[2]) for line in columns if len(line) == 3 and line[2].isdigit()]
