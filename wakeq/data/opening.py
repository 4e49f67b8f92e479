"""Opening: opens the files of a data directory, or raises one error that says why they do not fit together.

    path --> directory, metadata, log, state store; checked against each other; a missing state is rebuilt

Must never repair what it cannot prove: every promise is in the log, and a gap between log and state is refused.
"""

import logging
import shutil
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from wakeq.data.image_check import check_state
from wakeq.protocol.errors import DamagedFile, DirectoryInUse, StorageError
from wakeq.protocol.log.format import Identity
from wakeq.storage import version1
from wakeq.storage.directory import FOLDER_MODE, DataDirectory, is_empty, write_identity
from wakeq.storage.files import is_there, rename_durably, sync_directory, temporary
from wakeq.storage.log.journal import Journal, Keep, OutcomeFiles
from wakeq.storage.log.metadata import Metadata
from wakeq.storage.log.segmented_log import SEGMENT_BYTES_MAX, SegmentedLog
from wakeq.storage.log.segments import ACTIVE_NAME
from wakeq.storage.state.environment import DATA_FILE
from wakeq.storage.state.images import INSTALL_NAME, RECEIVED_NAME, SPOILT_NAME
from wakeq.storage.state.lmdb_store import StateStore
from wakeq.storage.state.snapshot import RESTORE, check_header, has_snapshot, read_snapshot, verify_snapshot
from wakeq.storage.state.store import DEDUP, INDEX, KEY_BYTES_MAX, MESSAGES, QUEUES, Checkpoint, Store
from wakeq.storage.version1 import ImportedQueue

logger = logging.getLogger("wakeq.opening")

METADATA_NAME = "raft.metadata"
SNAPSHOT_NAME = "raft.snapshot"
JOURNAL_NAME = "journal"
KEEP_NOTHING = Keep(0, 0)
SEGMENT_BYTES_MIN = 1 << 20
# Only whole segments can be removed, so on a small disk they are smaller.
SEGMENTS_PER_DISK = 32
ONE_COPY = "restore the whole data directory from a single copy; parts of two copies do not fit together"
# The tables of an image; dead incarnations are not in it.
IMAGE_TABLES = {MESSAGES, INDEX, QUEUES, DEDUP}
# Records of a snapshot that are written in one transaction.
LOAD_BATCH = 20_000


@dataclass(frozen=True, slots=True)
class DurableFiles:
    """The files that a broker must not lose.  Invariant: the log continues where the state ends, or earlier."""

    identity: Identity
    metadata: Metadata
    log: SegmentedLog
    store: Store
    snapshot_path: Path


@dataclass(slots=True)
class DataFiles:
    """The open files of a data directory."""

    directory: DataDirectory
    metadata: Metadata
    log: SegmentedLog
    store: StateStore
    imported: version1.Import | None = None

    @property
    def snapshot_path(self) -> Path:
        return self.directory.consensus / SNAPSHOT_NAME

    @property
    def durable(self) -> DurableFiles:
        return DurableFiles(self.directory.identity, self.metadata, self.log, self.store, self.snapshot_path)

    def close(self) -> None:
        self.log.close()
        self.store.close()
        self.metadata.close()
        self.directory.close()


def open_all(
    path: Path,
    *,
    upgrade: bool,
    segment_bytes_max: int = SEGMENT_BYTES_MAX,
    keep: Keep = KEEP_NOTHING,
    node_id: int | None = None,
    new: Identity | None = None,
) -> DataFiles:
    """Open a data directory for this process; a cluster says whose it must be, and what an empty one becomes."""
    if new is not None and is_empty(path):
        write_identity(path, new)
    directory = DataDirectory.open(path, upgrade=upgrade)
    try:
        _check_node(directory, node_id)
        return _open_files(directory, segment_bytes_max, keep)
    except BaseException:
        directory.close()
        raise


def read_unused(data_dir: Path) -> DataDirectory:
    """Return a data directory for reading; refuse one that a node uses."""
    directory = DataDirectory.read_only(data_dir)
    pid = directory.holder_pid
    if pid is not None:
        raise DirectoryInUse(f"{data_dir}: in use by the node with pid {pid or 'unknown'}; stop it first")
    return directory


def _check_node(directory: DataDirectory, node_id: int | None) -> None:
    own = directory.identity.node_id
    if node_id not in (None, own):
        raise StorageError(
            f"{directory.path}: contains the data of node {own}, but --node says {node_id}; "
            "give each node its own --data-dir"
        )


