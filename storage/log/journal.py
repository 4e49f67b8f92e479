"""Journal: the history that is kept behind the log (docs/files.md, "journal/").

    segments that the log no longer needs --> journal/raft.log.<first index>, until they are too old or too many
    outcomes of the entries               --> journal/outcomes.<first index>, as long as segments are left to explain

Segments belong to the thread that writes the log, outcomes to the thread that writes the state.  When the disk is
needed for other data, another thread may remove segments at the same time.  A segment is moved, never copied or opened,
and no client waits for a write here.  The journal must never delay or fail a promise of the broker: on a full disk the
history is dropped, and only the errors of a broken disk are raised.
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
from wakeq.storage.files import MODE, remove_file, sync_data, sync_directory, sync_failed, write_all

FOLDER_MODE = 0o700
DIGITS = "[0-9]" * 19
SEGMENT_PREFIX = "raft.log."
OUTCOMES_PREFIX = "outcomes."

logger = logging.getLogger("wakeq.journal")


class Keep(NamedTuple):
    """How much history is kept: by age and by size, whichever is reached first; 0 of either keeps none."""

    seconds: int
    bytes: int

    @property
    def anything(self) -> bool:
        return self.seconds > 0 and self.bytes > 0


class Journal:
    """The segments that left the log."""

    def __init__(self, directory: Path, keep: Keep, now_s: Callable[[], float]) -> None:
        self.directory = directory
        self.keep = keep
        self._now_s = now_s  # Unix time
        make_folder(directory)

    def size_bytes(self) -> int:
        return sum(stat.st_size for _, stat in self._found())

    def take(self, path: Path) -> None:
        """Move a segment out of the log's directory into the journal, or delete it if no history is kept."""
        if self.keep.anything:
            try:
                self._move_here(path)
                return
            except SyncFailed as error:
                if not error.is_full:
                    raise
                logger.warning("the disk is full: deleting a segment instead of keeping it as history: %s", error)
        remove_file(path)

    def _move_here(self, path: Path) -> None:
        try:
            os.replace(path, self.directory / path.name)
        except OSError as error:
            raise sync_failed(path, "move into the journal", error) from error
        sync_directory(self.directory)

    def trim(self) -> None:
        """Remove segments, the oldest first, until age and size are within `keep`."""
        found = self._found()
        kept_bytes = sum(stat.st_size for _, stat in found)
        oldest_s = self._now_s() - self.keep.seconds
        for path, stat in found:
            # A segment was last written when it was sealed.
            if self.keep.anything and kept_bytes <= self.keep.bytes and stat.st_mtime >= oldest_s:
                break
            remove_file(path)
            kept_bytes -= stat.st_size

    def clear(self) -> int:
        """Remove all segments, because the disk is needed for other data; return how many there were."""
        return remove_segments(self.directory)

    def forget_outcomes(self, log_first_index: int) -> None:
        """Remove the outcomes of entries that are neither in the journal nor in the log any more."""
        segments = _segments(self.directory)
        first = _index_of(segments[0]) if segments else log_first_index
        outcomes = sorted(self.directory.glob(OUTCOMES_PREFIX + DIGITS))
        for path, following in pairwise(outcomes):
            if _index_of(following) <= first:
                remove_file(path)

    def _found(self) -> list[tuple[Path, os.stat_result]]:
        """Return the segments, oldest first, without those that another thread removes at the same time."""
        found = []
        for path in _segments(self.directory):
            with suppress(FileNotFoundError):
                found.append((path, path.stat()))
        return found


class OutcomeFiles:
    """The outcomes of entries, one record after the other.  A record that lists all queues begins a new file."""

    def __init__(self, directory: Path, identity: Identity) -> None:
        self._directory = directory
        self._identity = identity
        self._path = directory  # of the open file
        self._descriptor = -1  # while no file is open
        self._end = 0  # offset behind its last record
        self._gave_up = False  # the disk was full; nothing is written until a record lists all queues again
        make_folder(directory)

    def write(self, outcomes: Outcomes) -> None:
        """Append and sync one record.  The state is flushed after it, so the state never runs ahead of the outcomes.

        On a full disk history is dropped: the state may need the room.
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
        """Begin a file.  An existing one of that name belongs to a flush that a crash interrupted."""
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
        """Stop keeping history.  Readers accept a record that was written in part: a crash leaves one too."""
        is_news, self._gave_up = not self._gave_up, True
        # Readers do not accept a file without a header.
        if self._descriptor >= 0 and not self._end:
            remove_file(self._path)
        self.close()
        removed = remove_segments(self._directory)
        if is_news:
            logger.warning(
                "the disk is full: removed %d segments of the journal; the outcomes of entries are not recorded until "
                "the next segment of the log begins: %s",
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
        remove_file(path)
    return len(segments)


def _segments(directory: Path) -> list[Path]:
    return sorted(directory.glob(SEGMENT_PREFIX + DIGITS))


def _index_of(path: Path) -> int:
    return int(path.name.rpartition(".")[2])
