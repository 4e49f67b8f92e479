"""The LMDB environment of the state: opened so that it survives power cuts, and only if it belongs to this node; and
ResidentPages, which keeps the pages of its map from counting as this process's memory.

    a directory, the identity that it must have --> an environment with its tables

An error names the file, what was found, what was expected and what to do.  Opening never repairs and never guesses.
"""

import contextlib
import ctypes
import errno
import mmap
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import lmdb

from wakeq.protocol.errors import REBUILD, Busy, DamagedFile, StorageError, WrongVersion
from wakeq.protocol.log.layout import BadRecord
from wakeq.storage.files import is_there, sync_directory, sync_failed
from wakeq.storage.state.store import (
    CLUSTER_KEY,
    FORMAT,
    FORMAT_KEY,
    META,
    NODE_KEY,
    TABLE_NAMES,
    View,
    decode_number,
    new_meta,
    without_checksum,
)

Tables = Mapping[int, "lmdb._Database"]

MAP_BYTES: Final = 1 << 40  # address space only: the file grows with its content
MAP_BYTES_MIN: Final = 1 << 26  # smaller maps are not tried
DATA_FILE: Final = "data.mdb"
DIRECTORY_MODE: Final = 0o700  # messages are private; files get the same mode without the x
DAMAGE = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.IncompatibleError,
)

RESIDENT_BYTES_MAX: Final = 32 * 1024 * 1024  # of all mapped files in this process, before pages are released
CHECK_EVERY: Final = 64  # uses between two checks of the size, each of which costs some microseconds

_LIBC = ctypes.CDLL(None, use_errno=True)
_MALLOC_TRIM = getattr(_LIBC, "malloc_trim", None)  # of glibc only
_STATUS = Path("/proc/self/statm")
_MAPS = Path("/proc/self/maps")


def open_environment(directory: Path, map_bytes: int, *, read_only: bool) -> lmdb.Environment:
    """Open with the largest map that the address space and the file system grant."""
    if read_only:
        _refuse_missing(directory / DATA_FILE)
    else:
        _make_directory(directory)
    while True:
        try:
            return lmdb.open(
                str(directory),
                map_size=map_bytes,
                max_dbs=len(TABLE_NAMES),
                max_spare_txns=1,
                mode=DIRECTORY_MODE,
                readonly=read_only,
                create=False,
                # Weaker settings were tried under power cuts: they lost or broke committed transactions.
                sync=True,
                metasync=True,
                writemap=False,
            )
        except (lmdb.MemoryError, lmdb.InvalidParameterError) as error:
            if map_bytes // 4 < MAP_BYTES_MIN:
                raise StorageError(f"{directory}: no room to map it: {error}; raise `ulimit -v`") from error
            map_bytes //= 4
        except DAMAGE as error:
            raise damaged(directory / DATA_FILE, str(error), "an LMDB environment") from error
        except lmdb.Error as error:
            raise StorageError(f"{directory}: cannot be opened: {error}; see who owns it and uses it") from error


def _refuse_missing(path: Path) -> None:
    """Refuse a missing or empty file; LMDB would complain about bad file descriptors."""
    if not is_there(path):
        found = "an empty file" if path.exists() else "no file"
        hint = "start the node on it, it makes a new one from its snapshot and its log"
        raise DamagedFile(path, 0, found=found, expected="an LMDB environment", hint=hint)


def _make_directory(directory: Path) -> None:
    if directory.is_dir():
        return
    try:
        directory.mkdir(mode=DIRECTORY_MODE)
    except OSError as error:
        raise StorageError(f"{directory}: cannot be created: {error.strerror}; create it or choose another") from error
    sync_directory(directory.parent)


def open_tables(
    env: lmdb.Environment, path: Path, cluster_id: bytes | None, node_id: int | None, *, read_only: bool
) -> Tables:
    names = set(env.dbs()) if env.stat()["entries"] else set()
    if not names and not read_only and env.stat()["entries"] == 0:
        assert cluster_id is not None
        assert node_id is not None
        return _make_tables(env, path, cluster_id, node_id)
    missing = [name.decode() for name in TABLE_NAMES.values() if name not in names]
    if missing:
        raise damaged(path, f"no table {', '.join(missing)}", "the tables of a wakeq state")
    return {table: env.open_db(name, create=False) for table, name in TABLE_NAMES.items()}


def _make_tables(env: lmdb.Environment, path: Path, cluster_id: bytes, node_id: int) -> Tables:
    """Create all tables and their identity in one transaction: a crash leaves all of it or nothing."""
    try:
        with env.begin(write=True) as txn:
            tables = {table: env.open_db(name, txn=txn) for table, name in TABLE_NAMES.items()}
            for key, value in new_meta(cluster_id, node_id).items():
                txn.put(key, value, db=tables[META])
    except lmdb.Error as error:
        raise commit_failed(path, error) from error
    sync_directory(path.parent)
    return tables


def lengthen(env: lmdb.Environment, path: Path, *, read_only: bool) -> None:
    """Make the file as long as its last page number says.

    LMDB never writes a page that was allocated and freed in one transaction, so a missing end is normal.  If the end is
    missing because the file was truncated, reading there would kill the process with SIGBUS; a page of zeros is noticed
    and reported.
    """
    info = env.info()
    expected = (info["last_pgno"] + 1) * env.stat()["psize"]
    found = path.stat().st_size
    if found >= expected:
        return
    if read_only:
        raise DamagedFile(
            path,
            found,
            found="the end of the file",
            expected=f"{expected} bytes",
            hint="start the node on it once, or restore it",
        )
    os.truncate(path, expected)


