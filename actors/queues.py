"""Queues: the supervisor of the queue processes, the owner of the catalog, and the hand that writes state down.

    Committed (raft log) --> each queue its entries, in order --> Collect --> one cut of the state store --> Flushed

An entry that touches several queues is a barrier: each named queue is asked for its verdict, then all apply it or
none.  While a verdict, a cut or a rebuilding is under way, what is committed waits here.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from wakeq.actors.barrier import Barrier, Gathering, parts_of, to_judge, with_follow_ups
from wakeq.actors.bodies import share_of
from wakeq.actors.listing import Listing
from wakeq.actors.messages import (
    Abandon,
    Answered,
    Asker,
    Collect,
    Collected,
    Committed,
    Crashed,
    Deserted,
    EndWaits,
    Fetch,
    Flushed,
    Gone,
    HeldBack,
    Item,
    Judge,
    Leaving,
    Nack,
    Outcome,
    Peek,
    Propose,
    Refusal,
    Sleep,
    Stats,
    Subscribe,
    Tick,
    Touch,
    Verdict,
    Woken,
)
from wakeq.actors.queue import REFUSED_ID, Abandoned, QueueProcess
from wakeq.actors.queue_deliveries import Lead, Services
from wakeq.actors.queue_state import QueueMeta
from wakeq.actors.raft_log import Roll, Throttle
from wakeq.actors.replies import Replies
from wakeq.actors.runtime import Process
from wakeq.protocol.catalog import Catalog, Policies, QueueRecord, changed, check
from wakeq.protocol.commands import (
    Ack,
    CreateQueue,
    DeleteQueue,
    Imported,
    Noop,
    Publish,
    PurgeQueue,
    Result,
    SetAside,
    UpdateQueue,
)
from wakeq.protocol.errors import BadField, StorageError
from wakeq.protocol.publishers import Limits
from wakeq.storage.disk_thread import Disk
from wakeq.storage.flush import Grave, Part, StoredQueue, load_queues, make_cut
from wakeq.storage.raft_log import SegmentedLog
from wakeq.storage.store import Store

CRASHES_WITHIN_MS = 60_000  # crashes outside of any entry count together if they are no further apart
SEQUENCES_A_MS = 1_000  # more than a queue delivers: so the sequences of a rebuilt one are behind its predecessor's
CRASHES_MAX = 3  # of a queue on one entry, before the entry is set aside
FLUSH_AFTER_MS = 1_000
FLUSH_BYTES = 16 << 20  # of the log, since the last cut
BACKLOG_CUTS = 2  # times flush_bytes of the log that the state store does not have yet; beyond it proposals wait
COLLECT_SHARE = 10  # at most one part in so many of the time goes into collecting from many queues
FLUSH_AFTER_S_MAX = 15.0
NOTES_MAX = 1_000_000  # refused entries remembered for the footer of a segment

SLICE_QUEUES = 128  # told together, when all are to hear something

DEFAULT_QUEUE = ""


class FlushDone(msgspec.Struct, frozen=True, gc=False):
    """The state store's report of a cut."""

    cut: int
    error: BaseException | None
    more_graves: bool = False


class StillToTell(msgspec.Struct, frozen=True, gc=False):
    """To itself: these queues have yet to hear that their cut is written."""

    flushed: Flushed
    names: list[str]


class Reread(msgspec.Struct, frozen=True, gc=False):
    """What the state store knows of a queue that crashed."""

    name: str
    stored: StoredQueue | None
    error: BaseException | None


class Settings(msgspec.Struct, frozen=True):
    limits: Limits = Limits()
    flush_after_ms: int = FLUSH_AFTER_MS
    flush_bytes: int = FLUSH_BYTES
    defaults: Policies = Policies()  # of the default queue


