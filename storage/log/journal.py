"""Journal: the history that is kept behind the log (docs/files.md, "journal/").

    segments that the log no longer needs --> journal/raft.log.<first index>, until they are too old or too many
    what became of the entries            --> journal/outcomes.<first index>, as long as there are segments to tell of

Belongs to threads: segments to the one that writes the log, outcomes to the one that writes the state; when the disk is
needed for more, another thread removes segments meanwhile.  A segment is moved, never copied or opened; nobody waits
for what is written here.  Must never hold up or fail what the broker promises because history cannot be kept: only the
errors of a broken disk rise.  On a full one history is given up.
"""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from wakeq.protocol.errors import SyncFailed
from wakeq.protocol.log.format import Identity
from wakeq.protocol.log.outcomes import Outcomes, encode_header, encode_record
from wakeq.storage.files import MODE, sync_data, sync_directory, sync_failed, write_all

FOLDER_MODE = 0o700
DIGITS = "[0-9]" * 19
SEGMENT_PREFIX = "raft.log."
OUTCOMES_PREFIX = "outcomes."

logger = logging.getLogger("wakeq.journal")


class Keep(NamedTuple):
    """How much history is kept: for so long and so many bytes, whichever is less; 0 of either is none."""

    seconds: int
    bytes: int

    @property
    def anything(self) -> bool:
        return self.seconds > 0 and self.bytes > 0


class Journal:
    """Segments on their way out."""

    def __init__(self, directory: Path, keep: Keep, now_s: Callable[[], float]) -> None:
        self.directory = directory
        self.keep = keep
        self._now_s = now_s
        make_folder(directory)

    def size_bytes(self) -> int:
        return sum(stat.st_size for _, stat in self._found())

    def take(self, path: Path) -> None:
        """Take a segment out of the log's directory: afterwards it is here, or gone if nothing is kept."""
        if self.keep.anything:
            try:
                self._move_here(path)
                return
            except SyncFailed as error:
                if not error.is_full:
                    raise
                logger.warning("the disk is full: a segment is not kept as history: %s", error)
        _remove(path)

    def _move_here(self, path: Path) -> None:
        try:
            os.replace(path, self.directory / path.name)
        except OSError as error:
            raise sync_failed(path, "move into the journal", error) from error
        sync_directory(self.directory)

    def trim(self) -> None:
        """Remove what is too old or too much, the oldest first; a segment was last written when it was sealed."""
        found = self._found()
        held = sum(stat.st_size for _, stat in found)
        oldest_s = self._now_s() - self.keep.seconds
        for path, stat in found:
            if self.keep.anything and held <= self.keep.bytes and stat.st_mtime >= oldest_s:
                break
            _remove(path)
            held -= stat.st_size

    def clear(self) -> int:
        """Remove all segments: the disk is needed for more than history.  Return how many there were."""
        return remove_segments(self.directory)

    def forget_outcomes(self, log_first_index: int) -> None:
        """Remove the outcomes of entries that neither the journal nor the log has any more."""
        segments = _segments(self.directory)
        first = _index_of(segments[0]) if segments else log_first_index
        outcomes = sorted(self.directory.glob(OUTCOMES_PREFIX + DIGITS))
        for path, following in pairwise(outcomes):
            if _index_of(following) <= first:
                _remove(path)

    def _found(self) -> list[tuple[Path, os.stat_result]]:
        """Return the segments with what is known of them; one that is removed in this moment is not there."""
        found = []
        for path in _segments(self.directory):
            with suppress(FileNotFoundError):
                found.append((path, path.stat()))
        return found


class OutcomeFiles:
    """Appends what became of entries.  A record that lists all queues begins a new file."""

    def __init__(self, directory: Path, identity: Identity) -> None:
        self._directory = directory
        self._identity = identity
        self._path = directory
        self._descriptor = -1
        self._end = 0
        self._gave_up = False  # the disk was full; until all queues are listed again nothing is written
        make_folder(directory)

    def write(self, outcomes: Outcomes) -> None:
        """Append one record, and sync it: the state comes behind it, and says that all before was told.

        A full disk costs history, and what of it was kept may give the state the room that it needs.
        """
        if self._gave_up and not outcomes.lists_all:
            return
        try:
            self._append(outcomes)
        except SyncFailed as error:
            if not error.is_full:
                raise
            self._give_up(error)
        else:
            self._gave_up = False

    def _append(self, outcomes: Outcomes) -> None:
        if outcomes.lists_all:
            self._begin(outcomes.after + 1)
        assert self._descriptor >= 0, "the first record lists all queues"
        record = encode_record(outcomes, self._identity)
        write_all(self._descriptor, record, self._end, self._path)
        self._end += len(record)
        sync_data(self._descriptor, self._path)

    def _begin(self, first_index: int) -> None:
        """Begin a file; one of that name is of a cut that did not come to its end, and is made again."""
        self.close()
        self._path = self._directory / f"{OUTCOMES_PREFIX}{first_index:019d}"
        try:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODE)
        except OSError as error:
            raise sync_failed(self._path, "create", error) from error
        self._end = 0
        header = encode_header(self._identity, first_index)
        write_all(self._descriptor, header, 0, self._path)
        self._end = len(header)
        sync_directory(self._directory)

    def _give_up(self, error: SyncFailed) -> None:
        """Keep no history any more; a record that was written in part is what a crash leaves, and readers know that."""
        is_news, self._gave_up = not self._gave_up, True
        if self._descriptor >= 0 and not self._end:
            _remove(self._path)  # it has no header
        self.close()
        removed = remove_segments(self._directory)
        if is_news:
            logger.warning(
                "the disk is full: %d segments of the journal were removed, and what becomes of entries is not "
                "recorded before the next segment of the log: %s",
                removed,
                error,
            )

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


def make_folder(directory: Path) -> None:
    try:
        directory.mkdir(mode=FOLDER_MODE, exist_ok=True)
    except OSError as error:
        raise sync_failed(directory, "create", error) from error


def remove_segments(directory: Path) -> int:
    """Remove all segments of a journal; return how many there were."""
    segments = _segments(directory)
    for path in segments:
        _remove(path)
    return len(segments)


def _segments(directory: Path) -> list[Path]:
    return sorted(directory.glob(SEGMENT_PREFIX + DIGITS))


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise sync_failed(path, "remove", error) from error


def _index_of(path: Path) -> int:
    return int(path.name.rpartition(".")[2])