def _open_files(directory: DataDirectory, segment_bytes_max: int, keep: Keep) -> DataFiles:
    imported = None
    if directory.imports_version_1:
        imported = version1.read_import(directory.path)
        _report(imported)
        version1.set_aside(directory.path)
    for warning in directory.warnings:
        logger.warning("%s", warning)
    _check_metadata_exists(directory)
    metadata = Metadata.open(directory.consensus / METADATA_NAME, directory.identity)
    _check_log_exists(directory, metadata)
    # Images that were being written or received when the node ended take room for nothing.
    for unfinished in (directory.consensus / RECEIVED_NAME, temporary(directory.consensus / SNAPSHOT_NAME)):
        unfinished.unlink(missing_ok=True)
    store = _open_state(directory)
    log = _open_log(directory, metadata, store, segment_bytes_max)
    _open_journal(directory, log, keep)
    opened = DataFiles(directory, metadata, log, store, imported)
    _check_fit(opened)
    (directory.consensus / SPOILT_NAME).unlink(missing_ok=True)
    for problem in (metadata.recovered, log.recovered.text if log.recovered.torn_bytes else ""):
        if problem:
            logger.warning("%s", problem)
    return opened


def _report(imported: version1.Import) -> None:
    """Log what is imported, and each kind of data that may be incomplete, with a count."""
    queues = sum(isinstance(item, ImportedQueue) for item in imported.items)
    logger.info("importing version 1: %d queues, %d messages", queues, len(imported.items) - queues)
    for note, times in Counter(imported.notes).items():
        logger.warning("version 1: %s%s", note, f" ({times} times)" if times > 1 else "")


def _open_state(directory: DataDirectory) -> StateStore:
    """Open the state store; rebuild it first if the leader sent an image, or if only a snapshot is left."""
    if (directory.consensus / INSTALL_NAME).exists():
        _install_image(directory)
    snapshot, spoilt = directory.consensus / SNAPSHOT_NAME, directory.consensus / SPOILT_NAME
    if spoilt.exists():
        _empty_spoilt_state(directory, spoilt, snapshot)
    store = _open_store(directory)
    try:
        if store.applied().log_index:
            _check_spare_image(snapshot, directory.identity)
            return store
        if not has_snapshot(snapshot):
            return store
    except BaseException:
        store.close()
        raise
    store.close()
    logger.info("%s is empty; rebuilding it from %s", directory.state, snapshot)
    verify_snapshot(snapshot, directory.identity)
    _fill_state(directory, snapshot)
    return _open_store(directory)


def _check_spare_image(snapshot: Path, identity: Identity) -> None:
    """Refuse a damaged header although the state is sound: the image would be missing when the state is lost."""
    try:
        if has_snapshot(snapshot):
            check_header(snapshot, identity)
    except DamagedFile as error:
        hint = "the state is sound: `wakeq repair` renames this file, and the next snapshot replaces it"
        raise DamagedFile(error.path, error.offset, found=error.found, expected=error.expected, hint=hint) from None


def _open_store(directory: DataDirectory) -> StateStore:
    identity = directory.identity
    return StateStore.open(directory.state, cluster_id=identity.cluster_id, node_id=identity.node_id)


