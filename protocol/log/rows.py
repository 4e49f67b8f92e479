"""Rows: one message of the state store <-> bytes.

    a message with its deliveries <--> the value of a MESSAGES record

`docs/files.md` describes every byte; a change here changes that page and a version number.  Damage raises BadRecord,
never another error.
"""

import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, compress, pairwise, repeat
from typing import TYPE_CHECKING

import msgspec

from wakeq.protocol.log.entries import Draft
from wakeq.protocol.log.layout import BadRecord
from wakeq.protocol.queue.ledger.uniform import UniformBatch

if TYPE_CHECKING:
    from wakeq.protocol.queue.bodies import Stretch

_CRC = struct.Struct(">I")
# status, timeout ms, delay (moment ms), expires (moment ms); then the extension of version 2:
# priority, deliveries, nacks, timeouts, disconnects, term, sequence, until ms, published ms, headers, error, CRC-32
ROW = struct.Struct(">BQQQqIIIIQQQQHHI")
# The fields of ROW that a publisher chose, the time of publication, and what says where the body begins.
_DRAFT = struct.Struct(">xQ16xq40xQHHI")
# The same, and when the message expires: what stays when its deliveries change.
_KEPT = struct.Struct(">xQ8xQq40xQHHI")
assert _DRAFT.size == _KEPT.size == ROW.size
_HEAD_BYTES = ROW.size - _CRC.size
_PUBLISHED = slice(_HEAD_BYTES - 12, _HEAD_BYTES - 4)  # in the head; the sizes of headers and error come behind it
STATUS_MAX = 255
WRONG_CHECKSUM = "a stored message with a wrong checksum"
ROWS_TOGETHER = 256  # made at once, so that their sources are still in the cache
HEADS_REMEMBERED_MAX = 4_096  # one for each moment; about 1 MB


class DeliveryRecord(msgspec.Struct, gc=False):
    """The record of a message's deliveries: counts, the last delivery, the last error."""

    deliveries: int = 0
    nacks: int = 0
    timeouts: int = 0
    disconnects: int = 0
    term: int = 0
    sequence: int = 0
    until_ms: int = 0  # > 0 while the message is leased
    due_ms: int = 0  # after a release: ready from this moment on
    error: str = ""

    @property
    def failures(self) -> int:
        """Deliveries that failed; the others were released by their worker, or one is still leased."""
        return self.nacks + self.timeouts + self.disconnects


class Row(msgspec.Struct, gc=False):
    """One message of the state store."""

    body: bytes
    headers: bytes = b""
    priority: int = 0
    timeout_ms: int = 0
    due_ms: int = 0
    expires_ms: int = 0
    published_ms: int = 0
    side: DeliveryRecord | None = None


def encode_row(row: Row) -> bytes:
    """Return the value of a MESSAGES record: the documented fields first, the body last.

    For a message that was delivered, `due_ms` comes from its side: 0 while the message is leased.
    """
    side = row.side or _NO_SIDE
    not_acknowledged = side.deliveries - (side.until_ms > 0)
    error = side.error.encode()
    fixed = ROW.pack(
        min(not_acknowledged, STATUS_MAX), row.timeout_ms, side.due_ms if row.side else row.due_ms, row.expires_ms,
        row.priority, side.deliveries, side.nacks, side.timeouts, side.disconnects,
        side.term, side.sequence, side.until_ms, row.published_ms, len(row.headers), len(error), 0,
    )  # fmt: skip
    tail = b"".join((row.headers, error, row.body))
    return b"".join((fixed[:-4], _CRC.pack(zlib.crc32(tail, zlib.crc32(fixed[:-4]))), tail))


