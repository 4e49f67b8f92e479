"""SegmentedLog: the log as files, `raft.log` and the sealed `raft.log.<first index>` (docs/files.md).

    in   (index, term, opaque payload) in index order; what is committed; up to where it may be forgotten
    out  batches that are on disk once `write` returns; the entries read back, each checked

Two sides.  `append`, `append_many` and `take_buffer` belong to the loop and make no system call.  `write`,
`roll`, `truncate_from`, `cut_below` and `reset` belong to the one thread that writes the log.  Reading is
for any thread.  Never looks inside a payload, never goes on after a write or sync that failed, never says
that something is written before it is synced.
"""

import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from wakeq.protocol.errors import DamagedFile, SyncFailed
from wakeq.protocol.log_format import (
    BLOCK_BYTES,
    BLOCK_RECORDS,
    HEADER_BYTES,
    RECORD,
    RECORD_BYTES,
    Batch,
    Block,
    Footer,
    Identity,
    RecordBuffer,
    SegmentHeader,
    Walk,
    encode_footer,
    record_seed,
)
from wakeq.storage.files import rename_durably, short_write, sync_data, sync_directory, sync_failed, write_all
from wakeq.storage.journal import Journal, OutcomeFiles
from wakeq.storage.segments import (
    ACTIVE_NAME,
    Active,
    Recovery,
    Sealed,
    absent_active,
    block_crc,
    create_active,
    damaged,
    has_active,
    load_sealed,
    note_records,
    open_file,
    reader,
    recover_active,
    remove_unfinished,
    sealed_path,
    sealed_paths,
    verify_blocks,
)

SEGMENT_BYTES_MAX = 64 * 1024 * 1024
ZEROS_AHEAD = bytes(256 * 1024)  # a sync of bytes that the file already has costs a third less than one that grows it
ZEROS_BATCH_BYTES_MAX = 64 * 1024  # a larger batch grows the file itself: zeros would only double what is written
LOOK_AGAIN = 3  # a reader without the lock may meet a segment in the moment that it is being sealed


class EntriesGone(LookupError):
    """Entries were asked for that have been cut off: whoever asked needs a snapshot."""


