"""Import of version 1: it happens once and in order; after a crash at any step the next start does all of it."""

import shutil
from pathlib import Path

import pytest

from tests.helpers.disks.version1_files import HEX
from wakeq.protocol.errors import DamagedFile, StorageError
from wakeq.storage.version1 import (
    Import,
    ImportedMessage,
    ImportedQueue,
    State,
    finish_import,
    needs_import,
    read_import,
    read_log,
    set_aside,
)


def enqueue(queue: str, key: int, payload: bytes) -> bytes:
    name = queue.encode()
    return (
        b"E"
        + bytes([len(name)])
        + name
        + key.to_bytes(8, "big", signed=True)
        + len(payload).to_bytes(4, "big")
        + payload
    )


def create(queue: str) -> bytes:
    return b"Q" + bytes([len(queue)]) + queue.encode() + bytes.fromhex("00000001ffffffffffffffff00")


def delete(queue: str) -> bytes:
    return b"R" + bytes([len(queue)]) + queue.encode()


def log_of(*entries: tuple[int, bytes]) -> bytes:
    return HEX["log_header_only"] + b"".join(
        term.to_bytes(4, "big") + len(data).to_bytes(4, "big") + data for term, data in entries
    )


def seed(directory: Path, *, log: bytes = b"", metadata: bytes = b"", snapshot: bytes = b"") -> Path:
    consensus = directory / "consensus"
    consensus.mkdir()
    for name, data in (("raft.log", log), ("raft.metadata", metadata), ("raft.snapshot", snapshot)):
        if data:
            (consensus / name).write_bytes(data)
    return directory


def messages(imported: Import) -> list[tuple[str, int, bytes]]:
    return [(item.queue, item.key, item.payload) for item in imported.items if isinstance(item, ImportedMessage)]


def queues(imported: Import) -> list[str]:
    return [item.name for item in imported.items if isinstance(item, ImportedQueue)]


def test_log_alone_is_imported_in_order(tmp_path: Path) -> None:
    seed(tmp_path, log=HEX["log_three_entries"], metadata=HEX["metadata_voted_for_0"])

    imported = read_import(tmp_path)

    assert queues(imported) == ["", "orders"]
    assert messages(imported) == [("", -10, b""), ("orders", 5, b"hello")]
    assert imported.state == State(7, 0)
    assert imported.notes == []


def test_snapshot_alone_is_imported_with_its_limits(tmp_path: Path) -> None:
    seed(tmp_path, snapshot=HEX["snapshot_three_queues"])

    imported = read_import(tmp_path)

    assert imported.items[:5] == [
        ImportedQueue(""), ImportedMessage("", 5, b"hello"), ImportedMessage("", -10, b""),
        ImportedMessage("", 5, b"again"), ImportedQueue("orders", 1000),
    ]  # fmt: skip
    assert len(messages(imported)) == 5


def test_deleted_queue_loses_its_messages(tmp_path: Path) -> None:
    log = log_of(
        (1, create("a")), (1, enqueue("a", 1, b"x")), (1, delete("a")), (1, create("a")), (1, enqueue("a", 2, b"y"))
    )
    seed(tmp_path, log=log)

    imported = read_import(tmp_path)

    assert messages(imported) == [("a", 2, b"y")]


def test_commands_without_effect_are_noted(tmp_path: Path) -> None:
    log = log_of((1, enqueue("nowhere", 1, b"x")), (1, delete("")), (1, create("")), (1, delete("none")))
    seed(tmp_path, log=log)

    imported = read_import(tmp_path)

    assert (queues(imported), messages(imported), len(imported.notes)) == ([""], [], 4)


def test_undecodable_command_is_refused(tmp_path: Path) -> None:
    seed(tmp_path, log=HEX["log_empty_data_and_max_term"])

    with pytest.raises(DamagedFile, match="at offset 16: expected 1 bytes of a command"):
        read_import(tmp_path)


def snapshot_of(last_index: int, last_term: int, *records: tuple[int, bytes]) -> bytes:
    data = b"".join(
        key.to_bytes(8, "big", signed=True) + len(payload).to_bytes(4, "big") + payload for key, payload in records
    )
    head = b"".join(number.to_bytes(4, "big") for number in (last_index, last_term, 1))
    return bytes.fromhex("2f6f0f2f") + head + bytes(5) + len(records).to_bytes(4, "big") + data


