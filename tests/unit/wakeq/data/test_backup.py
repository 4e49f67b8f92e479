"""Backups: a restored directory is complete, or no node starts on it."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.brokers.node_here import client_of, node_here, run
from wakeq.data import backup as backups
from wakeq.data.backup import UNFINISHED, keep, part_beside, restore
from wakeq.data.opening import open_all
from wakeq.protocol.errors import DamagedFile, StorageError


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a backup with one message."""
    tmp_path = tmp_path_factory.mktemp("backed-up")
    to = tmp_path / "backup"

    async def story() -> None:
        async with node_here(tmp_path / "before") as here:
            async with client_of(here) as client:
                await client.publish("jobs", b"promised")
            async with here.session.get(here.http + "/api/v1/backup") as response:
                to.write_bytes(await response.read())

    run(story())
    return to


class Killed(BaseException):
    """Stands for the death of the process."""


STEPS = ["write_identity", "write_snapshot", "open_all", "recover_alone", "_move_up"]


@pytest.mark.parametrize("step", STEPS)
def test_interrupted_restore_leaves_a_directory_that_no_broker_starts_on(
    tmp_path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A broker on it would serve as if nothing had ever been stored."""

    def killed(*_: Any, **__: Any) -> Any:
        raise Killed

    monkeypatch.setattr(backups, step, killed)
    with pytest.raises(Killed):
        restore(backup, tmp_path / "data", 0)

    with pytest.raises(DamagedFile, match="VERSION"):
        open_all(tmp_path / "data", upgrade=True, segment_bytes_max=1 << 20)
    with pytest.raises(StorageError, match="contains data already"):
        restore(backup, tmp_path / "data")


def test_failed_restore_can_be_repeated(tmp_path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise StorageError("the disk is full")

    monkeypatch.setattr(backups, "write_snapshot", full)
    with pytest.raises(StorageError, match="full"):
        restore(backup, tmp_path / "data")
    monkeypatch.undo()

    assert restore(backup, tmp_path / "data")["messages"] == 1


@pytest.mark.parametrize("node", [None, 3])
def test_restored_directory_is_complete_on_a_mounted_disk(tmp_path: Path, backup: Path, node: int | None) -> None:
    data_dir = tmp_path / "data"
    (data_dir / "lost+found").mkdir(parents=True)
    inode = data_dir.stat().st_ino

    told: list[str] = []
    restore(backup, data_dir, node, tell=lambda doing, size_bytes: told.append(doing))

    assert told[0] == "checking the backup"
    assert told[-1] == "checking the state store"
    assert data_dir.stat().st_ino == inode
    assert {entry.name for entry in data_dir.iterdir()} >= {"VERSION", "consensus", "identity", "state"}
    assert not (data_dir / UNFINISHED).exists()
    opened = open_all(data_dir, upgrade=False, segment_bytes_max=1 << 20)
    assert opened.directory.identity.node_id == (1 if node is None else node)
    opened.close()


def test_backup_does_not_replace_a_file_created_meanwhile(tmp_path: Path) -> None:
    part, to = tmp_path / "to.part", tmp_path / "to"
    part.write_bytes(b"later")
    to.write_bytes(b"earlier")

    with pytest.raises(StorageError, match="exists already"):
        keep(part, to)

    assert to.read_bytes() == b"earlier"


def test_backup_is_completed_on_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    part, to = tmp_path / "to.part", tmp_path / "to"
    part.write_bytes(b"whole")

    keep(part, to)

    assert [file.name for file in tmp_path.iterdir()] == ["to"]


def test_backup_file_is_private_from_its_first_byte(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        part = part_beside(tmp_path / "to")
    finally:
        os.umask(before)

    assert part.parent == tmp_path
    assert part.stat().st_mode & 0o777 == 0o600
    assert part_beside(tmp_path / "to") != part


def test_backup_into_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file or directory; choose another place"):
        part_beside(tmp_path / "nowhere" / "to")
