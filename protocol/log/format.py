"""The bytes of the log's files: header, records, footer (docs/files.md, "raft.log").

    in   identities, indexes, terms, opaque payloads; or bytes read from a segment
    out  the bytes to be written; or what was found, each record checked

This file is pure and below every room, so that the node, the peers and the pipeline read one layout.  It never looks
inside a payload, and never accepts a record with a wrong checksum, index or length.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from zlib import crc32

import msgspec

from wakeq.protocol.errors import DamagedFile, TooLarge, WrongVersion

MARKER = bytes.fromhex("2f6f0f2f")  # the first four bytes of every consensus file, in every version
VERSION = 2
HEADER = Struct(">4si16siQQ16sI")  # marker, version, cluster, node, first index, previous term, zeros, CRC
HEADER_BYTES = HEADER.size
RECORD = Struct(">IIQQI")  # payload length, CRC, index, term, place in its batch
RECORD_BYTES = RECORD.size
PAYLOAD_BYTES_MAX = 256 * 1024 * 1024
BLOCK_BYTES = 1024 * 1024  # a block of the sparse index is closed after so many bytes or records
BLOCK_RECORDS = 4096
CHUNK_BYTES = 4 * 1024 * 1024  # read by a walk at once
# Read as the payload length of a record, this marker is far above the limit, so a footer is never taken for a record.
FOOTER_MARKER = bytes.fromhex("2f6f0f46")
TRAILER_MARKER = bytes.fromhex("2f6f0f45")

_FRONT = Struct(">II")
_BACK = Struct(">QQI")
_CRC = Struct(">I")
_FOOTER_FRONT = Struct(">4sII")  # marker, length of the body, CRC of the body
_FOOTER_BODY = Struct(">QQQQIII")  # count, first index, last index, last term, blocks, terms, length of the notes
_BLOCK = Struct(">QQI")  # first index, offset, CRC of the bytes up to the next block
_TERM = Struct(">QQ")  # first index, term
_TRAILER = Struct(">QI4s")  # offset of the footer, CRC of that offset, marker
TRAILER_BYTES = _TRAILER.size
FOOTER_BYTES_MIN = _FOOTER_FRONT.size + _FOOTER_BODY.size + TRAILER_BYTES

Read = Callable[[int, int], bytes]  # (offset, bytes at most) -> bytes


@dataclass(frozen=True, slots=True)
class Identity:
    """The owner of data: a cluster (16 random bytes, made once) and a node in it."""

    cluster_id: bytes
    node_id: int

    def __str__(self) -> str:
        return f"cluster {self.cluster_id.hex()} node {self.node_id}"


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    identity: Identity
    first_index: int
    previous_term: int  # term of the entry before the first one; 0 before the very first


class Batch(msgspec.Struct, frozen=True, gc=False):
    """The records that one write and one sync put on disk; never empty."""

    data: bytes
    first_index: int
    last_index: int


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a sealed segment that is long enough to be worth a seek."""

    first_index: int
    offset: int
    crc: int


@dataclass(frozen=True, slots=True)
class Footer:
    """The summary at the end of a sealed segment.  `offset` is where its records end."""

    offset: int
    count: int
    first_index: int
    last_index: int
    last_term: int
    blocks: tuple[Block, ...]
    terms: tuple[tuple[int, int], ...]  # (first index, term) of each run of equal terms
    notes: bytes  # opaque here: indexes of entries that changed nothing, names of queues


def record_seed(identity: Identity) -> int:
    """Return the start value of every record's CRC: with it no payload can pass for a record of this log."""
    return crc32(identity.cluster_id + identity.node_id.to_bytes(4, "big", signed=True))


# Header -----------------------------------------------------------------------------------------------------


def check_prefix(data: bytes, path: object) -> None:
    """Refuse a file that does not begin with the marker; name the little-endian variant if it is that one."""
    found = bytes(data[:4])
    if found == MARKER:
        return
    if found == MARKER[::-1]:
        hint = "it is little-endian, as written before 24 August 2023: convert it with the program that wrote it"
    else:
        hint = "it is not a file of this broker, or its beginning was overwritten: restore it from a copy"
    raise DamagedFile(path, 0, found=found.hex() or "nothing", expected=f"file prefix {MARKER.hex()}", hint=hint)


def encode_header(header: SegmentHeader) -> bytes:
    identity = header.identity
    body = HEADER.pack(
        MARKER,
        VERSION,
        identity.cluster_id,
        identity.node_id,
        header.first_index,
        header.previous_term,
        b"",
        0,
    )[:-4]
    return body + _CRC.pack(crc32(body))


