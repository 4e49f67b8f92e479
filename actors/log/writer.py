"""LogFiles: when the log's files are written, and in which order things happen to them.

    entries --> buffer --> one sync for a batch --> on_synced
    truncating --> after everything that was put in before; what comes later waits for it
    sealing a full segment, cutting off old ones, saving term and vote --> between two batches

The lowest layer of RaftLog.  It knows no asker and no peer, and never says that something is on disk before it is.
"""

import logging
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from wakeq.actors.log.histogram import GROUP_ENTRIES, SYNC_S, Histogram
from wakeq.actors.log.payloads import Payloads
from wakeq.actors.log.sync_place import SyncPlace
from wakeq.actors.mail import Tick
from wakeq.actors.runtime import Process
from wakeq.protocol.errors import SyncFailed
from wakeq.protocol.log.format import Batch
from wakeq.protocol.queue.leases.audience import NEVER
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.messages import HardState
from wakeq.storage.log.metadata import Metadata
from wakeq.storage.log.segmented_log import SegmentedLog
from wakeq.storage.log.sync_watch import SyncWatch
from wakeq.storage.thread import Disk

LAZY_AFTER_S = 0.020  # entries that nobody waits for are synced with the next others, or by themselves after this time
LOOK_FOR_ROOM_BYTES = 256 << 10  # bytes written between two looks at the free space; less than any reserve
SLOW_SYNC_S = 1.0  # a sync that takes longer is reported
HANG_AGAIN_S = 10.0  # between two reports of a disk that does not answer
KEEP_ACKNOWLEDGED_MS = 10_000  # between two saves of what disks have acknowledged
LOOKS_AN_ELECTION = 4  # how often a write that is under way is looked at
FLUSH = Tick("flush")
LAZY = Tick("lazy")
LOOK = Tick("look")

T = TypeVar("T")
CallLater = Callable[[float, Callable[[], None]], Any]

logger = logging.getLogger("wakeq.raft_log")


class LogServices(NamedTuple):
    """Everything from outside that RaftLog uses."""

    log: SegmentedLog
    metadata: Metadata
    disk: Disk  # the log's own thread
    stamp_ms: Callable[[], int]
    behind_ms: Callable[[], int]  # how far the clock of the stamps is behind the wall clock, and catching up
    call_later: CallLater
    look_for_room: Callable[[], None]
    others_write: Callable[[], bool]  # whether the state store is being synced: then a sync is slow
    monotonic_ms: Callable[[], int]
    sync_watch: SyncWatch


class Roll(msgspec.Struct, frozen=True, gc=False):
    """Everything up to `applied` is in the state store: seal a full segment."""

    applied: int


class Cut(msgspec.Struct, frozen=True, gc=False):
    """An image has everything up to `index`: remove the segments that hold nothing beyond."""

    index: int


class Written(msgspec.Struct, frozen=True, gc=False):
    """The disk thread's report of a batch."""

    last_index: int
    era: int  # of the core, when it was handed over
    seconds: float
    error: BaseException | None


class Freed(msgspec.Struct, frozen=True, gc=False):
    """The disk thread has done something else with the log's files; `behind` if it was a Job that others wait for."""

    error: BaseException | None
    behind: bool = False


class Saved(msgspec.Struct, frozen=True, gc=False):
    """Term and vote are on disk."""

    state: HardState
    error: BaseException | None


class Kept(msgspec.Struct, frozen=True, gc=False):
    """What disks have acknowledged is on disk here."""

    error: BaseException | None


class Entries(NamedTuple):
    """Entries that wait for a Job before them; `handed_in` is the core's era when they came."""

    first_index: int
    term: int
    payloads: Sequence[bytes]
    handed_in: int


class Job(NamedTuple):
    """Something to be done to the files after all that was put in before it is written."""

    work: Callable[[], object]
    done: Callable[[], None]


