"""Tools for durable files: whole writes, synced names, and errors that say what the disk did.

    in   paths, file descriptors, bytes
    out  bytes on disk, or SyncFailed / DiskFull with file, reason and what to do

Never retries a failed write or sync, and never leaves a half-written file under its final name.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from wakeq.protocol.errors import StorageError, SyncFailed

# LMDB reports a full disk as EIO: with less than this free, EIO counts as a full disk.
FULL_BYTES = 1024 * 1024
TEMPORARY_SUFFIX = ".new"
MODE = 0o600  # messages are private
_NOT_OURS = (errno.EACCES, errno.EPERM)
_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)

WARN_OF = {
    "nfs": "locks and syncs over a network cannot be trusted",
    "cifs": "locks and syncs over a network cannot be trusted",
    "smb": "locks and syncs over a network cannot be trusted",
    "9p": "locks and syncs over a network cannot be trusted",
    "fuse": "the effect of a sync depends on a program",
    "overlay": "it is a container's own layer, and ends with the container",
    "tmpfs": "it is memory, and ends with the machine's power",
}


def anyone_may_change(path: Path) -> bool:
    """Whether every user of this machine may write to path; no if it is missing or we may not look."""
    return _others_may(stat.S_IWOTH, path)


def anyone_may_read(path: Path) -> bool:
    """Whether every user of this machine may read path; no if it is missing or we may not look."""
    return _others_may(stat.S_IROTH, path)


def _others_may(right: int, path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & right)
    except OSError:
        return False


def is_there(path: Path) -> bool:
    """Whether a file exists and has content; a crash may leave one of 0 bytes, which counts as absent."""
    return path.exists() and path.stat().st_size > 0


def free_bytes(path: Path) -> int:
    """Return how many bytes this process may still write to the file system of path."""
    state = file_system(path)
    return state.f_bavail * state.f_frsize


def file_system(path: Path) -> os.statvfs_result:
    """Return the figures of the file system of path."""
    try:
        return os.statvfs(path)
    except OSError as error:
        raise StorageError(
            f"{path}: {error.strerror}; the directory was removed or its disk is gone, and data written there since "
            "then may be lost"
        ) from error


def is_full(path: Path, error: OSError) -> bool:
    """Tell a full disk from a broken one, by errno and by the free space."""
    if error.errno in _FULL_ERRORS:
        return True
    try:
        return error.errno == errno.EIO and free_bytes(path.parent) < FULL_BYTES
    except StorageError:
        return False


def sync_failed(path: Path, action: str, error: OSError) -> SyncFailed:
    """Return the error for a failed write or sync; the caller remembers it and raises it from then on."""
    reason = error.strerror or str(error)
    failed = SyncFailed(f"{path}: {action} failed: {reason}; {_hint(path, error)}")
    failed.is_full = is_full(path, error)
    return failed


def _hint(path: Path, error: OSError) -> str:
    if is_full(path, error):
        return "the disk is full: free some space, then start the node again"
    if error.errno in _NOT_OURS:
        return "the node must own its data directory and everything in it: see owner and mode"
    if error.errno == errno.EROFS:
        return (
            "the kernel may have made it read-only because the disk fails: look into its log and at the mount options"
        )
    return "the disk may be failing: look into the kernel's log before starting the node again"


def short_write(path: Path, written: int, size: int) -> SyncFailed:
    """Return the error for a write that the disk completed only in part."""
    error = OSError(errno.ENOSPC, f"only {written} of {size} bytes were written")
    return sync_failed(path, "write", error)


def write_all(descriptor: int, data: bytes | bytearray, offset: int, path: Path) -> None:
    """Write all of data at offset, or raise."""
    try:
        written = os.pwrite(descriptor, data, offset)
    except OSError as error:
        raise sync_failed(path, "write", error) from error
    if written != len(data):
        raise short_write(path, written, len(data))


def sync_data(descriptor: int, path: Path) -> None:
    try:
        os.fdatasync(descriptor)
    except OSError as error:
        raise sync_failed(path, "sync", error) from error


def sync_directory(directory: Path) -> None:
    """Make the names of created, renamed and removed files in a directory durable."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise sync_failed(directory, "sync of the directory", error) from error


@contextmanager
def new_private_file(path: Path) -> Iterator[TextIO]:
    """Create a file that only its owner can read; remove it again if the block that fills it fails."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
    except FileExistsError:
        raise StorageError(f"{path} exists already; choose another name, or remove it") from None
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}; choose another place") from error
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def temporary(path: Path) -> Path:
    return path.with_name(path.name + TEMPORARY_SUFFIX)


def replace_durably(path: Path, data: bytes | bytearray) -> None:
    """Replace the content of path: after a crash at any moment the old or the new content is whole."""
    new = temporary(path)
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, MODE)
    except OSError as error:
        raise sync_failed(new, "create", error) from error
    try:
        write_all(descriptor, data, 0, new)
        sync_data(descriptor, new)
    finally:
        os.close(descriptor)
    rename_durably(new, path)


def remove_file(path: Path) -> None:
    """Remove a file, if it is there."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise sync_failed(path, "remove", error) from error


def rename_durably(old: Path, new: Path) -> None:
    try:
        os.rename(old, new)
    except OSError as error:
        raise sync_failed(old, f"rename to {new.name}", error) from error
    sync_directory(new.parent)


def warnings_of(path: Path) -> list[str]:
    """Return the reasons against keeping data at this path."""
    kind = _kind_of_file_system(path)
    return [
        f"{path}: is on {kind}: {reason}; use a disk of this machine"
        for name, reason in WARN_OF.items()
        if kind.startswith(name)
    ]


def _kind_of_file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Return the type of the file system of path; "" if the system does not tell."""
    best, kind = "", ""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    real = str(path.resolve())
    for line in lines:
        _device, point, found, *_rest = line.split(" ")
        point = point.replace("\\040", " ")
        if (real == point or real.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, found
    return kind
