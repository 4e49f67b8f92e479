"""Requests: the packets that a TaskFlux client sends, how it reads the answers, and the results.

    a call --> Request: packets to send --> answers, one by one, until it is over --> a result, or an error

Pure. A request is used once, so a call is a function that makes its request: one that is sent again has to be a new
one. A request states whether the same call may be sent again after a lost connection.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from wakeq.protocol.errors import (
    BY_CODE,
    BadField,
    BadName,
    Disconnected,
    KeyRange,
    QueueExists,
    QueueFull,
    QueueNotFound,
    Refused,
    TooLarge,
    Unauthorized,
    WakeqError,
)
from wakeq.protocol.wire.taskflux import commands as wire
from wakeq.protocol.wire.taskflux.dialects import DIALECTS, Dialect

T = TypeVar("T")

# The records of one batch, which is sent before its answers are read.
BATCH_MAX = 512
BATCH_BYTES_MAX = 1 << 20

_ERRORS: dict[wire.ErrorCode, type[Refused]] = {
    wire.ErrorCode.BAD_NAME: BadName,
    wire.ErrorCode.NO_QUEUE: QueueNotFound,
    wire.ErrorCode.QUEUE_EXISTS: QueueExists,
    wire.ErrorCode.KEY_OUTSIDE: KeyRange,
    wire.ErrorCode.BAD_KEY_RANGE: BadField,
    wire.ErrorCode.BAD_QUEUE_SIZE: BadField,
    wire.ErrorCode.BAD_PAYLOAD_SIZE: BadField,
    wire.ErrorCode.NO_KEY_RANGE: BadField,
    wire.ErrorCode.BAD_IMPLEMENTATION: BadField,
}


@dataclass(frozen=True, slots=True)
class Record:
    """A record from a queue. Only servers with the dialect `csharp` send its id."""

    key: int
    payload: bytes
    id: int = 0


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """One queue: the number of its records, and its policies in the server's words."""

    count: int
    policies: dict[str, str]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The addresses of the nodes by id, the id of the leader (None if there is none), and of the node that answered."""

    addresses: list[str]
    leader: int | None
    answered: int


class NotAllEnqueued(Refused):
    """Some of the records were refused; the others are stored. `refusals` maps the index of a record to its error."""

    def __init__(self, refusals: dict[int, WakeqError], count: int) -> None:
        index, error = next(iter(refusals.items()))
        super().__init__(f"{len(refusals)} of {count} records were not stored; the first was number {index}: {error}")
        self.refusals = refusals


class UnexpectedAnswer(Disconnected):
    """The server sent an answer that makes no sense here; the stream cannot be trusted any more."""


def refusal_of(answer: wire.Packet, queue: str, dialect: Dialect) -> WakeqError:
    """Return the error for an answer that is not the one that the request expects."""
    name = f"queue {queue!r}"
    match answer:
        case wire.BusinessError(details=details) if (refusal := _broker_refusal(details)) is not None:
            return refusal
        case wire.BusinessError(code=code, details=details):
            text = details or code.name.lower().replace("_", " ")
            return _ERRORS.get(code, Refused)(f"{name}: {text}")
        case wire.QueueSizeViolation(limit=limit):
            return QueueFull(f"{name} holds as many records as it may, {limit}; take some, or enqueue later")
        case wire.PayloadSizeViolation(limit=limit):
            return TooLarge(f"{name} takes payloads of up to {limit} bytes; split the record")
        case wire.KeyRangeViolation(key_min=low, key_max=high):
            return KeyRange(f"{name} takes keys from {low} to {high}")
        case wire.GeneralViolation(message=message):
            return Refused(f"{name}: {message}")
        case wire.ErrorResponse(code=number) if 0 < number < len(dialect.error_codes):
            return refusal_of(wire.BusinessError(dialect.error_codes[number]), queue, dialect)
        case wire.ErrorResponse(details=details):
            return UnexpectedAnswer(f"the server ended the conversation: {details or 'it gave no reason'}")
    return UnexpectedAnswer(
        f"the server answered {type(answer).__name__}, which makes no sense here; is the dialect right?"
    )


def _broker_refusal(details: str) -> Refused | None:
    """Return the error for details of the form `CODE: text`; brokers send these where TaskFlux has no code."""
    code, _, text = details.partition(": ")
    kind = BY_CODE.get(code)
    return None if kind is None else kind(text)


class Request(ABC, Generic[T]):
    """One request. `moved` is set if the server does not lead, and names the leader."""

    # The request may be sent again after a lost connection, although it may have been done already.
    may_repeat = True
    # How much longer than other answers this one may take.
    wait_s = 0.0

    def __init__(self, queue: str, dialect: Dialect) -> None:
        self.queue = queue
        self.dialect = dialect
        self.moved: wire.NotLeader | None = None

    @abstractmethod
    def next_packets(self) -> Sequence[wire.Packet]:
        """Return the packets to send now; none while answers have to be read first."""

    @abstractmethod
    def take(self, answer: wire.Packet) -> bool:
        """Read the next answer; return whether the request is over."""

    @abstractmethod
    def result(self) -> T:
        """Return the result, or raise the refusal."""


class SingleRequest(Request[T]):
    """One packet with one answer."""

    def __init__(
        self,
        packet: wire.Packet,
        read: Callable[[wire.Packet], T | None],
        queue: str,
        dialect: Dialect,
        *,
        may_repeat: bool = True,
        wait_s: float = 0.0,
    ) -> None:
        super().__init__(queue, dialect)
        self.may_repeat = may_repeat
        self.wait_s = wait_s
        self._packet: wire.Packet | None = packet
        self._read = read
        self._answer: wire.Packet | None = None

    def next_packets(self) -> Sequence[wire.Packet]:
        packet, self._packet = self._packet, None
        return [] if packet is None else [packet]

    def take(self, answer: wire.Packet) -> bool:
        self._answer = answer
        if isinstance(answer, wire.NotLeader):
            self.moved = answer
        return True

    def result(self) -> T:
        assert self._answer is not None, "the request is over"
        value = self._read(self._answer)
        if value is None:
            raise refusal_of(self._answer, self.queue, self.dialect)
        return value


class EnqueueRequest(Request[None]):
    """Records for one queue, each followed by its Ack.

    When the server stops leading, the remaining records are sent to another server.
    """

    may_repeat = False

    def __init__(self, queue: str, records: Sequence[tuple[int, bytes]], dialect: Dialect) -> None:
        super().__init__(queue, dialect)
        self._records = records
        # The indexes of the records to send.
        self._places: Sequence[int] = range(len(records))
        # How many of `_places` were sent, and how many of these were answered.
        self._sent = 0
        self._answered = 0
        # The server has accepted the Enqueue of the next record and not answered its Ack.
        self._is_accepted = False
        # Records that were refused because the server does not lead.
        self._not_led: list[int] = []
        self._refusals: dict[int, WakeqError] = {}

    def rest(self) -> "EnqueueRequest":
        """Return a request for another server, with the records that are not stored."""
        rest = EnqueueRequest(self.queue, self._records, self.dialect)
        rest._places, rest._refusals = [*self._not_led, *self._places[self._sent :]], self._refusals
        return rest

    def next_packets(self) -> Sequence[wire.Packet]:
        """Keep up to two batches outstanding, so that neither side waits for the other."""
        if self._sent - self._answered > BATCH_MAX // 2 or self.moved is not None:
            return []
        packets: list[wire.Packet] = []
        size = 0
        while self._sent < len(self._places) and len(packets) < 2 * BATCH_MAX and size < BATCH_BYTES_MAX:
            key, payload = self._records[self._places[self._sent]]
            packets += (wire.Enqueue(self.queue, key, payload), wire.ACK)
            size += len(payload)
            self._sent += 1
        return packets

    def take(self, answer: wire.Packet) -> bool:
        if isinstance(answer, wire.Ok) and not self._is_accepted:
            self._is_accepted = True
            return False
        self._is_accepted = False
        place = self._places[self._answered]
        if isinstance(answer, wire.NotLeader):
            self.moved = answer
            self._not_led.append(place)
        elif not isinstance(answer, wire.Ok):
            error = refusal_of(answer, self.queue, self.dialect)
            if isinstance(error, Disconnected):
                raise error
            self._refusals[place] = error
        self._answered += 1
        return self._answered == (self._sent if self.moved is not None else len(self._places))

    def result(self) -> None:
        if self._refusals and len(self._records) == 1:
            raise self._refusals[0]
        if self._refusals:
            raise NotAllEnqueued(self._refusals, len(self._records))


def is_ok(answer: wire.Packet) -> bool | None:
    """Read an Ok."""
    return True if isinstance(answer, wire.Ok) else None


def record_in(answer: wire.Packet) -> Record | bool | None:
    """Read the answer to a Dequeue; False if there was no record."""
    match answer:
        case wire.Record(key=key, payload=payload, id=number):
            return Record(key, payload, number)
        case wire.Empty():
            return False
    return None


def count_in(answer: wire.Packet) -> int | None:
    """Read a count."""
    return answer.count if isinstance(answer, wire.CountResponse) else None


def queues_in(answer: wire.Packet) -> dict[str, QueueInfo] | None:
    """Read a list of queues."""
    if not isinstance(answer, wire.ListQueuesResponse):
        return None
    return {queue.queue: QueueInfo(queue.count, dict(queue.metadata)) for queue in answer.queues}


def cluster_in(answer: wire.Packet) -> Cluster | None:
    """Read the nodes of a cluster."""
    if not isinstance(answer, wire.ClusterMetadataResponse):
        return None
    leader = None if answer.leader == wire.UNKNOWN_NODE else answer.leader
    return Cluster(list(answer.addresses), leader, answer.responder)


class Handshake(Request[None]):
    """Both packets of the handshake, sent together."""

    def __init__(self, dialect: Dialect, token: str | None = None) -> None:
        super().__init__("", dialect)
        self._token = token
        self._is_sent = False
        self._answers: list[wire.Packet] = []

    def next_packets(self) -> Sequence[wire.Packet]:
        if self._is_sent:
            return []
        self._is_sent = True
        authorization = wire.AuthorizationRequest()
        if self._token is not None:
            authorization = wire.AuthorizationRequest(wire.METHOD_TOKEN, self._token)
        return [authorization, wire.BootstrapRequest(1, 0, 0)]

    def take(self, answer: wire.Packet) -> bool:
        self._answers.append(answer)
        return len(self._answers) == 2 or not getattr(answer, "success", False)

    def result(self) -> None:
        last = self._answers[-1]
        if not getattr(last, "success", False):
            reason = getattr(last, "reason", "") or f"it answered {type(last).__name__}"
            if isinstance(last, wire.AuthorizationResponse):
                raise Unauthorized(f"the server refuses the connection: {reason}")
            raise UnexpectedAnswer(f"the server refuses the connection: {reason}")


Call: TypeAlias = Callable[[], Request[T]]

DIALECT_NAMES = ("spec", "csharp")
IMPLEMENTATIONS = {"H4": wire.H4, "QA": wire.QA}
TIMEOUT_MS_MAX = 2**32 - 1


def dialect_named(name: str) -> Dialect:
    """Return the dialect with this name, or raise BadField."""
    if name not in DIALECT_NAMES:
        raise BadField(f"dialect {name!r} is not known; use one of {', '.join(DIALECT_NAMES)}")
    return DIALECTS[name]


def payload_of(payload: bytes | str) -> bytes:
    """Return text as UTF-8, and bytes as they are."""
    return payload.encode() if isinstance(payload, str) else bytes(payload)


def enqueues(queue: str, records: Iterable[tuple[int, bytes | str]], dialect: Dialect) -> Call[None]:
    """Store records, each with its key."""
    batch = [(key, payload_of(payload)) for key, payload in records]
    requests: list[EnqueueRequest] = []

    def make() -> EnqueueRequest:
        requests.append(requests[-1].rest() if requests else EnqueueRequest(queue, batch, dialect))
        return requests[-1]

    return make


def dequeue(queue: str, wait_s: float, dialect: Dialect) -> Call[Record | bool]:
    """Take the record with the smallest key; False if there is none."""
    wait_ms = round(wait_s * 1000)
    if not 0 <= wait_ms <= TIMEOUT_MS_MAX:
        raise BadField(f"wait is {wait_s} seconds, it must be 0 to {TIMEOUT_MS_MAX // 1000}")
    packet = wire.Dequeue(queue, wait_ms)
    return lambda: SingleRequest(packet, record_in, queue, dialect, wait_s=wait_s)


def end_record(queue: str, *, ack: bool, dialect: Dialect) -> Request[bool]:
    """Acknowledge a record, or return it to the queue."""
    return SingleRequest(wire.ACK if ack else wire.NACK, is_ok, queue, dialect, may_repeat=False)


def create(
    queue: str,
    implementation: str,
    max_size: int | None,
    max_payload: int | None,
    key_range: tuple[int, int] | None,
    dialect: Dialect,
) -> Call[bool]:
    """Create a queue."""
    if implementation not in IMPLEMENTATIONS:
        raise BadField(f"implementation {implementation!r} is not known; use H4 or QA")
    size = wire.UNLIMITED if max_size is None else max_size
    payload = wire.UNLIMITED if max_payload is None else max_payload
    packet = wire.CreateQueue(queue, IMPLEMENTATIONS[implementation], size, payload, key_range)
    return lambda: SingleRequest(packet, is_ok, queue, dialect, may_repeat=False)


def delete(queue: str, dialect: Dialect) -> Call[bool]:
    return lambda: SingleRequest(wire.DeleteQueue(queue), is_ok, queue, dialect, may_repeat=False)


def count(queue: str, dialect: Dialect) -> Call[int]:
    return lambda: SingleRequest(wire.Count(queue), count_in, queue, dialect)


def queues(dialect: Dialect) -> Call[dict[str, QueueInfo]]:
    return lambda: SingleRequest(wire.ListQueues(), queues_in, "", dialect)


def cluster(dialect: Dialect) -> Call[Cluster]:
    return lambda: SingleRequest(wire.ClusterMetadataRequest(), cluster_in, "", dialect)
