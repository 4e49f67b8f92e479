"""StateStore on a real disk: what it keeps, what it refuses in which words, what a failure ends for good."""

import contextlib
import errno
import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

from wakeq.protocol.errors import Busy, DamagedFile, StorageError, SyncFailed, WrongVersion
from wakeq.storage import files, state
from wakeq.storage.environment import DATA_FILE, lengthen
from wakeq.storage.memory import MemoryStore
from wakeq.storage.state import SCAN_BYTES, SCAN_RECORDS, SCAN_RECORDS_FIRST, StateStore
from wakeq.storage.store import (
    APPLIED_KEY,
    DEDUP,
    FORMAT_KEY,
    GRAVES,
    INDEX,
    MESSAGES,
    META,
    QUEUES,
    Applied,
    Cut,
    encode_number,
)

CLUSTER = b"cluster-one-----"
MAP_BYTES = 1 << 20


def open_store(directory: Path, **changes: Any) -> StateStore:
    return StateStore.open(directory, **{"cluster_id": CLUSTER, "node_id": 1, **changes})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def store(directory: Path) -> Iterator[StateStore]:
    store = open_store(directory)
    yield store
    store.close()


def numbered(first: int, last: int, size: int = 100) -> list[tuple[bytes, bytes]]:
    return [(b"bench-0000001_%08d" % number, b"v" * size) for number in range(first, last)]


def put(index: int, pairs: list[tuple[bytes, bytes]], table: int = MESSAGES) -> Cut:
    return Cut(index, 1, 10 * index, puts=[(table, pairs)])


def read_all_messages(directory: Path) -> list[tuple[bytes, bytes]]:
    with contextlib.closing(open_store(directory)) as store, store.read() as view:
        return list(view.scan(MESSAGES))


def change_raw(directory: Path, table: bytes, key: bytes, value: bytes) -> None:
    with lmdb.open(str(directory), max_dbs=8) as env, env.begin(write=True) as txn:
        txn.put(key, value, db=env.open_db(table, txn=txn))


# What is kept ---------------------------------------------------------------------------------------


def test_a_new_state_has_applied_nothing(store: StateStore, directory: Path) -> None:
    assert store.applied() == Applied(0, 0, 0)
    assert (directory / DATA_FILE).stat().st_mode & 0o077 == 0  # nobody else reads messages


def test_what_was_committed_is_there_after_reopening(store: StateStore, directory: Path) -> None:
    store.commit(Cut(7, 3, 70, puts=[(MESSAGES, [(b"q-b", b""), (b"q-a", b"1")]), (QUEUES, [(b"k", b"v")])]))
    store.commit(Cut(9, 3, 90, puts=[(MESSAGES, [(b"q-c", b"3")])], deletes=[(MESSAGES, [b"q-a", b"q-x"])]))
    store.close()

    store = open_store(directory)

    assert store.applied() == Applied(9, 3, 90)
    assert store.get_many([b"q-c", b"q-a", b"q-b"]) == [b"3", None, b""]
    with store.read() as view:
        assert list(view.scan(QUEUES)) == [(b"k", b"v")]
        assert view.applied() == Applied(9, 3, 90)
    store.close()


def test_of_two_puts_of_one_key_the_later_one_stays(store: StateStore) -> None:
    store.commit(put(1, [(b"a", b"9"), (b"b", b"2"), (b"a", b"3")]))
    store.commit(put(2, [(b"b", b"4"), (b"c", b"7"), (b"c", b"6")]))

    assert store.get_many([b"a", b"b", b"c"]) == [b"3", b"4", b"6"]


def test_puts_before_within_and_behind_the_table_all_land(store: StateStore) -> None:
    store.commit(put(1, [(b"m%d" % n, b"") for n in range(0, 10, 2)]))
    store.commit(put(2, [(b"z", b"2"), (b"m3", b"2"), (b"a", b"2"), (b"m8", b"2"), (b"y", b"2")]))

    with store.read() as view:
        keys = [key for key, value in view.scan(MESSAGES) if value == b"2"]
    assert keys == [b"a", b"m3", b"m8", b"y", b"z"]


