"""Version 1: every golden file is read or refused as specified, and so is every command of its log."""

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.disks.version1_files import FILES, HEX
from wakeq.protocol.errors import DamagedFile, WrongVersion
from wakeq.storage.version1 import (
    Counted,
    DeletedQueue,
    ImportedMessage,
    ImportedQueue,
    RemovedFirst,
    State,
    decode_command,
    read_log,
    read_metadata,
    read_snapshot,
)


def ids(vector: dict[str, Any]) -> str:
    return str(vector["name"])


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
def test_golden_file_is_read(tmp_path: Path, vector: dict[str, Any]) -> None:
    path = place(tmp_path, vector)
    expected = {key: value for key, value in vector["decoded"].items() if key not in ("marker_hex", "version")}
    if not expected.get("has_vote", True):
        expected["vote"] = None

    assert read(path) == expected


@pytest.mark.parametrize("vector", [each for each in FILES if each["expect"].startswith("refuse")], ids=ids)
def test_golden_bad_file_is_refused_with_its_reason(tmp_path: Path, vector: dict[str, Any]) -> None:
    path = place(tmp_path, vector)

    with pytest.raises((DamagedFile, WrongVersion)) as caught:
        read(path)

    assert str(caught.value).startswith(f"{path}: ")
    assert REASONS[vector["name"]] in str(caught.value)
    assert path.read_bytes() == bytes.fromhex(vector["hex"])


@pytest.mark.parametrize("vector", [each for each in FILES if each["expect"].startswith("tail")], ids=ids)
def test_golden_tail_is_reported_and_entries_before_it_are_read(tmp_path: Path, vector: dict[str, Any]) -> None:
    path = place(tmp_path, vector)

    log = read_log(path)

    assert vector["expect"].removeprefix("tail: ") in log.tail
    assert len(log.entries) == int(vector["expect"].split()[2])


def test_golden_files_are_all_used() -> None:
    kinds = {vector["expect"].split(":")[0] for vector in FILES}

    assert kinds == {"accept", "refuse", "tail"}
    refused = {vector["name"] for vector in FILES if vector["expect"].startswith("refuse")}
    assert refused == set(REASONS)


@pytest.mark.parametrize("name", ["raft.log", "raft.metadata", "raft.snapshot"])
def test_missing_or_empty_file_is_a_first_start(tmp_path: Path, name: str) -> None:
    path = tmp_path / name

    for _ in range(2):
        assert read_log(path).entries == []
        assert read_metadata(path) == State()
        assert read_snapshot(path) is None
        path.touch()


@pytest.mark.parametrize("cut", range(1, 60))
def test_snapshot_truncated_anywhere_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "raft.snapshot"
    path.write_bytes(HEX["snapshot_three_queues"][:-cut])

    with pytest.raises(DamagedFile):
        read_snapshot(path)


def test_snapshot_without_the_default_queue_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "raft.snapshot"
    path.write_bytes(bytes.fromhex("2f6f0f2f000000010000000100000001016100000000 00000000"))

    with pytest.raises(DamagedFile, match="expected the default queue among the queues"):
        read_snapshot(path)


@pytest.mark.parametrize(
    ("offset", "match"), [(4, "a possible index"), (8, "a possible term"), (12, "a possible count")]
)
def test_snapshot_with_a_negative_number_is_refused(tmp_path: Path, offset: int, match: str) -> None:
    path = tmp_path / "raft.snapshot"
    data = bytearray(HEX["snapshot_three_queues"])
    data[offset] = 0xFF
    path.write_bytes(data)

    with pytest.raises(DamagedFile, match=f"at offset {offset}: expected {match}"):
        read_snapshot(path)


def test_metadata_with_extra_bytes_are_refused(tmp_path: Path) -> None:
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
        ("440161", RemovedFirst("a")),
        ("4400", RemovedFirst("")),
        ("430161", Counted("a")),
    ],
)
def test_command_is_decoded_and_every_truncation_refused(text: str, command: object) -> None:
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
        (
            "440161 00000000",
            "at offset 100: expected one of .*, found a Dequeue with a timeout",
        ),
        ("450120 0000000000000000 00000000", "at offset 101: expected a valid queue name"),
        ("450161 0000000000000000 ffffffff", "found a length of -1"),
        ("510161 00000003 00000000 00000000 00", "found implementation 3"),
    ],
)
def test_bad_command_is_refused_with_its_offset(text: str, match: str) -> None:
    with pytest.raises(DamagedFile, match=match):
        decode_command(bytes.fromhex(text), path="raft.log", offset=100)
