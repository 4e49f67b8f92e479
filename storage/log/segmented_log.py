"""SegmentedLog: the log as files, `raft.log` and the sealed `raft.log.<first index>` (docs/files.md).

    in   (index, term, opaque payload) in index order; the committed index; the index below which entries may go
    out  batches that are on disk when `write` returns; the entries read back, each checked

The event loop calls `append_many` and `take_buffer`, which make no system call.  `write`, `roll`, `seal_for_start`,
`truncate_from`, `cut_below` and `reset` belong to the one thread that writes the log.  Any thread may read.  The log
never looks inside a payload, never goes on after a write or sync that failed, and never calls an entry written before
it is synced.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Self

from wakeq.protocol.errors import DamagedFile, StorageError, SyncFailed
from wakeq.protocol.log.format import Batch, Identity, SegmentHeader, Walk, encode_records, record_seed
from wakeq.storage.files import remove_file, rename_durably, sync_directory
from wakeq.storage.log.active_segment import ActiveSegment, announce_active, block_with, create_active
from wakeq.storage.log.journal import Journal, OutcomeFiles
from wakeq.storage.log.opening import OpenedSegments, open_segments
from wakeq.storage.log.segments import SealedSegment, damaged, open_file, reader, sealed_path
from wakeq.storage.log.term_runs import TermRuns

SEGMENT_BYTES_MAX = 64 * 1024 * 1024
# A start reads an active segment record by record; a clean stop seals one that is larger than this.
WALKED_BYTES_MAX = 1024 * 1024
# A reader holds no lock: it may open the log just while a segment is being sealed.
READER_RETRIES = 2


class EntriesGone(LookupError):
    """The entries were removed from the log: a peer that asked for them needs a snapshot."""


class ActiveCopy(NamedTuple):
    """The active segment as it was at one moment, for a reader that closes the descriptor."""

    path: Path
    header: SegmentHeader
    descriptor: int
    # The offset behind the last entry on disk.
    end: int
    # The first entry of each block, and its offset.
    blocks: list[tuple[int, int]]


class SegmentedLog:
    """Entries have consecutive indexes from `first_index` to `last_index`; those up to `written_index` are on disk."""

    def __init__(self, directory: Path, opened: OpenedSegments, segment_bytes_max: int) -> None:
        self.directory = directory
        self.segment_bytes_max = segment_bytes_max  # a longer active segment is due to be sealed
        self.recovered = opened.recovery
        self.journal: Journal | None = None  # takes the segments that the log no longer needs; None: they are deleted
        self.outcomes: OutcomeFiles | None = None  # for readers of the journal: the outcome of each entry
        self.last_index = opened.active.next_index - 1  # newest entry, written or not
        self.last_term = opened.terms.at(self.last_index)
        self.written_index = self.last_index  # newest entry on disk
        self.written_bytes = 0  # since the log was opened; unlike `size_bytes` it never falls
        self.buffered_bytes = 0  # appended and not yet taken
        self._sealed = opened.sealed
        self._active = opened.active
        self._swap = threading.Lock()  # held while the active file is exchanged or its descriptor duplicated
        self._terms = opened.terms
        self._seed = opened.active.seed
        self._parts: list[bytes] = []  # of the records in the buffer
        self._taken_index = self.last_index  # newest entry of the last batch that was taken
        self._failure = ""  # the first failed write or sync; nothing is accepted afterwards

    @classmethod
    def open(
        cls,
        directory: Path,
        identity: Identity | None,
        *,
        committed_at_least: int | None,
        create_first_index: int = 1,
        create_previous_term: int = 0,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        verify: bool = True,
        read_only: bool = False,
    ) -> Self:
        """Open the log in `directory` (the folder that holds `raft.log`), or create it there.

        With `verify` every byte of the sealed segments is checked now; without, when it is read.  A read-only log
        changes no file, accepts any identity (None), and may be opened beside a node that is writing if
        `committed_at_least` is None.
        """
        assert read_only or identity is not None, "only a reader accepts any identity"
        assert read_only or committed_at_least is not None, "only a reader may open a log that is being written"
        for retries_left in reversed(range(1 + READER_RETRIES if read_only else 1)):
            try:
                opened = open_segments(
                    directory,
                    identity,
                    committed=committed_at_least,
                    create_first_index=create_first_index,
                    create_previous_term=create_previous_term,
                    verify=verify,
                    read_only=read_only,
                )
                break
            except (DamagedFile, FileNotFoundError):
                if not retries_left:
                    raise
        return cls(directory, opened, segment_bytes_max)

    # The event loop's side --------------------------------------------------------------------------------------------

    def append_many(self, first_index: int, term: int, payloads: Sequence[bytes]) -> None:
        """Put entries of one term behind the last one.  They are only in memory until their batch is written."""
        assert first_index == self.last_index + 1, f"entry {first_index} after {self.last_index}"
        assert term >= self.last_term, f"term {term} after {self.last_term}"
        place = first_index - self._taken_index - 1
        self.buffered_bytes += encode_records(
            self._parts, payloads, first_index=first_index, term=term, first_place=place, seed=self._seed
        )
        if term != self.last_term and payloads:
            self._terms.append(first_index, term)
            self.last_term = term
        self.last_index += len(payloads)

    def take_buffer(self) -> Batch | None:
        """Return the entries appended since the last call as one batch for `write`; None if there are none."""
        if self._failure:
            raise SyncFailed(self._failure)
        if not self._parts:
            return None
        batch = Batch(b"".join(self._parts), self._taken_index + 1, self.last_index)
        self._parts = []
        self.buffered_bytes = 0
        self._taken_index = self.last_index
        return batch

    @property
    def first_index(self) -> int:
        """The oldest entry that is kept; `last_index + 1` when there is none."""
        return (self._sealed[0] if self._sealed else self._active).header.first_index

    @property
    def active_first_index(self) -> int:
        """The first entry of the active segment."""
        return self._active.header.first_index

    @property
    def size_bytes(self) -> int:
        return self.sealed_bytes + self._active.end

    @property
    def sealed_bytes(self) -> int:
        """The bytes that `cut_below` could free at most."""
        return sum(segment.size_bytes for segment in self._sealed)

    @property
    def roll_due(self) -> bool:
        """Whether the active segment is full; it can be sealed as soon as all of it is committed."""
        return self._active.end >= self.segment_bytes_max

    @property
    def runs(self) -> list[tuple[int, int]]:
        """(first index, term) of each run of entries of one term, written or not."""
        return self._terms.between(self.first_index, self.last_index)

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry or of the one just before the first; None for any other index."""
        return self._terms.at(index) if self.first_index - 1 <= index <= self.last_index else None

    # The writing thread's side ----------------------------------------------------------------------------------------

    def write(self, batch: Batch) -> None:
        """Put a batch on disk with one write and one sync.  When this returns, the batch is durable."""
        if self._failure:
            raise SyncFailed(self._failure)
        assert batch.first_index == self.written_index + 1, "batches must be written in the order they were taken"
        # This is `_changing` spelled out: every answer waits for it.
        try:
            self._active.write(batch)
        except BaseException as error:
            self._failure = str(error) or repr(error)
            raise
        self.written_bytes += len(batch.data)
        self.written_index = batch.last_index

    def roll(self, committed: int, notes: bytes = b"") -> bool:
        """Seal the active segment with its footer and begin the next one; return whether that was done.

        Nothing is done while the segment is empty or holds entries above `committed`.  The loop may append meanwhile.
        """
        with self._changing():
            active = self._active
            if not active.marks or committed < self.written_index:
                return False
            runs = self._terms.between(active.header.first_index, self.written_index)
            footer = active.make_footer(runs, notes)
            size_bytes = active.seal(footer)
            path = sealed_path(self.directory, active.header.first_index)
            announce_active(self.directory)
            rename_durably(active.path, path)
            header = SegmentHeader(active.header.identity, footer.last_index + 1, footer.last_term)
            new = create_active(self.directory, header)
            sealed = SealedSegment(path, active.header, replace(footer, notes=b""), size_bytes)
            self._exchange([*self._sealed, sealed], new)
            self._trim_journal()
            return True

    def seal_for_start(self, committed: int) -> None:
        """Seal the active segment at a clean stop, so that the next start need not read it record by record.

        Call this after the writing thread has ended.  A segment with entries that may not be committed stays as it is.
        """
        if self._active.end > WALKED_BYTES_MAX:
            self.roll(committed)

    def truncate_from(self, index: int) -> None:
        """Remove the entries from `index` on, which the leader does not have.  Sealed entries are never removed."""
        with self._changing():
            assert self.last_index == self.written_index, "write or drop the buffer before truncating"
            assert index >= self.active_first_index, f"entry {index} is sealed, hence committed"
            if index > self.last_index:
                return
            self._active.truncate_from(index)
            self._terms.truncate_from(index)
            self.last_term = self._terms.at(index - 1)
            self.last_index = self.written_index = self._taken_index = index - 1

    def cut_below(self, index: int) -> int:
        """Remove the sealed segments that lie wholly below `index`, oldest first; return how many."""
        with self._changing():
            removed = 0
            while self._sealed and self._sealed[0].footer.last_index < index:
                self._remove_oldest()
                removed += 1
            if removed:
                self._terms.remove_below(self.first_index - 1)
                self._trim_journal()
            return removed

    def reset(self, first_index: int, previous_term: int) -> None:
        """Begin again behind an installed snapshot.  A crash on the way leaves a log that is shorter and whole."""
        with self._changing():
            assert self.last_index == self.written_index, "write or drop the buffer before a reset"
            while self._sealed:
                self._remove_oldest()
            header = SegmentHeader(self._active.header.identity, first_index, previous_term)
            self._exchange([], create_active(self.directory, header))
            self._terms = TermRuns(first_index - 1, previous_term)
            self.last_index = self.written_index = self._taken_index = first_index - 1
            self.last_term = previous_term

    def close(self) -> None:
        """Close the file.  Entries that were not written are lost."""
        if self.outcomes is not None:
            self.outcomes.close()
        with self._swap:
            self._active.close()
        self._failure = self._failure or f"{self._active.path}: the log is closed"

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Remember the first failure: a disk that failed once is never trusted again."""
        if self._failure:
            raise SyncFailed(self._failure)
        try:
            yield
        except SyncFailed as error:
            self._failure = str(error)
            raise

    def _exchange(self, sealed: list[SealedSegment], active: ActiveSegment) -> None:
        with self._swap:
            old, self._active, self._sealed = self._active, active, sealed
            old.close()

    def _remove_oldest(self) -> None:
        path = self._sealed[0].path
        if self.journal is not None:
            self.journal.take(path)
        else:
            remove_file(path)
        # Sync after each segment: a crash must not leave a gap.
        sync_directory(self.directory)
        with self._swap:
            self._sealed = self._sealed[1:]

    def _trim_journal(self) -> None:
        if self.journal is not None:
            self.journal.trim()
            self.journal.forget_outcomes(self.first_index)

    # Reading ----------------------------------------------------------------------------------------------------------

    def entries(self, from_index: int, to_index: int | None = None) -> Iterator[tuple[int, int, bytes]]:
        """Yield (index, term, payload) of the written entries from from_index to to_index, both included."""
        last = self.written_index if to_index is None else min(to_index, self.written_index)
        if from_index < self.first_index:
            raise EntriesGone(f"entry {from_index} is gone, the log begins with {self.first_index}")
        return self._entries(from_index, last)

    def _entries(self, index: int, last: int) -> Iterator[tuple[int, int, bytes]]:
        while index <= last:
            path, descriptor, walk = self._walk_from(index)
            try:
                for entry in walk:
                    if entry[0] < index:
                        continue
                    yield entry
                    index += 1
                    if index > last:
                        return
            finally:
                os.close(descriptor)
            if walk.problem or walk.next_index != index:
                problem = walk.problem or "the end of the records"
                raise damaged(path, walk.offset, found=problem, expected=f"record {walk.next_index}")

    def _walk_from(self, index: int) -> tuple[Path, int, Walk]:
        """Return a walk from the block that holds `index` to the end of its segment, on a descriptor of its own."""
        with self._swap:
            active, sealed = self._active, self._sealed
            if index >= active.header.first_index:
                path, end, seed = active.path, active.end, active.seed
                blocks = active.marks
                descriptor = os.dup(active.descriptor)
            else:
                segment = next((each for each in sealed if index <= each.footer.last_index), None)
                if segment is None or index < segment.header.first_index:
                    raise EntriesGone(f"entry {index} is gone, the log begins with {self.first_index}")
                path, end, seed = segment.path, segment.footer.offset, record_seed(segment.header.identity)
                blocks = [(block.first_index, block.offset) for block in segment.footer.blocks]
                descriptor = open_file(path, os.O_RDONLY)
            first, start = block_with(blocks, index)
        return path, descriptor, Walk(reader(descriptor, path), offset=start, end=end, seed=seed, next_index=first)

    def copy_active(self) -> ActiveCopy:
        """Return the active segment with a descriptor of its own, which stays good when the segment is sealed."""
        with self._swap:
            active = self._active
            if active.descriptor < 0:
                raise StorageError(f"{active.path}: the log is closed; start the node again")
            # Read in this order: `write` marks a block before it moves the end behind it.
            marks, end = list(active.marks), active.end
            blocks = [mark for mark in marks if mark[1] < end]
            return ActiveCopy(active.path, active.header, os.dup(active.descriptor), end, blocks)