def test_consecutive_keys_fill_their_pages(store: StateStore) -> None:
    for first in range(0, 3000, 500):
        store.commit(put(first + 1, numbered(first, first + 500, size=1050)))

    stats = store.stats()

    used = (stats.pages - stats.free_pages) * stats.page_bytes
    assert used / 3000 < 1400  # 2,100 where pages are split in halves
    assert stats.records[MESSAGES] == 3000


def test_scan_gives_one_prefix_in_order(store: StateStore) -> None:
    store.commit(put(1, [(b"b2", b""), (b"a", b""), (b"b1", b""), (b"c", b""), (b"b", b"")], table=INDEX))

    with store.read() as view:
        assert [key for key, _ in view.scan(INDEX, b"b")] == [b"b", b"b1", b"b2"]
        assert [key for key, _ in view.scan(INDEX)] == [b"a", b"b", b"b1", b"b2", b"c"]
        assert list(view.scan(INDEX, b"d")) == []
        assert list(view.scan(DEDUP)) == []


@pytest.mark.parametrize("count", [SCAN_RECORDS - 1, SCAN_RECORDS, SCAN_RECORDS + 1, 2 * SCAN_RECORDS + 7])
def test_a_long_scan_leaves_nothing_out_and_ends_with_its_prefix(store: StateStore, count: int) -> None:
    mine = [(b"b%06d" % number, b"v") for number in range(count)]
    others = [(b"a", b"v"), *((b"c%06d" % number, b"v") for number in range(SCAN_RECORDS))]
    store.commit(put(1, [*mine, *others]))

    with store.read() as view:
        assert list(view.scan(MESSAGES, b"b")) == mine
        assert len(list(view.scan(MESSAGES))) == len(mine) + len(others)


def test_a_scan_of_large_records_holds_a_few_of_them_at_a_time(store: StateStore) -> None:
    size = 2 * SCAN_BYTES
    store.commit(put(1, [(b"m%02d" % number, bytes(size)) for number in range(16)]))

    tracemalloc.start()
    try:
        with store.read() as view:
            seen = sum(1 for _ in view.scan(MESSAGES))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert seen == 16
    assert peak < 4 * size


