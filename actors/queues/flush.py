"""Flusher: writes the state of all queues to the state store, one flush after the other.

    CollectChanges --> each queue's changes --> one transaction in the state's thread --> Flushed

A flush holds everything up to one index of the log, so nothing is applied while changes are collected.  Queues are
asked and told a slice at a time, so that other messages wait for one slice only.
"""

import logging
import time
from collections.abc import Callable
from functools import partial

import msgspec

from wakeq.actors.log.writer import Roll
from wakeq.actors.mail import CollectChanges, Collected, Flushed, Throttle, Tick
from wakeq.actors.queue.process import QueueProcess
from wakeq.actors.queue.reading import QueueProcessServices
from wakeq.actors.queues.apply import Applier, Hold
from wakeq.actors.queues.catalog import QueueCatalog
from wakeq.actors.queues.listing import SLICE_QUEUES
from wakeq.actors.queues.processes import QueueProcesses
from wakeq.actors.queues.skipped import SkippedEntries
from wakeq.actors.runtime import Process
from wakeq.actors.snapshots import StateWritten
from wakeq.protocol.log.outcomes import Outcomes
from wakeq.protocol.queue.bodies import share_of
from wakeq.storage.log.segmented_log import SegmentedLog
from wakeq.storage.state.checkpoint import QueueDelta, make_checkpoint
from wakeq.storage.state.store import Store, StoreStats
from wakeq.storage.thread import Disk

FLUSH_AFTER_MS = 1_000
FLUSH_BYTES = 16 << 20  # written to the log since the last flush began
BACKLOG_FLUSHES = 2  # proposals wait while the state store lacks more than this many times flush_bytes of the log
STATE_BYTES_A_LOG_BYTE = 2  # at most what the state store will need for what it does not have yet
ROOM_BYTES_MIN = 1 << 20  # beside it, for the pages that any flush writes anew
COLLECT_SHARE = 10  # a flush waits this many times as long as collecting the last one took: a tenth of the time at most
FLUSH_AFTER_S_MAX = 15.0

logger = logging.getLogger("wakeq.queues")


class StateFiles(msgspec.Struct, frozen=True):
    """Where the state is kept."""

    store: Store
    log: SegmentedLog
    # Work that reads or writes the store waits for its disk in a thread.
    disk: Disk


class FlushWritten(msgspec.Struct, frozen=True, gc=False):
    """The state store's report of a flush: its figures, or why the flush could not be written."""

    result: StoreStats | BaseException
    has_graves: bool


class Swept(msgspec.Struct, frozen=True, gc=False):
    """The state store has removed some of what is in graves: whether there is more, and its figures."""

    result: tuple[bool, StoreStats] | BaseException


class StillToTell(msgspec.Struct, frozen=True, gc=False):
    """To the supervisor itself: these queues still have to be told that the flush is written."""

    flushed: Flushed
    names: list[str]