class LogFiles(Process):
    """See the head of this file."""

    def __init__(self, core: Core, services: LogServices) -> None:
        super().__init__()
        self.core = core
        self.syncs = 0
        self.longest_sync_s = 0.0
        self.sync_s = Histogram(SYNC_S)
        self.group_entries = Histogram(GROUP_ENTRIES)  # how many went to disk with one sync
        self._synced_index = services.log.last_index
        self._log = services.log
        self._metadata = services.metadata
        self._disk = services.disk
        self._stamp_ms, self._behind_ms = services.stamp_ms, services.behind_ms
        self._call_later = services.call_later
        self._look_for_room = services.look_for_room
        self._others_write = services.others_write
        self._monotonic_ms = services.monotonic_ms
        self._sync_watch = services.sync_watch
        self._looked_at_bytes = 0
        self._place = SyncPlace()
        self._may_block = True  # in a cluster it may not: the others must go on hearing of this node
        self._flush_queued = self._lazy_queued = False
        self._writing = False  # the disk thread is busy with the log's files
        self._writing_ms = NEVER  # since when it has been at what it does
        self._look_ms = core.settings.election_ms // LOOKS_AN_ELECTION
        self._look_queued = False
        self._hang_ms = 0  # for how long the disk thread has been at one thing; looks are counted, so no pause is
        self._warn_at_ms = 0
        self._buffered_in = 0  # the core's era when something was last put into the buffer
        self._payloads = Payloads()  # of the last entries, for peers
        self._keeps_payloads = False
        self._behind: deque[Entries | Job] = deque()  # the first Job may be under way
        self._roll: Roll | None = None  # to be done as soon as nothing is being written
        self._cut_to = 0  # the index that an image covers; peers may still need some entries before it
        self._cut_due = False
        self._kept_ms = services.monotonic_ms()
        self._kept_acknowledged = services.metadata.state.acknowledged

    @abstractmethod
    def on_synced(self, last_index: int, era: int) -> None:
        """Everything up to here is on disk; it was put into the buffer in this era of the core."""

    # --- entries ---------------------------------------------------------------------------------------------------

    def _put(self, first_index: int, term: int, payloads: Sequence[bytes]) -> None:
        """Append entries of one term to the buffer in memory."""
        if self._keeps_payloads:
            self._payloads.put(first_index, payloads)
        if self._behind:
            self._behind.append(Entries(first_index, term, payloads, self.core.era))
        else:
            self._log.append_many(first_index, term, payloads)
            self._buffered_in = self.core.era

    def _flush_soon(self) -> None:
        """Sync at the end of the mail that waits now, so that others who propose in this turn share the sync."""
        if not self._flush_queued and not self._writing:
            self._flush_queued = True
            self.tell(FLUSH)

    def _flush_later(self) -> None:
        if not self._lazy_queued:
            self._lazy_queued = True
            self._call_later(LAZY_AFTER_S, lambda: self.tell(LAZY))

    def _flush(self) -> None:
        """Write and sync the buffer; not to be called while something else is done with the files."""
        batch = self._log.take_buffer()
        if batch is None:
            return
        era = self._buffered_in
        if (
            self._may_block
            and self._place.on_loop(time.monotonic())
            and not self._disk.busy
            and not self._others_write()
        ):
            self.runtime.flush()  # what needs no sync does not wait for one
            started = self._sync_watch.since_s = time.perf_counter()
            try:
                self._log.write(batch)
            finally:
                self._sync_watch.since_s = 0.0
            self._synced(batch.last_index, era, time.perf_counter() - started, on_loop=True)
            return
        self._submit(lambda: self._timed_write(batch), lambda r: self._written(batch.last_index, era, r))

    def _timed_write(self, batch: Batch) -> float:
        started = time.perf_counter()
        self._log.write(batch)
        return time.perf_counter() - started

    def _written(self, last_index: int, era: int, result: float | BaseException) -> None:
        error = result if isinstance(result, BaseException) else None
        seconds = 0.0 if isinstance(result, BaseException) else result
        self.tell(Written(last_index, era, seconds, error))

    def on_written(self, message: Written) -> None:
        self._end_work()
        if message.error is not None:
            raise message.error if isinstance(message.error, SyncFailed) else SyncFailed(str(message.error))
        self._synced(message.last_index, message.era, message.seconds, on_loop=False)
        self._go_on_writing()

    def _synced(self, last_index: int, era: int, seconds: float, *, on_loop: bool) -> None:
        if on_loop or not self._others_write():  # if the state store is writing too, the time says little of the disk
            self._place.took(seconds, time.monotonic(), on_loop=on_loop)
        self.syncs += 1
        self.longest_sync_s = max(self.longest_sync_s, seconds)
        self.sync_s.observe(seconds)
        if seconds > SLOW_SYNC_S:
            logger.warning("a sync of the log took %.1f s: the disk is slow, and all clients wait for it", seconds)
        self.group_entries.observe(max(1, last_index - self._synced_index))
        self._synced_index = last_index
        self.on_synced(last_index, era)
        if self._log.written_bytes - self._looked_at_bytes > LOOK_FOR_ROOM_BYTES:
            self._looked_at_bytes = self._log.written_bytes
            self._look_for_room()

    # --- the disk thread -------------------------------------------------------------------------------------------

    def _submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Do something with the log's files in their thread; no batch is written meanwhile."""
        self._writing, self._writing_ms = True, self._stamp_ms()
        self._hang_ms, self._warn_at_ms = -self._look_ms, int(SLOW_SYNC_S * 1000)  # the first look may come at once
        self._disk.submit(work, done)
        if not self._look_queued:
            self._look_later()

    def _end_work(self) -> None:
        self._writing, self._writing_ms = False, NEVER
        self._hang_ms = 0

    def _look_later(self) -> None:
        self._look_queued = True
        self._call_later(self._look_ms / 1000, lambda: self.tell(LOOK))

    def on_look(self) -> None:
        """See whether the disk thread is still at the same thing, and say so while the disk does not answer."""
        self._look_queued = False
        if not self._writing:
            return
        self._look_later()
        self._hang_ms += self._look_ms
        if self._hang_ms >= self._warn_at_ms:
            self._warn_at_ms = self._hang_ms + int(HANG_AGAIN_S * 1000)
            logger.warning("the disk does not answer: a write of the log has been under way for %s", self._hang)

    @property
    def _hang(self) -> str:
        return f"{self._hang_ms / 1000:.1f} s"

    # --- what happens between two batches --------------------------------------------------------------------------

    def _go_on_writing(self) -> None:
        """The files are free: do what waits for that, then write what has come meanwhile."""
        if self._behind:
            self._work_off()
        elif not self._writing and not self._roll_if_asked() and not self._cut_if_asked() and self._log.buffered_bytes:
            self._flush_soon()

    def _do_behind(self, work: Callable[[], object], done: Callable[[], None] = lambda: None) -> None:
        """Do something to the files after everything that was put in before is written."""
        self._behind.append(Job(work, done))
        self._work_off()

    def _work_off(self) -> None:
        while self._behind and not self._writing:
            first = self._behind[0]
            if isinstance(first, Entries):
                self._behind.popleft()
                self._log.append_many(first.first_index, first.term, first.payloads)
                self._buffered_in = first.handed_in
            elif self._log.buffered_bytes:
                self._flush()
            else:  # the Job stays in front until it is done, so that nothing is appended meanwhile
                self._submit(first.work, lambda result: self._free(result, behind=True))
        if not self._writing and self._log.buffered_bytes:
            self._flush_soon()

    def on_roll(self, message: Roll) -> None:
        """Seal a full segment, and save up to where the log is known to be committed: at least what the store has."""
        self._roll = message if self._log.roll_due else None
        self._cut_due = self._cut_to > 0
        self._go_on_writing()

    def on_cut(self, message: Cut) -> None:
        """Remove the segments that an image covers and no living peer needs; the rest once the peers have them."""
        self._cut_to = max(self._cut_to, message.index)
        self._cut_due = True
        self._go_on_writing()

    @property
    def _waits_to_roll(self) -> bool:
        """Whether to write nothing until the full segment is committed: only then can it be sealed.

        Entries of an earlier term are an exception: they are committed only by a later entry (section 5.4.2 of the
        Raft paper), so that one must be written.
        """
        written, core = self._log.written_index, self.core
        return self._roll is not None and written > core.committed and core.log.term_at(written) == core.term

    def _roll_if_asked(self) -> bool:
        """Seal the segment between two writes; what is buffered goes into the next one."""
        if self._roll is None or self._log.written_index > self.core.committed:
            return self._waits_to_roll
        message, self._roll = self._roll, None
        committed, acknowledged = self.core.committed, self.core.acknowledged.told()

        def work() -> None:
            self._metadata.save(committed=message.applied, acknowledged=acknowledged)
            self._log.roll(committed)

        self._submit(work, self._free)
        return True

    def _cut_if_asked(self) -> bool:
        if not self._cut_due:
            return False
        self._cut_due = False
        index = self.core.floor(self._cut_to)
        if index >= self._cut_to:
            self._cut_to = 0
        self._submit(lambda: self._log.cut_below(index + 1), self._free)
        return True

    def _free(self, result: object, *, behind: bool = False) -> None:
        self.tell(Freed(result if isinstance(result, BaseException) else None, behind))

    def on_freed(self, message: Freed) -> None:
        self._end_work()
        if message.error is not None:
            raise message.error
        if message.behind:
            job = self._behind.popleft()
            assert isinstance(job, Job), "only jobs are done behind others"
            job.done()
        else:
            self.core.cut(self._log.first_index - 1)
        self._go_on_writing()

    # --- term and vote ---------------------------------------------------------------------------------------------

    def _save(self, state: HardState) -> None:
        """Save term and vote; the core holds back the messages that depend on them until `on_saved`."""

        def done(result: object) -> None:
            self.tell(Saved(state, result if isinstance(result, BaseException) else None))

        acknowledged = self.core.acknowledged.told()
        self._disk.submit(
            lambda: self._metadata.save(term=state.term, vote=state.vote, acknowledged=acknowledged), done
        )

    def _keep_acknowledged(self) -> None:
        """Save now and then what disks have acknowledged, if nothing else was saved; a quiet cluster saves nothing."""
        now_ms = self._monotonic_ms()
        if now_ms - self._kept_ms < KEEP_ACKNOWLEDGED_MS:
            return
        self._kept_ms, acknowledged = now_ms, self.core.acknowledged.told()
        if acknowledged == self._kept_acknowledged:
            return
        self._kept_acknowledged = acknowledged

        def done(result: object) -> None:
            self.tell(Kept(result if isinstance(result, BaseException) else None))

        self._disk.submit(lambda: self._metadata.save(acknowledged=acknowledged), done)

    def on_kept(self, message: Kept) -> None:
        if message.error is not None:
            raise message.error
