"""Make bytes of TaskFlux packets.

    a dialect, [Packet, ...] --> encode --> bytes, joined once for the whole batch

Both sides use it.  Must never write a packet that the dialect does not have, or a number that its field does not hold:
both raise a Refused that names the packet.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from wakeq.protocol.errors import BadCommand, BadField
from wakeq.protocol.wire.taskflux.dialects import DIALECTS, Dialect
from wakeq.protocol.wire.taskflux.fields import (
    CREATE_FIELDS,
    ID_KEY_SIZE,
    INT32,
    INT32_PAIR,
    INT64_PAIR,
    KEY_SIZE,
    UINT32,
    VERSION_FIELDS,
)
from wakeq.protocol.wire.taskflux.packets import (
    METHOD_TOKEN,
    Ack,
    AuthorizationRequest,
    AuthorizationResponse,
    BootstrapRequest,
    BootstrapResponse,
    BusinessError,
    ClusterMetadataRequest,
    ClusterMetadataResponse,
    Count,
    CountResponse,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    Empty,
    Enqueue,
    EnqueueResponse,
    ErrorResponse,
    GeneralViolation,
    KeyRangeViolation,
    ListQueues,
    ListQueuesResponse,
    Nack,
    NotLeader,
    Ok,
    Oks,
    Packet,
    PayloadSizeViolation,
    QueueSizeViolation,
    Record,
    Taken,
)

Pieces: TypeAlias = Sequence[bytes]
Write: TypeAlias = Callable[[Any], Pieces]

_UNWRITABLE = (struct.error, ValueError)  # a number or a text that does not fit into its field


def encode(packets: Sequence[Packet], dialect: Dialect) -> bytes:
    """Return the bytes of the packets, in their order."""
    writers = _writers(dialect.name)
    bare, by_type = writers.bare, writers.by_type
    pieces: list[bytes] = []
    for packet in packets:
        kind = type(packet)
        if kind in bare:
            pieces.append(bare[kind])
            continue
        write = by_type.get(kind)
        if write is None:
            raise BadCommand(f"{type(packet).__name__} does not exist in the dialect {dialect.name}")
        try:
            pieces += write(packet)
        except _UNWRITABLE as error:
            raise BadField(
                f"{type(packet).__name__} cannot be written, a field does not hold its value: {error}"
            ) from None
    return b"".join(pieces)


@lru_cache(maxsize=len(DIALECTS))
def _writers(dialect: str) -> "Writers":
    return Writers(DIALECTS[dialect])


def _text(value: str) -> Pieces:
    """Return a String."""
    raw = value.encode()
    return INT32.pack(len(raw)), raw


def _framed(marker: bytes, write: Write) -> Write:
    """Return a writer that puts what another one writes into a frame."""

    def write_framed(packet: Any) -> Pieces:
        pieces = write(packet)
        return marker, INT32.pack(sum(map(len, pieces))), *pieces

    return write_framed


class Writers:
    """Writers of one dialect; `by_type` has one for each packet that the dialect knows.

    `bare` are those packets that are nothing but a marker: at least every second one that is sent to a busy connection.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.bare: dict[type, bytes] = {} if dialect.is_framed else {Ok: b"k", Ack: dialect.ack, Nack: b"N"}
        self._name_size = dialect.name_size
        self._error_numbers = {code: number for number, code in enumerate(dialect.error_codes)}
        self._request = b"" if dialect.is_framed else b"C"
        self._response = b"" if dialect.is_framed else b"c"
        commands: dict[type, Write] = {Enqueue: self._enqueue, Dequeue: self._dequeue, Count: self._count}
        responses: dict[type, Write] = {
            Record: self._record,
            Empty: self._empty,
            CountResponse: self._count_response,
            BusinessError: self._business_error,
        }
        self.by_type: dict[type, Write] = {
            AuthorizationRequest: _authorization,
            AuthorizationResponse: lambda packet: (b"a", *_success(packet)),
            BootstrapRequest: lambda packet: (b"B", VERSION_FIELDS.pack(packet.major, packet.minor, packet.patch)),
            BootstrapResponse: lambda packet: (b"b", *_success(packet)),
            ErrorResponse: self._error_response,
            NotLeader: lambda packet: (b"l", INT32.pack(packet.leader)),
        }
        if dialect.is_framed:
            responses[EnqueueResponse] = _enqueue_response
            commands = {kind: _framed(b"C", write) for kind, write in commands.items()}
            responses = {kind: _framed(b"c", write) for kind, write in responses.items()}
        else:
            self.by_type |= self._two_phase()
        self.by_type |= commands | responses

    def _two_phase(self) -> dict[type, Write]:
        """What came with the two-phase protocol."""
        return {
            ClusterMetadataRequest: lambda _: (b"M",),
            ClusterMetadataResponse: _cluster_metadata,
            CreateQueue: self._create_queue,
            DeleteQueue: self._delete_queue,
            ListQueues: lambda _: (b"CL",),
            ListQueuesResponse: _list_queues,
            GeneralViolation: lambda packet: (b"cp", INT32.pack(0), *_text(packet.message)),
            QueueSizeViolation: lambda packet: (b"cp", INT32_PAIR.pack(1, packet.limit)),
            PayloadSizeViolation: self._payload_size_violation,
            KeyRangeViolation: self._key_range_violation,
            Oks: lambda packet: (b"k" * packet.count,),
            Taken: self._taken,
        }

    # --- commands --------------------------------------------------------------------------------------------------

    def _name(self, name: str) -> Pieces:
        """Return a queue name as it is: whether it is one, the other side says."""
        return self._name_size.pack(len(name)), name.encode("latin-1")

    def _enqueue(self, packet: Enqueue) -> Pieces:
        name, payload = packet.queue, packet.payload
        fields = KEY_SIZE.pack(packet.key, len(payload))
        return self._request, b"E", self._name_size.pack(len(name)), name.encode("latin-1"), fields, payload

    def _dequeue(self, packet: Dequeue) -> Pieces:
        if self._dialect.is_one_phase:  # it never waits
            return self._request, b"D", *self._name(packet.queue)
        return self._request, b"D", *self._name(packet.queue), UINT32.pack(packet.timeout_ms)

    def _count(self, packet: Count) -> Pieces:
        return self._request, b"C", *self._name(packet.queue)

    def _create_queue(self, packet: CreateQueue) -> Pieces:
        has_range = packet.key_range is not None
        fields = CREATE_FIELDS.pack(packet.implementation, packet.queue_size_max, packet.payload_bytes_max, has_range)
        key_range = b"" if packet.key_range is None else INT64_PAIR.pack(*packet.key_range)
        return b"CQ", *self._name(packet.queue), fields, key_range

    def _delete_queue(self, packet: DeleteQueue) -> Pieces:
        return b"CR", *self._name(packet.queue)

    # --- responses -------------------------------------------------------------------------------------------------

    def _record(self, packet: Record) -> Pieces:
        key, payload = packet.key, packet.payload
        if self._dialect.has_record_id:
            return self._response, b"d\x01", ID_KEY_SIZE.pack(packet.id, key, len(payload)), payload
        return self._response, b"d\x01", KEY_SIZE.pack(key, len(payload)), payload

    def _taken(self, packet: Taken) -> Pieces:
        """Return records, each with the Ok behind it, in one list."""
        head, pieces = self._response + b"d\x01", list[bytes]()
        if self._dialect.has_record_id:
            for number, draft in zip(packet.ids, packet.drafts, strict=True):
                payload = draft.body
                pieces += (head, ID_KEY_SIZE.pack(number, draft.priority, len(payload)), payload, b"k")
        else:
            for draft in packet.drafts:
                payload = draft.body
                pieces += (head, KEY_SIZE.pack(draft.priority, len(payload)), payload, b"k")
        return pieces

    def _empty(self, _: Empty) -> Pieces:
        return self._response, b"d\x00"

    def _count_response(self, packet: CountResponse) -> Pieces:
        return self._response, b"c", INT32.pack(packet.count)

    def _business_error(self, packet: BusinessError) -> Pieces:
        dialect = self._dialect
        number = self._error_numbers.get(packet.code, 0)
        return self._response, dialect.error, dialect.error_code.pack(number), *_text(packet.details)

    def _error_response(self, packet: ErrorResponse) -> Pieces:
        if self._dialect.has_error_response_code:
            return b"e", INT32.pack(packet.code), *_text(packet.details)
        return b"e", *_text(packet.details)

    def _payload_size_violation(self, packet: PayloadSizeViolation) -> Pieces:
        return b"cp", INT32_PAIR.pack(self._dialect.payload_size_violation, packet.limit)

    def _key_range_violation(self, packet: KeyRangeViolation) -> Pieces:
        number = INT32.pack(self._dialect.key_range_violation)
        return b"cp", number, INT64_PAIR.pack(packet.key_min, packet.key_max)


def _authorization(packet: AuthorizationRequest) -> Pieces:
    token = _text(packet.token) if packet.method == METHOD_TOKEN else ()
    return b"A", bytes((packet.method,)), *token


def _success(packet: AuthorizationResponse | BootstrapResponse) -> Pieces:
    return (b"\x01",) if packet.success else (b"\x00", *_text(packet.reason))


def _enqueue_response(packet: EnqueueResponse) -> Pieces:
    return (b"e\x01",) if packet.added else (b"e\x00",)


def _cluster_metadata(packet: ClusterMetadataResponse) -> Pieces:
    addresses = [piece for address in packet.addresses for piece in _text(address)]
    ids = INT32_PAIR.pack(packet.leader, packet.responder)
    return b"m", INT32.pack(len(packet.addresses)), *addresses, ids


def _list_queues(packet: ListQueuesResponse) -> Pieces:
    pieces = [b"cl", INT32.pack(len(packet.queues))]
    for queue in packet.queues:
        name = queue.queue.encode("latin-1")
        pieces += (bytes((len(name),)), name, INT32_PAIR.pack(queue.count, len(queue.metadata)))
        for key, value in queue.metadata:
            pieces += (*_text(key), *_text(value))
    return tuple(pieces)
