"""Snapshots: has an image of the state written when it is due, and the log cut behind it.

    StateWritten (queues) --> due? --> a thread of its own writes the image from a view --> Cut (raft log)
    CheckImage (a start)  --> a thread of its own reads the last image, slowly --> another image if it is damaged

It is due when the log has grown enough, or when most of what the last one holds is gone.  One at a time, with a
deadline that grows with the live data.  Must never hold up the loop or the state's writer, nor take the room that is
kept for acknowledgements.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from wakeq.actors.log.writer import Cut
from wakeq.actors.runtime import Process
from wakeq.protocol.errors import Busy, DiskFull, StorageError
from wakeq.protocol.log.format import Identity
from wakeq.storage.log.segmented_log import SegmentedLog
from wakeq.storage.state.snapshot import BLOCK_BYTES, SnapshotHeader, verify_snapshot, write_snapshot
from wakeq.storage.state.store import DEDUP, GRAVES, INDEX, MESSAGES, QUEUES, Store, View
from wakeq.storage.thread import Disk

NEVER_BYTES = -(1 << 62)
DEADLINE_S_MIN = 60.0
HOLLOW_SHARE = 2  # an image of which less than one part in so many still lives is worth another one ...
HOLLOW_BYTES_SHARE = 8  # ... if it is not small: than one part in so many of what the log must grow by
SMALL_BLOCKS = 2  # an image of so many is written in any case: it may be the one that makes room
CHECK_PAUSE_S = 0.05  # behind each block, so that a check leaves disk and processor to others: 20 MiB a second at most
BYTES_A_SECOND_MIN = 4 << 20  # slower than this and the snapshot is given up: its reader pins pages

logger = logging.getLogger("wakeq.snapshots")


class TooSlow(Exception):
    """The snapshot took longer than the pages that it pins are worth."""


class NodeEnds(Exception):
    """A check is not finished because the node stops."""


class StateWritten(msgspec.Struct, frozen=True, gc=False):
    """The state store has taken or removed something; what lives in it takes so many bytes, 0 if it cannot tell."""

    living_bytes: int


class Written(msgspec.Struct, frozen=True, gc=False):
    """The thread's report: the index that the image covers, or why there is none."""

    index: int
    size_bytes: int
    error: BaseException | None


class WriteImage(msgspec.Struct, frozen=True, gc=False):
    """Have an image of the state as it is now, for a peer; ImageWritten follows."""

    reply_to: Process


class ImageWritten(msgspec.Struct, frozen=True, gc=False):
    """There is a new image; or there could be none."""

    is_there: bool
    index: int


class CheckImage(msgspec.Struct, frozen=True, gc=False):
    """Read the last image to its end: a start reads its beginning only, and it would be missed when it is needed."""


class Checked(msgspec.Struct, frozen=True, gc=False):
    """The thread's report: what is wrong with the image that was the last one when so many had been taken."""

    taken: int
    error: BaseException | None