def with_deliveries(value: bytes, side: DeliveryRecord) -> bytes:
    """Return the value of a MESSAGES record with other deliveries; raise BadRecord if its checksum is wrong."""
    try:
        timeout_ms, expires_ms, priority, published_ms, headers_size, error_size, checksum = _KEPT.unpack_from(value)
    except struct.error:
        raise _too_short(value) from None
    tail = value[ROW.size :]
    if zlib.crc32(tail, zlib.crc32(value[:_HEAD_BYTES])) != checksum:
        raise BadRecord(WRONG_CHECKSUM)
    error = side.error.encode()
    if error or error_size:
        tail = b"".join((tail[:headers_size], error, tail[headers_size + error_size :]))
    fixed = ROW.pack(
        min(side.deliveries - (side.until_ms > 0), STATUS_MAX), timeout_ms, side.due_ms, expires_ms,
        priority, side.deliveries, side.nacks, side.timeouts, side.disconnects,
        side.term, side.sequence, side.until_ms, published_ms, headers_size, len(error), 0,
    )[:_HEAD_BYTES]  # fmt: skip
    return b"".join((fixed, _CRC.pack(zlib.crc32(tail, zlib.crc32(fixed))), tail))


class FreshRows:
    """The values of new messages, in the order of their numbers; each iteration makes them again.

    `moments` are (first number, time of publication).  Messages that only have a body share all bytes before it.  The
    values are made one after the other and never held together: a checkpoint is several times as large as any cache,
    and this way the sources of neighbours are still in it.
    """

    def __init__(
        self,
        fresh: "Sequence[Stretch]",
        moments: Sequence[tuple[int, int]],
        columns: Mapping[int, tuple[int, int]],
        sides: Mapping[int, DeliveryRecord],
    ) -> None:
        self._fresh = fresh
        self._moments = moments
        self._columns = columns
        self._sides = sides
        self._has_more = bool(columns or sides)

    def __iter__(self) -> Iterator[bytes]:
        # `chain` yields each value without resuming a generator for it.
        return chain.from_iterable(self._pieces())

    def _pieces(self) -> Iterator[Iterable[bytes]]:
        """Yield the values of a few neighbours at a time."""
        for stretch in self._fresh:
            for start in range(0, len(stretch.drafts), ROWS_TOGETHER):
                stop = min(len(stretch.drafts), start + ROWS_TOGETHER)
                yield self._rows(stretch, start, stop, self._moments_of(stretch.first + start, stretch.first + stop))

    def _moments_of(self, number: int, end: int) -> Iterable[int]:
        """Return the times of publication of the messages from `number` to `end`, excluded."""
        moments = self._moments
        at = bisect_right(moments, (number + 1,)) - 1
        if at + 1 == len(moments) or moments[at + 1][0] >= end:
            return repeat(moments[at][1], end - number)
        found: list[int] = []
        for (_, at_ms), (following, _) in pairwise([*moments[at : bisect_right(moments, (end,))], (end, 0)]):
            found += [at_ms] * (following - number)
            number = following
        return found

    def _rows(self, stretch: "Stretch", start: int, stop: int, moments: Iterable[int]) -> Iterable[bytes]:
        drafts, stays = stretch.drafts, stretch.stays
        if stays is not None and type(moments) is list:
            moments = list(compress(moments, stays[start:stop]))
        if type(drafts) is UniformBatch and not (self._has_more or drafts.shape.priority or drafts.shape.timeout_ms):
            bodies = drafts.bodies_between(start, stop)
        else:
            part = drafts[start:stop]
            if self._has_more or any([d.headers or d.priority or d.timeout_ms for d in part]):
                kept = part if stays is None else compress(part, stays[start:stop])
                return map(self._row, stretch.numbers(start, stop), kept, moments)
            bodies = [draft.body for draft in part]
        if stays is not None:
            bodies = list(compress(bodies, stays[start:stop]))
        return _plain_rows(bodies, moments)

    def _row(self, number: int, draft: Draft, at_ms: int) -> bytes:
        due_ms, expires_ms = self._columns.get(number, (0, 0))
        about = draft.body, draft.headers, draft.priority, draft.timeout_ms
        return encode_row(Row(*about, due_ms, expires_ms, at_ms, self._sides.get(number)))


def _plain_rows(bodies: Sequence[bytes], moments: Iterable[int]) -> Iterable[bytes]:
    """Return the values of messages that only have a body; most share one moment."""
    heads: Iterable[bytes]
    crcs: Iterable[int]
    if type(moments) is repeat:
        head, head_crc = _plain_head(next(moments))
        heads, crcs = repeat(head), repeat(head_crc)
    else:
        heads, crcs = zip(*map(_plain_head, moments), strict=True) if bodies else ((), ())
    checksums = map(_CRC.pack, map(zlib.crc32, bodies, crcs))
    # Not strict: `repeat` has no end.
    return map(b"".join, zip(heads, checksums, bodies, strict=False))


