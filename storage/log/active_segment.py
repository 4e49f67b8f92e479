"""The active segment: `raft.log`, the file to which the log is being written.

    batches in index order --> one write and one sync each --> the file, with a footer once it is full
    a file after a crash   --> its end is found and a torn tail is removed; or DamagedFile with offset and reason

It removes only bytes behind the last whole record: never a record that was synced, and never a committed one.  A file
that it refuses stays as it was.
"""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

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

# Syncing bytes that the file already has costs a third less than syncing bytes that make the file longer.
ZEROS_AHEAD = bytes(256 * 1024)
# A larger batch makes the file longer itself: zeros would only double the bytes to be written.
ZEROS_BATCH_BYTES_MAX = 64 * 1024


class ActiveSegment:
    """The open file.  The bytes from `end` to `zeroed` are zeros that were written ahead."""

    def __init__(self, path: Path, descriptor: int, header: SegmentHeader, zeroed: int = HEADER_BYTES) -> None:
        self.path = path
        self.descriptor = descriptor  # -1 after `close`, and for a reader that found no file
        self.header = header
        self.seed = record_seed(header.identity)
        self.end = HEADER_BYTES  # offset behind the last record
        self.zeroed = zeroed
        self.next_index = header.first_index
        self.marks: list[tuple[int, int]] = []  # (first index, offset) of each block

    def write(self, batch: Batch) -> None:
        """Put a batch on disk with one write and one sync.  When this returns, the batch is durable."""
        data, end, first_index = batch.data, self.end, batch.first_index
        size = len(data)
        grows = end + size > self.zeroed and size <= ZEROS_BATCH_BYTES_MAX
        action = "write"
        try:
            written = os.pwritev(self.descriptor, [data, ZEROS_AHEAD] if grows else [data], end)
            if written < size:
                raise short_write(self.path, written, size)
            action = "sync"
            os.fdatasync(self.descriptor)
        except OSError as error:
            raise sync_failed(self.path, action, error) from error
        if end + written > self.zeroed:
            self.zeroed = end + written
        if size > BLOCK_BYTES or batch.last_index - first_index >= BLOCK_RECORDS:
            self._mark_blocks(_sizes_in(batch))
            return
        mark_index, mark_offset = self.marks[-1] if self.marks else (-BLOCK_RECORDS, 0)
        if first_index - mark_index >= BLOCK_RECORDS or end - mark_offset >= BLOCK_BYTES:
            self.marks.append((first_index, end))
        self.end = end + size
        self.next_index = batch.last_index + 1

    def find_end(self) -> tuple[list[tuple[int, int]], str]:
        """Move `end` behind the last whole record; return the terms found as runs, and the problem of the `Walk`."""
        read = reader(self.descriptor, self.path)
        walk = Walk(read, offset=self.end, end=self.zeroed, seed=self.seed, next_index=self.next_index)
        runs: list[tuple[int, int]] = []

        def sizes() -> Iterator[tuple[int, int]]:
            last_term = -1
            for index, term, payload in walk:
                if term != last_term:
                    runs.append((index, term))
                    last_term = term
                yield index, len(payload)

        self._mark_blocks(sizes())
        return runs, walk.problem

    def _mark_blocks(self, records: Iterable[tuple[int, int]]) -> None:
        """Move `end` behind records, given as (index, payload bytes), and note where blocks begin among them."""
        marks, offset, index = self.marks, self.end, self.next_index - 1
        mark_index, mark_offset = marks[-1] if marks else (-BLOCK_RECORDS, 0)
        for index, payload_bytes in records:
            if offset - mark_offset >= BLOCK_BYTES or index - mark_index >= BLOCK_RECORDS:
                mark_index, mark_offset = index, offset
                marks.append((index, offset))
            offset += RECORD_BYTES + payload_bytes
        self.end, self.next_index = offset, index + 1

    def make_footer(self, runs: Sequence[tuple[int, int]], notes: bytes) -> Footer:
        """Return the footer for all records; `runs` are their terms."""
        read = reader(self.descriptor, self.path)
        ends = [offset for _index, offset in self.marks[1:]] + [self.end]
        blocks = tuple(
            Block(index, offset, block_crc(read, offset, end))
            for (index, offset), end in zip(self.marks, ends, strict=True)
        )
        first, last = self.header.first_index, self.next_index - 1
        return Footer(self.end, last - first + 1, first, last, runs[-1][1], blocks, tuple(runs), notes)

    def seal(self, footer: Footer) -> int:
        """Write the footer behind the last record; return the size of the file."""
        encoded = encode_footer(footer, seed=self.seed)
        self._truncate_at_end("truncate")
        write_all(self.descriptor, encoded, self.end, self.path)
        sync_data(self.descriptor, self.path)
        return self.end + len(encoded)

    def truncate_from(self, index: int) -> None:
        """Remove the entries from `index` on."""
        self.end = self._offset_of(index)
        self._truncate_at_end("truncate")
        sync_data(self.descriptor, self.path)
        del self.marks[bisect_left(self.marks, (index, 0)) :]
        self.next_index = index

    def remove_torn_tail(self) -> None:
        """Remove the bytes that an unfinished write left behind the last record."""
        self._truncate_at_end("cutting off a torn tail")
        sync_data(self.descriptor, self.path)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1

    def _truncate_at_end(self, action: str) -> None:
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