class Snapshots(Process):
    """Decides when an image is written, and has a thread do it."""

    def __init__(
        self,
        path: Path,
        identity: Identity,
        store: Store,
        log: SegmentedLog,
        raft_log: Process,
        new_thread: Callable[[], Disk],
        room_bytes: Callable[[], int],
        bytes_min: int,
    ) -> None:
        super().__init__()
        # How many images were written since the start.
        self.taken = 0
        self._path = path
        # What an image says of its node and cluster.
        self._identity = identity
        # What an image is made of, and the log that it makes superfluous.
        self._store = store
        self._log = log
        # Hears of each image, and cuts the log behind it.
        self._raft_log = raft_log
        # Starts a thread that lives as long as one image, or one check, needs it.
        self._new_thread = new_thread
        # How many bytes an image may take on the disk; also called in its thread.
        self._room_bytes = room_bytes
        # By how many bytes the log must at least have grown.
        self._bytes_min = bytes_min
        # The size of the last image; 0 if there is none.
        self._last_bytes = path.stat().st_size if path.exists() else 0
        # What lives in the state store, as of the last flush.
        self._living_bytes = 0
        # What had been written to the log when the last image was begun.
        self._begun_bytes = NEVER_BYTES
        # Actors that hear when the next image is written, or could not be.
        self._askers: list[Process] = []
        # The thread that writes an image, and the one that checks the last image.
        self._thread: Disk | None = None
        self._checking: Disk | None = None
        # Ends a check; read in its thread.
        self._ends = threading.Event()

    def on_receive(self, message: Any) -> None:
        if isinstance(message, Written):
            self._written(message)
        elif isinstance(message, CheckImage):
            self._check()
        elif isinstance(message, Checked):
            self._checked(message)
        elif isinstance(message, WriteImage):
            self._askers.append(message.reply_to)
            if self._thread is None:
                self._begin()
        else:
            assert isinstance(message, StateWritten), "nothing else is for it"
            self._living_bytes = message.living_bytes
            if self._thread is None and self._is_due:
                self._begin()

    @property
    def _is_due(self) -> bool:
        """Whether an image is worth it, and there seems to be room for it: one that ends half-way is for nothing."""
        is_worth_it = self._lets_go_of_log or self._is_hollow
        return is_worth_it and self._living_bytes < max(self._room_bytes(), SMALL_BLOCKS * BLOCK_BYTES)

    @property
    def _lets_go_of_log(self) -> bool:
        """Whether so much could be cut off that it is worth an image, and was written since the last one."""
        size_min = max(self._bytes_min, self._last_bytes)
        return self._log.sealed_bytes > size_min and self._log.written_bytes - self._begun_bytes > size_min

    @property
    def _is_hollow(self) -> bool:
        """Whether most of what the last image holds is gone; else emptied queues would leave a disk full of it."""
        is_small = self._last_bytes <= self._bytes_min // HOLLOW_BYTES_SHARE
        return not is_small and 0 < HOLLOW_SHARE * self._living_bytes < self._last_bytes

    def _begin(self) -> None:
        self._begun_bytes = self._log.written_bytes
        self._thread = self._new_thread()
        path, identity, store, room_bytes = self._path, self._identity, self._store, self._room_bytes
        size_bytes = max(2 * self._last_bytes, self._living_bytes)
        deadline_s = time.monotonic() + DEADLINE_S_MIN + size_bytes / BYTES_A_SECOND_MIN
        blocks = count()

        def check() -> None:
            if time.monotonic() > deadline_s:
                raise TooSlow(f"{path}: not written in time; the disk is too busy, the next try follows")
            if next(blocks) >= SMALL_BLOCKS and room_bytes() < BLOCK_BYTES:
                raise DiskFull(f"{path}: not written: what is left of the disk is kept for acknowledgements; make room")

        def work() -> Written:
            with store.read() as view:
                applied = view.applied()
                header = SnapshotHeader(identity, applied.log_index, applied.term, applied.clock_ms)
                size = write_snapshot(path, header, living_items(view), check=check)
            return Written(applied.log_index, size, None)

        def done(result: Written | BaseException) -> None:
            self.tell(Written(0, 0, result) if isinstance(result, BaseException) else result)

        self._thread.submit(work, done)

    def _written(self, message: Written) -> None:
        assert self._thread is not None, "begun before"
        self._thread.close(wait=False)
        self._thread = None
        askers, self._askers = self._askers, []
        for asker in askers:
            asker.tell(ImageWritten(message.error is None, message.index))
        if message.error is None:
            self.taken += 1
            self._last_bytes = message.size_bytes
            self._raft_log.tell(Cut(message.index))
        elif isinstance(message.error, TooSlow | DiskFull | Busy):  # Busy: the store's map grew, and closed the view
            self._begun_bytes = NEVER_BYTES
            logger.warning("%s", message.error)
        else:
            raise message.error

    def _check(self) -> None:
        """Read the last image beside everything else, if there is one."""
        if self._checking is not None or not self._last_bytes:
            return
        self._checking = self._new_thread()
        path, identity, taken, ends = self._path, self._identity, self.taken, self._ends

        def pause() -> None:
            if ends.wait(CHECK_PAUSE_S):
                raise NodeEnds

        def work() -> None:
            verify_snapshot(path, identity, check=pause)

        self._checking.submit(work, lambda error: self.tell(Checked(taken, error)))

    def end_check(self) -> Disk | None:
        """Have a check end; return its thread, to be waited for before the loop is closed."""
        self._ends.set()
        return self._checking

    def _checked(self, message: Checked) -> None:
        """Replace an image that is damaged: the state that it was made of is here."""
        assert self._checking is not None, "begun before"
        self._checking.close(wait=False)
        self._checking = None
        if message.error is None or isinstance(message.error, NodeEnds) or message.taken != self.taken:
            return  # it is sound, or another one has taken its place
        if not isinstance(message.error, StorageError):
            raise message.error
        logger.error("%s; the state is sound, and another image replaces it", message.error)
        if self._thread is None:
            self._begin()


def living_items(view: View) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield every record but those of dead incarnations."""
    graves = dict(view.scan(GRAVES))
    prefixes = set(graves.values())
    for key, value in view.scan(MESSAGES):
        if not prefixes or key[: key.rindex(b"-") + 9] not in prefixes:
            yield MESSAGES, key, value
    for table in (INDEX, DEDUP):
        for key, value in view.scan(table):
            if key[:8] not in graves:
                yield table, key, value
    for key, value in view.scan(QUEUES):
        yield QUEUES, key, value