def test_entries_in_the_snapshot_are_not_imported_twice(tmp_path: Path) -> None:
    log = log_of((1, enqueue("", 1, b"a")), (1, enqueue("", 2, b"b")), (2, enqueue("", 3, b"c")))
    seed(tmp_path, log=log, snapshot=snapshot_of(1, 1, (2, b"b")))

    imported = read_import(tmp_path)

    assert messages(imported) == [("", 2, b"b"), ("", 3, b"c")]
    assert "its first 2 entries are in the snapshot" in imported.notes[0]


def test_log_that_begins_behind_the_snapshot_is_imported_whole(tmp_path: Path) -> None:
    log = log_of((1, enqueue("", 5, b"d")), (1, enqueue("", 6, b"e")))
    seed(tmp_path, log=log, snapshot=snapshot_of(1, 1, (2, b"b")))

    imported = read_import(tmp_path)

    assert messages(imported) == [("", 2, b"b"), ("", 5, b"d"), ("", 6, b"e")]
    assert "cut behind the snapshot" in imported.notes[0]


def test_incomplete_tail_is_noted_and_entries_before_it_are_imported(tmp_path: Path) -> None:
    seed(tmp_path, log=HEX["log_torn_data"])

    imported = read_import(tmp_path)

    assert messages(imported) == [("orders", 5, b"hello")]
    assert "entry 2 is incomplete" in imported.notes[0]


# Renaming ---------------------------------------------------------------------------------------------------


def whole_seed(directory: Path) -> Path:
    log = log_of((1, enqueue("", 3, b"c")))
    return seed(directory, log=log, metadata=HEX["metadata_voted_for_2"], snapshot=snapshot_of(9, 1, (2, b"b")))


def test_import_is_needed_only_for_version_1(tmp_path: Path) -> None:
    assert not needs_import(tmp_path)
    whole_seed(tmp_path)
    assert needs_import(tmp_path)

    (tmp_path / "VERSION").write_text("wakeq data directory 2\n")

    assert not needs_import(tmp_path)


def test_file_with_a_wrong_prefix_needs_an_import_and_is_refused(tmp_path: Path) -> None:
    seed(tmp_path, log=HEX["log_wrong_marker"])

    assert needs_import(tmp_path)
    with pytest.raises(DamagedFile, match=r"raft\.log: at offset 0: expected file prefix 2f6f0f2f, found 1276ad55"):
        read_import(tmp_path)


def test_renamed_files_are_kept_byte_for_byte(tmp_path: Path) -> None:
    consensus = whole_seed(tmp_path) / "consensus"
    before = {path.name: path.read_bytes() for path in consensus.iterdir()}
    imported = read_import(tmp_path)

    set_aside(tmp_path)
    assert needs_import(tmp_path)
    assert read_import(tmp_path) == imported
    (tmp_path / "VERSION").write_text("wakeq data directory 2\n")
    finish_import(tmp_path)

    assert {path.name: path.read_bytes() for path in consensus.iterdir()} == {
        name + ".v1": data for name, data in before.items()
    }
    assert not needs_import(tmp_path)


def test_crash_in_an_import_leaves_all_data_to_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.rename
    for steps in range(4):
        directory = tmp_path / str(steps)
        directory.mkdir()
        imported = read_import(whole_seed(directory))
        done: list[Path] = []

        def rename(self: Path, target: Path, done: list[Path] = done, steps: int = steps) -> Path:
            if len(done) == steps:
                raise KeyboardInterrupt
            done.append(self)
            return real(self, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", rename)
            if steps < 3:
                with pytest.raises(KeyboardInterrupt):
                    set_aside(directory)
            else:
                set_aside(directory)
        assert needs_import(directory)
        assert read_import(directory) == imported
        set_aside(directory)
        assert read_import(directory) == imported


def test_unfinished_import_is_dropped_and_its_source_kept(tmp_path: Path) -> None:
    whole_seed(tmp_path)
    imported = read_import(tmp_path)
    set_aside(tmp_path)
    consensus = tmp_path / "consensus"
    (consensus / "raft.log").write_bytes(b"half of a new log")
    (consensus / "raft.metadata").write_bytes(bytes.fromhex("2f6f0f2f00000002"))
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "data.mdb").write_bytes(b"half")

    assert read_import(tmp_path) == imported
    set_aside(tmp_path)

    names = sorted(path.name for path in consensus.iterdir())
    assert names == ["import.unfinished", "raft.log.v1", "raft.metadata.v1", "raft.snapshot.v1"]
    assert not list((tmp_path / "state").iterdir())
    assert read_import(tmp_path) == imported


def test_unreadable_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "raft.log").mkdir()

    with pytest.raises(StorageError, match="cannot be read"):
        read_log(tmp_path / "raft.log")
    shutil.rmtree(tmp_path / "raft.log")
