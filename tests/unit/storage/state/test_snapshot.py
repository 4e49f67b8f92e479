"""Snapshot: the written items are read back exactly, and damage is never taken for an image."""

import errno
import os
import random
from pathlib import Path

import pytest

from wakeq.protocol.errors import DamagedFile, DiskFull, SyncFailed, WrongVersion
from wakeq.protocol.log.format import Identity
from wakeq.storage import files
from wakeq.storage.state import snapshot
from wakeq.storage.state.snapshot import (
    BLOCK_BYTES,
    HEADER_BYTES,
    Item,
    SnapshotHeader,
    has_snapshot,
    read_snapshot,
    verify_snapshot,
    write_snapshot,
)

IDENTITY = Identity(bytes(range(16)), 1)
HEADER = SnapshotHeader(IDENTITY, 1234, 5, 1_700_000_000_123)
ITEMS: list[Item] = [(1, b"orders-0000001_00000001", b"body"), (3, b"", b""), (6, b"applied", b"\0" * 30)]


def many(count: int) -> list[Item]:
    return [(1, b"key-%08d" % number, bytes([number % 256]) * 1000) for number in range(count)]


def load(path: Path, identity: Identity | None = IDENTITY) -> list[Item]:
    header, items = read_snapshot(path, identity)
    assert header == HEADER
    return list(items)


@pytest.mark.parametrize("items", [[], ITEMS, many(3000), [(2, b"k", bytes(3 * BLOCK_BYTES)), *ITEMS]])
def test_items_are_read_in_the_order_they_were_written(tmp_path: Path, items: list[Item]) -> None:
    path = tmp_path / "raft.snapshot"

    size = write_snapshot(path, HEADER, iter(items))

    assert load(path) == items
    assert verify_snapshot(path, IDENTITY) == HEADER
    assert path.stat().st_size == size
    assert not list(tmp_path.glob("*.new"))


def test_version_is_negative_where_version_1_has_an_index(tmp_path: Path) -> None:
    path = tmp_path / "raft.snapshot"
    assert not has_snapshot(path)

    write_snapshot(path, HEADER, ITEMS)

    assert path.read_bytes()[:8] == bytes.fromhex("2f6f0f2f fffffffe")
    assert has_snapshot(path)
    path.write_bytes(bytes.fromhex("2f6f0f2f000000000000000100000001000000000000000000"))
    with pytest.raises(WrongVersion, match="expected version 2, found 1"):
        read_snapshot(path, IDENTITY)
    path.write_bytes(bytes.fromhex("2f6f0f2ffffffffd") + bytes(60))
    with pytest.raises(WrongVersion, match="expected version 2, found 3"):
        read_snapshot(path, IDENTITY)


def test_flipped_bit_is_found_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "raft.snapshot"
    write_snapshot(path, HEADER, ITEMS)
    whole = path.read_bytes()

    for position in range(len(whole)):
        for bit in (1, 128):
            path.write_bytes(whole[:position] + bytes([whole[position] ^ bit]) + whole[position + 1 :])
            with pytest.raises((DamagedFile, WrongVersion)):
                load(path)
            with pytest.raises((DamagedFile, WrongVersion)):
                verify_snapshot(path, IDENTITY)


def test_truncation_is_found_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "raft.snapshot"
    write_snapshot(path, HEADER, ITEMS)
    whole = path.read_bytes()

    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(DamagedFile):
            load(path)


