"""StateStore and the map of its file: the map grows beside readers, and fits into a small address space."""

import subprocess
import sys
import threading
from pathlib import Path

import lmdb
import pytest

from tests.helpers.disks.state import numbered, open_store, put
from wakeq.protocol.errors import Busy, StorageError
from wakeq.storage.state import lmdb_store as state
from wakeq.storage.state.store import MESSAGES

MAP_BYTES = 1 << 20


def test_full_map_grows_and_the_checkpoint_is_committed(directory: Path) -> None:
    store = open_store(directory, map_bytes=MAP_BYTES)

    store.commit(put(1, numbered(0, 10)))
    store.commit(put(2, numbered(10, 5000, size=1000)))

    stats = store.stats()
    assert stats.map_bytes > MAP_BYTES
    assert stats.records[MESSAGES] == 5000
    assert store.applied().log_index == 2
    store.close()


def test_view_closed_by_a_growing_map_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "GROW_WAIT_S", 0.0)
    store = open_store(directory, map_bytes=MAP_BYTES)
    with store.read() as view:
        store.commit(put(1, numbered(0, 5000, size=1000)))

        with pytest.raises(Busy, match="read again"):
            view.get(MESSAGES, b"a")

    assert store.stats().records[MESSAGES] == 5000
    store.close()


def test_small_address_space_gets_a_smaller_map(directory: Path) -> None:
    code = f"""
import resource, pathlib
from wakeq.storage.state.lmdb_store import SCAN_RECORDS, StateStore
resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32))
store = StateStore.open(pathlib.Path({str(directory)!r}), cluster_id=b"c", node_id=1)
print(store.stats().map_bytes)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert 1 << 26 <= int(out) < 1 << 32


def test_reader_in_another_process_follows_a_grown_map(directory: Path) -> None:
    writer = open_store(directory, map_bytes=MAP_BYTES)
    writer.commit(put(1, numbered(0, 1)))
    code = f"""
import pathlib
from wakeq.storage.state.lmdb_store import SCAN_RECORDS, StateStore
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


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The directory of each environment that is opened, in order."""
    opened: list[Path] = []
    open_environment = state.open_environment

    def noted(directory: Path, map_bytes: int, *, read_only: bool) -> "lmdb.Environment":
        opened.append(directory)
        return open_environment(directory, map_bytes, read_only=read_only)

    monkeypatch.setattr(state, "open_environment", noted)
    return opened


def test_release_of_memory_reopens_the_store_with_all_records(directory: Path, opened: list[Path]) -> None:
    store = open_store(directory)

    for index in (1, 2, 3):
        store.commit(put(index, numbered(index, index + 1)))
        store.release_memory()

    assert len(opened) == 1 + 3
    assert store.stats().records[MESSAGES] == 3
    assert store.applied().log_index == 3
    assert store.reader_check() == 0
    store.close()


def test_release_of_memory_frees_the_pages_of_large_writes(directory: Path) -> None:
    code = f"""
import os, pathlib
from tests.helpers.disks.state import numbered, open_store, put
def private_bytes():
    _, resident, shared = pathlib.Path("/proc/self/statm").read_bytes().split()[:3]
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGESIZE")
store = open_store(pathlib.Path({str(directory)!r}))
before = private_bytes()
store.commit(put(1, numbered(0, 20_000, size=1_000)))
kept = private_bytes() - before
store.release_memory()
print(kept, private_bytes() - before)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    kept, left = map(int, out.split())
    assert kept > 16 << 20
    assert left < 8 << 20


def test_grown_map_keeps_its_size_after_memory_is_released(directory: Path) -> None:
    store = open_store(directory, map_bytes=MAP_BYTES)
    store.commit(put(1, numbered(10, 5000, size=1000)))
    map_bytes = store.stats().map_bytes

    store.release_memory()

    assert store.stats().map_bytes == map_bytes > MAP_BYTES
    store.close()


def test_view_prevents_reopening_and_does_not_change(directory: Path, opened: list[Path]) -> None:
    store = open_store(directory)
    store.commit(put(1, numbered(0, 1)))
    with store.read() as view:
        store.commit(put(2, numbered(1, 2)))
        store.release_memory()

        assert view.count(MESSAGES) == 1
        assert len(opened) == 1

    store.release_memory()
    assert len(opened) == 2
    store.close()


def test_reads_during_reopening_succeed(directory: Path) -> None:
    store = open_store(directory)
    ((key, value),) = numbered(2, 3)
    found: set[bytes | None] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            found.update(store.get_many([key]))

    store.commit(put(1, numbered(2, 3)))
    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(50):
        store.release_memory()
    done.set()
    for reader in readers:
        reader.join()

    assert found == {value}
    store.close()


def test_store_refuses_all_use_after_reopening_fails(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(directory)

    def fail(*_: object, **__: object) -> None:
        raise StorageError("too many open files")

    monkeypatch.setattr(state, "open_environment", fail)
    with pytest.raises(StorageError, match="too many open files"):
        store.release_memory()

    with pytest.raises(StorageError, match="not used since"):
        store.commit(put(1, numbered(0, 1)))
    with pytest.raises(StorageError, match="not used since"), store.read():
        pass
    store.close()
