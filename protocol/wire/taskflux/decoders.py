"""Decoders: the fields of TaskFlux packets, and a decoder for each marker, of what clients say and of what servers say.

    bytes, an offset --> a value and the offset behind it | Torn | Wrong

A decoder gets bytes and the offset behind its marker; it returns a packet and the offset behind that.  Reading a
fixed field behind the last byte raises what Python raises, IndexError or struct.error (SHORT): a test for it before
each field would cost more than all the fields.

Must never make a value of a length that was not checked, copy a payload before it is whole, look behind the end of a
frame, or read one queue of a list twice: a list may be long and come in small pieces.
"""

import struct
from collections.abc import Callable, Mapping
from typing import TypeAlias

from wakeq.protocol.access import TOKEN_CHARS_MAX
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.wire.taskflux.commands import (
    ACK,
    EMPTY,
    METHOD_TOKEN,
    NACK,
    OK,
    AuthorizationRequest,
    AuthorizationResponse,
    Bad,
    BadBody,
    BadPacket,
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
    Enqueue,
    EnqueueResponse,
    ErrorCode,
    ErrorResponse,
    GeneralViolation,
    KeyRange,
    KeyRangeViolation,
    ListQueues,
    ListQueuesResponse,
    NotLeader,
    Packet,
    PacketTooLong,
    PayloadSizeViolation,
    QueueInfo,
    QueueSizeViolation,
    Record,
    UnexpectedPacket,
)
from wakeq.protocol.wire.taskflux.dialects import Dialect

INT32 = struct.Struct(">i")
UINT32 = struct.Struct(">I")
INT32_PAIR = struct.Struct(">ii")
INT64_PAIR = struct.Struct(">qq")
VERSION_FIELDS = struct.Struct(">iii")
KEY_SIZE = struct.Struct(">qi")  # a key, and the size of the payload behind it
ID_KEY_SIZE = struct.Struct(">Qqi")
CREATE_FIELDS = struct.Struct(">iii?")  # implementation, queue size, payload size, whether there is a key range

MARKERS = 256
_NAMES = {
    ord("A"): "AuthorizationRequest",
    ord("B"): "BootstrapRequest",
    ord("C"): "CommandRequest",
    ord("Q"): "Ack of the dialect spec",
    ord("K"): "Ack of the dialect csharp",
    ord("N"): "Nack",
    ord("M"): "ClusterMetadataRequest",
    ord("a"): "AuthorizationResponse",
    ord("b"): "BootstrapResponse",
    ord("c"): "CommandResponse",
    ord("k"): "Ok",
    ord("e"): "ErrorResponse",
    ord("l"): "NotLeader",
    ord("m"): "ClusterMetadataResponse",
}  # only for the texts of errors


class Wrong(Exception):
    """The byte at `at` can belong to no packet."""

    becomes: type[WakeqError] = BadPacket

    def __init__(self, at: int, text: str) -> None:
        super().__init__(text)
        self.at = at


class WrongMarker(Wrong):
    becomes = UnexpectedPacket


class TooLong(Wrong):
    """A length announces more than is read."""

    becomes = PacketTooLong


class Torn(Exception):
    """The packet goes on behind what is there, at least up to `wanted`.

    What stands before `done` need not be kept if there is a `resume`, which then reads on instead of the decoder.
    """

    def __init__(self, wanted: int, done: int = 0, resume: "Decode | None" = None) -> None:
        super().__init__()
        self.wanted, self.done, self.resume = wanted, done, resume


SHORT = (IndexError, struct.error)

Decode: TypeAlias = Callable[[bytes, int], tuple[Packet | Bad, int]]  # offset behind a marker -> behind the packet
Decoders: TypeAlias = tuple[Decode, ...]  # by marker


