"""The files of a broker's history: the segments and outcomes in a data directory (docs/files.md).

    data directories, live, stopped or copied --> segments in log order, and the outcomes of their entries

This code takes no lock and changes nothing. A segment may be sealed, moved into the journal or removed while it is
being read: a segment is identified by its first index, and its file is looked up again when it is opened.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from wakeq.protocol.errors import DamagedFile, HistoryGone, StorageError
from wakeq.protocol.log.format import (
    HEADER_BYTES,
    TRAILER_BYTES,
    Footer,
    Identity,
    SegmentHeader,
    decode_footer,
    decode_header,
    footer_offset,
    record_seed,
)
from wakeq.protocol.log.outcomes import Outcomes, decode_records
from wakeq.protocol.log.outcomes import decode_header as decode_outcomes_header

ACTIVE = "raft.log"
LOG_FOLDER = "consensus"
JOURNAL_FOLDER = "journal"
DIGITS = "[0-9]" * 19
# A segment may be sealed or moved while the directory is listed; then it is listed again.
LIST_TRIES = 3
RESTORE = "restore the directory from a copy, or read that of another node"


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment of one node's log.  `last_index` is None for the segment that is being written."""

    directory: str
    identity: Identity
    first_index: int
    last_index: int | None
    size_bytes: int

    def open(self) -> "OpenSegment":
        """Open the file with this first index, wherever it is now; it may be moved meanwhile."""
        name = f"{ACTIVE}.{self.first_index:019d}"
        root = Path(self.directory)
        places = (root / LOG_FOLDER / name, root / JOURNAL_FOLDER / name, root / LOG_FOLDER / ACTIVE)
        for path in places * LIST_TRIES:
            try:
                found = OpenSegment(path)
            except FileNotFoundError:
                continue
            if found.header.first_index == self.first_index:
                return found
            found.close()
        raise HistoryGone(
            f"{root}: the segment from entry {self.first_index} was removed meanwhile; "
            "start again, and set journal.keep_s and journal.keep_bytes higher if that happens often"
        )


@dataclass(frozen=True, slots=True)
class Stretch:
    """Entries of one segment, both ends included; a `last_index` of None means to the end of the file."""

    segment: Segment
    first_index: int
    last_index: int | None


class OpenSegment:
    """A segment's file, its header, and its footer if it is sealed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.header: SegmentHeader = decode_header(self.read(0, HEADER_BYTES), path)
            self.footer: Footer | None = self._read_footer() if path.name != ACTIVE else None
        except BaseException:
            self.close()
            raise

    @property
    def seed(self) -> int:
        return record_seed(self.header.identity)

    @property
    def size_bytes(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, offset)

    def close(self) -> None:
        os.close(self._descriptor)

    def _read_footer(self) -> Footer:
        size = self.size_bytes
        trailer_at = max(HEADER_BYTES, size - TRAILER_BYTES)
        offset = footer_offset(self.read(trailer_at, TRAILER_BYTES), seed=self.seed)
        footer = None
        if offset is not None and HEADER_BYTES <= offset < trailer_at:
            footer = decode_footer(self.read(offset, size - offset), offset, seed=self.seed)
        if footer is None:
            raise DamagedFile(
                self.path, trailer_at, found="no whole footer", expected="that of a sealed segment", hint=RESTORE
            )
        return footer


def segments_of(directory: Path) -> list[Segment]:
    """Return the segments of one data directory in log order."""
    if not (directory / LOG_FOLDER).is_dir():
        raise StorageError(f"{directory}: is not a data directory of wakeq; give the one of the broker")
    for attempt in range(LIST_TRIES):
        try:
            found = _list(directory)
        except FileNotFoundError:
            if attempt + 1 == LIST_TRIES:
                raise
            continue
        if _is_whole(found) or attempt + 1 == LIST_TRIES:
            return found
    raise AssertionError("unreachable")


def _list(directory: Path) -> list[Segment]:
    names = {}
    # A file that is moved meanwhile is found in both folders, or in the second.
    for folder in (JOURNAL_FOLDER, LOG_FOLDER):
        for path in (directory / folder).glob(f"{ACTIVE}.{DIGITS}"):
            names[path.name] = path
    paths = [names[name] for name in sorted(names)]
    active = directory / LOG_FOLDER / ACTIVE
    if active.exists() and active.stat().st_size:
        paths.append(active)
    return [_segment_at(directory, path) for path in paths]


def _segment_at(directory: Path, path: Path) -> Segment:
    segment = OpenSegment(path)
    try:
        last_index = segment.footer.last_index if segment.footer is not None else None
        header = segment.header
        return Segment(str(directory), header.identity, header.first_index, last_index, segment.size_bytes)
    finally:
        segment.close()


def _is_whole(segments: list[Segment]) -> bool:
    """Whether the newest segments follow each other; older ones need not, if the journal was once switched off."""
    # Another segment may have been sealed while they were listed.
    if len(segments) == 1:
        return segments[0].first_index == 1
    last_two = segments[-2:]
    return not last_two or last_two[0].last_index == last_two[1].first_index - 1


def outcomes_of(directory: Path) -> list[Outcomes]:
    """Return the outcomes of entries, as far as this directory has them."""
    found: list[Outcomes] = []
    for path in sorted((directory / JOURNAL_FOLDER).glob(f"outcomes.{DIGITS}")):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            # The node has just removed it because of its age.
            continue
        if data:
            identity, _first_index = decode_outcomes_header(data, path)
            found += decode_records(data, identity, path)
    return found