def test_a_scan_for_a_few_records_reads_few_of_their_neighbours(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start asks so for each queue."""
    store.commit(put(1, numbered(0, SCAN_RECORDS)))
    ((first, value),) = numbered(0, 1)
    read: list[tuple[bytes, bytes]] = []
    some_of = state._some_of

    def noted(records: Iterator[tuple[bytes, bytes]], count: int) -> list[tuple[bytes, bytes]]:
        batch = some_of(records, count)
        read.extend(batch)
        return batch

    monkeypatch.setattr(state, "_some_of", noted)

    with store.read() as view:
        assert list(view.scan(MESSAGES, first)) == [(first, value)]

    assert len(read) <= SCAN_RECORDS // 8


def test_a_view_stays_as_it_was_even_in_another_thread(store: StateStore) -> None:
    store.commit(put(1, numbered(0, 10)))
    seen: list[int] = []
    with store.read() as view:
        store.commit(Cut(2, 1, 20, deletes=[(MESSAGES, [key for key, _ in numbered(0, 5)])]))

        reader = threading.Thread(target=lambda: seen.append(len(list(view.scan(MESSAGES)))))
        reader.start()
        reader.join()

        assert view.applied().log_index == 1
    assert seen == [10]
    assert store.applied().log_index == 2


def test_a_view_is_of_no_use_after_its_block(store: StateStore) -> None:
    store.commit(put(1, numbered(0, 2 * SCAN_RECORDS)))
    with store.read() as view:
        scan = view.scan(MESSAGES)
        for _ in range(SCAN_RECORDS_FIRST):  # what was taken together is given out
            next(scan)

    with pytest.raises(Busy):
        view.get(MESSAGES, b"a")
    with pytest.raises(Busy):
        next(scan)
    assert store.stats().readers == 0


def test_sweep_removes_a_buried_queue_in_slices_and_leaves_its_neighbours(store: StateStore) -> None:
    dead, alive = (7).to_bytes(8, "big"), (8).to_bytes(8, "big")
    store.commit(put(1, [*((b"q-0000007_%08d" % n, b"") for n in range(10)), (b"q-0000008_00000001", b"kept")]))
    store.commit(put(2, [(dead + b"1", b""), (alive + b"1", b"")], table=INDEX))
    store.commit(put(3, [(dead + b"\x01x", b""), (alive + b"\x01x", b"")], table=DEDUP))
    store.commit(put(4, [(dead, b"q-0000007_")], table=GRAVES))

    more = [store.sweep(limit=5), store.sweep(limit=5), store.sweep(limit=5), store.sweep(limit=5)]

    assert more == [True, True, False, False]
    assert dict(store.stats().records) == {MESSAGES: 1, INDEX: 1, QUEUES: 0, DEDUP: 1, GRAVES: 0, META: 4}
    assert store.get_many([b"q-0000008_00000001"]) == [b"kept"]
    assert store.applied() == Applied(4, 1, 40)


def test_churn_does_not_grow_the_file(store: StateStore) -> None:
    store.commit(put(1, numbered(0, 500)))
    sizes = []
    for turn in range(1, 40):
        gone = [key for key, _ in numbered(500 * turn - 500, 500 * turn)]
        store.commit(
            Cut(
                turn + 1,
                1,
                turn,
                puts=[(MESSAGES, numbered(500 * turn, 500 * turn + 500))],
                deletes=[(MESSAGES, gone)],
            )
        )
        sizes.append(store.stats().pages)

    assert sizes[-1] <= 1.2 * sizes[9]


def test_the_file_is_never_left_shorter_than_its_last_page(
    store: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # When LMDB itself leaves it short is its secret: another file stands for one that it left so.
    short = tmp_path / "short"
    short.write_bytes(b"page")
    monkeypatch.setattr(state, "lengthen", lambda env, path, read_only: lengthen(env, short, read_only=read_only))

    store.commit(put(1, numbered(0, 500)))

    stats = store.stats()
    assert short.stat().st_size == stats.pages * stats.page_bytes
    assert short.read_bytes().rstrip(b"\0") == b"page"


# The map --------------------------------------------------------------------------------------------


def test_a_full_map_grows_and_the_whole_cut_is_done_again(directory: Path) -> None:
    store = open_store(directory, map_bytes=MAP_BYTES)

    store.commit(put(1, numbered(0, 10)))
    store.commit(put(2, numbered(10, 5000, size=1000)))

    stats = store.stats()
    assert stats.map_bytes > MAP_BYTES
    assert stats.records[MESSAGES] == 5000
    assert store.applied().log_index == 2
    store.close()


def test_a_view_that_stands_in_the_way_of_a_growing_map_says_so(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "GROW_WAIT_S", 0.0)
    store = open_store(directory, map_bytes=MAP_BYTES)
    with store.read() as view:
        store.commit(put(1, numbered(0, 5000, size=1000)))

        with pytest.raises(Busy, match="read again"):
            view.get(MESSAGES, b"a")

    assert store.stats().records[MESSAGES] == 5000
    store.close()


def test_a_small_address_space_gets_a_smaller_map(directory: Path) -> None:
    code = f"""
import resource, pathlib
from wakeq.storage.state import SCAN_RECORDS, StateStore
resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32))
store = StateStore.open(pathlib.Path({str(directory)!r}), cluster_id=b"c", node_id=1)
print(store.stats().map_bytes)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert 1 << 26 <= int(out) < 1 << 32


