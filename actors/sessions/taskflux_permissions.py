"""Which right an intent of the TaskFlux protocol needs.

    what is to be done, Access --> why it may not be done, or nothing

Deny by default: what is not listed needs every right that an operator has.  Pure.
"""

from typing import Any

from wakeq.actors.sessions.access import Access
from wakeq.protocol.access import Right
from wakeq.protocol.errors import Refused
from wakeq.protocol.wire.taskflux.intents import Remove, Return, StopWaiting, Store, Take
from wakeq.protocol.wire.taskflux.packets import (
    ClusterMetadataRequest,
    Count,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    ListQueues,
)

FREE = frozenset({Remove, Return, StopWaiting, ClusterMetadataRequest})  # who holds a record was allowed to take it
OTHERS = frozenset({Count, ListQueues})
OF_A_QUEUE: dict[type, Right] = {
    Store: Right.PUBLISH,
    Dequeue: Right.FETCH,
    Take: Right.FETCH,
    CreateQueue: Right.ADMIN,
    DeleteQueue: Right.ADMIN,
}


def refusal_of(work: Any, access: Access) -> Refused | None:
    """Return why this may not be done, or None."""
    kind = type(work)
    right = OF_A_QUEUE.get(kind)
    if right is not None:
        return None if access.covers(right, {work.queue}) else access.refusal(right, work.queue)
    if kind in FREE:
        return None
    if kind is Count:
        return None if access.may_any(work.queue) else access.refusal(Right.FETCH, work.queue)
    return None if access.may_all(Right.ADMIN) else access.refusal_of_all(Right.ADMIN)
