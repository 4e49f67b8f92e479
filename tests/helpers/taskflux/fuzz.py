"""Properties of any bytes that a TaskFlux client sends: for Hypothesis in the fast tests, and for atheris.

    bytes --> dialect, pieces --> RequestReader --> Conversation <-- outcomes, good and bad ones --> encoder

Nothing may be raised, every packet is answered or waits for one that is, and a connection that is lost holds nothing.
"""

from typing import Any

from tests.helpers.taskflux.apart import taken_as
from tests.helpers.taskflux.conversation import HandTaskFluxSession
from wakeq.protocol.log.entries import Reason
from wakeq.protocol.wire.slots import MISSING, Slot
from wakeq.protocol.wire.taskflux.codec import RequestReader, encode
from wakeq.protocol.wire.taskflux.commands import (
    EMPTY,
    OK,
    AuthorizationRequest,
    BootstrapRequest,
    BusinessError,
    Count,
    CountResponse,
    Dequeue,
    ErrorCode,
    ListQueues,
    NotLeader,
    QueueSizeViolation,
    Record,
    Remove,
    Return,
    Store,
    Take,
)
from wakeq.protocol.wire.taskflux.dialects import CSHARP, LEGACY, SPEC, Dialect

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
    session = HandTaskFluxSession(reader.dialect, PACKET_BYTES_MAX)
    conversation = session.conversation
    under_way: list[Slot] = []
    for place, at in enumerate(range(0, len(said), piece_bytes)):
        under_way += session.receive(*reader.receive(said[at : at + piece_bytes]))
        assert reader.waiting_bytes <= PACKET_BYTES_MAX + piece_bytes
        if not waits >> place % 8 & 1:
            settle(session, under_way, told + place)
            under_way = []
            encode(session.say(), conversation.dialect)
    if told & 1:
        settle(session, under_way + session.end(), told)
        under_way = []
        encode(session.say(), conversation.dialect)
        assert conversation.is_finished
    held = conversation.held
    returned = session.lose()
    if isinstance(held, Remove):
        back = [slot.command for slot in returned if isinstance(slot.command, Return)]
        assert back == [Return(held.queue, held.holding, Reason.DISCONNECT)]
    settle(session, under_way + returned, told)
    assert conversation.is_over
    assert conversation.in_flight == 0
    assert conversation.held is None


def greeting(dialect: Dialect) -> bytes:
    version = BootstrapRequest(0, 1, 0) if dialect is LEGACY else BootstrapRequest(1, 0, 0)
    return encode([AuthorizationRequest(), version], dialect)


def settle(session: HandTaskFluxSession, under_way: list[Slot], told: int) -> None:
    """Tell what became of all that is under way, until nothing is."""
    turns = 0
    while under_way:
        assert all(slot.outcome is MISSING for slot in under_way)
        under_way = session.resolve(*[(slot, outcome_of(slot.command, told + turns)) for slot in under_way])
        turns += 1
        assert turns < TURNS_MAX, "it never ends"


def outcome_of(command: Any, told: int) -> Any:
    """Return something that could become of it."""
    refusals: list[Any] = [NotLeader(1), BusinessError(ErrorCode.NO_QUEUE, "no"), BusinessError(ErrorCode.UNKNOWN, "x")]
    if told % 5 == 0 and not isinstance(command, Return):
        return refusals[told % 3]
    match command:
        case Store(drafts=drafts) if told % 7:
            return [QueueSizeViolation(1) if (told + place) % 3 == 0 else OK for place in range(len(drafts))]
        case Take(dequeues=dequeues):
            return taken_as(*[Record(1, b"r", 1)] * (told % (len(dequeues) + 1)))
        case Dequeue():
            return Record(1, b"r", told) if told % 3 else EMPTY
        case Count():
            return CountResponse(told)
        case ListQueues():
            return []
    return OK