def decode_header(data: bytes, path: object) -> SegmentHeader:
    """Return the header of a segment; refuse a damaged one and any other version."""
    if len(data) < HEADER_BYTES and len(data) < 8:
        raise _too_short(path, len(data))
    check_prefix(data, path)
    version = int.from_bytes(data[4:8], "big", signed=True)
    if version != VERSION:
        raise WrongVersion(
            f"{path}: at offset 4: expected version {VERSION}, found {version}; "
            "use the release that wrote it, or restore a copy that this one reads"
        )
    if len(data) < HEADER_BYTES:
        raise _too_short(path, len(data))
    fields = HEADER.unpack_from(data)
    if crc32(data[: HEADER_BYTES - 4]) != fields[7]:
        raise DamagedFile(
            path, HEADER_BYTES - 4, found=f"{fields[7]:08x}", hint="restore the file from a copy",
            expected=f"header checksum {crc32(data[: HEADER_BYTES - 4]):08x}",
        )  # fmt: skip
    return SegmentHeader(Identity(fields[2], fields[3]), fields[4], fields[5])


def _too_short(path: object, size: int) -> DamagedFile:
    return DamagedFile(
        path, 0, found=f"a file of {size} bytes", expected=f"a header of {HEADER_BYTES} bytes",
        hint="headers are written before the file gets its name, so this was not a crash: restore it from a copy",
    )  # fmt: skip


# Records: writing -------------------------------------------------------------------------------------------


def encode_records(
    parts: list[bytes], payloads: Sequence[bytes], *, first_index: int, term: int, first_place: int, seed: int
) -> int:
    """Append the records of payloads to `parts`; return how many bytes that adds, or raise and add nothing.

    This runs for every message: keep it flat.
    """
    front, back, crc = _FRONT.pack, _BACK.pack, crc32
    size, index, place = 0, first_index, first_place
    undo = len(parts)
    for payload in payloads:
        length = len(payload)
        if length > PAYLOAD_BYTES_MAX:
            del parts[undo:]
            raise TooLarge(f"a log entry of {length} bytes, the limit is {PAYLOAD_BYTES_MAX}; split the batch")
        tail = back(index, term, place)
        parts += (front(length, crc(payload, crc(tail, seed))), tail, payload)
        size += RECORD_BYTES + length
        index += 1
        place += 1
    return size


# Records: reading -------------------------------------------------------------------------------------------


