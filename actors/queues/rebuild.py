"""Rebuilds: what happens to a queue that crashes, and to the entry that it cannot apply.

    Crashed --> a new process, read from the state store and told again all since the last flush --> it leads again
    entries are not kept in memory for that: they are read from the log
    the third crash on one entry --> EntryCrashesQueue --> SetAside (through the log) --> rebuilt without that entry

No answer is lost: those that the crashed process owed come when its successor is told again.  An entry is skipped on
every node; a node whose state store has already applied it starts again from an earlier image.
"""

from collections.abc import Iterable, Sequence

import msgspec

from wakeq.actors.mail import (
    Crashed,
    EntryCrashesQueue,
    LogItem,
    NoopTicket,
    Propose,
    RestartWithoutEntry,
    StateHasSkippedEntry,
)
from wakeq.actors.queue.crashing import Abandoned
from wakeq.actors.queue.process import QueueProcess
from wakeq.actors.queue.reading import QueueProcessServices
from wakeq.actors.queues.apply import Applier, Hold, is_part
from wakeq.actors.queues.flush import Flusher, StateFiles
from wakeq.actors.queues.lobby import TAKE_TURN
from wakeq.actors.queues.processes import QueueProcesses
from wakeq.actors.queues.skipped import SkippedEntries
from wakeq.actors.runtime import Process
from wakeq.protocol.errors import StorageError
from wakeq.protocol.log.entries import Noop, SetAside
from wakeq.protocol.log.reader import decode_entry
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.ledger.ledger import Ledger, Totals
from wakeq.storage.log.segmented_log import SegmentedLog
from wakeq.storage.state.checkpoint import StoredQueue, load_queue

CRASHES_WITHIN_MS = 60_000  # crashes outside of any entry count only if they happened within this time
CRASHES_MAX = 3  # of a queue on one entry, before the entry is skipped
SEQUENCES_A_MS = 1_000  # more than a queue can deliver, so that a rebuilt one gives out higher tokens than before


class Reread(msgspec.Struct, frozen=True, gc=False):
    """A crashed queue as the state store has it, and what it was told since then, read from the log."""

    name: str
    stored: StoredQueue | None
    entries: dict[int, LogItem]
    error: BaseException | None


