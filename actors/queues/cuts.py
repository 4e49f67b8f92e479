"""QueueCuts: writes the state of all queues to the state store, one cut after the other.

    Collect --> each queue's part --> one transaction in the state's thread --> Flushed

The third layer of Queues.  A cut holds everything up to one index of the log, so no queue is told anything new while
parts are collected.  Queues are asked and told a slice at a time, so that other messages wait for one slice only.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec

from wakeq.actors.log.files import Roll
from wakeq.actors.mail import Collect, Collected, Deserted, Flushed, LogItem, Throttle, Tick
from wakeq.actors.queue.reading import QueueProcessServices
from wakeq.actors.queues.listing import SLICE_QUEUES
from wakeq.actors.queues.rebuilds import QueueRebuilds
from wakeq.actors.queues.registry import Settings
from wakeq.actors.runtime import Process
from wakeq.actors.snapshots import StateWritten
from wakeq.protocol.log.outcomes import Outcomes
from wakeq.protocol.queue.bodies import share_of
from wakeq.protocol.raft.membership import Config
from wakeq.storage.log.segmented_log import SegmentedLog
from wakeq.storage.state.cut import Part, make_cut
from wakeq.storage.state.store import Store, StoreStats
from wakeq.storage.thread import Disk

BACKLOG_CUTS = 2  # proposals wait while the state store lacks more than this many times flush_bytes of the log
STATE_BYTES_A_LOG_BYTE = 2  # at most what the state store will need for what it does not have yet
ROOM_BYTES_MIN = 1 << 20  # beside it, for the pages that any cut writes anew
COLLECT_SHARE = 10  # a cut waits this many times as long as collecting the last one took: a tenth of the time, at most
FLUSH_AFTER_S_MAX = 15.0

logger = logging.getLogger("wakeq.queues")


class FlushDone(msgspec.Struct, frozen=True, gc=False):
    """The state store's report of a cut: its figures, or why the cut could not be written."""

    result: StoreStats | BaseException
    has_graves: bool


class Swept(msgspec.Struct, frozen=True, gc=False):
    """The state store has removed some of what is in graves: whether there is more, and its figures."""

    result: tuple[bool, StoreStats] | BaseException


class StillToTell(msgspec.Struct, frozen=True, gc=False):
    """To itself: these queues still have to be told that their cut is written."""

    flushed: Flushed
    names: list[str]


