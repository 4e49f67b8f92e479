"""What a TaskFlux conversation wants done, and what it is told has become of it.

Every Intent but StopWaiting has an outcome: a Response; a Delivery for a Dequeue that found a record; for a Store one
Response, or one for each record; for a Take a Response for all, or what was Taken.  Whoever does them keeps them in
their order and tells each outcome once it is durable; a NotLeader is an outcome like any other.
"""

from typing import Any, TypeAlias

from msgspec import Struct

from wakeq.protocol.log.entries import Draft, Reason
from wakeq.protocol.wire.taskflux.packets import (
    ClusterMetadataRequest,
    Count,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    ListQueues,
    Record,
    Response,
)


class Store(Struct, frozen=True, gc=False):
    """Records of one queue whose Enqueues are acknowledged.  Outcome: a Response for all, or one for each."""

    queue: str
    drafts: list[Draft]


class Take(Struct, frozen=True, gc=False):
    """Dequeues of one queue that are acknowledged already, or never will be: a record goes when it is handed out.

    Outcome: a Response for all, or what was Taken for the first of them, without a wait, once that is durable.
    """

    queue: str
    dequeues: list[Dequeue]


class Delivery(Struct, frozen=True, gc=False):
    """The outcome of a Dequeue that found a record.  `handle` is plain data that comes back with Remove or Return."""

    record: Record
    handle: Any


class Remove(Struct, frozen=True, gc=False):
    """The client has taken the record.  Outcome: Ok once that is durable."""

    queue: str
    handle: Any


class Return(Struct, frozen=True, gc=False):
    """The record is to be available again.  Outcome: Ok once it is.

    `reason` tells a client that gave it back, or went away with it, from one that never had it.
    """

    queue: str
    handle: Any
    reason: Reason = Reason.NACK


class StopWaiting(Struct, frozen=True, gc=False):
    """Nobody waits for the Dequeue under way any more: it is to have its outcome now."""


Work: TypeAlias = (
    Store | Take | Dequeue | Count | CreateQueue | DeleteQueue | ListQueues | ClusterMetadataRequest
    | Remove | Return | StopWaiting
)  # fmt: skip
Outcome: TypeAlias = Response | Delivery | list[Response]


class Intent(Struct, gc=False, eq=False):
    """Something to be done for the client.  All but `work` is the conversation's own."""

    work: Work
    answer: Response | list[Response] | None = None
    instead: Response | None = None  # is answered in place of Ok
    is_unheard: bool = False  # of a Store: not even the first Ok has been answered yet
