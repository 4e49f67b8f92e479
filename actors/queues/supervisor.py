"""Queues: the supervisor of all queue processes.  It hands each of them the committed entries that concern it.

    Committed (from RaftLog) --> each queue applies its entries, in order --> now and then, one flush to the state store

The actor has the mail, and decides what goes on when.  Its parts do the rest: which queues exist (catalog.py), the
process of each (processes.py), applying (apply.py, barrier.py), flushes (flush.py), queues that crash (rebuild.py),
entries that are skipped because of it (skipped.py) and figures over time (sampler.py).
"""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from wakeq.actors.mail import (
    Answered,
    Applied,
    Collected,
    Committed,
    Crashed,
    Crowded,
    Deserted,
    Follow,
    Gone,
    KeepLeased,
    NoopTicket,
    Propose,
    ReplyByMail,
    Tick,
    Unsent,
)
from wakeq.actors.queue import looking
from wakeq.actors.queue.crashing import WANTS_ANSWER, refuse_order
from wakeq.actors.queue.reading import QueueProcessServices
from wakeq.actors.queue.state import QueueMeta
from wakeq.actors.queues.apply import Applier, answer
from wakeq.actors.queues.catalog import DEFAULT_QUEUE, QueueCatalog
from wakeq.actors.queues.flush import FLUSH_AFTER_MS, FLUSH_BYTES, Flusher, FlushWritten, StateFiles, StillToTell, Swept
from wakeq.actors.queues.listing import Listing
from wakeq.actors.queues.lobby import TAKE_TURN
from wakeq.actors.queues.processes import QueueProcesses
from wakeq.actors.queues.rebuild import Rebuilds, Reread
from wakeq.actors.queues.sampler import LookOn, ReadSeries, Sampler, SeriesWritten
from wakeq.actors.queues.skipped import SkippedEntries
from wakeq.actors.runtime import Process
from wakeq.protocol.catalog import Catalog, Policies
from wakeq.protocol.log.entries import CreateQueue, Result, SetAside
from wakeq.protocol.queue.lanes import Filed, Proposal
from wakeq.protocol.queue.ledger.publishers import Limits
from wakeq.protocol.queue.orders import Nack, Stats, Touch
from wakeq.protocol.queue.outcomes import Outcome, Refusal
from wakeq.protocol.queue.view import Gauges
from wakeq.protocol.raft.membership import Config
from wakeq.storage.state.checkpoint import StoredQueue

TURN_S_MAX = 0.005  # for applying, before others have their turn


class Settings(msgspec.Struct, frozen=True):
    """The settings of Queues."""

    limits: Limits = Limits()
    flush_after_ms: int = FLUSH_AFTER_MS
    flush_bytes: int = FLUSH_BYTES
    defaults: Policies = Policies()  # of the default queue
    created: Policies | None = None  # of a queue that a publish creates; None: the built-in ones
    series_queues_max: int = 1_000  # queues that have series


class GoOn(msgspec.Struct, frozen=True, gc=False):
    """To itself: apply the next committed entries; others have had their turn."""


class ListOn(msgspec.Struct, frozen=True, gc=False):
    """To itself: ask the next slice of a listing; others have had their turn."""

    listing: Listing


class CrowdedOut(msgspec.Struct, frozen=True, gc=False):
    """To itself: something is being filed for a queue that may not be made."""

    queue: str


GO_ON = GoOn()