class QueueCuts(QueueRebuilds):
    """One cut after the other."""

    def __init__(
        self,
        store: Store,
        log: SegmentedLog,
        disk: Disk,
        services: QueueProcessServices,
        settings: Settings,
        applied: tuple[int, int, int],
        snapshots: Process,
    ) -> None:
        super().__init__(store, log, disk, services, settings)
        self.applied = applied  # index, term, moment of the last entry that was handed to its queues
        self.reusable_bytes = 0  # free inside the state store's file, as of the last cut
        self.flushed_index = applied[0]
        self.flushes = 0
        self._snapshots = snapshots
        self._listed_in = 0  # first index of the segment in which all queues were last listed for readers of the log
        self._told_through = applied[0]  # up to where readers of the log have been told what became of its entries
        self._waiting: deque[list[LogItem]] = deque()  # committed, not handed out yet
        self._is_under_way = False  # an entry for several queues has not been applied by all of them yet
        self._cut = 0
        self._parts: list[Part] | None = None  # being collected
        self._unasked: list[str] = []  # queues that are still to be asked for their part
        self._owing: set[str] = set()  # queues that were asked and have not handed it in
        self._flushing: list[str] | None = None  # the queues of a cut that is being written
        self._flushing_index = 0
        self._flushing_bytes = 0
        self._flush_queued = False
        self._is_overdue = False  # a cut is due, but had to wait for something that takes several steps
        self._share_bytes = share_of(0)  # the largest share of memory that any queue was last told
        self._collecting_since_s = self._collecting_s = 0.0  # of the last cut
        self._bytes = 0  # written to the log when the last cut began
        self._flushed_bytes = 0  # written to the log when the last completed cut began
        self._throttled = False
        self._lacks_room = False
        self._ready: Callable[[], None] | None = None  # what `flush_now` calls in the end

    @property
    def unflushed_bytes(self) -> int:
        """Bytes of the log that the state store does not have yet."""
        return self._log.written_bytes - self._flushed_bytes

    @property
    def _held(self) -> bool:
        is_stepping = self._is_under_way or self._parts is not None
        return is_stepping or bool(self._rebuilding)

    @property
    def _may_cut(self) -> bool:
        return not (self._held or self._halted) and self._flushing is None

    def _is_in_cut(self, name: str) -> bool:
        handed_in = self._parts is not None and name not in self._owing and name not in self._unasked
        return handed_in or self._flushing is not None

    def _is_written(self, index: int) -> bool:
        if self._parts is not None:
            return index <= self.applied[0]
        return index <= (self.flushed_index if self._flushing is None else self._flushing_index)

    # --- when ------------------------------------------------------------------------------------------------------

    def _flush_in_time(self) -> None:
        """Have a cut made soon, or at once if much has been written; throttle the log if the store is far behind."""
        written = self._log.written_bytes
        if not self._flush_queued:
            self._flush_later()
        if written - self._bytes > self._settings.flush_bytes:
            self._cut_soon()
        if written - self._bytes > BACKLOG_CUTS * self._settings.flush_bytes and not self._throttled:
            self._throttled = True
            self._services.raft_log.tell(Throttle(True))

    def on_tick(self, message: Tick) -> None:
        self._flush_queued = False
        self._say_halted()
        if self._waiting or not self._may_cut:
            self._flush_later()
        self._cut_soon()

    def _cut_soon(self) -> None:
        """Begin a cut as soon as nothing is in its way; if one is being written, the next can wait."""
        if self._may_cut and not self._waiting:
            self._begin_cut()
        elif self._flushing is None:
            self._is_overdue = True

    def _cut_if_overdue(self) -> None:
        """Begin an overdue cut before anything else: a stream of barriers could put it off for ever."""
        if self._is_overdue and self._may_cut:
            self._begin_cut()

    def _flush_later(self) -> None:
        self._flush_queued = True
        after_s = max(self._settings.flush_after_ms / 1000, COLLECT_SHARE * self._collecting_s)
        self._services.later(min(after_s, FLUSH_AFTER_S_MAX), lambda: self.tell(Tick("flush")))

    def flush_now(self, ready: Callable[[], None]) -> None:
        """Write everything down, then call `ready`; for a clean stop."""
        self._ready = ready
        if self._may_cut:
            self._begin_cut()

    def _finish_ready(self) -> None:
        if self._ready is not None and self._flushing is None and self._parts is None:
            if self.flushed_index < self.applied[0] or self._waiting or self._held:
                if self._may_cut and not self._waiting:
                    self._begin_cut()  # if not now: this is called again when what is under way is done
            else:
                ready, self._ready = self._ready, None
                ready()

    # --- from Collect to Flushed -------------------------------------------------------------------------------------

    def _begin_cut(self) -> None:
        """Ask every queue that had entries for what changed; until all have answered, no queue is told anything."""
        if not self._has_room():
            self._put_off_cut()
            return
        self._bytes = self._log.written_bytes
        self._is_overdue = False
        assert not self._held, "a cut holds the effect of everything up to its index"
        if not self._told and not self._graves and not self._asides and self.applied[0] == self.flushed_index:
            self._finish_ready()
            return
        self._cut += 1
        self._parts = []
        self._collecting_since_s = time.perf_counter()
        self._unasked = list(self._told)
        self._collect_slice()

    def _has_room(self) -> bool:
        """Whether what a cut writes will find room; one that did not would end the node, and the log has it all."""
        needed_bytes = STATE_BYTES_A_LOG_BYTE * self.unflushed_bytes + ROOM_BYTES_MIN
        has_room = self._services.free_bytes() + self.reusable_bytes >= needed_bytes
        if has_room is self._lacks_room:
            self._lacks_room = not has_room
            if has_room:
                logger.warning("the disk has room again: the state is written")
            else:
                logger.warning("the disk is full: the state waits for room before it is written; the log has it all")
        return has_room

    def _put_off_cut(self) -> None:
        """Try again later; who stops the node does not wait: the next start applies what the state lacks."""
        if not self._flush_queued:
            self._flush_later()
        ready, self._ready = self._ready, None
        if ready is not None:
            ready()

    def _collect_slice(self) -> None:
        """Ask the next queues: if all were asked at once, other messages would have to wait for all of them."""
        names, self._unasked = self._unasked[:SLICE_QUEUES], self._unasked[SLICE_QUEUES:]
        self._owing = set(names)
        self._tell_slice(names, Collect(self._cut, self))  # one that is being rebuilt is asked later (_catch_up)
        if not names:
            self._write_cut()

    def _tell_slice(self, names: list[str], message: Collect | Flushed) -> None:
        processes = self._processes
        self.runtime.tell_each([(processes[name], message) for name in names if name in processes])

    def on_collected(self, message: Collected) -> None:
        if message.cut != self._cut or self._parts is None or message.part.name not in self._owing:
            return
        self._owing.discard(message.part.name)
        self._parts.append(message.part)
        self._told[message.part.name] = []  # its part holds all of this; freeing everything at the end would take long
        self._notes += message.unchanged
        if not self._owing:
            self._collect_slice()

    def _write_cut(self) -> None:
        self._collecting_s = time.perf_counter() - self._collecting_since_s
        parts, self._parts = self._parts, None
        assert parts is not None, "collected first"
        applied, graves, asides = self.applied, self._graves, self._asides
        tell = self._tell_outcomes(parts)
        self._flushing = list(self._told)
        members = self._members_to_write()
        self._told, self._graves, self._asides = {}, [], {}
        store = self._store

        def work() -> StoreStats:
            tell()  # first, so that the outcome of every entry in the state is known to readers of the log
            store.commit(make_cut(store, applied, parts, graves, asides, members))
            return store.stats()

        def done(result: StoreStats | BaseException) -> None:
            self.tell(FlushDone(result, bool(graves)))

        self._flushing_index, self._flushing_bytes = applied[0], self._bytes
        self._disk.submit(work, done)
        self._go_on()

    def _tell_outcomes(self, parts: list[Part]) -> Callable[[], None]:
        """Return what is to run in the state's thread: it writes the outcomes of this cut's entries."""
        outcomes, files = self._take_outcomes(parts), self._log.outcomes
        if outcomes is None or files is None:
            return lambda: None
        return partial(files.write, outcomes)

    def _take_outcomes(self, parts: list[Part]) -> Outcomes | None:
        """Return the outcomes of this cut's entries, for readers of the log, and begin to gather those of the next.

        None while all queues have to be listed and one of them is being rebuilt: the next cut covers both.
        """
        segment = self._log.active_first_index
        lists_all = segment != self._listed_in
        counters = [(part.queue_id, part.next_number, part.name) for part in parts]
        if lists_all:
            told = {part.name for part in parts}
            others = [record for record in self.catalog.queues.values() if record.name not in told]
            if any(record.name not in self._processes for record in others):
                return None
            counters = [counter for counter in counters if counter[0]]
            counters += [(other.id, self._processes[other.name].ledger.next_number, other.name) for other in others]
        outcomes = Outcomes(self._told_through, self.applied[0], lists_all, counters, self._notes)
        self._listed_in, self._told_through, self._notes = segment, self.applied[0], []
        return outcomes

    def _members_to_write(self) -> list[tuple[int, Config]]:
        """Return the members since the beginning of the log, if they changed: peers may need each configuration."""
        if not self._members_changed:
            return []
        self._members_changed = False
        while len(self._members) > 1 and self._members[1][0] < self._log.first_index:
            del self._members[0]
        return list(self._members)

    def on_flush_done(self, message: FlushDone) -> None:
        if isinstance(message.result, BaseException):
            raise message.result
        assert self._flushing is not None, "a cut was written"
        self.flushes += 1
        self.flushed_index, self._flushed_bytes = self._flushing_index, self._flushing_bytes
        if message.has_graves:
            self._sweep()
        if self._throttled:
            self._throttled = False
            self._services.raft_log.tell(Throttle(False))
        self._services.raft_log.tell(Roll(self.flushed_index))
        self._note_room(message.result)
        if not self._halted:
            self._crashes = {key: when for key, when in self._crashes.items() if not key[1]}
        share_bytes = share_of(len(self._processes))
        names = self._flushing
        if share_bytes < self._share_bytes // 2:  # also tell idle queues, which keep too much by now
            names = list(self._processes)
            self._share_bytes = share_bytes
        self._share_bytes = max(self._share_bytes, share_bytes)
        self._tell_flushed(Flushed(share_bytes), names)

    def _tell_flushed(self, flushed: Flushed, names: list[str]) -> None:
        """Tell the queues of a cut that it is written, a slice at a time; the next cut begins only after that."""
        self._tell_slice(names[:SLICE_QUEUES], flushed)
        if len(names) > SLICE_QUEUES:
            self.tell(StillToTell(flushed, names[SLICE_QUEUES:]))
            return
        written, self._flushing = self._flushing or [], None
        for name in written:
            if name not in self.catalog.queues and name in self._processes:
                self.tell(Deserted(name, self._processes[name]))
        for name in self._rebuilding:
            self._reread(name)
        self._finish_ready()
        self._go_on()

    def on_still_to_tell(self, message: "StillToTell") -> None:
        self._tell_flushed(message.flushed, message.names)

    def _sweep(self) -> None:
        store = self._store
        self._disk.submit(lambda: (store.sweep(), store.stats()), lambda result: self.tell(Swept(result)))

    def on_swept(self, message: Swept) -> None:
        if isinstance(message.result, BaseException):
            raise message.result
        has_more, stats = message.result
        self._note_room(stats)
        if has_more:
            self._sweep()

    def _note_room(self, stats: StoreStats) -> None:
        self.reusable_bytes = stats.reusable_bytes
        self._snapshots.tell(StateWritten(stats.living_bytes))

    # --- processes that are no longer needed -------------------------------------------------------------------------

    def on_deserted(self, message: Deserted) -> None:
        """A queue does not exist and nobody waits for it any more."""
        if self._processes.get(message.queue) is message.process:
            self._stop_deserted(message.queue)

    def _stop_deserted(self, name: str) -> None:
        """End a process that is no longer needed, unless a cut still has to collect what it was told."""
        process = self._processes.get(name)
        known = name in self.catalog.queues or name in self._told or name in (self._flushing or ())
        if process is not None and not known and process.idle and process.is_deserted:
            del self._processes[name]
            self._services.lobby.forget(name)
            self.runtime.end(process, None)  # at once: until a stop arrived by mail, messages to its name would be lost