@lru_cache(maxsize=HEADS_REMEMBERED_MAX)
def _plain_head(at_ms: int) -> tuple[bytes, int]:
    """Return the first bytes of the row of a message that only has a body, and their CRC-32.  Queues share moments."""
    head = ROW.pack(*_PLAIN, at_ms, 0, 0, 0)[:-4]
    return head, zlib.crc32(head)


_NO_SIDE = DeliveryRecord()
_PLAIN = (0,) * 12  # the fields before the time of publication, for a message that only has a body


def decode_row(value: bytes) -> Row:
    """Return a stored message; raise BadRecord if its checksum is wrong."""
    try:
        (
            _, timeout_ms, due_ms, expires_ms, priority, deliveries, nacks, timeouts, disconnects,
            term, sequence, until_ms, published_ms, headers_size, error_size, checksum,
        ) = ROW.unpack_from(value)  # fmt: skip
    except struct.error:
        raise _too_short(value) from None
    if zlib.crc32(value[ROW.size :], zlib.crc32(value[: ROW.size - 4])) != checksum:
        raise BadRecord(WRONG_CHECKSUM)
    at = ROW.size + headers_size
    if at + error_size > len(value):
        raise BadRecord(f"a stored message of {len(value)} bytes, with {headers_size + error_size} before its body")
    headers, error = value[ROW.size : at], value[at : at + error_size]
    side = None
    if deliveries:
        side = DeliveryRecord(
            deliveries, nacks, timeouts, disconnects, term, sequence, until_ms, due_ms, error.decode(errors="replace")
        )
    return Row(value[at + error_size :], headers, priority, timeout_ms, due_ms, expires_ms, published_ms, side)


def _too_short(value: bytes) -> BadRecord:
    return BadRecord(f"a stored message of {len(value)} bytes, where at least {ROW.size} are needed")


def _decode_draft(value: bytes) -> tuple[Draft, int]:
    """Return a stored message without its deliveries, in half the time of `decode_row`."""
    try:
        timeout_ms, priority, published_ms, headers_size, error_size, checksum = _DRAFT.unpack_from(value)
    except struct.error:
        raise _too_short(value) from None
    tail = value[ROW.size :]
    if zlib.crc32(tail, zlib.crc32(value[:_HEAD_BYTES])) != checksum:
        raise BadRecord(WRONG_CHECKSUM)
    if not (timeout_ms or priority or headers_size or error_size):
        return Draft(tail), published_ms
    body_at = headers_size + error_size
    if body_at > len(tail):
        raise BadRecord(f"a stored message of {len(value)} bytes, with {body_at} before its body")
    return Draft(tail[body_at:], priority, 0, 0, timeout_ms, tail[:headers_size]), published_ms


def decode_drafts(values: Iterable[bytes]) -> list[tuple[Draft, int]]:
    """Return messages as their publishers sent them, each with its time; raise BadRecord if a checksum is wrong.

    A message that only has a body is recognised by the bytes before it, which neighbours share.  Of others only the
    fields are decoded that are needed: those of a claim all have a delivery.
    """
    found = []
    head, head_crc = _plain_head(0)
    at_ms = 0
    is_plain = True
    crc32, pack, head_bytes, row_bytes = zlib.crc32, _CRC.pack, _HEAD_BYTES, ROW.size
    for value in values:
        if not (is_plain and value.startswith(head)):
            at_ms = int.from_bytes(value[_PUBLISHED], "big")
            head, head_crc = _plain_head(at_ms)
            is_plain = value.startswith(head)
            if not is_plain:
                found.append(_decode_draft(value))
                continue
        body = value[row_bytes:]
        if value[head_bytes:row_bytes] != pack(crc32(body, head_crc)):
            raise BadRecord(WRONG_CHECKSUM)
        found.append((Draft(body), at_ms))
    return found
