"""QueueProcess: one queue.

    Committed (from Queues) --> ledger, leases --> Answered to whoever asked, Woken to sleepers
    Fetch, Touch, Nack, Sleep (from subscribers) --> leases --> Answered; Delivered, Released ... go to the log

A queue has two halves.  Its ledger says which messages there are: only committed entries change it, so every node has
the same one.  Its leases say who holds which message, who waits and who sleeps: only the leader has them.

The class is built in layers, one file each, from the bottom:

    QueueReads       what a queue is made of, and reading bodies that are not in memory
    QueueDeliveries  FET and ISLP: what is handed out, who waits, who is woken
    QueueEndings     NACK, TOUCH, timeouts, expiry, dead letters
    QueueStaging     claims and stashes, for programs that work in batches
    QueueOperations  what an operator does: pause, move, delete, release early
    QueueSight       what can be seen of it: STATS, PEEK, why
    QueueProcess     here: it applies what is committed, and says what it needs to be rebuilt when it crashes

It never touches a file: bodies that are no longer in memory arrive as mail from the reader thread.
"""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from wakeq.actors.mail import (
    Abandon,
    Answered,
    Collect,
    Collected,
    Committed,
    Crashed,
    EndWaits,
    Fetch,
    Flushed,
    Follow,
    Gone,
    HeldBack,
    Judge,
    Leaving,
    Loaded,
    Nack,
    Outcome,
    Peek,
    Refusal,
    Sleep,
    Stats,
    Subscribe,
    Touch,
    Unsent,
    Verdict,
    Woken,
)
from wakeq.actors.queue.deliveries import Lead, answer_fetch
from wakeq.actors.queue.sight import QueueSight
from wakeq.actors.queue.staging_mail import Leaf, ReadSlice, Renew, Settle, Stage
from wakeq.actors.queue.state import QueueMeta, part_of, restore_ledger
from wakeq.actors.queues.replies import Answer, Replies
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
from wakeq.protocol.queue.empty import EMPTY_DICT
from wakeq.protocol.queue.results import Repeated, new_drafts, new_numbers, unchanged
from wakeq.storage.state.cut import StoredQueue

# Messages with an `asker`, who gets exactly one answer.
ASKED = (Touch, Nack, Peek, Leaf, Stats, Stage, ReadSlice, Renew, Settle, Scan, Why, Move, Requeue)
REFUSED_ID = -1  # instead of a queue's id: an Ack that was refused as a whole, so that its messages stay


class Abandoned(Exception):
    """The process gives itself up, to be rebuilt."""


