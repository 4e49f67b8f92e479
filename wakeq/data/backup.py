"""Backups: files with the whole state, as `wakeq backup` writes them: verified, restored, exported as JSON lines.

    backup file --> a new data directory, with an identity of its own
                --> a line for each queue, then one for each message

A directory that contains anything is never touched.  The restored node is a cluster of its own: it can never contact
the one that the backup was taken from.
"""

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from wakeq.actors.queue.state import QueueMeta
from wakeq.data.image_check import HINT, check_state
from wakeq.data.opening import SNAPSHOT_NAME, open_all
from wakeq.data.recover import recover_alone
from wakeq.protocol.catalog import as_dict
from wakeq.protocol.errors import DamagedFile, QueueNotFound, StorageError
from wakeq.protocol.log.format import Identity
from wakeq.protocol.log.rows import Row, decode_row
from wakeq.protocol.wire.worker.codec import text_of
from wakeq.storage.directory import FOLDER_MODE, NODE_ID_FIRST, begin_filling, finish_filling, is_empty, write_identity
from wakeq.storage.files import sync_directory
from wakeq.storage.state.checkpoint import ID, MEMBERS_KEY, SKIPPED_BIT
from wakeq.storage.state.snapshot import Item, SnapshotHeader, read_snapshot, verify_snapshot, write_snapshot
from wakeq.storage.state.store import MESSAGES, QUEUES, without_checksum

# The folder in which a data directory is built until it is complete.
UNFINISHED = "restoring"
# Items of a backup between two calls that tell of the progress.
ITEMS_PER_STEP = 1_000

Line = dict[str, Any]


def verify(path: Path) -> dict[str, Any]:
    """Check every byte of a backup; return its facts."""
    header = verify_snapshot(path, None)
    return {
        "path": str(path),
        "cluster": header.identity.cluster_id.hex(),
        "node": header.identity.node_id,
        "index": header.last_index,
        "clock_ms": header.clock_ms,
        "size_bytes": path.stat().st_size,
    }


def restore(
    path: Path,
    data_dir: Path,
    node: int | None = None,
    *,
    tell: Callable[[str, int | None], None] = lambda doing, size_bytes: None,
    step: Callable[[int], None] = lambda done_bytes: None,
) -> dict[str, Any]:
    """Restore a backup into a new data directory; with a number it becomes that node of a cluster, alone at first.

    `tell` hears of each part of the work, with its size if that is known, and `step` of the bytes that are done.
    """
    tell("checking the backup", None)
    header = verify_snapshot(path, None)
    if not is_empty(data_dir):
        raise StorageError(f"{data_dir}: contains data already; restore into a directory that does not exist")
    identity = Identity(uuid.uuid4().bytes, NODE_ID_FIRST if node is None else node)
    begin_filling(data_dir, identity)
    part = data_dir / UNFINISHED
    try:
        tell("copying the backup", path.stat().st_size)
        messages = _build(part, path, header, identity, tell, step)
        if node is not None:
            recover_alone(part)
    except Exception:
        # Cleared, so that the restore can be repeated; if the process is killed, no node starts on what is left.
        shutil.rmtree(data_dir / UNFINISHED, ignore_errors=True)
        (data_dir / "identity").unlink()
        raise
    _move_up(part, data_dir)
    finish_filling(data_dir)
    shutil.rmtree(part)
    return {
        "data_dir": str(data_dir),
        "cluster": identity.cluster_id.hex(),
        "node": identity.node_id,
        "messages": messages,
    }


def _build(
    part: Path,
    path: Path,
    header: SnapshotHeader,
    identity: Identity,
    tell: Callable[[str, int | None], None],
    step: Callable[[int], None],
) -> int:
    """Build the data directory; return the number of its messages."""
    write_identity(part, identity)
    (part / "consensus").mkdir(mode=FOLDER_MODE, exist_ok=True)
    _, items = read_snapshot(path, None)
    mine = SnapshotHeader(identity, header.last_index, header.last_term, header.clock_ms)
    # The restored node is alone, whoever belonged to the other cluster.
    kept = (item for item in _counted(items, step) if item[:2] != (QUEUES, MEMBERS_KEY))
    write_snapshot(part / "consensus" / SNAPSHOT_NAME, mine, kept)
    tell("filling the state store", None)
    try:
        opened = open_all(part, upgrade=False)
    except DamagedFile as error:
        # The damage is in the copy that was just made from the backup, and that is removed again.
        raise DamagedFile(path, error.offset, found=error.found, expected=error.expected, hint=HINT) from None
    try:
        tell("checking the state store", None)
        check_state(opened.store, header, path, with_messages=True)
        opened.metadata.save(term=header.last_term, committed=header.last_index)
        with opened.store.read() as view:
            return view.count(MESSAGES)
    finally:
        opened.close()


