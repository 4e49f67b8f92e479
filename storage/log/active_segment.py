"""Active: the segment of the log that is written, `raft.log`.

    batches in index order --> one write and one sync each --> the file, with a footer once it is full
    what a crash left      --> its end found, a torn tail cut off; or DamagedFile with offset and reason

Cuts off what stands behind the last whole record, and nothing else: never a record that was once synced, never one that
is committed.  What it refuses, it leaves as it found it.
"""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wakeq.protocol.log.format import (
    BLOCK_BYTES,
    BLOCK_RECORDS,
    HEADER_BYTES,
    RECORD,
    RECORD_BYTES,
    TRAILER_BYTES,
    Batch,
    Block,
    Footer,
    Identity,
    SegmentHeader,
    Walk,
    batch_start_after,
    decode_footer,
    decode_header,
    encode_footer,
    encode_header,
    footer_offset,
    record_seed,
)
from wakeq.storage.files import (
    MODE,
    replace_durably,
    short_write,
    sync_data,
    sync_directory,
    sync_failed,
    temporary,
    write_all,
)
from wakeq.storage.log.segments import ACTIVE_NAME, block_crc, check_identity, damaged, open_file, reader

ZEROS_AHEAD = bytes(256 * 1024)  # a sync of bytes that the file already has costs a third less than one that grows it
ZEROS_BATCH_BYTES_MAX = 64 * 1024  # a larger batch grows the file itself: zeros would only double what is written


@dataclass(slots=True)
class Active:
    """See the head of this file.  Bytes from `end` to `zeroed` are zeros written ahead."""

    path: Path
    descriptor: int
    header: SegmentHeader
    end: int
    zeroed: int
    next_index: int
    last_term: int
    marks: list[tuple[int, int]] = field(default_factory=list)  # (first index, offset) of each block
    terms: list[tuple[int, int]] = field(default_factory=list)  # as found by recovery; the log keeps them afterwards

    @property
    def seed(self) -> int:
        return record_seed(self.header.identity)

    def write(self, batch: Batch) -> None:
        """Put a batch on disk: one write, one sync.  When this returns, it is there."""
        self._write_at_end(batch.data)
        sync_data(self.descriptor, self.path)
        self._note_written(batch)

    def _write_at_end(self, data: bytes) -> None:
        size, parts = len(data), [data]
        if self.end + size > self.zeroed and size <= ZEROS_BATCH_BYTES_MAX:
            parts.append(ZEROS_AHEAD)
        try:
            written = os.pwritev(self.descriptor, parts, self.end)
        except OSError as error:
            raise sync_failed(self.path, "write", error) from error
        if written < size:
            raise short_write(self.path, written, size)
        self.zeroed = max(self.zeroed, self.end + written)

    def _note_written(self, batch: Batch) -> None:
        """Open the blocks that begin in this batch: at its first record, or, in a large one, within."""
        count = batch.last_index - batch.first_index + 1
        if len(batch.data) > BLOCK_BYTES or count > BLOCK_RECORDS:
            self.note_records(_records_of(batch))
            return
        mark_index, mark_offset = self.marks[-1] if self.marks else (-BLOCK_RECORDS, 0)
        if batch.first_index - mark_index >= BLOCK_RECORDS or self.end - mark_offset >= BLOCK_BYTES:
            self.marks.append((batch.first_index, self.end))
        self.end += len(batch.data)
        self.next_index, self.last_term = batch.last_index + 1, batch.last_term

    def note_records(self, records: Iterable[tuple[int, int, int]]) -> None:
        """Move the end past (index, term, payload bytes), opening blocks and term runs."""
        marks, terms, term_before = self.marks, self.terms, self.last_term
        offset, index = self.end, self.next_index - 1
        mark_index, mark_offset = marks[-1] if marks else (-BLOCK_RECORDS, -BLOCK_BYTES)
        for index, term, payload_bytes in records:
            if offset - mark_offset >= BLOCK_BYTES or index - mark_index >= BLOCK_RECORDS:
                mark_index, mark_offset = index, offset
                marks.append((index, offset))
            if term != term_before or not terms:
                terms.append((index, term))
                term_before = term
            offset += RECORD_BYTES + payload_bytes
        self.end, self.next_index, self.last_term = offset, index + 1, term_before

    def make_footer(self, runs: Sequence[tuple[int, int]], notes: bytes) -> Footer:
        """Return the footer of all that is written; `runs` are its terms."""
        read = reader(self.descriptor, self.path)
        ends = [offset for _index, offset in self.marks[1:]] + [self.end]
        blocks = tuple(
            Block(index, offset, block_crc(read, offset, end))
            for (index, offset), end in zip(self.marks, ends, strict=True)
        )
        first, last = self.header.first_index, self.next_index - 1
        return Footer(self.end, last - first + 1, first, last, self.last_term, blocks, tuple(runs), notes)

    def seal(self, footer: Footer) -> int:
        """Write the footer behind the last record; return how large the file is now."""
        encoded = encode_footer(footer, seed=self.seed)
        self._cut_off("truncate")
        write_all(self.descriptor, encoded, self.end, self.path)
        sync_data(self.descriptor, self.path)
        return self.end + len(encoded)

    def truncate_from(self, index: int, previous_term: int) -> None:
        """Forget the entries from index on; the one before is of this term."""
        self.end = self._offset_of(index)
        self._cut_off("truncate")
        sync_data(self.descriptor, self.path)
        del self.marks[bisect_left(self.marks, (index, 0)) :]
        self.next_index, self.last_term = index, previous_term

    def cut_torn_tail(self) -> None:
        """Forget what an unfinished write has left behind the last record."""
        self._cut_off("cutting off a torn tail")
        sync_data(self.descriptor, self.path)

    def _cut_off(self, action: str) -> None:
        try:
            os.ftruncate(self.descriptor, self.end)
        except OSError as error:
            raise sync_failed(self.path, action, error) from error
        self.zeroed = self.end

    def _offset_of(self, index: int) -> int:
        first, start = block_with(self.marks, index)
        read = reader(self.descriptor, self.path)
        walk = Walk(read, offset=start, end=self.end, seed=self.seed, next_index=first)
        for found, _term, payload in walk:
            if found == index:
                return start
            start += RECORD_BYTES + len(payload)
        raise damaged(self.path, walk.offset, found=walk.problem, expected=f"record {walk.next_index}")


