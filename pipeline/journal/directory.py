"""Directory: the history of a node, read from its data directory.

    a data directory, live, stopped or copied --> segments, outcomes, open segments

The path is absolute, because other processes open it. This code takes no lock. A directory that one machine sees and
another does not is told as that, not as history that was removed.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from wakeq.pipeline.journal.files import Contents, OpenSegment, Segment
from wakeq.protocol.errors import HistoryGone, StorageError
from wakeq.protocol.log.outcomes import Outcomes, decode_records
from wakeq.protocol.log.outcomes import decode_header as decode_outcomes_header

ACTIVE = "raft.log"
LOG_FOLDER = "consensus"
JOURNAL_FOLDER = "journal"
DIGITS = "[0-9]" * 19
# A segment may be moved or removed while the directory is listed; then it is listed again.
LIST_TRIES = 3


class LocalFile:
    """A file of this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def size_bytes(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, offset)

    def close(self) -> None:
        os.close(self._descriptor)


@dataclass(frozen=True, slots=True)
class Directory:
    """One data directory."""

    path: Path

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> "Directory":
        return cls(Path(os.path.abspath(path)))

    @property
    def name(self) -> str:
        return str(self.path)

    def contents(self) -> Contents:
        """Return what the directory has."""
        with _readable(self.path):
            if not self.path.exists():
                raise StorageError(f"{self.path}: does not exist; check the path")
            if not (self.path / LOG_FOLDER).is_dir():
                raise StorageError(
                    f"{self.path}: is not a data directory of wakeq; give the one of the broker, or the URL of its "
                    "HTTP port"
                )
            # The outcomes are read last, so that they are not older than the segments.
            return Contents(self._segments(), self._outcomes())

    def open(self, segment: Segment) -> OpenSegment:
        """Open the file with this first index, wherever it is now; it may be moved meanwhile."""
        name = f"{ACTIVE}.{segment.first_index:019d}"
        places = (self.path / LOG_FOLDER / name, self.path / JOURNAL_FOLDER / name, self.path / LOG_FOLDER / ACTIVE)
        with _readable(self.path):
            for path in places * LIST_TRIES:
                try:
                    found = open_segment(path)
                except FileNotFoundError:
                    continue
                if found.header.first_index == segment.first_index:
                    return found
                found.close()
            if not (self.path / LOG_FOLDER).is_dir():
                raise StorageError(
                    f"{socket.gethostname()} does not see {self.path}: read from the HTTP port of the broker instead "
                    "(its URL, or the option broker), or give a folder that all machines share"
                )
        raise HistoryGone(
            f"{self.path}: the segment from entry {segment.first_index} was removed meanwhile; "
            "start again, and set journal.keep_s and journal.keep_bytes higher if that happens often"
        )

    def _segments(self) -> list[Segment]:
        """Return the segments in log order."""
        for _ in range(LIST_TRIES - 1):
            with suppress(FileNotFoundError):
                return self._list()
        return self._list()

    def _outcomes(self) -> list[Outcomes]:
        """Return the outcomes of entries, as far as this directory has them."""
        found: list[Outcomes] = []
        for path in sorted((self.path / JOURNAL_FOLDER).glob(f"outcomes.{DIGITS}")):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                # The node has just removed it because of its age.
                continue
            if data:
                identity, _first_index = decode_outcomes_header(data, path)
                found += decode_records(data, identity, path)
        return found

    def _list(self) -> list[Segment]:
        # A segment is sealed in the log, and moved from there into the journal.  If that happens meanwhile, the segment
        # is found in the next place, because the places are searched in this order.
        active = self.path / LOG_FOLDER / ACTIVE
        newest = self._segment_at(active) if active.exists() and active.stat().st_size else None
        names = {}
        for folder in (LOG_FOLDER, JOURNAL_FOLDER):
            for path in (self.path / folder).glob(f"{ACTIVE}.{DIGITS}"):
                names[path.name] = path
        sealed = [self._segment_at(names[name]) for name in sorted(names)]
        if newest is None or (sealed and sealed[-1].first_index >= newest.first_index):
            return sealed
        return [*sealed, newest]

    def _segment_at(self, path: Path) -> Segment:
        opened = open_segment(path)
        try:
            last_index = opened.footer.last_index if opened.footer is not None else None
            header = opened.header
            return Segment(self, header.identity, header.first_index, last_index, opened.size_bytes)
        finally:
            opened.close()


def open_segment(path: Path) -> OpenSegment:
    """Open the segment at a path."""
    return OpenSegment(LocalFile(path), is_sealed=path.name != ACTIVE)


@contextmanager
def _readable(directory: Path) -> Iterator[None]:
    """Raise a StorageError if this user may not read the directory."""
    try:
        yield
    except PermissionError as error:
        raise StorageError(
            f"{error.filename or directory}: {error.strerror}; read it as the user of the broker, or give the URL of "
            "the broker's HTTP port"
        ) from error