def by_marker(decoders: Mapping[bytes, Decode], *, of: str = "packet") -> Decoders:
    """Return a decoder for every marker; those without one say what could have come here."""

    def refuse(data: bytes, at: int) -> tuple[Packet | Bad, int]:
        marker = data[at - 1]
        name = _NAMES.get(marker) if of == "packet" else None
        expected = ", ".join(f"0x{ord(known):02X}" for known in decoders)
        found = f"0x{marker:02X}, {name}, cannot come here" if name else f"0x{marker:02X} is not a marker of a {of}"
        raise WrongMarker(at - 1, f"{found}; expected {expected}")

    found = {ord(marker): decode for marker, decode in decoders.items()}
    return tuple(found.get(marker, refuse) for marker in range(MARKERS))


def end_of(data: bytes, at: int, field: str, stop: int) -> int:
    """Return where a field ends whose Int32 length stands at `at`, once all of it is there."""
    (size,) = INT32.unpack_from(data, at)
    start = at + INT32.size
    check_length(start, field, size, stop)
    end: int = start + size
    if end > len(data):
        raise Torn(end)
    return end


def check_length(start: int, field: str, size: int, stop: int) -> None:
    """Raise Wrong unless a field of this size, beginning at `start`, ends before `stop`."""
    if size < 0:
        raise Wrong(start - INT32.size, f"the length of the {field} is {size}, it must be 0 or more")
    if start + size > stop:
        room = max(stop - start, 0)
        raise TooLong(start - INT32.size, f"the length of the {field} is {size}, the packet has room for {room}")


def text_at(data: bytes, at: int, field: str, stop: int) -> tuple[str, int]:
    """Return a String, and the offset behind it."""
    end = end_of(data, at, field, stop)
    start = at + INT32.size
    try:
        return data[start:end].decode(), end
    except UnicodeDecodeError as error:
        raise Wrong(start + error.start, f"the {field} is not UTF-8: {error.reason}") from None


def count_at(data: bytes, at: int, field: str, count_max: int) -> tuple[int, int]:
    """Return the Int32 count of an array or a dictionary, and the offset behind it."""
    (count,) = INT32.unpack_from(data, at)
    if not 0 <= count <= count_max:
        raise Wrong(at, f"the number of {field} is {count}, it must be from 0 to {count_max}")
    return count, at + INT32.size


# What servers say -----------------------------------------------------------------------------------------------------


NODES_MAX = 256  # addresses in one answer
METADATA_MAX = 64  # entries about one queue; three are known
QUEUES_MAX = 2**31 - 1  # the bytes of a packet end sooner


def _ok(_: bytes, at: int) -> tuple[Packet, int]:
    return OK, at


def _not_leader(data: bytes, at: int) -> tuple[Packet, int]:
    return NotLeader(*INT32.unpack_from(data, at)), at + INT32.size


def _enqueue_response(data: bytes, at: int) -> tuple[Packet, int]:
    return EnqueueResponse(data[at] != 0), at + 1


def _count(data: bytes, at: int) -> tuple[Packet, int]:
    return CountResponse(*INT32.unpack_from(data, at)), at + INT32.size


