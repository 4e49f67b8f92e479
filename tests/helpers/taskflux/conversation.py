"""A server's side of one TaskFlux connection without a socket: packets in, what is to be done and what is answered out.

It holds no rule of its own: what a queue would say is told it by the test.
"""

from collections.abc import Iterable
from typing import Any

from tests.helpers.taskflux.apart import apart
from wakeq.protocol.log.entries import Draft
from wakeq.protocol.wire.taskflux.conversation import Conversation
from wakeq.protocol.wire.taskflux.dialects import LEGACY, SPEC, Dialect
from wakeq.protocol.wire.taskflux.intents import Delivery, Intent, Store
from wakeq.protocol.wire.taskflux.packets import (
    AuthorizationRequest,
    AuthorizationResponse,
    Bad,
    BootstrapRequest,
    BootstrapResponse,
    Dequeue,
    Enqueue,
    Packet,
    Record,
)


def ready(dialect: Dialect = SPEC) -> Conversation:
    """Return a conversation behind the handshake."""
    conversation = Conversation(SPEC if dialect is LEGACY else dialect)
    version = BootstrapRequest(0, 1, 0) if dialect is LEGACY else BootstrapRequest(1, 0, 0)
    assert not conversation.receive([AuthorizationRequest(), version])
    assert answers(conversation) == [AuthorizationResponse(True), BootstrapResponse(True)]
    return conversation


def works(intents: Iterable[Intent]) -> list[object]:
    return [intent.work for intent in intents]


def stored(*enqueues: Enqueue) -> Store:
    """Return what is to be done for acknowledged Enqueues of one queue."""
    return Store(enqueues[0].queue, [Draft(enqueue.payload, enqueue.key) for enqueue in enqueues])


def answers(conversation: Conversation) -> list[Packet | Bad]:
    return apart(conversation.answers())


def taken(conversation: Conversation, handle: Any = 7) -> None:
    """Have a record delivered to the client."""
    (dequeue,) = conversation.receive([Dequeue("q")])
    assert not conversation.resolve([(dequeue, Delivery(Record(1, b"x", 7), handle))])
    assert answers(conversation) == [Record(1, b"x", 7)]
