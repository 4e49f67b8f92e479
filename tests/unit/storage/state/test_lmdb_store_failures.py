"""StateStore after a failed write: it refuses all use, and the error names the cause."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lmdb
import pytest

from tests.helpers.disks.state import CLUSTER, numbered, open_store, put
from wakeq.protocol.errors import DamagedFile, SyncFailed
from wakeq.storage import files
from wakeq.storage.state.lmdb_store import StateStore


class FailingEnvironment:
    """An environment whose write transactions fail with a given error."""

    def __init__(self, env: lmdb.Environment, error: Exception) -> None:
        self._env = env
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def begin(self, *args: Any, write: bool = False, **options: Any) -> Any:
        if write:
            raise self._error
        return self._env.begin(*args, **options)


def test_store_refuses_all_use_after_a_failed_commit(store: StateStore) -> None:
    store.commit(put(1, numbered(0, 10)))
    sound, error = store._env, lmdb.Error("mdb_txn_commit: Input/output error")
    store._env = FailingEnvironment(sound, error)  # type: ignore[assignment]

    with pytest.raises(SyncFailed, match="commit failed"):
        store.commit(put(2, numbered(10, 20)))

    # The disk may work again by now; nobody knows what it lost.
    store._env = sound
    for use in (
        lambda: store.commit(put(2, numbered(10, 20))),
        lambda: store.get_many([b"a"]),
        lambda: store.read().__enter__(),
        store.sweep,
        store.stats,
    ):
        with pytest.raises(SyncFailed, match="not used since an earlier failure"):
            use()


def test_full_disk_is_recognised_by_the_free_space(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "free_bytes", lambda path: 0)
    error = lmdb.Error("mdb_txn_commit: Input/output error")
    store._env = FailingEnvironment(store._env, error)  # type: ignore[assignment]

    with pytest.raises(SyncFailed, match="the disk is full: free some space"):
        store.commit(put(1, numbered(0, 10)))


def test_damage_found_by_a_write_is_reported_as_damage(store: StateStore) -> None:
    error = lmdb.CorruptedError("mdb_cursor_put: MDB_CORRUPTED")
    store._env = FailingEnvironment(store._env, error)  # type: ignore[assignment]

    with pytest.raises(DamagedFile, match="MDB_CORRUPTED"):
        store.commit(put(1, numbered(0, 10)))


def test_commit_over_the_file_size_limit_keeps_the_last_state(directory: Path) -> None:
    code = f"""
import pathlib, resource, signal
from wakeq.protocol.errors import SyncFailed
from wakeq.storage.state.lmdb_store import SCAN_RECORDS, StateStore
from wakeq.storage.state.store import Checkpoint
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = StateStore.open(pathlib.Path({str(directory)!r}), cluster_id={CLUSTER!r}, node_id=1)
store.commit(Checkpoint(1, 1, 1, puts=[(1, [(b"a", b"1")])]))
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    store.commit(Checkpoint(2, 1, 2, puts=[(1, [(b"%08d" % n, b"v" * 1000) for n in range(5000)])]))
except SyncFailed as error:
    print("refused")
try:
    store.commit(Checkpoint(2, 1, 2))
except SyncFailed as error:
    print("latched")
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    store = open_store(directory)
    assert out == "refused\nlatched\n"
    assert store.applied().log_index == 1
    assert store.get_many([b"a"]) == [b"1"]
    store.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_or_quota_is_recognised_by_the_error_text(store: StateStore, number: int) -> None:
    error = lmdb.Error(f"mdb_txn_commit: {os.strerror(number)}")
    store._env = FailingEnvironment(store._env, error)  # type: ignore[assignment]

    with pytest.raises(SyncFailed, match="the disk is full"):
        store.commit(put(1, numbered(0, 10)))
