"""Decoders of what a TaskFlux client says.

    a dialect, a limit --> RequestDecoder.ready: a decoder for each marker

A decoder gets bytes and the offset behind its marker; it returns a packet and the offset behind that, or raises as
taskflux/fields.py says.  Must never copy a payload before it is whole, or look behind the end of a frame.
"""

from wakeq.protocol.access import TOKEN_CHARS_MAX
from wakeq.protocol.wire.taskflux.dialects import Dialect
from wakeq.protocol.wire.taskflux.errors import BadBody
from wakeq.protocol.wire.taskflux.fields import (
    CREATE_FIELDS,
    INT32,
    INT64_PAIR,
    KEY_SIZE,
    SHORT,
    UINT32,
    VERSION_FIELDS,
    Decode,
    Torn,
    Wrong,
    by_marker,
    check_length,
    end_of,
    text_at,
)
from wakeq.protocol.wire.taskflux.packets import (
    ACK,
    METHOD_TOKEN,
    NACK,
    AuthorizationRequest,
    Bad,
    BootstrapRequest,
    ClusterMetadataRequest,
    Count,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    Enqueue,
    KeyRange,
    ListQueues,
    Packet,
)
from wakeq.protocol.wire.taskflux.responses import ResponseDecoder

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
