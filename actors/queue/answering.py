"""Answering: outcomes that need more than a slot: answers that waited for their entry, notes for readers of the log.

    AnswerOnCommit, SharesOnCommit and the results of their entry --> the messages that are still there, or nothing
    entry, results --> notes of what was refused or repeated

Functions over the state of a queue process.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

from wakeq.actors.queue import waiting
from wakeq.protocol.log.entries import Ack, Claim, ClaimAction, Delivered, Entry, Extended, Publish, Results
from wakeq.protocol.log.outcomes import Note
from wakeq.protocol.queue.lanes import AnswerOnCommit, SharesOnCommit
from wakeq.protocol.queue.ledger.publishers import unchanged
from wakeq.protocol.queue.outcomes import RemovedOnDelivery

if TYPE_CHECKING:
    from wakeq.actors.queue.process import QueueProcess


def note_repeated(queue: QueueProcess, entry: Entry, index: int, results: Results) -> None:
    """Note which messages of a publish were refused, or stored before, for readers of the log."""
    assert isinstance(entry, Publish), "only what is published can be repeated"
    queue.note([(index, place, code) for place, code in unchanged(results, len(entry.drafts))])


def answer_on_commit(queue: QueueProcess, ticket: AnswerOnCommit, entry: Entry, results: Results) -> None:
    """Give an answer that had to wait for its entry to be committed."""
    assert isinstance(entry, Delivered | Extended | Ack), "no other answer waits"
    waiter = ticket.waiter
    if waiter in queue.promised:
        del queue.promised[waiter]
    answer = None
    if entry.queue_id == queue.ledger.id:
        # Some of these messages may have been removed meanwhile: the session gets the others.
        answer = ticket.answer if type(entry) is Extended else _without_refused(ticket.answer, results)
    if answer is not None:
        ticket.asker.tell(answer)
    elif waiter is not None:  # none is left, perhaps because the queue was emptied
        waiting.keep_waiting(queue, waiter, queue.now_ms())
    else:
        ticket.asker.tell(ticket.if_void)


def share_on_commit(queue: QueueProcess, ticket: SharesOnCommit, entry: Entry, results: Results) -> None:
    """Give each of several fetches its share of a delivery that had to wait for its entry to be committed."""
    assert isinstance(entry, Delivered), "no other answers are shared"
    at, is_ours = 0, entry.queue_id == queue.ledger.id
    for slot, count in zip(ticket.slots, ticket.counts, strict=True):
        share, codes = ticket.deliveries[at : at + count], results[at : at + count]
        slot.tell((_without_refused(share, codes) if share and is_ours else None) or None)
        at += count


def _without_refused(answer: Any, codes: Sequence[int]) -> Any:
    """Return an answer without the messages that were refused; None if none is left."""
    if min(codes) >= 0:
        return answer
    done = [code >= 0 for code in codes]
    if not any(done):
        return None
    return answer.only(done) if type(answer) is RemovedOnDelivery else list(compress(answer, done))


def refusals_in(entry: Entry, index: int, results: list[int]) -> list[Note]:
    """Return a note for each item of an entry that was refused, by its place in the entry.

    The results of a claim are not always one for each item: a renewal has no items, and what a staging claim passed
    over is noted elsewhere (by `staging.py`).
    """
    if type(entry) is Claim:
        results = [] if entry.action is ClaimAction.STAGED else results[: len(entry.numbers)]
    return [(index, place, code) for place, code in enumerate(results) if code < 0]
