"""Operating: what an operator does to the messages of one queue: move them, throw them away, release them now.

    Move, Requeue --> bodies, leases --> an entry for the log --> Moved or Outcome, once it is applied

Only what is not with a worker is touched; while the outcome is on its way it is not delivered.  What a pause does is
here too.  Which messages are meant is the operator's affair: they come by uid.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from wakeq.actors.mail import Answered, ReplyByMail
from wakeq.actors.queue import fetching, outgoing, reading, waiting
from wakeq.actors.sessions.operator_mail import Move, Moved, Requeue
from wakeq.protocol.log.entries import ANY_TOKEN, Ack, Draft, PauseQueue, Publish, Requeued, Result, Results
from wakeq.protocol.queue.bodies import Found
from wakeq.protocol.queue.dead_letters import redriven
from wakeq.protocol.queue.outcomes import Outcome, Refusal
from wakeq.protocol.uid import UidMaker

if TYPE_CHECKING:
    from wakeq.actors.queue.process import QueueProcess

MOVED_BYTES_MAX = 8 << 20  # of the bodies in one entry; one message always fits


def on_move(queue: QueueProcess, message: Move) -> None:
    leases, refusal = queue.leases, queue.refusal()
    if leases is None or refusal is not None:
        _answer_moved(queue, message, [], refusal)
        return
    named = dict.fromkeys(map(queue.number_of, message.uids))  # one that is named twice goes once
    numbers = [n for n in named if _may_move(queue, n)]
    numbers = numbers[: max(1, queue.ledger.columns.count_within(numbers, MOVED_BYTES_MAX))]
    if message.to is None:
        _move(queue, message, numbers, {})
    else:
        reading.with_found(queue, numbers, message.asker, partial(_move, queue, message, numbers))


def _may_move(queue: QueueProcess, number: int) -> bool:
    assert queue.leases is not None, "asked before"
    leases = queue.leases
    return queue.ledger.is_removable(number) and number not in leases.held and number not in leases.ending


def _move(queue: QueueProcess, message: Move, numbers: list[int], found: Found) -> None:
    """Propose it; what has left meanwhile is left out."""
    if queue.leases is None:
        _answer_moved(queue, message, [], queue.refusal())
        return
    numbers = [n for n in numbers if _may_move(queue, n)]
    if not numbers:
        _answer_moved(queue, message, [], None)
        return
    publishes = []
    if message.to is not None:
        drafts = [redriven(found[n][0]) if message.redrive else _left_of(queue, n, found[n][0]) for n in numbers]
        publishes = [Publish(message.to, drafts)]
    queue.leases.mark_ending(numbers)
    entry = Ack(queue.name, queue.ledger.id, numbers, [ANY_TOKEN] * len(numbers), publishes, moved=True)
    reply_to = ReplyByMail(queue, partial(_moved, queue, message, queue.uids_of(numbers), numbers))
    outgoing.propose(queue, entry, reply_to)


def _left_of(queue: QueueProcess, number: int, draft: Draft) -> Draft:
    """Return a message as it is to be published again: what is left of its delay and its time to live goes on."""
    ledger, now_ms = queue.ledger, queue.now_ms()
    expires_ms = ledger.columns.expires_of(number)
    return Draft(
        draft.body,
        ledger.columns.priority_of(number),
        max(0, ledger.due_of(number) - now_ms),
        max(1, expires_ms - now_ms) if expires_ms else 0,
        ledger.columns.own_timeout_of(number),
        draft.headers,
    )


def on_answered(queue: QueueProcess, message: Answered[Outcome | Refusal]) -> None:
    """A Move has its outcome."""
    message.deliver()


def _moved(queue: QueueProcess, message: Move, uids: list[str], numbers: list[int], answer: Outcome | Refusal) -> None:
    if isinstance(answer, Refusal):  # the log did not take it
        if queue.leases is not None:
            queue.leases.keep_leased(numbers, queue.now_ms())
            waiting.serve_and_wake(queue, queue.now_ms())
        _answer_moved(queue, message, [], answer)
    else:
        _answer_moved(queue, message, uids, None, answer)


def _answer_moved(
    queue: QueueProcess, message: Move, uids: list[str], refusal: Refusal | None, outcome: Outcome | None = None
) -> None:
    moved: dict[str, str | None] = dict.fromkeys(message.uids)
    if outcome is not None and message.to is not None and not outcome.follows:  # refused as a whole
        refusal = Refusal(
            Result(outcome.results[0]).name, f"queue {message.to or 'default'} does not accept all of them"
        )
    elif outcome is not None:
        moved |= _new_uids(uids, outcome)
    asker = message.asker
    asker.tell(Moved(moved, refusal))


def on_requeue(queue: QueueProcess, message: Requeue) -> None:
    refusal, asker = queue.refusal(), message.asker
    if refusal is not None:
        asker.tell(refusal)
        return
    numbers = [queue.number_of(uid) for uid in message.uids]
    entry = Requeued(queue.name, queue.ledger.id, numbers)
    outgoing.propose(queue, entry, asker)


# --- what is committed -----------------------------------------------------------------------------------------


def apply_paused(queue: QueueProcess, entry: PauseQueue, index: int, term: int, at_ms: int) -> Results:
    queue.ledger.paused_until_ms = entry.until_ms
    if queue.leases is not None:
        queue.leases.note_pause()
        fetching.put_off_delayed(queue, queue.now_ms())
    return [Result.DONE]


def apply_requeued(queue: QueueProcess, entry: Requeued, index: int, term: int, at_ms: int) -> Results:
    is_ours = entry.queue_id == queue.ledger.id
    waiting = [number for number in entry.numbers if is_ours and queue.ledger.is_removable(number)]
    if queue.leases is not None:
        queue.leases.make_due_now(dict.fromkeys(waiting), queue.now_ms())
    return queue.ledger.requeue(entry)


def _new_uids(uids: list[str], outcome: Outcome) -> dict[str, str | None]:
    """Return where each message went that did: its uid in the other queue, or "" if there is none."""
    if not outcome.follows:
        return {uid: "" for uid, code in zip(uids, outcome.results, strict=True) if code == Result.DONE}
    (there,) = outcome.follows
    maker = UidMaker(there.queue_id)
    return {uid: maker.uid(number) for uid, number in zip(uids, there.results, strict=True) if number > 0}
