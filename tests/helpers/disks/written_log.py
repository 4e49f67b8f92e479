"""A log on disk for the tests: entries whose payload is their number, and ways to damage what was written.

    open_log, write --> files whose records have a known place: offset_of(index) --> change, flip

What must come of the damage is for the tests to say.
"""

from pathlib import Path

from wakeq.protocol.log.format import HEADER_BYTES, RECORD_BYTES, Identity
from wakeq.storage.log import segments
from wakeq.storage.log.segmented_log import SegmentedLog

IDENTITY = Identity(bytes(range(16)), 1)
RECORD = RECORD_BYTES + 7  # the payloads of `write` have 7 bytes


def open_log(
    directory: Path, *, committed: int = 0, identity: Identity = IDENTITY, segment_bytes_max: int = 1 << 20
) -> SegmentedLog:
    return SegmentedLog.open(directory, identity, committed_at_least=committed, segment_bytes_max=segment_bytes_max)


def payload(index: int) -> bytes:
    return b"%07d" % index


def write(log: SegmentedLog, count: int, *, term: int = 1) -> None:
    """Append and write one batch."""
    first = log.last_index + 1
    log.append_many(first, term, [payload(index) for index in range(first, first + count)])
    batch = log.take_buffer()
    assert batch is not None
    log.write(batch)


def indexes(log: SegmentedLog, first: int | None = None, last: int | None = None) -> list[int]:
    found = []
    for index, _term, data in log.entries(first or log.first_index, last):
        assert data == payload(index)
        found.append(index)
    return found


def three_batches(directory: Path) -> Path:
    """Leave a log of entries 1..30, written ten at a time, and return its file."""
    log = open_log(directory)
    for _ in range(3):
        write(log, 10)
    log.close()
    return directory / "raft.log"


def offset_of(index: int) -> int:
    return HEADER_BYTES + (index - 1) * RECORD


def change(path: Path, offset: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    path.write_bytes(content)


def flip(path: Path, offset: int) -> None:
    change(path, offset, bytes([path.read_bytes()[offset] ^ 0x40]))


def two_sealed(directory: Path) -> list[Path]:
    """Leave two sealed segments (1..10, 11..20) and an active one (21..30)."""
    log = open_log(directory)
    for _ in range(2):
        write(log, 10)
        assert log.roll(log.last_index, b"notes")
    write(log, 10)
    log.close()
    return segments.sealed_paths(directory)