class ResponseDecoder:
    """Decodes the packets and responses of one dialect."""

    def __init__(self, dialect: Dialect, packet_bytes_max: int) -> None:
        self._dialect = dialect
        self._packet_bytes_max = packet_bytes_max
        self._codes = dict(enumerate(dialect.error_codes))
        self._violations = {
            0: self._general_violation,
            1: self._queue_size_violation,
            dialect.payload_size_violation: self._payload_size_violation,
            dialect.key_range_violation: self._key_range_violation,
        }
        responses: dict[bytes, Decode] = {b"d": self._dequeue, b"c": _count, dialect.error: self._business_error}
        self.packets: dict[bytes, Decode] = {
            b"a": self._authorization,
            b"b": self._bootstrap,
            b"e": self._error_response,
            b"l": _not_leader,
        }
        if dialect.is_framed:
            responses[b"e"] = _enqueue_response
            self.packets[b"c"] = self._framed_response
        else:
            responses |= {b"l": self._list_queues, b"p": self._violation}
            self.packets |= {b"c": self._response, b"k": _ok, b"m": self._cluster_metadata}
        self._responses = by_marker(responses, of="response")

    # --- packets ---------------------------------------------------------------------------------------------------

    def _authorization(self, data: bytes, at: int) -> tuple[Packet, int]:
        if data[at]:
            return AuthorizationResponse(True), at + 1
        reason, end = text_at(data, at + 1, "reason", at + self._packet_bytes_max)
        return AuthorizationResponse(False, reason), end

    def _bootstrap(self, data: bytes, at: int) -> tuple[Packet, int]:
        if data[at]:
            return BootstrapResponse(True), at + 1
        reason, end = text_at(data, at + 1, "reason", at + self._packet_bytes_max)
        return BootstrapResponse(False, reason), end

    def _error_response(self, data: bytes, at: int) -> tuple[Packet, int]:
        code, start = 0, at
        if self._dialect.has_error_response_code:
            (code,) = INT32.unpack_from(data, at)
            start += INT32.size
        details, end = text_at(data, start, "details", at + self._packet_bytes_max)
        return ErrorResponse(code, details), end

    def _cluster_metadata(self, data: bytes, at: int) -> tuple[Packet, int]:
        stop = at + self._packet_bytes_max
        count, at = count_at(data, at, "addresses", NODES_MAX)
        addresses = []
        for _ in range(count):
            address, at = text_at(data, at, "address", stop)
            addresses.append(address)
        leader, responder = INT32_PAIR.unpack_from(data, at)
        return ClusterMetadataResponse(tuple(addresses), leader, responder), at + INT32_PAIR.size

    def _response(self, data: bytes, at: int) -> tuple[Packet | Bad, int]:
        return self._responses[data[at]](data, at + 1)

    def _framed_response(self, data: bytes, at: int) -> tuple[Packet | Bad, int]:
        """Decode a frame.  A server that fills one wrongly is not understood any further."""
        end = end_of(data, at, "body", at + self._packet_bytes_max)
        start = at + INT32.size
        body = data[start:end]
        try:
            packet, body_end = self._response(body, 0)
        except Wrong as wrong:
            raise Wrong(start + wrong.at, str(wrong)) from None
        except (Torn, *SHORT):
            raise Wrong(end, f"the body has {len(body)} bytes and ends within a field") from None
        if body_end != len(body):
            raise Wrong(start + body_end, f"the response ends here, but its body has {len(body)} bytes")
        return packet, end

    # --- responses, behind their own marker ------------------------------------------------------------------------

    def _dequeue(self, data: bytes, at: int) -> tuple[Packet, int]:
        if not data[at]:
            return EMPTY, at + 1
        number = 0
        if self._dialect.has_record_id:
            number, key, size = ID_KEY_SIZE.unpack_from(data, at + 1)
            start = at + 1 + ID_KEY_SIZE.size
        else:
            key, size = KEY_SIZE.unpack_from(data, at + 1)
            start = at + 1 + KEY_SIZE.size
        check_length(start, "payload", size, at + self._packet_bytes_max)
        end = start + size
        if end > len(data):
            raise Torn(end)
        return Record(key, data[start:end], number), end

    def _business_error(self, data: bytes, at: int) -> tuple[Packet, int]:
        number_size = self._dialect.error_code
        (number,) = number_size.unpack_from(data, at)
        details, end = text_at(data, at + number_size.size, "details", at + self._packet_bytes_max)
        return BusinessError(self._codes.get(number, ErrorCode.UNKNOWN), details), end

    def _violation(self, data: bytes, at: int) -> tuple[Packet, int]:
        (number,) = INT32.unpack_from(data, at)
        decode = self._violations.get(number)
        if decode is None:
            raise Wrong(at, f"the policy's code is {number}, it must be from 0 to {len(self._violations) - 1}")
        return decode(data, at + INT32.size)

    def _general_violation(self, data: bytes, at: int) -> tuple[Packet, int]:
        message, end = text_at(data, at, "message", at + self._packet_bytes_max)
        return GeneralViolation(message), end

    def _queue_size_violation(self, data: bytes, at: int) -> tuple[Packet, int]:
        return QueueSizeViolation(*INT32.unpack_from(data, at)), at + INT32.size

    def _payload_size_violation(self, data: bytes, at: int) -> tuple[Packet, int]:
        return PayloadSizeViolation(*INT32.unpack_from(data, at)), at + INT32.size

    def _key_range_violation(self, data: bytes, at: int) -> tuple[Packet, int]:
        return KeyRangeViolation(*INT64_PAIR.unpack_from(data, at)), at + INT64_PAIR.size

    def _list_queues(self, data: bytes, at: int) -> tuple[Packet, int]:
        count, end = count_at(data, at, "queues", QUEUES_MAX)
        return QueueList(count, self._packet_bytes_max).decode(data, end)