class Rebuilds:
    """Queues that crash, and entries that are skipped because of it."""

    def __init__(
        self,
        files: StateFiles,
        services: QueueProcessServices,
        processes: QueueProcesses,
        skipped: SkippedEntries,
        applier: Applier,
        flusher: Flusher,
        supervisor: Process,
    ) -> None:
        # Queues that wait for an entry to be skipped.
        self.halted: dict[str, SetAside] = {}
        # Queues that are being read from the state store and the log, or wait for a flush that has to end first.
        self._rebuilding: set[str] = set()
        # When a queue has crashed, by its name and the index of the entry (0: outside of any).
        self._crashes: dict[tuple[str, int], list[int]] = {}
        # Incarnation and totals of crashed queues: what the sums of the node have of them.
        self._counted: dict[str, tuple[int, Totals]] = {}
        self._files = files
        self._services = services
        self._processes = processes
        self._skipped = skipped
        self._applier = applier
        self._flusher = flusher
        # The actor to which what was read comes as mail.
        self._supervisor = supervisor

    def on_crashed(self, message: Crashed) -> None:
        """Rebuild a crashed queue; an entry that crashes it again and again is skipped."""
        name = message.queue
        if self._processes.by_name.get(name) is not message.process:
            return
        if isinstance(message.error, StorageError):
            raise message.error
        del self._processes.by_name[name]
        self._counted[name] = message.process.ledger.id, message.process.ledger.totals
        self._applier.forget_steps(name)
        key = name, message.index
        now_ms = self._services.now_ms()
        recent = [at_ms for at_ms in self._crashes.get(key, ()) if key[1] or now_ms - at_ms < CRASHES_WITHIN_MS]
        self._crashes[key] = recent = [] if isinstance(message.error, Abandoned) else [*recent, now_ms]
        if len(recent) < CRASHES_MAX:
            self._rebuild(name)
        elif message.index and message.index not in self._skipped.indexes:
            self._processes.away.add(name)
            self.halted[name] = SetAside(name, message.index, message.reason)
            self.say_halted()
        else:
            raise RuntimeError(f"queue {name!r} crashes again and again outside of any entry: {message.reason}")

    def forget_crashes(self) -> None:
        """A flush is written, so what it holds crashes no queue again."""
        if not self.halted:
            self._crashes = {key: when for key, when in self._crashes.items() if not key[1]}

    # --- one queue ---------------------------------------------------------------------------------------------------

    def _rebuild(self, name: str) -> None:
        """Read the queue from the state store, once a flush that has its part of the changes is written."""
        self._processes.away.add(name)
        self._rebuilding.add(name)
        self._applier.held_by.add(Hold.REBUILD)
        if not self._flusher.has_changes_of(name):
            self._reread(name)

    def reread_all(self) -> None:
        """The flush for which rebuilds have waited is written."""
        for name in self._rebuilding:
            self._reread(name)

    def _reread(self, name: str) -> None:
        store, log = self._files.store, self._files.log
        wanted = [one for one in self._applier.told.get(name, ()) if isinstance(one, int)]

        def work() -> Reread:
            entries = read_entries(log, wanted)
            with store.read() as view:
                return Reread(name, load_queue(view, name), entries, None)

        def done(result: Reread | BaseException) -> None:
            self._supervisor.tell(Reread(name, None, {}, result) if isinstance(result, BaseException) else result)

        self._files.disk.submit(work, done)

    def on_reread(self, message: Reread) -> bool:
        """Make the successor of a crashed queue; return False if it has crashed, too."""
        if message.error is not None:
            raise message.error
        name, applier, processes = message.name, self._applier, self._processes
        self._rebuilding.discard(name)
        processes.away.discard(name)
        if not self._rebuilding:
            applier.held_by.discard(Hold.REBUILD)
        process = processes.spawn(name)
        process.ledger.sums = Totals()  # those of the node have most of what it is told again
        if message.stored is not None:
            process.restore(message.stored)
        told = applier.told.pop(name, None)
        items = [message.entries[one] if isinstance(one, int) else one for one in told or ()]
        is_applied = not items or applier.apply_left(name, items)
        self._count_rest(name, process.ledger)
        if not is_applied:
            return False  # its supervisor hears of that by mail
        if processes.term:  # it may lead once everything that its predecessor proposed is applied: behind this no-op
            processes.unled.add(name)
            no_op = Proposal(Noop(name), NoopTicket(process))
            self._services.raft_log.tell(Propose([no_op]))
        else:
            processes.register(process)
            if process.lanes.filed is not None:  # meanwhile, by an actor that asks for no leader first
                process.tell(TAKE_TURN)
        self._flusher.ask_again(process)
        return True

    def _count_rest(self, name: str, ledger: Ledger) -> None:
        """Add to the sums of the node what a rebuilt queue did that the crashed one had not done."""
        ledger.sums = sums = self._services.sums
        queue_id, counted = self._counted.pop(name)
        if queue_id != ledger.id:
            counted = Totals()
        totals = ledger.totals
        sums.published += max(0, totals.published - counted.published)
        sums.delivered += max(0, totals.delivered - counted.delivered)
        sums.acked += max(0, totals.acked - counted.acked)

    def lead_rebuilt(self, process: QueueProcess) -> None:
        """Everything that a crashed queue had proposed is applied: its successor may deliver."""
        self._processes.lead_rebuilt(process, self._services.now_ms() * SEQUENCES_A_MS)

    # --- entries that are skipped ------------------------------------------------------------------------------------

    def say_halted(self) -> None:
        """Ask RaftLog, again and again, to have the entries skipped that queues cannot apply."""
        for name, entry in self.halted.items():
            # What a queue has crashed over is kept whole, and not as a bare index.
            told = (one for one in self._applier.told.get(name, ()) if not isinstance(one, int))
            term = next((item.term for item in told if item.index == entry.index), 0)
            self._services.raft_log.tell(EntryCrashesQueue(entry, term))

    def free_halted(self, items: Iterable[LogItem]) -> None:
        """Act on a SetAside before its turn: the flush or barrier in front of it may be waiting for the halted queue.

        On a new leader's no-op too: the leader before it may have been lost before it could propose a SetAside.
        """
        for item in items:
            if type(item.entry) is SetAside:
                self.on_set_aside(item.entry, item)
            elif type(item.entry) is Noop and isinstance(item.reply_to, NoopTicket) and item.reply_to.rebuilt is None:
                self.say_halted()

    def on_set_aside(self, entry: SetAside, item: LogItem) -> None:
        """All nodes skip an entry from now on: rebuild the queues that have crashed over it, or have applied it."""
        if entry.index in self._skipped.indexes:
            return
        crashed = [name for name, halting in self.halted.items() if halting.index == entry.index]
        owing = self._applier.told_since_flush(entry.index)
        is_owed_whole = bool(owing) and not any(is_part(one) for told in owing.values() for one in told)
        if not (crashed or is_owed_whole) and self._flusher.is_written(entry.index):
            # This node's store has applied the entry.
            self._services.raft_log.tell(StateHasSkippedEntry(entry.index, item.index))
            return
        self._applier.skip(entry)
        self._crashes = {key: when for key, when in self._crashes.items() if key[1] != entry.index}
        for name in crashed:
            del self.halted[name]
            self._rebuild(name)
        for name in owing:  # other queues that have applied their part; one that is being rebuilt is not told it again
            if name in self._processes.by_name:
                self._processes.by_name[name].tell(RestartWithoutEntry(entry.index))


def read_entries(log: SegmentedLog, wanted: Sequence[int]) -> dict[int, LogItem]:
    """Read these entries from the log; only in a thread that may wait for the disk."""
    found: dict[int, LogItem] = {}
    if not wanted:
        return found
    missing = set(wanted)
    for index, term, payload in log.entries(min(missing), max(missing)):
        if index in missing:
            entry, at_ms = decode_entry(payload)
            found[index] = LogItem(index, term, at_ms, entry)
    return found