class Queues(Process):
    """See the head of this file."""

    def __init__(
        self,
        files: StateFiles,
        services: QueueProcessServices,
        settings: Settings,
        applied: tuple[int, int, int],
        snapshots: Process,
    ) -> None:
        super().__init__()
        # Which queues there are.
        self.catalog = Catalog()
        # Their processes.
        self.processes = QueueProcesses(self.runtime, services, settings.limits, self)
        # What entries change of the catalog.
        self._changes = QueueCatalog(self.catalog, self.processes.open_created)
        # The entries that no queue applies.
        self._skipped = SkippedEntries()
        # What is committed, and what queues were told of it.
        self.applier = Applier(
            self.runtime,
            services.raft_log,
            self._changes,
            self.processes,
            self._skipped,
            applied,
            lambda entry, item: self.rebuilds.on_set_aside(entry, item),
        )
        services.readings.is_behind = lambda: bool(self.applier.stepping or self.processes.away)
        # What goes to the state store.
        self.flusher = Flusher(
            files,
            services,
            self._changes,
            self.processes,
            self._skipped,
            self.applier,
            self,
            snapshots,
            after_ms=settings.flush_after_ms,
            after_bytes=settings.flush_bytes,
        )
        # Queues that have crashed.
        self.rebuilds = Rebuilds(
            files, services, self.processes, self._skipped, self.applier, self.flusher, supervisor=self
        )
        # Their figures over time.
        self.sampler = Sampler(self, queues_max=settings.series_queues_max)
        self._log = files.log
        # What every queue works with.
        self.services = services
        self._settings = settings
        # Whether GO_ON is on its way to this actor.
        self._is_going_on = False
        # The last term in which this node led, once it no longer does.
        self._followed_term = 0
        # For whoever waits for a queue that is not there, while there are too many.
        self._crowd: Refusal | None = None
        services.lobby.open(self, self.open_queue)

    # --- what others see ---------------------------------------------------------------------------------------------

    @property
    def applied(self) -> tuple[int, int, int]:
        """Index, term and moment of the last entry that was given to its queues."""
        return self.applier.applied

    @property
    def flushed_index(self) -> int:
        """The last entry that the state store has."""
        return self.flusher.flushed_index

    @property
    def unflushed_bytes(self) -> int:
        """Bytes of the log that the state store does not have yet."""
        return self.flusher.unflushed_bytes

    @property
    def reusable_bytes(self) -> int:
        """Free bytes inside the state store's file, as of the last flush."""
        return self.flusher.reusable_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of all messages in all queues."""
        return sum(process.ledger.columns.bytes for process in self.processes.by_name.values())

    @property
    def queues_count(self) -> int:
        """How many queues there are."""
        return len(self.catalog.queues)

    @property
    def skipped_count(self) -> int:
        """How many entries of the log are skipped because they crashed a queue; `wakeq inspect` lists them."""
        return len(self._skipped.indexes)

    @property
    def is_halted(self) -> bool:
        """Whether a queue waits for an entry to be skipped, which takes a node that leads."""
        return bool(self.rebuilds.halted)

    def exists(self, name: str) -> bool:
        return name in self.catalog.queues

    # --- from the state store, before any mail -----------------------------------------------------------------------

    def restore(self, stored: StoredQueue) -> None:
        """Take a queue."""
        meta = QueueMeta.read(stored.meta)
        self.catalog.put(meta.name, meta.id, meta.policies, meta.created_ms)
        self.processes.open(meta.name).restore(stored)

    def restore_members(self, members: Sequence[tuple[int, Config]]) -> None:
        """Take the members of the cluster."""
        self._changes.restore_members(members)

    def restore_skipped(self, indexes: Iterable[int]) -> None:
        """Take the entries that are skipped."""
        self._skipped.restore(indexes)

    def foresee(self, entries: Iterable[SetAside]) -> None:
        """Take the SetAsides that stand further on in the log."""
        self._skipped.foresee(entries)

    # --- mail --------------------------------------------------------------------------------------------------------

    def on_receive(self, message: Any) -> None:
        match message:
            case Committed():
                if self.rebuilds.halted:
                    self.rebuilds.free_halted(message.items)
                self.applier.waiting.append(message.items)
                if len(self.applier.waiting) == 1:
                    self._go_on()
            case GoOn():
                self._is_going_on = False
                self._go_on()
            case Collected():
                self.flusher.on_collected(message)
                if not self.applier.held_by:  # it was the last queue
                    self._go_on()
            case FlushWritten():
                flushed, names = self.flusher.on_written(message)
                self.rebuilds.forget_crashes()
                self._tell_flushed(StillToTell(flushed, names))
            case StillToTell():
                self._tell_flushed(message)
            case Swept():
                self.flusher.on_swept(message)
            case Tick(what="series"):
                self.sampler.on_tick()
            case LookOn():
                self.sampler.look_on()
            case SeriesWritten():
                self.sampler.on_written()
            case ReadSeries():
                self.sampler.on_read(message)
            case Tick():
                self.rebuilds.say_halted()
                self.flusher.on_tick()
            case Crashed():
                self.rebuilds.on_crashed(message)
                if self.rebuilds.halted:  # the entry that frees the queue may already be waiting here, behind others
                    for items in self.applier.waiting:
                        self.rebuilds.free_halted(items)
            case Reread():
                if self.rebuilds.on_reread(message):
                    self._go_on()
            case Follow():
                self.on_follow(message)
            case Answered():
                message.deliver()
            case Stats(all_queues=True):
                self._list(message)
            case ListOn():
                self._ask_figures(message.listing)
            case Crowded():
                self._crowd = message.refusal
            case CrowdedOut():
                self.on_crowded_out(message)
            case Gone() | KeepLeased() | Unsent():
                # It was sent here because its queue had no process; that may have one by now.
                process = self.processes.by_name.get(message.queue)
                if process is not None:
                    process.tell(message)
            case Deserted():
                if self.processes.by_name.get(message.queue) is message.process:
                    self._end_deserted(message.queue)
            case _:  # mail for a queue that has no process
                self._forward(message)

    # --- what is committed -------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Apply committed entries until something holds them up, or others have to have their turn."""
        applier, flusher = self.applier, self.flusher
        waiting = applier.waiting
        if applier.stepping:
            applier.step()
        if flusher.is_overdue:
            flusher.begin_if_overdue()
        until_s = time.perf_counter() + TURN_S_MAX
        # An overdue flush waits for the last step of each queue, so nothing may begin that takes further steps.
        while waiting and not applier.held_by and not (applier.stepping and flusher.is_overdue):
            items = waiting.popleft()
            done = applier.apply(items)
            if done < len(items):
                waiting.appendleft(items[done:])
                if not done:
                    break  # the first entry waits for a queue that has crashed
            elif applier.noops:
                self._open_terms()
            if waiting and time.perf_counter() > until_s:
                self._go_on_later()
                break
        if applier.stepping:
            self._go_on_later()
        # Even while entries are held up: the ticks of flushes also look after halted queues.
        if not flusher.is_scheduled or self._log.written_bytes > flusher.due_bytes:
            flusher.note_written()
        if flusher.ready is not None:
            flusher.finish_ready()

    def _go_on_later(self) -> None:
        if not self._is_going_on:
            self._is_going_on = True
            self.tell(GO_ON)

    def _open_terms(self) -> None:
        """Begin to lead, now that the queues were told all that stands before the no-op: leases are built from that."""
        noops, self.applier.noops = self.applier.noops, []
        for noop in noops:
            asker = noop.reply_to
            assert isinstance(asker, NoopTicket), "else it is another node's"
            if noop.term <= self._followed_term:
                continue  # that term ended while the no-op waited here
            if asker.rebuilt is None:
                self._lead(noop.term)
                self.services.raft_log.tell(Applied(noop.index))
            else:
                self.rebuilds.lead_rebuilt(asker.rebuilt)

    def _lead(self, term: int) -> None:
        """Lead, and create the default queue if it is missing."""
        self.processes.lead(term)
        if DEFAULT_QUEUE not in self.catalog.queues:
            create = CreateQueue(DEFAULT_QUEUE, self._settings.defaults)
            self.services.raft_log.tell(Propose([Proposal(create)]))

    def on_follow(self, message: Follow) -> None:
        """This node leads no longer: no queue delivers any more."""
        self.processes.term, self._followed_term = 0, message.term
        for lanes in self.services.lobby.all_filed():
            if self.processes.living(lanes.name) is None:  # else its process refuses what was filed
                _refuse_filed(lanes.take(), message.refusal)
        self.processes.follow(message)

    # --- flushes -----------------------------------------------------------------------------------------------------

    def flush_now(self, ready: Callable[[], None]) -> None:
        """Write everything down, then call `ready`; for a clean stop."""
        self.flusher.flush_now(ready)

    def _tell_flushed(self, message: StillToTell) -> None:
        """Tell queues that a flush is written; behind the last of them comes what waited for its end."""
        written = self.flusher.tell_flushed(message.flushed, message.names)
        if written is None:
            return
        for name in written:
            if name not in self.catalog.queues and name in self.processes.by_name:
                self.tell(Deserted(name, self.processes.by_name[name]))
        self.rebuilds.reread_all()
        self.flusher.finish_ready()
        self._go_on()

    def _end_deserted(self, name: str) -> None:
        """End a process that is no longer needed, unless a flush still has to collect what it was told."""
        process = self.processes.by_name[name]
        known = name in self.catalog.queues or name in self.applier.told or self.flusher.holds(name)
        if not known and process.idle and process.is_deserted:
            self.services.lobby.forget(name)
            self.processes.end(process)

    # --- queues without a process ------------------------------------------------------------------------------------

    def open_queue(self, name: str) -> None:
        """Something was filed for a queue without a process that serves: one that is being rebuilt finds it later."""
        if self.processes.is_waited_for(name):
            if self.processes.serves(name):
                self.processes.by_name[name].tell(TAKE_TURN)
            return
        if self._crowd is not None and name not in self.catalog.queues:
            self.tell(CrowdedOut(name))  # later in this round: nothing is filed yet
            return
        self.processes.open(name).tell(TAKE_TURN)

    def on_crowded_out(self, message: CrowdedOut) -> None:
        """There are too many queues: nobody may make this one, or wait for it."""
        name, lobby, crowd = message.queue, self.services.lobby, self._crowd
        if crowd is None or name in self.processes.by_name:
            self.open_queue(name)  # there is room by now
            return
        _refuse_filed(lobby.lanes_of(name).take(), self.services.refusal() or crowd)
        lobby.forget(name)

    def _forward(self, message: Any) -> None:
        name, processes = message.queue, self.processes
        process = processes.by_name.get(name)
        has_crashed = process is not None and not process.alive  # and its Crashed is still in the mailbox
        if has_crashed or name in processes.away or name in processes.unled:
            self._put_off(message)
            return
        if process is None:
            self._refuse(message)
            return
        process.tell(message)

    def _put_off(self, message: Any) -> None:
        """The queue is being rebuilt: a FET gets nothing, a sleeper is woken to try again, the others hear BUSY."""
        refusal = self.services.refusal()
        if isinstance(message, WANTS_ANSWER):
            busy = Refusal("BUSY", f"queue {message.queue} is being rebuilt; try again")
            answer(message.asker, refusal or busy)

    def _refuse(self, message: Any) -> None:
        """Say that there is no such queue, or, if this node may not serve and so cannot know, who does."""
        elsewhere = self.services.refusal()
        missing = Refusal("Q_NOT_FOUND", f"queue {message.queue} does not exist; publish to it or subscribe first")
        if isinstance(message, Touch | Nack) and elsewhere is None:
            outcome = Outcome(message.queue, 0, [Result.UNKNOWN] * len(message.uids))
            message.asker.tell(outcome)
        else:
            answer(message.asker, elsewhere or missing)

    # --- figures of many queues --------------------------------------------------------------------------------------

    def _list(self, message: Stats) -> None:
        """Ask the queues that a listing is about."""
        refusal = self.services.refusal()
        if refusal is not None:
            answer(message.asker, refusal)
            return
        after, sees = message.after, message.sees
        names = sorted(name for name in self.catalog.queues if name.startswith(message.prefix))
        behind = (name for name in names if after is None or name > after)
        seen = (name for name in behind if sees is None or sees(name))  # before `limit` counts them
        self._ask_figures(Listing(message.asker, list(islice(seen, message.limit or None)), brief=message.brief))

    def _ask_figures(self, listing: Listing) -> None:
        """Ask the next slice of a listing, skipping slices of which no queue is left."""
        now_ms = self.services.now_ms()
        while names := listing.next_slice():
            is_complete = False
            for place, name in names:
                process = self.processes.living(name)
                if process is None:
                    is_complete = listing.add(place, None)
                elif listing.brief and process.idle and process.steps is None:
                    # Gauges of a queue at rest are read at once: mail for each of very many queues takes long.
                    found: list[Gauges] = []
                    self.runtime.run_in(process, looking.read_gauges, process, found, now_ms)
                    is_complete = listing.add(place, found[0] if found else None)
                else:
                    asker = ReplyByMail(self, partial(self._take_figures, listing, place))
                    process.tell(Stats(asker, name, brief=listing.brief))
            if not is_complete:
                return
            if listing.brief:
                self.tell(ListOn(listing))
                return
        answer(listing.asker, listing.rows)

    def _take_figures(self, listing: Listing, place: int, figures: Any) -> None:
        if listing.add(place, figures):
            self._ask_figures(listing)


def _refuse_filed(filed: Filed | None, refusal: Refusal) -> None:
    """Refuse everything that was filed in a queue's lanes."""
    if filed is None:
        return
    for slot in filed.slots():
        slot.tell(refusal)
    for order in filed.orders:
        refuse_order(order, refusal)