class SegmentedLog:
    """See the head of this file.  Entries have consecutive indexes from `first_index` to `last_index`."""

    def __init__(
        self,
        directory: Path,
        sealed: list[Sealed],
        active: Active,
        recovered: Recovery,
        segment_bytes_max: int,
    ) -> None:
        self.directory = directory
        self.recovered = recovered
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
        runs = [run for segment in sealed for run in segment.footer.terms] + active.terms
        self._term_starts = [index for index, _term in runs]
        self._terms = [term for _index, term in runs]

    # Opening ------------------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        directory: Path,
        identity: Identity | None,
        *,
        committed_at_least: int,
        create_first_index: int = 1,
        create_previous_term: int = 0,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        verify: bool = True,
        read_only: bool = False,
    ) -> Self:
        """Open the log in `directory` (the folder that holds `raft.log`), or make it there.

        With verify every byte of the sealed segments is checked now; without, as it is read.  A read-only log
        creates, cuts and renames nothing and takes any identity (None).
        """
        assert read_only or identity is not None
        if read_only:
            return cls._look(directory, identity, verify=verify)
        remove_unfinished(directory)
        sealed = [load_sealed(path, identity, verify=verify) for path in sealed_paths(directory)]
        start = _next_header(sealed, identity, create_first_index, create_previous_term)
        torn_bytes = 0
        if has_active(directory):
            active, footer, torn_bytes = recover_active(
                directory, identity, committed=committed_at_least, read_only=False
            )
            _check_chain(sealed, active.header, active.path)
            if footer is not None:  # sealing had come to the footer, but not to the new name
                sealed.append(_finish_sealing(directory, active, footer, identity))
                start = _next_header(sealed, identity, create_first_index, create_previous_term)
                active = create_active(directory, start)
        else:
            _check_committed(directory / ACTIVE_NAME, HEADER_BYTES, start.first_index - 1, committed_at_least)
            active = create_active(directory, start)
        _check_committed(active.path, active.end, active.next_index - 1, committed_at_least)
        return cls(directory, sealed, active, _describe(sealed, active, torn_bytes), segment_bytes_max)

    @classmethod
    def _look(cls, directory: Path, identity: Identity | None, *, verify: bool) -> Self:
        """Open without the right to change anything, perhaps while a node is writing."""
        for attempt in range(LOOK_AGAIN):
            try:
                sealed = [load_sealed(path, identity, verify=verify) for path in sealed_paths(directory)]
                torn_bytes = 0
                if has_active(directory):
                    active, _footer, torn_bytes = recover_active(directory, identity, committed=0, read_only=True)
                else:
                    whose = identity or (sealed[0].header.identity if sealed else Identity(bytes(16), 0))
                    active = absent_active(directory, _next_header(sealed, whose, 1, 0))
                _check_chain(sealed, active.header, active.path)
            except (DamagedFile, FileNotFoundError):
                if attempt + 1 == LOOK_AGAIN:
                    raise
                continue
            return cls(directory, sealed, active, _describe(sealed, active, torn_bytes), SEGMENT_BYTES_MAX)
        raise AssertionError("unreachable")

    # The loop's side ----------------------------------------------------------------------------------------

    def append(self, index: int, term: int, payload: bytes) -> None:
        """Put one entry behind the last one.  It is nowhere but in memory until its batch is written."""
        self.append_many(index, term, (payload,))

    def append_many(self, first_index: int, term: int, payloads: Sequence[bytes]) -> None:
        """Put entries of one term behind the last one."""
        assert first_index == self._last_index + 1, f"entry {first_index} after {self._last_index}"
        assert term >= self._last_term, f"term {term} after {self._last_term}"
        self._buffer.append_many(first_index, term, payloads)
        if payloads and (term != self._last_term or not self._terms):
            self._term_starts.append(first_index)
            self._terms.append(term)
        self._last_index += len(payloads)
        self._last_term = term if payloads else self._last_term

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
        first = self.first_index
        if self._last_index < first:
            return []
        kept = max(0, bisect_right(self._term_starts, first) - 1)
        runs = zip(self._term_starts[kept:], self._terms[kept:], strict=True)
        return [(max(first, start), term) for start, term in runs]

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry, also of the one just before the first; None for any other index."""
        if not self.first_index <= index <= self._last_index:
            header = (self._sealed[0] if self._sealed else self._active).header
            return header.previous_term if index == header.first_index - 1 else None
        return self._terms[bisect_right(self._term_starts, index) - 1]

    # The writing thread's side ------------------------------------------------------------------------------

    def write(self, batch: Batch) -> None:
        """Put a batch on disk: one write, one sync.  When this returns, it is there."""
        self._refuse_after_failure()
        active = self._active
        assert batch.first_index == self._written_index + 1, "batches are written in the order they were taken"
        try:  # `_latch` spelled out: this is the way of every answer
            self._write_at_end(active, batch.data)
            sync_data(active.descriptor, active.path)
        except BaseException as error:
            self._failure = str(error) or repr(error)
            raise
        self._note_written(active, batch)
        self.written_bytes += len(batch.data)
        self._written_index, self._written_term = batch.last_index, batch.last_term

    def _write_at_end(self, active: Active, data: bytes) -> None:
        size, parts = len(data), [data]
        if active.end + size > active.zeroed and size <= ZEROS_BATCH_BYTES_MAX:
            parts.append(ZEROS_AHEAD)
        try:
            written = os.pwritev(active.descriptor, parts, active.end)
        except OSError as error:
            raise sync_failed(active.path, "write", error) from error
        if written < size:
            raise short_write(active.path, written, size)
        active.zeroed = max(active.zeroed, active.end + written)

    def _note_written(self, active: Active, batch: Batch) -> None:
        """Open the blocks that begin in this batch: at its first record, or, in a large one, within."""
        count = batch.last_index - batch.first_index + 1
        if len(batch.data) > BLOCK_BYTES or count > BLOCK_RECORDS:
            note_records(active, _records_of(batch))
            return
        mark_index, mark_offset = active.marks[-1] if active.marks else (-BLOCK_RECORDS, 0)
        if batch.first_index - mark_index >= BLOCK_RECORDS or active.end - mark_offset >= BLOCK_BYTES:
            active.marks.append((batch.first_index, active.end))
        active.end += len(batch.data)
        active.next_index, active.last_term = batch.last_index + 1, batch.last_term

    def roll(self, committed: int, notes: bytes = b"") -> bool:
        """Seal the active segment with its footer and begin the next one; True if that was done.

        Not done while it is empty or holds entries above `committed`.  Entries may be appended meanwhile.
        """
        self._refuse_after_failure()
        active = self._active
        if not active.marks or committed < self._written_index:
            return False
        with self._latch():
            footer = self._make_footer(active, notes)
            encoded = encode_footer(footer, seed=active.seed)
            _truncate(active)
            write_all(active.descriptor, encoded, active.end, active.path)
            sync_data(active.descriptor, active.path)
            path = sealed_path(self.directory, active.header.first_index)
            rename_durably(active.path, path)
            new = create_active(
                self.directory,
                SegmentHeader(active.header.identity, footer.last_index + 1, footer.last_term),
            )
        kept = Footer(**{name: getattr(footer, name) for name in Footer.__slots__} | {"notes": b""})
        sealed = Sealed(path, active.header, kept, active.end + len(encoded))
        self._exchange([*self._sealed, sealed], new)
        self._tidy_journal()
        return True

    def _make_footer(self, active: Active, notes: bytes) -> Footer:
        read = reader(active.descriptor, active.path)
        ends = [offset for _index, offset in active.marks[1:]] + [active.end]
        blocks = [
            Block(index, offset, block_crc(read, offset, end))
            for (index, offset), end in zip(active.marks, ends, strict=True)
        ]
        first, last = active.header.first_index, self._written_index
        runs = [run for run in zip(self._term_starts, self._terms, strict=False) if first < run[0] <= last]
        runs.insert(0, (first, self.term_at(first) or 0))
        return Footer(active.end, last - first + 1, first, last, self._written_term, tuple(blocks), tuple(runs), notes)

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
            active.end = self._offset_of(active, index)
            _truncate(active)
            sync_data(active.descriptor, active.path)
        del active.marks[bisect_left(active.marks, (index, 0)) :]
        keep = bisect_left(self._term_starts, index)
        del self._term_starts[keep:], self._terms[keep:]
        active.next_index, active.last_term = index, term
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
            self._forget_terms()
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
        self._term_starts, self._terms = [], []
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
            path, descriptor, start, end, seed, first = self._stretch_with(index)
            try:
                walk = Walk(reader(descriptor, path), offset=start, end=end, seed=seed, next_index=first)
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

    def _stretch_with(self, index: int) -> tuple[Path, int, int, int, int, int]:
        """Return path, a descriptor of our own, where to begin and end, seed, and the first index there."""
        with self._swap:
            active, sealed = self._active, self._sealed
            if index >= active.header.first_index:
                first, start = _block_with(active.marks, index)
                descriptor = os.dup(active.descriptor)
                return active.path, descriptor, start, active.end, active.seed, first
            for segment in sealed:
                if index <= segment.footer.last_index:
                    break
            if index < segment.header.first_index:
                raise EntriesGone(f"entry {index} is gone, the log begins with {self.first_index}")
            descriptor = open_file(segment.path, os.O_RDONLY)
        blocks = [(block.first_index, block.offset) for block in segment.footer.blocks]
        first, start = _block_with(blocks, index)
        return (
            segment.path,
            descriptor,
            start,
            segment.footer.offset,
            record_seed(segment.header.identity),
            first,
        )

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

    def _forget_terms(self) -> None:
        keep = max(0, bisect_right(self._term_starts, self.first_index) - 1)
        del self._term_starts[:keep], self._terms[:keep]

    def _exchange(self, sealed: list[Sealed], active: Active) -> None:
        with self._swap:
            old, self._active, self._sealed = self._active, active, sealed
            os.close(old.descriptor)

    def _offset_of(self, active: Active, index: int) -> int:
        first, start = _block_with(active.marks, index)
        walk = Walk(
            reader(active.descriptor, active.path),
            offset=start, end=active.end, seed=active.seed, next_index=first,
        )  # fmt: skip
        for found, _term, payload in walk:
            if found == index:
                return start
            start += RECORD_BYTES + len(payload)
        raise damaged(active.path, walk.offset, found=walk.problem, expected=f"record {walk.next_index}")


def _block_with(blocks: list[tuple[int, int]], index: int) -> tuple[int, int]:
    """Return (first index, offset) of the block that holds index."""
    return blocks[bisect_right(blocks, (index, 1 << 63)) - 1]


def _records_of(batch: Batch) -> Iterator[tuple[int, int, int]]:
    """Yield (index, term, payload bytes) of what is in a batch."""
    position, data = 0, batch.data
    while position < len(data):
        length, _crc, index, term, _place = RECORD.unpack_from(data, position)
        yield index, term, length
        position += RECORD_BYTES + length


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise sync_failed(path, "remove", error) from error


def _truncate(active: Active) -> None:
    try:
        os.ftruncate(active.descriptor, active.end)
    except OSError as error:
        raise sync_failed(active.path, "truncate", error) from error
    active.zeroed = active.end


def _next_header(
    sealed: list[Sealed], identity: Identity | None, first_index: int, previous_term: int
) -> SegmentHeader:
    """Check that the sealed segments follow each other, and return the header of the one that comes next."""
    assert identity is not None
    for count, segment in enumerate(sealed):
        _check_chain(sealed[:count][-1:], segment.header, segment.path)
    if sealed:
        return SegmentHeader(identity, sealed[-1].footer.last_index + 1, sealed[-1].footer.last_term)
    return SegmentHeader(identity, first_index, previous_term)


def _check_chain(before: list[Sealed], header: SegmentHeader, path: Path) -> None:
    if not before:
        return
    footer = before[-1].footer
    if header.first_index != footer.last_index + 1:
        found = f"first index {header.first_index}"
        raise damaged(path, 28, found=found, expected=f"{footer.last_index + 1}, for a segment is missing between")
    if header.previous_term != footer.last_term:
        raise damaged(path, 36, found=f"previous term {header.previous_term}", expected=str(footer.last_term))


def _check_committed(path: Path, offset: int, last_index: int, committed: int) -> None:
    if last_index < committed:
        raise damaged(
            path, offset, found=f"the end of the log after entry {last_index}",
            expected=f"entry {committed}, which is known to be committed",
        )  # fmt: skip


def _finish_sealing(directory: Path, active: Active, footer: Footer, identity: Identity | None) -> Sealed:
    """Give a segment that has its footer its name too."""
    os.close(active.descriptor)
    path = sealed_path(directory, active.header.first_index)
    rename_durably(active.path, path)
    return load_sealed(path, identity, verify=False)


def _describe(sealed: list[Sealed], active: Active, torn_bytes: int) -> Recovery:
    entries = sum(segment.footer.count for segment in sealed) + active.next_index - active.header.first_index
    text = f"{active.path}: {entries} entries up to index {active.next_index - 1}"
    if torn_bytes:
        text += f"; {torn_bytes} bytes of an unfinished write at offset {active.end} were cut off"
    return Recovery(entries, torn_bytes, text)
