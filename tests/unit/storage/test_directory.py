"""DataDirectory: one node at a time, one identity for ever, no version but its own."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from wakeq.protocol.errors import DamagedFile, DirectoryInUse, StorageError, WrongVersion
from wakeq.protocol.log.format import Identity
from wakeq.storage import directory as module
from wakeq.storage.directory import DataDirectory, begin_filling, finish_filling, write_identity
from wakeq.storage.log.segmented_log import SegmentedLog


def contents(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def test_first_start_creates_the_directory(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "data"

    directory = DataDirectory.open(path)

    assert directory.consensus == path / "consensus"
    assert directory.state.is_dir()
    assert directory.consensus.is_dir()
    assert (path / "VERSION").read_text() == "wakeq data directory 2\n"
    assert len(directory.identity.cluster_id) == 16
    assert directory.identity.node_id == 1
    assert path.stat().st_mode & 0o077 == 0
    assert not directory.imports_version_1


def test_new_directory_syncs_every_parent_that_it_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a power cut could remove the first of them, and with it all data that were acknowledged."""
    synced: list[Path] = []
    sync = module.sync_directory

    def noted(path: Path) -> None:
        assert path.is_dir(), f"{path} is synced before it exists"
        synced.append(path)
        sync(path)

    monkeypatch.setattr(module, "sync_directory", noted)

    DataDirectory.open(tmp_path / "made" / "deep" / "data").close()

    assert {tmp_path, tmp_path / "made", tmp_path / "made" / "deep", tmp_path / "made" / "deep" / "data"} <= set(synced)


def test_identity_is_kept_and_differs_between_directories(tmp_path: Path) -> None:
    first = DataDirectory.open(tmp_path / "a")
    first.close()

    assert DataDirectory.open(tmp_path / "a").identity == first.identity
    assert DataDirectory.open(tmp_path / "b").identity != first.identity


def test_second_node_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    first = DataDirectory.open(tmp_path)

    with pytest.raises(DirectoryInUse, match=f"in use by the node with pid {os.getpid()}; stop it"):
        DataDirectory.open(tmp_path)

    first.close()
    DataDirectory.open(tmp_path).close()


def test_death_of_the_holding_process_frees_the_directory(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from wakeq.storage.directory import DataDirectory;"
        "d = DataDirectory.open(Path(sys.argv[1])); print('ready', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"

    with pytest.raises(DirectoryInUse, match=f"pid {child.pid}"):
        DataDirectory.open(tmp_path)
    assert DataDirectory.read_only(tmp_path).holder_pid == child.pid
    child.kill()
    child.communicate()

    DataDirectory.open(tmp_path).close()


def test_unlocked_directory_is_free_though_its_pid_is_in_use(tmp_path: Path) -> None:
    """In a container every broker has the same pid, and so has the next process that checks."""
    DataDirectory.open(tmp_path).close()
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"

    assert DataDirectory.read_only(tmp_path).holder_pid is None
    DataDirectory.open(tmp_path).close()


def test_open_waits_for_a_process_that_only_checks_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DataDirectory.open(tmp_path).close()
    looker = os.open(tmp_path / "lock", os.O_RDONLY)
    fcntl.flock(looker, fcntl.LOCK_SH)
    monkeypatch.setattr(module.time, "sleep", lambda _: fcntl.flock(looker, fcntl.LOCK_UN))

    DataDirectory.open(tmp_path).close()

    os.close(looker)


@pytest.mark.parametrize(
    ("what", "number", "said"),
    [
        (fcntl, errno.ENOLCK, "lock: No locks available; the file system may not know locks"),
        (fcntl, errno.ENOSYS, "the file system may not know locks"),
        (fcntl, errno.EOPNOTSUPP, "the file system may not know locks"),
        (os, errno.ENOSPC, "No space left on device; the disk is full: free some space"),
        (os, errno.EDQUOT, "the disk is full: free some space"),
        (os, errno.EROFS, "Read-only file system; the kernel may have made it read-only because the disk fails"),
    ],
)
def test_failure_to_lock_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: Any, number: int, said: str
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(what, "flock" if what is fcntl else "pwrite", fail)

    with pytest.raises(StorageError) as refused:
        DataDirectory.open(tmp_path)

    assert said in str(refused.value)
    assert ("locks" in str(refused.value)) == (what is fcntl)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "No space left on device; the disk is full: free some space"),
        (errno.EROFS, "Read-only file system; the kernel may have made it read-only because the disk fails"),
        (errno.EACCES, "Permission denied; the node must own its data directory"),
    ],
)
def test_failure_to_create_the_lock_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    def fail(*_: Any) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", fail)

    with pytest.raises(StorageError, match=rf"lock: .*{said}"):
        DataDirectory.open(tmp_path)