def _counted(items: Iterable[Item], step: Callable[[int], None]) -> Iterator[Item]:
    """Pass items on, and say now and then how many bytes they were."""
    done_bytes = 0
    for number, item in enumerate(items, 1):
        done_bytes += len(item[1]) + len(item[2])
        if number % ITEMS_PER_STEP == 0:
            step(done_bytes)
        yield item


def _move_up(part: Path, data_dir: Path) -> None:
    """Move the finished folders up; that is a rename, since all of them are on one disk."""
    for entry in part.iterdir():
        if entry.is_dir():
            entry.rename(data_dir / entry.name)


# JSON lines ---------------------------------------------------------------------------------------------------------


def lines_of(path: Path, queues: frozenset[str]) -> Iterator[Line]:
    """Yield a line for each queue (all of them, or these), then one for each message."""
    found = list(_queue_lines(path, queues))
    missing = queues - {line["queue"] for line in found}
    if missing:
        raise QueueNotFound(f"the backup has no queue {sorted(missing)[0]!r}; leave the name out to export all queues")
    yield from found
    for table, key, value in read_snapshot(path, None)[1]:
        if table == MESSAGES:
            name, _, uid = key.rpartition(b"-")
            queue = name.decode()
            if not queues or queue in queues:
                yield _message_line(queue, uid.decode(), decode_row(value))


def _queue_lines(path: Path, queues: frozenset[str]) -> Iterator[Line]:
    for table, key, value in read_snapshot(path, None)[1]:
        if table != QUEUES or key == MEMBERS_KEY or ID.unpack(key)[0] & SKIPPED_BIT:
            continue
        raw = without_checksum(value)
        if raw is None:
            hint = "the state was damaged before the backup was taken; see `wakeq repair`"
            raise DamagedFile(path, 0, found=f"a damaged queue {key.hex()}", expected="its checksum", hint=hint)
        meta = QueueMeta.read(raw)
        if not queues or meta.name in queues:
            line = {"kind": "queue", "queue": meta.name, "policies": as_dict(meta.policies)}
            yield line | {"paused_until_ms": meta.paused_until_ms, "created_ms": meta.created_ms}


def _message_line(queue: str, uid: str, row: Row) -> Line:
    text, encoding = text_of(row.body)
    side = row.side
    return {
        "kind": "message",
        "queue": queue,
        "uid": uid,
        "body": text,
        "encoding": "base64" if encoding else "text",
        "headers": msgspec.msgpack.decode(row.headers, type=dict[str, str]) if row.headers else {},
        "priority": row.priority,
        "timeout_ms": row.timeout_ms,
        "due_ms": row.due_ms if side is None else side.due_ms,
        "expires_ms": row.expires_ms,
        "published_ms": row.published_ms,
        "deliveries": 0 if side is None else side.deliveries,
        "failures": 0 if side is None else side.failures,
        "error": "" if side is None else side.error,
    }


def part_beside(path: Path) -> Path:
    """Create a temporary file beside this path that only its owner can read: it will hold messages."""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f"{path.name}.", suffix=".part")
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}; choose another place") from error
    os.close(descriptor)
    return Path(name)


def keep(part: Path, path: Path) -> None:
    """Give a complete file its name, so that it is either whole or not there; raise if the name is taken."""
    with part.open("rb") as file:
        os.fsync(file.fileno())
    try:
        # Unlike a rename, a link never replaces an existing file.
        os.link(part, path)
        part.unlink()
    except FileExistsError as error:
        raise StorageError(f"{path} exists already; choose another name for this backup") from error
    except OSError:
        # This file system has no links.
        part.rename(path)
    sync_directory(path.absolute().parent)
