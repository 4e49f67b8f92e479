"""Codec: a stream of TaskFlux becomes packets, whatever pieces it comes in, and packets become bytes.

    bytes --> receive --> [Packet | Bad, ...]        a dialect, [Packet, ...] --> encode --> bytes, joined once

What one read brings becomes one list.  The server's reader also knows the handshake: until it is over nothing else is
read, and its version decides in which dialect the bytes behind it are understood.  Runs are what busy clients say:
Enqueues or Dequeues of one queue in a row, each with its Ack, read in one piece.

Reading must never raise for what a peer sent, keep more than a packet may have, or look again at a packet before what
it lacks has come.  Writing must never write a packet that the dialect does not have, or a number that its field does
not hold: both raise a Refused that names the packet.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from wakeq.protocol.errors import BadCommand, BadField
from wakeq.protocol.log.entries import Draft
from wakeq.protocol.wire.taskflux.commands import (
    ACK,
    METHOD_TOKEN,
    OK,
    PAYLOAD_BYTES_MAX,
    TAKEN_TOGETHER_MAX,
    Ack,
    AuthorizationRequest,
    AuthorizationResponse,
    Bad,
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
    Dequeues,
    Empty,
    Enqueue,
    EnqueueResponse,
    Enqueues,
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
from wakeq.protocol.wire.taskflux.decoders import (
    AUTHORIZATION,
    BOOTSTRAP,
    CREATE_FIELDS,
    ID_KEY_SIZE,
    INT32,
    INT32_PAIR,
    INT64_PAIR,
    KEY_SIZE,
    SHORT,
    UINT32,
    VERSION_FIELDS,
    Decode,
    Decoders,
    RequestDecoder,
    ResponseDecoder,
    Torn,
    Wrong,
    by_marker,
)
from wakeq.protocol.wire.taskflux.dialects import DIALECTS, SPEC, Dialect, dialect_of

PACKET_ROOM_BYTES = 4096  # for everything in a packet that is not the payload
PACKET_BYTES_MAX = PAYLOAD_BYTES_MAX + PACKET_ROOM_BYTES
PACKETS_MAX = 1 << 32  # in one piece, of whoever does not count them
DECODERS_REMEMBERED_MAX = 16  # tables, one for each dialect and limit: a node has a few
_COMMAND = ord("C")


Bare = Mapping[int, Packet]  # packets that are nothing but their marker: most of what is said, and read without a call


@lru_cache(maxsize=DECODERS_REMEMBERED_MAX)
def _request_decoders(dialect: str, packet_bytes_max: int) -> tuple[Decoders, Bare]:
    decoder = RequestDecoder(DIALECTS[dialect], packet_bytes_max)
    return decoder.ready, decoder.bare


@lru_cache(maxsize=DECODERS_REMEMBERED_MAX)
def _response_decoders(dialect: str, packet_bytes_max: int) -> Decoders:
    return by_marker(ResponseDecoder(DIALECTS[dialect], packet_bytes_max).packets)


class PacketReader:
    """Keeps the rest of a stream that is no whole packet yet."""

    __slots__ = (
        "_bare",
        "_broken",
        "_decoders",
        "_dropped_bytes",
        "_in_handshake",
        "_rest",
        "_resume",
        "_runs",
        "_wanted_bytes",
        "unread_bytes",
    )

    def __init__(self, decoders: Decoders, bare: Bare) -> None:
        self._decoders = decoders
        self._bare = bare
        self._runs: Runs | None = None  # what reads most of what is said, where there is such a thing
        self._in_handshake = False
        self._rest = bytearray()  # grows in place: a long packet in small pieces costs what its length costs
        self._wanted_bytes = 0  # how long the rest must be to be looked at again; 0 between packets
        self._resume: Decode | None = None  # what goes on reading a packet whose beginning was dropped
        self._dropped_bytes = 0  # of that packet
        self._broken = False
        self.unread_bytes = 0  # of what came last, behind as many packets as were wanted: they are to come again

    @property
    def missing_bytes(self) -> int:
        """How much of an unfinished packet has to come before it is looked at again."""
        return max(0, self._wanted_bytes - len(self._rest))

    @property
    def waiting_bytes(self) -> int:
        """How much of an unfinished packet is held."""
        return len(self._rest)

    @property
    def is_between_packets(self) -> bool:
        """Whether the stream could end here without cutting a packet off."""
        return not self._wanted_bytes

    def forget(self) -> None:
        """Drop what is unfinished, and read nothing more."""
        self._broken, self._rest = True, bytearray()

    def receive(self, data: bytes, packets_max: int = PACKETS_MAX) -> list[Packet | Bad]:
        """Return the packets that are whole now, at most so many.  Behind a Bad that closes there is nothing more."""
        self.unread_bytes = 0
        if self._broken:
            return []
        if self._wanted_bytes:
            self._rest += data
            if len(self._rest) < self._wanted_bytes:
                return []
            data, self._rest, self._wanted_bytes = bytes(self._rest), bytearray(), 0
        packets: list[Packet | Bad] = []
        self._decode(data, packets, packets_max)
        return packets

    def _decode(self, data: bytes, packets: list[Packet | Bad], packets_max: int) -> None:
        at, size = 0, len(data)
        try:
            if self._resume is not None:
                packet, at = self._resume(data, 0)
                packets.append(packet)
                self._resume, self._dropped_bytes = None, 0
            decoders, bare, runs = self._decoders, self._bare, self._runs
            while at < size:
                if len(packets) >= packets_max:
                    self.unread_bytes = size - at
                    return
                marker = data[at]
                if marker in bare:
                    packets.append(bare[marker])
                    at += 1
                    continue
                if marker == _COMMAND and runs is not None and (end := runs.read(data, at, packets)) > at:
                    at = end
                    continue
                packet, at = decoders[marker](data, at + 1)
                packets.append(packet)
                if self._in_handshake:
                    decoders = self._shaken(packet)
                    bare, runs = self._bare, self._runs
        except Torn as torn:
            self._keep(data, at, torn)
        except SHORT:
            self._keep(data, at, Torn(size + 1))
        except Wrong as wrong:
            self._broken = True
            offset = self._dropped_bytes + wrong.at - at
            packets.append(Bad(wrong.becomes(f"byte {offset} of the packet: {wrong}")))

    def _keep(self, data: bytes, start: int, torn: Torn) -> None:
        """Keep what began at `start`, or of it what is still needed."""
        if torn.resume is not None:
            self._dropped_bytes += torn.done - start
            self._resume, start = torn.resume, torn.done
        self._rest += data[start:]
        self._wanted_bytes = torn.wanted - start

    def _shaken(self, packet: Packet | Bad) -> Decoders:
        """Return the decoders that follow a packet of the handshake; a server's answers have none."""
        return self._decoders


