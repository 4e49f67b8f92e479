"""Records of the log: the bytes of a stretch, piece by piece, and where each record begins.

    stretch --> pieces of a few MiB that begin and end with a record

In a sealed segment the checksum of each block is checked; in the segment that is being written, that of each record.
The end is where the checksums stop matching, unless the bytes after it show that there was more. A byte that was not
checked must never be yielded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from zlib import crc32

import numpy as np
import numpy.typing as npt

from wakeq.pipeline.journal.files import RESTORE, OpenSegment, Segment, Stretch
from wakeq.protocol.errors import DamagedFile
from wakeq.protocol.log.format import HEADER_BYTES, RECORD, RECORD_BYTES, Block, Footer, batch_start_after
from wakeq.protocol.log.layout import HEAD

PIECE_BYTES = 8 * 1024 * 1024
_LENGTH = Struct(">I").unpack_from


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole records: their bytes, where each begins, and the index of the first."""

    data: bytes
    starts: npt.NDArray[np.int64]
    first_index: int


def pieces_of(stretch: Stretch) -> Iterator[Piece]:
    """Yield the records of a stretch."""
    segment = stretch.segment.open()
    try:
        if segment.footer is not None:
            pieces = _sealed_pieces(segment, segment.footer, stretch.first_index)
        else:
            pieces = _active_pieces(segment)
        for piece in pieces:
            if stretch.last_index is not None and piece.first_index > stretch.last_index:
                return
            clipped = _clipped(piece, stretch)
            if len(clipped.starts):
                yield clipped
    finally:
        segment.close()


def end_of(segment: Segment) -> tuple[int, int]:
    """Return index and term of the last record; a segment that is being written is read for this."""
    opened = segment.open()
    try:
        if opened.footer is not None:
            return opened.footer.last_index, opened.footer.last_term
        index, term = segment.first_index - 1, opened.header.previous_term
        for piece in _active_pieces(opened):
            index = piece.first_index + len(piece.starts) - 1
            term = RECORD.unpack_from(piece.data, int(piece.starts[-1]))[3]
        return index, term
    finally:
        opened.close()


def first_moment_of(segment: Segment) -> int | None:
    """Return the moment of the first record in ms; None if the record is not complete yet."""
    opened = segment.open()
    try:
        size = RECORD_BYTES + _LENGTH(opened.read(HEADER_BYTES, RECORD_BYTES).ljust(RECORD_BYTES, b"\0"))[0]
        data = opened.read(HEADER_BYTES, size)
        starts, _end = _walk_checked(data, opened.seed, segment.first_index)
        return int(HEAD.unpack_from(data, RECORD_BYTES)[5]) if starts else None
    finally:
        opened.close()


def _clipped(piece: Piece, stretch: Stretch) -> Piece:
    """Leave out the records of a piece that are outside the stretch; the bytes stay."""
    low = max(0, stretch.first_index - piece.first_index)
    high = len(piece.starts)
    if stretch.last_index is not None:
        high = min(high, stretch.last_index + 1 - piece.first_index)
    if low == 0 and high == len(piece.starts):
        return piece
    return Piece(piece.data, piece.starts[low:high], piece.first_index + low)


# Sealed segments --------------------------------------------------------------------------------------------------


def _sealed_pieces(segment: OpenSegment, footer: Footer, first_index: int) -> Iterator[Piece]:
    """Yield pieces of several blocks each, from the block of the first record on."""
    ends = [block.offset for block in footer.blocks[1:]] + [footer.offset]
    followings = [block.first_index for block in footer.blocks[1:]] + [footer.last_index + 1]
    group: list[tuple[Block, int]] = []
    for block, end, following in zip(footer.blocks, ends, followings, strict=True):
        if following <= first_index:
            continue
        group.append((block, end))
        if end - group[0][0].offset >= PIECE_BYTES:
            yield _read_blocks(segment, group)
            group = []
    if group:
        yield _read_blocks(segment, group)


def _read_blocks(segment: OpenSegment, group: list[tuple[Block, int]]) -> Piece:
    start, end = group[0][0].offset, group[-1][1]
    data = segment.read(start, end - start)
    view = memoryview(data)
    for block, block_end in group:
        if crc32(view[block.offset - start : block_end - start]) != block.crc:
            raise DamagedFile(
                segment.path, block.offset, found="a wrong checksum", hint=RESTORE,
                expected=f"the block of entry {block.first_index} as it was sealed",
            )  # fmt: skip
    return Piece(data, _walk(data), group[0][0].first_index)


def _walk(data: bytes) -> npt.NDArray[np.int64]:
    """Return where the records begin, by their lengths alone."""
    starts: list[int] = []
    position, limit, length = 0, len(data) - RECORD_BYTES, _LENGTH
    add = starts.append
    while position <= limit:
        add(position)
        position += RECORD_BYTES + length(data, position)[0]
    return np.array(starts, dtype=np.int64)


# The segment that is being written --------------------------------------------------------------------------------


def _active_pieces(segment: OpenSegment) -> Iterator[Piece]:
    """Yield pieces until a record is not complete or not right: the end, or a write in progress."""
    offset, index, size = HEADER_BYTES, segment.header.first_index, PIECE_BYTES
    while True:
        data = segment.read(offset, size)
        starts, end = _walk_checked(data, segment.seed, index)
        if starts:
            yield Piece(data[:end], np.array(starts, dtype=np.int64), index)
            offset, index, size = offset + end, index + len(starts), PIECE_BYTES
            continue
        needed = RECORD_BYTES + _LENGTH(data)[0] if len(data) >= RECORD_BYTES else 0
        if needed <= size or offset + needed > segment.size_bytes:
            _check_end(segment, offset, index)
            return
        # The record is longer than a piece.
        size = needed


def _check_end(segment: OpenSegment, offset: int, index: int) -> None:
    """Raise if there are right records after a wrong one: they were written when all before them was on disk."""
    # Records that were written or truncated during the first read look wrong once; the second read is right.
    for _ in range(2):
        rest = segment.read(offset, segment.size_bytes - offset)
        is_right = bool(_walk_checked(rest, segment.seed, index)[0])
        if is_right or batch_start_after(rest, seed=segment.seed, bad_index=index) is None:
            return
    raise DamagedFile(
        segment.path, offset, found="an entry with a wrong checksum before right entries", hint=RESTORE,
        expected=f"entry {index}",
    )  # fmt: skip


def _walk_checked(data: bytes, seed: int, expected: int) -> tuple[list[int], int]:
    """Return where right, consecutive records begin, and where the last of them ends."""
    view, unpack = memoryview(data), RECORD.unpack_from
    starts: list[int] = []
    position, limit = 0, len(data) - RECORD_BYTES
    while position <= limit:
        length, checksum, index, _term, _place = unpack(data, position)
        end = position + RECORD_BYTES + length
        if index != expected or end > len(data) or crc32(view[position + 8 : end], seed) != checksum:
            break
        starts.append(position)
        position, expected = end, expected + 1
    return starts, position
