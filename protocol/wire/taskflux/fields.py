"""The fields of TaskFlux packets: fixed layouts, and the two ways in which reading them can end early.

    bytes, an offset --> a value and the offset behind it | Torn | Wrong

Reading a fixed field behind the last byte raises what Python raises, IndexError or struct.error (SHORT): a test for it
before each field would cost more than all the fields.  Must never make a value of a length that was not checked.
"""

import struct
from collections.abc import Callable, Mapping
from typing import TypeAlias

from wakeq.protocol.errors import WakeqError
from wakeq.protocol.wire.taskflux.errors import BadPacket, PacketTooLong, UnexpectedPacket
from wakeq.protocol.wire.taskflux.packets import Bad, Packet

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