class QueueProcess(QueueSight):
    """One queue by name, through all its incarnations.

    It exists before the queue does if somebody waits for it: then it has only sleepers and waiters.
    """

    def on_receive(self, message: Any) -> None:
        self._handling = message
        _HANDLERS[type(message)](self, message)
        self._handling = None  # otherwise an idle queue would keep its whole last batch in memory

    def on_abandon(self, message: Abandon) -> None:
        """An entry that this queue has applied in part was set aside: start again without it."""
        raise Abandoned(f"entry {message.index} was set aside")

    def on_failure(
        self, exception_type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        reason = f"{type(value).__name__}: {value}"
        told = [message.items for message in (self._handling, *self.unread) if type(message) is Committed]
        unanswered = [item for items in told for item in items]
        try:
            self._last_words()
        finally:  # whatever state it is in: nobody else would tell the supervisor
            self._supervisor.tell(Crashed(self.name, self, self._applying, reason, value, unanswered))

    def _last_words(self) -> None:
        """Leave nobody waiting: wake the sleepers, answer the waiting FETs with nothing and the mail not yet handled.

        What was committed needs no answer from here: the rebuilt queue is told it again, and answers.
        """
        self._give_up_reads(f"queue {self.name} is being rebuilt")
        if self.leases is not None:
            woken = Woken(self.name)
            for subscriber in (*self.leases.sleepers, *self.leases.woken):
                subscriber.tell(woken)
            for waiter in self.leases.all_waits():
                answer_fetch(waiter, waiter, None)
        for message in (self._handling, *self.unread):
            match message:
                case Committed(replies=Replies() as replies):  # other queues' answers wait for this
                    replies.done(self.name)
                case Fetch():
                    message.tell_all(None)
                case Sleep(asker=asker):
                    asker.tell(None)
                    asker.process.tell(Woken(self.name))
                case _ if isinstance(message, ASKED):
                    asker = message.asker
                    refusal = Refusal("BUSY", f"queue {self.name} is being rebuilt; try again")
                    asker.tell(refusal)

    # --- the ring: what is committed -------------------------------------------------------------------------------

    def on_committed(self, message: Committed) -> None:
        answers: list[tuple[Process, Answer]] = []
        for index, term, at_ms, entry, asker in message.items:
            self._applying = index
            results = _APPLY[type(entry)](self, entry, index, term, at_ms)
            queue_id = self.ledger.id
            if type(results) is not range:
                self._note_unchanged(entry, index, results)
                if type(results) is Repeated:
                    queue_id = results.queue_id
            if asker is None:
                continue
            ticket = asker.ticket
            if type(ticket) is HeldBack:
                self._tell_held_back(asker.process, ticket, entry, results)
            else:
                answers.append((asker.process, (ticket, asker.place, Outcome(self.name, queue_id, results))))
        self._applying = 0
        leases = self.leases
        if leases is not None and not leases.is_at_rest:
            self._settle(self._now_ms())
        (message.replies or Replies((self.name,))).done(self.name, answers)

    def _note_unchanged(self, entry: Entry, index: int, results: Results) -> None:
        """Note which parts of an entry changed nothing, for readers of the log (the pipeline's history)."""
        if type(results) is list:
            if results and min(results) < 0:
                self._note(_refusals_in(entry, index, results))
        else:
            assert isinstance(entry, Publish), "only what is published can be repeated"
            self._note([(index, place, code) for place, code in unchanged(results, len(entry.drafts))])

    def _tell_held_back(self, subscriber: Process, ticket: HeldBack, entry: Entry, results: Results) -> None:
        """Give a subscriber an answer that had to wait for its entry to be committed."""
        assert isinstance(entry, Delivered | Extended | Ack), "nothing else is held back"
        if ticket.waiter in self._promised:
            del self._promised[ticket.waiter]
        answer = None
        if entry.queue_id == self.ledger.id:
            # Some of these messages may have been removed meanwhile: the subscriber gets the others.
            answer = ticket.answer if type(entry) is Extended else ticket.without_refused(results)
        if answer is not None:
            subscriber.tell(answer)
        elif ticket.waiter is not None:  # none is left, perhaps because the queue was emptied
            self._wait_on(ticket.waiter, self._now_ms())
        else:
            subscriber.tell(ticket.otherwise)

    def _apply_publish(self, entry: Publish, index: int, term: int, at_ms: int) -> Results:
        results = numbers = self.ledger.publish(entry, at_ms)
        drafts: Sequence[Draft] = entry.drafts
        if type(results) is not range:  # not all of them are new
            numbers, drafts = new_numbers(results), new_drafts(results, drafts)
        if numbers:
            self.bodies.publish(numbers, drafts, at_ms)
            if self.leases is not None:
                self.leases.published(numbers, at_ms, self._now_ms)
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
                    self.leases.came_back(number, self._now_ms())
                else:
                    self.leases.stays([number], self._now_ms())
        return results

    def _apply_ack(self, entry: Ack, index: int, term: int, at_ms: int) -> Results:
        results = self.ledger.acknowledge(entry)
        numbers = self.ledger.resolved(entry)
        if self.ledger.cancelled:
            self._note([(index, place, int(Result.CANCELLED)) for place in self.ledger.cancelled])
        if entry.foreign:  # the entry has only their uids, so readers of the log need the numbers
            self._note([(index, place, numbers[place]) for place in entry.foreign if numbers[place] > 0])
        gone = numbers if not any(results) else [n for n, code in zip(numbers, results, strict=True) if not code]
        self._forget(gone)
        if self.leases is not None and len(gone) < len(numbers) and entry.queue_id in (self.ledger.id, REFUSED_ID):
            self.leases.stays([n for n, code in zip(numbers, results, strict=True) if code], self._now_ms())
        return results

    def _apply_expired(self, entry: Expired, index: int, term: int, at_ms: int) -> Results:
        results = self.ledger.expire(entry, at_ms)
        self._forget([n for n, code in zip(entry.numbers, results, strict=True) if not code])
        if self.leases is not None and any(results):
            self.leases.stays([n for n, code in zip(entry.numbers, results, strict=True) if code], self._now_ms())
        return results

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
        self._promised = EMPTY_DICT  # a delivery that is committed after this one comes to nothing
        if self.leases is not None:
            is_awaited = self.runtime.groups.count(("subscribers", self.name)) > 0  # then FETs see it as empty
            answer = None if is_awaited else Refusal("Q_NOT_FOUND", f"queue {self.name} was deleted")
            for waiter in self.leases.all_waits():
                self._end_wait(waiter, answer)
        return [count]

    def _apply_purge(self, entry: PurgeQueue, index: int, term: int, at_ms: int) -> Results:
        count = self.ledger.living
        self._begin(index, self.ledger.policies)
        return [count]

    def _begin(self, queue_id: int, policies: Policies) -> None:
        """Start an empty incarnation; sleepers and waiters stay."""
        self._give_up_reads("the queue was emptied or deleted meanwhile")
        self._stored_gone = ()  # the state store removes the whole incarnation (its Grave); the ledger knows the rest
        self.ledger.begin(queue_id, policies)
        self.bodies.clear()
        self._uids = None
        if self.leases is not None:
            self.leases = self.leases.for_new_incarnation(self._now_ms())

    def on_judge(self, message: Judge) -> None:
        entry = message.entry
        if isinstance(entry, Publish):
            code = self.ledger.judge(entry)
        else:
            assert isinstance(entry, Ack), "nothing else has follow-ups"
            code = self.ledger.judge_ack(entry)
        message.reply_to.tell(Verdict(message.place, code))

    # --- coming back -----------------------------------------------------------------------------------------------

    def restore(self, stored: StoredQueue) -> None:
        """Take back the stored state; only before any mail."""
        meta = restore_ledger(self.ledger, stored)
        self.created_ms = meta.created_ms

    # --- the cut to the state store ----------------------------------------------------------------------------------

    def on_collect(self, message: Collect) -> None:
        """Hand over what changed since the last cut."""
        gone: Sequence[int] = self._stored_gone
        unchanged: Sequence[Note] = self._unchanged
        self._stored_gone = self._unchanged = ()
        meta = QueueMeta.of(self.ledger, self.created_ms)
        part = part_of(self.ledger, *self.bodies.collect(), gone, self._uids_of, meta)
        message.reply_to.tell(Collected(message.cut, part, unchanged))

    def on_flushed(self, message: Flushed) -> None:
        line = self.leases.next_numbers if self.leases is not None else lambda count: []
        self.bodies.flushed(line, message.bodies_bytes_max)


def _refusals_in(entry: Entry, index: int, results: list[int]) -> list[Note]:
    """Return a note for each item of an entry that was refused, by its place in the entry.

    The results of a claim are not always one for each item: a renewal has no items, and what a staging claim passed
    over is noted elsewhere (`_note_passed_over`).
    """
    if type(entry) is Claim:
        results = [] if entry.action is ClaimAction.STAGED else results[: len(entry.numbers)]
    return [(index, place, code) for place, code in enumerate(results) if code < 0]


_HANDLERS: dict[type, Callable[[QueueProcess, Any], None]] = {
    Committed: QueueProcess.on_committed,
    Fetch: QueueProcess.on_fetch,
    Leaving: QueueProcess.on_leaving,
    Sleep: QueueProcess.on_sleep,
    Subscribe: QueueProcess.on_subscribe,
    Touch: QueueProcess.on_touch,
    Nack: QueueProcess.on_nack,
    Unsent: QueueProcess.on_unsent,
    Gone: QueueProcess.on_gone,
    EndWaits: QueueProcess.on_end_waits,
    Alarm: QueueProcess.on_alarm,
    Loaded: QueueProcess.on_loaded,
    Collect: QueueProcess.on_collect,
    Flushed: QueueProcess.on_flushed,
    Judge: QueueProcess.on_judge,
    Abandon: QueueProcess.on_abandon,
    Peek: QueueProcess.on_peek,
    Stats: QueueProcess.on_stats,
    Scan: QueueProcess.on_scan,
    Why: QueueProcess.on_why,
    Move: QueueProcess.on_move,
    Requeue: QueueProcess.on_requeue,
    Answered: QueueProcess.on_answered,
    Lead: QueueProcess.on_lead,
    Stage: QueueProcess.on_stage,
    ReadSlice: QueueProcess.on_read_slice,
    Renew: QueueProcess.on_renew,
    Settle: QueueProcess.on_settle,
    Leaf: QueueProcess.on_leaf,
    Follow: QueueProcess.on_follow,
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
    PauseQueue: QueueProcess._apply_paused,
    Requeued: QueueProcess._apply_requeued,
    Claim: QueueProcess._apply_claim,
    Stash: QueueProcess._apply_stash,
    Unstash: QueueProcess._apply_unstash,
}
