"""HistoryFiles: the files of a node's history, for readers that only reach its HTTP port.

    the log, and the journal behind it --> Listing; a segment, or outcomes --> HistoryFile: read, close

Every method reads files, so none belongs on the event loop; the log may be written meanwhile by its own thread.  A
segment that was listed may be sealed, moved or removed before it is opened.  It must never change a file, nor show
bytes of the active segment that are not on disk yet.
"""

import os
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from wakeq.protocol.errors import HistoryGone
from wakeq.protocol.log.format import Identity, Walk, record_seed
from wakeq.protocol.log.listing import Listing, OutcomesFacts, SegmentFacts
from wakeq.protocol.log.reader import first_moment
from wakeq.storage.log.journal import DIGITS, OUTCOMES_PREFIX
from wakeq.storage.log.segmented_log import ActiveCopy, SegmentedLog
from wakeq.storage.log.segments import reader, sealed_in, sealed_path, sealed_paths

# A segment may be sealed, or moved into the journal, between two looks.
FIND_TRIES = 3


class HistoryFile:
    """An open file; it stays readable if it is renamed or removed."""

    def __init__(self, descriptor: int, path: Path, size_bytes: int | None = None) -> None:
        self.path = path
        self.size_bytes = os.fstat(descriptor).st_size if size_bytes is None else size_bytes
        self.read = reader(descriptor, path)
        self._descriptor = descriptor

    def close(self) -> None:
        os.close(self._descriptor)


class PartBlock(NamedTuple):
    """Some entries of a segment that follow each other, and where their records are."""

    first_index: int
    last_index: int
    start: int
    end: int


class Part(NamedTuple):
    """An open segment: its entries, in blocks that each are worth one read."""

    file: HistoryFile
    seed: int
    first_index: int
    # first_index - 1 if it has no entry yet.
    last_index: int
    blocks: list[PartBlock]