def block_with(blocks: list[tuple[int, int]], index: int) -> tuple[int, int]:
    """Return (first index, offset) of the block that holds index."""
    return blocks[bisect_right(blocks, (index, 1 << 63)) - 1]


def announce_active(directory: Path) -> None:
    """Put down that `raft.log` is about to be made anew: where it is missing and this is not there, it was lost."""
    unfinished = temporary(directory / ACTIVE_NAME)
    try:
        unfinished.touch(MODE)
    except OSError as error:
        raise sync_failed(unfinished, "create", error) from error
    sync_directory(directory)


def is_announced(directory: Path) -> bool:
    return temporary(directory / ACTIVE_NAME).exists()


def create_active(directory: Path, header: SegmentHeader) -> Active:
    """Make an empty active segment; a crash leaves it whole or not there."""
    path = directory / ACTIVE_NAME
    replace_durably(path, encode_header(header))
    descriptor = open_file(path, os.O_RDWR)
    return Active(path, descriptor, header, HEADER_BYTES, HEADER_BYTES, header.first_index, header.previous_term)


def absent_active(directory: Path, header: SegmentHeader) -> Active:
    """Stand in, for a reader that may not write, for an active segment that is not there."""
    path = directory / ACTIVE_NAME
    return Active(path, -1, header, HEADER_BYTES, HEADER_BYTES, header.first_index, header.previous_term)


def has_active(directory: Path) -> bool:
    """A file of 0 bytes is one that a crash left without its content: it counts as absent."""
    path = directory / ACTIVE_NAME
    return path.exists() and path.stat().st_size > 0


def remove_unfinished(directory: Path) -> None:
    """Forget a new active segment that never got its name."""
    temporary(directory / ACTIVE_NAME).unlink(missing_ok=True)


def recover_active(
    directory: Path, identity: Identity | None, *, committed: int | None, read_only: bool
) -> tuple[Active, Footer | None, int]:
    """Open the active segment and find its end.

    Entries up to `committed` must be there.  With None a node may be writing: what is no whole record may become one.
    Returns it with the footer, if sealing had got so far, and with the number of torn bytes behind its end.
    """
    path = directory / ACTIVE_NAME
    descriptor = open_file(path, os.O_RDONLY if read_only else os.O_RDWR)
    try:
        active = _open_active(path, descriptor, identity)
        while True:
            before = active.end
            problem, tail = _walk(active), reader(descriptor, path)(active.end, active.zeroed - active.end)
            footer = decode_footer(tail, active.end, seed=active.seed)
            is_whole = footer is not None or not tail.strip(b"\0")
            # Beside a node that writes, the walk goes on as long as more is whole than there was a moment ago.
            if is_whole or committed is not None or active.end == before:
                break
        torn_bytes = 0
        if not is_whole:
            _refuse_damage(active, tail, problem, committed or 0)
            if not read_only:
                active.cut_torn_tail()
            torn_bytes = len(tail.rstrip(b"\0"))
        return active, footer, torn_bytes
    except BaseException:
        os.close(descriptor)
        raise


def _open_active(path: Path, descriptor: int, identity: Identity | None) -> Active:
    """Read the header only; `zeroed` becomes the file's end."""
    read = reader(descriptor, path)
    size = os.fstat(descriptor).st_size
    header = decode_header(read(0, HEADER_BYTES), path)
    check_identity(path, 8, header.identity, identity)
    return Active(path, descriptor, header, HEADER_BYTES, size, header.first_index, header.previous_term)


def _walk(active: Active) -> str:
    """Read all records from the end on, noting blocks and terms; return why it ended, as `Walk` says it."""
    read = reader(active.descriptor, active.path)
    walk = Walk(read, offset=active.end, end=active.zeroed, seed=active.seed, next_index=active.next_index)
    active.note_records(((index, term, len(payload)) for index, term, payload in walk))
    return walk.problem


def _refuse_damage(active: Active, tail: bytes, problem: str, committed: int) -> None:
    """Raise unless the bad record at the active segment's end is what a crash may leave."""
    index, path, offset = active.next_index, active.path, active.end
    if index <= committed:
        raise damaged(path, offset, found=problem, expected=f"record {index}, which is known to be committed")
    sealed_at = footer_offset(tail[-TRAILER_BYTES:], seed=active.seed)
    if sealed_at is not None and sealed_at != offset:  # else all records stand, and of the footer a part
        raise damaged(path, offset, found=problem, expected=f"record {index}: the segment is sealed behind it")
    later = batch_start_after(tail, seed=active.seed, bad_index=index)
    if later is not None:
        behind = f"record {later[1]} at offset {offset + later[0]} was written after it had been synced"
        raise damaged(path, offset, found=problem, expected=f"record {index}, for {behind}")


def _records_of(batch: Batch) -> Iterator[tuple[int, int, int]]:
    """Yield (index, term, payload bytes) of what is in a batch."""
    position, data = 0, batch.data
    while position < len(data):
        length, _crc, index, term, _place = RECORD.unpack_from(data, position)
        yield index, term, length
        position += RECORD_BYTES + length