def test_a_reader_of_another_process_follows_a_grown_map(directory: Path) -> None:
    writer = open_store(directory, map_bytes=MAP_BYTES)
    writer.commit(put(1, numbered(0, 1)))
    code = f"""
import pathlib
from wakeq.storage.state import SCAN_RECORDS, StateStore
store = StateStore.open(pathlib.Path({str(directory)!r}), cluster_id=None, node_id=None, read_only=True,
                        map_bytes=1 << 20)
print(store.applied().log_index, flush=True)
input()
print(store.applied().log_index, store.stats().records[1])
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        first = reader.stdout.readline()
        writer.commit(put(2, numbered(1, 5000, size=1000)))
        second, _ = reader.communicate("\n")

    assert (first, second) == ("1\n", "2 5000\n")
    writer.close()


# Refusals -------------------------------------------------------------------------------------------


def test_the_state_of_another_node_is_refused(store: StateStore, directory: Path) -> None:
    store.close()

    with pytest.raises(DamagedFile, match="state of node 1 of cluster"):
        open_store(directory, node_id=2)
    with pytest.raises(DamagedFile, match="point the node at its own data directory"):
        open_store(directory, cluster_id=b"another")
    open_store(directory).close()


def test_a_format_of_a_later_release_is_refused(store: StateStore, directory: Path) -> None:
    store.close()
    change_raw(directory, b"meta", FORMAT_KEY, encode_number(2))

    with pytest.raises(WrongVersion, match="format 2, this release reads 1; use the release that wrote it"):
        open_store(directory)


@pytest.mark.parametrize("key", [FORMAT_KEY, APPLIED_KEY, b"cluster", b"node"])
def test_a_damaged_record_of_meta_is_refused(store: StateStore, directory: Path, key: bytes) -> None:
    store.close()
    change_raw(directory, b"meta", key, b"\x00" * 28)

    with pytest.raises(DamagedFile, match="makes a new one from its snapshot and its log"):
        open_store(directory)


def test_an_environment_of_somebody_else_is_refused(directory: Path) -> None:
    directory.mkdir()
    change_raw(directory, b"theirs", b"key", b"value")

    with pytest.raises(DamagedFile, match="expected the tables of a wakeq state"):
        open_store(directory)


def test_a_file_that_is_no_environment_is_refused(directory: Path) -> None:
    directory.mkdir()
    (directory / DATA_FILE).write_bytes(b"no environment" * 1000)

    with pytest.raises(DamagedFile, match="expected an LMDB environment"):
        open_store(directory)


def test_a_file_whose_end_was_cut_off_is_reported_and_does_not_kill_the_process(
    store: StateStore, directory: Path
) -> None:
    store.commit(put(1, numbered(0, 2000, size=1000)))
    store.close()
    path = directory / DATA_FILE
    os.truncate(path, path.stat().st_size // 2)

    with pytest.raises(DamagedFile, match="the end of the file"):
        open_store(directory, read_only=True)
    with pytest.raises(DamagedFile):
        read_all_messages(directory)


def test_a_reader_of_a_directory_without_state_makes_nothing(directory: Path) -> None:
    with pytest.raises(StorageError, match="cannot be opened"):
        StateStore.open(directory, cluster_id=None, node_id=None, read_only=True)

    assert not directory.exists()


def test_opened_twice_in_one_process_is_refused(store: StateStore, directory: Path) -> None:
    with pytest.raises(StorageError, match="already open"):
        open_store(directory)


def test_a_reader_cannot_write(store: StateStore, directory: Path) -> None:
    store.close()
    store = open_store(directory, read_only=True)

    with pytest.raises(AssertionError):
        store.commit(Cut(1, 1, 1))

    store.close()


def test_writing_belongs_to_the_thread_that_began_it(store: StateStore) -> None:
    store.commit(Cut(1, 1, 1))
    errors: list[BaseException] = []

    def write() -> None:
        try:
            store.commit(Cut(2, 1, 1))
        except AssertionError as error:
            errors.append(error)

    other = threading.Thread(target=write)
    other.start()
    other.join()

    assert len(errors) == 1
    assert store.applied().log_index == 1


# What a failed write ends for good ------------------------------------------------------------------


class FailingEnvironment:
    """An environment whose transactions begin with what a disk would say."""

    def __init__(self, env: lmdb.Environment, error: Exception) -> None:
        self._env = env
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def begin(self, *args: Any, write: bool = False, **options: Any) -> Any:
        if write:
            raise self._error
        return self._env.begin(*args, **options)


def test_after_a_failed_commit_nothing_is_accepted_any_more(store: StateStore) -> None:
    store.commit(put(1, numbered(0, 10)))
    sound, error = store._env, lmdb.Error("mdb_txn_commit: Input/output error")
    store._env = FailingEnvironment(sound, error)  # type: ignore[assignment]

    with pytest.raises(SyncFailed, match="commit failed"):
        store.commit(put(2, numbered(10, 20)))

    store._env = sound  # the disk works again, or says so: nobody knows what it lost
    for use in (
        lambda: store.commit(put(2, numbered(10, 20))),
        lambda: store.get_many([b"a"]),
        lambda: store.read().__enter__(),
        store.sweep,
        store.stats,
    ):
        with pytest.raises(SyncFailed, match="not used since an earlier failure"):
            use()


def test_a_full_disk_is_told_by_the_space_that_is_left(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "free_bytes", lambda path: 0)
    error = lmdb.Error("mdb_txn_commit: Input/output error")
    store._env = FailingEnvironment(store._env, error)  # type: ignore[assignment]

    with pytest.raises(SyncFailed, match="the disk is full: free some space"):
        store.commit(put(1, numbered(0, 10)))


def test_damage_found_while_writing_is_called_damage(store: StateStore) -> None:
    error = lmdb.CorruptedError("mdb_cursor_put: MDB_CORRUPTED")
    store._env = FailingEnvironment(store._env, error)  # type: ignore[assignment]

    with pytest.raises(DamagedFile, match="MDB_CORRUPTED"):
        store.commit(put(1, numbered(0, 10)))


def test_a_file_size_limit_fails_the_commit_and_keeps_the_last_state(directory: Path) -> None:
    code = f"""
