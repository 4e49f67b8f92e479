"""Opening the log: its files become a chain of segments without a gap, or one error that says what is missing.

    in   the consensus directory, the identity that it must have, the entry up to which the log is known to be committed
    out  the sealed segments, the active one, and a report

It finishes what a crash interrupted: a torn tail is removed, a segment that was being sealed gets its name.  For a
reader it changes nothing.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from wakeq.protocol.log.format import HEADER_BYTES, Identity, SegmentHeader
from wakeq.storage.files import is_there, rename_durably, temporary
from wakeq.storage.log.active_segment import (
    ActiveSegment,
    announce_active,
    create_active,
    is_announced,
    recover_active,
)
from wakeq.storage.log.segments import ACTIVE_NAME, SealedSegment, damaged, load_sealed, sealed_path, sealed_paths
from wakeq.storage.log.term_runs import TermRuns


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening found: entries in all segments, bytes of a torn tail, and a line of text about them."""

    entries: int
    torn_bytes: int
    text: str


class OpenedSegments(NamedTuple):
    """A whole log.  Each segment begins where the one before it ends."""

    sealed: list[SealedSegment]
    active: ActiveSegment
    terms: TermRuns
    recovery: Recovery


def open_segments(
    directory: Path,
    identity: Identity | None,
    *,
    committed: int | None,
    create_first_index: int,
    create_previous_term: int,
    verify: bool,
    read_only: bool,
) -> OpenedSegments:
    """Open the log in `directory`; create it there if it is missing and this is not a reader.

    Only a reader may leave the identity open (None), or `committed`: None says that a node may be writing.
    """
    sealed = [load_sealed(path, identity, verify=verify) for path in sealed_paths(directory)]
    start = _next_header(sealed, identity, create_first_index, create_previous_term)
    path = directory / ACTIVE_NAME
    runs: list[tuple[int, int]] = []
    torn_bytes = 0
    if is_there(path):
        active, runs, footer, torn_bytes = recover_active(path, identity, committed=committed, read_only=read_only)
        _check_chain(sealed, active.header, path)
        if not read_only:
            temporary(path).unlink(missing_ok=True)
            if footer is not None:
                sealed.append(_finish_sealing(directory, active))
                start = _next_header(sealed, identity, create_first_index, create_previous_term)
                active, runs = create_active(directory, start), []
    else:
        _check_not_lost(directory, sealed)
        _check_committed(path, HEADER_BYTES, start.first_index - 1, committed)
        active = ActiveSegment(path, -1, start) if read_only else create_active(directory, start)
    _check_committed(path, active.end, active.next_index - 1, committed)
    first = (sealed[0] if sealed else active).header
    terms = TermRuns(first.first_index - 1, first.previous_term)
    for index, term in (*(run for segment in sealed for run in segment.footer.terms), *runs):
        terms.append(index, term)
    tail = "may still be in progress" if committed is None else "are cut off by the next start"
    fate = tail if read_only else "were cut off"
    return OpenedSegments(sealed, active, terms, _describe(sealed, active, torn_bytes, fate))


def _next_header(
    sealed: list[SealedSegment], identity: Identity | None, first_index: int, previous_term: int
) -> SegmentHeader:
    """Check that the sealed segments follow each other; return the header of the next segment."""
    for count, segment in enumerate(sealed):
        _check_chain(sealed[:count], segment.header, segment.path)
    if sealed:
        last = sealed[-1]
        return SegmentHeader(last.header.identity, last.footer.last_index + 1, last.footer.last_term)
    return SegmentHeader(identity or Identity(bytes(16), 0), first_index, previous_term)


def _check_chain(before: list[SealedSegment], header: SegmentHeader, path: Path) -> None:
    """Refuse a segment that does not begin where the last one before it ends."""
    if not before:
        return
    footer = before[-1].footer
    if header.first_index != footer.last_index + 1:
        found = f"first index {header.first_index}"
        raise damaged(path, 28, found=found, expected=f"{footer.last_index + 1}, for a segment is missing between")
    if header.previous_term != footer.last_term:
        raise damaged(path, 36, found=f"previous term {header.previous_term}", expected=str(footer.last_term))


def _check_not_lost(directory: Path, sealed: list[SealedSegment]) -> None:
    """Refuse sealed segments without an active one, unless the active one is just being created."""
    path = directory / ACTIVE_NAME
    # A node that writes may have created the file since we looked.
    if not sealed or is_announced(directory) or is_there(path):
        return
    found = "an empty file" if path.exists() else "no such file"
    expected = f"the segment that goes on behind entry {sealed[-1].footer.last_index}"
    raise damaged(path, 0, found=found, expected=expected)


def _check_committed(path: Path, offset: int, last_index: int, committed: int | None) -> None:
    if last_index < (committed or 0):
        raise damaged(
            path, offset, found=f"the end of the log after entry {last_index}",
            expected=f"entry {committed}, which is known to be committed",
        )  # fmt: skip


def _finish_sealing(directory: Path, active: ActiveSegment) -> SealedSegment:
    """Give a segment that has its footer its name too."""
    active.close()
    announce_active(directory)
    path = sealed_path(directory, active.header.first_index)
    rename_durably(active.path, path)
    return load_sealed(path, active.header.identity, verify=False)


def _describe(sealed: list[SealedSegment], active: ActiveSegment, torn_bytes: int, fate: str) -> Recovery:
    entries = sum(segment.footer.count for segment in sealed) + active.next_index - active.header.first_index
    text = f"{active.path}: {entries} entries up to index {active.next_index - 1}"
    if torn_bytes:
        text += f"; {torn_bytes} bytes of an unfinished write at offset {active.end} {fate}"
    return Recovery(entries, torn_bytes, text)
