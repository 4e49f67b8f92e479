"""LogWriter: what waits in memory for the log's files, and what is done to the files, one thing after the other.

    put --> buffer --> write: one write and one sync for a batch --> on_synced
    do_behind (truncate, mark) --> after everything that was put before it; what is put later waits for it
    Roll, Cut, term and vote --> between two batches, in the log's thread

A part of RaftLog, which is told when the thread is done, and passes that on.  It knows nobody who asked and no peer,
and never says that something is on disk before it is.
"""

import logging
import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from wakeq.actors.log.histogram import GROUP_ENTRIES, SYNC_S, Histogram
from wakeq.actors.log.payloads import Payloads
from wakeq.actors.mail import Tick
from wakeq.protocol.errors import SyncFailed
from wakeq.protocol.log.format import Batch
from wakeq.protocol.queue.leases.audience import NEVER
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.messages import HardState
from wakeq.storage.log.metadata import Metadata
from wakeq.storage.log.segmented_log import SegmentedLog
from wakeq.storage.log.sync_watch import SyncWatch
from wakeq.storage.thread import Disk

CHECK_ROOM_BYTES = 256 << 10  # bytes written between two checks of the free space; less than any reserve
SLOW_SYNC_S = 1.0  # a sync that takes longer is reported
HANG_AGAIN_S = 10.0  # between two reports of a disk that does not answer
KEEP_ACKNOWLEDGED_MS = 10_000  # between two saves of what disks have acknowledged
CHECKS_AN_ELECTION = 4  # how often a write that is under way is checked
# Where to sync: on a fast disk, passing a sync on to a thread costs as much as the sync itself.
FAST_SYNC_S = 0.0005
SYNCS_REMEMBERED = 16
SLOW_SYNCS_MAX = 2  # of the last SYNCS_REMEMBERED; if more were slow, the next is done in the thread
STALL_S = 0.005
STALL_PAUSE_S = 10.0  # no sync on the loop for so long after one that stalled it
FLUSH = Tick("flush")
CHECK = Tick("check")

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
    check_room: Callable[[], None]
    state_disk: Disk  # while the state store is being synced, a sync of the log is slow
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
    era: int  # of the core, when its last entry was put into the buffer
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


class PutBehind(NamedTuple):
    """Entries that wait for a Job before them; `era` is the core's when they came."""

    first_index: int
    term: int
    payloads: Sequence[bytes]
    era: int


class Job(NamedTuple):
    """Something to be done to the files after all that was put before it is written."""

    work: Callable[[], object]
    done: Callable[[], None]


class SyncPlace:
    """Where to sync the log next: on the event loop while the disk is faster than a thread, else in the thread.

    Pure; it reads no clock.
    """

    def __init__(self) -> None:
        self.loop_from_s = math.inf  # the moment from which the next sync may be done on the loop
        self._stalled_until_s = 0.0  # a sync has stalled the loop; until then none is done there
        self._slow = deque([True] * SYNCS_REMEMBERED, maxlen=SYNCS_REMEMBERED)  # whether each of the last syncs was

    def took(self, seconds: float, now_s: float, *, on_loop: bool) -> None:
        """Learn from a sync; after one that stalled the loop, none is done there for a while."""
        slow = self._slow
        slow.append(seconds >= FAST_SYNC_S)
        if on_loop and seconds >= STALL_S:
            self._stalled_until_s = now_s + STALL_PAUSE_S
        self.loop_from_s = self._stalled_until_s if slow.count(True) <= SLOW_SYNCS_MAX else math.inf


