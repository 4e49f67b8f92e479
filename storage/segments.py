"""The log's files one by one: found, checked, recovered, created (docs/files.md, "raft.log").

    in   the consensus directory, whose identity it must be, up to where entries are known to be committed
    out  sealed segments and the active one, ready for RaftLog's file; or DamagedFile with offset and reason

Cuts off what a crash left behind the last whole record, and nothing else: never a record that was once
synced, never one that is committed, never anything in a sealed segment.  What it refuses, it leaves as it
found it.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from zlib import crc32

from wakeq.protocol.errors import DamagedFile, StorageError
from wakeq.protocol.log_format import (
    BLOCK_BYTES,
    BLOCK_RECORDS,
    FOOTER_MARKER,
    HEADER_BYTES,
    RECORD_BYTES,
    TRAILER_BYTES,
    Footer,
    Identity,
    Read,
    SegmentHeader,
    Walk,
    batch_start_after,
    decode_footer,
    decode_header,
    encode_header,
    footer_offset,
    record_seed,
)
from wakeq.storage.files import replace_durably, sync_data, sync_failed, temporary

ACTIVE_NAME = "raft.log"
RESTORE = "the file was not changed: restore the data directory from a copy or from its peers"


@dataclass(frozen=True, slots=True)
class Sealed:
    """A full segment, never written again.  `footer.notes` is left on disk."""

    path: Path
    header: SegmentHeader
    footer: Footer
    size_bytes: int


@dataclass(slots=True)
class Active:
    """The segment that is written.  Bytes from `end` to `zeroed` are zeros written ahead."""

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


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening found: entries in all segments, bytes of a torn tail cut off, a line for the log."""

    entries: int
    torn_bytes: int
    text: str


def reader(descriptor: int, path: Path) -> Read:
    """Return a function that reads at an offset, and says which file could not be read."""

    def read(offset: int, size: int) -> bytes:
        try:
            return os.pread(descriptor, size, offset)
        except OSError as error:
            raise StorageError(f"{path}: read at offset {offset} failed: {error.strerror}; {RESTORE}") from error

    return read


def open_file(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except OSError as error:
        raise StorageError(f"{path}: cannot be opened: {error.strerror}; check owner and mode of the file") from error


def damaged(path: Path, offset: int, *, found: str, expected: str) -> DamagedFile:
    return DamagedFile(path, offset, found=found, expected=expected, hint=RESTORE)


def check_identity(path: Path, offset: int, found: Identity, expected: Identity | None) -> None:
    if expected is not None and found != expected:
        hint = "the file belongs to another node: put the right data directory in its place"
        raise DamagedFile(path, offset, found=str(found), expected=str(expected), hint=hint)


# Sealed segments --------------------------------------------------------------------------------------------


def sealed_path(directory: Path, first_index: int) -> Path:
    return directory / f"{ACTIVE_NAME}.{first_index:019d}"


def sealed_paths(directory: Path) -> list[Path]:
    """Return the sealed segments in log order."""
    return sorted(directory.glob(f"{ACTIVE_NAME}.{'[0-9]' * 19}"))


def load_sealed(path: Path, identity: Identity | None, *, verify: bool) -> Sealed:
    """Return a sealed segment whose header and footer fit; with verify, every record is checked too."""
    descriptor = open_file(path, os.O_RDONLY)
    try:
        read = reader(descriptor, path)
        size = os.fstat(descriptor).st_size
        header = decode_header(read(0, HEADER_BYTES), path)
        check_identity(path, 8, header.identity, identity)
        if sealed_path(path.parent, header.first_index) != path:
            raise damaged(path, 28, found=f"first index {header.first_index}", expected="the index in the file's name")
        footer = _read_footer(path, read, size, record_seed(header.identity))
        if footer.first_index != header.first_index or footer.last_index - footer.first_index + 1 != footer.count:
            raise damaged(path, footer.offset, found="counts that contradict the header", expected="its own footer")
        if verify:
            verify_blocks(path, read, header, footer)
        return Sealed(path, header, replace(footer, notes=b""), size)
    finally:
        os.close(descriptor)


def _read_footer(path: Path, read: Read, size: int, seed: int) -> Footer:
    trailer_at = max(HEADER_BYTES, size - TRAILER_BYTES)
    offset = footer_offset(read(trailer_at, TRAILER_BYTES), seed=seed)
    if offset is None or not HEADER_BYTES <= offset < trailer_at:
        raise damaged(path, trailer_at, found="no whole trailer", expected="the trailer of a sealed segment")
    footer = decode_footer(read(offset, size - offset), offset, seed=seed)
    if footer is None:
        raise damaged(path, offset, found="no whole footer", expected="the footer of a sealed segment")
    return footer


def verify_blocks(path: Path, read: Read, header: SegmentHeader, footer: Footer) -> None:
    """Check every block's CRC; where one is wrong, walk it to name the record."""
    ends = [block.offset for block in footer.blocks[1:]] + [footer.offset]
    for block, end in zip(footer.blocks, ends, strict=True):
        if block_crc(read, block.offset, end) == block.crc:
            continue
        walk = Walk(
            read,
            offset=block.offset,
            end=end,
            seed=record_seed(header.identity),
            next_index=block.first_index,
        )
        for _record in walk:
            pass
        problem = walk.problem or "a block with a wrong checksum"
        raise damaged(path, walk.offset, found=problem, expected=f"record {walk.next_index} of a sealed segment")


def block_crc(read: Read, start: int, end: int) -> int:
    value = 0
    while start < end:
        chunk = read(start, min(BLOCK_BYTES, end - start))
        if not chunk:
            return -1  # the file is shorter than its footer says
        value = crc32(chunk, value)
        start += len(chunk)
    return value


# The active segment -----------------------------------------------------------------------------------------


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
    directory: Path, identity: Identity | None, *, committed: int, read_only: bool
) -> tuple[Active, Footer | None, int]:
    """Open the active segment and find its end.

    Returns it with the footer, if sealing had got so far, and with the number of torn bytes behind its end.
    """
    path = directory / ACTIVE_NAME
    descriptor = open_file(path, os.O_RDONLY if read_only else os.O_RDWR)
    try:
        active, problem = _walk_active(path, descriptor, identity)
        tail = reader(descriptor, path)(active.end, active.zeroed - active.end)
        footer = decode_footer(tail, active.end, seed=active.seed)
        torn_bytes = 0
        if footer is None and tail.strip(b"\0"):
            if not read_only:  # whoever looks on while it is written may see half a write
                _refuse_damage(active, tail, problem, committed)
                _cut(active)
            torn_bytes = len(tail.rstrip(b"\0"))
        return active, footer, torn_bytes
    except BaseException:
        os.close(descriptor)
        raise


