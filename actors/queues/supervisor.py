"""Queues: the supervisor of all queue processes.  It hands each of them the committed entries that concern it.

    Committed (from RaftLog) --> to each queue its entries, in order --> now and then, one cut to the state store

An entry that touches several queues is a barrier: each named queue is asked for its verdict, then all apply it or
none.  While a verdict, a cut or a rebuild is under way, committed entries wait here.

Built in layers: QueueRegistry (which queues exist, and their processes), QueueRebuilds (those that crash), QueueCuts
(writing to the state store), and here what is committed.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from wakeq.actors.mail import (
    Answered,
    Applied,
    Asker,
    Collect,
    Collected,
    Committed,
    Crashed,
    Crowded,
    Deserted,
    EndWaits,
    Follow,
    Gone,
    Item,
    Judge,
    Leaving,
    Outcome,
    Stats,
    Tick,
    Unsent,
    Verdict,
)
from wakeq.actors.queue.process import REFUSED_ID, QueueProcess
from wakeq.actors.queues.barrier import Barrier, Gathering, parts_of, to_judge, with_follow_ups
from wakeq.actors.queues.cuts import FlushDone, QueueCuts, StillToTell, Swept
from wakeq.actors.queues.listing import Listing
from wakeq.actors.queues.rebuilds import Reread
from wakeq.actors.queues.replies import Replies
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import (
    Ack,
    CreateQueue,
    DeleteQueue,
    Imported,
    Members,
    Noop,
    PauseQueue,
    Publish,
    PurgeQueue,
    Result,
    SetAside,
    Stash,
    UpdateQueue,
)

DEFAULTS = Policies()  # of a queue that a publish makes; shared by all of them


class Queues(QueueCuts):
    """See the head of this file."""

    def on_receive(self, message: Any) -> None:
        handler = _HANDLERS.get(type(message))
        if handler is not None:
            handler(self, message)
        else:  # a straight command for a queue that has no process
            self._forward(message)

    # --- what is committed -----------------------------------------------------------------------------------------

    def on_committed(self, message: Committed) -> None:
        if self._halted:
            self._free_halted(message.items)
        self._waiting.append(message.items)
        if len(self._waiting) == 1:
            self._go_on()

    def on_crashed(self, message: Crashed) -> None:
        super().on_crashed(message)
        if self._halted:  # the entry that frees the queue may already be waiting here, behind what waits for the queue
            for items in self._waiting:
                self._free_halted(items)

    def _go_on(self) -> None:
        """Hand out committed entries until something holds them up."""
        self._cut_if_overdue()
        while self._waiting and not self._held:
            items = self._waiting.popleft()
            done, barrier = self._hand_out(items)
            if done < len(items):
                self._waiting.appendleft(items[done:])
            if barrier is not None:
                self._begin_barrier(barrier)
        self._flush_in_time()  # even while entries are held up: its ticks also look after halted queues
        self._finish_ready()

    def _hand_out(self, items: list[Item]) -> tuple[int, Item | None]:
        """Tell each queue its entries, up to a barrier; return how many items were dealt with, and the barrier."""
        batches: dict[str, list[Item]] = {}
        barrier = None
        exists, aside = self.catalog.queues, self._aside
        for place, item in enumerate(items):
            entry = item[3]
            if item[0] in aside:
                self._pass_over(item, batches)
            elif type(entry) is Ack and entry.publishes:
                barrier = item
                items = items[: place + 1]
                break
            elif type(entry) is SetAside and batches:  # first tell the queues what stands before it
                items = items[:place]
                break
            elif (type(entry) is Publish and entry.queue in exists) or self._route(item, batches):
                mine = batches.get(entry.queue)
                if mine is None:
                    batches[entry.queue] = [item]
                else:
                    mine.append(item)
        last = items[-1]
        self.applied = last[0], last[1], last[2]
        if batches:
            self._tell_each(batches)
        if self._noops:
            self._open_terms()
        return len(items), barrier

    def _tell(self, name: str, items: list[Item]) -> None:
        """Hand a queue its entries; one that has crashed gets them when it is rebuilt."""
        self._told.setdefault(name, []).extend(items)
        if name not in self._halted and name not in self._rebuilding:
            self._processes[name].tell(Committed(items))

    def _tell_each(self, batches: dict[str, list[Item]]) -> None:
        """The same for whole entries, to one queue or many, whose answers then leave together."""
        told, processes = self._told, self._processes
        lacking = {*self._halted, *self._rebuilding}
        replies, mail, dead = Replies(batches) if len(batches) > 1 else None, [], []
        for name, items in batches.items():
            kept = told.get(name)
            if kept is None:
                kept = told[name] = []
            if name in lacking or not (process := processes[name]).alive:
                kept += items
                dead.append(name)
                continue
            # Of publishes, which are most of it, keep only the index: what is committed can be read from the log again.
            kept += [item[0] if type(item[3]) is Publish else item for item in items]
            mail.append((process, Committed(items, replies)))
        self.runtime.tell_each(mail)
        if replies is not None:
            for name in dead:  # it answers when it is rebuilt
                replies.done(name)

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
        """Do nothing of an entry that is set aside, except create its queues: other entries may rely on them."""
        for name in _made_by(item[3]):
            if name not in self.catalog.queues:
                self._create(name, DEFAULTS, item)
                batches.setdefault(name, []).append(_creation(item, name, DEFAULTS))
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
            if asker.ticket is None:
                self._lead(term)
                self._services.raft_log.tell(Applied(index))
            else:
                self._lead_rebuilt(asker.ticket)

    # --- entries that touch several queues -------------------------------------------------------------------------

    def _begin_barrier(self, item: Item) -> None:
        entry = with_follow_ups(item)
        exists = self.catalog.queues
        parts = to_judge(entry)
        owing = {place: part for place, part in enumerate(parts) if part.queue in exists}
        self._barrier = Barrier(item, owing)
        if 0 not in owing:  # the queue of the acknowledged message is gone, and the message with it
            self._barrier.judged(0, Result.UNKNOWN)
        elif len(parts) - len(owing) > 1:  # one index is an id for one new queue only; askers create the rest
            self._barrier.judged(0, Result.REJECTED)
        for place, part in owing.items():
            if part.queue in self._processes:  # else it is asked when it is rebuilt (_catch_up)
                self._processes[part.queue].tell(Judge(place, part, self))
        if not owing:
            self._conclude()

    def on_verdict(self, message: Verdict) -> None:
        barrier = self._barrier
        if barrier is None or barrier.owing.pop(message.place, None) is None:
            return
        barrier.judged(message.place, message.code)
        if not barrier.owing:
            self._conclude()
            self._go_on()

    def _conclude(self) -> None:
        """All verdicts are in: all queues apply the entry, or none does."""
        barrier, self._barrier = self._barrier, None
        assert barrier is not None, "a verdict without a question"
        index, term, at_ms, _, asker = barrier.item
        entry = with_follow_ups(barrier.item)
        if index in self._aside:  # set aside while the verdicts were coming in: other nodes have tried it already
            batches: dict[str, list[Item]] = {}
            self._pass_over(barrier.item, batches)
            for name, made in batches.items():
                self._tell(name, made)
            self._let_stay(barrier.item)
        elif barrier.code:
            self._answer(asker, Outcome(entry.queue, 0, [barrier.code]))
            self._note_refused(barrier.item, barrier.code)
            self._let_stay(barrier.item)
        else:
            gather = Gathering(asker, len(entry.publishes) + 1)
            self._is_under_way = True
            for place, part in enumerate(parts_of(entry)):
                items: list[Item] = []
                if part.queue not in self.catalog.queues:
                    self._create(part.queue, DEFAULTS, barrier.item)
                    items.append(_creation(barrier.item, part.queue, DEFAULTS))
                self._tell(part.queue, [*items, (index, term, at_ms, part, Asker(self, gather, place))])

    def _let_stay(self, item: Item) -> None:
        """An entry was not applied: tell its queue a refused Ack, so that the messages that were leaving stay."""
        index, term, at_ms, _, _ = item
        entry = with_follow_ups(item)
        if entry.queue in self.catalog.queues:
            refused = msgspec.structs.replace(entry, publishes=[], queue_id=REFUSED_ID, foreign={})
            self._tell(entry.queue, [(index, term, at_ms, refused, None)])

    def on_answered(self, message: Answered) -> None:
        """A queue has answered: for a part of an entry, or with its figures for a listing."""
        for gather, place, outcome in message.answers:
            if type(gather) is not Listing and type(gather) is not Gathering:
                continue  # RaftLog refused our no-op: this node leads no longer, and Follow says so too
            if not gather.add(place, outcome):
                continue
            if type(gather) is Listing:
                self._ask_figures(gather)
            else:
                self._is_under_way = False
                self._go_on()

    def _catch_up(self, name: str, process: QueueProcess) -> None:
        if self._barrier is not None:
            for place, part in self._barrier.owing.items():
                if part.queue == name:
                    process.tell(Judge(place, part, self))
        if name in self._owing:
            process.tell(Collect(self._cut, self))


def _creation(item: Item, name: str, policies: Policies) -> Item:
    """Return the item that creates a queue which this entry needs; the queue's id is the entry's index."""
    return (item[0], item[1], item[2], CreateQueue(name, policies), None)


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
    Verdict: Queues.on_verdict,
    Answered: Queues.on_answered,
    Tick: Queues.on_tick,
    Stats: Queues.on_stats,
    Crowded: Queues.on_crowded,
    Gone: Queues.on_nothing,
    Leaving: Queues.on_nothing,
    EndWaits: Queues.on_nothing,
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
