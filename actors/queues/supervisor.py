"""Queues: the supervisor of all queue processes.  It hands each of them the committed entries that concern it.

    Committed (from RaftLog) --> each queue applies its entries, in order --> now and then, one cut to the state store

Queues apply by direct call, in the name of their own process: what one raises ends that process only.  An entry that
names several queues is a barrier: each is asked whether it would apply its part, then all apply it or none.  While a
cut or a rebuild is under way, committed entries wait here.

Built in layers: QueueRegistry (which queues exist, and their processes), QueueRebuilds (those that crash), QueueCuts
(writing to the state store), and here what is committed.
"""

import time
from collections.abc import Callable
from typing import Any

import msgspec

from wakeq.actors.mail import (
    Answered,
    Applied,
    Collect,
    Collected,
    Committed,
    Crashed,
    Crowded,
    Deserted,
    Follow,
    Gone,
    Item,
    Staying,
    Tick,
    Unsent,
)
from wakeq.actors.queue.process import REFUSED_ID, QueueProcess
from wakeq.actors.queues.barrier import ANSWERED_PART, Gathering, PartTicket, parts_of, to_judge, with_follow_ups
from wakeq.actors.queues.cuts import FlushDone, QueueCuts, StillToTell, Swept
from wakeq.actors.queues.rebuilds import Reread
from wakeq.actors.queues.registry import CrowdedOut
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import (
    Ack,
    CreateQueue,
    DeleteQueue,
    Delivered,
    Imported,
    Members,
    Noop,
    PauseQueue,
    Publish,
    PurgeQueue,
    Released,
    Result,
    SetAside,
    Stash,
    UpdateQueue,
)
from wakeq.protocol.queue.orders import Stats
from wakeq.protocol.queue.outcomes import Outcome

DEFAULTS = Policies()  # of a queue that a publish makes; shared by all of them
READ_AGAIN = frozenset({Publish, Delivered, Released, Ack})  # entries that a rebuild can read from the log as they are
TURN_S_MAX = 0.005  # for applying, before others have their turn


class GoOn(msgspec.Struct, frozen=True, gc=False):
    """To itself: apply the next committed entries; others have had their turn."""


GO_ON = GoOn()


