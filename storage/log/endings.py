"""Endings: how a message ended that is gone, as far back as the log goes.

    log, queue id, number --> acknowledged, expired, moved or dead, and when; None if the newest entries do not say

The search runs in a thread of its own and reads only a part of the log: the answer is for people, and is not worth a
second of the disk.
"""

from struct import calcsize
from typing import NamedTuple

from wakeq.protocol.errors import DamagedFile
from wakeq.protocol.log.entries import Ack, Expired, Kind
from wakeq.protocol.log.reader import decode_entry
from wakeq.storage.log.segmented_log import SegmentedLog

SEARCH_BYTES_MAX = 128 << 20  # of the newest entries
_ID_AT = calcsize(">BBBBIq")  # offset of the queue's id in an entry
_ID = slice(_ID_AT, _ID_AT + 8)
_KINDS = {int(kind) for kind in (Kind.ACK, Kind.DEAD, Kind.MOVED, Kind.EXPIRED)}


class Ending(NamedTuple):
    """How a message ended, and when."""

    how: str
    at_ms: int


def ending_of(log: SegmentedLog, queue_id: int, number: int) -> Ending | None:
    """Return the ending that the last entry about a message gave it."""
    queue_bytes, number_bytes, found = queue_id.to_bytes(8, "big"), number.to_bytes(8, "big"), None
    skipped = max(0.0, 1 - SEARCH_BYTES_MAX / max(1, log.size_bytes)) * (log.last_index - log.first_index)
    try:
        for _index, _term, payload in log.entries(log.first_index + int(skipped)):
            # Decode only entries that can concern this message: nearly all others are recognised by these bytes.
            if payload[1] in _KINDS and payload[_ID] == queue_bytes and number_bytes in payload:
                entry, at_ms = decode_entry(payload)
                found = _ending_in(entry, number, at_ms) or found
    # The entries may be removed while we read.  Real damage is found by the next start.
    except (LookupError, DamagedFile):
        return None
    return found


def _ending_in(entry: object, number: int, at_ms: int) -> Ending | None:
    match entry:
        case Ack(numbers=numbers) if number in numbers:
            how = "became a dead letter" if entry.dead else "was moved or deleted by an operator" if entry.moved else ""
            return Ending(how or "was acknowledged", at_ms)
        case Expired(numbers=numbers) if number in numbers:
            return Ending("expired", at_ms)
    return None
