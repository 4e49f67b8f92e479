"""QueueProcess: one queue.

    lanes --> the turn: mark what is acknowledged, serve reads, do orders --> Outgoing --> the log collects entries
    committed entries --> apply: ledger, leases --> outcomes into slots, sleepers woken

A queue has two halves.  Its ledger says which messages there are: only committed entries change it, so every node has
the same one.  Its leases say who holds which message, who waits and who sleeps: only the leader has them.

The state is here, in one place, and so are the turn, the mail table and the apply table.  What is done with the state
stands in modules of functions, named for what they do; `__init__` lists them.  The process never touches a file: bodies
that are no longer in memory arrive as mail from the reader thread.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import GeneratorType, TracebackType
from typing import Any

import msgspec

from wakeq.actors.mail import (
    Answered,
    CollectChanges,
    Collected,
    Crashed,
    Flushed,
    Follow,
    Gone,
    KeepLeased,
    Loaded,
    LogItem,
    RestartWithoutEntry,
    Unsent,
)
from wakeq.actors.queue import (
    acknowledging,
    answering,
    crashing,
    ending,
    fetching,
    incarnations,
    leading,
    looking,
    operating,
    outgoing,
    reading,
    staging,
    waiting,
)
from wakeq.actors.queue.acknowledging import REFUSED_ID
from wakeq.actors.queue.crashing import Abandoned
from wakeq.actors.queue.fetching import DelayedFetch
from wakeq.actors.queue.leading import Lead
from wakeq.actors.queue.reading import BODIES_AHEAD, BodyLookup, QueueProcessServices
from wakeq.actors.queue.state import QueueMeta, delta_of, restore_ledger
from wakeq.actors.queues.lobby import TAKE_TURN, TakeTurn
from wakeq.actors.runtime import Alarm, Process
from wakeq.actors.sessions.operator_mail import Held, ListClaims, Move, Requeue, Scan, Show, Why
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import (
    Ack,
    Claim,
    CreateQueue,
    DeleteQueue,
    Delivered,
    Draft,
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
    AckSeveral,
    AckTickets,
    AnswerOnCommit,
    Delivering,
    Filed,
    Outgoing,
    SharesOnCommit,
    Tickets,
)
from wakeq.protocol.queue.leases.audience import NEVER, WaitingFetch
from wakeq.protocol.queue.leases.leases import Leases
from wakeq.protocol.queue.ledger.ledger import Ledger
from wakeq.protocol.queue.ledger.publishers import Limits, Repeated, new_drafts, new_numbers, published_uids
from wakeq.protocol.queue.outcomes import Outcome, Refusal
from wakeq.protocol.queue.steps import STEP_MESSAGES, Steps, slices
from wakeq.protocol.queue.timings import Timings
from wakeq.protocol.uid import maker_of, parse
from wakeq.storage.state.checkpoint import StoredQueue

NOTHING_NEW = frozenset({Delivered, Ack})  # after these entries nothing is ready or due that was not before


class LongApply(msgspec.Struct):
    """An entry that is being applied in steps."""

    # What is left to do; its value is what became of the entry.
    steps: Steps[Results]
    # The entry, and those that come behind it in the same call.
    items: Sequence[LogItem]
    # What arrived meanwhile: mail waits for the last step.
    mail: list[Any]


class QueueProcess(Process):
    """One queue by name, through all its incarnations.

    It exists before the queue does if somebody waits for it: then it has only sleepers and waiters.
    """

    __slots__ = (
        "ahead", "alarm_ms", "applying", "bodies", "counted_from", "created_ms", "delayed_fetches",
        "delivering", "handling", "in_hand", "is_creating", "is_reading_ahead", "lanes", "leases", "ledger",
        "lookups", "marked_ahead", "name", "now_ms", "oldest", "outgoing", "promised", "services", "since_read",
        "steps", "stored_gone", "supervisor", "term", "timings", "unchanged", "wakes",
    )  # fmt: skip

    def __init__(self, name: str, services: QueueProcessServices, limits: Limits, supervisor: Process) -> None:
        super().__init__()
        self.name = name
        self.services = services  # the log, timers, the reader of bodies, settings
        self.supervisor = supervisor  # hears when the process crashes or is not needed any more
        self.now_ms = services.now_ms  # the cluster clock
        # What the log knows, alike on every node.
        self.ledger = Ledger(name, 0, Policies(), limits, services.sums)  # which messages there are
        self.created_ms = 0  # when this incarnation, or the first of a purged queue, began
        self.bodies = Bodies()  # those in memory
        # What only the leader knows.
        self.leases: Leases | None = None  # who has which message, who waits and sleeps; None: this node follows
        self.term = 0  # in which this node leads, 0 while it does not
        self.delayed_fetches: deque[DelayedFetch] = EMPTY_DICT  # that wait for bodies to be read, in their order
        self.promised: dict[WaitingFetch, None] = EMPTY_DICT  # those whose strict delivery is being committed
        self.is_creating = False  # a CreateQueue with this node's defaults is on its way through the log
        self.alarm_ms = NEVER  # for when the next alarm is set; never later than anything that ends or becomes due
        self.wakes = 0  # sleepers that were woken
        self.timings: Timings | None = None  # of what this node has delivered; made by the first delivery
        self.counted_from = (0, 0)  # wakes, and sequence of leases, when this node began to lead
        # What is wanted, and what is on its way.
        self.lanes = services.lobby.lanes_of(name)  # what was filed; they outlive this process
        self.in_hand: Filed | None = None  # what was taken out of the lanes in this turn and is not done yet
        self.marked_ahead: set[int] = EMPTY_SET  # by acknowledgements of this turn whose place has not come
        self.outgoing: list[Outgoing] | None = None  # what waits for the next write of the log ...
        self.delivering: list[Delivering] | None = None  # ... and before all of it, deliveries that have left
        self.handling: Any = None  # the mail that is being handled
        self.applying = 0  # index of the entry that is being applied, 0 for none
        self.steps: LongApply | None = None  # the entry that is being applied in steps, if there is one
        # Since the last flush to the state store.
        self.stored_gone: list[int] | tuple[()] = ()  # numbers that the state store has to remove
        self.unchanged: list[Note] | tuple[()] = ()  # what changed nothing, for readers of the log
        # Bodies that are read.
        self.lookups: dict[int, BodyLookup] = EMPTY_DICT  # that wait for a read, by their identity
        self.is_reading_ahead = False  # a read for nobody in particular is under way
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
        return leases is None or not (leases.audience.sleepers or leases.audience.woken or leases.audience.all_waits())

    def refusal(self) -> Refusal | None:
        """Return why this node may not answer now; to be asked in the same turn as it delivers."""
        found = self.services.refusal()
        if found is None and self.leases is None:
            return Refusal("BUSY", f"queue {self.name} is not ready yet; try again")
        return found

    def on_receive(self, message: Any) -> None:
        if self.steps is not None:  # nobody may look at the queue between two steps, or change it
            self.steps.mail.append(message)
            return
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
        filed = self.lanes.filed
        if filed is None:
            return
        self.lanes.filed = None  # what is filed from now on is for the next turn
        self.in_hand = filed
        if filed.acks or filed.orders:
            acknowledging.mark_acknowledged(self, filed)
        only_writes = not (filed.reads or filed.orders)
        if filed.reads:
            fetching.serve(self, filed)
        while filed.orders:
            order = filed.orders[0]
            _HANDLERS[type(order)](self, order)
            del filed.orders[0]
        if filed.publishes:
            outgoing.take_publishes(self, filed)
        self.in_hand = None
        leases = self.leases
        if not only_writes and leases is not None:  # writes change nothing before they are committed
            audience = leases.audience
            if audience.waiters or audience.sleepers or audience.woken or leases.next_ms < self.alarm_ms:
                waiting.serve_and_wake(self, self.now_ms())
        if not self.ledger.id and self.is_deserted:
            waiting.end_if_deserted(self)

    # --- what the log is to have -------------------------------------------------------------------------------------

    put_entries = outgoing.put_entries  # called when the log collects
    refuse_filed = crashing.refuse_filed  # called while this node may not take anything

    def on_propose(self, order: orders.Propose) -> None:
        """A change that the conversation has made an entry of."""
        outgoing.propose(self, order.entry, order.asker)

    # --- crashes -----------------------------------------------------------------------------------------------------

    def on_restart_without_entry(self, message: RestartWithoutEntry) -> None:
        """An entry that this queue has applied in part was set aside: start again without it."""
        raise Abandoned(f"entry {message.index} was set aside")

    def on_failure(
        self, exception_type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        reason = f"{type(value).__name__}: {value}"
        try:
            crashing.leave_last_words(self)
        finally:  # whatever state it is in: nobody else would tell the supervisor
            self.supervisor.tell(Crashed(self.name, self, self.applying, reason, value))

    # --- what is committed -------------------------------------------------------------------------------------------

    def apply(self, items: Sequence[LogItem], applied: Results | None = None) -> None:
        """Apply committed entries in the order of the log, and put their outcomes where they are waited for.

        The first one may have been applied in steps already; then `applied` is what became of it.
        One about very many messages is only begun: the rest of it, and all that stands behind it, is done by `step`.
        """
        outcomes: list[tuple[Any, int, Results]] = []
        is_changed = False  # somebody may have to be served or woken, or something becomes due
        left = iter(items)
        for item in left:
            index, entry, ticket = item.index, item.entry, item.reply_to
            self.applying = index
            kind = type(entry)
            results: Any = _APPLY[kind](self, entry, index, item.term, item.at_ms) if applied is None else applied
            applied = None
            if type(results) is GeneratorType:
                if outcomes or is_changed:  # what stands before it has its outcomes first
                    self._serve_and_answer(outcomes, is_changed)
                    outcomes, is_changed = [], False
                    self.applying = index
                results = self._begin(results, item, left)
                if results is None:
                    return
            queue_id = self.ledger.id
            if type(results) is list:
                if results and min(results) < 0:
                    self.note(answering.refusals_in(entry, index, results))
            elif type(results) is not range:
                answering.note_repeated(self, entry, index, results)
                if type(results) is Repeated:
                    queue_id = results.queue_id
            is_changed |= kind not in NOTHING_NEW or (kind is Ack and any(results))
            if type(ticket) is AnswerOnCommit:
                # At once: a later entry may end the incarnation.
                answering.answer_on_commit(self, ticket, entry, results)
            elif type(ticket) is SharesOnCommit:
                answering.share_on_commit(self, ticket, entry, results)
            elif ticket is not None:
                outcomes.append((ticket, queue_id, results))
        self._serve_and_answer(outcomes, is_changed)

    def _begin(self, steps: Steps[Results], item: LogItem, behind: Iterator[LogItem]) -> Results | None:
        """Take the first step of applying an entry; return what became of it if that was all."""
        try:
            next(steps)
        except StopIteration as end:
            results: Results = end.value
            return results
        self.steps = LongApply(steps, [item, *behind], self.steps.mail if self.steps is not None else [])
        return None

    def step(self) -> None:
        """Take the next step of applying an entry; behind the last one comes what had to wait for it."""
        taken = self.steps
        assert taken is not None, "it was begun"
        try:
            next(taken.steps)
        except StopIteration as end:
            results = end.value
        else:
            return
        self.apply(taken.items, results)
        if self.steps is taken:  # else another entry has to be applied in steps
            self.steps = None
            if self._mail:  # what came since its last turn is behind what was held: Follow and Lead keep their order
                self._mail.extendleft(reversed(taken.mail))
            else:
                for message in taken.mail:
                    self.tell(message)

    def _serve_and_answer(self, outcomes: list[tuple[Any, int, Results]], is_changed: bool) -> None:
        """Serve who waits, and put what became of entries where it is waited for."""
        self.applying = 0
        leases = self.leases  # a purge makes new ones
        if leases is not None:
            audience = leases.audience
            is_awaited = is_changed and (audience.waiters or audience.sleepers or audience.woken)
            if is_awaited or leases.next_ms < self.alarm_ms:
                waiting.serve_and_wake(self, self.now_ms())  # before the outcomes: who waits for a message hears first
        for ticket, queue_id, results in outcomes:
            kind = type(ticket)
            if kind is Tickets:
                if type(results) is range:
                    for slot, uid in zip(ticket.slots, maker_of(queue_id).uids(results), strict=True):
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

    def note(self, notes: list[Note]) -> None:
        """Note what did not do what its entry asks for, for readers of the log."""
        if self.unchanged:
            self.unchanged += notes
        else:
            self.unchanged = notes

    def _apply_publish(self, entry: Publish, index: int, term: int, at_ms: int) -> Results | Steps[Results]:
        if len(entry.drafts) > STEP_MESSAGES:
            return self._publish_in_steps(entry, at_ms)
        results = numbers = self.ledger.publish(entry, at_ms)
        drafts: Sequence[Draft] = entry.drafts
        if type(results) is not range:  # not all of them are new
            numbers, drafts = new_numbers(results), new_drafts(results, drafts)
        if numbers:
            self.bodies.publish(numbers, drafts, at_ms)
            if self.leases is not None:
                self.leases.add_published(numbers, at_ms, self.now_ms)
        return results

    def _publish_in_steps(self, entry: Publish, at_ms: int) -> Steps[Results]:
        results = numbers = yield from self.ledger.publish_in_steps(entry, at_ms)
        drafts: Sequence[Draft] = entry.drafts
        if type(results) is not range:  # not all of them are new
            numbers, drafts = new_numbers(results), new_drafts(results, drafts)
        if numbers:
            self.bodies.publish(numbers, drafts, at_ms)
            for among in slices(len(numbers)) if self.leases is not None else ():
                yield
                assert self.leases is not None, "nothing changes between two steps"
                self.leases.add_published(numbers[among], at_ms, self.now_ms)
        return results

    def _apply_delivered(self, entry: Delivered, index: int, term: int, at_ms: int) -> Results:
        return self.ledger.deliver(entry, term)

    def _apply_ack(self, entry: Ack, index: int, term: int, at_ms: int) -> Results:
        results = self.ledger.acknowledge(entry)
        numbers = self.ledger.resolved(entry) if entry.foreign else entry.numbers
        if self.ledger.cancelled:
            self.note([(index, place, int(Result.CANCELLED)) for place in self.ledger.cancelled])
        if entry.foreign:  # the entry has only their uids, so readers of the log need the numbers
            self.note([(index, place, numbers[place]) for place in entry.foreign if numbers[place] > 0])
        gone = numbers if not any(results) else [n for n, code in zip(numbers, results, strict=True) if not code]
        stored = self.bodies.remove(gone)  # as in `remove`
        if stored:
            self._note_stored_gone(stored)
        if self.leases is not None:
            if entry.dead:
                ending.count_dead(self, entry, len(gone))
                self.leases.forget_removed(gone)
            else:
                self.leases.forget_removed(gone, self.timings, self.services.timings, at_ms)
        if self.leases is not None and len(gone) < len(numbers) and entry.queue_id in (self.ledger.id, REFUSED_ID):
            self.leases.keep_leased([n for n, code in zip(numbers, results, strict=True) if code], self.now_ms())
        return results

    def remove(self, numbers: list[int]) -> None:
        """Drop what a queue process knows of messages that left the ledger."""
        stored = self.bodies.remove(numbers)
        if stored:
            self._note_stored_gone(stored)
        if self.leases is not None:
            self.leases.forget_removed(numbers)

    def _note_stored_gone(self, stored: list[int]) -> None:
        """Note what the state store has to remove, but for imported messages, of which the ledger says the uids."""
        aliased = self.ledger.columns.aliased
        gone = [number for number in stored if number not in aliased] if aliased else stored
        if self.stored_gone:
            self.stored_gone += gone
        else:
            self.stored_gone = gone

    def judge(self, part: Ack | Publish | Unstash | Claim, at_ms: int) -> int:
        """Return 0 if this part of an entry that names several queues would be applied, else why not."""
        match part:
            case Publish():
                return self.ledger.judge(part)
            case Ack():
                return self.ledger.judge_ack(part)
            case Unstash():
                return self.ledger.judge_publish(part, at_ms)
            case Claim():
                return self.ledger.judge_published(part.reader, part.batch, part.run)

    # --- names -------------------------------------------------------------------------------------------------------

    def uids_of(self, numbers: Sequence[int]) -> list[str]:
        maker, aliased = maker_of(self.ledger.id), self.ledger.columns.aliased
        if not aliased:
            return maker.uids(numbers)
        return [aliased.get(number) or maker.uid(number) for number in numbers]

    def number_of(self, uid: str) -> int:
        """Return the number of a uid of this incarnation, -1 for any other."""
        parsed = parse(uid)
        if parsed is not None and parsed[0] == self.ledger.id:
            return parsed[1]
        return self.ledger.columns.aliases.get(uid, -1)

    # --- the state store ---------------------------------------------------------------------------------------------

    def restore(self, stored: StoredQueue) -> None:
        """Take back the stored state; only before any mail."""
        meta = restore_ledger(self.ledger, stored)
        self.created_ms = meta.created_ms
        if self.ledger.staging is not None:
            self.services.readings.note(self.name, self.ledger.staging.readings())

    def on_collect_changes(self, message: CollectChanges) -> None:
        """Hand in what changed since the last flush."""
        gone: Sequence[int] = self.stored_gone
        notes: Sequence[Note] = self.unchanged
        self.stored_gone = self.unchanged = ()
        meta = QueueMeta.of(self.ledger, self.created_ms)
        delta = delta_of(self.ledger, *self.bodies.collect(), gone, self.uids_of, meta)
        message.reply_to.tell(Collected(message.flush, delta, notes))

    def on_flushed(self, message: Flushed) -> None:
        line = self.leases.next_numbers if self.leases is not None else lambda count: []
        self.bodies.flushed(line, message.bodies_bytes_max)


_HANDLERS: dict[type, Callable[[QueueProcess, Any], None]] = {
    TakeTurn: QueueProcess.on_turn,
    AckSeveral: acknowledging.on_ack_several,
    orders.Acknowledge: acknowledging.on_acknowledge,
    orders.Propose: QueueProcess.on_propose,
    orders.Fetch: fetching.on_fetch,
    KeepLeased: waiting.on_keep_leased,
    orders.EndWait: waiting.on_end_wait,
    orders.Touch: ending.on_touch,
    orders.Nack: ending.on_nack,
    Unsent: ending.on_unsent,
    Gone: ending.on_gone,
    Alarm: ending.on_alarm,
    Loaded: reading.on_loaded,
    CollectChanges: QueueProcess.on_collect_changes,
    Flushed: QueueProcess.on_flushed,
    RestartWithoutEntry: QueueProcess.on_restart_without_entry,
    orders.Peek: looking.on_peek,
    orders.Stats: looking.on_stats,
    Scan: looking.on_scan,
    Show: looking.on_show,
    Why: looking.on_why,
    Held: looking.on_held,
    ListClaims: looking.on_list_claims,
    Move: operating.on_move,
    Requeue: operating.on_requeue,
    Answered: operating.on_answered,
    Lead: leading.on_lead,
    Follow: leading.on_follow,
    orders.Stage: staging.on_stage,
    orders.ReadSlice: staging.on_read_slice,
    orders.Renew: staging.on_renew,
    orders.Settle: staging.on_settle,
    orders.Release: staging.on_release,
    orders.PeekBlock: staging.on_peek_block,
    orders.PublishRead: staging.on_publish_read,
}

_APPLY: dict[type, Callable[[QueueProcess, Any, int, int, int], Results | Steps[Results]]] = {
    Publish: QueueProcess._apply_publish,
    Delivered: QueueProcess._apply_delivered,
    Extended: ending.apply_extended,
    Released: ending.apply_released,
    Ack: QueueProcess._apply_ack,
    Expired: ending.apply_expired,
    CreateQueue: incarnations.apply_create,
    UpdateQueue: incarnations.apply_update,
    DeleteQueue: incarnations.apply_delete,
    PurgeQueue: incarnations.apply_purge,
    PauseQueue: operating.apply_paused,
    Requeued: operating.apply_requeued,
    Claim: staging.apply_claim,
    Stash: staging.apply_stash,
    Unstash: staging.apply_unstash,
}
