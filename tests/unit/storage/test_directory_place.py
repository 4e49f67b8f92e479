"""DataDirectory on its disk: space that is kept free, other files, and unsuitable file systems."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from wakeq.protocol.errors import StorageError
from wakeq.storage import directory as module
from wakeq.storage import files
from wakeq.storage.directory import DataDirectory

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("size_mib", "reserve_mib"),
    [(16, 4), (200, 50), (256, 64), (1000, 64), (2000, 100), (40_000, 2000), (1 << 20, 2048)],
)
def test_reserve_depends_on_the_size_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size_mib: int, reserve_mib: int
) -> None:
    directory = DataDirectory.open(tmp_path)
    state = SimpleNamespace(f_blocks=size_mib, f_frsize=MIB, f_bavail=0)
    monkeypatch.setattr(os, "statvfs", lambda _path: state)

    assert directory.reserve_bytes() == reserve_mib * MIB


def test_directory_with_other_files_is_accepted_with_one_warning(tmp_path: Path) -> None:
    for name in ("a.md", "b.md", "c.md", "d.md"):
        (tmp_path / name).touch()

    first = DataDirectory.open(tmp_path)
    first.close()
    second = DataDirectory.open(tmp_path)

    assert [warning for warning in first.warnings if "beside a.md, b.md, c.md and 1 more" in warning]
    assert not [warning for warning in second.warnings if "beside" in warning]


def test_directory_with_only_tokens_is_accepted_without_warning(tmp_path: Path) -> None:
    (tmp_path / "tokens.json").touch()
    (tmp_path / "lost+found").mkdir()

    assert not [warning for warning in DataDirectory.open(tmp_path).warnings if "beside" in warning]


def test_full_disk_stays_full_until_there_is_clearly_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = DataDirectory.open(tmp_path, reserve_bytes=800)
    seen = []

    for free in (801, 800, 799, 850, 899, 900, 850, 799):
        monkeypatch.setattr(module, "free_bytes", lambda _path, free=free: free)
        seen.append(directory.check_space())

    assert seen == [False, False, True, True, True, False, False, True]
    assert directory.full


def test_quarter_of_the_reserve_may_be_inside_the_state_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = DataDirectory.open(tmp_path, reserve_bytes=800)
    seen = []

    for free, reusable in ((600, 200), (600, 199), (599, 1_000), (700, 199), (700, 200), (600, 500)):
        monkeypatch.setattr(module, "free_bytes", lambda _path, free=free: free)
        seen.append(directory.check_space(reusable_bytes=reusable))

    assert seen == [False, True, True, True, False, False]


def test_last_room_ends_at_a_quarter_of_the_reserve_and_returns_at_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = DataDirectory.open(tmp_path, reserve_bytes=800)
    seen = []

    for free in (800, 200, 199, 399, 400, 200, 199):
        monkeypatch.setattr(module, "free_bytes", lambda _path, free=free: free)
        seen.append(directory.check_last_room())
    owing = directory.check_last_room(owed_bytes=-200), directory.check_last_room(owed_bytes=200)

    assert seen == [False, False, True, True, False, False, True]
    assert owing == (True, True)


def test_image_room_leaves_the_last_room_of_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = DataDirectory.open(tmp_path, reserve_bytes=800)
    monkeypatch.setattr(module, "free_bytes", lambda _path: 500)

    room = directory.image_room_bytes(owed_bytes=100)

    monkeypatch.setattr(module, "free_bytes", lambda _path: 500 - room)
    assert room == 200
    assert not directory.check_last_room(owed_bytes=100)


@pytest.mark.parametrize(
    ("kind", "warns"), [("ext4", False), ("xfs", False), ("nfs4", True), ("overlay", True), ("fuse.sshfs", True)]
)
def test_unsuitable_file_system_gives_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, warns: bool
) -> None:
    monkeypatch.setattr(files, "_kind_of_file_system", lambda _path: kind)

    directory = DataDirectory.open(tmp_path)

    assert bool(directory.warnings) == warns
    assert all(kind in warning for warning in directory.warnings)


def test_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StorageError, match="cannot be created"):
        DataDirectory.open(tmp_path / "file" / "data")