def _walk_active(path: Path, descriptor: int, identity: Identity | None) -> tuple[Active, str]:
    """Read all records, noting blocks and terms; `zeroed` becomes the file's end."""
    read = reader(descriptor, path)
    size = os.fstat(descriptor).st_size
    header = decode_header(read(0, HEADER_BYTES), path)
    check_identity(path, 8, header.identity, identity)
    active = Active(path, descriptor, header, HEADER_BYTES, size, header.first_index, header.previous_term)
    walk = Walk(read, offset=HEADER_BYTES, end=size, seed=active.seed, next_index=header.first_index)
    note_records(active, ((index, term, len(payload)) for index, term, payload in walk))
    return active, walk.problem


def note_records(active: Active, records: Iterable[tuple[int, int, int]]) -> None:
    """Move the end of the active segment past (index, term, payload bytes), opening blocks and term runs."""
    marks, terms, term_before = active.marks, active.terms, active.last_term
    offset, index = active.end, active.next_index - 1
    mark_index, mark_offset = marks[-1] if marks else (-BLOCK_RECORDS, -BLOCK_BYTES)
    for index, term, payload_bytes in records:
        if offset - mark_offset >= BLOCK_BYTES or index - mark_index >= BLOCK_RECORDS:
            mark_index, mark_offset = index, offset
            marks.append((index, offset))
        if term != term_before or not terms:
            terms.append((index, term))
            term_before = term
        offset += RECORD_BYTES + payload_bytes
    active.end, active.next_index, active.last_term = offset, index + 1, term_before


def _refuse_damage(active: Active, tail: bytes, problem: str, committed: int) -> None:
    """Raise unless the bad record at the active segment's end is what a crash may leave."""
    index, path, offset = active.next_index, active.path, active.end
    if index <= committed:
        raise damaged(path, offset, found=problem, expected=f"record {index}, which is known to be committed")
    sealed_at = footer_offset(tail[-TRAILER_BYTES:], seed=active.seed)
    if sealed_at is not None and not tail.startswith(FOOTER_MARKER):
        raise damaged(path, offset, found=problem, expected=f"record {index}: the segment is sealed behind it")
    later = batch_start_after(tail, seed=active.seed, bad_index=index)
    if later is not None:
        behind = f"record {later[1]} at offset {offset + later[0]} was written after it had been synced"
        raise damaged(path, offset, found=problem, expected=f"record {index}, for {behind}")


def _cut(active: Active) -> None:
    try:
        os.ftruncate(active.descriptor, active.end)
    except OSError as error:
        raise sync_failed(active.path, "cutting off a torn tail", error) from error
    sync_data(active.descriptor, active.path)
    active.zeroed = active.end
