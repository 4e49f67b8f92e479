"""Headroom: whether there is room for what is published; while there is none, publishes are refused.

    free bytes of the disk, bytes that all queues hold --> Pressure, StepAside --> RaftLog

What only serves history is given up first, and then what the state store no longer needs of the log.  It never removes
a message.
"""

import logging

from wakeq.actors.log.files import Cut
from wakeq.actors.mail import Crowded, Pressure, Refusal, StepAside
from wakeq.actors.queues.cuts import STATE_BYTES_A_LOG_BYTE
from wakeq.data.opening import Opened
from wakeq.node.assembly import Assembly
from wakeq.protocol.errors import DiskFull, QueueFull, TooManyQueues

logger = logging.getLogger("wakeq.node")


class Headroom:
    """See the head of this file.  The limits may be changed at any time; 0 is none."""

    def __init__(self, files: Opened, assembly: Assembly, *, node_bytes_max: int, queues_max: int = 0) -> None:
        self.node_bytes_max = node_bytes_max
        self.queues_max = queues_max
        self._is_crowded = False
        self._files = files
        self._assembly = assembly
        self._refused_with = ""  # the code, while publishes are refused
        self._was_full = False
        self._has_told_of_journal = False  # since publishes were last taken again

    @property
    def is_used_up(self) -> bool:
        """Whether publishes are refused."""
        return bool(self._refused_with)

    def image_room_bytes(self) -> int:
        """Return what an image may take of the disk, from whatever thread: the rest is for what was promised."""
        owed_bytes = STATE_BYTES_A_LOG_BYTE * self._assembly.queues.unflushed_bytes
        return self._files.directory.image_room_bytes(owed_bytes)

    def look(self) -> None:
        """Refuse publishes from now on, or take them again, if that has changed."""
        queues, directory = self._assembly.queues, self._files.directory
        self._count_queues()
        owed_bytes = STATE_BYTES_A_LOG_BYTE * queues.unflushed_bytes
        was_out_of_room, is_full = directory.out_of_room, directory.check_space(owed_bytes, queues.reusable_bytes)
        if directory.check_last_room(owed_bytes) != was_out_of_room:
            self._assembly.raft_log.tell(StepAside(directory.out_of_room))
        if is_full:
            self._make_room()
        was_full, self._was_full = self._was_full, is_full
        if is_full and not was_full:
            return  # the next look tells whether that was enough
        refusal = self._disk_full(owed_bytes) if is_full else self._node_full()
        code = "" if refusal is None else refusal.code
        if code != self._refused_with:
            self._refused_with = code
            self._tell(refusal)

    def _count_queues(self) -> None:
        """Have no more queues created, or again, if that has changed."""
        queues = self._assembly.queues
        is_crowded = self.queues_max > 0 and self.queues_max <= queues.queues_count
        if is_crowded == self._is_crowded:
            return
        self._is_crowded = is_crowded
        limit = f"there are {self.queues_max} queues, the limit of this node (queues_max); drop some, or raise it"
        crowded = Crowded(Refusal(TooManyQueues.code, limit) if is_crowded else None, queues.exists)
        self._assembly.raft_log.tell(crowded)
        queues.tell(crowded)
        logger.warning("%s", f"no more queues are created: {limit}" if is_crowded else "queues are created again")

    def _disk_full(self, owed_bytes: int) -> Refusal:
        directory = self._files.directory
        kept, size = directory.reserve_bytes(), directory.disk_bytes
        owed = f", {owed_bytes >> 20} MiB of that for the state of what was taken" if owed_bytes >> 20 else ""
        return Refusal(
            DiskFull.code,
            f"the disk of {directory.path} has {directory.free_bytes() >> 20} MiB free{owed}, and {kept >> 20} MiB "
            f"({100 * kept / size:.0f} % of it) are kept for acknowledgements; work off what waits, or make room",
        )

    def _node_full(self) -> Refusal | None:
        if not 0 < self.node_bytes_max <= self._assembly.queues.held_bytes:
            return None
        limit = f"all queues together hold {self.node_bytes_max} bytes, the limit of this node"
        return Refusal(QueueFull.code, limit)

    def _tell(self, refusal: Refusal | None) -> None:
        self._assembly.raft_log.tell(Pressure(refusal))
        if refusal is None:
            self._has_told_of_journal = False
            logger.warning("publishes are taken again")
        else:
            logger.warning("publishes are refused: %s", refusal.detail)

    def _make_room(self) -> None:
        """Messages need the disk more than history does: the journal goes, and what the state store has of the log."""
        if self._was_full:
            self._assembly.raft_log.tell(Cut(self._assembly.queues.flushed_index))
        journal = self._files.log.journal
        if journal is not None:
            self._assembly.reader_disk.submit(journal.clear, self._tell_of_journal)

    def _tell_of_journal(self, removed: int | BaseException) -> None:
        """Say once that history is given up, if there was any; one that cannot be removed fails nothing."""
        if isinstance(removed, BaseException) or not removed or self._has_told_of_journal:
            return
        self._has_told_of_journal = True
        logger.warning(
            "the disk of %s is nearly full: segments of the journal are removed until it has room (%d so far)",
            self._files.directory.path,
            removed,
        )