class LogWriter:
    """The buffer, the files and the thread that works on them.

    The files are free, or one thing is done with them (`is_writing`): nothing else begins meanwhile.
    """

    def __init__(
        self,
        core: Core,
        services: LogServices,
        *,
        may_block: bool,
        tell: Callable[[object], None],
        before_sync: Callable[[], None],
        on_synced: Callable[[int, int], None],
    ) -> None:
        self.core = core  # is asked for what is committed, and told what was cut
        self.log = services.log
        self.metadata = services.metadata
        self.payloads = Payloads()  # of the last entries, for peers
        self.keeps_payloads = False  # nobody wants them before there is a peer
        self.is_writing = False  # the disk thread is busy with the log's files
        self.writing_since_ms = NEVER  # since when it has been at what it does
        self.hang_ms = 0  # for how long it has been at one thing; checks are counted, so a pause of the process is not
        self.is_flush_queued = False  # FLUSH is in RaftLog's mailbox
        self.is_check_queued = False  # CHECK will be
        self.behind: deque[PutBehind | Job] = deque()  # waits for the files, in its order; a first Job may be under way
        self.roll: Roll | None = None  # the segment is full, and to be sealed as soon as it is committed
        self.syncs = 0
        self.longest_sync_s = 0.0
        self.sync_s = Histogram(SYNC_S)
        self.group_entries = Histogram(GROUP_ENTRIES)  # how many went to disk with one sync
        self._may_block = may_block  # this node may sync on its event loop
        self._tell = tell  # puts mail into RaftLog's mailbox
        self._before_sync = before_sync  # sends what needs no sync, before a sync on the loop
        self._on_synced = on_synced  # everything up to an index is on disk, as it was put in some era of the core
        self._disk = services.disk
        self._state_disk = services.state_disk
        self._stamp_ms = services.stamp_ms
        self._monotonic_ms = services.monotonic_ms
        self._call_later = services.call_later
        self._check_room = services.check_room
        self._sync_watch = services.sync_watch
        self._place = SyncPlace()
        self._synced_index = services.log.last_index  # the last entry on disk
        self._room_checked_bytes = 0  # of the log, written when the free space was last checked
        self._check_ms = core.settings.election_ms // CHECKS_AN_ELECTION  # between two checks of the thread
        self._warn_at_ms = 0  # the next report of a disk that does not answer, by `hang_ms`
        self._buffered_in = 0  # the core's era when something was last put into the buffer
        self._cut_to = 0  # the index that an image covers; peers may still need some entries before it
        self._is_cut_due = False  # segments may be removed when the files are free
        self._kept_ms = services.monotonic_ms()  # when what disks have acknowledged was last saved, or had not changed
        self._kept_acknowledged = services.metadata.state.acknowledged  # as it is on disk

    # --- entries ---------------------------------------------------------------------------------------------------

    def put(self, first_index: int, term: int, payloads: Sequence[bytes]) -> None:
        """Append entries of one term to the buffer in memory."""
        if self.keeps_payloads:
            self.payloads.put(first_index, payloads)
        if self.behind:
            self.behind.append(PutBehind(first_index, term, payloads, self.core.era))
        else:
            self.log.append_many(first_index, term, payloads)
            self._buffered_in = self.core.era

    def flush_soon(self) -> None:
        """Write at the end of the mail that waits now, so that others who propose in this turn share the sync."""
        if not self.is_flush_queued and not self.is_writing:
            self.is_flush_queued = True
            self._tell(FLUSH)

    def write(self) -> None:
        """Write and sync the buffer; not to be called while something else is done with the files."""
        batch = self.log.take_buffer()
        if batch is None:
            return
        era = self._buffered_in
        if (
            self._may_block
            and time.monotonic() >= self._place.loop_from_s
            and not self._disk.busy
            and not self._state_disk.busy
        ):
            self._before_sync()
            started = self._sync_watch.since_s = time.perf_counter()
            try:
                self.log.write(batch)
            finally:
                self._sync_watch.since_s = 0.0
            self._synced(batch.last_index, era, time.perf_counter() - started, on_loop=True)
            return

        def done(result: float | BaseException) -> None:
            if isinstance(result, BaseException):
                self._tell(Written(batch.last_index, era, 0.0, result))
            else:
                self._tell(Written(batch.last_index, era, result, None))

        self._submit(lambda: self._timed_write(batch), done)

    def _timed_write(self, batch: Batch) -> float:
        started = time.perf_counter()
        self.log.write(batch)
        return time.perf_counter() - started

    def on_written(self, message: Written) -> None:
        self._end_work()
        if message.error is not None:
            raise message.error if isinstance(message.error, SyncFailed) else SyncFailed(str(message.error))
        self._synced(message.last_index, message.era, message.seconds, on_loop=False)

    def _synced(self, last_index: int, era: int, seconds: float, *, on_loop: bool) -> None:
        # While the state store writes too, the time says little of the disk.
        if on_loop or not self._state_disk.busy:
            self._place.took(seconds, time.monotonic(), on_loop=on_loop)
        entries = max(1, last_index - self._synced_index)
        self._synced_index = last_index
        self.syncs += 1
        if seconds > self.longest_sync_s:
            self.longest_sync_s = seconds
        # Both are `observe` spelled out: every answer waits for it.
        taken, group = self.sync_s, self.group_entries
        taken.counts[bisect_left(SYNC_S, seconds)] += 1
        taken.total += seconds
        group.counts[bisect_left(GROUP_ENTRIES, entries)] += 1
        group.total += entries
        if seconds > SLOW_SYNC_S:
            logger.warning("a sync of the log took %.1f s: the disk is slow, and all clients wait for it", seconds)
        self._on_synced(last_index, era)
        if self.log.written_bytes - self._room_checked_bytes > CHECK_ROOM_BYTES:
            self._room_checked_bytes = self.log.written_bytes
            self._check_room()

    # --- the disk thread -------------------------------------------------------------------------------------------

    def _submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Do something with the log's files in their thread; no batch is written meanwhile."""
        self.is_writing, self.writing_since_ms = True, self._stamp_ms()
        # The first check may come at once.
        self.hang_ms, self._warn_at_ms = -self._check_ms, int(SLOW_SYNC_S * 1000)
        self._disk.submit(work, done)
        if not self.is_check_queued:
            self._check_later()

    def _end_work(self) -> None:
        self.is_writing, self.writing_since_ms = False, NEVER
        self.hang_ms = 0

    def _check_later(self) -> None:
        self.is_check_queued = True
        self._call_later(self._check_ms / 1000, lambda: self._tell(CHECK))

    def on_check(self) -> None:
        """Find out whether the disk thread is still at the same thing, and report a disk that does not answer."""
        self.is_check_queued = False
        if not self.is_writing:
            return
        self._check_later()
        self.hang_ms += self._check_ms
        if self.hang_ms >= self._warn_at_ms:
            self._warn_at_ms = self.hang_ms + int(HANG_AGAIN_S * 1000)
            logger.warning("the disk does not answer: a write of the log has taken %s so far", self.hang)

    @property
    def hang(self) -> str:
        """For how long the disk thread has been at one thing, for people."""
        return f"{self.hang_ms / 1000:.1f} s"

    # --- what happens between two batches --------------------------------------------------------------------------

    def go_on(self) -> None:
        """Do what waits for the files if they are free, then write what was put meanwhile."""
        if self.behind:
            self._work_off()
        elif not self.is_writing and not self._roll_if_asked() and not self._cut_if_asked() and self.log.buffered_bytes:
            self.flush_soon()

    def do_behind(self, work: Callable[[], object], done: Callable[[], None] = lambda: None) -> None:
        """Do something to the files after everything that was put before is written."""
        self.behind.append(Job(work, done))
        self._work_off()

    def _work_off(self) -> None:
        while self.behind and not self.is_writing:
            first = self.behind[0]
            if isinstance(first, PutBehind):
                self.behind.popleft()
                self.log.append_many(first.first_index, first.term, first.payloads)
                self._buffered_in = first.era
            elif self.log.buffered_bytes:
                self.write()
            else:
                # The Job stays in front until it is done, so that nothing is appended meanwhile.
                self._submit(first.work, lambda result: self._free(result, behind=True))
        if not self.is_writing and self.log.buffered_bytes:
            self.flush_soon()

    def truncate_from(self, index: int) -> None:
        """Remove the entries from `index` on, once they are written."""
        self.payloads.truncate_from(index)
        self.do_behind(lambda: self.log.truncate_from(index))

    def on_roll(self, message: Roll) -> None:
        """Seal a full segment, and save up to where the log is known to be committed: at least what the store has."""
        self.roll = message if self.log.roll_due else None
        self._is_cut_due = self._cut_to > 0

    def on_cut(self, message: Cut) -> None:
        """Remove the segments that an image covers and no living peer needs; the rest once the peers have them."""
        self._cut_to = max(self._cut_to, message.index)
        self._is_cut_due = True

    @property
    def waits_to_roll(self) -> bool:
        """Whether to write nothing until the full segment is committed: only then can it be sealed.

        Entries of an earlier term are an exception: they are committed only by a later entry (section 5.4.2 of the
        Raft paper), so that one must be written.
        """
        if self.roll is None:
            return False
        written, core = self.log.written_index, self.core
        return written > core.committed and core.log.term_at(written) == core.term

    def _roll_if_asked(self) -> bool:
        """Seal the segment between two writes; what is buffered goes into the next one."""
        if self.roll is None or self.log.written_index > self.core.committed:
            return self.waits_to_roll
        message, self.roll = self.roll, None
        committed, acknowledged = self.core.committed, self.core.acknowledged.told()

        def work() -> None:
            self.metadata.save(committed=message.applied, acknowledged=acknowledged)
            self.log.roll(committed)

        self._submit(work, self._free)
        return True

    def _cut_if_asked(self) -> bool:
        if not self._is_cut_due:
            return False
        self._is_cut_due = False
        index = self.core.floor(self._cut_to)
        if index >= self._cut_to:
            self._cut_to = 0
        self._submit(lambda: self.log.cut_below(index + 1), self._free)
        return True

    def _free(self, result: object, *, behind: bool = False) -> None:
        self._tell(Freed(result if isinstance(result, BaseException) else None, behind))

    def on_freed(self, message: Freed) -> None:
        self._end_work()
        if message.error is not None:
            raise message.error
        if message.behind:
            job = self.behind.popleft()
            assert isinstance(job, Job), "only jobs are done behind others"
            job.done()
        else:
            self.core.cut(self.log.first_index - 1)

    # --- term and vote ---------------------------------------------------------------------------------------------

    def save(self, state: HardState) -> None:
        """Save term and vote; the core holds back the messages that depend on them until it is told Saved."""

        def done(result: object) -> None:
            self._tell(Saved(state, result if isinstance(result, BaseException) else None))

        acknowledged = self.core.acknowledged.told()
        self._disk.submit(lambda: self.metadata.save(term=state.term, vote=state.vote, acknowledged=acknowledged), done)

    def keep_acknowledged(self) -> None:
        """Save now and then what disks have acknowledged, if nothing else was saved; a quiet cluster saves nothing."""
        now_ms = self._monotonic_ms()
        if now_ms - self._kept_ms < KEEP_ACKNOWLEDGED_MS:
            return
        self._kept_ms, acknowledged = now_ms, self.core.acknowledged.told()
        if acknowledged == self._kept_acknowledged:
            return
        self._kept_acknowledged = acknowledged

        def done(result: object) -> None:
            self._tell(Kept(result if isinstance(result, BaseException) else None))

        self._disk.submit(lambda: self.metadata.save(acknowledged=acknowledged), done)