class QueueList:
    """A ListQueues response that is read queue by queue, however many pieces it comes in."""

    def __init__(self, count: int, room_bytes: int) -> None:
        self._left = count
        self._room_bytes = room_bytes
        self._queues: list[QueueInfo] = []

    def decode(self, data: bytes, at: int) -> tuple[Packet, int]:
        """Go on at the next queue.  What was read before is not needed again."""
        try:
            while self._left:
                queue, end = _queue_info(data, at, at + self._room_bytes)
                self._queues.append(queue)
                self._room_bytes -= end - at
                self._left -= 1
                at = end
        except Torn as torn:
            raise Torn(torn.wanted, at, self.decode) from None
        except SHORT:
            raise Torn(len(data) + 1, at, self.decode) from None
        return ListQueuesResponse(tuple(self._queues)), at


def _queue_info(data: bytes, at: int, stop: int) -> tuple[QueueInfo, int]:
    start = at + 1
    end = start + data[at]
    name = data[start:end].decode("latin-1")
    (count,) = INT32.unpack_from(data, end)
    pairs, at = count_at(data, end + INT32.size, "metadata entries", METADATA_MAX)
    if at > stop:
        raise Wrong(at, "the list of queues is longer than a packet may be")
    metadata = []
    for _ in range(pairs):
        key, at = text_at(data, at, "metadata key", stop)
        value, at = text_at(data, at, "metadata value", stop)
        metadata.append((key, value))
    return QueueInfo(name, count, tuple(metadata)), at


# What clients say -----------------------------------------------------------------------------------------------------


STRAY_BYTES_MAX = 64 * 1024  # of a packet that is read only to be ignored


def _authorization(data: bytes, at: int) -> tuple[Packet, int]:
    method = data[at]
    if method != METHOD_TOKEN:
        return AuthorizationRequest(method), at + 1
    token, end = text_at(data, at + 1, "token", at + 1 + INT32.size + TOKEN_CHARS_MAX)
    return AuthorizationRequest(method, token), end


def _bootstrap(data: bytes, at: int) -> tuple[Packet, int]:
    major, minor, patch = VERSION_FIELDS.unpack_from(data, at)
    return BootstrapRequest(major, minor, patch), at + VERSION_FIELDS.size


def _ack(_: bytes, at: int) -> tuple[Packet, int]:
    return ACK, at


def _nack(_: bytes, at: int) -> tuple[Packet, int]:
    return NACK, at


def _cluster_metadata(_: bytes, at: int) -> tuple[Packet, int]:
    return ClusterMetadataRequest(), at


AUTHORIZATION = by_marker({b"A": _authorization})  # what may come first
BOOTSTRAP = by_marker({b"B": _bootstrap})  # and what second