class Walk:
    """The records of a segment in order, each checked; the walk ends at the first bad or incomplete one.

    Afterwards `offset` and `next_index` say where it ended, and `problem` why ("" at the end of the bytes).
    """

    def __init__(self, read: Read, *, offset: int, end: int, seed: int, next_index: int) -> None:
        self._read = read
        self._end = end  # offset behind the last byte that may hold a record
        self._seed = seed
        self.offset = offset
        self.next_index = next_index
        self.problem = ""

    def __iter__(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield (index, term, payload).  A start reads hundreds of thousands of records, so this is one loop."""
        unpack, crc, seed, expected, size = RECORD.unpack_from, crc32, self._seed, self.next_index, CHUNK_BYTES
        while self.offset < self._end and not self.problem:
            chunk = self._read(self.offset, min(size, self._end - self.offset))
            view = memoryview(chunk)
            limit, position = len(chunk) - RECORD_BYTES, 0
            while position <= limit:
                length, checksum, index, term, _place = unpack(chunk, position)
                body = position + RECORD_BYTES
                stop = body + length
                if index != expected:
                    self.problem = f"a record with index {index}"
                    break
                if stop > len(chunk):
                    break
                if crc(view[position + 8 : stop], seed) != checksum:
                    self.problem = f"a record with a wrong checksum ({checksum:08x})"
                    break
                yield index, term, chunk[body:stop]
                expected += 1
                position = stop
            self.offset += position
            self.next_index = expected
            size = CHUNK_BYTES if position or self.problem else self._bytes_of_next(chunk, size)

    def _bytes_of_next(self, chunk: bytes, size: int) -> int:
        """Return how much to read for a record longer than `size`; set `problem` if the file is too short for it."""
        if len(chunk) < RECORD_BYTES:
            self.problem = f"{len(chunk)} bytes, less than a record's header"
            return 0
        needed: int = RECORD_BYTES + RECORD.unpack_from(chunk)[0]
        if needed > RECORD_BYTES + PAYLOAD_BYTES_MAX or self.offset + needed > self._end or needed <= size:
            # The last case is a file that was truncated meanwhile.
            self.problem = f"a record of {needed} bytes that runs past the end of the file"
            return 0
        return needed


def batch_start_after(data: bytes, *, seed: int, bad_index: int) -> tuple[int, int] | None:
    """Return (offset in data, index) of a record that proves that a bad record was once synced; None without proof.

    `data` begins with the bad record.  A batch is written only after the batch before it was synced, and every record
    holds its place in its batch.  So a good record whose batch began after the bad index proves that the bad record was
    on disk and has rotted.  Good records of the same batch prove nothing: a disk may keep any part of one write.
    """
    for offset, index, place, _length in _plausible(data, seed, bad_index):
        if index - place > bad_index:
            return offset, index
    return None


# Crafted payloads could make the search quadratic: beyond this many bytes it gives up and reports damage.
SEARCH_CRC_BYTES_MAX = 1 << 30


def _plausible(data: bytes, seed: int, bad_index: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (offset, index, place, bytes) of every good record in data that could follow `bad_index`."""
    view = memoryview(data)
    highest = bad_index + len(data) // RECORD_BYTES
    limit, position, spent = len(data) - RECORD_BYTES, 0, 0
    for position in _candidates(data, bad_index, highest):
        if position < 0 or position > limit:
            continue
        length, checksum, index, _term, place = RECORD.unpack_from(data, position)
        stop = position + RECORD_BYTES + length
        if not bad_index < index <= highest or place >= index or stop > len(data):
            continue
        spent += length
        if crc32(view[position + 8 : stop], seed) == checksum:
            yield position, index, place, stop - position
        elif spent > SEARCH_CRC_BYTES_MAX:
            yield position, index, 0, 0


def _candidates(data: bytes, lowest: int, highest: int) -> Iterator[int]:
    """Yield the offsets of possible records: the five high bytes of an index in range stand where an index belongs."""
    # Nothing can be found in the zeros that were written ahead.
    end = len(data.rstrip(b"\0")) + 8
    for high in (prefix.to_bytes(5, "big") for prefix in range(lowest >> 24, (highest >> 24) + 1)):
        found = data.find(high, 8, end)
        while found >= 0:
            if data[found : found + 8] == bytes(8):
                found = max(found + 1, _end_of_zeros(data, found) - 8)
            else:
                yield found - 8
                found += 1
            found = data.find(high, found, end)


def _end_of_zeros(data: bytes, start: int) -> int:
    """Return the end of the run of zeros that begins at start."""
    step = 4096
    while data[start : start + step] == bytes(step):
        start += step
    piece = data[start : start + step]
    return start + len(piece) - len(piece.lstrip(b"\0"))


# Footer -----------------------------------------------------------------------------------------------------


def encode_footer(footer: Footer, *, seed: int) -> bytes:
    """Return footer and trailer, to be written behind the last record."""
    body = b"".join(
        (
            _FOOTER_BODY.pack(
                footer.count, footer.first_index, footer.last_index, footer.last_term,
                len(footer.blocks), len(footer.terms), len(footer.notes),
            ),
            *(_BLOCK.pack(block.first_index, block.offset, block.crc) for block in footer.blocks),
            *(_TERM.pack(index, term) for index, term in footer.terms),
            footer.notes,
        )
    )  # fmt: skip
    where = footer.offset.to_bytes(8, "big")
    trailer = _TRAILER.pack(footer.offset, crc32(where, seed), TRAILER_MARKER)
    return _FOOTER_FRONT.pack(FOOTER_MARKER, len(body), crc32(body, seed)) + body + trailer


def footer_offset(trailer: bytes, *, seed: int) -> int | None:
    """Return the offset of the footer as the trailer of a segment gives it; None if the bytes are no trailer."""
    if len(trailer) != TRAILER_BYTES:
        return None
    offset, checksum, marker = _TRAILER.unpack(trailer)
    if marker != TRAILER_MARKER or checksum != crc32(trailer[:8], seed):
        return None
    return int(offset)


def decode_footer(data: bytes, offset: int, *, seed: int) -> Footer | None:
    """Return the footer in data (the file from `offset` to its end), or None if it is not whole."""
    if len(data) < FOOTER_BYTES_MIN:
        return None
    marker, length, checksum = _FOOTER_FRONT.unpack_from(data)
    body = data[_FOOTER_FRONT.size : _FOOTER_FRONT.size + length]
    if marker != FOOTER_MARKER or _FOOTER_FRONT.size + length + TRAILER_BYTES != len(data):
        return None
    if crc32(body, seed) != checksum or footer_offset(data[-TRAILER_BYTES:], seed=seed) != offset:
        return None
    count, first, last, last_term, blocks, terms, notes = _FOOTER_BODY.unpack_from(body)
    terms_at = _FOOTER_BODY.size + blocks * _BLOCK.size
    notes_at = terms_at + terms * _TERM.size
    if notes_at + notes != len(body):
        return None
    return Footer(
        offset, count, first, last, last_term,
        tuple(Block(*fields) for fields in _BLOCK.iter_unpack(body[_FOOTER_BODY.size : terms_at])),
        tuple((index, term) for index, term in _TERM.iter_unpack(body[terms_at:notes_at])),
        body[notes_at:],
    )  # fmt: skip