import pathlib, resource, signal
from wakeq.protocol.errors import SyncFailed
from wakeq.storage.state import SCAN_RECORDS, StateStore
from wakeq.storage.store import Cut
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = StateStore.open(pathlib.Path({str(directory)!r}), cluster_id={CLUSTER!r}, node_id=1)
store.commit(Cut(1, 1, 1, puts=[(1, [(b"a", b"1")])]))
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    store.commit(Cut(2, 1, 2, puts=[(1, [(b"%08d" % n, b"v" * 1000) for n in range(5000)])]))
except SyncFailed as error:
    print("refused")
try:
    store.commit(Cut(2, 1, 2))
except SyncFailed as error:
    print("latched")
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    store = open_store(directory)
    assert out == "refused\nlatched\n"
    assert store.applied().log_index == 1
    assert store.get_many([b"a"]) == [b"1"]
    store.close()


def test_a_dead_reader_is_found_and_released(store: StateStore, directory: Path) -> None:
    code = f"""
import os, pathlib, signal
from wakeq.storage.state import SCAN_RECORDS, StateStore
store = StateStore.open(pathlib.Path({str(directory)!r}), cluster_id=None, node_id=None, read_only=True)
with store.read() as view:
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    store.commit(put(1, numbered(0, 10)))
    assert store.stats().readers == 1
    assert store.stats().oldest_reader_behind == 1

    released = store.reader_check()

    assert released == 1
    assert store.stats().readers == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_or_quota_is_told_by_the_words_of_the_error(store: StateStore, number: int) -> None:
    error = lmdb.Error(f"mdb_txn_commit: {os.strerror(number)}")
    store._env = FailingEnvironment(store._env, error)  # type: ignore[assignment]

    with pytest.raises(SyncFailed, match="the disk is full"):
        store.commit(put(1, numbered(0, 10)))


def test_a_grave_does_not_take_the_messages_of_a_queue_whose_name_begins_like_its_keys(tmp_path: Path) -> None:
    for store in (open_store(tmp_path), MemoryStore()):
        other = b"a-0000005_x-0000009_00000001"
        dead = b"a-0000005_00000001"
        store.commit(Cut(1, 1, 1, [(MESSAGES, [(other, b"living"), (dead, b"dead")])]))
        store.commit(Cut(2, 1, 2, [(GRAVES, [((5).to_bytes(8, "big"), b"a-0000005_")])]))

        while store.sweep():
            pass

        assert store.get_many([other, dead]) == [b"living", None]
        store.close()
