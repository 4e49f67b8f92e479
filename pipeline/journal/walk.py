"""Records of the log: the bytes of a stretch, piece by piece, and where each record begins.

    stretch --> pieces of a few MiB that begin and end with a record

In a sealed segment the checksum of each block is checked; in the segment that is being written, that of each record.
The end is where the checksums stop matching, unless the bytes after it show that there was more. A byte that was not
checked must never be yielded.
"""

import sys
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from struct import Struct
from zlib import crc32

import numpy as np
import numpy.typing as npt

from wakeq.pipeline.journal.files import RESTORE, OpenSegment, Segment, Stretch
from wakeq.protocol.errors import DamagedFile
from wakeq.protocol.log.format import HEADER_BYTES, RECORD, RECORD_BYTES, Block, Footer, batch_start_after
from wakeq.protocol.log.layout import HEAD
from wakeq.protocol.log.reader import first_moment

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
            pieces = _active_pieces(segment, *_start_in(segment, stretch))
        for piece in pieces:
            if stretch.last_index is not None and piece.first_index > stretch.last_index:
                return
            clipped = _clipped(piece, stretch)
            if len(clipped.starts):
                yield clipped
    finally:
        segment.close()


def end_of(segment: Segment) -> tuple[int, int]:
    """Return index and term of the last record; in a directory, a segment that is being written is read for this."""
    if segment.facts is not None:
        return segment.facts.last_index, segment.facts.last_term
    opened = segment.open()
    try:
        if opened.footer is not None:
            return opened.footer.last_index, opened.footer.last_term
        index, term = segment.first_index - 1, opened.header.previous_term
        for piece in _active_pieces(opened, index + 1, HEADER_BYTES):
            index = piece.first_index + len(piece.starts) - 1
            term = RECORD.unpack_from(piece.data, int(piece.starts[-1]))[3]
        return index, term
    finally:
        opened.close()


def first_moment_of(segment: Segment) -> int | None:
    """Return the moment of the first record in ms; None if the record is not complete yet."""
    if segment.facts is not None:
        return segment.facts.first_ms
    opened = segment.open()
    try:
        return first_moment(opened.read, end=opened.size_bytes, seed=opened.seed, index=segment.first_index)
    finally:
        opened.close()


def first_moment_in(stretch: Stretch) -> int | None:
    """Return the moment of the first record of a stretch in ms, None if there is none."""
    if stretch.first_index == stretch.segment.first_index:
        return first_moment_of(stretch.segment)
    first = next(pieces_of(stretch), None)
    return None if first is None else _moment_at(first, 0)


def last_moment_in(stretch: Stretch) -> int | None:
    """Return the moment of the last record of a stretch in ms, None if there is none.

    Only the last block is read, if it is known where that begins.
    """
    facts, last_index = stretch.segment.facts, stretch.last_index
    if last_index is None and facts is not None:
        last_index = facts.last_index
    last = _last_piece(replace(stretch, first_index=max(stretch.first_index, last_index or 0)))
    if last is None:
        # A node that follows may have removed entries since the broker said which one is the last.
        last = _last_piece(stretch)
    return None if last is None else _moment_at(last, -1)


def _last_piece(stretch: Stretch) -> Piece | None:
    last = None
    for piece in pieces_of(stretch):
        last = piece
    return last


def _moment_at(piece: Piece, place: int) -> int:
    return int(HEAD.unpack_from(piece.data, int(piece.starts[place]) + RECORD_BYTES)[5])


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
                segment.name, block.offset, found="a wrong checksum", hint=RESTORE,
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


def _start_in(segment: OpenSegment, stretch: Stretch) -> tuple[int, int]:
    """Return an entry at or before the first one that is wanted, and its offset."""
    blocks = [] if stretch.segment.facts is None else stretch.segment.facts.blocks
    place = bisect_right(blocks, (stretch.first_index, sys.maxsize)) - 1
    if place >= 0:
        index, offset = blocks[place]
        head = segment.read(offset, RECORD_BYTES)
        # A node that follows may have removed entries since the broker said where they begin.
        if len(head) == RECORD_BYTES and RECORD.unpack(head)[2] == index:
            return index, offset
    return segment.header.first_index, HEADER_BYTES


def _active_pieces(segment: OpenSegment, index: int, offset: int) -> Iterator[Piece]:
    """Yield pieces from an entry on until a record is not complete or not right: the end, or a write in progress."""
    size = PIECE_BYTES
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
        segment.name, offset, found="an entry with a wrong checksum before right entries", hint=RESTORE,
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
