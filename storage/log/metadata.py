"""Metadata: `raft.metadata`, the promises that a node must never forget (docs/files.md).

    in   term, vote, the highest index known to be committed, the node's incarnation,
         the number of the disk, drawn once, by which other nodes recognise a data directory that was emptied,
         the cluster clock beside the clocks of the machine,
         up to which entry each disk of the cluster has acknowledged the log
    out  the same after any crash

The file has two checksummed slots with equal content, each a page of its own.  A save writes and syncs the first slot,
then the second: a torn write spoils one and leaves the other, and a slot that rots later has its twin.  Metadata never
goes on after a write or sync that failed, and never reads a vote from a slot with a wrong checksum.
"""

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from struct import Struct
from typing import Final, Self
from zlib import crc32

from wakeq.protocol.clock import Mark
from wakeq.protocol.errors import DamagedFile, SyncFailed, WrongVersion
from wakeq.protocol.log.format import MARKER, Identity, check_prefix
from wakeq.protocol.raft.acknowledged import DISKS_MAX
from wakeq.protocol.raft.messages import Told
from wakeq.storage.files import replace_durably, sync_data, write_all
from wakeq.storage.log.segments import check_identity, open_file, reader

NAME = "raft.metadata"
VERSION = 5
# marker, version, sequence, cluster, node, voted or not, vote, term, committed, incarnation, disk,
# then the mark of the clock: cluster clock, wall clock, time since the boot, boot;
# then for each disk its number and the last committed entry that it has; zeros behind the last disk
SLOT = Struct(f">4siQ16si?3xiQQQQQQQ16s{2 * DISKS_MAX}Q")
CLOCK_FIELDS = len(Mark._fields)
SLOT_BYTES = SLOT.size + 4
SLOT_OFFSETS = (0, 4096)  # on separate pages, so that no torn write reaches both
FILE_BYTES = 8192
RESTORE = (
    "the file was not changed; a node that forgot its vote may not vote: "
    "restore the data directory from a copy, or join the cluster again as a new node"
)


class _Keep:
    """Stands for a field that a save does not change; None cannot, because it means "no vote"."""


KEEP: Final = _Keep()
NO_MARK: Final = Mark(0, 0, 0, b"")


@dataclass(frozen=True, slots=True)
class State:
    """Invariant: term and committed never fall; the vote belongs to this term."""

    term: int = 0
    vote: int | None = None  # 0 is a node
    committed: int = 0
    incarnation: int = 0
    disk_id: int = 0  # tells this data directory from all others ever made for its node; never 0 in a file
    clock: Mark | None = None  # None: none was saved, or an operator reset it
    acknowledged: Told = ()  # by the disks of the cluster


class Metadata:
    """The open file.  Belongs to one thread at a time."""

    def __init__(self, path: Path, descriptor: int, identity: Identity, sequence: int, state: State) -> None:
        self.path = path
        self.identity = identity
        self.state = state  # on disk
        self.recovered = ""  # a line for the log if opening repaired a slot
        self._descriptor = descriptor
        self._sequence = sequence  # of the slots on disk; each save adds one
        self._failure = ""  # the first failed write or sync; nothing is saved afterwards

    @classmethod
    def open(cls, path: Path, identity: Identity | None, *, read_only: bool = False) -> Self:
        """Open the file, or create it.  One good slot is enough to repair the other; a file without any is refused."""
        if not read_only and (not path.exists() or path.stat().st_size == 0):
            assert identity is not None
            replace_durably(path, _file(identity, 1, State(disk_id=_new_disk_id())))
        descriptor = open_file(path, os.O_RDONLY if read_only else os.O_RDWR)
        try:
            _check_length(path, os.fstat(descriptor).st_size)
            found, sequence, state, bad = _newest(reader(descriptor, path), path)
            check_identity(path, 16, found, identity)
            metadata = cls(path, descriptor, found, sequence, state)
            if bad is not None and not read_only:
                metadata._repair(bad)
            return metadata
        except BaseException:
            os.close(descriptor)
            raise

    def save(
        self,
        *,
        term: int | None = None,
        vote: int | _Keep | None = KEEP,
        committed: int | None = None,
        acknowledged: Told | None = None,
    ) -> None:
        """Make a change durable before returning.  A new term without a vote clears the old vote."""
        state = self.state
        if term is not None and term != state.term:
            assert term > state.term, f"term {term} after {state.term}"
            state = replace(state, term=term, vote=None)
        if not isinstance(vote, _Keep):
            state = replace(state, vote=vote)
        if committed is not None:
            state = replace(state, committed=max(committed, state.committed))
        if acknowledged is not None:
            assert len(acknowledged) <= DISKS_MAX, "`Acknowledged` must bound the number of disks"
            state = replace(state, acknowledged=acknowledged)
        self._write(state)

    def begin_incarnation(self, now_ms: int) -> int:
        """Number this start of the node above all earlier ones; peers use it to recognise older messages.

        The number is the time of the start: a restored copy of the disk would repeat a plain count.
        """
        self._write(replace(self.state, incarnation=max(self.state.incarnation + 1, now_ms)))
        return self.state.incarnation

    def keep_clock(self, mark: Mark | None) -> None:
        """Save the cluster clock; with None the next start begins with the wall clock."""
        self._write(replace(self.state, clock=mark))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
        self._failure = self._failure or f"{self.path}: the file is closed"

    def _write(self, state: State) -> None:
        if self._failure:
            raise SyncFailed(self._failure)
        if state == self.state:
            return
        self._put(_slot(self.identity, self._sequence + 1, state))
        self._sequence += 1
        self.state = state

    def _put(self, slot: bytes, offsets: Sequence[int] = SLOT_OFFSETS) -> None:
        """Write both slots, one after the other, so that one of them is whole at every moment."""
        try:
            for offset in offsets:
                write_all(self._descriptor, slot, offset, self.path)
                sync_data(self._descriptor, self.path)
        except SyncFailed as error:
            self._failure = str(error)
            raise

    def _repair(self, bad: int) -> None:
        """Write the good slot over the one at offset `bad`, which was torn by a crash or spoilt by the disk."""
        # The bad slot comes first: until it is on disk, the good one is the only copy.
        good = [offset for offset in SLOT_OFFSETS if offset != bad]
        self._put(_slot(self.identity, self._sequence, self.state), (bad, *good))
        self.recovered = (
            f"{self.path}: the slot at offset {bad} was torn or out of date; "
            "the other slot was whole and has been copied over it"
        )