class RequestReader(PacketReader):
    """Reads what a client says.  `dialect` is the listener's until the handshake shows that it is another."""

    __slots__ = ("_packet_bytes_max", "dialect")

    def __init__(self, dialect: Dialect = SPEC, packet_bytes_max: int = PACKET_BYTES_MAX) -> None:
        super().__init__(AUTHORIZATION, {})
        self._in_handshake = True
        self._packet_bytes_max = packet_bytes_max
        self.dialect = dialect

    def _shaken(self, packet: Packet | Bad) -> Decoders:
        if isinstance(packet, BootstrapRequest):
            self._in_handshake = False
            self.dialect = dialect_of(packet, self.dialect) or self.dialect
            self._decoders, self._bare = _request_decoders(self.dialect.name, self._packet_bytes_max)
            if not self.dialect.is_framed:
                self._runs = Runs(self.dialect.ack, self._packet_bytes_max)
        else:
            self._decoders = BOOTSTRAP
        return self._decoders


class ResponseReader(PacketReader):
    """Reads what a server says to a client of this dialect."""

    __slots__ = ()

    def __init__(self, dialect: Dialect = SPEC, packet_bytes_max: int = PACKET_BYTES_MAX) -> None:
        bare = {} if dialect.is_framed else {ord("k"): OK}
        super().__init__(_response_decoders(dialect.name, packet_bytes_max), bare)


# Runs -----------------------------------------------------------------------------------------------------------------


_ENQUEUE, _DEQUEUE = b"ED"
_HEAD_BYTES = 3  # the marker of a packet, that of its command, and the size of a name


class Runs:
    """Enqueues or Dequeues of one queue in a row, each with its Ack, of a dialect whose packets have no frame.

    A packet for each of them takes three times as long.  Must never take what is torn, wrong, without its Ack or
    anything else: that is left to the decoders, which read the same packets and say what is wrong.
    """

    __slots__ = ("_ack", "_packet_bytes_max")

    def __init__(self, ack: bytes, packet_bytes_max: int) -> None:
        self._ack = ord(ack)
        self._packet_bytes_max = packet_bytes_max

    def read(self, data: bytes, at: int, packets: list[Packet | Bad]) -> int:
        """Append the run that begins with the command here; return where it ends, which is here if there is none."""
        fields = at + _HEAD_BYTES
        if fields > len(data):
            return at
        fields += data[at + 2]
        kind = data[at + 1]
        if kind == _ENQUEUE:
            return self._read_enqueues(data, at, data[at:fields], packets)
        if kind == _DEQUEUE:
            return self._read_dequeues(data, at, data[at : fields + UINT32.size + 1], packets)
        return at

    def _read_enqueues(self, data: bytes, start: int, head: bytes, packets: list[Packet | Bad]) -> int:
        """Read those that begin with these bytes, as far as they are whole and acknowledged."""
        ack, size, key_size_of = self._ack, len(data), KEY_SIZE.unpack_from
        to_fields, to_payload = len(head), len(head) + KEY_SIZE.size
        payload_bytes_max = self._packet_bytes_max + 2 - to_payload
        drafts: list[Draft] = []
        at = start
        while data.startswith(head, at) and at + to_payload < size:
            key, payload_bytes = key_size_of(data, at + to_fields)
            payload = at + to_payload
            end = payload + payload_bytes
            if not 0 <= payload_bytes <= payload_bytes_max or end >= size or data[end] != ack:
                break
            drafts.append(Draft(data[payload:end], key))
            at = end + 1
        name = head[_HEAD_BYTES:].decode("latin-1")
        if len(drafts) > 1:
            packets.append(Enqueues(name, drafts, at - start))
        elif drafts:
            packets += (Enqueue(name, drafts[0].priority, drafts[0].body), ACK)
        return at

    def _read_dequeues(self, data: bytes, start: int, pair: bytes, packets: list[Packet | Bad]) -> int:
        """Read those that are just these bytes, if they are a Dequeue and its Ack."""
        fields = _HEAD_BYTES + pair[2]
        size = fields + UINT32.size + 1
        if len(pair) < size or pair[-1] != self._ack:
            return start
        most = min((len(data) - start) // size, TAKEN_TOGETHER_MAX)
        if data.startswith(pair * most, start):
            count = most
        else:
            count = 1
            while data.startswith(pair, start + count * size):
                count += 1
        dequeue = Dequeue(pair[_HEAD_BYTES:fields].decode("latin-1"), UINT32.unpack_from(pair, fields)[0])
        packets += (Dequeues(dequeue, count),) if count > 1 else (dequeue, ACK)
        return start + count * size


# Encoding -------------------------------------------------------------------------------------------------------------


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
