"""Properties of any bytes that a TaskFlux client sends: for Hypothesis in the fast tests, and for atheris.

    bytes --> dialect, pieces --> RequestReader --> Conversation <-- outcomes, good and bad ones --> encoder

Nothing may be raised, every packet is answered or waits for one that is, and a connection that is lost holds nothing.
"""

from typing import Any

from tests.helpers.taskflux.apart import taken_as
from wakeq.protocol.log.entries import Reason
from wakeq.protocol.wire.taskflux.conversation import Conversation
from wakeq.protocol.wire.taskflux.dialects import CSHARP, LEGACY, SPEC, Dialect
from wakeq.protocol.wire.taskflux.encoder import encode
from wakeq.protocol.wire.taskflux.intents import Delivery, Intent, Outcome, Remove, Return, StopWaiting, Store, Take
from wakeq.protocol.wire.taskflux.packets import (
    EMPTY,
    OK,
    AuthorizationRequest,
    BootstrapRequest,
    BusinessError,
    Count,
    CountResponse,
    Dequeue,
    ErrorCode,
    NotLeader,
    QueueSizeViolation,
    Record,
)
from wakeq.protocol.wire.taskflux.reader import RequestReader

PACKET_BYTES_MAX = 4096
TURNS_MAX = 100_000


def check_any_bytes(data: bytes) -> None:
    """The first four bytes choose a dialect, the size of the pieces and what becomes of what is asked for."""
    if len(data) < 4:
        return
    dialect = (SPEC, CSHARP, LEGACY)[data[0] % 3]
    said = data[4:] if data[0] > 250 else greeting(dialect) + data[4:]
    check_conversation(dialect, said, piece_bytes=1 + data[1], told=data[2], waits=data[3])


def check_conversation(dialect: Dialect, said: bytes, *, piece_bytes: int, told: int, waits: int) -> None:
    """`told` chooses the outcomes; after each piece the next bit of `waits` says whether they come later."""
    reader = RequestReader(SPEC if dialect is LEGACY else dialect, PACKET_BYTES_MAX)
    conversation = Conversation(reader.dialect, PACKET_BYTES_MAX)
    under_way: list[Intent] = []
    for place, at in enumerate(range(0, len(said), piece_bytes)):
        under_way += conversation.receive(reader.receive(said[at : at + piece_bytes]))
        assert reader.waiting_bytes <= PACKET_BYTES_MAX + piece_bytes
        if not waits >> place % 8 & 1:
            under_way = settle(conversation, under_way, told + place)
            encode(conversation.answers(), conversation.dialect)
    if told & 1:
        under_way = settle(conversation, under_way + conversation.ended(), told)
        encode(conversation.answers(), conversation.dialect)
        assert conversation.finished
    held = conversation.held
    returned = conversation.lost()
    assert held is None or [intent.work for intent in returned if isinstance(intent.work, Return)] == [
        Return(held.queue, held.handle, Reason.DISCONNECT)
    ]
    assert settle(conversation, under_way + returned, told) == []
    assert conversation.under_way == conversation.in_flight == 0
    assert conversation.held is None


def greeting(dialect: Dialect) -> bytes:
    version = BootstrapRequest(0, 1, 0) if dialect is LEGACY else BootstrapRequest(1, 0, 0)
    return encode([AuthorizationRequest(), version], dialect)


def settle(conversation: Conversation, under_way: list[Intent], told: int) -> list[Intent]:
    """Tell what became of all that is under way, until nothing is."""
    turns = 0
    while under_way:
        outcomes = [(intent, outcome_of(intent, told + turns)) for intent in under_way if not is_word(intent)]
        under_way = conversation.resolve(outcomes)
        turns += 1
        assert turns < TURNS_MAX, "it never ends"
    return under_way


def is_word(intent: Intent) -> bool:
    return isinstance(intent.work, StopWaiting)


def outcome_of(intent: Intent, told: int) -> Outcome:
    """Return something that could become of it."""
    refusals: list[Any] = [NotLeader(1), BusinessError(ErrorCode.NO_QUEUE, "no"), BusinessError(ErrorCode.UNKNOWN, "x")]
    if told % 5 == 0 and not isinstance(intent.work, Return):
        return refusals[told % 3]
    match intent.work:
        case Store(drafts=drafts) if told % 7:
            return [QueueSizeViolation(1) if (told + place) % 3 == 0 else OK for place in range(len(drafts))]
        case Take(dequeues=dequeues):
            return taken_as(*[Record(1, b"r", 1)] * (told % (len(dequeues) + 1)))
        case Dequeue():
            return Delivery(Record(1, b"r", 1), told) if told % 3 else EMPTY
        case Count():
            return CountResponse(told)
        case Remove() | Return():
            return OK
    return OK
