"""The files of a broker's history, wherever they are (docs/files.md).

    NodeFiles: a data directory (directory.py) or a broker's HTTP port (broker.py)
        --> segments in log order, outcomes of entries, open segments

Nothing is changed. A segment may be sealed, moved into the journal or removed while it is being read: a segment is
identified by its first index, and looked up again when it is opened.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from wakeq.protocol.errors import DamagedFile, StorageError
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
from wakeq.protocol.log.listing import SegmentFacts
from wakeq.protocol.log.outcomes import Outcomes

RESTORE = "restore the directory from a copy, or read that of another node"


class File(Protocol):
    """An open file of a node."""

    @property
    def name(self) -> str:
        """Its name, for errors."""

    @property
    def size_bytes(self) -> int:
        """Its size, as far as it is known now; it may grow."""

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes from an offset on, fewer at the end of the file."""

    def close(self) -> None:
        """Close the file."""


class NodeFiles(Protocol):
    """The history of one node. It travels to the tasks that read parts of it, so it can be pickled."""

    @property
    def name(self) -> str:
        """The place of the files, for errors."""

    def contents(self) -> "Contents":
        """Return what this node has."""

    def open(self, segment: "Segment") -> "OpenSegment":
        """Open a segment, wherever it is now; raise HistoryGone if it was removed."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment of one node's log.  `last_index` is None for the segment that is being written."""

    files: NodeFiles
    identity: Identity
    first_index: int
    last_index: int | None
    size_bytes: int
    # What a broker has said of it; in a directory, a reader must look itself.
    facts: SegmentFacts | None = None

    def open(self) -> "OpenSegment":
        """Open it, wherever it is now."""
        opened = self.files.open(self)
        if opened.header.identity != self.identity:
            opened.close()
            raise StorageError(
                f"{self.files.name}: here it is of {opened.header.identity}, and was of {self.identity}; "
                "give a place that is the same for all who read"
            )
        return opened


class Contents(NamedTuple):
    """The segments of one node in log order, and the outcomes of their entries as far as it has them."""

    segments: list[Segment]
    outcomes: list[Outcomes]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Entries of one segment, both ends included; a `last_index` of None means to the end of the file."""

    segment: Segment
    first_index: int
    last_index: int | None


class OpenSegment:
    """A segment's file, its header, and its footer if it is sealed."""

    def __init__(self, file: File, *, is_sealed: bool) -> None:
        self._file = file
        try:
            self.header: SegmentHeader = decode_header(self.read(0, HEADER_BYTES), file.name)
            self.footer: Footer | None = self._read_footer() if is_sealed else None
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        return self._file.name

    @property
    def seed(self) -> int:
        return record_seed(self.header.identity)

    @property
    def size_bytes(self) -> int:
        return self._file.size_bytes

    def read(self, offset: int, size: int) -> bytes:
        return self._file.read(offset, size)

    def close(self) -> None:
        self._file.close()

    def _read_footer(self) -> Footer:
        size = self.size_bytes
        trailer_at = max(HEADER_BYTES, size - TRAILER_BYTES)
        offset = footer_offset(self.read(trailer_at, TRAILER_BYTES), seed=self.seed)
        footer = None
        if offset is not None and HEADER_BYTES <= offset < trailer_at:
            footer = decode_footer(self.read(offset, size - offset), offset, seed=self.seed)
        if footer is None:
            raise DamagedFile(
                self.name, trailer_at, found="no whole footer", expected="that of a sealed segment", hint=RESTORE
            )
        return footer
