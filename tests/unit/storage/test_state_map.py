"""StateStore and the map of its file: it grows under writers and readers, and fits into a small address space."""

import subprocess
import sys
import threading
from pathlib import Path

import lmdb
import pytest

from tests.helpers.state_by_hand import numbered, open_store, put
from wakeq.protocol.errors import Busy, StorageError
from wakeq.storage import state
from wakeq.storage.flush import ID
from wakeq.storage.store import MESSAGES, QUEUES, Cut

MAP_BYTES = 1 << 20


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


def spread(index: int) -> Cut:
    """Return a cut of two queues with a message each."""
    queues = [(ID.pack(number), b"meta") for number in (1, 2)]
    return Cut(index, 1, 0, [(QUEUES, queues), (MESSAGES, numbered(2 * index, 2 * index + 2))])


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What is opened, where two queues are many already."""
    opened: list[Path] = []
    open_environment = state.open_environment

    def noted(directory: Path, map_bytes: int, *, read_only: bool) -> "lmdb.Environment":
        opened.append(directory)
        return open_environment(directory, map_bytes, read_only=read_only)

    monkeypatch.setattr(state, "SPREAD_QUEUES", 1)
    monkeypatch.setattr(state, "open_environment", noted)
    return opened


def test_after_a_cut_of_many_queues_the_file_is_opened_anew_and_has_all(directory: Path, opened: list[Path]) -> None:
    store = open_store(directory)

    for index in (1, 2, 3):
        store.commit(spread(index))
        store.commit(spread(index))  # as many may come again
        store.commit(put(index, numbered(100 + index, 101 + index)))

    assert len(opened) == 1 + 3
    assert store.stats().records[MESSAGES] == 9
    assert store.applied().log_index == 3
    assert store.reader_check() == 0
    store.close()


def test_a_map_that_has_grown_stays_so_when_the_file_is_opened_anew(directory: Path, opened: list[Path]) -> None:
    store = open_store(directory, map_bytes=MAP_BYTES)
    store.commit(put(1, numbered(10, 5000, size=1000)))
    map_bytes = store.stats().map_bytes

    store.commit(spread(2))
    store.rest()

    assert len(opened) == 2
    assert store.stats().map_bytes == map_bytes > MAP_BYTES
    store.close()


def test_a_view_keeps_the_file_from_being_opened_anew_and_sees_what_it_saw(directory: Path, opened: list[Path]) -> None:
    store = open_store(directory)
    store.commit(put(1, numbered(0, 1)))
    with store.read() as view:
        store.commit(spread(2))
        store.rest()

        assert view.count(MESSAGES) == 1
        assert len(opened) == 1

    store.rest()
    assert len(opened) == 2
    store.close()


def test_who_reads_while_the_file_is_opened_anew_reads_behind_it(directory: Path, opened: list[Path]) -> None:
    store = open_store(directory)
    key = numbered(2, 3)[0][0]
    found: list[list[bytes | None]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            found.append(store.get_many([key]))

    store.commit(spread(1))
    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(50):
        store.commit(spread(1))
        store.rest()
    done.set()
    for reader in readers:
        reader.join()

    assert found
    assert None not in [value for values in found for value in values]
    store.close()


def test_a_file_that_cannot_be_opened_anew_is_not_used_any_more(
    directory: Path, opened: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(directory)
    store.commit(spread(1))

    def fail(*_: object, **__: object) -> None:
        raise StorageError("too many open files")

    monkeypatch.setattr(state, "open_environment", fail)
    with pytest.raises(StorageError, match="too many open files"):
        store.rest()

    with pytest.raises(StorageError, match="not used since"):
        store.commit(spread(2))
    with pytest.raises(StorageError, match="not used since"), store.read():
        pass
    store.close()
