"""Inspect: reports what is in a data directory, whether a node runs on it or not.

In: its path.  Out: plain facts (texts, numbers, lists, maps) for people and scripts.  It takes no lock, creates nothing
and changes nothing.  Damage is reported as a fact of the file that has it; while no node writes, the report shows what
a start would find.
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
from wakeq.storage.state.checkpoint import load_queues, load_skipped
from wakeq.storage.state.lmdb_store import StateStore
from wakeq.storage.state.snapshot import has_snapshot, verify_snapshot
from wakeq.storage.state.store import GRAVES, View

PARTS = ("metadata", "log", "snapshot", "state")


def inspect(path: Path) -> dict[str, Any]:
    """Return the facts of a data directory."""
    directory = DataDirectory.read_only(path)
    holder_pid = directory.holder_pid
    metadata, state = _or_error(lambda: _metadata(directory)), _or_error(lambda: _state(directory))
    known = max(metadata.get("committed", 0), state.get("applied_index", 0))
    # Beside a running node the log may end with an unfinished write, which is not damage.
    committed = known if holder_pid is None else None
    return {
        "path": str(path),
        "cluster": directory.identity.cluster_id.hex(),
        "node": directory.identity.node_id,
        "used_by_pid": holder_pid,
        "free_bytes": directory.free_bytes(),
        "reserve_bytes": directory.reserve_bytes(),
        "metadata": metadata,
        "log": _or_error(lambda: _log(directory, committed)),
        "snapshot": _or_error(lambda: _snapshot(directory)),
        "state": state,
    }


def damage_in(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the damage by part; an unfinished write at the end of the log is not damage."""
    return {part: facts[part]["error"] for part in PARTS if "error" in facts[part]}


def status_of(facts: Mapping[str, Any]) -> int:
    """Return the exit status that a start on this directory would have, 0 if nothing is wrong."""
    codes = [facts[part]["code"] for part in PARTS if "error" in facts[part]]
    statuses = {kind.code: kind.exit_status for kind in (DamagedFile, WrongVersion)}
    return statuses.get(codes[0], StorageError.exit_status) if codes else 0


def _or_error(read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return read()
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
        # The index is known even if some of the content is damaged.
        return facts | _or_error(lambda: _content(store))
    finally:
        store.close()


def _content(store: StateStore) -> dict[str, Any]:
    with store.read() as view:
        return {
            "queues": _queues(view),
            "dead_incarnations": view.count(GRAVES),
            "set_aside": {index: _skipped(index, record) for index, record in load_skipped(view).items()},
        }


def _skipped(index: int, record: bytes) -> dict[str, str]:
    """Decode the record of a skipped entry, which another release may have written."""
    try:
        decoded = messagepack.decode(record)
    except ValueError as error:
        raise BadRecord(f"the record of skipped entry {index} cannot be read: {error}") from None
    if not isinstance(decoded, dict) or not all(isinstance(text, str) for pair in decoded.items() for text in pair):
        raise BadRecord(f"the record of skipped entry {index} cannot be read: it is not a map of texts")
    return decoded


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