def test_blocks_in_another_order_are_found(tmp_path: Path) -> None:
    path = tmp_path / "raft.snapshot"
    write_snapshot(path, HEADER, many(3000))
    data = path.read_bytes()
    size = 8 + int.from_bytes(data[HEADER_BYTES : HEADER_BYTES + 4], "big")
    first, second = (
        data[HEADER_BYTES : HEADER_BYTES + size],
        data[HEADER_BYTES + size : HEADER_BYTES + 2 * size],
    )
    path.write_bytes(data[:HEADER_BYTES] + second + first + data[HEADER_BYTES + 2 * size :])

    with pytest.raises(DamagedFile, match=f"at offset {HEADER_BYTES + 4}: expected checksum .* of block 0"):
        load(path)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda data: bytes.fromhex("b6380fc9") + data[4:], "expected file prefix 2f6f0f2f, found b6380fc9"),
        (lambda data: bytes.fromhex("2f0f6f2f") + data[4:], "little-endian"),
        (
            lambda data: data[:30] + b"\xff" + data[31:],
            f"at offset {HEADER_BYTES - 4}: expected header checksum",
        ),
        (lambda data: data[:20], f"expected {HEADER_BYTES} bytes of header"),
        (lambda data: data[:HEADER_BYTES], "expected block 0 or the end block, found the end of the file"),
        (lambda data: data[:-30], "runs past the end|no whole end block"),
        (lambda data: data[:-1], "expected the end block, found no whole end block"),
        (lambda data: data + b"\0", "expected the end of the file, found more bytes"),
    ],
)
def test_damage_is_reported_with_its_place(tmp_path: Path, change: object, match: str) -> None:
    path = tmp_path / "raft.snapshot"
    write_snapshot(path, HEADER, ITEMS)
    assert callable(change)
    path.write_bytes(change(path.read_bytes()))

    with pytest.raises(DamagedFile, match=match) as caught:
        load(path)

    assert str(caught.value).startswith(str(path))


def test_image_of_another_node_is_accepted_and_of_another_cluster_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "raft.snapshot"
    write_snapshot(path, HEADER, ITEMS)

    assert load(path, Identity(IDENTITY.cluster_id, 2)) == ITEMS
    with pytest.raises(DamagedFile, match="belongs to another cluster"):
        load(path, Identity(b"x" * 16, 1))


def test_check_can_stop_the_writer_and_the_old_image_stays(tmp_path: Path) -> None:
    path = tmp_path / "raft.snapshot"
    write_snapshot(path, HEADER, ITEMS)
    calls = []

    def check() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        write_snapshot(path, HEADER, many(5000), check=check)

    assert load(path) == ITEMS
    assert not list(tmp_path.glob("*.new"))


@pytest.mark.parametrize("name", ["sync_data", "rename_durably"])
def test_crash_before_the_rename_leaves_the_old_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / "raft.snapshot"
    write_snapshot(path, HEADER, ITEMS)

    def crash(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(snapshot, name, crash)
    with pytest.raises(KeyboardInterrupt):
        write_snapshot(path, HEADER, many(10))

    assert load(path) == ITEMS


def test_crash_after_the_rename_leaves_the_new_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "raft.snapshot"
    write_snapshot(path, HEADER, ITEMS)

    def crash(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "sync_directory", crash)
    with pytest.raises(KeyboardInterrupt):
        write_snapshot(path, HEADER, many(10))

    assert load(path) == many(10)


def test_leftover_of_a_crash_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "raft.snapshot"
    (tmp_path / "raft.snapshot.new").write_bytes(random.Random(1).randbytes(5000))

    write_snapshot(path, HEADER, ITEMS)

    assert load(path) == ITEMS


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, DiskFull), (errno.EIO, SyncFailed)])
def test_full_disk_and_broken_disk_raise_different_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    path = tmp_path / "raft.snapshot"

    def fail(_descriptor: int, _parts: list[bytes]) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "writev", fail)

    with pytest.raises(error, match=r"raft\.snapshot\.new: write failed"):
        write_snapshot(path, HEADER, ITEMS)

    assert not list(tmp_path.iterdir())


def test_short_write_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "writev", lambda _descriptor, parts: sum(map(len, parts)) - 1)

    with pytest.raises(DiskFull, match="only 55 of 56 bytes"):
        write_snapshot(tmp_path / "raft.snapshot", HEADER, ITEMS)
