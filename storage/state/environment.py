"""The LMDB environment of the state: opened with what survives a power cut, and only if it is ours.

A directory and the identity that it must have go in, an environment with its tables comes out, or an error
that names the file, what was found, what was expected and what to do.  It never repairs and never guesses.
"""

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping
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

MAP_BYTES: Final = 1 << 40  # address space only: the file grows with what is in it
MAP_BYTES_MIN: Final = 1 << 26  # with less than this we give up asking for a smaller one
DATA_FILE: Final = "data.mdb"
DIRECTORY_MODE: Final = 0o700  # messages are nobody else's business; files get the same without the x
DAMAGE = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.IncompatibleError,
)


def open_environment(directory: Path, map_bytes: int, *, read_only: bool) -> lmdb.Environment:
    """Open with the largest map that the address space and the file system grant."""
    if read_only:
        _refuse_nothing(directory / DATA_FILE)
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
                sync=True,  # less was tried under power cuts, and lost or broke what was committed
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


def _refuse_nothing(path: Path) -> None:
    """LMDB speaks of bad file descriptors where there is nothing to read."""
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
        raise StorageError(f"{directory}: cannot be made: {error.strerror}; make it or choose another") from error
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
    """Make all tables and say whose they are in one transaction: a crash leaves either nothing or all."""
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

    LMDB never writes a page that was taken and freed in one transaction, so the end may rightly be missing.
    If it is missing because somebody cut the file, reading there would kill the process with SIGBUS, where a
    page of zeros is found and reported.
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
    """Turn what LMDB says while reading, and what was read that makes no sense, into our errors."""
    try:
        yield
    except DAMAGE as error:
        raise damaged(path, str(error), "sound pages") from error
    except BadRecord as error:  # whoever reads finds it, and cannot know where it stood
        raise damaged(path, str(error), "whole records") from error
    except lmdb.ReadersFullError as error:
        raise Busy(f"{path}: too many views at once; close some and try again") from error
    except lmdb.Error as error:
        if "closed/deleted/dropped" in str(error):  # the binding has no class of its own for it
            raise Busy(f"{path}: the view or the store was closed meanwhile; read again") from error
        raise StorageError(f"{path}: cannot be read: {error}; look into the kernel's log") from error


def commit_failed(path: Path, error: lmdb.Error | OSError) -> StorageError:
    """Return what a failed transaction means; LMDB's binding tells the reason by class and words only."""
    if isinstance(error, DAMAGE):
        return damaged(path, str(error), "sound pages")
    if isinstance(error, OSError):
        return sync_failed(path, "commit", error)
    numbers = (number for number in (errno.ENOSPC, errno.EDQUOT) if os.strerror(number) in str(error))
    return sync_failed(path, "commit", OSError(next(numbers, errno.EIO), str(error)))


def damaged(path: Path, found: str, expected: str) -> DamagedFile:
    return DamagedFile(path, 0, found=found, expected=expected, hint=REBUILD)