def _slot(identity: Identity, sequence: int, state: State) -> bytes:
    clock = state.clock or NO_MARK
    body = SLOT.pack(
        MARKER, VERSION, sequence, identity.cluster_id, identity.node_id,
        state.vote is not None, state.vote or 0, state.term, state.committed, state.incarnation, state.disk_id,
        *clock, *chain.from_iterable(state.acknowledged), *[0] * (2 * (DISKS_MAX - len(state.acknowledged))),
    )  # fmt: skip
    return body + crc32(body).to_bytes(4, "big")


def _file(identity: Identity, sequence: int, state: State) -> bytes:
    data = bytearray(FILE_BYTES)
    for offset in SLOT_OFFSETS:
        data[offset : offset + SLOT_BYTES] = _slot(identity, sequence, state)
    return bytes(data)


def _newest(read: Callable[[int, int], bytes], path: Path) -> tuple[Identity, int, State, int | None]:
    """Return identity, sequence and state of the newer good slot, and the offset of the other slot if it differs."""
    slots = [read(offset, SLOT_BYTES) for offset in SLOT_OFFSETS]
    # Every write puts the same eight bytes here, so no crash can tear them: another program wrote others.
    if any(slots[0][:8]):
        _check_front(path, slots[0])
    good = [(SLOT.unpack_from(slot)[2], slot) for slot in slots if _is_whole(slot)]
    if not good:
        expected = "at least one whole slot"
        raise DamagedFile(path, 0, found="two slots with wrong checksums", expected=expected, hint=RESTORE)
    sequence, slot = max(good)
    bad = None
    if len(good) < len(slots) or good[0] != good[1]:
        bad = next(offset for offset, other in zip(SLOT_OFFSETS, slots, strict=True) if other != slot)
    cluster, node, voted, vote, term, committed, incarnation, disk_id, *others = SLOT.unpack_from(slot)[3:]
    clock, disks = others[:CLOCK_FIELDS], others[CLOCK_FIELDS:]
    acknowledged = tuple((disk, index) for disk, index in zip(disks[::2], disks[1::2], strict=True) if disk)
    return (
        Identity(cluster, node),
        sequence,
        State(term, vote if voted else None, committed, incarnation, disk_id, _mark(*clock), acknowledged),
        bad,
    )


def _is_whole(slot: bytes) -> bool:
    is_ours = slot[:4] == MARKER and int.from_bytes(slot[4:8], "big") == VERSION
    return is_ours and crc32(slot[: SLOT.size]) == int.from_bytes(slot[SLOT.size :], "big")


def _mark(cluster_ms: int, wall_ms: int, boot_ms: int, boot_id: bytes) -> Mark | None:
    return Mark(cluster_ms, wall_ms, boot_ms, boot_id if any(boot_id) else b"") if cluster_ms else None


def _new_disk_id() -> int:
    return secrets.randbits(63) or 1


def _check_length(path: Path, size: int) -> None:
    # A file that is too short has lost a slot, and the other may be whole.
    if size > FILE_BYTES:
        expected = f"a file of {FILE_BYTES} bytes"
        raise DamagedFile(path, FILE_BYTES, found=f"one of {size}", expected=expected, hint=RESTORE)


def _check_front(path: Path, slot: bytes) -> None:
    check_prefix(slot, path)
    version = int.from_bytes(slot[4:8], "big", signed=True)
    if len(slot) >= 8 and version != VERSION:
        raise WrongVersion(
            f"{path}: at offset 4: expected version {VERSION}, found {version}; "
            "use the release that wrote it, or restore a copy that this one reads"
        )