class Queues(QueueCuts):
    """See the head of this file."""

    def on_receive(self, message: Any) -> None:
        handler = _HANDLERS.get(type(message))
        if handler is not None:
            handler(self, message)
        else:  # mail for a queue that has no process
            self._forward(message)

    # --- what is committed -----------------------------------------------------------------------------------------

    def on_committed(self, message: Committed) -> None:
        if self._halted:
            self._free_halted(message.items)
        self._waiting.append(message.items)
        if len(self._waiting) == 1:
            self._go_on()

    def on_go_on(self, message: GoOn) -> None:
        self._go_on()

    def on_crashed(self, message: Crashed) -> None:
        super().on_crashed(message)
        if self._halted:  # the entry that frees the queue may already be waiting here, behind what waits for the queue
            for items in self._waiting:
                self._free_halted(items)

    def _go_on(self) -> None:
        """Apply committed entries until something holds them up, or others have to have their turn."""
        if self._is_overdue:
            self._cut_if_overdue()
        until_s = time.perf_counter() + TURN_S_MAX
        while self._waiting and not self._held:
            items = self._waiting.popleft()
            done = self._apply(items)
            if done < len(items):
                self._waiting.appendleft(items[done:])
                if not done:
                    break  # the first entry waits for a queue that has crashed
            if self._waiting and time.perf_counter() > until_s:
                self.tell(GO_ON)
                break
        self._flush_in_time()  # even while entries are held up: its ticks also look after halted queues
        if self._ready is not None:
            self._finish_ready()

    def _apply(self, items: list[Item]) -> int:
        """Have the queues apply entries, up to one that cannot be applied yet; return how many are done."""
        batches: dict[str, list[Item]] = {}
        exists, aside = self.catalog.queues, self._aside
        for place, item in enumerate(items):
            entry = item[3]
            if item[0] in aside:
                self._pass_over(item, batches)
            elif type(entry) is Ack and entry.publishes:
                self._apply_batches(batches)
                batches = {}
                if place:
                    self._note_applied(items[place - 1])
                if self._is_lacking(entry) or not self._apply_barrier(item):
                    return place
                self._note_applied(item)
                if self._held:
                    return place + 1
            elif type(entry) is SetAside and batches:  # first have the queues apply what stands before it
                self._apply_batches(batches)
                self._note_applied(items[place - 1])
                return place
            elif (type(entry) is Publish and entry.queue in exists) or self._route(item, batches):
                mine = batches.get(entry.queue)
                if mine is None:
                    batches[entry.queue] = [item]
                else:
                    mine.append(item)
        for name, mine in batches.items():
            self._apply_in(name, mine)
        last = items[-1]
        self.applied = last[0], last[1], last[2]
        if self._noops:
            self._open_terms()
        return len(items)

    def _note_applied(self, item: Item) -> None:
        self.applied = item[0], item[1], item[2]

    def _apply_batches(self, batches: dict[str, list[Item]]) -> None:
        for name, items in batches.items():
            self._apply_in(name, items)

    def _apply_in(self, name: str, items: list[Item]) -> bool:
        """Have a queue apply entries now; one that has crashed gets them when it is rebuilt."""
        told = self._told.get(name)
        if told is None:
            told = self._told[name] = []
        process = self._processes.get(name)
        is_away = process is None or name in self._halted or name in self._rebuilding
        if is_away or process is None or not self.runtime.run_in(process, process.apply, items):
            told += items  # whole, with their tickets: the rebuilt queue answers
            return False
        # Most entries can be read from the log again, so only their index is kept; and no ticket that was answered.
        for item in items:
            if type(item[3]) in READ_AGAIN and type(item[4]) is not PartTicket:
                told.append(item[0])
            else:
                index, term, at_ms, entry, ticket = item
                told.append((index, term, at_ms, entry, ANSWERED_PART if type(ticket) is PartTicket else None))
        return True

    def _route(self, item: Item, batches: dict[str, list[Item]]) -> bool:
        """Update the catalog; return whether there is a queue that has to apply the entry."""
        entry = item[3]
        if type(entry) is Publish or type(entry) is Stash:
            if entry.queue not in self.catalog.queues:
                if type(entry) is Publish and entry.must_exist:
                    self._answer(item[4], Outcome(entry.queue, 0, [int(Result.NO_QUEUE)] * len(entry.drafts)))
                    self._note_refused(item, Result.NO_QUEUE)
                    return False
                self._create(entry.queue, DEFAULTS, item)
                batches.setdefault(entry.queue, []).append(_creation(item, entry.queue, DEFAULTS))
            return True
        if type(entry) in _CATALOG:
            return _CATALOG[type(entry)](self, entry, item)
        if entry.queue in self.catalog.queues:
            return True
        self._answer_unknown(entry, item[4])
        self._note_refused(item, Result.UNKNOWN)
        return False

    def _pass_over(self, item: Item, batches: dict[str, list[Item]]) -> None:
        """Do nothing of an entry that is set aside, except create its queues: other entries may rely on them.

        A queue that has not crashed over it must hear that the messages, which it has marked, stay leased.
        """
        for name in _made_by(item[3]):
            if name not in self.catalog.queues:
                self._create(name, DEFAULTS, item)
                batches.setdefault(name, []).append(_creation(item, name, DEFAULTS))
        entry = item[3]
        if type(entry) is Ack and entry.publishes and entry.queue in self.catalog.queues:
            batches.setdefault(entry.queue, []).append(_refused(item))
        foreseen = self._foreseen.pop(item[0], None)
        if foreseen is not None:
            self.leave_out(foreseen)
        self._answer_aside(item)

    def _route_noop(self, entry: Noop, item: Item) -> bool:
        """The first entry of a term: the node that proposed it, and so has an asker for it, leads."""
        if item[4] is not None:
            self._noops.append(item)
        return False

    def _open_terms(self) -> None:
        """Begin to lead, now that the queues were told all that stands before the no-op: leases are built from that."""
        noops, self._noops = self._noops, []
        for index, term, _at_ms, _entry, asker in noops:
            assert asker is not None, "else it is another node's"
            if term <= self._followed_term:
                continue  # that term ended while the no-op waited here
            if asker.rebuilt is None:
                self._lead(term)
                self._services.raft_log.tell(Applied(index))
            else:
                self._lead_rebuilt(asker.rebuilt)

    # --- entries that name several queues --------------------------------------------------------------------------

    def _is_lacking(self, entry: Ack) -> bool:
        """Whether a queue that an entry names cannot be asked now, because it has crashed."""
        names = [entry.queue, *(publish.queue for publish in entry.publishes)]
        away = {*self._halted, *self._rebuilding}
        return any(name in self.catalog.queues and (name in away or self._serving(name) is None) for name in names)

    def _apply_barrier(self, item: Item) -> bool:
        """All queues that an entry names apply it, or none does; False if one of them crashed when it was asked.

        If several queues refuse, the refusal of the first part counts: every node must come to the same result.
        """
        index, term, at_ms, _, ticket = item
        entry = with_follow_ups(item)
        exists = self.catalog.queues
        parts = to_judge(entry)
        missing = [part for part in parts if part.queue not in exists]
        codes: dict[int, int] = {}
        if entry.queue not in exists:  # the queue of the acknowledged message is gone, and the message with it
            codes[0] = int(Result.UNKNOWN)
        elif len(missing) > 1:  # one index is an id for one new queue only; whoever asks creates the rest
            codes[0] = int(Result.REJECTED)
        for place, part in enumerate(parts):
            if part.queue in exists and not self._judge(index, part, place, codes):
                return False
        code = codes[min(codes)] if codes else 0
        if code:
            self._answer(ticket, Outcome(entry.queue, 0, [code]))
            self._note_refused(item, code)
            self._keep_leased(item)
            return True
        gathering = Gathering(ticket, len(entry.publishes) + 1, self._end_barrier)
        self._is_under_way = True
        for place, part in enumerate(parts_of(entry)):
            items: list[Item] = []
            if part.queue not in exists:
                self._create(part.queue, DEFAULTS, item)
                items.append(_creation(item, part.queue, DEFAULTS))
            self._apply_in(part.queue, [*items, (index, term, at_ms, part, gathering.part(place))])
        return True

    def _judge(self, index: int, part: Ack | Publish, place: int, codes: dict[int, int]) -> bool:
        """Ask a queue whether it would apply its part; False if it crashes over that."""
        process = self._processes[part.queue]

        def ask() -> None:
            process.applying = index  # a queue that always crashes over this must not end every node that reads the log
            code = process.judge(part)
            process.applying = 0
            if code:
                codes[place] = int(code)

        return self.runtime.run_in(process, ask)

    def _end_barrier(self) -> None:
        """All queues that an entry names have applied it."""
        self._is_under_way = False

    def _keep_leased(self, item: Item) -> None:
        """An entry was not applied: have its queue apply a refused Ack, so that the messages stay leased."""
        entry = with_follow_ups(item)
        if entry.queue in self.catalog.queues:
            self._apply_in(entry.queue, [_refused(item)])

    def on_answered(self, message: Answered[Any]) -> None:
        """A queue has answered with its figures for a listing."""
        message.deliver()

    def _catch_up(self, name: str, process: QueueProcess) -> None:
        if name in self._owing:
            process.tell(Collect(self._cut, self))


