"""A StateStore and what is put into it, for the tests that open one on a real disk.

A directory --> a store of node 1 in it; numbers --> records and the Checkpoint that writes them
"""

from pathlib import Path
from typing import Any

from wakeq.storage.state.lmdb_store import StateStore
from wakeq.storage.state.store import MESSAGES, Checkpoint

CLUSTER = b"cluster-one-----"


def open_store(directory: Path, **changes: Any) -> StateStore:
    return StateStore.open(directory, **{"cluster_id": CLUSTER, "node_id": 1, **changes})


def numbered(first: int, last: int, size: int = 100) -> list[tuple[bytes, bytes]]:
    return [(b"bench-0000001_%08d" % number, b"v" * size) for number in range(first, last)]


def put(index: int, pairs: list[tuple[bytes, bytes]], table: int = MESSAGES) -> Checkpoint:
    return Checkpoint(index, 1, 10 * index, puts=[(table, pairs)])
