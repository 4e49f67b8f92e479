"""Commands: the packets of TaskFlux, what is wrong where none could be read, and what is done with records.

Plain data; the dialects say how much of it each of them has.  Enqueues, Dequeues, Oks and Taken stand for many packets.
"""

from enum import IntEnum
from typing import TypeAlias

from msgspec import Struct

from wakeq.protocol.errors import Busy, FrameTooLarge, WakeqError
from wakeq.protocol.log.entries import Draft, Reason, Token

METHOD_NONE = ord("N")  # the only method of authorization that the protocol has: there is none
METHOD_TOKEN = ord("T")  # ours: a String with the token follows
PAYLOAD_BYTES_MAX = 16 << 20  # the manual's limit for all queues (section 6)
UNLIMITED = -1  # of a size in CreateQueue
UNKNOWN_NODE = -1  # of a leader's id
TAKEN_TOGETHER_MAX = 256  # Dequeues that go together
DEFAULT_IMPLEMENTATION, H4, QA = 0, 1, 2

KeyRange: TypeAlias = tuple[int, int]  # both ends belong to it


class ErrorCode(IntEnum):
    """Why a command was not done.  The numbers are those of the dialect `spec`; the others have their own."""

    UNKNOWN = 0
    BAD_NAME = 1
    NO_QUEUE = 2
    QUEUE_EXISTS = 3
    KEY_OUTSIDE = 4  # reserved: a key outside of a queue's range is a KeyRangeViolation
    BAD_KEY_RANGE = 5
    BAD_QUEUE_SIZE = 6
    BAD_PAYLOAD_SIZE = 7
    NO_KEY_RANGE = 8
    BAD_IMPLEMENTATION = 9


class Bad(Struct, frozen=True, gc=False):
    """What stands where a packet could not be read.  If the error closes, nothing comes behind it."""

    error: WakeqError


# From the client --------------------------------------------------------------------------------------------------


class AuthorizationRequest(Struct, frozen=True, gc=False):
    """`token` is sent only with its method."""

    method: int = METHOD_NONE
    token: str = ""


class BootstrapRequest(Struct, frozen=True, gc=False):
    """The version of the client.  0.1 of it selects the dialect `legacy`."""

    major: int
    minor: int
    patch: int


class Ack(Struct, frozen=True, gc=False):
    pass


class Nack(Struct, frozen=True, gc=False):
    pass


class ClusterMetadataRequest(Struct, frozen=True, gc=False):
    pass


class Enqueue(Struct, frozen=True, gc=False):
    queue: str
    key: int
    payload: bytes


class Dequeue(Struct, frozen=True, gc=False):
    queue: str
    timeout_ms: int = 0  # 0: answer at once


class Count(Struct, frozen=True, gc=False):
    queue: str


class CreateQueue(Struct, frozen=True, gc=False):
    queue: str
    implementation: int = DEFAULT_IMPLEMENTATION
    queue_size_max: int = UNLIMITED
    payload_bytes_max: int = UNLIMITED
    key_range: KeyRange | None = None


class DeleteQueue(Struct, frozen=True, gc=False):
    queue: str


class ListQueues(Struct, frozen=True, gc=False):
    pass


# From the server --------------------------------------------------------------------------------------------------


class AuthorizationResponse(Struct, frozen=True, gc=False):
    """`reason` is sent only without success."""

    success: bool
    reason: str = ""


class BootstrapResponse(Struct, frozen=True, gc=False):
    """`reason` is sent only without success."""

    success: bool
    reason: str = ""


class Ok(Struct, frozen=True, gc=False):
    pass


class ErrorResponse(Struct, frozen=True, gc=False):
    """A failure outside of what queues decide.  `code` is as it is on the wire; `legacy` has none."""

    code: int
    details: str


class NotLeader(Struct, frozen=True, gc=False):
    """`leader` is a place in the list of addresses."""

    leader: int = UNKNOWN_NODE


class ClusterMetadataResponse(Struct, frozen=True, gc=False):
    addresses: tuple[str, ...]
    leader: int
    responder: int


class EnqueueResponse(Struct, frozen=True, gc=False):
    """Only in `legacy`: whether the record was added."""

    added: bool


class Record(Struct, frozen=True, gc=False):
    """The answer to a Dequeue that found something.  Only `csharp` sends the id."""

    key: int
    payload: bytes
    id: int = 0


class Empty(Struct, frozen=True, gc=False):
    """The answer to a Dequeue that found nothing."""


class CountResponse(Struct, frozen=True, gc=False):
    count: int


class BusinessError(Struct, frozen=True, gc=False):
    code: ErrorCode
    details: str = ""


class QueueInfo(Struct, frozen=True, gc=False):
    """One queue of a list.  `metadata` are its policies in words; a key may occur more than once."""

    queue: str
    count: int
    metadata: tuple[tuple[str, str], ...] = ()


