"""Crashing: what a queue process leaves behind when it fails, so that nobody waits for ever.

    leave_last_words: entries to the log, sleepers woken, fetches and mail answered         refuse_filed: all is refused

What was committed needs no answer from here: the rebuilt queue is told it again, and answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wakeq.actors.mail import Woken
from wakeq.actors.queue import outgoing, reading, waiting
from wakeq.actors.sessions.operator_mail import Held, ListClaims, Move, Requeue, Scan, Show, Why
from wakeq.protocol.queue import orders
from wakeq.protocol.queue.lanes import (
    AckSeveral,
    AckTicket,
    AckTickets,
    AnswerOnCommit,
    FileOnCommit,
    SharesOnCommit,
    Tickets,
)
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.wire.slots import SeveralResults

if TYPE_CHECKING:
    from wakeq.actors.queue.process import QueueProcess

# Mail with an `asker`, who gets exactly one answer.
WANTS_ANSWER = (
    orders.Touch, orders.Nack, orders.Peek, orders.PeekBlock, orders.Stats, orders.Stage, orders.ReadSlice,
    orders.Renew, orders.Settle, orders.Release, Scan, Show, Why, Held, ListClaims, Move, Requeue,
)  # fmt: skip


class Abandoned(Exception):
    """The process gives itself up, to be rebuilt."""


def leave_last_words(queue: QueueProcess) -> None:
    """Leave nobody waiting: wake sleepers, answer waiting fetches with nothing, and the mail that is not handled.

    What was committed needs no answer from here: the rebuilt queue is told it again, and answers.  What waits for
    the log goes there as it is: it may hold deliveries whose answers have left.
    """
    busy = Refusal("BUSY", f"queue {queue.name} is being rebuilt; try again")
    entries = outgoing.take_entries(queue, busy)
    if entries:
        queue.services.raft_log.enter(entries)
    in_the_log = {id(one) for proposal in entries for one in answered_by(proposal.reply_to)}
    # Fetches whose strict delivery the log has are answered by it, though the crash came before they were done with.
    for fetch in [fetch for fetch in queue.delayed_fetches if id(fetch.waiter.asker) in in_the_log]:
        queue.delayed_fetches.remove(fetch)
    reading.give_up_reads(queue, f"queue {queue.name} is being rebuilt")
    if queue.leases is not None:
        woken = Woken(queue.name)
        for session in (*queue.leases.audience.sleepers, *queue.leases.audience.woken):
            session.tell(woken)
        for waiter in queue.leases.audience.all_waits():
            if id(waiter.asker) not in in_the_log:
                waiter.asker.tell(None)
    in_hand = queue.in_hand
    if in_hand is not None:
        for slot in in_hand.reads:
            if id(slot) not in in_the_log:
                slot.is_woken = waiting.is_sleep(slot)  # the rebuilt queue would not know that it sleeps
                slot.tell(None)
        in_hand.reads = []
        for asker in in_hand.slots():
            if id(asker) not in in_the_log:
                asker.tell(busy)
        for order in in_hand.orders:
            if in_the_log.isdisjoint(map(id, answered_by(getattr(order, "asker", order)))):
                refuse_order(order, busy)
    held_mail = () if queue.steps is None else queue.steps.mail
    for message in (queue.handling, *held_mail, *queue.unread):
        if isinstance(message, WANTS_ANSWER):
            message.asker.tell(busy)


def refuse_filed(queue: QueueProcess, refusal: Refusal) -> None:
    """Nothing that was filed or waits for the log was ever in it: refuse all of it."""
    filed = queue.lanes.take()
    if filed is not None:
        for slot in filed.slots():
            slot.tell(refusal)
        for order in filed.orders:
            refuse_order(order, refusal)
    for proposal in outgoing.take_entries(queue, refusal):
        if proposal.reply_to is not None:
            proposal.reply_to.tell(refusal)


def answered_by(ticket: Any) -> Sequence[Any]:
    """Return what gets the answers of a ticket, or of an order: slots, or actors that ask by mail."""
    match ticket:
        case Tickets() | AckTickets() | SharesOnCommit():
            return ticket.slots
        case AckTicket(asker=asker) | AnswerOnCommit(asker=asker) | FileOnCommit(asker=asker):
            return answered_by(asker)
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
