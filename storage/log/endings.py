"""Endings: what became of a message that is gone, as far back as the log goes.

    log, queue id, number --> acknowledged, expired, moved or dead, and when; None if its newest part does not say

Read in a thread of its own, and no more than a part: what it finds is for people, and is not worth a second of a disk.
"""

from struct import calcsize
from typing import NamedTuple

from wakeq.protocol.errors import DamagedFile
from wakeq.protocol.log.entries import Ack, Expired, Kind
from wakeq.protocol.log.reader import decode_entry
from wakeq.storage.log.segmented_log import SegmentedLog

SEARCH_BYTES_MAX = 128 << 20  # of the log's newest part
_ID_AT = calcsize(">BBBBIq")  # in an entry: its queue's id
_ID = slice(_ID_AT, _ID_AT + 8)
_KINDS = {int(kind) for kind in (Kind.ACK, Kind.DEAD, Kind.MOVED, Kind.EXPIRED)}


class Ending(NamedTuple):
    """How a message ended, and when."""

    how: str
    at_ms: int


def ending_of(log: SegmentedLog, queue_id: int, number: int) -> Ending | None:
    """Return what the last entry about a message made of it."""
    whose, which, found = queue_id.to_bytes(8, "big"), number.to_bytes(8, "big"), None
    skipped = max(0.0, 1 - SEARCH_BYTES_MAX / max(1, log.size_bytes)) * (log.last_index - log.first_index)
    try:
        for _index, _term, payload in log.entries(log.first_index + int(skipped)):
            if payload[1] in _KINDS and payload[_ID] == whose and which in payload:
                entry, at_ms = decode_entry(payload)
                found = _made_of(entry, number, at_ms) or found
    except (LookupError, DamagedFile):  # cut off meanwhile; real damage shows at a start
        return None
    return found


def _made_of(entry: object, number: int, at_ms: int) -> Ending | None:
    match entry:
        case Ack(numbers=numbers) if number in numbers:
            how = "became a dead letter" if entry.dead else "was moved or deleted by an operator" if entry.moved else ""
            return Ending(how or "was acknowledged", at_ms)
        case Expired(numbers=numbers) if number in numbers:
            return Ending("expired", at_ms)
    return None