class Queues(Process):
    """See the head of this file."""

    def __init__(
        self,
        store: Store,
        log: SegmentedLog,
        disk: Disk,
        services: Services,
        settings: Settings,
        applied: tuple[int, int, int],
        snapshots: Process,
    ) -> None:
        super().__init__()
        self.catalog = Catalog()
        self.applied = applied  # index, term, moment of the last entry that was handed to its queues
        self.flushed_index = applied[0]
        self.flushes = 0
        self.term = 0
        self._store = store
        self._log = log
        self._disk = disk
        self._services = services
        self._settings = settings
        self._snapshots = snapshots
        self._processes: dict[str, QueueProcess] = {}
        self._told: dict[str, list[Item]] = {}  # since the last cut was begun; rebuilds a queue that crashes
        self._waiting: deque[list[Item]] = deque()  # committed, not handed out yet
        self._barrier: Barrier | None = None
        self._cut = 0
        self._parts: list[Part] | None = None  # being collected
        self._unasked: list[str] = []  # queues that are still to be asked for their part
        self._owing: set[str] = set()  # queues that were asked and have not handed it in
        self._flushing: list[str] | None = None
        self._flushing_index = 0
        self._flushing_bytes = 0
        self._flush_queued = False
        self._collecting_since_s = self._collecting_s = 0.0  # of the last cut
        self._graves: list[Grave] = []
        self._asides: dict[int, bytes] = {}  # index -> record of what was set aside since the last cut
        self._aside: set[int] = set()
        self._crashes: dict[tuple[str, int], list[int]] = {}  # (queue, entry) -> when
        self._rebuilding: set[str] = set()
        self._unled: set[str] = set()  # rebuilt, and not handing out yet
        self._halted: dict[str, int] = {}  # queues that wait for an entry to be set aside
        self._notes: list[tuple[int, int, int]] = []
        self._bytes = 0  # of the log, when the last cut was begun
        self._flushed_bytes = 0  # of the log, when the last cut that is written was begun
        self._throttled = False
        self._ready: Callable[[], None] | None = None

    def on_receive(self, message: Any) -> None:
        handler = _HANDLERS.get(type(message))
        if handler is not None:
            handler(self, message)
        else:  # straight commands of queues that have no process
            self._forward(message)

    # --- coming back -----------------------------------------------------------------------------------------------

    def restore(self, stored: StoredQueue) -> None:
        """Take a queue from the state store; only before any mail."""
        meta = msgspec.msgpack.decode(stored.meta, type=QueueMeta)
        self.catalog.put(meta.name, meta.id, meta.policies, meta.created_ms)
        self._spawn(meta.name).restore(stored)

    def restore_asides(self, asides: Iterable[int]) -> None:
        self._aside.update(asides)

    def _lead(self, term: int) -> None:
        """Lead: every queue builds what only a leader has; the default queue always exists."""
        self.term = term
        for process in self._processes.values():
            process.tell(Lead(term))
        if DEFAULT_QUEUE not in self.catalog.queues:
            create = CreateQueue(DEFAULT_QUEUE, self._settings.defaults)
            self._services.raft_log.tell(Propose([(create, None)]))

    # --- what is committed -----------------------------------------------------------------------------------------

    def on_committed(self, message: Committed) -> None:
        if self._halted:
            self._free_halted(message.items)
        self._waiting.append(message.items)
        if len(self._waiting) == 1:
            self._go_on()

    def _free_halted(self, items: list[Item]) -> None:
        """What sets an entry aside cannot wait for its turn: a cut or a barrier may be waiting for the halted queue."""
        for item in items:
            if type(item[3]) is SetAside:
                self._route_set_aside(item[3], item)

    @property
    def _held(self) -> bool:
        return self._barrier is not None or self._parts is not None or bool(self._rebuilding)

    @property
    def _may_cut(self) -> bool:
        return not self._held and not self._halted and self._flushing is None

    def _go_on(self) -> None:
        """Hand out what is committed until something holds it up."""
        while self._waiting and not self._held:
            items = self._waiting.popleft()
            done, barrier = self._hand_out(items)
            if done < len(items):
                self._waiting.appendleft(items[done:])
            if barrier is not None:
                self._begin_barrier(barrier)
        if not self._held:
            self._flush_in_time()
            self._finish_ready()

    def _hand_out(self, items: list[Item]) -> tuple[int, Item | None]:
        """Tell each queue its entries, up to a barrier; return how many were dealt with, and the barrier."""
        batches: dict[str, list[Item]] = {}
        barrier = None
        for place, item in enumerate(items):
            entry = item[3]
            if item[0] in self._aside:
                self._answer_aside(item)
            elif type(entry) is Ack and entry.publishes:
                barrier = item
                items = items[: place + 1]
                break
            elif self._route(item, batches):
                mine = batches.get(entry.queue)
                if mine is None:
                    batches[entry.queue] = [item]
                else:
                    mine.append(item)
        last = items[-1]
        self.applied = last[0], last[1], last[2]
        replies = Replies(batches.keys() - self._halted.keys()) if len(batches) > 1 else None
        for name, mine in batches.items():
            self._tell(name, mine, replies)
        return len(items), barrier

    def _tell(self, name: str, items: list[Item], replies: Replies | None = None) -> None:
        """Hand a queue its entries; one that is being rebuilt finds them when it is."""
        told = self._told.get(name)
        if told is None:
            self._told[name] = [*items]  # not the very list that is in the mail: this one grows
        else:
            told += items
        if name not in self._halted and name not in self._rebuilding:
            self._processes[name].tell(Committed(items, replies))

    def _route(self, item: Item, batches: dict[str, list[Item]]) -> bool:
        """Keep the catalog; return whether there is a queue to apply the entry."""
        entry = item[3]
        if type(entry) is Publish:
            if entry.queue not in self.catalog.queues:
                self._create(entry.queue, Policies(), item)
                batches.setdefault(entry.queue, []).append(_creation(item, entry.queue, Policies()))
            return True
        if type(entry) in _CATALOG:
            return _CATALOG[type(entry)](self, entry, item)
        if entry.queue in self.catalog.queues:
            return True
        self._answer_unknown(entry, item[4])
        return False

    def _answer_unknown(self, entry: Any, asker: Asker | None) -> None:
        self._answer(asker, Outcome(entry.queue, 0, [Result.UNKNOWN] * len(entry.numbers)))

    def _answer_aside(self, item: Item) -> None:
        """Nobody applies this entry: whoever asked for it hears so, for each thing in it."""
        entry, asker = item[3], item[4]
        count = len(getattr(entry, "drafts", ()) or getattr(entry, "numbers", ())) or 1
        self._answer(asker, Outcome(entry.queue, 0, [Result.SET_ASIDE] * count))

    def _answer(self, asker: Asker | None, outcome: Any) -> None:
        if asker is None:
            return
        if type(asker.ticket) is HeldBack:
            asker.process.tell(asker.ticket.otherwise)
        else:
            asker.process.tell(Answered([(asker.ticket, asker.place, outcome)]))

    @property
    def unflushed_bytes(self) -> int:
        """Bytes of the log that the state store does not have yet."""
        return self._log.written_bytes - self._flushed_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of all messages in all queues."""
        return sum(process.ledger.bytes for process in self._processes.values())

    def exists(self, name: str) -> bool:
        return name in self.catalog.queues

    # --- the catalog -----------------------------------------------------------------------------------------------

    def _spawn(self, name: str) -> QueueProcess:
        process = self.runtime.spawn(QueueProcess, name, self._services, self._settings.limits, self)
        self._processes[name] = process
        self.runtime.register(("queue", name), process)
        return process

    def _create(self, name: str, policies: Policies, item: Item) -> None:
        self.catalog.put(name, item[0], policies, item[2])
        self._process(name)

    def _process(self, name: str) -> QueueProcess:
        """Return the process of a queue, which need not exist yet."""
        process = self._processes.get(name)
        if process is None:
            process = self._spawn(name)
            if self.term:
                process.tell(Lead(self.term))
        return process

    def _route_create(self, entry: CreateQueue, item: Item) -> bool:
        if entry.queue in self.catalog.queues:
            self._answer(item[4], Outcome(entry.queue, 0, [Result.EXISTS]))
            self._note_refused(item, Result.EXISTS)
            return False
        self._create(entry.queue, entry.policies, item)
        return True

    def _route_update(self, entry: UpdateQueue, item: Item) -> bool:
        record = self._existing(entry, item)
        if record is None:
            return False
        try:
            policies = changed(record.policies, entry.changes)
            check(entry.queue, policies)
        except BadField as error:
            self._answer(item[4], Refusal(error.code, str(error)))
            return False
        self.catalog.put(entry.queue, record.id, policies, record.created_ms)
        return True

    def _route_delete(self, entry: DeleteQueue, item: Item) -> bool:
        record = self._existing(entry, item)
        if record is None:
            return False
        if entry.queue == DEFAULT_QUEUE:
            self._answer(item[4], Outcome(entry.queue, 0, [Result.DEFAULT_QUEUE]))
            self._note_refused(item, Result.DEFAULT_QUEUE)
            return False
        self._graves.append(Grave(entry.queue, record.id))
        self.catalog.remove(entry.queue)
        return True

    def _route_purge(self, entry: PurgeQueue, item: Item) -> bool:
        record = self._existing(entry, item)
        if record is None:
            return False
        self._graves.append(Grave(entry.queue, record.id))
        self.catalog.put(entry.queue, item[0], record.policies, record.created_ms)
        return True

    def _existing(self, entry: UpdateQueue | DeleteQueue | PurgeQueue, item: Item) -> QueueRecord | None:
        record = self.catalog.find(entry.queue)
        if record is None:
            self._answer(item[4], Outcome(entry.queue, 0, [Result.NO_QUEUE]))
            self._note_refused(item, Result.NO_QUEUE)
        return record

    def _route_set_aside(self, entry: SetAside, item: Item) -> bool:
        if entry.index in self._aside:
            return False
        self._aside.add(entry.index)
        self._asides[entry.index] = msgspec.msgpack.encode({"queue": entry.queue, "reason": entry.reason})
        if self._halted.get(entry.queue) == entry.index:
            del self._halted[entry.queue]
            self._rebuild(entry.queue)
        for name, told in self._told.items():  # others that had a part in it
            if name in self._processes and any(told_item[0] == entry.index for told_item in told):
                self._processes[name].tell(Abandon(entry.index))
        return False

    def _note_refused(self, item: Item, code: int) -> None:
        """Remember for the readers of the log that an entry changed nothing."""
        if len(self._notes) < NOTES_MAX:
            self._notes.append((item[0], 0, code))

    def _route_noop(self, entry: Noop, item: Item) -> bool:
        """The first entry of a term: this node leads if it is the one that proposed it."""
        asker = item[4]
        if asker is None:
            return False
        if asker.ticket is None:
            self._lead(item[1])
        else:
            self._lead_rebuilt(asker.ticket)
        return False

    def _lead_rebuilt(self, name: str) -> None:
        """Everything that a crashed queue had proposed is applied: its successor may hand out."""
        self._unled.discard(name)
        process = self._processes.get(name)
        if process is not None:
            self.runtime.register(("queue", name), process)
            process.tell(Lead(self.term, self._services.now_ms() * SEQUENCES_A_MS))

    def _route_imported(self, entry: Imported, item: Item) -> bool:
        return False

    # --- entries that touch several queues -------------------------------------------------------------------------

    def _begin_barrier(self, item: Item) -> None:
        entry = with_follow_ups(item)
        exists = self.catalog.queues
        owing = {place: part for place, part in enumerate(to_judge(entry)) if part.queue in exists}
        self._barrier = Barrier(item, owing)
        if 0 not in owing:  # the queue of the acknowledged message is gone, and the message with it
            self._barrier.code = Result.UNKNOWN
        for place, part in list(owing.items()):
            if part.queue in self._halted:  # it cannot say, and will not be able to for a while
                self._barrier.code = self._barrier.code or Result.REJECTED
                del owing[place]
            elif part.queue in self._processes:
                self._processes[part.queue].tell(Judge(place, part, self))
        if not owing:
            self._conclude()

    def on_verdict(self, message: Verdict) -> None:
        barrier = self._barrier
        if barrier is None or barrier.owing.pop(message.place, None) is None:
            return
        barrier.code = barrier.code or message.code
        if not barrier.owing:
            self._conclude()
            self._go_on()

    def _conclude(self) -> None:
        """All verdicts are in: all of them apply, or none."""
        barrier, self._barrier = self._barrier, None
        assert barrier is not None, "a verdict without a question"
        index, term, at_ms, _, asker = barrier.item
        entry = with_follow_ups(barrier.item)
        if barrier.code:
            self._answer(asker, Outcome(entry.queue, 0, [barrier.code]))
            self._note_refused(barrier.item, barrier.code)
            if entry.queue in self.catalog.queues:  # what was leaving stays: its queue hears it as of a refused ack
                refused = msgspec.structs.replace(entry, publishes=[], queue_id=REFUSED_ID, foreign={})
                self._tell(entry.queue, [(index, term, at_ms, refused, None)])
        else:
            gather = Gathering(asker, len(entry.publishes) + 1) if asker is not None else None
            for place, part in enumerate(parts_of(entry)):
                items: list[Item] = []
                if part.queue not in self.catalog.queues:
                    self._create(part.queue, Policies(), barrier.item)
                    items.append(_creation(barrier.item, part.queue, Policies()))
                mine = None if gather is None else Asker(self, gather, place)
                self._tell(part.queue, [*items, (index, term, at_ms, part, mine)])

    def on_answered(self, message: Answered) -> None:
        """A part was done; the asker hears when all of them were."""
        for gather, place, outcome in message.answers:
            if type(gather) is Listing:
                if gather.add(place, outcome):
                    self._ask_figures(gather)
            else:
                gather.add(place, outcome)

    # --- straight commands of queues that have no process yet ------------------------------------------------------

    def _forward(self, message: Any) -> None:
        process = self._processes.get(message.queue)
        if message.queue in self._rebuilding or message.queue in self._halted or message.queue in self._unled:
            self._put_off(message)
            return
        if process is None:
            if not _creates_interest(message):
                self._refuse(message)
                return
            process = self._process(message.queue)
        process.tell(message)

    def _put_off(self, message: Any) -> None:
        """The queue is being rebuilt: nothing for now, and a sleeper is to come again."""
        match message:
            case Fetch():
                message.subscriber.tell(Answered([(message.ticket, want.place, None) for want in message.wants]))
            case Sleep(asker=asker):
                asker.process.tell(Answered([(asker.ticket, asker.place, None)]))
                asker.process.tell(Woken(message.queue))
            case Touch() | Nack() | Peek() | Stats():
                self._answer(message.asker, Refusal("BUSY", f"queue {message.queue} is being rebuilt; try again"))

    def _refuse(self, message: Fetch | Sleep | Touch | Nack | Peek | Stats) -> None:
        refusal = Refusal("Q_NOT_FOUND", f"queue {message.queue} does not exist; publish to it or subscribe first")
        if isinstance(message, Fetch):
            message.subscriber.tell(Answered([(message.ticket, want.place, refusal) for want in message.wants]))
        elif isinstance(message, Touch | Nack):
            places = message.asker.place
            outcome = Outcome(message.queue, 0, [Result.UNKNOWN] * len(message.uids))
            message.asker.process.tell(Answered([(message.asker.ticket, places, outcome)]))
        else:
            self._answer(message.asker, refusal)

    def on_stats(self, message: Stats) -> None:
        if not message.all_queues:
            self._forward(message)
            return
        names = sorted(name for name in self.catalog.queues if name.startswith(message.prefix))
        self._ask_figures(Listing(message.asker, names))

    def _ask_figures(self, listing: Listing) -> None:
        """Ask the next queues of a listing; a slice in which none is left is passed over."""
        while names := listing.next_slice():
            gone = [place for place, name in names if name not in self._processes]
            complete = [listing.add(place, None) for place in gone]
            for place, name in names:
                if name in self._processes:
                    self._processes[name].tell(Stats(Asker(self, listing, place), name))
            if not any(complete):
                return
        self._answer(listing.asker, listing.rows)

    def on_deserted(self, message: Deserted) -> None:
        """A queue that does not exist has nobody left who waits for it: nothing needs its process."""
        if self._processes.get(message.queue) is message.process:
            self._stop_deserted(message.queue)

    def _stop_deserted(self, name: str) -> None:
        """End a process that nothing needs; what it was told since the last cut may still have to be collected."""
        process = self._processes.get(name)
        known = name in self.catalog.queues or name in self._told or name in (self._flushing or ())
        if process is not None and not known and process.idle and process.is_deserted:
            del self._processes[name]
            self.runtime.end(process, None)  # at once: a stop by mail would leave its name taken, and lose what comes

    def on_nothing(self, message: Gone | Leaving | EndWaits) -> None:
        """For a queue that had no process: if it has one by now, it hears; else there is nothing to do."""
        process = self._processes.get(message.queue)
        if process is not None:
            process.tell(message)

    # --- writing down ----------------------------------------------------------------------------------------------

    def _flush_in_time(self) -> None:
        """Have a cut made soon; at once if much has come together."""
        written = self._log.written_bytes
        if not self._flush_queued:
            self._flush_later()
        if written - self._bytes > self._settings.flush_bytes and self._may_cut:
            self._begin_cut()
        if written - self._bytes > BACKLOG_CUTS * self._settings.flush_bytes and not self._throttled:
            self._throttled = True
            self._services.raft_log.tell(Throttle(True))

    def on_tick(self, message: Tick) -> None:
        self._flush_queued = False
        if self._waiting or not self._may_cut:
            self._flush_later()
        else:
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

    def _begin_cut(self) -> None:
        """Ask every queue that was told something for what changed; meanwhile nothing else is told."""
        self._bytes = self._log.written_bytes
        assert not self._held, "a cut holds the effect of everything up to its index"
        if not self._told and not self._graves and not self._asides and self.applied[0] == self.flushed_index:
            self._finish_ready()
            return
        self._cut += 1
        self._parts = []
        self._collecting_since_s = time.perf_counter()
        self._unasked = list(self._told)
        self._collect_slice()

    def _collect_slice(self) -> None:
        """Ask the next queues: if all were asked at once, whoever comes meanwhile would stand behind all of them."""
        names, self._unasked = self._unasked[:SLICE_QUEUES], self._unasked[SLICE_QUEUES:]
        self._owing = set(names)
        collect = Collect(self._cut, self)
        for name in names:
            if name in self._processes:  # else it is being rebuilt, and is asked when it is
                self._processes[name].tell(collect)
        if not names:
            self._write_cut()

    def on_collected(self, message: Collected) -> None:
        if message.cut != self._cut or self._parts is None or message.part.name not in self._owing:
            return
        self._owing.discard(message.part.name)
        self._parts.append(message.part)
        self._told[message.part.name] = []  # its part says it all; so much is better freed a little at a time
        if len(self._notes) < NOTES_MAX:
            self._notes += message.unchanged
        if not self._owing:
            self._collect_slice()

    def _write_cut(self) -> None:
        self._collecting_s = time.perf_counter() - self._collecting_since_s
        parts, self._parts = self._parts, None
        assert parts is not None, "collected first"
        applied, graves, asides = self.applied, self._graves, self._asides
        self._flushing = list(self._told)
        self._told, self._graves, self._asides = {}, [], {}
        cut, store = self._cut, self._store

        def work() -> bool:
            store.commit(make_cut(store, applied, parts, graves, asides))
            return bool(graves)

        def done(result: bool | BaseException) -> None:
            error = result if isinstance(result, BaseException) else None
            self.tell(FlushDone(cut, error, result is True))

        self._flushing_index, self._flushing_bytes = applied[0], self._bytes
        self._disk.submit(work, done)
        self._go_on()

    def on_flush_done(self, message: FlushDone) -> None:
        if message.error is not None:
            raise message.error
        assert self._flushing is not None, "a cut was written"
        self.flushes += 1
        self.flushed_index, self._flushed_bytes = self._flushing_index, self._flushing_bytes
        if message.more_graves:
            self._sweep()
        if self._throttled:
            self._throttled = False
            self._services.raft_log.tell(Throttle(False))
        self._services.raft_log.tell(Roll(self.flushed_index, self._footer_notes))
        self._snapshots.tell(Flushed(message.cut, 0))
        if not self._halted:
            self._crashes = {key: when for key, when in self._crashes.items() if not key[1]}
        self._tell_flushed(Flushed(message.cut, share_of(len(self._processes))), self._flushing)

    def _tell_flushed(self, flushed: Flushed, names: list[str]) -> None:
        """Tell the queues of a cut that it is written, a slice at a time; no other cut begins before all know."""
        for name in names[:SLICE_QUEUES]:
            if name in self._processes:
                self._processes[name].tell(flushed)
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
        def swept(result: bool | BaseException) -> None:
            if isinstance(result, BaseException):
                self.tell(FlushDone(0, result))
            elif result:
                self._sweep()

        self._disk.submit(self._store.sweep, swept)

    def _footer_notes(self) -> bytes:
        """Return what a reader of the sealed log needs: what changed nothing, and the queues' names and counters."""
        queues = {
            record.id: (record.name, self._processes[record.name].ledger.next_number)
            for record in self.catalog.queues.values()
            if record.name in self._processes
        }
        notes, self._notes = self._notes, []
        return msgspec.msgpack.encode({"through": self.applied[0], "unchanged": notes, "queues": queues})

    def _finish_ready(self) -> None:
        if self._ready is not None and self._flushing is None and self._parts is None:
            if self.flushed_index < self.applied[0] or self._waiting or self._held:
                if self._may_cut and not self._waiting:
                    self._begin_cut()  # otherwise what is under way comes here again
            else:
                ready, self._ready = self._ready, None
                ready()

    # --- queues that crash -----------------------------------------------------------------------------------------

    def on_crashed(self, message: Crashed) -> None:
        """Make a crashed queue anew; an entry that crashes it again and again is set aside."""
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
        elif message.index:
            self._halted[name] = message.index
            self._services.raft_log.tell(Propose([(SetAside(name, message.index, message.reason), None)]))
        else:
            raise RuntimeError(f"queue {name!r} crashes again and again outside of any entry: {message.reason}")

    def _rebuild(self, name: str) -> None:
        """From the state store, and what the queue was told since; a cut that is being written is waited for."""
        self._rebuilding.add(name)
        handed_in = self._parts is not None and name not in self._owing and name not in self._unasked
        if self._flushing is None and not handed_in:
            self._reread(name)

    def _reread(self, name: str) -> None:
        store = self._store

        def work() -> StoredQueue | None:
            with store.read() as view:
                return next((stored for stored in load_queues(view, name)), None)

        def done(result: StoredQueue | BaseException | None) -> None:
            error = result if isinstance(result, BaseException) else None
            self.tell(Reread(name, None if isinstance(result, BaseException) else result, error))

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
        told = self._told.get(name)
        if told:
            for item in told:
                if item[0] in self._aside:
                    self._answer_aside(item)
            process.tell(Committed([item for item in told if item[0] not in self._aside]))
        if self.term:  # not before all that its predecessor proposed is applied
            self._unled.add(name)
            self._services.raft_log.tell(Propose([(Noop(name), Asker(self, name, None))]))
        else:
            self.runtime.register(("queue", name), process)
        if self._barrier is not None:
            for place, part in self._barrier.owing.items():
                if part.queue == name:
                    process.tell(Judge(place, part, self))
        if name in self._owing:
            process.tell(Collect(self._cut, self))
        self._go_on()


