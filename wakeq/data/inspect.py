"""Inspect: what is in a data directory, read only, whether a node runs on it or not.

In: its path.  Out: plain facts (texts, numbers, lists, maps) that a person or a script can read.  Takes no lock,
makes nothing, changes nothing; damage is reported as a fact of the file that has it, and where nobody writes as a start
would find it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from wakeq.actors.queue.state import QueueMeta
from wakeq.data.opening import METADATA_NAME, SNAPSHOT_NAME
from wakeq.protocol.catalog import as_dict
from wakeq.protocol.errors import DamagedFile, StorageError, WakeqError, WrongVersion
from wakeq.protocol.log.layout import BadRecord
from wakeq.protocol.wire import messagepack
from wakeq.storage.directory import DataDirectory
from wakeq.storage.log.metadata import Metadata
from wakeq.storage.log.segmented_log import SegmentedLog
from wakeq.storage.state.cut import load_queues, load_skipped
from wakeq.storage.state.lmdb_store import StateStore
from wakeq.storage.state.snapshot import has_snapshot, verify_snapshot
from wakeq.storage.state.store import GRAVES, View

PARTS = ("metadata", "log", "snapshot", "state")


def inspect(path: Path) -> dict[str, Any]:
    """Return what is in a data directory."""
    directory = DataDirectory.read_only(path)
    holder_pid = directory.holder_pid
    metadata, state = _look(lambda: _metadata(directory)), _look(lambda: _state(directory))
    known = max(metadata.get("committed", 0), state.get("applied_index", 0))
    committed = known if holder_pid is None else None  # beside a node that writes there may be half a write
    return {
        "path": str(path),
        "cluster": directory.identity.cluster_id.hex(),
        "node": directory.identity.node_id,
        "used_by_pid": holder_pid,
        "free_bytes": directory.free_bytes(),
        "reserve_bytes": directory.reserve_bytes(),
        "metadata": metadata,
        "log": _look(lambda: _log(directory, committed)),
        "snapshot": _look(lambda: _snapshot(directory)),
        "state": state,
    }


def damage_in(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return what is wrong by the part that it is wrong with; an unfinished write at the log's end is no damage."""
    return {part: facts[part]["error"] for part in PARTS if "error" in facts[part]}


def status_of(facts: Mapping[str, Any]) -> int:
    """Return the exit status that a start on this directory would have for the first thing that is wrong, else 0."""
    codes = [facts[part]["code"] for part in PARTS if "error" in facts[part]]
    statuses = {kind.code: kind.exit_status for kind in (DamagedFile, WrongVersion)}
    return statuses.get(codes[0], StorageError.exit_status) if codes else 0


def _look(at: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return at()
    except WakeqError as error:
        return {"error": str(error), "code": error.code}


def _metadata(directory: DataDirectory) -> dict[str, Any]:
    metadata = Metadata.open(directory.consensus / METADATA_NAME, directory.identity, read_only=True)
    try:
        return {"term": metadata.state.term, "vote": metadata.state.vote, "committed": metadata.state.committed}
    finally:
        metadata.close()


def _log(directory: DataDirectory, committed: int | None) -> dict[str, Any]:
    log = SegmentedLog.open(directory.consensus, directory.identity, committed_at_least=committed, read_only=True)
    try:
        return {
            "first_index": log.first_index,
            "last_index": log.last_index,
            "last_term": log.last_term,
            "size_bytes": log.size_bytes,
            "torn_bytes": log.recovered.torn_bytes,
            "found": log.recovered.text,
        }
    finally:
        log.close()


def _snapshot(directory: DataDirectory) -> dict[str, Any]:
    path = directory.consensus / SNAPSHOT_NAME
    if not has_snapshot(path):
        return {"present": False}
    header = verify_snapshot(path, directory.identity)
    return {
        "present": True,
        "last_index": header.last_index,
        "last_term": header.last_term,
        "size_bytes": path.stat().st_size,
    }


def _state(directory: DataDirectory) -> dict[str, Any]:
    store = StateStore.open(directory.state, cluster_id=None, node_id=None, read_only=True)
    try:
        applied = store.applied()
        facts = {"applied_index": applied.log_index, "applied_term": applied.term, "clock_ms": applied.clock_ms}
        return facts | _look(lambda: _held(store))  # how far it goes is known, whatever of it is damaged
    finally:
        store.close()


def _held(store: StateStore) -> dict[str, Any]:
    with store.read() as view:
        return {
            "queues": _queues(view),
            "dead_incarnations": view.count(GRAVES),
            "set_aside": {index: _aside(index, what) for index, what in load_skipped(view).items()},
        }


def _aside(index: int, what: bytes) -> dict[str, str]:
    """Return what a record says of an entry that was set aside; whoever wrote it may be of another release."""
    try:
        said = messagepack.decode(what)
    except ValueError as error:
        raise BadRecord(f"the entry {index} that is set aside cannot be read: {error}") from None
    if not isinstance(said, dict) or not all(isinstance(one, str) for pair in said.items() for one in pair):
        raise BadRecord(f"the entry {index} that is set aside cannot be read: it is no map of texts")
    return said


def _queues(view: View) -> list[dict[str, Any]]:
    found = []
    for stored in load_queues(view):
        meta = QueueMeta.read(stored.meta)
        found.append(
            {
                "qname": meta.name,
                "id": meta.id,
                "messages": sum(chunk.living for _, chunk in stored.chunks),
                "bytes": sum(sum(chunk.sizes) - chunk.living for _, chunk in stored.chunks),
                "leased": sum(side.until_ms > 0 for side in stored.sides.values()),
                "next_number": meta.next_number,
                "totals": msgspec.to_builtins(meta.totals),
                "policies": as_dict(meta.policies),
            }
        )
    return sorted(found, key=lambda queue: str(queue["qname"]))