class HistoryFiles:
    """The history that one node has."""

    def __init__(self, log: SegmentedLog) -> None:
        self._log = log

    def listing(self) -> Listing:
        """Return which segments and outcomes there are."""
        # The active segment is looked up first: one that is sealed later has its place in the list already.
        active = self._log.copy_active()
        with closing(HistoryFile(active.descriptor, active.path, active.end)) as file:
            newest = _active_facts(active, file)
        names = {path.name for folder in self._folders for path in sealed_paths(folder)}
        indexes = sorted(int(name.rpartition(".")[2]) for name in names)
        segments = [newest]
        for index in reversed([index for index in indexes if index < newest.first_index]):
            # The oldest one may be removed meanwhile.
            with suppress(HistoryGone), closing(self.open_segment(index)) as file:
                segments.append(_sealed_facts(file))
        identity = active.header.identity
        return Listing(identity.cluster_id.hex(), identity.node_id, segments[::-1], self.outcomes())

    def open_segment(self, first_index: int) -> HistoryFile:
        """Open a segment, wherever it is now; raise HistoryGone if it was removed."""
        for _ in range(FIND_TRIES):
            active = self._log.copy_active()
            if active.header.first_index == first_index:
                return HistoryFile(active.descriptor, active.path, active.end)
            os.close(active.descriptor)
            for folder in self._folders:
                with suppress(FileNotFoundError):
                    return _opened(sealed_path(folder, first_index))
        raise HistoryGone(
            f"the segment from entry {first_index} was removed; read again, and set journal.keep_s and "
            "journal.keep_bytes higher if that happens often"
        )

    def indexes(self) -> list[int]:
        """Return the first entry of each segment, in log order; the last one is being written."""
        active = self._log.copy_active()
        os.close(active.descriptor)
        newest = active.header.first_index
        names = {path.name for folder in self._folders for path in sealed_paths(folder)}
        sealed = sorted(int(name.rpartition(".")[2]) for name in names)
        return [*(index for index in sealed if index < newest), newest]

    def open_part(self, first_index: int) -> Part:
        """Open a segment with the places of its entries; raise HistoryGone if it was removed."""
        active = self._log.copy_active()
        header = active.header
        seed, last_index = record_seed(header.identity), self._log.written_index
        if header.first_index == first_index:
            file = HistoryFile(active.descriptor, active.path, active.end)
            return Part(file, seed, first_index, last_index, _blocks(active.blocks, active.end, last_index))
        os.close(active.descriptor)
        file = self.open_segment(first_index)
        try:
            footer = sealed_in(file.path, file.read, file.size_bytes).footer
        except BaseException:
            file.close()
            raise
        blocks = _blocks(
            [(block.first_index, block.offset) for block in footer.blocks], footer.offset, footer.last_index
        )
        return Part(file, seed, first_index, footer.last_index, blocks)

    def first_moment(self) -> int | None:
        """Return the moment of the oldest entry that is kept."""
        for index in self.indexes():
            with suppress(HistoryGone), closing(self.open_segment(index)) as file:
                seed = record_seed(self.identity)
                found = first_moment(file.read, end=file.size_bytes, seed=seed, index=index)
                if found is not None:
                    return found
        return None

    @property
    def last_index(self) -> int:
        """The newest entry on disk."""
        return self._log.written_index

    @property
    def identity(self) -> Identity:
        active = self._log.copy_active()
        os.close(active.descriptor)
        return active.header.identity

    def open_outcomes(self, first_index: int) -> HistoryFile:
        """Open a file of outcomes; raise HistoryGone if it was removed."""
        for folder in self._folders[1:]:
            with suppress(FileNotFoundError):
                return _opened(folder / f"{OUTCOMES_PREFIX}{first_index:019d}")
        raise HistoryGone(f"the outcomes from entry {first_index} were removed; their entries are gone, too")

    @property
    def _folders(self) -> list[Path]:
        """The folder of the log, and that of the journal; segments move from the first to the second."""
        journal = self._log.journal
        return [self._log.directory] if journal is None else [self._log.directory, journal.directory]

    def outcomes(self) -> list[OutcomesFacts]:
        """Return the files of outcomes, in log order."""
        found = []
        for folder in self._folders[1:]:
            for path in sorted(folder.glob(OUTCOMES_PREFIX + DIGITS)):
                with suppress(FileNotFoundError):
                    found.append(OutcomesFacts(int(path.name.rpartition(".")[2]), path.stat().st_size))
        return found


def _blocks(marks: list[tuple[int, int]], end: int, last_index: int) -> list[PartBlock]:
    places = [*marks, (last_index + 1, end)]
    return [PartBlock(index, following - 1, start, stop) for (index, start), (following, stop) in pairwise(places)]


def _opened(path: Path) -> HistoryFile:
    return HistoryFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)


def _sealed_facts(file: HistoryFile) -> SegmentFacts:
    sealed = sealed_in(file.path, file.read, file.size_bytes)
    header, footer = sealed.header, sealed.footer
    first_ms = first_moment(file.read, end=footer.offset, seed=record_seed(header.identity), index=header.first_index)
    return SegmentFacts(header.first_index, footer.last_index, footer.last_term, first_ms, file.size_bytes, True)


def _active_facts(active: ActiveCopy, file: HistoryFile) -> SegmentFacts:
    header, end = active.header, file.size_bytes
    seed, last_index, last_term = record_seed(header.identity), header.first_index - 1, header.previous_term
    # The last block is read because the terms of entries belong to the thread that writes the log.  The entries of a
    # block may be removed meanwhile, if another node leads.
    for index, offset in reversed(active.blocks):
        for found, term, _payload in Walk(file.read, offset=offset, end=end, seed=seed, next_index=index):
            last_index, last_term = found, term
        if last_index >= index:
            break
    first_ms = first_moment(file.read, end=end, seed=seed, index=header.first_index)
    return SegmentFacts(header.first_index, last_index, last_term, first_ms, end, False, active.blocks)
