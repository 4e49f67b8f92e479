"""Metadata: a saved promise is never forgotten, whatever happens to one of the slots."""

import errno
import os
from pathlib import Path

import pytest

from wakeq.protocol.clock import Mark
from wakeq.protocol.errors import DamagedFile, StorageError, SyncFailed, WrongVersion
from wakeq.protocol.log.format import Identity
from wakeq.protocol.raft.acknowledged import DISKS_MAX
from wakeq.storage.log.metadata import SLOT_BYTES, SLOT_OFFSETS, Metadata

IDENTITY = Identity(bytes(range(16)), 3)
MARK = Mark(1_700_000_000_000, 1_700_000_010_000, 86_400_000, bytes(range(16, 32)))


def saved(path: Path) -> Path:
    metadata = Metadata.open(path, IDENTITY)
    metadata.save(term=7, vote=0)
    metadata.save(committed=41)
    metadata.close()
    return path


def spoil(path: Path, *offsets: int, data: bytes = b"\xff") -> None:
    content = bytearray(path.read_bytes())
    for offset in offsets:
        content[offset : offset + len(data)] = data
    path.write_bytes(content)


def values(metadata: Metadata) -> tuple[int, int | None, int]:
    return metadata.state.term, metadata.state.vote, metadata.state.committed


def test_saved_state_is_read_after_reopening(tmp_path: Path) -> None:
    path = saved(tmp_path / "raft.metadata")

    again = Metadata.open(path, IDENTITY)

    assert values(again) == (7, 0, 41)
    assert again.recovered == ""


def test_vote_for_node_0_differs_from_no_vote(tmp_path: Path) -> None:
    path = tmp_path / "raft.metadata"
    metadata = Metadata.open(path, IDENTITY)
    assert metadata.state.vote is None

    metadata.save(vote=0)

    assert Metadata.open(path, IDENTITY).state.vote == 0


def test_new_term_begins_without_a_vote(tmp_path: Path) -> None:
    metadata = Metadata.open(saved(tmp_path / "raft.metadata"), IDENTITY)

    metadata.save(term=8)

    assert values(metadata) == (8, None, 41)
    assert values(Metadata.open(metadata.path, IDENTITY)) == (8, None, 41)


def test_committed_index_never_falls(tmp_path: Path) -> None:
    metadata = Metadata.open(saved(tmp_path / "raft.metadata"), IDENTITY)

    metadata.save(committed=40)

    assert metadata.state.committed == 41


@pytest.mark.parametrize("count", [0, 1, 3, DISKS_MAX])
def test_acknowledgements_of_disks_survive_reopening_and_other_saves(tmp_path: Path, count: int) -> None:
    metadata = Metadata.open(saved(tmp_path / "raft.metadata"), IDENTITY)
    acknowledged = tuple((number + 1, (1 << 47) + number) for number in range(count))

    metadata.save(acknowledged=acknowledged)
    metadata.save(term=8, vote=1)

    again = Metadata.open(metadata.path, IDENTITY)
    assert again.state.acknowledged == acknowledged
    assert values(again) == (8, 1, 41)


def test_mark_of_the_clock_survives_reopening_and_other_saves(tmp_path: Path) -> None:
    path = saved(tmp_path / "raft.metadata")
    metadata = Metadata.open(path, IDENTITY)
    assert metadata.state.clock is None

    metadata.keep_clock(MARK)
    metadata.save(term=8, vote=1)
    metadata.begin_incarnation(70)

    assert Metadata.open(path, IDENTITY).state.clock == MARK
    metadata.keep_clock(None)
    assert Metadata.open(path, IDENTITY).state.clock is None


def test_unknown_boot_stays_unknown_after_reopening(tmp_path: Path) -> None:
    metadata = Metadata.open(saved(tmp_path / "raft.metadata"), IDENTITY)

    metadata.keep_clock(MARK._replace(boot_id=b""))

    assert Metadata.open(metadata.path, IDENTITY).state.clock == MARK._replace(boot_id=b"")


def test_incarnation_is_higher_at_every_start(tmp_path: Path) -> None:
    path = tmp_path / "raft.metadata"

    assert [Metadata.open(path, IDENTITY).begin_incarnation(now_ms) for now_ms in (0, 70, 50, 90)] == [1, 70, 71, 90]


