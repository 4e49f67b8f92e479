"""Decoders of what a TaskFlux server says.

    a dialect, a limit --> ResponseDecoder.packets: a decoder for each marker that a server uses

A decoder gets bytes and the offset behind its marker; it returns a packet and the offset behind that, or raises as
taskflux/fields.py says.  Must never read one queue of a list twice: a list may be long and come in small pieces.
"""

from wakeq.protocol.wire.taskflux.dialects import Dialect
from wakeq.protocol.wire.taskflux.fields import (
    ID_KEY_SIZE,
    INT32,
    INT32_PAIR,
    INT64_PAIR,
    KEY_SIZE,
    SHORT,
    Decode,
    Torn,
    Wrong,
    by_marker,
    check_length,
    count_at,
    end_of,
    text_at,
)
from wakeq.protocol.wire.taskflux.packets import (
    EMPTY,
    OK,
    AuthorizationResponse,
    Bad,
    BootstrapResponse,
    BusinessError,
    ClusterMetadataResponse,
    CountResponse,
    EnqueueResponse,
    ErrorCode,
    ErrorResponse,
    GeneralViolation,
    KeyRangeViolation,
    ListQueuesResponse,
    NotLeader,
    Packet,
    PayloadSizeViolation,
    QueueInfo,
    QueueSizeViolation,
    Record,
)

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