class RequestDecoder:
    """Decodes the commands of one dialect; `ready` is the table behind the handshake.

    `bare` are those packets which have nothing to decode; they stand in the table too, for who asks what may come.
    """

    def __init__(self, dialect: Dialect, packet_bytes_max: int) -> None:
        self._packet_bytes_max = packet_bytes_max
        self.bare: dict[int, Packet] = {} if dialect.is_framed else {ord(dialect.ack): ACK, ord("N"): NACK}
        self._name_size = dialect.name_size
        if dialect.is_framed:
            self._commands = by_marker(
                {b"E": self._enqueue, b"D": self._dequeue_at_once, b"C": self._count}, of="command"
            )
            self.ready = by_marker({b"C": self._framed_command})
            return
        self._commands = by_marker(
            {
                b"E": self._enqueue,
                b"D": self._dequeue,
                b"C": self._count,
                b"Q": self._create_queue,
                b"R": self._delete_queue,
                b"L": self._list_queues,
            },
            of="command",
        )
        packets = {b"C": self._command, dialect.ack: _ack, b"N": _nack, b"M": _cluster_metadata}
        self.ready = by_marker(self._strays(dialect) | packets if dialect.ignores_strays else packets)

    @staticmethod
    def _strays(dialect: Dialect) -> dict[bytes, Decode]:
        """What is read only to be ignored: the handshake again, and all that servers say."""
        return ResponseDecoder(dialect, STRAY_BYTES_MAX).packets | {b"A": _authorization, b"B": _bootstrap}

    def _command(self, data: bytes, at: int) -> tuple[Packet | Bad, int]:
        return self._commands[data[at]](data, at + 1)

    def _framed_command(self, data: bytes, at: int) -> tuple[Packet | Bad, int]:
        """Decode a frame.  Whatever is wrong inside of it, the next packet begins behind it (section 10)."""
        end = end_of(data, at, "body", at + self._packet_bytes_max)
        body = data[at + INT32.size : end]
        try:
            packet, body_end = self._command(body, 0)
        except Wrong as wrong:
            return Bad(BadBody(f"byte {wrong.at} of the body: {wrong}")), end
        except (Torn, *SHORT):
            return Bad(BadBody(f"the body has {len(body)} bytes and ends within a field")), end
        if body_end != len(body):
            return Bad(BadBody(f"the command ends at byte {body_end} of the body, which has {len(body)}")), end
        return packet, end

    # --- commands, behind their own marker -------------------------------------------------------------------------

    def _name(self, data: bytes, at: int) -> tuple[str, int]:
        """Return a queue name and the offset behind it, which may lie behind the last byte."""
        (size,) = self._name_size.unpack_from(data, at)
        start = at + self._name_size.size
        end: int = start + size
        if size < 0 or end > at + self._packet_bytes_max:
            check_length(start, "queue name", size, at + self._packet_bytes_max)
        return data[start:end].decode("latin-1"), end

    def _enqueue(self, data: bytes, at: int) -> tuple[Packet, int]:
        name, fields = self._name(data, at)
        key, size = KEY_SIZE.unpack_from(data, fields)
        start = fields + KEY_SIZE.size
        check_length(start, "payload", size, at + self._packet_bytes_max)
        end = start + size
        if end > len(data):
            raise Torn(end)
        return Enqueue(name, key, data[start:end]), end

    def _dequeue(self, data: bytes, at: int) -> tuple[Packet, int]:
        name, end = self._name(data, at)
        (timeout_ms,) = UINT32.unpack_from(data, end)
        return Dequeue(name, timeout_ms), end + UINT32.size

    def _dequeue_at_once(self, data: bytes, at: int) -> tuple[Packet, int]:
        name, end = self._whole_name(data, at)
        return Dequeue(name), end

    def _count(self, data: bytes, at: int) -> tuple[Packet, int]:
        name, end = self._whole_name(data, at)
        return Count(name), end

    def _delete_queue(self, data: bytes, at: int) -> tuple[Packet, int]:
        name, end = self._whole_name(data, at)
        return DeleteQueue(name), end

    def _whole_name(self, data: bytes, at: int) -> tuple[str, int]:
        """Return the name of a command that ends with it."""
        name, end = self._name(data, at)
        if end > len(data):
            raise Torn(end)
        return name, end

    def _create_queue(self, data: bytes, at: int) -> tuple[Packet, int]:
        name, fields = self._name(data, at)
        implementation, queue_size, payload_bytes, has_range = CREATE_FIELDS.unpack_from(data, fields)
        end = fields + CREATE_FIELDS.size
        key_range: KeyRange | None = None
        if has_range:
            key_range = INT64_PAIR.unpack_from(data, end)
            end += INT64_PAIR.size
        return CreateQueue(name, implementation, queue_size, payload_bytes, key_range), end

    def _list_queues(self, _: bytes, at: int) -> tuple[Packet, int]:
        return ListQueues(), at
