"""Incarnations: how entries create, change, purge and delete a queue.

    CreateQueue, PurgeQueue, DeleteQueue --> an empty incarnation; sleepers and waiting fetches stay

Functions over the state of a queue process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wakeq.actors.queue import reading, waiting
from wakeq.protocol.catalog import Policies, changed
from wakeq.protocol.log.entries import DeleteQueue, Entry, PurgeQueue, Result, Results, UpdateQueue
from wakeq.protocol.queue.empty import EMPTY_DICT
from wakeq.protocol.queue.outcomes import Refusal

if TYPE_CHECKING:
    from wakeq.actors.queue.process import QueueProcess


def apply_create(queue: QueueProcess, entry: Entry, index: int, term: int, at_ms: int) -> Results:
    queue.created_ms = at_ms
    _begin(queue, index, entry.policies)  # type: ignore[union-attr]
    return [Result.DONE]


def apply_update(queue: QueueProcess, entry: UpdateQueue, index: int, term: int, at_ms: int) -> Results:
    before = queue.ledger.policies
    after = changed(before, entry.changes)
    queue.ledger.set_policies(after)
    line = ("structure", "priority_min", "priority_max")
    if queue.leases is not None and any(getattr(before, name) != getattr(after, name) for name in line):
        queue.leases.reorder()
    if queue.leases is not None and before.on_disconnect != after.on_disconnect == "release":
        queue.leases.holders.note_all()
    return [Result.DONE]


def apply_delete(queue: QueueProcess, entry: DeleteQueue, index: int, term: int, at_ms: int) -> Results:
    count = queue.ledger.columns.living
    queue.ledger.forget_publishers()
    queue.ledger.paused_until_ms = 0
    _begin(queue, 0, Policies())
    queue.promised = EMPTY_DICT  # a delivery that is committed after this one comes to nothing
    if queue.leases is not None:
        is_awaited = queue.runtime.groups.count(("subscribers", queue.name)) > 0  # then fetches see it as empty
        answer = None if is_awaited else Refusal("Q_NOT_FOUND", f"queue {queue.name} was deleted")
        for waiter in queue.leases.audience.all_waits():
            waiting.end_wait(queue, waiter, answer)
    return [count]


def apply_purge(queue: QueueProcess, entry: PurgeQueue, index: int, term: int, at_ms: int) -> Results:
    count = queue.ledger.columns.living
    _begin(queue, index, queue.ledger.policies)
    return [count]


def _begin(queue: QueueProcess, queue_id: int, policies: Policies) -> None:
    """Start an empty incarnation; sleepers and waiters stay."""
    reading.give_up_reads(queue, "the queue was emptied or deleted meanwhile")
    queue.services.readings.note(queue.name, {})
    queue.stored_gone = ()  # the state store removes the whole incarnation (its Grave); the ledger knows the rest
    queue.ledger.begin(queue_id, policies)
    queue.bodies.clear()
    queue.is_creating = False
    if queue.leases is not None:
        queue.leases = queue.leases.for_new_incarnation(queue.now_ms())