def test_read_only_open_creates_and_locks_nothing(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path)
    before = contents(tmp_path)

    looking = DataDirectory.read_only(tmp_path)

    assert looking.identity == directory.identity
    assert looking.holder_pid == os.getpid()
    assert contents(tmp_path) == before
    with pytest.raises(StorageError, match="this directory does not exist"):
        DataDirectory.read_only(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(StorageError, match="is not a data directory"):
        DataDirectory.read_only(tmp_path / "empty")
    assert not list((tmp_path / "empty").iterdir())


# Identity and version ---------------------------------------------------------------------------------------


def used(path: Path) -> Identity:
    directory = DataDirectory.open(path)
    SegmentedLog.open(directory.consensus, directory.identity, committed_at_least=0).close()
    directory.close()
    return directory.identity


def test_lost_identity_is_never_invented(tmp_path: Path) -> None:
    identity = used(tmp_path)
    (tmp_path / "identity").unlink()

    with pytest.raises(
        DamagedFile, match=f"found no such file; .*the log belongs to cluster {identity.cluster_id.hex()} node 1"
    ):
        DataDirectory.open(tmp_path)

    assert not (tmp_path / "identity").exists()


@pytest.mark.parametrize("position", [0, 20, 40, 60, -2])
def test_changed_identity_is_refused(tmp_path: Path, position: int) -> None:
    used(tmp_path)
    name = tmp_path / "identity"
    data = bytearray(name.read_bytes())
    data[position] ^= 1
    name.write_bytes(data)

    with pytest.raises(DamagedFile, match=r"identity: at offset 0: expected four lines"):
        DataDirectory.open(tmp_path)

    assert name.read_bytes() == data


def test_joining_node_gets_the_identity_of_its_cluster(tmp_path: Path) -> None:
    identity = Identity(b"c" * 16, 3)

    write_identity(tmp_path / "data", identity)

    assert DataDirectory.open(tmp_path / "data").identity == identity


def test_filled_directory_is_synced_before_its_version_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    for name in ("rename", "fsync"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, name=name, real=real: (steps.append(name), real(*args))[1])
    begin_filling(tmp_path, Identity(bytes(16), 1))
    steps.clear()

    finish_filling(tmp_path)

    assert steps == ["fsync", "rename", "fsync"]
    assert (tmp_path / "VERSION").exists()


def test_missing_version_beside_data_is_damage(tmp_path: Path) -> None:
    used(tmp_path)
    (tmp_path / "VERSION").unlink()
    before = contents(tmp_path)

    with pytest.raises(
        DamagedFile, match="VERSION: at offset 0: expected 'wakeq data directory 2', found no such file"
    ):
        DataDirectory.open(tmp_path)

    assert contents(tmp_path).keys() == before.keys()


@pytest.mark.parametrize("text", [b"", b"2", b"wakeq data directory two", b"other data directory 2", b"wak\x9aq 2"])
def test_unknown_version_text_is_refused(tmp_path: Path, text: bytes) -> None:
    used(tmp_path)
    (tmp_path / "VERSION").write_bytes(text)

    with pytest.raises(DamagedFile, match="expected 'wakeq data directory 2'") as caught:
        DataDirectory.open(tmp_path)
    assert f"found {text!r}" in str(caught.value)


@pytest.mark.parametrize("version", [0, 1, 3])
def test_directory_of_another_version_is_refused(tmp_path: Path, version: int) -> None:
    used(tmp_path)
    (tmp_path / "VERSION").write_text(f"wakeq data directory {version}\n")
    before = contents(tmp_path)

    for look in (DataDirectory.open, DataDirectory.read_only):
        with pytest.raises(WrongVersion, match=f"holds version {version}, this release reads version 2; use the rel"):
            look(tmp_path)

    assert contents(tmp_path).keys() == before.keys()


# Version 1 --------------------------------------------------------------------------------------------------


def seed(path: Path) -> None:
    (path / "consensus").mkdir(parents=True)
    (path / "consensus" / "raft.log").write_bytes(bytes.fromhex("2f6f0f2f00000001"))


def test_directory_of_version_1_waits_for_its_import(tmp_path: Path) -> None:
    seed(tmp_path)

    # A crash before the import begins changes nothing.
    for _ in range(2):
        directory = DataDirectory.open(tmp_path)
        assert directory.imports_version_1
        assert not (tmp_path / "VERSION").exists()
        directory.close()
    identity = directory.identity
    directory = DataDirectory.open(tmp_path)
    directory.finish_import()
    directory.close()

    assert (tmp_path / "VERSION").read_text() == "wakeq data directory 2\n"
    again = DataDirectory.open(tmp_path)
    assert not again.imports_version_1
    assert again.identity == identity


def test_version_1_is_refused_if_upgrades_are_not_allowed(tmp_path: Path) -> None:
    seed(tmp_path)

    with pytest.raises(WrongVersion, match=r"holds version 1.*start it without --no-upgrade"):
        DataDirectory.open(tmp_path, upgrade=False)
    with pytest.raises(WrongVersion, match=r"holds version 1.*start a node on it, which imports it"):
        DataDirectory.read_only(tmp_path)

    assert (tmp_path / "consensus" / "raft.log").stat().st_size == 8
