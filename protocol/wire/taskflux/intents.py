"""What a TaskFlux conversation wants done, and what it is told has become of it.

Every Intent but StopWaiting has an outcome: a Response, or a Delivery for a Dequeue that found a record.  Whoever does
them keeps them in their order and tells each outcome once it is durable; a NotLeader is an outcome like any other.
"""

from typing import Any, TypeAlias

from msgspec import Struct

from wakeq.protocol.wire.taskflux.packets import (
    ClusterMetadataRequest,
    Count,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    Enqueue,
    ListQueues,
    Record,
    Response,
)


class Delivery(Struct, frozen=True, gc=False):
    """The outcome of a Dequeue that found a record.  `handle` is plain data that comes back with Remove or Return."""

    record: Record
    handle: Any


class Remove(Struct, frozen=True, gc=False):
    """The client has taken the record.  Outcome: Ok once that is durable."""

    queue: str
    handle: Any


class Return(Struct, frozen=True, gc=False):
    """The record is to be available again.  Outcome: Ok once it is."""

    queue: str
    handle: Any


class StopWaiting(Struct, frozen=True, gc=False):
    """Nobody waits for this Dequeue any more: it is to have its outcome now.  Has no outcome of its own."""

    dequeue: "Intent"


Work: TypeAlias = (
    Enqueue | Dequeue | Count | CreateQueue | DeleteQueue | ListQueues | ClusterMetadataRequest
    | Remove | Return | StopWaiting
)  # fmt: skip
Outcome: TypeAlias = Response | Delivery


class Intent(Struct, gc=False, eq=False):
    """Something to be done for the client.  All but `work` is the conversation's own."""

    work: Work
    answer: Response | None = None
    instead: Response | None = None  # is answered in place of Ok
