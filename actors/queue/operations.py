"""QueueOperations: what an operator does to the messages of one queue: move them, throw them away, let them go now.

    Move, Requeue --> bodies, leases --> an entry for the log --> Moved or Outcome, once it is applied

Only what is not with a worker is touched; while the outcome is on its way it is not handed out.  What a pause does is
here too.  Which messages are meant is the operator's affair: they come by uid.
"""

from functools import partial

import msgspec

from wakeq.actors.mail import Answered, Asker, Outcome, Propose, Refusal
from wakeq.actors.queue.staging import QueueStaging
from wakeq.actors.sessions.operator_mail import Move, Moved, Requeue
from wakeq.protocol.log.entries import ANY_TOKEN, Ack, Draft, PauseQueue, Publish, Requeued, Result, Results
from wakeq.protocol.queue.bodies import Found
from wakeq.protocol.queue.dead_letters import redriven
from wakeq.protocol.uid import UidMaker

MOVED_BYTES_MAX = 8 << 20  # of the bodies in one entry; one message always fits


class Moving(msgspec.Struct, frozen=True, gc=False):
    """The ticket of a Move: what was proposed, and who wants to know."""

    message: Move
    uids: list[str]
    numbers: list[int]


class QueueOperations(QueueStaging):
    """See the head of this file."""

    def on_move(self, message: Move) -> None:
        leases, refusal = self.leases, self._refusal()
        if leases is None or refusal is not None:
            self._answer_moved(message, [], refusal)
            return
        named = dict.fromkeys(map(self._number_of, message.uids))  # one that is named twice goes once
        numbers = [n for n in named if self._may_move(n)]
        numbers = numbers[: max(1, self.ledger.count_within(numbers, MOVED_BYTES_MAX))]
        if message.to is None:
            self._move(message, numbers, {})
        else:
            self._with_found(numbers, message.asker, partial(self._move, message, numbers))

    def _may_move(self, number: int) -> bool:
        assert self.leases is not None, "asked before"
        leases = self.leases
        return self.ledger.may_be_operated(number) and number not in leases.held and number not in leases.leaving

    def _move(self, message: Move, numbers: list[int], found: Found) -> None:
        """Propose it; what has left meanwhile is left out."""
        if self.leases is None:
            self._answer_moved(message, [], self._refusal())
            return
        numbers = [n for n in numbers if self._may_move(n)]
        if not numbers:
            self._answer_moved(message, [], None)
            return
        publishes = []
        if message.to is not None:
            drafts = [redriven(found[n][0]) if message.redrive else self._left_of(n, found[n][0]) for n in numbers]
            publishes = [Publish(message.to, drafts)]
        self.leases.leave(numbers)
        entry = Ack(self.name, self.ledger.id, numbers, [ANY_TOKEN] * len(numbers), publishes, moved=True)
        moving = Moving(message, self._uids_of(numbers), numbers)
        self._raft_log.tell(Propose([(entry, Asker(self, moving, None))]))

    def _left_of(self, number: int, draft: Draft) -> Draft:
        """Return a message as it is to be published again: what is left of its delay and its time to live goes on."""
        ledger, now_ms = self.ledger, self._now_ms()
        expires_ms = ledger.expires_of(number)
        return Draft(
            draft.body,
            ledger.priority_of(number),
            max(0, ledger.due_of(number) - now_ms),
            max(1, expires_ms - now_ms) if expires_ms else 0,
            ledger.own_timeout_of(number),
            draft.headers,
        )

    def on_answered(self, message: Answered) -> None:
        """A Move has its outcome."""
        for moving, _place, answer in message.answers:
            if isinstance(answer, Refusal):  # the log did not take it
                if self.leases is not None:
                    self.leases.stays(moving.numbers, self._now_ms())
                    self._settle(self._now_ms())
                self._answer_moved(moving.message, [], answer)
            else:
                self._answer_moved(moving.message, moving.uids, None, answer)

    def _answer_moved(
        self, message: Move, uids: list[str], refusal: Refusal | None, outcome: Outcome | None = None
    ) -> None:
        moved: dict[str, str | None] = dict.fromkeys(message.uids)
        if outcome is not None and message.to is not None and not outcome.follows:  # refused as a whole
            refusal = Refusal(
                Result(outcome.results[0]).name, f"queue {message.to or 'default'} does not take them all"
            )
        elif outcome is not None:
            moved |= _new_uids(uids, outcome)
        asker = message.asker
        asker.tell(Moved(moved, refusal))

    def on_requeue(self, message: Requeue) -> None:
        refusal, asker = self._refusal(), message.asker
        if refusal is not None:
            asker.tell(refusal)
            return
        numbers = [self._number_of(uid) for uid in message.uids]
        entry = Requeued(self.name, self.ledger.id, numbers)
        self._raft_log.tell(Propose([(entry, asker)]))

    # --- what is committed -----------------------------------------------------------------------------------------

    def _apply_paused(self, entry: PauseQueue, index: int, term: int, at_ms: int) -> Results:
        self.ledger.paused_until_ms = entry.until_ms
        if self.leases is not None:
            self.leases.pause_changed()
            self._put_off_turns(self._now_ms())
        return [Result.DONE]

    def _apply_requeued(self, entry: Requeued, index: int, term: int, at_ms: int) -> Results:
        is_ours = entry.queue_id == self.ledger.id
        waiting = [number for number in entry.numbers if is_ours and self.ledger.may_be_operated(number)]
        if self.leases is not None:
            self.leases.requeued(dict.fromkeys(waiting), self._now_ms())
        return self.ledger.requeue(entry)


def _new_uids(uids: list[str], outcome: Outcome) -> dict[str, str | None]:
    """Return where each message went that did: its uid in the other queue, or "" if there is none."""
    if not outcome.follows:
        return {uid: "" for uid, code in zip(uids, outcome.results, strict=True) if code == Result.DONE}
    (there,) = outcome.follows
    maker = UidMaker(there.queue_id)
    return {uid: maker.uid(number) for uid, number in zip(uids, there.results, strict=True) if number > 0}
