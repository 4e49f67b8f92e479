"""QueueRebuilds: what happens to a queue that crashes, and to the entry that it cannot apply.

    Crashed --> a new process, read from the state store and told again all since the last cut --> it leads again
    entries are not kept in memory for that: they are read from the log
    the third crash on one entry --> Halted --> SetAside (through the log) --> rebuilt without that entry

The second layer of Queues.  No answer is lost: those that the crashed process owed come when it is told again.  An
entry is set aside on every node; a node whose state store has already applied it starts again from an earlier image.
"""

import logging
from abc import abstractmethod
from collections.abc import Iterable, Sequence

import msgspec

from wakeq.actors.mail import Abandon, Crashed, Halted, Item, NoopTicket, Propose, Spoilt
from wakeq.actors.queue.fetching import Lead
from wakeq.actors.queue.process import Abandoned, QueueProcess
from wakeq.actors.queue.reading import QueueProcessServices
from wakeq.actors.queues.barrier import PartTicket
from wakeq.actors.queues.lobby import TAKE_TURN
from wakeq.actors.queues.registry import QueueRegistry, Settings
from wakeq.protocol.errors import StorageError
from wakeq.protocol.log.entries import (
    CreateQueue,
    Noop,
    Result,
    SetAside,
)
from wakeq.protocol.log.outcomes import WHOLE
from wakeq.protocol.log.reader import decode_entry
from wakeq.protocol.queue.lanes import apart
from wakeq.protocol.queue.outcomes import Outcome
from wakeq.storage.log.segmented_log import SegmentedLog
from wakeq.storage.state.cut import StoredQueue, load_queue
from wakeq.storage.state.store import Store
from wakeq.storage.thread import Disk

CRASHES_WITHIN_MS = 60_000  # crashes outside of any entry count only if they happened within this time
CRASHES_MAX = 3  # of a queue on one entry, before the entry is set aside
SEQUENCES_A_MS = 1_000  # more than a queue can deliver, so that a rebuilt one gives out higher tokens than before

logger = logging.getLogger("wakeq.queues")

Told = Item | int  # a bare index stands for an entry that can be read from this node's log as it is


class Reread(msgspec.Struct, frozen=True, gc=False):
    """A crashed queue as the state store has it, and what it was told since then, read from the log."""

    name: str
    stored: StoredQueue | None
    entries: dict[int, Item]
    error: BaseException | None