def check_identity(path: Path, view: View, cluster_id: bytes | None, node_id: int | None) -> None:
    version = decode_number(view.get(META, FORMAT_KEY) or b"")
    if version is None:
        raise damaged(path, "a damaged format number", f"format {FORMAT}")
    if version != FORMAT:
        raise WrongVersion(
            f"{path}: format {version}, this release reads {FORMAT}; "
            "use the release that wrote it, or restore a backup of this one"
        )
    cluster = without_checksum(view.get(META, CLUSTER_KEY) or b"")
    node = decode_number(view.get(META, NODE_KEY) or b"")
    if cluster is None or node is None:
        raise damaged(path, "a damaged identity", "cluster and node with their checksums")
    if (cluster_id, node_id) != (None, None) and (cluster, node) != (cluster_id, node_id):
        raise DamagedFile(
            path,
            0,
            found=f"the state of node {node} of cluster {cluster.hex()}",
            expected=f"node {node_id} of cluster {(cluster_id or b'').hex()}",
            hint="point the node at its own data directory, or put the right state back",
        )


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors of LMDB while reading, and records that cannot be decoded, into our errors."""
    try:
        yield
    except DAMAGE as error:
        raise damaged(path, str(error), "sound pages") from error
    # The code that decodes a record does not know its file.
    except BadRecord as error:
        raise damaged(path, str(error), "whole records") from error
    except lmdb.ReadersFullError as error:
        raise Busy(f"{path}: too many views at once; close some and try again") from error
    except lmdb.Error as error:
        # The binding has no class of its own for this.
        if "closed/deleted/dropped" in str(error):
            raise Busy(f"{path}: the view or the store was closed meanwhile; read again") from error
        raise StorageError(f"{path}: cannot be read: {error}; look into the kernel's log") from error


def commit_failed(path: Path, error: lmdb.Error | OSError) -> StorageError:
    """Return our error for a failed transaction; LMDB's binding gives the reason only by class and text."""
    if isinstance(error, DAMAGE):
        return damaged(path, str(error), "sound pages")
    if isinstance(error, OSError):
        return sync_failed(path, "commit", error)
    numbers = (number for number in (errno.ENOSPC, errno.EDQUOT) if os.strerror(number) in str(error))
    return sync_failed(path, "commit", OSError(next(numbers, errno.EIO), str(error)))


def damaged(path: Path, found: str, expected: str) -> DamagedFile:
    return DamagedFile(path, 0, found=found, expected=expected, hint=REBUILD)


class ResidentPages:
    """A bound for the resident pages of one mapped file.  Any thread may call.

    A process that reads a file through a map is charged for every page that it ever touched, until the kernel is short
    of memory: reading a gigabyte of messages once looks like a gigabyte of use.  Above the bound this object tells the
    kernel that the pages are no longer needed.  They stay in its cache, and touching one again does not read the disk.

    It must never release an address that no longer belongs to the file, so the owner of the map says when it moves.
    """

    def __init__(self, path: Path, bytes_max: int = RESIDENT_BYTES_MAX) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._lock = threading.Lock()  # held while the map moves or ends, and while its pages are released
        self._uses = 0  # small uses so far
        self._works = _STATUS.exists() and hasattr(mmap, "MADV_DONTNEED")

    def used(self) -> None:
        """Count one small use of the map; every CHECK_EVERY uses, check the bound."""
        self._uses += 1
        if self._uses % CHECK_EVERY == 0:
            self.check()

    def check(self) -> None:
        """Release the pages if too many are resident; call this after a use that touched many."""
        if self._works and mapped_file_bytes() > self._bytes_max:
            self.give_up()

    def give_up(self) -> None:
        """Tell the kernel that no page of the file is needed any more."""
        with self._lock:
            for start, size in self._ranges():
                _LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), ctypes.c_int(mmap.MADV_DONTNEED))

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Release nothing while the map moves or ends: its address may then belong to another one."""
        with self._lock:
            yield

    def _ranges(self) -> list[tuple[int, int]]:
        """Return (address, size) of the read-only shared maps of the file: releasing their pages loses nothing."""
        if not self._works:
            return []
        # The file may have been removed.
        with suppress(OSError):
            inode = str(self._path.stat().st_ino)
            lines = (line.split(maxsplit=5) for line in _MAPS.read_text().splitlines())
            places = [line[0] for line in lines if line[4] == inode and line[1] == "r--s"]
            ends = [tuple(int(address, 16) for address in place.split("-")) for place in places]
            return [(start, end - start) for start, end in ends]
        return []


def mapped_file_bytes() -> int:
    """Return the size of the file pages in this process's resident memory."""
    return int(_STATUS.read_bytes().split()[2]) * os.sysconf("SC_PAGESIZE")


def give_freed_back() -> None:
    """Make the allocator return freed memory to the kernel; otherwise it keeps that after a lot of work."""
    if _MALLOC_TRIM is not None:
        _MALLOC_TRIM(0)
