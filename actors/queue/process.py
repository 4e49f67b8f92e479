"""QueueProcess: one queue.

    lanes --> the turn: mark what is acknowledged, serve reads, do orders --> Outgoing --> the log collects entries
    committed entries --> apply: ledger, leases --> outcomes into slots, sleepers woken

A queue has two halves.  Its ledger says which messages there are: only committed entries change it, so every node has
the same one.  Its leases say who holds which message, who waits and who sleeps: only the leader has them.

The state is here, in one place; what is done with it stands in modules of functions, named for what they do: reading.py
(bodies that are not in memory), fetching.py (deliveries, who waits, who sleeps), ending.py (NACK, TOUCH, timeouts, dead
letters), staging.py (claims and stashes), operating.py (what an operator does), looking.py (what can be seen).  The
process never touches a file: bodies that are no longer in memory arrive as mail from the reader thread.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import compress
from types import TracebackType
from typing import Any

import msgspec

from wakeq.actors.mail import (
    Abandon,
    Answered,
    Collect,
    Collected,
    Crashed,
    Flushed,
    Follow,
    Gone,
    Loaded,
    LogItem,
    Staying,
    Unsent,
    Woken,
)
from wakeq.actors.queue import ending, fetching, looking, operating, reading, staging
from wakeq.actors.queue.fetching import Lead, Turn
from wakeq.actors.queue.reading import BODIES_AHEAD, BodyLookup, QueueProcessServices
from wakeq.actors.queue.state import QueueMeta, part_of, restore_ledger
from wakeq.actors.queues.lobby import TAKE_TURN, TakeTurn
from wakeq.actors.runtime import Alarm, Process
from wakeq.actors.sessions.operator_mail import Move, Requeue, Scan, Why
from wakeq.protocol.catalog import Policies, changed
from wakeq.protocol.log.entries import (
    Ack,
    Claim,
    ClaimAction,
    CreateQueue,
    DeleteQueue,
    Delivered,
    Draft,
    Entry,
    Expired,
    Extended,
    PauseQueue,
    Publish,
    PurgeQueue,
    Released,
    Requeued,
    Result,
    Results,
    Stash,
    Unstash,
    UpdateQueue,
)
from wakeq.protocol.log.outcomes import Note
from wakeq.protocol.queue import orders
from wakeq.protocol.queue.bodies import Bodies
from wakeq.protocol.queue.empty import EMPTY_DICT, EMPTY_SET
from wakeq.protocol.queue.lanes import (
    Acking,
    Acks,
    AckSeveral,
    AckTicket,
    AckTickets,
    AnswerOnCommit,
    Delivering,
    Filed,
    Outgoing,
    Proposal,
    Rank,
    Run,
    SharesOnCommit,
    Tickets,
)
from wakeq.protocol.queue.leases.audience import Waiter
from wakeq.protocol.queue.leases.leases import Leases
from wakeq.protocol.queue.ledger import Ledger
from wakeq.protocol.queue.outcomes import HandedOver, Outcome, Refusal
from wakeq.protocol.queue.publishers import Limits
from wakeq.protocol.queue.results import Repeated, maker_of, new_drafts, new_numbers, published_uids, unchanged
from wakeq.protocol.uid import numbers as numbers_of
from wakeq.protocol.uid import parse
from wakeq.protocol.wire.slots import SeveralResults
from wakeq.storage.state.cut import StoredQueue

# Mail with an `asker`, who gets exactly one answer.
ASKED = (
    orders.Touch, orders.Nack, orders.Peek, orders.PeekBlock, orders.Stats, orders.Stage, orders.ReadSlice,
    orders.Renew, orders.Settle, Scan, Why, Move, Requeue,
)  # fmt: skip
REFUSED_ID = -1  # instead of a queue's id: an Ack that was refused as a whole, so that its messages stay leased
ENTRY_MESSAGES_MAX = 4_096  # in one entry that is made of many commands ...
ENTRY_BYTES_MAX = 1 << 20  # ... and of their bodies
DESERTED_AFTER_S = 1.0  # after a write to a queue that does not exist, its process ends unless there is a queue by then
SETTLED = frozenset({Delivered, Ack})  # entries after which nothing is ready or due that was not before


class Abandoned(Exception):
    """The process gives itself up, to be rebuilt."""


class Creating(msgspec.Struct, frozen=True, gc=False):
    """The ticket of a queue with this node's defaults, for which nobody has asked."""

    refused: Callable[[], None]

    def tell(self, answer: Any) -> None:
        """Take the outcome."""
        if isinstance(answer, Refusal):
            self.refused()