class QueueRebuilds(QueueRegistry):
    """Queues that crash, and entries that are set aside because of it."""

    def __init__(
        self, store: Store, log: SegmentedLog, disk: Disk, services: QueueProcessServices, settings: Settings
    ) -> None:
        super().__init__(services, settings)
        self._store = store
        self._log = log
        self._disk = disk
        self._told: dict[str, list[Told]] = {}  # what each queue was told since the last cut began, to rebuild it
        self._asides: dict[int, bytes] = {}  # index -> record, of entries set aside since the last cut
        self._aside: set[int] = set()  # the index of every entry that is set aside
        self._foreseen: dict[int, SetAside] = {}  # those whose SetAside a start has found further on in the log
        self._crashes: dict[tuple[str, int], list[int]] = {}  # (queue, index of the entry or 0) -> when

    @abstractmethod
    def _is_in_cut(self, name: str) -> bool:
        """Whether a cut that is not written yet has the part of this queue."""

    @abstractmethod
    def _is_written(self, index: int) -> bool:
        """Whether the state store has, or is about to have, what came of an entry."""

    @abstractmethod
    def _catch_up(self, name: str, process: QueueProcess) -> None:
        """Ask a rebuilt queue for what its predecessor still owed: its part of a cut."""

    @abstractmethod
    def _go_on(self) -> None:
        """Apply committed entries until something holds them up."""

    @abstractmethod
    def _apply_in(self, name: str, items: list[Item]) -> bool:
        """Have a queue apply entries; return False if it has crashed over them."""

    @property
    def set_aside_count(self) -> int:
        """How many entries of the log are set aside because they crashed a queue; `wakeq inspect` lists them."""
        return len(self._aside)

    @property
    def is_halted(self) -> bool:
        """Whether a queue waits for an entry to be set aside, which takes a node that leads."""
        return bool(self._halted)

    def restore_asides(self, asides: Iterable[int]) -> None:
        self._aside.update(asides)

    def foresee(self, asides: Iterable[SetAside]) -> None:
        """Take the SetAsides that stand further on in the log, so that a cut before them is right; before any mail."""
        self._foreseen = {entry.index: entry for entry in asides}
        self._aside.update(self._foreseen)

    def leave_out(self, entry: SetAside) -> None:
        """Set an entry aside, and have the next cut record that it does not contain it."""
        logger.error(
            "entry %d of queue %r is set aside: it crashed the queue: %s", entry.index, entry.queue, entry.reason
        )
        self._aside.add(entry.index)
        self._crashes = {key: when for key, when in self._crashes.items() if key[1] != entry.index}
        self._notes.append((entry.index, WHOLE, int(Result.SET_ASIDE)))
        self._asides[entry.index] = msgspec.msgpack.encode({"queue": entry.queue, "reason": entry.reason})

    def on_crashed(self, message: Crashed) -> None:
        """Rebuild a crashed queue; an entry that crashes it again and again is set aside."""
        name = message.queue
        if self._processes.get(name) is not message.process:
            return
        if isinstance(message.error, StorageError):
            raise message.error
        del self._processes[name]
        key = name, message.index
        now_ms = self._services.now_ms()
        recent = [at_ms for at_ms in self._crashes.get(key, ()) if key[1] or now_ms - at_ms < CRASHES_WITHIN_MS]
        self._crashes[key] = recent = [] if isinstance(message.error, Abandoned) else [*recent, now_ms]
        if len(recent) < CRASHES_MAX:
            self._rebuild(name)
        elif message.index and message.index not in self._aside:
            self._halted[name] = SetAside(name, message.index, message.reason)
            self._say_halted()
        else:
            raise RuntimeError(f"queue {name!r} crashes again and again outside of any entry: {message.reason}")

    def _rebuild(self, name: str) -> None:
        """Read the queue from the state store, once a cut that is being written is there."""
        self._rebuilding.add(name)
        if not self._is_in_cut(name):
            self._reread(name)

    def _reread(self, name: str) -> None:
        store, log = self._store, self._log
        wanted = [one for one in self._told.get(name, ()) if isinstance(one, int)]

        def work() -> Reread:
            entries = read_entries(log, wanted)
            with store.read() as view:
                return Reread(name, load_queue(view, name), entries, None)

        def done(result: Reread | BaseException) -> None:
            self.tell(Reread(name, None, {}, result) if isinstance(result, BaseException) else result)

        self._disk.submit(work, done)

    def on_reread(self, message: Reread) -> None:
        if message.error is not None:
            raise message.error
        name = message.name
        self._rebuilding.discard(name)
        process = self._processes[name] = self.runtime.spawn(
            QueueProcess, name, self._services, self._settings.limits, self
        )
        if message.stored is not None:
            process.restore(message.stored)
        told = self._told.pop(name, None)
        if told:
            items = [message.entries[one] if isinstance(one, int) else one for one in told]
            for item in items:
                if not self._is_left(item):
                    self._answer_aside(item)
            if not self._apply_in(name, [item for item in items if self._is_left(item)]):
                return  # it has crashed again; its supervisor hears of that by mail
        if self.term:  # it may lead once everything that its predecessor proposed is applied: behind this no-op
            self._unled.add(name)
            self._services.raft_log.tell(Propose([(Noop(name), NoopTicket(process))]))
        else:
            self.runtime.register(("queue", name), process)
            if process.lanes.filed is not None:  # meanwhile, by an actor that asks for no leader first
                process.tell(TAKE_TURN)
        self._catch_up(name, process)
        self._go_on()

    def _lead_rebuilt(self, process: QueueProcess) -> None:
        """Everything that a crashed queue had proposed is applied: its successor may hand out, if it lives."""
        name = process.name
        if self._processes.get(name) is process:
            self._unled.discard(name)
            self.runtime.register(("queue", name), process)
            process.tell(Lead(self.term, self._services.now_ms() * SEQUENCES_A_MS))

    def _say_halted(self) -> None:
        """Ask RaftLog, again and again, to set aside the entries that queues cannot apply."""
        for name, aside in self._halted.items():
            # What a queue has crashed over is kept whole, and not as a bare index.
            told = (one for one in self._told.get(name, ()) if not isinstance(one, int))
            term = next((item[1] for item in told if item[0] == aside.index), 0)
            self._services.raft_log.tell(Halted(aside, term))

    # --- entries that are set aside ----------------------------------------------------------------------------------

    def _free_halted(self, items: list[Item]) -> None:
        """Act on a SetAside before its turn: the cut or barrier in front of it may be waiting for the halted queue.

        On a new leader's no-op too: the leader before it may have been lost before it could set the entry aside.
        """
        for item in items:
            if type(item[3]) is SetAside:
                self._route_set_aside(item[3], item)
            elif type(item[3]) is Noop and item[4] is not None and item[4].rebuilt is None:
                self._say_halted()

    def _route_set_aside(self, entry: SetAside, item: Item) -> bool:
        if entry.index in self._aside:
            return False
        crashed = [name for name, aside in self._halted.items() if aside.index == entry.index]
        owing = self._owing_to_cut(entry.index)
        is_owed_whole = bool(owing) and not any(is_part(one) for told in owing.values() for one in told)
        if not (crashed or is_owed_whole) and self._is_written(entry.index):  # this node's store has applied the entry
            self._services.raft_log.tell(Spoilt(entry.index, item[0]))
            return False
        self.leave_out(entry)
        for name in crashed:
            del self._halted[name]
            self._rebuild(name)
        for name in owing:  # other queues that have applied their part; one that is being rebuilt is not told it again
            if name in self._processes:
                self._processes[name].tell(Abandon(entry.index))
        return False

    def _owing_to_cut(self, index: int) -> dict[str, list[Told]]:
        """Return the queues that were told an entry which is in no cut yet, not even in one that is being collected."""
        owed = {name: [one for one in told if index_of(one) == index] for name, told in self._told.items()}
        return {name: told for name, told in owed.items() if told}

    def _is_left(self, item: Item) -> bool:
        """Whether an item is to be applied; creating a queue is, even if the entry it came with is set aside."""
        return item[0] not in self._aside or type(item[3]) is CreateQueue

    def _answer_aside(self, item: Item) -> None:
        """Tell whoever asked for this entry that it is set aside, for each item in it.

        What many connections share is proposed again first, one entry for each: only one of them has said what crashes.
        """
        entry, asker = item[3], item[4]
        parts = apart(entry, asker)
        if parts and self.term:
            self._services.raft_log.tell(Propose(parts))
            return
        count = len(getattr(entry, "drafts", ()) or getattr(entry, "numbers", ())) or 1
        self._answer(asker, Outcome(entry.queue, 0, [Result.SET_ASIDE] * count))


def index_of(told: Told) -> int:
    """Return the index of an entry that a queue was told."""
    return told if isinstance(told, int) else told[0]


def is_part(told: Told) -> bool:
    """Whether it is one part of an entry that touches several queues."""
    return not isinstance(told, int) and type(told[4]) is PartTicket


def read_entries(log: SegmentedLog, wanted: Sequence[int]) -> dict[int, Item]:
    """Read these entries from the log; only in a thread that may wait for the disk."""
    found: dict[int, Item] = {}
    if not wanted:
        return found
    missing = set(wanted)
    for index, term, payload in log.entries(min(missing), max(missing)):
        if index in missing:
            entry, at_ms = decode_entry(payload)
            found[index] = (index, term, at_ms, entry, None)
    return found
