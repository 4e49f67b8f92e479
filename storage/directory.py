"""DataDirectory: the folder with all the data that a node must not lose (docs/files.md).

    in   a path; whether files of version 1 in it may be imported
    out  the folder, locked, complete, identified and measured; or one error that says why it cannot be used

The folder is created once and only checked afterwards: a folder with data never gets a new identity.  It is never
shared with another node, and never changed when it is opened for reading.
"""

import fcntl
import os
import time
import uuid
from dataclasses import dataclass, field
from errno import ENOLCK, ENOSYS, EOPNOTSUPP, EROFS
from pathlib import Path
from typing import Self
from zlib import crc32

from wakeq.protocol.errors import DamagedFile, DirectoryInUse, StorageError, WrongVersion
from wakeq.protocol.log.format import HEADER_BYTES, Identity, decode_header
from wakeq.storage import version1
from wakeq.storage.files import (
    MODE,
    file_system,
    free_bytes,
    is_full,
    is_there,
    replace_durably,
    sync_directory,
    sync_failed,
    warnings_of,
)
from wakeq.storage.log.segments import ACTIVE_NAME

VERSION = 2
VERSION_TEXT = "wakeq data directory"
RESERVE_BYTES_MIN = 64 * 1024 * 1024
RESERVE_SHARE = 20  # a twentieth of the file system
RESERVE_BYTES_MAX = 2 * 1024 * 1024 * 1024  # on a large disk: more than any broker needs to recover
RESERVE_SHARE_MAX = 4  # never more than a quarter of the disk: a small one must hold some messages too
LAST_SHARE = 4  # with a quarter of the reserve left, a node of a cluster steps down while it can still save its state
BACK_SHARE = 2  # with a half, it may lead again
MAY_BE_FIRST = {"lock", "identity", "consensus", "state", "tokens.json", "lost+found"}  # in a directory without VERSION
REUSABLE_SHARE = 4  # the part of the reserve that may be free space within the state's file
RECOVERED_SHARE = 8  # a full disk counts as full until an eighth more than the reserve is free
FOLDER_MODE = 0o700
NODE_ID_FIRST = 1
LOCK_TRIES, LOCK_AGAIN_S = 5, 0.01
NO_LOCKS = (ENOLCK, ENOSYS, EOPNOTSUPP)


