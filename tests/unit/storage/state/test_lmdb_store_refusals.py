"""StateStore: the files that it refuses to open, the uses that it refuses, and its error texts."""

import contextlib
import os
import threading
from pathlib import Path

import lmdb
import pytest

from tests.helpers.disks.state import numbered, open_store, put
from wakeq.protocol.errors import DamagedFile, StorageError, WrongVersion
from wakeq.protocol.log.layout import BadRecord
from wakeq.storage.state.environment import DATA_FILE
from wakeq.storage.state.lmdb_store import StateStore
from wakeq.storage.state.store import APPLIED_KEY, FORMAT_KEY, MESSAGES, Checkpoint, encode_number


def read_all_messages(directory: Path) -> list[tuple[bytes, bytes]]:
    with contextlib.closing(open_store(directory)) as store, store.read() as view:
        return list(view.scan(MESSAGES))


def change_raw(directory: Path, table: bytes, key: bytes, value: bytes) -> None:
    with lmdb.open(str(directory), max_dbs=8) as env, env.begin(write=True) as txn:
        txn.put(key, value, db=env.open_db(table, txn=txn))


def test_state_of_another_node_is_refused(store: StateStore, directory: Path) -> None:
    store.close()

    with pytest.raises(DamagedFile, match="state of node 1 of cluster"):
        open_store(directory, node_id=2)
    with pytest.raises(DamagedFile, match="point the node at its own data directory"):
        open_store(directory, cluster_id=b"another")
    open_store(directory).close()


def test_format_of_a_later_release_is_refused(store: StateStore, directory: Path) -> None:
    store.close()
    change_raw(directory, b"meta", FORMAT_KEY, encode_number(2))

    with pytest.raises(WrongVersion, match="format 2, this release reads 1; use the release that wrote it"):
        open_store(directory)


@pytest.mark.parametrize("key", [FORMAT_KEY, APPLIED_KEY, b"cluster", b"node"])
def test_damaged_record_of_meta_is_refused(store: StateStore, directory: Path, key: bytes) -> None:
    store.close()
    change_raw(directory, b"meta", key, b"\x00" * 28)

    with pytest.raises(DamagedFile, match="makes a new one from its snapshot and its log"):
        open_store(directory)


def test_bad_record_in_a_view_is_reported_as_damaged_file(store: StateStore) -> None:
    with (
        pytest.raises(
            DamagedFile, match=r"data\.mdb: at offset 0: expected whole records, found half a one; stop the node"
        ),
        store.read(),
    ):
        raise BadRecord("half a one")


def test_environment_of_another_program_is_refused(directory: Path) -> None:
    directory.mkdir()
    change_raw(directory, b"theirs", b"key", b"value")

    with pytest.raises(DamagedFile, match="expected the tables of a wakeq state"):
        open_store(directory)


def test_file_that_is_no_environment_is_refused(directory: Path) -> None:
    directory.mkdir()
    (directory / DATA_FILE).write_bytes(b"no environment" * 1000)

    with pytest.raises(DamagedFile, match="expected an LMDB environment"):
        open_store(directory)


def test_truncated_file_is_reported_without_killing_the_process(store: StateStore, directory: Path) -> None:
    store.commit(put(1, numbered(0, 2000, size=1000)))
    store.close()
    path = directory / DATA_FILE
    os.truncate(path, path.stat().st_size // 2)

    with pytest.raises(DamagedFile, match="the end of the file"):
        open_store(directory, read_only=True)
    with pytest.raises(DamagedFile):
        read_all_messages(directory)


def test_reader_without_a_state_creates_nothing(directory: Path) -> None:
    with pytest.raises(StorageError, match="found no file"):
        StateStore.open(directory, cluster_id=None, node_id=None, read_only=True)

    assert not directory.exists()


def test_second_open_in_one_process_is_refused(store: StateStore, directory: Path) -> None:
    with pytest.raises(StorageError, match="already open"):
        open_store(directory)


def test_reader_cannot_write(store: StateStore, directory: Path) -> None:
    store.close()
    store = open_store(directory, read_only=True)

    with pytest.raises(AssertionError):
        store.commit(Checkpoint(1, 1, 1))

    store.close()


def test_write_from_another_thread_is_refused(store: StateStore) -> None:
    store.commit(Checkpoint(1, 1, 1))
    errors: list[BaseException] = []

    def write() -> None:
        try:
            store.commit(Checkpoint(2, 1, 1))
        except AssertionError as error:
            errors.append(error)

    other = threading.Thread(target=write)
    other.start()
    other.join()

    assert len(errors) == 1
    assert store.applied().log_index == 1