class ListQueuesResponse(Struct, frozen=True, gc=False):
    queues: tuple[QueueInfo, ...]


class GeneralViolation(Struct, frozen=True, gc=False):
    """A policy without a code of its own."""

    message: str


class QueueSizeViolation(Struct, frozen=True, gc=False):
    limit: int


class PayloadSizeViolation(Struct, frozen=True, gc=False):
    limit: int


class KeyRangeViolation(Struct, frozen=True, gc=False):
    key_min: int
    key_max: int


OK, ACK, NACK, EMPTY = Ok(), Ack(), Nack(), Empty()


# Many at once -----------------------------------------------------------------------------------------------------


class Enqueues(Struct, frozen=True, gc=False):
    """Enqueues of one queue, one behind the other, each with its Ack."""

    queue: str
    drafts: list[Draft]
    size_bytes: int  # of all of it on the wire, and so more than any payload has

    def __len__(self) -> int:
        return 2 * len(self.drafts)

    def apart(self) -> "list[Packet]":
        """Return its packets."""
        queue = self.queue
        return [packet for draft in self.drafts for packet in (Enqueue(queue, draft.priority, draft.body), ACK)]


class Dequeues(Struct, frozen=True, gc=False):
    """The same Dequeue so many times, each with its Ack."""

    dequeue: Dequeue
    count: int

    @property
    def queue(self) -> str:
        return self.dequeue.queue

    def __len__(self) -> int:
        return 2 * self.count

    def apart(self) -> "list[Packet]":
        """Return its packets."""
        return [self.dequeue, ACK] * self.count


class Oks(Struct, frozen=True, gc=False):
    """So many Oks."""

    count: int


class Taken(Struct, frozen=True, gc=False):
    """Records, each with the Ok that answers its Ack."""

    ids: list[int]
    drafts: list[Draft]

    def records(self) -> list[Record]:
        """Return them one by one, without the Oks."""
        return [Record(draft.priority, draft.body, number) for number, draft in zip(self.ids, self.drafts, strict=True)]


VIOLATIONS = (GeneralViolation, QueueSizeViolation, PayloadSizeViolation, KeyRangeViolation)

Violation: TypeAlias = GeneralViolation | QueueSizeViolation | PayloadSizeViolation | KeyRangeViolation
Request: TypeAlias = (
    AuthorizationRequest | BootstrapRequest | Ack | Nack | ClusterMetadataRequest
    | Enqueue | Dequeue | Count | CreateQueue | DeleteQueue | ListQueues | Enqueues | Dequeues
)  # fmt: skip
Response: TypeAlias = (
    AuthorizationResponse | BootstrapResponse | Ok | ErrorResponse | NotLeader | ClusterMetadataResponse
    | EnqueueResponse | Record | Empty | CountResponse | BusinessError | ListQueuesResponse | Violation | Oks | Taken
)  # fmt: skip
Packet: TypeAlias = Request | Response


# What is done with records ------------------------------------------------------------------------------------------


class Holding(Struct, frozen=True, gc=False):
    """A record that a client holds, by what its queue calls it, and until when it is leased at first."""

    uid: str
    queue_id: int
    number: int
    token: Token
    until_ms: int


class Store(Struct, frozen=True, gc=False):
    """Records of one queue whose Enqueues are acknowledged."""

    queue: str
    drafts: list[Draft]
    is_unheard: bool = False  # not even the first Ok has been answered yet


class Take(Struct, frozen=True, gc=False):
    """Dequeues of one queue that are acknowledged already, or never will be: a record is removed by being delivered.

    It is done for the first of them, without a wait; the others have their turn again.
    """

    queue: str
    dequeues: list[Dequeue]


class Remove(Struct, frozen=True, gc=False):
    """The client has taken the record."""

    queue: str
    holding: Holding


class Return(Struct, frozen=True, gc=False):
    """The record is to be available again.

    `reason` tells a client that gave it back, or went away with it, from one that never had it.
    """

    queue: str
    holding: Holding
    reason: Reason = Reason.NACK
    instead: Response | None = None  # is answered in place of Ok


# What can be wrong ----------------------------------------------------------------------------------------------------

# Raised by nobody to the outside: the reader puts them, as a Bad, where the packet would have been, and a client's
# session may raise what it finds there.  The text names the byte or the field, what it was and what it must be.


class BadPacket(WakeqError):
    """Bytes that are no packet.  Where the next packet begins is unknown."""

    code = "BAD_PACKET"
    closes = True


class UnexpectedPacket(BadPacket):
    """A marker or a packet that may not come here."""


class BadBody(BadPacket):
    """A framed body that is no command.  The frame says where the next packet begins, so the stream goes on."""

    closes = False


class Crowded(Busy):
    """All connections together hold too much that is unfinished, and this one some of it."""

    closes = True


class PacketTooLong(FrameTooLarge):
    """A packet that announces more bytes than are read.  They are not."""
