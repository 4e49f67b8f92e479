"""RaftLog: the one actor through which every change passes.

    Propose (subscriber, queue) --> stamp, log, one sync for each batch --> Committed --> queues

It owns the order of things and nothing else.  It never looks inside a command (but for whether it publishes, when
publishes are refused), and answers an asker itself only when the command can no longer be committed.
"""

import logging
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from wakeq.actors.messages import Answered, Asker, Committed, Item, Pressure, Propose, Refusal, Tick
from wakeq.actors.runtime import Process
from wakeq.protocol.commands import Ack, CreateQueue, Entry, Imported, Noop, Publish, SetAside, Stash
from wakeq.protocol.errors import SyncFailed
from wakeq.protocol.log_format import PAYLOAD_BYTES_MAX
from wakeq.protocol.raft.core import Core
from wakeq.protocol.records import encode_entry
from wakeq.storage.disk_thread import Disk
from wakeq.storage.metadata import Metadata
from wakeq.storage.raft_log import SegmentedLog

logger = logging.getLogger("wakeq.raft_log")

LAZY_AFTER_S = 0.020  # what nobody waits for rides along, or is synced on its own after this
FAST_SYNC_S = 0.0005
SYNCS_LOOKED_AT = 16
SLOW_SYNCS_MAX = 2  # of the last ones; if more were slow, the next is done in the thread
STALL_S = 0.005
STALL_PAUSE_S = 10.0  # no sync on the loop for so long after one that stalled it
LOOK_FOR_ROOM_BYTES = 256 << 10  # written between two looks at the free space; less than any reserve
FLUSH = Tick("flush")


class SyncPlace:
    """Where to sync: in the thread, or on the loop while the disk is faster than the hand-over to a thread."""

    def __init__(self) -> None:
        self._slow = deque([True] * SYNCS_LOOKED_AT, maxlen=SYNCS_LOOKED_AT)
        self._not_before_s = 0.0

    def on_loop(self, now_s: float) -> bool:
        return now_s >= self._not_before_s and self._slow.count(True) <= SLOW_SYNCS_MAX

    def took(self, seconds: float, now_s: float, *, on_loop: bool) -> None:
        """Learn from a sync; one that held up the loop is not risked again for a while."""
        self._slow.append(seconds >= FAST_SYNC_S)
        if on_loop and seconds >= STALL_S:
            self._not_before_s = now_s + STALL_PAUSE_S


class Started(msgspec.Struct, frozen=True, gc=False):
    """Begin: lead the cluster of one, and hand what is committed to `queues`."""

    queues: Process


class Throttle(msgspec.Struct, frozen=True, gc=False):
    """The state store is behind: let proposals wait, or go on."""

    on: bool


class Roll(msgspec.Struct, frozen=True, gc=False):
    """Everything up to `applied` is in the state store: seal a full segment, with these notes for its readers."""

    applied: int
    notes: Callable[[], bytes]


class Cut(msgspec.Struct, frozen=True, gc=False):
    """A snapshot covers everything up to `index`: remove the segments that lie wholly below."""

    index: int


class Written(msgspec.Struct, frozen=True, gc=False):
    """The disk thread's report."""

    last_index: int
    term: int
    seconds: float
    error: BaseException | None


