"""Version 1: every golden file is read or refused as specified; an import survives a crash at any step."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from wakeq.protocol.errors import DamagedFile, StorageError, WrongVersion
from wakeq.storage.version1 import (
    DeletedQueue,
    Import,
    ImportedMessage,
    ImportedQueue,
    State,
    decode_command,
    finish_import,
    needs_import,
    read_import,
    read_log,
    read_metadata,
    read_snapshot,
    set_aside,
)

VECTORS = Path(__file__).parents[2] / "vectors"


def vectors(name: str) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads((VECTORS / name).read_text())["vectors"]
    return loaded


def ids(vector: dict[str, Any]) -> str:
    return str(vector["name"])


FILES = vectors("files.json")
HEX = {vector["name"]: bytes.fromhex(vector["hex"]) for vector in FILES}
REASONS = {
    "log_wrong_marker": "at offset 0: expected file prefix 2f6f0f2f, found 1276ad55",
    "log_marker_little_endian": "found 2f0f6f2f; it is little-endian",
    "log_version_2": "at offset 4: expected version 1, found 2",
    "log_version_0": "expected version 1, found 0",
    "log_short_header": "expected 8 bytes, found a file of 5 bytes",
    "log_negative_data_length": "expected a possible length, found length -1",
    "metadata_short": "expected 17 bytes, found a file of 12 bytes",
    "metadata_wrong_marker": "expected file prefix 2f6f0f2f, found 5a6ea012",
    "metadata_version_9": "expected version 1, found 9",
    "snapshot_no_queue_count": "expected",
    "snapshot_wrong_marker": "expected file prefix 2f6f0f2f, found b6380fc9",
    "snapshot_truncated": "expected 8 bytes of a queue, found the end after 6 bytes",
    "snapshot_trailing_byte": "expected the end after the last queue, found 1 more bytes",
    "snapshot_duplicate_queue": "queue 'a' named twice",
    "snapshot_bad_queue_name": "expected a valid queue name: bytes 33..126",
}


def read(path: Path) -> object:
    """Read a file of version 1 and return it in the shape of the golden vectors."""
    if path.name == "raft.log":
        log = read_log(path)
        if log.tail:
            return log.tail
        entries = [
            {"position": i, "term": entry.term, "data_hex": entry.data.hex()} for i, entry in enumerate(log.entries)
        ]
        return {"entries": entries}
    if path.name == "raft.metadata":
        state = read_metadata(path)
        return {"term": state.term, "has_vote": state.vote is not None, "vote": state.vote}
    image = read_snapshot(path)
    assert image is not None
    queues = [
        {
            "queue": queue.name,
            "max_size": queue.max_size or 0,
            "size": len(messages),
            "records": [{"key": str(each.key), "payload_hex": each.payload.hex()} for each in messages],
        }
        for queue, messages in image.queues
    ]
    return {"last_index": image.last_index, "last_term": image.last_term, "queues": queues}


def place(directory: Path, vector: dict[str, Any]) -> Path:
    path = directory / str(vector["file"])
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes.fromhex(vector["hex"]))
    return path


@pytest.mark.parametrize("vector", [each for each in FILES if each["expect"] == "accept"], ids=ids)
def test_golden_files_are_read(tmp_path: Path, vector: dict[str, Any]) -> None:
    path = place(tmp_path, vector)
    expected = {key: value for key, value in vector["decoded"].items() if key not in ("marker_hex", "version")}
    if not expected.get("has_vote", True):
        expected["vote"] = None

    assert read(path) == expected


@pytest.mark.parametrize("vector", [each for each in FILES if each["expect"].startswith("refuse")], ids=ids)
def test_golden_bad_files_are_refused_with_their_reason(tmp_path: Path, vector: dict[str, Any]) -> None:
    path = place(tmp_path, vector)

    with pytest.raises((DamagedFile, WrongVersion)) as caught:
        read(path)

    assert str(caught.value).startswith(f"{path}: ")
    assert REASONS[vector["name"]] in str(caught.value)
    assert path.read_bytes() == bytes.fromhex(vector["hex"])


@pytest.mark.parametrize("vector", [each for each in FILES if each["expect"].startswith("tail")], ids=ids)
def test_golden_tails_are_reported_and_the_entries_before_them_read(tmp_path: Path, vector: dict[str, Any]) -> None:
    path = place(tmp_path, vector)

    log = read_log(path)

    assert vector["expect"].removeprefix("tail: ") in log.tail
    assert len(log.entries) == int(vector["expect"].split()[2])


def test_every_golden_file_is_in_one_of_the_tests() -> None:
    kinds = {vector["expect"].split(":")[0] for vector in FILES}

    assert kinds == {"accept", "refuse", "tail"}
    refused = {vector["name"] for vector in FILES if vector["expect"].startswith("refuse")}
    assert refused == set(REASONS)


@pytest.mark.parametrize("name", ["raft.log", "raft.metadata", "raft.snapshot"])
def test_an_absent_or_empty_file_is_a_first_start(tmp_path: Path, name: str) -> None:
    path = tmp_path / name

    for _ in range(2):
        assert read_log(path).entries == []
        assert read_metadata(path) == State()
        assert read_snapshot(path) is None
        path.touch()


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_snapshot_cut_anywhere_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "raft.snapshot"
    path.write_bytes(HEX["snapshot_three_queues"][:-cut])

    with pytest.raises(DamagedFile):
        read_snapshot(path)


def test_a_snapshot_without_the_default_queue_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "raft.snapshot"
    path.write_bytes(bytes.fromhex("2f6f0f2f000000010000000100000001016100000000 00000000"))

    with pytest.raises(DamagedFile, match="expected the default queue among the queues"):
        read_snapshot(path)


@pytest.mark.parametrize(
    ("offset", "match"), [(4, "a possible index"), (8, "a possible term"), (12, "a possible count")]
)
def test_a_snapshot_with_negative_numbers_is_refused(tmp_path: Path, offset: int, match: str) -> None:
    path = tmp_path / "raft.snapshot"
    data = bytearray(HEX["snapshot_three_queues"])
    data[offset] = 0xFF
    path.write_bytes(data)

    with pytest.raises(DamagedFile, match=f"at offset {offset}: expected {match}"):
        read_snapshot(path)


def test_metadata_with_more_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "raft.metadata"
    path.write_bytes(HEX["metadata_initial"] + b"\0")

    with pytest.raises(DamagedFile, match="at offset 17: expected the end after 17 bytes"):
        read_metadata(path)


# Commands ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("45066f7264657273 0000000000000005 00000005 68656c6c6f", ImportedMessage("orders", 5, b"hello")),
        ("4500 fffffffffffffff6 00000000", ImportedMessage("", -10, b"")),
        ("51066f7264657273 00000001 ffffffff ffffffff 00", ImportedQueue("orders")),
        ("510161 00000000 00000000 00000007 00", ImportedQueue("a", 0, 7)),
        (
            "510161 00000002 00000005 ffffffff 01 ffffffffffffffec 0000000000000014",
            ImportedQueue("a", 5, None, -20, 20, "QA"),
        ),
        ("520161", DeletedQueue("a")),
    ],
)
def test_commands_are_decoded(text: str, command: object) -> None:
    data = bytes.fromhex(text)

    assert decode_command(data) == command
    for size in range(len(data)):
        with pytest.raises(DamagedFile):
            decode_command(data[:size])
    with pytest.raises(DamagedFile, match="expected the end after the command"):
        decode_command(data + b"\0")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("440161 00000000", "at offset 100: expected Enqueue, CreateQueue or DeleteQueue, found command 44"),
        ("450120 0000000000000000 00000000", "at offset 101: expected a valid queue name"),
        ("450161 0000000000000000 ffffffff", "found a length of -1"),
        ("510161 00000003 00000000 00000000 00", "found implementation 3"),
    ],
)
def test_bad_commands_name_their_place_in_the_file(text: str, match: str) -> None:
    with pytest.raises(DamagedFile, match=match):
        decode_command(bytes.fromhex(text), path="raft.log", offset=100)


# Import -----------------------------------------------------------------------------------------------------


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


def test_a_log_alone_is_imported_in_its_order(tmp_path: Path) -> None:
    seed(tmp_path, log=HEX["log_three_entries"], metadata=HEX["metadata_voted_for_0"])

    imported = read_import(tmp_path)

    assert queues(imported) == ["", "orders"]
    assert messages(imported) == [("", -10, b""), ("orders", 5, b"hello")]
    assert imported.state == State(7, 0)
    assert imported.notes == []


def test_a_snapshot_alone_is_imported_with_the_limits_that_it_knows(tmp_path: Path) -> None:
    seed(tmp_path, snapshot=HEX["snapshot_three_queues"])

    imported = read_import(tmp_path)

    assert imported.items[:5] == [
        ImportedQueue(""), ImportedMessage("", 5, b"hello"), ImportedMessage("", -10, b""),
        ImportedMessage("", 5, b"again"), ImportedQueue("orders", 1000),
    ]  # fmt: skip
    assert len(messages(imported)) == 5


def test_deleted_queues_take_their_messages_along(tmp_path: Path) -> None:
    log = log_of(
        (1, create("a")), (1, enqueue("a", 1, b"x")), (1, delete("a")), (1, create("a")), (1, enqueue("a", 2, b"y"))
    )
    seed(tmp_path, log=log)

    imported = read_import(tmp_path)

    assert messages(imported) == [("a", 2, b"y")]


def test_commands_that_could_not_be_done_are_noted(tmp_path: Path) -> None:
    log = log_of((1, enqueue("nowhere", 1, b"x")), (1, delete("")), (1, create("")), (1, delete("none")))
    seed(tmp_path, log=log)

    imported = read_import(tmp_path)

    assert (queues(imported), messages(imported), len(imported.notes)) == ([""], [], 4)


def test_an_undecodable_command_is_refused(tmp_path: Path) -> None:
    seed(tmp_path, log=HEX["log_empty_data_and_max_term"])

    with pytest.raises(DamagedFile, match="at offset 16: expected 1 bytes of a command"):
        read_import(tmp_path)


def snapshot_of(last_index: int, last_term: int, *records: tuple[int, bytes]) -> bytes:
    data = b"".join(
        key.to_bytes(8, "big", signed=True) + len(payload).to_bytes(4, "big") + payload for key, payload in records
    )
    head = b"".join(number.to_bytes(4, "big") for number in (last_index, last_term, 1))
    return bytes.fromhex("2f6f0f2f") + head + bytes(5) + len(records).to_bytes(4, "big") + data


def test_entries_that_the_snapshot_holds_are_not_imported_twice(tmp_path: Path) -> None:
    log = log_of((1, enqueue("", 1, b"a")), (1, enqueue("", 2, b"b")), (2, enqueue("", 3, b"c")))
    seed(tmp_path, log=log, snapshot=snapshot_of(1, 1, (2, b"b")))

    imported = read_import(tmp_path)

    assert messages(imported) == [("", 2, b"b"), ("", 3, b"c")]
    assert "its first 2 entries are in the snapshot" in imported.notes[0]


def test_a_log_that_was_cut_behind_the_snapshot_is_imported_whole(tmp_path: Path) -> None:
    log = log_of((1, enqueue("", 5, b"d")), (1, enqueue("", 6, b"e")))
    seed(tmp_path, log=log, snapshot=snapshot_of(1, 1, (2, b"b")))

    imported = read_import(tmp_path)

    assert messages(imported) == [("", 2, b"b"), ("", 5, b"d"), ("", 6, b"e")]
    assert "cut behind the snapshot" in imported.notes[0]


def test_a_tail_is_noted_and_what_stands_before_it_imported(tmp_path: Path) -> None:
    seed(tmp_path, log=HEX["log_torn_data"])

    imported = read_import(tmp_path)

    assert messages(imported) == [("orders", 5, b"hello")]
    assert "entry 2 is incomplete" in imported.notes[0]


# Setting aside ----------------------------------------------------------------------------------------------


def whole_seed(directory: Path) -> Path:
    log = log_of((1, enqueue("", 3, b"c")))
    return seed(directory, log=log, metadata=HEX["metadata_voted_for_2"], snapshot=snapshot_of(9, 1, (2, b"b")))


def test_only_a_directory_of_version_1_needs_an_import(tmp_path: Path) -> None:
    assert not needs_import(tmp_path)
    whole_seed(tmp_path)
    assert needs_import(tmp_path)

    (tmp_path / "VERSION").write_text("wakeq data directory 2\n")

    assert not needs_import(tmp_path)


def test_a_file_with_a_wrong_prefix_counts_and_is_refused_by_name(tmp_path: Path) -> None:
    seed(tmp_path, log=HEX["log_wrong_marker"])

    assert needs_import(tmp_path)
    with pytest.raises(DamagedFile, match=r"raft\.log: at offset 0: expected file prefix 2f6f0f2f, found 1276ad55"):
        read_import(tmp_path)


def test_what_is_set_aside_is_kept_byte_for_byte(tmp_path: Path) -> None:
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


def test_a_crash_at_any_step_of_an_import_leaves_all_of_it_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_what_an_unfinished_import_made_is_dropped_and_what_it_read_is_kept(tmp_path: Path) -> None:
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


def test_an_unreadable_file_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "raft.log").mkdir()

    with pytest.raises(StorageError, match="cannot be read"):
        read_log(tmp_path / "raft.log")
    shutil.rmtree(tmp_path / "raft.log")
