"""StateStore on a real disk: the records that it keeps, the order of reads, and their cost."""

import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.disks.state import numbered, open_store, put
from wakeq.protocol.errors import Busy
from wakeq.storage.state import lmdb_store as state
from wakeq.storage.state.environment import DATA_FILE, lengthen
from wakeq.storage.state.lmdb_store import SCAN_BYTES, SCAN_RECORDS, SCAN_RECORDS_FIRST, StateStore
from wakeq.storage.state.memory import MemoryStore
from wakeq.storage.state.store import DEDUP, GRAVES, INDEX, MESSAGES, META, QUEUES, Applied, Checkpoint


def test_new_state_has_applied_nothing(store: StateStore, directory: Path) -> None:
    assert store.applied() == Applied(0, 0, 0)
    assert (directory / DATA_FILE).stat().st_mode & 0o077 == 0  # other users cannot read messages


def test_committed_records_are_read_after_reopening(store: StateStore, directory: Path) -> None:
    store.commit(Checkpoint(7, 3, 70, puts=[(MESSAGES, [(b"q-b", b""), (b"q-a", b"1")]), (QUEUES, [(b"k", b"v")])]))
    store.commit(Checkpoint(9, 3, 90, puts=[(MESSAGES, [(b"q-c", b"3")])], deletes=[(MESSAGES, [b"q-a", b"q-x"])]))
    store.close()

    store = open_store(directory)

    assert store.applied() == Applied(9, 3, 90)
    assert store.get_many([b"q-c", b"q-a", b"q-b"]) == [b"3", None, b""]
    with store.read() as view:
        assert list(view.scan(QUEUES)) == [(b"k", b"v")]
        assert view.applied() == Applied(9, 3, 90)
    store.close()


def test_later_put_of_one_key_wins(store: StateStore) -> None:
    store.commit(put(1, [(b"a", b"9"), (b"b", b"2"), (b"a", b"3")]))
    store.commit(put(2, [(b"b", b"4"), (b"c", b"7"), (b"c", b"6")]))

    assert store.get_many([b"a", b"b", b"c"]) == [b"3", b"4", b"6"]


def test_puts_before_within_and_behind_a_table_are_stored(store: StateStore) -> None:
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
    assert used / 3000 < 1400  # it would be 2,100 if pages were split in halves
    assert stats.records[MESSAGES] == 3000


def test_scan_yields_one_prefix_in_order(store: StateStore) -> None:
    store.commit(put(1, [(b"b2", b""), (b"a", b""), (b"b1", b""), (b"c", b""), (b"b", b"")], table=INDEX))

    with store.read() as view:
        assert [key for key, _ in view.scan(INDEX, b"b")] == [b"b", b"b1", b"b2"]
        assert [key for key, _ in view.scan(INDEX)] == [b"a", b"b", b"b1", b"b2", b"c"]
        assert list(view.scan(INDEX, b"d")) == []
        assert list(view.scan(DEDUP)) == []


@pytest.mark.parametrize("count", [SCAN_RECORDS - 1, SCAN_RECORDS, SCAN_RECORDS + 1, 2 * SCAN_RECORDS + 7])
def test_long_scan_is_complete_and_ends_with_its_prefix(store: StateStore, count: int) -> None:
    mine = [(b"b%06d" % number, b"v") for number in range(count)]
    others = [(b"a", b"v"), *((b"c%06d" % number, b"v") for number in range(SCAN_RECORDS))]
    store.commit(put(1, [*mine, *others]))

    with store.read() as view:
        assert list(view.scan(MESSAGES, b"b")) == mine
        assert len(list(view.scan(MESSAGES))) == len(mine) + len(others)


def test_scan_of_large_records_holds_only_a_few(store: StateStore) -> None:
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


def test_scan_for_a_few_records_reads_few_neighbours(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start makes such a scan for each queue."""
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


def test_view_does_not_change_even_in_another_thread(store: StateStore) -> None:
    store.commit(put(1, numbered(0, 10)))
    seen: list[int] = []
    with store.read() as view:
        store.commit(Checkpoint(2, 1, 20, deletes=[(MESSAGES, [key for key, _ in numbered(0, 5)])]))

        reader = threading.Thread(target=lambda: seen.append(len(list(view.scan(MESSAGES)))))
        reader.start()
        reader.join()

        assert view.applied().log_index == 1
    assert seen == [10]
    assert store.applied().log_index == 2


def test_view_is_refused_after_its_block(store: StateStore) -> None:
    store.commit(put(1, numbered(0, 2 * SCAN_RECORDS)))
    with store.read() as view:
        scan = view.scan(MESSAGES)
        # Records that were read at once are still yielded.
        for _ in range(SCAN_RECORDS_FIRST):
            next(scan)

    with pytest.raises(Busy):
        view.get(MESSAGES, b"a")
    with pytest.raises(Busy):
        next(scan)
    assert store.stats().readers == 0


def test_sweep_removes_a_deleted_queue_in_slices(store: StateStore) -> None:
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
            Checkpoint(
                turn + 1,
                1,
                turn,
                puts=[(MESSAGES, numbered(500 * turn, 500 * turn + 500))],
                deletes=[(MESSAGES, gone)],
            )
        )
        sizes.append(store.stats().pages)

    assert sizes[-1] <= 1.2 * sizes[9]


def test_commit_leaves_the_file_as_long_as_its_last_page(
    store: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is not known when LMDB leaves its file short: another file stands for such a one.
    short = tmp_path / "short"
    short.write_bytes(b"page")
    monkeypatch.setattr(state, "lengthen", lambda env, path, read_only: lengthen(env, short, read_only=read_only))

    store.commit(put(1, numbered(0, 500)))

    stats = store.stats()
    assert short.stat().st_size == stats.pages * stats.page_bytes
    assert short.read_bytes().rstrip(b"\0") == b"page"


def test_dead_reader_is_found_and_released(store: StateStore, directory: Path) -> None:
    code = f"""
import os, pathlib, signal
from wakeq.storage.state.lmdb_store import SCAN_RECORDS, StateStore
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


def test_sweep_keeps_messages_of_a_queue_named_like_a_grave(tmp_path: Path) -> None:
    for store in (open_store(tmp_path), MemoryStore()):
        other = b"a-0000005_x-0000009_00000001"
        dead = b"a-0000005_00000001"
        store.commit(Checkpoint(1, 1, 1, [(MESSAGES, [(other, b"living"), (dead, b"dead")])]))
        store.commit(Checkpoint(2, 1, 2, [(GRAVES, [((5).to_bytes(8, "big"), b"a-0000005_")])]))

        while store.sweep():
            pass

        assert store.get_many([other, dead]) == [b"living", None]
        store.close()
