"""Acknowledging: what a queue does with ACK and DEL before the log has them.

    acknowledgements of a turn --> marked in the leases --> Acking or Ack for the log; refused --> marks are taken back

What is marked is neither delivered nor released until the outcome is known.  Functions over the state of a process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from wakeq.actors.mail import KeepLeased
from wakeq.actors.queue import outgoing
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import Ack, CreateQueue, Result
from wakeq.protocol.queue import orders
from wakeq.protocol.queue.lanes import Acking, Acks, AckSeveral, AckTicket, Filed, Outgoing, Rank
from wakeq.protocol.queue.outcomes import Outcome
from wakeq.protocol.uid import maker_of
from wakeq.protocol.uid import numbers as numbers_of

if TYPE_CHECKING:
    from wakeq.actors.queue.process import QueueProcess

REFUSED_ID = -1  # instead of a queue's id: an Ack that was refused as a whole, so that its messages stay leased


def mark_acknowledged(queue: QueueProcess, filed: Filed) -> None:
    """Keep what is being acknowledged from being delivered or released, before any read is served."""
    for order in filed.orders:
        if type(order) is AckSeveral and queue.leases is not None:
            numbers = [number for number in numbers_of(order.uids, maker_of(queue.ledger.id).prefix) if number > 0]
            # A NACK or TOUCH that stands before it must not find these marked.
            if not queue.marked_ahead:
                queue.marked_ahead = set()
            queue.marked_ahead.update([n for n in numbers if n not in queue.leases.ending])
            queue.leases.mark_ending(numbers)
    while filed.acks:
        acks = filed.acks[0]
        if not queue.ledger.id:
            _answer_unknown(queue, acks)
        elif isinstance(acks, AckSeveral):
            on_ack_several(queue, acks)
        else:  # plain ones become one entry, with those that wait for the log already
            queue_id, leases = queue.ledger.id, queue.leases
            numbers = numbers_of(acks.uids, maker_of(queue_id).prefix)
            foreign = {i: acks.uids[i] for i, number in enumerate(numbers) if number < 0} if min(numbers) < 0 else {}
            if leases is not None:  # as in _mark
                leases.mark_ending([number for number in numbers if number > 0] if foreign else numbers)
            keep_leased = partial(queue.tell, KeepLeased(queue.name, queue_id, numbers))
            acking = Acking(acks.door, queue_id, numbers, acks.tokens, foreign, acks.slots, [keep_leased])
            last = outgoing.last_of(queue, Rank.ACK) if queue.outgoing else None
            if (
                isinstance(last, Acking)
                and (last.door, last.queue_id) == (acking.door, queue_id)
                and len(last.numbers) + len(numbers) <= outgoing.ENTRY_MESSAGES_MAX
            ):
                last.join(acking)
            else:  # as in outgoing.put
                if queue.outgoing is None:
                    queue.outgoing = []
                queue.outgoing.append(Outgoing(Rank.ACK, acking, None))
                queue.services.raft_log.enlist(queue)
        del filed.acks[0]


def _answer_unknown(queue: QueueProcess, acks: Acks | AckSeveral) -> None:
    """The queue does not exist, and no message of it."""
    refusal = queue.refusal()
    if isinstance(acks, Acks):
        for slot in acks.slots:
            slot.tell(refusal or int(Result.UNKNOWN))
    else:
        acks.slot.tell(refusal or Outcome(queue.name, 0, [int(Result.UNKNOWN)] * len(acks.uids)))


def on_ack_several(queue: QueueProcess, order: AckSeveral) -> None:
    """An acknowledgement of several messages, or one that publishes, is an entry of its own."""
    session = order.slot.session
    numbers = numbers_of(order.uids, maker_of(queue.ledger.id).prefix)
    if queue.marked_ahead:
        queue.marked_ahead.difference_update(numbers)
    foreign = {i: order.uids[i] for i, number in enumerate(numbers) if number < 0} if min(numbers) < 0 else {}
    keep_leased = _mark(queue, numbers)
    entry = Ack(
        queue.name,
        queue.ledger.id,
        numbers,
        order.tokens,
        order.publishes,
        foreign,
        worker=session.number,
        door=session.door_kind,
    )
    ticket = AckTicket(order.slot, keep_leased)
    if order.publishes:
        defaults, exists = queue.services.defaults, queue.services.exists
        missing = [name for name in dict.fromkeys(one.queue for one in order.publishes) if not exists(name)]
        if defaults is not None or len(missing) > 1:  # one index can be the id of only one new queue
            policies = defaults or Policies()
            for name in missing:
                outgoing.put(queue, Rank.BEHIND, CreateQueue(name, policies))
        outgoing.put(queue, Rank.BEHIND, entry, ticket)
    else:
        outgoing.put(queue, Rank.ACK, entry, ticket)


def on_acknowledge(queue: QueueProcess, order: orders.Acknowledge) -> None:
    """The same for somebody who knows messages by their numbers."""
    if not queue.exists:
        return
    is_ours = order.queue_id == queue.ledger.id
    keep_leased = _mark(queue, order.numbers if is_ours else [])
    about = {"worker": order.worker, "door": order.door}
    entry = Ack(queue.name, order.queue_id, order.numbers, order.tokens, **about)  # type: ignore[arg-type]
    outgoing.put(queue, Rank.ACK, entry, AckTicket(orders.NOBODY, keep_leased))


def _mark(queue: QueueProcess, numbers: list[int]) -> Callable[[], None]:
    """Mark messages that are being acknowledged; return what undoes it if the log refuses."""
    if queue.leases is not None:
        queue.leases.mark_ending([number for number in numbers if number > 0])
    return partial(queue.tell, KeepLeased(queue.name, queue.ledger.id, numbers))