def _creates_interest(message: Any) -> bool:
    """Whether somebody will wait for a queue that does not exist: then it is empty instead of unknown."""
    match message:
        case Subscribe() | Sleep(subscribed=True) | Fetch(subscribed=True):
            return True
        case Fetch():
            return any(want.wait_ms for want in message.wants)
    return False


def _creation(item: Item, name: str, policies: Policies) -> Item:
    """Return what makes the queue that an entry finds missing; its id is the index of that entry."""
    return (item[0], item[1], item[2], CreateQueue(name, policies), None)


_HANDLERS: dict[type, Callable[[Queues, Any], None]] = {
    Committed: Queues.on_committed,
    Collected: Queues.on_collected,
    FlushDone: Queues.on_flush_done,
    StillToTell: Queues.on_still_to_tell,
    Verdict: Queues.on_verdict,
    Answered: Queues.on_answered,
    Tick: Queues.on_tick,
    Stats: Queues.on_stats,
    Gone: Queues.on_nothing,
    Leaving: Queues.on_nothing,
    EndWaits: Queues.on_nothing,
    Crashed: Queues.on_crashed,
    Deserted: Queues.on_deserted,
    Reread: Queues.on_reread,
}

_CATALOG: dict[type, Callable[[Queues, Any, Item], bool]] = {
    CreateQueue: Queues._route_create,
    UpdateQueue: Queues._route_update,
    DeleteQueue: Queues._route_delete,
    PurgeQueue: Queues._route_purge,
    SetAside: Queues._route_set_aside,
    Noop: Queues._route_noop,
    Imported: Queues._route_imported,
}
