"""Opening the log: its files become a chain of segments without a gap, or one error that says what is missing.

    in   the consensus directory, whose identity it must be, up to where entries are known to be committed
    out  sealed segments, the active one, and what was found

Finishes what a crash interrupted (a torn tail, a segment that was being sealed).  One who only reads finishes nothing.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from wakeq.protocol.errors import DamagedFile
from wakeq.protocol.log.format import HEADER_BYTES, Identity, SegmentHeader
from wakeq.storage.files import rename_durably
from wakeq.storage.log.active_segment import (
    Active,
    absent_active,
    announce_active,
    create_active,
    has_active,
    is_announced,
    recover_active,
    remove_unfinished,
)
from wakeq.storage.log.segments import ACTIVE_NAME, Sealed, damaged, load_sealed, sealed_path, sealed_paths

LOOK_AGAIN = 2  # times: a reader without the lock may meet a segment in the moment that it is being sealed


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening found: entries in all segments, bytes of a torn tail, a line for the log."""

    entries: int
    torn_bytes: int
    text: str


class Found(NamedTuple):
    """A whole log.  Each segment begins where the one before ends."""

    sealed: list[Sealed]
    active: Active
    recovery: Recovery


def open_segments(
    directory: Path,
    identity: Identity,
    *,
    committed_at_least: int,
    create_first_index: int,
    create_previous_term: int,
    verify: bool,
) -> Found:
    """Open the log in a directory for writing, or make it there."""
    sealed = [load_sealed(path, identity, verify=verify) for path in sealed_paths(directory)]
    start = _next_header(sealed, identity, create_first_index, create_previous_term)
    torn_bytes = 0
    if has_active(directory):
        active, footer, torn_bytes = recover_active(directory, identity, committed=committed_at_least, read_only=False)
        _check_chain(sealed, active.header, active.path)
        remove_unfinished(directory)
        if footer is not None:  # sealing had come to the footer, but not to the new name
            sealed.append(_finish_sealing(directory, active, identity))
            start = _next_header(sealed, identity, create_first_index, create_previous_term)
            active = create_active(directory, start)
    else:
        _check_not_lost(directory, sealed)
        _check_committed(directory / ACTIVE_NAME, HEADER_BYTES, start.first_index - 1, committed_at_least)
        active = create_active(directory, start)
    _check_committed(active.path, active.end, active.next_index - 1, committed_at_least)
    return Found(sealed, active, _describe(sealed, active, torn_bytes, fate="were cut off"))


def look_at_segments(directory: Path, identity: Identity | None, *, committed: int | None, verify: bool) -> Found:
    """Open the log without the right to change anything; None is any identity.

    `committed` is None if a node may be writing: its last write may be half there.
    """
    for _ in range(LOOK_AGAIN):
        with suppress(DamagedFile, FileNotFoundError):
            return _look(directory, identity, committed, verify=verify)
    return _look(directory, identity, committed, verify=verify)


def _look(directory: Path, identity: Identity | None, committed: int | None, *, verify: bool) -> Found:
    sealed = [load_sealed(path, identity, verify=verify) for path in sealed_paths(directory)]
    torn_bytes = 0
    if has_active(directory):
        active, _footer, torn_bytes = recover_active(directory, identity, committed=committed, read_only=True)
    else:
        _check_not_lost(directory, sealed)
        whose = identity or (sealed[0].header.identity if sealed else Identity(bytes(16), 0))
        active = absent_active(directory, _next_header(sealed, whose, 1, 0))
    _check_chain(sealed, active.header, active.path)
    if committed is not None:
        _check_committed(active.path, active.end, active.next_index - 1, committed)
    fate = "may still be under way" if committed is None else "are cut off by the next start"
    return Found(sealed, active, _describe(sealed, active, torn_bytes, fate=fate))


def _next_header(sealed: list[Sealed], identity: Identity, first_index: int, previous_term: int) -> SegmentHeader:
    """Check that the sealed segments follow each other, and return the header of the one that comes next."""
    for count, segment in enumerate(sealed):
        _check_chain(sealed[:count][-1:], segment.header, segment.path)
    if sealed:
        return SegmentHeader(identity, sealed[-1].footer.last_index + 1, sealed[-1].footer.last_term)
    return SegmentHeader(identity, first_index, previous_term)


def _check_chain(before: list[Sealed], header: SegmentHeader, path: Path) -> None:
    if not before:
        return
    footer = before[-1].footer
    if header.first_index != footer.last_index + 1:
        found = f"first index {header.first_index}"
        raise damaged(path, 28, found=found, expected=f"{footer.last_index + 1}, for a segment is missing between")
    if header.previous_term != footer.last_term:
        raise damaged(path, 36, found=f"previous term {header.previous_term}", expected=str(footer.last_term))


def _check_not_lost(directory: Path, sealed: list[Sealed]) -> None:
    """Behind sealed segments there is an active one, or it is being made at this moment."""
    if not sealed or is_announced(directory) or has_active(directory):  # a node that writes may just have made it
        return
    path = directory / ACTIVE_NAME
    found = "an empty file" if path.exists() else "no such file"
    expected = f"the segment that goes on behind entry {sealed[-1].footer.last_index}"
    raise damaged(path, 0, found=found, expected=expected)


def _check_committed(path: Path, offset: int, last_index: int, committed: int) -> None:
    if last_index < committed:
        raise damaged(
            path, offset, found=f"the end of the log after entry {last_index}",
            expected=f"entry {committed}, which is known to be committed",
        )  # fmt: skip


def _finish_sealing(directory: Path, active: Active, identity: Identity) -> Sealed:
    """Give a segment that has its footer its name too."""
    os.close(active.descriptor)
    announce_active(directory)
    path = sealed_path(directory, active.header.first_index)
    rename_durably(active.path, path)
    return load_sealed(path, identity, verify=False)


def _describe(sealed: list[Sealed], active: Active, torn_bytes: int, *, fate: str) -> Recovery:
    entries = sum(segment.footer.count for segment in sealed) + active.next_index - active.header.first_index
    text = f"{active.path}: {entries} entries up to index {active.next_index - 1}"
    if torn_bytes:
        text += f"; {torn_bytes} bytes of an unfinished write at offset {active.end} {fate}"
    return Recovery(entries, torn_bytes, text)
