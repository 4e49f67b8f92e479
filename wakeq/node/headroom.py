"""Headroom: refuses publishes while the disk or the node's memory limit leaves no room for them.

    free bytes of the disk, bytes that all queues hold --> Pressure, OutOfRoom --> RaftLog

When the disk is full, the journal is removed first, and then the part of the log that the state store has.  A message
is never removed.
"""

import logging

from wakeq.actors.log.writer import Cut
from wakeq.actors.mail import Crowded, OutOfRoom, Pressure
from wakeq.actors.queues.flush import STATE_BYTES_A_LOG_BYTE
from wakeq.data.opening import DataFiles
from wakeq.node.assembly import Assembly
from wakeq.protocol.errors import DiskFull, QueueFull, TooManyQueues
from wakeq.protocol.queue.outcomes import Refusal

logger = logging.getLogger("wakeq.node")


class Headroom:
    """Limits of one node.  They may be changed at any time; 0 means no limit."""

    def __init__(self, files: DataFiles, assembly: Assembly, *, node_bytes_max: int, queues_max: int = 0) -> None:
        self.node_bytes_max = node_bytes_max
        self.queues_max = queues_max
        # Whether new queues are refused.
        self._is_crowded = False
        self._files = files
        self._assembly = assembly
        # The error code while publishes are refused, else empty.
        self._refused_with = ""
        # Whether the disk was full at the last tick.
        self._was_full = False
        # Whether the removal of the journal has been logged since publishes were last accepted.
        self._has_logged_journal = False

    @property
    def is_used_up(self) -> bool:
        """Whether publishes are refused."""
        return bool(self._refused_with)

    def image_room_bytes(self) -> int:
        """Return how many bytes an image may use on the disk; the rest is reserved.  Safe to call from any thread."""
        owed_bytes = STATE_BYTES_A_LOG_BYTE * self._assembly.queues.unflushed_bytes
        return self._files.directory.image_room_bytes(owed_bytes)

    def tick(self) -> None:
        """Begin or end refusing publishes, as the room requires."""
        queues, directory = self._assembly.queues, self._files.directory
        self._count_queues()
        owed_bytes = STATE_BYTES_A_LOG_BYTE * queues.unflushed_bytes
        was_out_of_room, is_full = directory.out_of_room, directory.check_space(owed_bytes, queues.reusable_bytes)
        if directory.check_last_room(owed_bytes) != was_out_of_room:
            self._assembly.raft_log.tell(OutOfRoom(directory.out_of_room))
        if is_full:
            self._make_room()
        was_full, self._was_full = self._was_full, is_full
        if is_full and not was_full:
            # The next tick shows whether that was enough.
            return
        refusal = self._disk_full(owed_bytes) if is_full else self._node_full()
        code = "" if refusal is None else refusal.code
        if code != self._refused_with:
            self._refused_with = code
            self._raise_pressure(refusal)

    def _count_queues(self) -> None:
        """Begin or end refusing new queues."""
        queues = self._assembly.queues
        is_crowded = self.queues_max > 0 and self.queues_max <= queues.queues_count
        if is_crowded == self._is_crowded:
            return
        self._is_crowded = is_crowded
        limit = f"this node has {self.queues_max} queues, the limit of queues_max; delete some, or raise it"
        crowded = Crowded(Refusal(TooManyQueues.code, limit) if is_crowded else None, queues.exists)
        self._assembly.raft_log.tell(crowded)
        queues.tell(crowded)
        logger.warning("%s", f"new queues are refused: {limit}" if is_crowded else "new queues are accepted again")

    def _disk_full(self, owed_bytes: int) -> Refusal:
        directory = self._files.directory
        kept, size = directory.reserve_bytes(), directory.disk_bytes
        owed = f", {owed_bytes >> 20} MiB of which the state of accepted messages needs" if owed_bytes >> 20 else ""
        return Refusal(
            DiskFull.code,
            f"the disk of {directory.path} has {directory.free_bytes() >> 20} MiB free{owed}, and {kept >> 20} MiB "
            f"({100 * kept / size:.0f} % of it) are reserved for acknowledgements; process messages, or make room",
        )

    def _node_full(self) -> Refusal | None:
        if not 0 < self.node_bytes_max <= self._assembly.queues.held_bytes:
            return None
        limit = (
            f"all queues together hold {self.node_bytes_max} bytes, which is the limit of this node (node_bytes_max); "
            "process messages, or raise the limit"
        )
        return Refusal(QueueFull.code, limit)

    def _raise_pressure(self, refusal: Refusal | None) -> None:
        self._assembly.raft_log.tell(Pressure(refusal))
        if refusal is None:
            self._has_logged_journal = False
            logger.warning("publishes are accepted again")
        else:
            logger.warning("publishes are refused: %s", refusal.detail)

    def _make_room(self) -> None:
        """Give the room of history to messages: remove the journal and the part of the log that the state store has."""
        if self._was_full:
            self._assembly.raft_log.tell(Cut(self._assembly.queues.flushed_index))
        journal = self._files.log.journal
        if journal is not None:
            self._assembly.reader_disk.submit(journal.clear, self._log_journal_removal)

    def _log_journal_removal(self, removed: int | BaseException) -> None:
        """Log once that history is removed, if there was any; a failure to remove it is harmless."""
        if isinstance(removed, BaseException) or not removed or self._has_logged_journal:
            return
        self._has_logged_journal = True
        logger.warning(
            "the disk of %s is nearly full: segments of the journal are removed until there is room (%d so far)",
            self._files.directory.path,
            removed,
        )
