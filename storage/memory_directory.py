"""MemoryDirectory: a data directory in memory, which outlives a node but not the program.

    open_log() --> the node's own log, on a file that has no name    metadata, store --> the same without a disk

A crash of the node loses entries that were not written, as on a disk.  Two directories share nothing, and `close` frees
everything.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wakeq.protocol.log.format import HEADER_BYTES, Identity, SegmentHeader
from wakeq.storage.log.active_segment import ActiveSegment
from wakeq.storage.log.metadata import Metadata, State
from wakeq.storage.log.opening import OpenedSegments, Recovery
from wakeq.storage.log.segmented_log import SegmentedLog
from wakeq.storage.log.term_runs import TermRuns
from wakeq.storage.state.memory import MemoryStore

FOLDER: Final = Path("memory:")  # appears in messages in place of the path of a data directory
NEVER_FULL_BYTES: Final = 1 << 62  # a file without a name cannot be sealed, because that renames it


class MemoryMetadata(Metadata):
    """Metadata with the rules of the file, but without the file."""

    def __init__(self, identity: Identity) -> None:
        super().__init__(FOLDER / "raft.metadata", -1, identity, 0, State())

    def _put(self, slot: bytes, offsets: Sequence[int] = ()) -> None:
        """Write nothing: the state in memory is all there is."""


class MemoryDirectory:
    """One node's files.  The caller of `open_log` closes the log; the directory stays until `close`."""

    def __init__(self) -> None:
        self.identity = Identity(os.urandom(16), 1)
        self.metadata: Metadata = MemoryMetadata(self.identity)
        self.store = MemoryStore(self.identity.cluster_id, self.identity.node_id)
        self._descriptor = os.memfd_create("wakeq-log", os.MFD_CLOEXEC)

    @property
    def snapshot_path(self) -> Path:
        """The path of an image that is never written: a log that is never sealed needs none."""
        return FOLDER / "raft.snapshot"

    def open_log(self) -> SegmentedLog:
        """Open the log with all entries that were written before."""
        path = FOLDER / "raft.log"
        header = SegmentHeader(self.identity, first_index=1, previous_term=0)
        size_bytes = max(HEADER_BYTES, os.fstat(self._descriptor).st_size)
        active = ActiveSegment(path, os.dup(self._descriptor), header, size_bytes)
        terms = TermRuns(0, 0)
        for index, term in active.find_end()[0]:
            terms.append(index, term)
        entries = active.next_index - 1
        recovery = Recovery(entries, 0, f"{path}: {entries} entries")
        return SegmentedLog(FOLDER, OpenedSegments([], active, terms, recovery), NEVER_FULL_BYTES)

    def close(self) -> None:
        """Free the memory."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