@pytest.mark.parametrize("slot", SLOT_OFFSETS)
@pytest.mark.parametrize("byte", [8, 10, 20, 33, 41, 50, SLOT_BYTES - 1])
def test_bad_slot_is_repaired_from_the_other(tmp_path: Path, slot: int, byte: int) -> None:
    path = saved(tmp_path / "raft.metadata")
    spoil(path, slot + byte)

    again = Metadata.open(path, IDENTITY)

    assert values(again) == (7, 0, 41)
    assert f"slot at offset {slot}" in again.recovered
    assert Metadata.open(path, IDENTITY).recovered == ""


@pytest.mark.parametrize(("byte", "error"), [(0, DamagedFile), (5, WrongVersion)])
def test_foreign_marker_or_version_is_refused_beside_a_good_slot(
    tmp_path: Path, byte: int, error: type[Exception]
) -> None:
    path = saved(tmp_path / "raft.metadata")
    spoil(path, byte)

    with pytest.raises(error, match=r"raft\.metadata"):
        Metadata.open(path, IDENTITY)


def test_crash_between_the_slots_keeps_the_newer_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = Metadata.open(saved(tmp_path / "raft.metadata"), IDENTITY)
    real, calls = os.pwrite, list[int]()

    def crash_at_the_second(descriptor: int, data: bytes, offset: int) -> int:
        calls.append(offset)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(descriptor, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", crash_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            metadata.save(term=9, vote=2)

    assert values(Metadata.open(metadata.path, IDENTITY)) == (9, 2, 41)
    spoil(metadata.path, SLOT_OFFSETS[0] + 8)
    assert values(Metadata.open(metadata.path, IDENTITY)) == (9, 2, 41)


def test_file_with_two_bad_slots_is_refused_and_unchanged(tmp_path: Path) -> None:
    path = saved(tmp_path / "raft.metadata")
    spoil(path, *(offset + 44 for offset in SLOT_OFFSETS))
    before = path.read_bytes()

    with pytest.raises(DamagedFile, match=r"expected at least one whole slot, .*forgot its vote may not vote"):
        Metadata.open(path, IDENTITY)

    assert path.read_bytes() == before


def test_file_with_bytes_behind_the_slots_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "raft.metadata")
    path.write_bytes(path.read_bytes() + b"x")

    with pytest.raises(DamagedFile, match="at offset 8192: expected a file of 8192 bytes, found one of 8193"):
        Metadata.open(path, IDENTITY)


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        ("1276ad55", DamagedFile, "expected file prefix 2f6f0f2f, found 1276ad55"),
        ("2f0f6f2f", DamagedFile, "little-endian"),
        ("2f6f0f2f00000001", WrongVersion, "expected version 5, found 1"),
        ("2f6f0f2f00000004", WrongVersion, "expected version 5, found 4"),
        ("2f6f0f2f00000006", WrongVersion, "expected version 5, found 6"),
    ],
)
def test_file_of_another_program_or_version_is_refused(
    tmp_path: Path, data: str, error: type[Exception], match: str
) -> None:
    path = saved(tmp_path / "raft.metadata")
    spoil(path, *SLOT_OFFSETS, data=bytes.fromhex(data))

    with pytest.raises(error, match=match):
        Metadata.open(path, IDENTITY)


def test_metadata_of_another_node_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "raft.metadata")

    with pytest.raises(DamagedFile, match="belongs to another node"):
        Metadata.open(path, Identity(IDENTITY.cluster_id, 4))


def test_empty_file_counts_as_first_start(tmp_path: Path) -> None:
    path = tmp_path / "raft.metadata"
    path.touch()

    assert values(Metadata.open(path, IDENTITY)) == (0, None, 0)


def test_save_after_a_failed_sync_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = Metadata.open(saved(tmp_path / "raft.metadata"), IDENTITY)

    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(SyncFailed, match=r"raft\.metadata: sync failed"):
            metadata.save(term=8)

    with pytest.raises(SyncFailed, match="sync failed"):
        metadata.save(term=9)
    assert metadata.state.term == 7


def test_read_only_open_changes_no_file(tmp_path: Path) -> None:
    path = saved(tmp_path / "raft.metadata")
    spoil(path, SLOT_OFFSETS[1])
    before = path.read_bytes()

    assert values(Metadata.open(path, None, read_only=True)) == (7, 0, 41)
    assert path.read_bytes() == before


def test_read_only_open_creates_no_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be opened"):
        Metadata.open(tmp_path / "raft.metadata", IDENTITY, read_only=True)

    assert list(tmp_path.iterdir()) == []