class QueueProcess(Process):
    """One queue by name, through all its incarnations.

    It exists before the queue does if somebody waits for it: then it has only sleepers and waiters.
    """

    __slots__ = (
        "ahead", "alarm_ms", "applying", "bodies", "counted_from", "created_ms", "delivering", "handling",
        "in_hand", "is_creating", "is_reading_ahead", "lanes", "leases", "ledger", "looks", "marked_ahead",
        "name", "now_ms", "oldest", "outgoing", "promised", "services", "since_read", "stored_gone",
        "supervisor", "term", "turns", "unchanged", "wakes",
    )  # fmt: skip

    def __init__(self, name: str, services: QueueProcessServices, limits: Limits, supervisor: Process) -> None:
        super().__init__()
        self.name = name
        self.services = services
        self.supervisor = supervisor  # hears when the process crashes or is not needed any more
        self.now_ms = services.now_ms
        # What the log knows, alike on every node.
        self.ledger = Ledger(name, 0, Policies(), limits)
        self.created_ms = 0
        self.bodies = Bodies()
        # What only the leader knows.
        self.leases: Leases | None = None
        self.term = 0  # in which this node leads, 0 while it does not
        self.turns: deque[Turn] = EMPTY_DICT  # fetches whose bodies are being read, in their order
        self.promised: dict[Waiter, None] = EMPTY_DICT  # fetches with wait whose strict delivery is being committed
        self.is_creating = False  # a CreateQueue with this node's defaults is on its way through the log
        self.alarm_ms = 0  # when the next alarm is set for
        self.wakes = 0  # sleepers that were woken
        self.counted_from = (0, 0)  # wakes, and sequence of leases, when this node began to lead
        # What is wanted, and what is on its way.
        self.lanes = services.lobby.lanes_of(name)
        self.in_hand: Filed | None = None  # what was taken out of the lanes in this turn and is not done yet
        self.marked_ahead: set[int] = EMPTY_SET  # by acknowledgements of this turn whose place has not come
        self.outgoing: list[Outgoing] | None = None  # what waits for the next write of the log ...
        self.delivering: list[Delivering] | None = None  # ... and before all of it, deliveries that have left
        self.handling: Any = None  # the mail that is being handled
        self.applying = 0  # index of the entry that is being applied, 0 for none
        # Since the last flush to the state store.
        self.stored_gone: list[int] | tuple[()] = ()  # numbers that the state store has to remove
        self.unchanged: list[Note] | tuple[()] = ()  # what changed nothing, for readers of the log
        # Bodies that are read.
        self.looks: dict[int, BodyLookup] = EMPTY_DICT  # that wait for a read, by their identity
        self.is_reading_ahead = False
        self.ahead = BODIES_AHEAD  # how many bodies are read ahead
        self.since_read = 0  # messages delivered since bodies were last read ahead
        self.oldest = (0, 0, 0)  # incarnation, number, since when: of the oldest ready message, as seen last

    @property
    def exists(self) -> bool:
        return self.ledger.id > 0

    @property
    def is_deserted(self) -> bool:
        """Whether the queue does not exist and nobody waits for it to do so."""
        if self.exists or self.lanes.filed is not None or self.outgoing or self.delivering:
            return False
        if self.runtime.groups.count(("subscribers", self.name)):
            return False
        leases = self.leases
        return leases is None or not (leases.sleepers or leases.woken or leases.all_waits())

    def on_receive(self, message: Any) -> None:
        self.handling = message
        _HANDLERS[type(message)](self, message)
        self.handling = None

    # --- what was filed ----------------------------------------------------------------------------------------------

    def on_turn(self, message: TakeTurn) -> None:
        """Do what the commands of one round want of this queue."""
        if self._mail:  # mail first: it may say that a connection has ended, to which nothing must be delivered
            if self._mail[-1] is not TAKE_TURN:
                self.tell(TAKE_TURN)
            return
        filed = self.lanes.take()
        if filed is None:
            return
        self.in_hand = filed
        if filed.acks or filed.orders:
            self._mark_acknowledged(filed)
        only_writes = not (filed.reads or filed.orders)
        if filed.reads:
            fetching.serve(self, filed)
        while filed.orders:
            order = filed.orders[0]
            _HANDLERS[type(order)](self, order)
            del filed.orders[0]
        if filed.publishes:
            self._take_publishes(filed)
        self.in_hand = None
        if not only_writes and self.leases is not None and not self.leases.is_at_rest:
            fetching.settle(self, self.now_ms())  # writes change nothing before they are committed
        if not self.ledger.id and self.is_deserted:
            fetching.end_if_deserted(self)

    def _mark_acknowledged(self, filed: Filed) -> None:
        """Keep what is being acknowledged from being delivered or released, before any read is served."""
        for order in filed.orders:
            if type(order) is AckSeveral and self.leases is not None:
                numbers = [number for number in self._numbers_of(order.uids) if number > 0]
                # A NACK or TOUCH that stands before it must not find these leaving.
                if not self.marked_ahead:
                    self.marked_ahead = set()
                self.marked_ahead.update([n for n in numbers if n not in self.leases.leaving])
                self.leases.leave(numbers)
        while filed.acks:
            acks = filed.acks[0]
            if not self.ledger.id:
                self._answer_unknown(acks)
            elif isinstance(acks, Acks):
                self._propose_acks(acks)
            else:
                self.on_ack_several(acks)
            del filed.acks[0]

    def _answer_unknown(self, acks: Acks | AckSeveral) -> None:
        """The queue does not exist, and no message of it."""
        refusal = fetching.refusal(self)
        if isinstance(acks, Acks):
            for slot in acks.slots:
                slot.tell(refusal or int(Result.UNKNOWN))
        else:
            acks.slot.tell(refusal or Outcome(self.name, 0, [int(Result.UNKNOWN)] * len(acks.uids)))

    def _propose_acks(self, acks: Acks) -> None:
        """Have plain acknowledgements in the log, in one entry with those that wait for it already."""
        numbers = self._numbers_of(acks.uids)
        foreign = {i: acks.uids[i] for i, number in enumerate(numbers) if number < 0} if min(numbers) < 0 else {}
        keep_leased = self._mark(numbers)
        acking = Acking(acks.door, self.ledger.id, numbers, acks.tokens, foreign, acks.slots, [keep_leased])
        last = self._last_of(Rank.ACK) if self.outgoing else None
        if (
            isinstance(last, Acking)
            and (last.door, last.queue_id) == (acking.door, acking.queue_id)
            and len(last.numbers) + len(numbers) <= ENTRY_MESSAGES_MAX
        ):
            last.join(acking)
        else:
            self._put(Rank.ACK, acking)

    def on_ack_several(self, order: AckSeveral) -> None:
        """An acknowledgement of several messages, or one that publishes, is an entry of its own."""
        session = order.slot.session
        numbers = self._numbers_of(order.uids)
        if self.marked_ahead:
            self.marked_ahead.difference_update(numbers)
        foreign = {i: order.uids[i] for i, number in enumerate(numbers) if number < 0} if min(numbers) < 0 else {}
        keep_leased = self._mark(numbers)
        entry = Ack(
            self.name,
            self.ledger.id,
            numbers,
            order.tokens,
            order.publishes,
            foreign,
            worker=session.number,
            door=session.door_kind,
        )
        ticket = AckTicket(order.slot, keep_leased)
        if order.publishes:
            defaults, exists = self.services.defaults, self.services.exists
            missing = [name for name in dict.fromkeys(one.queue for one in order.publishes) if not exists(name)]
            if defaults is not None or len(missing) > 1:  # one index can be the id of only one new queue
                policies = defaults or Policies()
                for name in missing:
                    self._put(Rank.BEHIND, CreateQueue(name, policies))
            self._put(Rank.BEHIND, entry, ticket)
        else:
            self._put(Rank.ACK, entry, ticket)

    def on_acknowledge(self, order: orders.Acknowledge) -> None:
        """The same for somebody who knows messages by their numbers."""
        if not self.exists:
            return
        is_ours = order.queue_id == self.ledger.id
        keep_leased = self._mark(order.numbers if is_ours else [])
        about = {"worker": order.worker, "door": order.door}
        entry = Ack(self.name, order.queue_id, order.numbers, order.tokens, **about)  # type: ignore[arg-type]
        self._put(Rank.ACK, entry, AckTicket(orders.NOBODY, keep_leased))

    def _numbers_of(self, uids: Sequence[str]) -> list[int]:
        """Return the numbers of uids of this incarnation, -1 for any other."""
        return numbers_of(uids, maker_of(self.ledger.id).prefix)

    def _mark(self, numbers: list[int]) -> Callable[[], None]:
        """Mark messages that are being acknowledged; return what undoes it if the log refuses."""
        if self.leases is not None:
            self.leases.leave([number for number in numbers if number > 0])
        staying = Staying(self.name, self.ledger.id, numbers)
        return lambda: self.tell(staying)

    def _take_publishes(self, filed: Filed) -> None:
        """Make entries of publishes: one of each run, one of each that is a whole."""
        defaults = self.services.defaults
        creates = not self.ledger.id and any(
            [isinstance(one, Run) or not one.entry.must_exist for one in filed.publishes]
        )
        if creates and not self.is_creating and defaults is not None:
            self.is_creating = True
            self._put(Rank.PUBLISH, CreateQueue(self.name, defaults), Creating(self._create_again))
        for one in filed.publishes:
            if not isinstance(one, Run):
                self._put(Rank.PUBLISH, one.entry, one.slot)
                continue
            last = self._last_of(Rank.PUBLISH) if self.outgoing else None
            if isinstance(last, Run) and (last.door, last.session_id) == (one.door, one.session_id):
                last.join(one)
            else:
                self._put(Rank.PUBLISH, one)
        filed.publishes = []

    def _create_again(self) -> None:
        """The log has refused the queue: whoever publishes next has it created."""
        self.is_creating = False

    def _last_of(self, rank: Rank) -> Any:
        """Return the last of this rank that waits for the log, None if there is none."""
        for wanted in reversed(self.outgoing or ()):
            if wanted.rank is rank:
                return wanted.entry
        return None

    def _entries_of(self, wanted: Outgoing) -> Iterator[Proposal]:
        """Yield what waits for the log as entries, none of them larger than its bounds."""
        entry = wanted.entry
        if isinstance(entry, Run):
            is_small = (
                len(entry.drafts) <= ENTRY_MESSAGES_MAX and sum([len(d.body) for d in entry.drafts]) <= ENTRY_BYTES_MAX
            )
            for run in (entry,) if is_small else _parts_of(entry):
                yield Proposal(self._entry_of(run), Tickets(run.slots))
        elif isinstance(entry, Acking):
            for start in range(0, len(entry.numbers), ENTRY_MESSAGES_MAX):
                yield self._ack_of(entry, start, start + ENTRY_MESSAGES_MAX)
        else:
            yield Proposal(entry, wanted.ticket)

    def _ack_of(self, acking: Acking, start: int, end: int) -> Proposal:
        slots = acking.slots[start:end]
        worker, workers = (slots[0].session.number, ()) if len(slots) == 1 else _workers_of(slots)
        entry = Ack(
            self.name,
            acking.queue_id,
            acking.numbers[start:end],
            acking.tokens[start:end],
            [],
            {at - start: uid for at, uid in acking.foreign.items() if start <= at < end} if acking.foreign else {},
            worker=worker,
            door=acking.door,
            workers=workers,
        )
        return Proposal(entry, AckTickets(slots, acking.keep_leased))

    def _entry_of(self, run: Run) -> Publish:
        assert len(run.drafts) == len(run.slots), "each publish has one slot"
        slots = run.slots
        if run.session_id or len(slots) == 1:  # a client that has connected again within a round is one client
            worker = slots[-1].session.number
            workers: Sequence[int] = ()
        else:
            worker, workers = _workers_of(slots)
        return Publish(
            self.name,
            run.drafts,
            session=run.session_id,
            ordinals=run.ordinals,
            door=run.door,
            worker=worker,
            workers=workers,
            alike=run.is_alike,
        )

    # --- what the log is to have -------------------------------------------------------------------------------------

    def _put(self, rank: Rank, entry: Entry | Run | Acking, ticket: Any = None) -> None:
        if self.outgoing is None:
            self.outgoing = []
        self.outgoing.append(Outgoing(rank, entry, ticket))
        self.services.raft_log.enlist(self)

    def propose(self, entry: Entry, ticket: Any = None, *, behind_acks: bool = False) -> None:
        """Have an entry in the next write of the log, before the acknowledgements of this queue or behind them."""
        changes_all = isinstance(entry, CreateQueue | UpdateQueue | DeleteQueue | PurgeQueue | PauseQueue)
        if changes_all or isinstance(entry, Stash | Unstash) or (type(entry) is Ack and entry.publishes):
            self._put(Rank.BEHIND, entry, ticket)
        else:
            self._put(Rank.ACK if behind_acks else Rank.BEFORE, entry, ticket)

    def note_delivered(
        self, numbers: list[int], untils_ms: list[int], first: int, workers: Sequence[int], door: int
    ) -> None:
        """Have deliveries in the log that nobody waits for: they ride with what is written next."""
        queue_id = self.ledger.id
        if self.delivering is None:
            self.delivering = []
        last = self.delivering[-1] if self.delivering else None
        if (
            last is not None
            and last.queue_id == queue_id
            and last.door == door
            and last.first_sequence + len(last.numbers) == first
            and len(last.numbers) + len(numbers) <= ENTRY_MESSAGES_MAX
        ):
            last.numbers += numbers
            last.untils_ms += untils_ms
            last.workers += workers
        else:
            self.delivering.append(Delivering(queue_id, door, first, numbers, untils_ms, list(workers)))
        self.services.raft_log.enlist(self, lazy=True)

    def propose_delivered(
        self, numbers: list[int], untils_ms: list[int], first: int, workers: list[int], door: int, ticket: Any
    ) -> None:
        """Have deliveries in the log that leave only when that is committed."""
        worker, each = _one_or_each(workers)
        entry = Delivered(self.name, self.ledger.id, numbers, untils_ms, first, worker, door, each)
        self._put(Rank.BEFORE, entry, ticket)

    def put_entries(self, items: list[Proposal], behind: list[Proposal]) -> None:
        """Add what this queue wants of this write of the log, and what must stand behind all queues' entries.

        If this fails, what was added does not count, and everything is still here.
        """
        for sent in self.delivering or ():
            worker, workers = (sent.workers[0], ()) if len(sent.workers) == 1 else _one_or_each(sent.workers)
            entry = Delivered(
                self.name, sent.queue_id, sent.numbers, sent.untils_ms, sent.first_sequence, worker, sent.door, workers
            )
            items.append(Proposal(entry))
        outgoing = self.outgoing
        if outgoing is None:
            self.delivering = None
            return
        if not self.ledger.id:  # the log may refuse all of it, or it may be about a queue that is unknown
            self.services.later(DESERTED_AFTER_S, lambda: fetching.end_if_deserted(self))
        if len(outgoing) > 1:
            outgoing.sort(key=_rank_of)
        for wanted in outgoing:
            one = wanted.entry
            if type(one) is Run and len(one.drafts) == 1:
                items.append(Proposal(self._entry_of(one), Tickets(one.slots)))
            elif type(one) is Acking and len(one.numbers) == 1:
                items.append(self._ack_of(one, 0, 1))
            else:
                (behind if wanted.rank is Rank.BEHIND else items).extend(self._entries_of(wanted))
        self.delivering = self.outgoing = None

    def _take_entries(self, refusal: Refusal) -> list[Proposal]:
        """Return what this queue wants of the log; refuse what no entry can be made of, which was never in it."""
        delivering, outgoing = self.delivering or [], self.outgoing or []
        with suppress(Exception):
            return self._made()
        # One by one, for they fail together; whoever has this queue end has logged why.
        entries: list[Proposal] = []
        for sent in delivering:
            self.delivering, self.outgoing = [sent], None
            with suppress(Exception):
                entries += self._made()
        for wanted in sorted(outgoing, key=_rank_of):
            self.delivering, self.outgoing = None, [wanted]
            try:
                entries += self._made()
            except Exception:
                slots = wanted.entry.slots if isinstance(wanted.entry, Run | Acking) else _answered_by(wanted.ticket)
                for slot in slots:
                    slot.tell(refusal)
        self.delivering = self.outgoing = None
        return entries

    def _made(self) -> list[Proposal]:
        items: list[Proposal] = []
        behind: list[Proposal] = []
        self.put_entries(items, behind)
        return items + behind

    def refuse_filed(self, refusal: Refusal) -> None:
        """Nothing that was filed or waits for the log was ever in it: refuse all of it."""
        filed = self.lanes.take()
        if filed is not None:
            for slot in filed.slots():
                slot.tell(refusal)
            for order in filed.orders:
                refuse_order(order, refusal)
        for proposal in self._take_entries(refusal):
            if proposal.reply_to is not None:
                proposal.reply_to.tell(refusal)

    def on_propose(self, order: orders.Propose) -> None:
        """A change that the conversation has made an entry of."""
        self.propose(order.entry, order.asker)

    # --- crashes -----------------------------------------------------------------------------------------------------

    def on_abandon(self, message: Abandon) -> None:
        """An entry that this queue has applied in part was set aside: start again without it."""
        raise Abandoned(f"entry {message.index} was set aside")

    def on_failure(
        self, exception_type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        reason = f"{type(value).__name__}: {value}"
        try:
            self._last_words()
        finally:  # whatever state it is in: nobody else would tell the supervisor
            self.supervisor.tell(Crashed(self.name, self, self.applying, reason, value))

    def _last_words(self) -> None:
        """Leave nobody waiting: wake sleepers, answer waiting fetches with nothing, and the mail that is not handled.

        What was committed needs no answer from here: the rebuilt queue is told it again, and answers.  What waits for
        the log goes there as it is: it may hold deliveries whose answers have left.
        """
        busy = Refusal("BUSY", f"queue {self.name} is being rebuilt; try again")
        entries = self._take_entries(busy)
        if entries:
            self.services.raft_log.enter(entries)
        in_the_log = {id(one) for proposal in entries for one in _answered_by(proposal.reply_to)}
        reading.give_up_reads(self, f"queue {self.name} is being rebuilt")
        if self.leases is not None:
            woken = Woken(self.name)
            for session in (*self.leases.sleepers, *self.leases.woken):
                session.tell(woken)
            for waiter in self.leases.all_waits():
                waiter.asker.tell(None)
        in_hand = self.in_hand
        if in_hand is not None:
            for slot in in_hand.reads:
                if id(slot) not in in_the_log:
                    slot.is_woken = fetching.is_sleep(slot)  # the rebuilt queue would not know that it sleeps
                    slot.tell(None)
            in_hand.reads = []
            for asker in in_hand.slots():
                if id(asker) not in in_the_log:
                    asker.tell(busy)
            for order in in_hand.orders:
                if in_the_log.isdisjoint(map(id, _answered_by(getattr(order, "asker", order)))):
                    refuse_order(order, busy)
        for message in (self.handling, *self.unread):
            if isinstance(message, ASKED):
                message.asker.tell(busy)

    # --- what is committed -------------------------------------------------------------------------------------------

    def apply(self, items: Sequence[LogItem]) -> None:
        """Apply committed entries in the order of the log, and put their outcomes where they are waited for."""
        outcomes: list[tuple[Any, int, Results]] = []
        is_changed = False  # somebody may have to be served or woken, or something becomes due
        leases, ledger = self.leases, self.ledger
        for item in items:
            index, entry, ticket = item.index, item.entry, item.reply_to
            self.applying = index
            kind = type(entry)
            results = _APPLY[kind](self, entry, index, item.term, item.at_ms)
            queue_id = self.ledger.id
            if type(results) is not range:
                self._note_unchanged(entry, index, results)
                if type(results) is Repeated:
                    queue_id = results.queue_id
            if kind is Publish:
                is_changed |= leases is not None and (leases.has_audience or not ledger.only_sizes)
            else:
                is_changed |= kind not in SETTLED or (kind is Ack and any(results))
            if type(ticket) is AnswerOnCommit:
                self._answer_on_commit(ticket, entry, results)  # at once: a later entry may end the incarnation
            elif type(ticket) is SharesOnCommit:
                self._share_on_commit(ticket, entry, results)
            elif ticket is not None:
                outcomes.append((ticket, queue_id, results))
        self.applying = 0
        leases = self.leases  # a purge makes new ones
        if is_changed and leases is not None and not leases.is_at_rest:
            fetching.settle(self, self.now_ms())  # before the outcomes: who waits for a message hears first
        if outcomes:
            self._tell_outcomes(outcomes)

    def _tell_outcomes(self, outcomes: list[tuple[Any, int, Results]]) -> None:
        """Put what became of entries where it is waited for."""
        for ticket, queue_id, results in outcomes:
            kind = type(ticket)
            if kind is Tickets:
                if type(results) is range:
                    for slot, uid in zip(ticket.slots, published_uids(queue_id, results), strict=True):
                        slot.tell(uid)
                else:
                    rows = zip(ticket.slots, published_uids(queue_id, results), results, strict=True)
                    for slot, uid, code in rows:
                        slot.tell(uid or code)
            elif kind is AckTickets:
                for slot, code in zip(ticket.slots, results, strict=True):
                    slot.tell(int(code))
            else:
                ticket.tell(Outcome(self.name, queue_id, results))

    def _note_unchanged(self, entry: Entry, index: int, results: Results) -> None:
        """Note which parts of an entry changed nothing, for readers of the log (the pipeline's history)."""
        if type(results) is list:
            if results and min(results) < 0:
                self.note(_refusals_in(entry, index, results))
        else:
            assert isinstance(entry, Publish), "only what is published can be repeated"
            self.note([(index, place, code) for place, code in unchanged(results, len(entry.drafts))])

    def note(self, notes: list[Note]) -> None:
        """Note what did not do what its entry asks for, for readers of the log."""
        if self.unchanged:
            self.unchanged += notes
        else:
            self.unchanged = notes

    def _answer_on_commit(self, ticket: AnswerOnCommit, entry: Entry, results: Results) -> None:
        """Give an answer that had to wait for its entry to be committed."""
        assert isinstance(entry, Delivered | Extended | Ack), "no other answer waits"
        waiter = ticket.waiter
        if waiter in self.promised:
            del self.promised[waiter]
        answer = None
        if entry.queue_id == self.ledger.id:
            # Some of these messages may have been removed meanwhile: the session gets the others.
            answer = ticket.answer if type(entry) is Extended else _without_refused(ticket.answer, results)
        if answer is not None:
            ticket.asker.tell(answer)
        elif waiter is not None:  # none is left, perhaps because the queue was emptied
            fetching.wait_on(self, waiter, self.now_ms())
        else:
            ticket.asker.tell(ticket.if_void)

    def _share_on_commit(self, ticket: SharesOnCommit, entry: Entry, results: Results) -> None:
        """Give each of several fetches its share of a delivery that had to wait for its entry to be committed."""
        assert isinstance(entry, Delivered), "no other answers are shared"
        at, is_ours = 0, entry.queue_id == self.ledger.id
        for slot, count in zip(ticket.slots, ticket.counts, strict=True):
            share, codes = ticket.deliveries[at : at + count], results[at : at + count]
            slot.tell((_without_refused(share, codes) if share and is_ours else None) or None)
            at += count

    def _apply_publish(self, entry: Publish, index: int, term: int, at_ms: int) -> Results:
        results = numbers = self.ledger.publish(entry, at_ms)
        drafts: Sequence[Draft] = entry.drafts
        if type(results) is not range:  # not all of them are new
            numbers, drafts = new_numbers(results), new_drafts(results, drafts)
        if numbers:
            self.bodies.publish(numbers, drafts, at_ms)
            if self.leases is not None:
                self.leases.published(numbers, at_ms, self.now_ms)
        return results

    def _apply_delivered(self, entry: Delivered, index: int, term: int, at_ms: int) -> Results:
        return self.ledger.deliver(entry, term)

    def _apply_extended(self, entry: Extended, index: int, term: int, at_ms: int) -> Results:
        return self.ledger.extend(entry)

    def _apply_released(self, entry: Released, index: int, term: int, at_ms: int) -> Results:
        results = self.ledger.release(entry)
        if self.leases is not None:
            for number, code in zip(entry.numbers, results, strict=True):
                if code == Result.DONE:
                    self.leases.came_back(number, self.now_ms())
                else:
                    self.leases.stays([number], self.now_ms())
        return results

    def _apply_ack(self, entry: Ack, index: int, term: int, at_ms: int) -> Results:
        results = self.ledger.acknowledge(entry)
        numbers = self.ledger.resolved(entry)
        if self.ledger.cancelled:
            self.note([(index, place, int(Result.CANCELLED)) for place in self.ledger.cancelled])
        if entry.foreign:  # the entry has only their uids, so readers of the log need the numbers
            self.note([(index, place, numbers[place]) for place in entry.foreign if numbers[place] > 0])
        gone = numbers if not any(results) else [n for n, code in zip(numbers, results, strict=True) if not code]
        self.remove(gone)
        if self.leases is not None and len(gone) < len(numbers) and entry.queue_id in (self.ledger.id, REFUSED_ID):
            self.leases.stays([n for n, code in zip(numbers, results, strict=True) if code], self.now_ms())
        return results

    def _apply_expired(self, entry: Expired, index: int, term: int, at_ms: int) -> Results:
        results = self.ledger.expire(entry, at_ms)
        self.remove([n for n, code in zip(entry.numbers, results, strict=True) if not code])
        if self.leases is not None and any(results):
            self.leases.stays([n for n, code in zip(entry.numbers, results, strict=True) if code], self.now_ms())
        return results

    def remove(self, numbers: list[int]) -> None:
        """Drop what a queue process knows of messages that left the ledger."""
        stored = self.bodies.remove(numbers)
        if stored:
            aliased = self.ledger.aliased  # imported messages: the ledger hands over their uids itself
            gone = [number for number in stored if number not in aliased] if aliased else stored
            if self.stored_gone:
                self.stored_gone += gone
            else:
                self.stored_gone = gone
        if self.leases is not None:
            self.leases.removed(numbers)

    def _apply_create(self, entry: Entry, index: int, term: int, at_ms: int) -> Results:
        self.created_ms = at_ms
        self._begin(index, entry.policies)  # type: ignore[union-attr]
        return [Result.DONE]

    def _apply_update(self, entry: UpdateQueue, index: int, term: int, at_ms: int) -> Results:
        before = self.ledger.policies
        after = changed(before, entry.changes)
        self.ledger.obey(after)
        line = ("structure", "priority_min", "priority_max")
        if self.leases is not None and any(getattr(before, name) != getattr(after, name) for name in line):
            self.leases.order_again()
        if self.leases is not None and before.on_disconnect != after.on_disconnect == "release":
            self.leases.holders.note_all()
        return [Result.DONE]

    def _apply_delete(self, entry: DeleteQueue, index: int, term: int, at_ms: int) -> Results:
        count = self.ledger.living
        self.ledger.forget_publishers()
        self.ledger.paused_until_ms = 0
        self._begin(0, Policies())
        self.promised = EMPTY_DICT  # a delivery that is committed after this one comes to nothing
        if self.leases is not None:
            is_awaited = self.runtime.groups.count(("subscribers", self.name)) > 0  # then fetches see it as empty
            answer = None if is_awaited else Refusal("Q_NOT_FOUND", f"queue {self.name} was deleted")
            for waiter in self.leases.all_waits():
                fetching.end_wait(self, waiter, answer)
        return [count]

    def _apply_purge(self, entry: PurgeQueue, index: int, term: int, at_ms: int) -> Results:
        count = self.ledger.living
        self._begin(index, self.ledger.policies)
        return [count]

    def _begin(self, queue_id: int, policies: Policies) -> None:
        """Start an empty incarnation; sleepers and waiters stay."""
        reading.give_up_reads(self, "the queue was emptied or deleted meanwhile")
        self.stored_gone = ()  # the state store removes the whole incarnation (its Grave); the ledger knows the rest
        self.ledger.begin(queue_id, policies)
        self.bodies.clear()
        self.is_creating = False
        if self.leases is not None:
            self.leases = self.leases.for_new_incarnation(self.now_ms())

    def judge(self, part: Ack | Publish) -> int:
        """Return 0 if this part of an entry that names several queues would be applied, else why not."""
        return self.ledger.judge(part) if isinstance(part, Publish) else self.ledger.judge_ack(part)

    # --- names -------------------------------------------------------------------------------------------------------

    def uids_of(self, numbers: Sequence[int]) -> list[str]:
        maker, aliased = maker_of(self.ledger.id), self.ledger.aliased
        if not aliased:
            return maker.uids(numbers)
        return [aliased.get(number) or maker.uid(number) for number in numbers]

    def number_of(self, uid: str) -> int:
        """Return the number of a uid of this incarnation, -1 for any other."""
        parsed = parse(uid)
        if parsed is not None and parsed[0] == self.ledger.id:
            return parsed[1]
        return self.ledger.aliases.get(uid, -1)

    # --- the state store ---------------------------------------------------------------------------------------------

    def restore(self, stored: StoredQueue) -> None:
        """Take back the stored state; only before any mail."""
        meta = restore_ledger(self.ledger, stored)
        self.created_ms = meta.created_ms

    def on_collect(self, message: Collect) -> None:
        """Hand over what changed since the last cut."""
        gone: Sequence[int] = self.stored_gone
        notes: Sequence[Note] = self.unchanged
        self.stored_gone = self.unchanged = ()
        meta = QueueMeta.of(self.ledger, self.created_ms)
        part = part_of(self.ledger, *self.bodies.collect(), gone, self.uids_of, meta)
        message.reply_to.tell(Collected(message.cut, part, notes))

    def on_flushed(self, message: Flushed) -> None:
        line = self.leases.next_numbers if self.leases is not None else lambda count: []
        self.bodies.flushed(line, message.bodies_bytes_max)


def _rank_of(wanted: Outgoing) -> Rank:
    return wanted.rank


def _workers_of(slots: Sequence[Any]) -> tuple[int, Sequence[int]]:
    """Return the connection of all slots, or 0 and that of each."""
    return _one_or_each([slot.session.number for slot in slots])


def _one_or_each(workers: list[int]) -> tuple[int, Sequence[int]]:
    first = workers[0]
    return (first, ()) if workers.count(first) == len(workers) else (0, workers)


def _parts_of(run: Run) -> list[Run]:
    """Cut a run that is too large for one entry."""
    parts: list[Run] = []
    start = size = 0
    for place, draft in enumerate(run.drafts):
        if place > start and (place - start >= ENTRY_MESSAGES_MAX or size + len(draft.body) > ENTRY_BYTES_MAX):
            parts.append(_part_of(run, start, place))
            start, size = place, 0
        size += len(draft.body)
    return [*parts, _part_of(run, start, len(run.drafts))]


def _part_of(run: Run, start: int, end: int) -> Run:
    ordinals = run.ordinals[start:end]
    about = run.position, run.door, run.session_id, run.is_alike
    return Run(*about, run.drafts[start:end], ordinals, run.slots[start:end])


def _answered_by(ticket: Any) -> Sequence[Any]:
    """Return what gets the answers of a ticket, or of an order: slots, or actors that ask by mail."""
    match ticket:
        case Tickets() | AckTickets() | SharesOnCommit():
            return ticket.slots
        case AckTicket(asker=asker) | AnswerOnCommit(asker=asker):
            return _answered_by(asker)
        case SeveralResults(slot=slot) | AckSeveral(slot=slot):
            return (slot,)
    return () if ticket is None else (ticket,)


def refuse_order(order: Any, refusal: Refusal) -> None:
    """Refuse an order, if it wants an answer; that of a fetch that waits is its own affair."""
    if isinstance(order, orders.EndWait):
        return
    if isinstance(order, AckSeveral):
        order.slot.tell(refusal)
    elif (asker := getattr(order, "asker", None)) is not None:
        asker.tell(refusal)


def _without_refused(answer: Any, codes: Sequence[int]) -> Any:
    """Return an answer without the messages that were refused; None if none is left."""
    if min(codes) >= 0:
        return answer
    done = [code >= 0 for code in codes]
    if not any(done):
        return None
    return answer.only(done) if type(answer) is HandedOver else list(compress(answer, done))


def _refusals_in(entry: Entry, index: int, results: list[int]) -> list[Note]:
    """Return a note for each item of an entry that was refused, by its place in the entry.

    The results of a claim are not always one for each item: a renewal has no items, and what a staging claim passed
    over is noted elsewhere (`staging.note_passed_over`).
    """
    if type(entry) is Claim:
        results = [] if entry.action is ClaimAction.STAGED else results[: len(entry.numbers)]
    return [(index, place, code) for place, code in enumerate(results) if code < 0]


_HANDLERS: dict[type, Callable[[QueueProcess, Any], None]] = {
    TakeTurn: QueueProcess.on_turn,
    AckSeveral: QueueProcess.on_ack_several,
    orders.Acknowledge: QueueProcess.on_acknowledge,
    orders.Propose: QueueProcess.on_propose,
    orders.Fetch: fetching.on_fetch,
    Staying: fetching.on_staying,
    orders.EndWait: fetching.on_end_wait,
    orders.Touch: ending.on_touch,
    orders.Nack: ending.on_nack,
    Unsent: ending.on_unsent,
    Gone: ending.on_gone,
    Alarm: ending.on_alarm,
    Loaded: reading.on_loaded,
    Collect: QueueProcess.on_collect,
    Flushed: QueueProcess.on_flushed,
    Abandon: QueueProcess.on_abandon,
    orders.Peek: looking.on_peek,
    orders.Stats: looking.on_stats,
    Scan: looking.on_scan,
    Why: looking.on_why,
    Move: operating.on_move,
    Requeue: operating.on_requeue,
    Answered: operating.on_answered,
    Lead: fetching.on_lead,
    Follow: fetching.on_follow,
    orders.Stage: staging.on_stage,
    orders.ReadSlice: staging.on_read_slice,
    orders.Renew: staging.on_renew,
    orders.Settle: staging.on_settle,
    orders.PeekBlock: staging.on_peek_block,
}

_APPLY: dict[type, Callable[[QueueProcess, Any, int, int, int], Results]] = {
    Publish: QueueProcess._apply_publish,
    Delivered: QueueProcess._apply_delivered,
    Extended: QueueProcess._apply_extended,
    Released: QueueProcess._apply_released,
    Ack: QueueProcess._apply_ack,
    Expired: QueueProcess._apply_expired,
    CreateQueue: QueueProcess._apply_create,
    UpdateQueue: QueueProcess._apply_update,
    DeleteQueue: QueueProcess._apply_delete,
    PurgeQueue: QueueProcess._apply_purge,
    PauseQueue: operating.apply_paused,
    Requeued: operating.apply_requeued,
    Claim: staging.apply_claim,
    Stash: staging.apply_stash,
    Unstash: staging.apply_unstash,
}