@dataclass(slots=True)
class DataDirectory:
    """An open data directory.  `warnings` are for the log; `full` is as of the last `check_space`."""

    path: Path
    identity: Identity
    warnings: list[str] = field(default_factory=list)
    imports_version_1: bool = False  # the node must import before it serves (storage/version1.py)
    full: bool = False
    out_of_room: bool = False  # as of the last `check_last_room`
    reserve_override_bytes: int | None = None
    _lock: int = -1

    @classmethod
    def open(cls, path: Path, *, upgrade: bool = True, reserve_bytes: int | None = None) -> Self:
        """Lock the directory for this process: create it, or check it."""
        _make_folder(path)
        lock = _take_lock(path)
        try:
            imports = version1.needs_import(path)
            if imports and not upgrade:
                raise _not_imported(path, "start it without --no-upgrade (its files are kept), or use its own program")
            warnings = warnings_of(path) if imports else [*warnings_of(path), *_shared_with(path)]
            if not imports and not _has_version(path):
                _write_version(path)
            for name in ("consensus", "state"):
                _make_folder(path / name)
            identity = _identity_of(path, may_create=imports or not _holds_data(path))
            directory = cls(path, identity, warnings, imports, _lock=lock)
            directory.reserve_override_bytes = reserve_bytes
            directory.check_space()
            return directory
        except BaseException:
            os.close(lock)
            raise

    @classmethod
    def read_only(cls, path: Path) -> Self:
        """Open a directory for reading, also beside a running node; nothing is locked, created or changed."""
        if not path.is_dir():
            raise StorageError(f"{path}: this directory does not exist; give the one that the node was started with")
        if version1.needs_import(path):
            raise _not_imported(path, "start a node on it, which imports it (its files are kept)")
        if not _has_version(path):
            raise StorageError(f"{path}: is not a data directory: it has no file VERSION; check the path")
        return cls(path, _identity_of(path, may_create=False), warnings_of(path))

    @property
    def consensus(self) -> Path:
        return self.path / "consensus"

    @property
    def state(self) -> Path:
        return self.path / "state"

    @property
    def holder_pid(self) -> int | None:
        """The pid of the process that holds the directory, 0 if unknown; None if it is free."""
        name = self.path / "lock"
        return _pid_in(name) or 0 if _is_locked(name) else None

    def free_bytes(self) -> int:
        return free_bytes(self.path)

    def reserve_bytes(self) -> int:
        """Return how many bytes are kept free for acknowledgements, deletes, logs and snapshots."""
        return reserve_on(self.path) if self.reserve_override_bytes is None else self.reserve_override_bytes

    @property
    def disk_bytes(self) -> int:
        """The size of the file system."""
        return _disk_bytes(self.path)

    def check_space(self, owed_bytes: int = 0, reusable_bytes: int = 0) -> bool:
        """Decide again whether publishes must be refused; stay `full` until there is clearly enough room.

        `owed_bytes` will still be written for promises already made.  `reusable_bytes` are free within the state's
        file, which never shrinks: a part of the reserve may be there.
        """
        reserve = self.reserve_bytes()
        room = self.free_bytes() + min(reusable_bytes, reserve // REUSABLE_SHARE)
        least = reserve + owed_bytes
        if self.full:
            least += least // RECOVERED_SHARE
        self.full = room < least
        return self.full

    def check_last_room(self, owed_bytes: int = 0) -> bool:
        """Decide again whether this node should step down because even acknowledgements need another disk."""
        share = BACK_SHARE if self.out_of_room else LAST_SHARE
        self.out_of_room = self.free_bytes() < self.reserve_bytes() // share + owed_bytes
        return self.out_of_room

    def image_room_bytes(self, owed_bytes: int = 0) -> int:
        """Return how large an image may be without making a node of a cluster step down."""
        return self.free_bytes() - self.reserve_bytes() // LAST_SHARE - owed_bytes

    def finish_import(self) -> None:
        """Record that all data of version 1 are on disk in the new form (storage/version1.py has the order)."""
        _write_version(self.path)
        version1.finish_import(self.path)
        self.imports_version_1 = False

    def close(self) -> None:
        """Release the directory for another node."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


def reserve_on(path: Path) -> int:
    """Return how many bytes a data directory at path keeps free on its file system."""
    size = _disk_bytes(path)
    return min(max(RESERVE_BYTES_MIN, size // RESERVE_SHARE), RESERVE_BYTES_MAX, size // RESERVE_SHARE_MAX)


def _disk_bytes(path: Path) -> int:
    state = file_system(path)
    return state.f_blocks * state.f_frsize


# Lock -------------------------------------------------------------------------------------------------------


def _make_folder(path: Path) -> None:
    try:
        if not path.is_dir():
            made = [path, *(parent for parent in path.parents if not parent.exists())]
            path.mkdir(mode=FOLDER_MODE, parents=True)
            for folder in made:
                sync_directory(folder.parent)
    except OSError as error:
        raise StorageError(f"{path}: cannot be created: {error.strerror}; choose another data directory") from error


def _take_lock(path: Path) -> int:
    """Take the lock, which is held as long as the descriptor is open; a crash releases it."""
    name = path / "lock"
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
    except OSError as error:
        if error.errno == EROFS or is_full(name, error):
            raise sync_failed(name, "create", error) from error
        raise StorageError(f"{name}: {error.strerror}; the node must own its data directory") from error
    try:
        _lock(descriptor)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        os.close(descriptor)
        if error.errno in NO_LOCKS:
            raise StorageError(f"{name}: {error.strerror}; the file system may not know locks") from error
        if not isinstance(error, BlockingIOError):
            raise sync_failed(name, "taking the lock", error) from error
        who = _pid_in(name) or "unknown"
        raise DirectoryInUse(
            f"{path}: in use by the node with pid {who}; stop it, or use another data directory"
        ) from error
    return descriptor


def _lock(descriptor: int) -> None:
    """Lock exclusively; wait for processes that only check the lock and hold it for a moment."""
    for tries_left in reversed(range(LOCK_TRIES)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not tries_left:
                raise
            time.sleep(LOCK_AGAIN_S)
        else:
            return


def _is_locked(name: Path) -> bool:
    """Whether a node holds the lock; the pid in the file may be reused or from another container."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _pid_in(name: Path) -> int | None:
    try:
        return int(name.read_text())
    except (OSError, ValueError):
        return None


# Version ----------------------------------------------------------------------------------------------------


def _has_version(path: Path) -> bool:
    """Whether the directory has its VERSION; refuse any but ours, and data without one: an incomplete copy."""
    name = path / "VERSION"
    try:
        data = name.read_bytes()
    except FileNotFoundError:
        if _holds_data(path):
            raise _bad_version(name, "no such file") from None
        return False
    except OSError as error:
        raise _bad_version(name, repr(error)) from error
    words, _, number = data.decode("ascii", "replace").strip().rpartition(" ")
    if words != VERSION_TEXT or not number.isdecimal():
        raise _bad_version(name, repr(data[:80]))
    if int(number) != VERSION:
        raise WrongVersion(
            f"{path}: holds version {number}, this release reads version {VERSION}; use the release that wrote it"
        )
    return True


def _bad_version(name: Path, found: str) -> DamagedFile:
    hint = "restore the data directory from a copy; this file is missing or wrong only in an incomplete copy"
    return DamagedFile(name, 0, found=found, expected=f"'{VERSION_TEXT} {VERSION}'", hint=hint)


def _not_imported(path: Path, hint: str) -> WrongVersion:
    return WrongVersion(f"{path}: holds version 1, this release works with version {VERSION}; {hint}")


def _write_version(path: Path) -> None:
    replace_durably(path / "VERSION", f"{VERSION_TEXT} {VERSION}\n".encode())


# Identity ---------------------------------------------------------------------------------------------------


def _holds_data(path: Path) -> bool:
    consensus, state = path / "consensus", path / "state"
    if (path / "identity").exists():
        return True
    return any(folder.is_dir() and any(map(is_there, folder.iterdir())) for folder in (consensus, state))


def _identity_of(path: Path, *, may_create: bool) -> Identity:
    name = path / "identity"
    if not name.exists():
        if not may_create:
            raise _lost_identity(path, name)
        identity = Identity(uuid.uuid4().bytes, NODE_ID_FIRST)
        replace_durably(name, _identity_text(identity))
        return identity
    data = name.read_bytes()
    try:
        cluster, node = (line.split(" ")[1] for line in data.decode("ascii").splitlines()[1:3])
        identity = Identity(bytes.fromhex(cluster), int(node))
    except (ValueError, IndexError):
        identity = Identity(b"", 0)
    if _identity_text(identity) != data:
        expected = "four lines of which the last is the checksum of the first three"
        hint = f"restore the file from a copy; cluster and node are also in {path / 'consensus' / ACTIVE_NAME}"
        raise DamagedFile(name, 0, found=repr(data[:100]), expected=expected, hint=hint)
    return identity


def is_empty(path: Path) -> bool:
    """Whether a directory contains no data of a node, or does not exist."""
    return not _holds_data(path) and not version1.needs_import(path)


def write_identity(path: Path, identity: Identity) -> None:
    """Give an empty directory the identity of a cluster that it joins."""
    assert not _holds_data(path), f"{path} holds data: its identity never changes"
    _make_folder(path)
    _write_version(path)
    replace_durably(path / "identity", _identity_text(identity))


def begin_filling(path: Path, identity: Identity) -> None:
    """Prepare an empty directory for data to be copied into it: without its VERSION no node starts on it."""
    assert not _holds_data(path), f"{path} holds data: its identity never changes"
    _make_folder(path)
    replace_durably(path / "identity", _identity_text(identity))


def finish_filling(path: Path) -> None:
    """Make a filled directory usable: its data are complete."""
    sync_directory(path)
    _write_version(path)


def _identity_text(identity: Identity) -> bytes:
    lines = f"wakeq identity 1\ncluster {identity.cluster_id.hex()}\nnode {identity.node_id}\n".encode()
    return lines + f"crc {crc32(lines):08x}\n".encode()


def _lost_identity(path: Path, name: Path) -> DamagedFile:
    """Return the error for data without an identity, with the identity that the log has."""
    hint = "restore the file from a copy"
    log = path / "consensus" / ACTIVE_NAME
    if log.exists():
        with log.open("rb") as file:
            hint += f"; the log belongs to {decode_header(file.read(HEADER_BYTES), log).identity}"
    return DamagedFile(name, 0, found="no such file", expected="the identity of the data", hint=hint)


def _shared_with(path: Path) -> list[str]:
    """Return a warning if a new data directory already contains other files."""
    if (path / "VERSION").exists():
        return []
    others = sorted(entry.name for entry in path.iterdir() if entry.name not in MAY_BE_FIRST)
    if not others:
        return []
    some = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if others[3:] else "")
    return [f"{path}: now holds a broker's data beside {some}; a separate directory is easier to copy and to protect"]
