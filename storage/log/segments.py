"""Sealed segments: the full files of the log, found, checked and named (docs/files.md, "raft.log").

    in   the consensus directory, and the identity that it must have
    out  sealed segments in log order; or DamagedFile with offset and reason

A sealed segment never changes.  A file that is refused stays as it was.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

from wakeq.protocol.errors import DamagedFile, StorageError
from wakeq.protocol.log.format import (
    BLOCK_BYTES,
    HEADER_BYTES,
    TRAILER_BYTES,
    Footer,
    Identity,
    Read,
    SegmentHeader,
    Walk,
    decode_footer,
    decode_header,
    footer_offset,
    record_seed,
)

ACTIVE_NAME = "raft.log"
RESTORE = "the file was not changed: restore the data directory from a copy or from its peers"


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A full segment, never written again.  The notes of its footer stay on disk only."""

    path: Path
    header: SegmentHeader
    footer: Footer
    size_bytes: int


def reader(descriptor: int, path: Path) -> Read:
    """Return a function that reads at an offset; its error names the file."""

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


def sealed_path(directory: Path, first_index: int) -> Path:
    return directory / f"{ACTIVE_NAME}.{first_index:019d}"


def sealed_paths(directory: Path) -> list[Path]:
    """Return the sealed segments in log order."""
    return sorted(directory.glob(f"{ACTIVE_NAME}.{'[0-9]' * 19}"))


def load_sealed(path: Path, identity: Identity | None, *, verify: bool) -> SealedSegment:
    """Return a sealed segment after checking its header and footer; with `verify`, every record too."""
    descriptor = open_file(path, os.O_RDONLY)
    try:
        read = reader(descriptor, path)
        sealed = sealed_in(path, read, os.fstat(descriptor).st_size)
        check_identity(path, 8, sealed.header.identity, identity)
        if verify:
            _verify_blocks(path, read, sealed.header, sealed.footer)
        return sealed
    finally:
        os.close(descriptor)


def sealed_in(path: Path, read: Read, size_bytes: int) -> SealedSegment:
    """Return the sealed segment in an open file after checking its header and footer."""
    header = decode_header(read(0, HEADER_BYTES), path)
    if sealed_path(path.parent, header.first_index) != path:
        raise damaged(path, 28, found=f"first index {header.first_index}", expected="the index in the file's name")
    footer = _read_footer(path, read, size_bytes, record_seed(header.identity))
    if footer.first_index != header.first_index or footer.last_index - footer.first_index + 1 != footer.count:
        raise damaged(path, footer.offset, found="counts that contradict the header", expected="its own footer")
    return SealedSegment(path, header, replace(footer, notes=b""), size_bytes)


def _read_footer(path: Path, read: Read, size: int, seed: int) -> Footer:
    trailer_at = max(HEADER_BYTES, size - TRAILER_BYTES)
    offset = footer_offset(read(trailer_at, TRAILER_BYTES), seed=seed)
    if offset is None or not HEADER_BYTES <= offset < trailer_at:
        raise damaged(path, trailer_at, found="no whole trailer", expected="the trailer of a sealed segment")
    footer = decode_footer(read(offset, size - offset), offset, seed=seed)
    if footer is None:
        raise damaged(path, offset, found="no whole footer", expected="the footer of a sealed segment")
    return footer


def _verify_blocks(path: Path, read: Read, header: SegmentHeader, footer: Footer) -> None:
    """Check the CRC of every block; read a wrong block record by record to name the bad one."""
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
        # The file is shorter than its footer says; no CRC is negative.
        if not chunk:
            return -1
        value = crc32(chunk, value)
        start += len(chunk)
    return value
