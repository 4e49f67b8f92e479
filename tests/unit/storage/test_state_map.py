"""StateStore and the map of its file: it grows under writers and readers, and fits into a small address space."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.state_by_hand import numbered, open_store, put
from wakeq.protocol.errors import Busy
from wakeq.storage import state
from wakeq.storage.store import MESSAGES

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