class RaftLog(Process):
    """See the head of this file."""

    def __init__(
        self,
        core: Core,
        log: SegmentedLog,
        metadata: Metadata,
        disk: Disk,
        stamp_ms: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], Any],
        look_for_room: Callable[[], None] = lambda: None,
        others_write: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__()
        self.core = core
        self.syncs = 0
        self.synced_entries = 0
        self.longest_sync_s = 0.0
        self._log = log
        self._metadata = metadata
        self._disk = disk
        self._stamp_ms = stamp_ms
        self._call_later = call_later
        self._look_for_room = look_for_room
        self._others_write = others_write  # whether the state store is being synced: then a sync here is slow
        self._looked_at_bytes = 0
        self._queues: Process | None = None
        self._uncommitted: deque[Item] = deque()
        self._place = SyncPlace()
        self._flush_queued = False
        self._lazy_queued = False
        self._writing = False
        self._roll: Roll | None = None  # to be done as soon as nothing is being written
        self._refusal: Refusal | None = None
        self._throttled: deque[Propose] | None = deque()  # what waits: to lead, or for the state store

    def on_receive(self, message: Any) -> None:
        _HANDLERS[type(message)](self, message)

    def on_started(self, message: Started) -> None:
        """Vote for itself, save that, and open the term with a no-op."""
        self._queues = message.queues
        state = self.core.campaign()
        self._metadata.save(term=state.term, vote=state.vote)
        self.core.elected()
        waiting, self._throttled = self._throttled or (), None
        self._append(Propose([(Noop(), Asker(message.queues, None, None))]))
        for propose in waiting:
            self._append(propose)
        self._flush_soon()

    # --- in --------------------------------------------------------------------------------------------------------

    def on_propose(self, message: Propose) -> None:
        if self._throttled is not None and not self._is_urgent(message):
            self._throttled.append(message)
            return
        self._append(message)
        if message.lazy:
            self._flush_later()
        elif self.runtime.is_last(self) and not self._flush_queued and not self._writing:
            self._flush()  # nobody else has something to propose in this turn
        else:
            self._flush_soon()

    def _is_urgent(self, message: Propose) -> bool:
        """Whether the store itself may be waiting for this: a cut is not made while a queue is halted."""
        return self._queues is not None and all(type(entry) is SetAside for entry, _ in message.items)

    def _append(self, message: Propose) -> None:
        """Give entries their place in the log; they are nowhere but in memory yet."""
        items = message.items if self._refusal is None else self._admitted(message.items)
        core, log, uncommitted = self.core, self._log, self._uncommitted
        term, at_ms = core.term, self._stamp_ms()
        for entry, asker in items:
            try:
                payload = encode_entry(entry, at_ms)
                if len(payload) > PAYLOAD_BYTES_MAX:
                    raise OverflowError(f"an entry of {len(payload)} bytes, the log takes {PAYLOAD_BYTES_MAX}")
            except (struct.error, OverflowError) as error:
                self._refuse_unencodable(entry, asker, error)
                continue
            index = core.propose()
            log.append(index, term, payload)
            uncommitted.append((index, term, at_ms, entry, asker))

    def _refuse_unencodable(self, entry: Entry, asker: Asker | None, error: Exception) -> None:
        """A number that the log has no room for: a codec should have refused it; the node goes on all the same."""
        logger.error("an entry for queue %r cannot be written: %s", entry.queue, error)
        if asker is not None:
            refusal = Refusal("BAD_FIELD", f"a number is out of range: {error}")
            asker.process.tell(Answered([(asker.ticket, asker.place, refusal)]))

    def _admitted(self, items: list[tuple[Entry, Asker | None]]) -> list[tuple[Entry, Asker | None]]:
        """Answer what would need more room; what makes room goes on."""
        admitted = []
        for entry, asker in items:
            if not _needs_room(entry):
                admitted.append((entry, asker))
            elif asker is not None:
                asker.process.tell(Answered([(asker.ticket, asker.place, self._refusal)]))
        return admitted

    def on_pressure(self, message: Pressure) -> None:
        self._refusal = message.refusal

    def on_throttle(self, message: Throttle) -> None:
        if message.on:
            if self._throttled is None:
                self._throttled = deque()
            return
        waiting, self._throttled = self._throttled or deque(), None
        for propose in waiting:
            self._append(propose)
        self._flush_soon()

    @property
    def at_rest(self) -> bool:
        """True while nothing that was proposed is without its outcome."""
        return not (self._writing or self._uncommitted or self._throttled)

    # --- to disk ---------------------------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        """Sync once everybody who has something to propose in this turn has done so."""
        if not self._flush_queued and not self._writing:
            self._flush_queued = True
            self.tell(FLUSH)

    def _flush_later(self) -> None:
        if not self._lazy_queued and not self._flush_queued:
            self._lazy_queued = True
            self._call_later(LAZY_AFTER_S, lambda: self.tell(Tick("lazy")))

    def on_tick(self, message: Tick) -> None:
        if message.what == "lazy":
            self._lazy_queued = False
        else:
            self._flush_queued = False
        if not self._writing:
            self._flush()

    def _flush(self) -> None:
        batch = self._log.take_buffer()
        if batch is None:
            return
        last_index, term = self._uncommitted[-1][0], self.core.term
        now_s = time.monotonic()
        if self._place.on_loop(now_s) and not self._disk.busy and not self._others_write():
            started = time.perf_counter()
            self._log.write(batch)
            self._synced(last_index, term, time.perf_counter() - started, on_loop=True)
            return
        self._writing = True
        self._disk.submit(lambda: _timed(lambda: self._log.write(batch)), lambda r: self._written(last_index, term, r))

    def _written(self, last_index: int, term: int, result: float | BaseException) -> None:
        error = result if isinstance(result, BaseException) else None
        seconds = 0.0 if isinstance(result, BaseException) else result
        self.tell(Written(last_index, term, seconds, error))

    def on_written(self, message: Written) -> None:
        self._writing = False
        if message.error is not None:
            raise message.error if isinstance(message.error, SyncFailed) else SyncFailed(str(message.error))
        self._synced(message.last_index, message.term, message.seconds, on_loop=False)
        if not self._roll_if_asked() and self._log.buffered_bytes:
            self._flush_soon()

    def _synced(self, last_index: int, term: int, seconds: float, *, on_loop: bool) -> None:
        """Entries are on disk: commit them and let the queues apply them."""
        if on_loop or not self._others_write():  # what our own writes slowed down says nothing of the disk
            self._place.took(seconds, time.monotonic(), on_loop=on_loop)
        self.syncs += 1
        self.longest_sync_s = max(self.longest_sync_s, seconds)
        commit = self.core.stable(last_index, term)
        uncommitted = self._uncommitted
        if uncommitted and uncommitted[-1][0] <= commit:
            items = list(uncommitted)
            uncommitted.clear()
        else:
            items = []
            while uncommitted and uncommitted[0][0] <= commit:
                items.append(uncommitted.popleft())
        self.synced_entries += len(items)
        assert self._queues is not None, "started first"
        self._queues.tell(Committed(items))
        if self._log.written_bytes - self._looked_at_bytes > LOOK_FOR_ROOM_BYTES:
            self._looked_at_bytes = self._log.written_bytes
            self._look_for_room()

    # --- what is no longer needed ----------------------------------------------------------------------------------

    def on_roll(self, message: Roll) -> None:
        """Seal a full segment, and note how far the log is known to be committed (the state store knows it too)."""
        self._roll = message if self._log.roll_due else None
        if not self._writing:
            self._roll_if_asked()

    def _roll_if_asked(self) -> bool:
        """Seal the segment between two writes; what is buffered goes into the next one."""
        if self._roll is None:
            return False
        message, self._roll = self._roll, None
        committed, notes = self.core.commit, message.notes()

        def work() -> None:
            self._metadata.save(committed=message.applied)
            self._log.roll(committed, notes)

        self._occupy(work)
        return True

    def on_cut(self, message: Cut) -> None:
        self._occupy(lambda: self._log.cut_below(message.index))

    def _occupy(self, work: Callable[[], object]) -> None:
        """Do something with the log's files in its thread; syncs wait as behind any other."""
        if self._writing:
            self._disk.submit(work, self._occupied)
            return
        self._writing = True
        self._disk.submit(work, self._free)

    def _occupied(self, result: object) -> None:
        if isinstance(result, BaseException):
            self.tell(Written(0, 0, 0.0, result))

    def _free(self, result: object) -> None:
        error = result if isinstance(result, BaseException) else None
        self.tell(Freed(error))

    def on_freed(self, message: "Freed") -> None:
        self._writing = False
        if message.error is not None:
            raise message.error
        if not self._roll_if_asked() and self._log.buffered_bytes:
            self._flush_soon()


class Freed(msgspec.Struct, frozen=True, gc=False):
    """The disk thread has done something else with the log's files."""

    error: BaseException | None


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _needs_room(entry: Entry) -> bool:
    match entry:
        case Publish() | Stash() | CreateQueue() | Imported():
            return True
        case Ack():
            return bool(entry.publishes) and not entry.dead
    return False


_HANDLERS: dict[type, Callable[[RaftLog, Any], None]] = {
    Propose: RaftLog.on_propose,
    Tick: RaftLog.on_tick,
    Written: RaftLog.on_written,
    Started: RaftLog.on_started,
    Pressure: RaftLog.on_pressure,
    Throttle: RaftLog.on_throttle,
    Roll: RaftLog.on_roll,
    Cut: RaftLog.on_cut,
    Freed: RaftLog.on_freed,
}