class Flusher:
    """When a flush begins, what it collects, and what follows when it is written."""

    def __init__(
        self,
        files: StateFiles,
        services: QueueProcessServices,
        catalog: QueueCatalog,
        processes: QueueProcesses,
        skipped: SkippedEntries,
        applier: Applier,
        supervisor: Process,
        snapshots: Process,
        *,
        after_ms: int,
        after_bytes: int,
    ) -> None:
        # The last entry that the state store has.
        self.flushed_index = applier.applied[0]
        # Free bytes inside the state store's file, as of the last flush.
        self.reusable_bytes = 0
        # How many flushes are written.
        self.count = 0
        # Whether a tick is on its way that begins a flush.
        self.is_scheduled = False
        # Whether a flush is due, but had to wait for something that takes several steps.
        self.is_overdue = False
        # What `flush_now` calls in the end; None while nobody wants to hear of it.
        self.ready: Callable[[], None] | None = None
        # The bytes written to the log at which the next flush does not wait for its tick.
        self.due_bytes = after_bytes
        self._files = files
        self._services = services
        self._catalog = catalog
        self._processes = processes
        self._skipped = skipped
        self._applier = applier
        # The actor that queues answer, and to which reports of the disk come as mail.
        self._supervisor = supervisor
        # Hears how much lives in the state store.
        self._snapshots = snapshots
        # The settings.
        self._after_s = after_ms / 1000
        self._after_bytes = after_bytes
        # What distinguishes the answers to this flush from late ones to an earlier one.
        self._number = 0
        # The changes that queues have handed in; None while none are collected.
        self._deltas: list[QueueDelta] | None = None
        # Queues that are still to be asked for their changes, and those that were asked and have not answered.
        self._unasked: list[str] = []
        self._owing: set[str] = set()
        # When collecting began, and how long it took in the last flush.
        self._collecting_since_s = self._collecting_s = 0.0
        # The queues of a flush that is being written, the last entry in it, and the bytes of the log up to there.
        self._writing: list[str] | None = None
        self._writing_index = self._writing_bytes = 0
        # Written to the log when the last flush began, and when the last one that is complete began.
        self._begun_bytes = self._flushed_bytes = 0
        # The first index of the segment in which all queues were last listed for readers of the log.
        self._listed_in = 0
        # Up to where readers of the log have been told what became of its entries.
        self._told_through = applier.applied[0]
        # The largest share of memory that any queue was last told.
        self._share_bytes = share_of(0)
        # Whether the log takes no proposals because the state store is far behind.
        self._is_throttling = False
        # Whether the disk has no room for a flush.
        self._lacks_room = False

    @property
    def unflushed_bytes(self) -> int:
        """Bytes of the log that the state store does not have yet."""
        return self._files.log.written_bytes - self._flushed_bytes

    @property
    def may_begin(self) -> bool:
        """Whether nothing is in the way of a flush."""
        applier = self._applier
        return not (applier.held_by or applier.stepping or self._processes.away) and self._writing is None

    def has_changes_of(self, name: str) -> bool:
        """Whether a flush that is not written yet has the changes of this queue."""
        has_answered = self._deltas is not None and name not in self._owing and name not in self._unasked
        return has_answered or self._writing is not None

    def is_written(self, index: int) -> bool:
        """Whether the state store has, or is about to have, what came of an entry."""
        if self._deltas is not None:
            return index <= self._applier.applied[0]
        return index <= (self.flushed_index if self._writing is None else self._writing_index)

    def holds(self, name: str) -> bool:
        """Whether a queue is in the flush that is being written."""
        return name in (self._writing or ())

    # --- when ------------------------------------------------------------------------------------------------------

    def note_written(self) -> None:
        """Have a flush begin soon, or at once if much has been written; throttle the log if the store is far behind."""
        if not self.is_scheduled:
            self._begin_later()
        written = self._files.log.written_bytes - self._begun_bytes
        if written > self._after_bytes:
            self.begin_soon()
        if written > BACKLOG_FLUSHES * self._after_bytes and not self._is_throttling:
            self._is_throttling = True
            self._services.raft_log.tell(Throttle(True))

    def on_tick(self) -> None:
        """Begin the flush for which this tick was asked."""
        self.is_scheduled = False
        if self._applier.waiting or not self.may_begin:
            self._begin_later()
        self.begin_soon()

    def begin_soon(self) -> None:
        """Begin as soon as nothing is in the way; while one flush is being written, the next can wait."""
        if self.may_begin and not self._applier.waiting:
            self.begin()
        elif self._writing is None:
            self.is_overdue = True

    def begin_if_overdue(self) -> None:
        """Begin an overdue flush before anything else: a stream of barriers could put it off for ever."""
        if self.is_overdue and self.may_begin:
            self.begin()

    def _begin_later(self) -> None:
        self.is_scheduled = True
        after_s = min(max(self._after_s, COLLECT_SHARE * self._collecting_s), FLUSH_AFTER_S_MAX)
        self._services.later(after_s, lambda: self._supervisor.tell(Tick("flush")))

    def flush_now(self, ready: Callable[[], None]) -> None:
        """Write everything down, then call `ready`; for a clean stop."""
        self.ready = ready
        if self.may_begin:
            self.begin()

    def finish_ready(self) -> None:
        """Call whom `flush_now` was given, if everything is written; else go on with that."""
        if self.ready is not None and self._writing is None and self._deltas is None:
            applier = self._applier
            if self.flushed_index < applier.applied[0] or applier.waiting or applier.held_by or applier.stepping:
                if self.may_begin and not applier.waiting:
                    self.begin()  # if not now: this is called again when what is under way is done
            else:
                ready, self.ready = self.ready, None
                ready()

    # --- from CollectChanges to Flushed ------------------------------------------------------------------------------

    def begin(self) -> None:
        """Ask every queue that had entries for what changed; until all have answered, no queue is told anything."""
        if not self._has_room():
            self._put_off()
            return
        self._begun_bytes = self._files.log.written_bytes
        self.due_bytes = self._begun_bytes + self._after_bytes
        self.is_overdue = False
        applier = self._applier
        assert not applier.held_by, "a flush holds the effect of everything up to its index"
        has_changes = applier.told or self._catalog.has_graves or self._skipped.has_unwritten
        if not has_changes and applier.applied[0] == self.flushed_index:
            self.finish_ready()
            return
        self._number += 1
        self._deltas = []
        applier.held_by.add(Hold.FLUSH)
        self._collecting_since_s = time.perf_counter()
        self._unasked = list(applier.told)
        self._collect_slice()

    def _has_room(self) -> bool:
        """Whether a flush will find room; one that did not would end the node, and the log has it all."""
        needed_bytes = STATE_BYTES_A_LOG_BYTE * self.unflushed_bytes + ROOM_BYTES_MIN
        has_room = self._services.free_bytes() + self.reusable_bytes >= needed_bytes
        if has_room is self._lacks_room:
            self._lacks_room = not has_room
            if has_room:
                logger.warning("the disk has room again: writing the state store")
            else:
                logger.warning(
                    "the disk is full: the state store is not written until there is room; the log has all entries"
                )
        return has_room

    def _put_off(self) -> None:
        """Try again later; who stops the node does not wait: the next start applies what the state lacks."""
        if not self.is_scheduled:
            self._begin_later()
        ready, self.ready = self.ready, None
        if ready is not None:
            ready()

    def _collect_slice(self) -> None:
        """Ask the next queues: if all were asked at once, other messages would have to wait for all of them."""
        names, self._unasked = self._unasked[:SLICE_QUEUES], self._unasked[SLICE_QUEUES:]
        self._owing = set(names)
        # A queue that is being rebuilt is asked later: see ask_again.
        self._processes.tell(names, CollectChanges(self._number, self._supervisor))
        if not names:
            self._write()

    def ask_again(self, process: QueueProcess) -> None:
        """Ask a rebuilt queue for the changes that its predecessor still owed."""
        if process.name in self._owing:
            process.tell(CollectChanges(self._number, self._supervisor))

    def on_collected(self, message: Collected) -> None:
        """Take the changes of a queue; those of the last one are written with all others."""
        if message.flush != self._number or self._deltas is None or message.delta.name not in self._owing:
            return
        self._owing.discard(message.delta.name)
        self._deltas.append(message.delta)
        applier = self._applier
        applier.told[message.delta.name] = []  # freeing everything at the end would take long
        applier.notes += message.unchanged
        if not self._owing:
            self._collect_slice()

    def _write(self) -> None:
        self._collecting_s = time.perf_counter() - self._collecting_since_s
        deltas, self._deltas = self._deltas, None
        assert deltas is not None, "collected first"
        applier, store = self._applier, self._files.store
        applier.held_by.discard(Hold.FLUSH)
        tell = self._tell_outcomes(deltas)
        self._writing = list(applier.told)
        members = self._catalog.take_members(self._files.log.first_index)
        applied, graves, skipped = applier.applied, self._catalog.take_graves(), self._skipped.take_unwritten()
        if applier.touched is not None:
            applier.touched.update(applier.told)
        applier.told = {}

        def work() -> StoreStats:
            tell()  # first, so that the outcome of every entry in the state is known to readers of the log
            store.commit(make_checkpoint(store, applied, deltas, graves, skipped, members))
            return store.stats()

        def done(result: StoreStats | BaseException) -> None:
            self._supervisor.tell(FlushWritten(result, bool(graves)))

        self._writing_index, self._writing_bytes = applied[0], self._begun_bytes
        self._files.disk.submit(work, done)

    def _tell_outcomes(self, deltas: list[QueueDelta]) -> Callable[[], None]:
        """Return what is to run in the state's thread: it writes the outcomes of this flush's entries."""
        outcomes, files = self._take_outcomes(deltas), self._files.log.outcomes
        if outcomes is None or files is None:
            return lambda: None
        return partial(files.write, outcomes)

    def _take_outcomes(self, deltas: list[QueueDelta]) -> Outcomes | None:
        """Return the outcomes of this flush's entries, for readers of the log, and begin to gather those of the next.

        None while all queues have to be listed and one of them is being rebuilt: the next flush covers both.
        """
        applier, processes = self._applier, self._processes.by_name
        segment = self._files.log.active_first_index
        lists_all = segment != self._listed_in
        counters = [(delta.queue_id, delta.next_number, delta.name) for delta in deltas]
        if lists_all:
            told = {delta.name for delta in deltas}
            others = [record for record in self._catalog.catalog.queues.values() if record.name not in told]
            if any(record.name not in processes for record in others):
                return None
            counters = [counter for counter in counters if counter[0]]
            counters += [(other.id, processes[other.name].ledger.columns.next_number, other.name) for other in others]
        outcomes = Outcomes(self._told_through, applier.applied[0], lists_all, counters, applier.notes)
        self._listed_in, self._told_through, applier.notes = segment, applier.applied[0], []
        return outcomes

    def on_written(self, message: FlushWritten) -> tuple[Flushed, list[str]]:
        """The state store has the flush; return what is to be told, and to which queues."""
        if isinstance(message.result, BaseException):
            raise message.result
        assert self._writing is not None, "a flush was written"
        self.count += 1
        self.flushed_index, self._flushed_bytes = self._writing_index, self._writing_bytes
        if message.has_graves:
            self.sweep()
        if self._is_throttling:
            self._is_throttling = False
            self._services.raft_log.tell(Throttle(False))
        self._services.raft_log.tell(Roll(self.flushed_index))
        self._note_room(message.result)
        processes = self._processes.by_name
        share_bytes = share_of(len(processes))
        names = self._writing
        if share_bytes < self._share_bytes // 2:  # also tell idle queues, which keep too much by now
            names = list(processes)
            self._share_bytes = share_bytes
        self._share_bytes = max(self._share_bytes, share_bytes)
        return Flushed(share_bytes), names

    def tell_flushed(self, flushed: Flushed, names: list[str]) -> list[str] | None:
        """Tell queues that the flush is written, a slice at a time; return the queues of the flush when all are told.

        The next flush begins only after that.
        """
        self._processes.tell(names[:SLICE_QUEUES], flushed)
        if len(names) > SLICE_QUEUES:
            self._supervisor.tell(StillToTell(flushed, names[SLICE_QUEUES:]))
            return None
        written, self._writing = self._writing or [], None
        return written

    # --- incarnations that ended -------------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Have the store remove some of what is in graves."""
        store = self._files.store
        self._files.disk.submit(
            lambda: (store.sweep(), store.stats()), lambda result: self._supervisor.tell(Swept(result))
        )

    def on_swept(self, message: Swept) -> None:
        """Go on until nothing is left of them."""
        if isinstance(message.result, BaseException):
            raise message.result
        has_more, stats = message.result
        self._note_room(stats)
        if has_more:
            self.sweep()

    def _note_room(self, stats: StoreStats) -> None:
        self.reusable_bytes = stats.reusable_bytes
        self._snapshots.tell(StateWritten(stats.living_bytes))