def _creation(item: Item, name: str, policies: Policies) -> Item:
    """Return the item that creates a queue which this entry needs; the queue's id is the entry's index."""
    return (item[0], item[1], item[2], CreateQueue(name, policies), None)


def _refused(item: Item) -> Item:
    """Return what tells the queue of an acknowledgement that it was refused, with what it publishes."""
    refused = msgspec.structs.replace(with_follow_ups(item), publishes=[], queue_id=REFUSED_ID, foreign={})
    return (item[0], item[1], item[2], refused, ANSWERED_PART)


def _made_by(entry: Any) -> list[str]:
    """Return the queues that an entry creates if they are missing."""
    match entry:
        case Stash() | Publish(must_exist=False):
            return [entry.queue]
        case Ack():
            return [publish.queue for publish in entry.publishes]
    return []


_HANDLERS: dict[type, Callable[[Queues, Any], None]] = {
    Committed: Queues.on_committed,
    Follow: Queues.on_follow,
    Collected: Queues.on_collected,
    FlushDone: Queues.on_flush_done,
    Swept: Queues.on_swept,
    StillToTell: Queues.on_still_to_tell,
    Answered: Queues.on_answered,
    GoOn: Queues.on_go_on,
    CrowdedOut: Queues.on_crowded_out,
    Tick: Queues.on_tick,
    Stats: Queues.on_stats,
    Crowded: Queues.on_crowded,
    Gone: Queues.on_nothing,
    Staying: Queues.on_nothing,
    Unsent: Queues.on_nothing,
    Crashed: Queues.on_crashed,
    Deserted: Queues.on_deserted,
    Reread: Queues.on_reread,
}

_CATALOG: dict[type, Callable[[Queues, Any, Item], bool]] = {
    CreateQueue: Queues._route_create,
    UpdateQueue: Queues._route_update,
    DeleteQueue: Queues._route_delete,
    PurgeQueue: Queues._route_purge,
    PauseQueue: Queues._route_pause,
    SetAside: Queues._route_set_aside,
    Noop: Queues._route_noop,
    Imported: Queues._route_imported,
    Members: Queues._route_members,
}
