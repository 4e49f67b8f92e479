"""SegmentedLog: the log as files, `raft.log` and the sealed `raft.log.<first index>` (docs/files.md).

    in   (index, term, opaque payload) in index order; what is committed; up to where it may be forgotten
    out  batches that are on disk once `write` returns; the entries read back, each checked

Two sides.  `append`, `append_many` and `take_buffer` belong to the loop and make no system call.  `write`, `roll`,
`seal_for_start`, `truncate_from`, `cut_below` and `reset` belong to the one thread that writes the log.  Reading is for
any thread.  Never looks inside a payload, never goes on after a write or sync that failed, never says that something is
written before it is synced.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Self

from wakeq.protocol.errors import SyncFailed
from wakeq.protocol.log.format import Batch, Identity, RecordBuffer, SegmentHeader, Walk, record_seed
from wakeq.storage.files import rename_durably, sync_directory, sync_failed
from wakeq.storage.log.active_segment import Active, announce_active, block_with, create_active
from wakeq.storage.log.journal import Journal, OutcomeFiles
from wakeq.storage.log.opening import Found, look_at_segments, open_segments
from wakeq.storage.log.segments import Sealed, damaged, open_file, reader, sealed_path, verify_blocks
from wakeq.storage.log.term_runs import TermRuns

SEGMENT_BYTES_MAX = 64 * 1024 * 1024
WALKED_BYTES_MAX = 1024 * 1024  # of an active segment that a stop leaves: a start walks through it, record by record


class EntriesGone(LookupError):
    """Entries were asked for that have been cut off: whoever asked needs a snapshot."""


class _Stretch(NamedTuple):
    """Where to read some entries: from the beginning of a block up to the end of its segment."""

    path: Path
    descriptor: int  # of our own
    start: int
    end: int
    seed: int
    first_index: int


class SegmentedLog:
    """See the head of this file.  Entries have consecutive indexes from `first_index` to `last_index`."""

    def __init__(self, directory: Path, found: Found, segment_bytes_max: int) -> None:
        sealed, active, self.recovered = found
        self.directory = directory
        self.segment_bytes_max = segment_bytes_max
        self._sealed = sealed
        self._active = active
        self._swap = threading.Lock()  # held for the moments in which the active file is exchanged or duplicated
        self._failure = ""
        self.journal: Journal | None = None  # where segments go that the log needs no more; nowhere if None
        self.outcomes: OutcomeFiles | None = None  # for the readers of the log: what became of its entries
        self.written_bytes = 0  # since it was opened; unlike the size it only grows
        self._buffer = RecordBuffer(active.seed)
        self._written_index = self._last_index = active.next_index - 1
        self._written_term = self._last_term = active.last_term
        self._terms = TermRuns([run for segment in sealed for run in segment.footer.terms] + active.terms)

    # Opening ------------------------------------------------------------------------------------------------

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
        """Open the log in `directory` (the folder that holds `raft.log`), or make it there.

        With verify every byte of the sealed segments is checked now; without, as it is read.  A read-only log
        creates, cuts and renames nothing and takes any identity (None); a node may be writing beside it, if
        nothing is known to be committed (None).
        """
        if read_only:
            found = look_at_segments(directory, identity, committed=committed_at_least, verify=verify)
            return cls(directory, found, SEGMENT_BYTES_MAX)
        assert identity is not None, "only a reader takes any"
        assert committed_at_least is not None, "only a reader may look on"
        found = open_segments(
            directory,
            identity,
            committed_at_least=committed_at_least,
            create_first_index=create_first_index,
            create_previous_term=create_previous_term,
            verify=verify,
        )
        return cls(directory, found, segment_bytes_max)

    # The loop's side ----------------------------------------------------------------------------------------

    def append(self, index: int, term: int, payload: bytes) -> None:
        """Put one entry behind the last one.  It is nowhere but in memory until its batch is written."""
        self.append_many(index, term, (payload,))

    def append_many(self, first_index: int, term: int, payloads: Sequence[bytes]) -> None:
        """Put entries of one term behind the last one."""
        assert first_index == self._last_index + 1, f"entry {first_index} after {self._last_index}"
        assert term >= self._last_term, f"term {term} after {self._last_term}"
        self._buffer.append_many(first_index, term, payloads)
        if payloads:
            self._terms.append(first_index, term)
            self._last_term = term
        self._last_index += len(payloads)

    def take_buffer(self) -> Batch | None:
        """Return what was appended since the last call, for `write`; None if there is nothing."""
        self._refuse_after_failure()
        return self._buffer.take()

    @property
    def buffered_bytes(self) -> int:
        return self._buffer.size_bytes

    @property
    def first_index(self) -> int:
        """The oldest entry that is kept; `last_index + 1` when there is none."""
        return (self._sealed[0].header if self._sealed else self._active.header).first_index

    @property
    def active_first_index(self) -> int:
        """The first entry of the segment that is written."""
        return self._active.header.first_index

    @property
    def last_index(self) -> int:
        """The newest entry, written or not."""
        return self._last_index

    @property
    def last_term(self) -> int:
        return self._last_term

    @property
    def written_index(self) -> int:
        """The newest entry that is on disk."""
        return self._written_index

    @property
    def size_bytes(self) -> int:
        return self.sealed_bytes + self._active.end

    @property
    def sealed_bytes(self) -> int:
        """What could be cut off, at most."""
        return sum(segment.size_bytes for segment in self._sealed)

    @property
    def roll_due(self) -> bool:
        """The active segment is full; it can be sealed as soon as all of it is committed."""
        return self._active.end >= self.segment_bytes_max

    @property
    def runs(self) -> list[tuple[int, int]]:
        """(first index, term) of each stretch of entries of one term that is kept, written or not."""
        return self._terms.between(self.first_index, self._last_index)

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry, also of the one just before the first; None for any other index."""
        if not self.first_index <= index <= self._last_index:
            header = (self._sealed[0] if self._sealed else self._active).header
            return header.previous_term if index == header.first_index - 1 else None
        return self._terms.at(index)

    # The writing thread's side ------------------------------------------------------------------------------

    def write(self, batch: Batch) -> None:
        """Put a batch on disk: one write, one sync.  When this returns, it is there."""
        self._refuse_after_failure()
        active = self._active
        assert batch.first_index == self._written_index + 1, "batches are written in the order they were taken"
        try:  # `_latch` spelled out: this is the way of every answer
            active.write(batch)
        except BaseException as error:
            self._failure = str(error) or repr(error)
            raise
        self.written_bytes += len(batch.data)
        self._written_index, self._written_term = batch.last_index, batch.last_term

    def roll(self, committed: int, notes: bytes = b"") -> bool:
        """Seal the active segment with its footer and begin the next one; True if that was done.

        Not done while it is empty or holds entries above `committed`.  Entries may be appended meanwhile.
        """
        self._refuse_after_failure()
        active = self._active
        if not active.marks or committed < self._written_index:
            return False
        with self._latch():
            runs = self._terms.between(active.header.first_index, self._written_index)
            footer = active.make_footer(runs, notes)
            size_bytes = active.seal(footer)
            path = sealed_path(self.directory, active.header.first_index)
            announce_active(self.directory)
            rename_durably(active.path, path)
            header = SegmentHeader(active.header.identity, footer.last_index + 1, footer.last_term)
            new = create_active(self.directory, header)
        sealed = Sealed(path, active.header, replace(footer, notes=b""), size_bytes)
        self._exchange([*self._sealed, sealed], new)
        self._tidy_journal()
        return True

    def seal_for_start(self, committed: int) -> None:
        """Seal the active segment at a clean stop, so that the next start need not walk through it.

        Once the thread that writes has ended.  What a node of a cluster does not know to be committed stays as it is.
        """
        if self._active.end > WALKED_BYTES_MAX:
            self.roll(committed)

    def truncate_from(self, index: int) -> None:
        """Forget the entries from index on, which a follower's leader does not have.  Never a sealed one."""
        self._refuse_after_failure()
        active = self._active
        assert self._last_index == self._written_index, "write or drop the buffer before truncating"
        assert index >= active.header.first_index, f"entry {index} is sealed, hence committed"
        if index > self._last_index:
            return
        term = self.term_at(index - 1) or 0
        with self._latch():
            active.truncate_from(index, term)
        self._terms.forget_from(index)
        self._written_index = self._last_index = index - 1
        self._written_term = self._last_term = term

    def cut_below(self, index: int) -> int:
        """Remove the sealed segments that lie wholly below index, oldest first; return how many."""
        self._refuse_after_failure()
        removed = 0
        while self._sealed and self._sealed[0].footer.last_index < index:
            self._remove_oldest()
            removed += 1
        if removed:
            self._terms.forget_below(self.first_index)
            self._tidy_journal()
        return removed

    def reset(self, first_index: int, previous_term: int) -> None:
        """Begin anew behind an installed snapshot.  A crash on the way leaves a shorter log, yet whole."""
        self._refuse_after_failure()
        assert self._last_index == self._written_index, "write or drop the buffer before a reset"
        while self._sealed:
            self._remove_oldest()
        identity = self._active.header.identity
        with self._latch():
            new = create_active(self.directory, SegmentHeader(identity, first_index, previous_term))
        self._exchange([], new)
        self._terms = TermRuns()
        self._written_index = self._last_index = first_index - 1
        self._written_term = self._last_term = previous_term

    def close(self) -> None:
        """Let go of the file.  What was not written is not saved; nothing else is needed."""
        if self.outcomes is not None:
            self.outcomes.close()
        with self._swap:
            if self._active.descriptor >= 0:
                os.close(self._active.descriptor)
                self._active.descriptor = -1
        self._failure = self._failure or f"{self._active.path}: the log is closed"

    # Reading ------------------------------------------------------------------------------------------------

    def entries(self, from_index: int, to_index: int | None = None) -> Iterator[tuple[int, int, bytes]]:
        """Yield (index, term, payload) of the written entries from from_index to to_index, both included."""
        last = self._written_index if to_index is None else min(to_index, self._written_index)
        if from_index < self.first_index:
            raise EntriesGone(f"entry {from_index} is gone, the log begins with {self.first_index}")
        return self._entries(from_index, last)

    def _entries(self, index: int, last: int) -> Iterator[tuple[int, int, bytes]]:
        while index <= last:
            stretch = self._stretch_with(index)
            path = stretch.path
            try:
                walk = Walk(
                    reader(stretch.descriptor, path),
                    offset=stretch.start,
                    end=stretch.end,
                    seed=stretch.seed,
                    next_index=stretch.first_index,
                )
                for entry in walk:
                    if entry[0] < index:
                        continue
                    yield entry
                    index += 1
                    if index > last:
                        return
            finally:
                os.close(stretch.descriptor)
            if walk.problem or walk.next_index != index:
                problem = walk.problem or "the end of the records"
                raise damaged(path, walk.offset, found=problem, expected=f"record {walk.next_index}")

    def _stretch_with(self, index: int) -> _Stretch:
        with self._swap:
            active, sealed = self._active, self._sealed
            if index >= active.header.first_index:
                first, start = block_with(active.marks, index)
                return _Stretch(active.path, os.dup(active.descriptor), start, active.end, active.seed, first)
            for segment in sealed:
                if index <= segment.footer.last_index:
                    break
            if index < segment.header.first_index:
                raise EntriesGone(f"entry {index} is gone, the log begins with {self.first_index}")
            descriptor = open_file(segment.path, os.O_RDONLY)
        blocks = [(block.first_index, block.offset) for block in segment.footer.blocks]
        first, start = block_with(blocks, index)
        seed = record_seed(segment.header.identity)
        return _Stretch(segment.path, descriptor, start, segment.footer.offset, seed, first)

    def verify(self) -> None:
        """Check every byte of the sealed segments (for a thread); DamagedFile names the first bad record."""
        for segment in list(self._sealed):
            descriptor = open_file(segment.path, os.O_RDONLY)
            try:
                verify_blocks(segment.path, reader(descriptor, segment.path), segment.header, segment.footer)
            finally:
                os.close(descriptor)

    # Steps --------------------------------------------------------------------------------------------------

    @contextmanager
    def _latch(self) -> Iterator[None]:
        """Remember the first failure: what the disk did not take is never tried again."""
        try:
            yield
        except SyncFailed as error:
            self._failure = str(error)
            raise

    def _refuse_after_failure(self) -> None:
        if self._failure:
            raise SyncFailed(self._failure)

    def _remove_oldest(self) -> None:
        path = self._sealed[0].path
        with self._latch():
            if self.journal is not None:
                self.journal.take(path)
            else:
                _unlink(path)
            sync_directory(self.directory)  # one by one: a crash must not leave a gap
        with self._swap:
            self._sealed = self._sealed[1:]

    def _tidy_journal(self) -> None:
        if self.journal is not None:
            with self._latch():
                self.journal.trim()
                self.journal.forget_outcomes(self.first_index)

    def _exchange(self, sealed: list[Sealed], active: Active) -> None:
        with self._swap:
            old, self._active, self._sealed = self._active, active, sealed
            os.close(old.descriptor)


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise sync_failed(path, "remove", error) from error