def _open_log(directory: DataDirectory, metadata: Metadata, store: StateStore, segment_bytes_max: int) -> SegmentedLog:
    """Open the log, or create it after the end of the state."""
    applied = store.applied()
    log = SegmentedLog.open(
        directory.consensus,
        directory.identity,
        committed_at_least=max(metadata.state.committed, applied.log_index),
        create_first_index=applied.log_index + 1,
        create_previous_term=applied.term,
    )
    log.segment_bytes_max = min(segment_bytes_max, max(SEGMENT_BYTES_MIN, directory.disk_bytes // SEGMENTS_PER_DISK))
    return log


def _open_journal(directory: DataDirectory, log: SegmentedLog, keep: Keep) -> None:
    """Give the log its journal, and remove history that has become too old."""
    folder = directory.path / JOURNAL_NAME
    log.journal = Journal(folder, keep, time.time)
    log.outcomes = OutcomeFiles(folder, directory.identity)
    log.journal.trim()
    log.journal.forget_outcomes(log.first_index)


def _check_metadata_exists(directory: DataDirectory) -> None:
    """Refuse a log or a state without metadata: the node would have forgotten whom it voted for."""
    path = directory.consensus / METADATA_NAME
    if is_there(path):
        return
    if _has_log(directory.consensus) or is_there(directory.state / DATA_FILE):
        found = "an empty file" if path.exists() else "no such file"
        hint = ONE_COPY
        raise DamagedFile(path, 0, found=found, expected="the term and vote that belong to the log", hint=hint)


def _has_log(consensus: Path) -> bool:
    """Whether any segment exists; `raft.log.v1`, which version 1 left, is none."""
    return is_there(consensus / ACTIVE_NAME) or any(consensus.glob(f"{ACTIVE_NAME}.[0-9]*"))


def _check_log_exists(directory: DataDirectory, metadata: Metadata) -> None:
    """Refuse a missing log of a node that has ever voted: this is not its first start."""
    path = directory.consensus / ACTIVE_NAME
    if metadata.state.term and not _has_log(directory.consensus):
        hint = f"it holds every promise since the last flush: {ONE_COPY}"
        found = "no log" if not path.exists() else "an empty file"
        raise DamagedFile(path, 0, found=found, expected=f"the log of term {metadata.state.term}", hint=hint)


def _fill_state(directory: DataDirectory, image: Path) -> None:
    """Fill an empty state from a verified image, and refuse an image whose content is implausible.

    The store is opened for this alone: it belongs to the thread that writes first, and the node's store belongs to
    another thread.
    """
    store = _open_store(directory)
    try:
        header, items = read_snapshot(image, directory.identity)
        puts: dict[int, list[tuple[bytes, bytes]]] = {}
        for count, (table, key, value) in enumerate(items, 1):
            if table not in IMAGE_TABLES or not 0 < len(key) <= KEY_BYTES_MAX:
                found = f"a record of table {table} under a key of {len(key)} bytes"
                raise DamagedFile(image, 0, found=found, expected="records of a state", hint=RESTORE)
            puts.setdefault(table, []).append((key, value))
            if count % LOAD_BATCH == 0:
                store.commit(Checkpoint(0, 0, 0, list(puts.items())))
                puts = {}
        store.commit(Checkpoint(0, 0, 0, list(puts.items())))
        check_state(store, header, image, with_messages=False)
        # Until this commit the state counts as empty.
        store.commit(Checkpoint(header.last_index, header.last_term, header.clock_ms))
    finally:
        store.close()


def _install_image(directory: DataDirectory) -> None:
    """Replace state and log by an image that the leader has sent; after a crash this begins again."""
    image, identity = directory.consensus / INSTALL_NAME, directory.identity
    try:
        header = verify_snapshot(image, identity)
    except DamagedFile as error:
        _discard_image(image, error, directory)
        return
    logger.warning("%s: installing the state as of entry %d, received from the leader", image, header.last_index)
    _empty_state(directory)
    _fill_state(directory, image)
    log = SegmentedLog.open(directory.consensus, identity, committed_at_least=0, verify=False)
    try:
        log.reset(header.last_index + 1, header.last_term)
    finally:
        log.close()
    rename_durably(image, directory.consensus / SNAPSHOT_NAME)


def _empty_state(directory: DataDirectory) -> None:
    shutil.rmtree(directory.state)
    directory.state.mkdir(mode=FOLDER_MODE)
    sync_directory(directory.path)


def _empty_spoilt_state(directory: DataDirectory, spoilt: Path, snapshot: Path) -> None:
    """Empty a state with an entry that the other nodes skip, if an earlier image and the log can rebuild it."""
    text = spoilt.read_bytes().strip()
    if not text.isdigit():
        hint = _rejoin_hint(directory.identity.node_id)
        raise DamagedFile(spoilt, 0, found=repr(text[:40]), expected="the index of an entry, as digits", hint=hint)
    index = int(text)
    if has_snapshot(snapshot) and verify_snapshot(snapshot, directory.identity).last_index >= index:
        raise DamagedFile(
            snapshot,
            0,
            found=f"an image that contains entry {index}, which the other nodes skip",
            expected="an image from before that entry",
            hint=_rejoin_hint(directory.identity.node_id),
        )
    logger.warning("%s contains entry %d, which the other nodes skip: rebuilding it", directory.state, index)
    _empty_state(directory)


def _rejoin_hint(node: int) -> str:
    return (
        f"empty the data directory, run `wakeq cluster remove {node}` and `wakeq cluster add {node} HOST:PORT` on "
        "another node, and start this one again with --join"
    )


def _discard_image(image: Path, error: DamagedFile, directory: DataDirectory) -> None:
    """Discard a damaged image if the state that it was to replace is still there; else say how to rejoin."""
    store = _open_store(directory)
    # The index is 0 until an image has been loaded completely.
    has_state = store.applied().log_index > 0
    store.close()
    if not has_state:
        hint = "the state that it should replace is gone: " + _rejoin_hint(directory.identity.node_id)
        raise DamagedFile(image, error.offset, found=error.found, expected=error.expected, hint=hint) from error
    logger.warning("%s; discarding it: the leader sends another one", error)
    image.unlink()
    sync_directory(image.parent)


def _check_fit(opened: DataFiles) -> None:
    """Refuse a gap between state and log, and a log that lacks committed entries."""
    log, applied = opened.log, opened.store.applied()
    path = opened.directory.consensus / ACTIVE_NAME
    if log.first_index > applied.log_index + 1:
        # Then the state was emptied, to be rebuilt from the log.
        is_spoilt = (opened.directory.consensus / SPOILT_NAME).exists()
        raise DamagedFile(
            path,
            0,
            found=f"a log that begins at entry {log.first_index}",
            expected=f"one that continues after entry {applied.log_index}, where the state ends",
            hint=_rejoin_hint(opened.directory.identity.node_id) if is_spoilt else ONE_COPY,
        )
    if log.last_index < max(applied.log_index, opened.metadata.state.committed):
        raise DamagedFile(
            path,
            0,
            found=f"a log that ends at entry {log.last_index}",
            expected=f"entries up to {max(applied.log_index, opened.metadata.state.committed)}, which were committed",
            hint=ONE_COPY,
        )