class Recovered(NamedTuple):
    """An active segment as a start finds it."""

    segment: ActiveSegment
    runs: list[tuple[int, int]]  # (first index, term) of each run of entries of one term
    footer: Footer | None  # there if sealing stopped between the footer and the new name
    torn_bytes: int  # behind the last whole record


def block_with(blocks: list[tuple[int, int]], index: int) -> tuple[int, int]:
    """Return (first index, offset) of the block that holds `index`."""
    return blocks[bisect_right(blocks, (index, 1 << 63)) - 1]


def announce_active(directory: Path) -> None:
    """Say on disk that `raft.log` is about to be created: if it is missing without this, it was lost."""
    unfinished = temporary(directory / ACTIVE_NAME)
    try:
        unfinished.touch(MODE)
    except OSError as error:
        raise sync_failed(unfinished, "create", error) from error
    sync_directory(directory)


def is_announced(directory: Path) -> bool:
    return temporary(directory / ACTIVE_NAME).exists()


def create_active(directory: Path, header: SegmentHeader) -> ActiveSegment:
    """Create an empty active segment; after a crash it is whole or not there."""
    path = directory / ACTIVE_NAME
    replace_durably(path, encode_header(header))
    return ActiveSegment(path, open_file(path, os.O_RDWR), header)


def recover_active(path: Path, identity: Identity | None, *, committed: int | None, read_only: bool) -> Recovered:
    """Open the active segment and find its end.

    Entries up to `committed` must be there.  None says that a node may be writing: bytes behind the last whole record
    may then become one.
    """
    descriptor = open_file(path, os.O_RDONLY if read_only else os.O_RDWR)
    try:
        read = reader(descriptor, path)
        header = decode_header(read(0, HEADER_BYTES), path)
        check_identity(path, 8, header.identity, identity)
        active = ActiveSegment(path, descriptor, header, os.fstat(descriptor).st_size)
        runs: list[tuple[int, int]] = []
        while True:
            end_before = active.end
            more, problem = active.find_end()
            runs += more
            tail = read(active.end, active.zeroed - active.end)
            footer = decode_footer(tail, active.end, seed=active.seed)
            is_whole = footer is not None or not tail.strip(b"\0")
            # Beside a node that is writing, go on as long as each pass finds more whole records than the one before.
            if is_whole or committed is not None or active.end == end_before:
                break
        torn_bytes = 0
        if not is_whole:
            _refuse_damage(active, tail, problem, committed or 0)
            if not read_only:
                active.remove_torn_tail()
            torn_bytes = len(tail.rstrip(b"\0"))
        return Recovered(active, runs, footer, torn_bytes)
    except BaseException:
        os.close(descriptor)
        raise


def _refuse_damage(active: ActiveSegment, tail: bytes, problem: str, committed: int) -> None:
    """Raise unless the bad record at the end of the active segment is one that a crash may leave."""
    index, path, offset = active.next_index, active.path, active.end
    if index <= committed:
        raise damaged(path, offset, found=problem, expected=f"record {index}, which is known to be committed")
    # A trailer for this very offset says that all records are whole and only a part of the footer is missing.
    sealed_at = footer_offset(tail[-TRAILER_BYTES:], seed=active.seed)
    if sealed_at is not None and sealed_at != offset:
        raise damaged(path, offset, found=problem, expected=f"record {index}: the segment is sealed behind it")
    later = batch_start_after(tail, seed=active.seed, bad_index=index)
    if later is not None:
        behind = f"record {later[1]} at offset {offset + later[0]} was written after it had been synced"
        raise damaged(path, offset, found=problem, expected=f"record {index}, for {behind}")


def _sizes_in(batch: Batch) -> Iterator[tuple[int, int]]:
    """Yield (index, payload bytes) of each record of a batch."""
    position, data = 0, batch.data
    while position < len(data):
        length, _crc, index, _term, _place = RECORD.unpack_from(data, position)
        yield index, length
        position += RECORD_BYTES + length
