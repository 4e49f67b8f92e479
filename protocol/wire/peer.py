"""The wire between the nodes of one cluster: frames of MessagePack (docs/protocols/peer.md).

    Hello, and then Said (a message of the core, with its entries), Chunk, ChunkTaken  <-->  bytes

    frame   4 bytes length of the body | 4 bytes CRC-32 of the body | body

The first frame of each side is its Hello, which must be small; it says at which levels its node can work
(`protocol/level.py`), and whoever cannot work at any of them is refused.  Never believes a length before the peer has
said who it is, and never a body whose checksum does not fit.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final
from zlib import crc32

import msgspec

from wakeq.protocol.errors import BadField, PeerRefused
from wakeq.protocol.log_format import PAYLOAD_BYTES_MAX
from wakeq.protocol.raft.messages import AnyMessage, Append

MARK: Final = "wakeq-peer"
NO_CLUSTER: Final = bytes(16)  # in the hello of a node that asks which cluster it is to join
FRONT: Final = Struct(">II")
HELLO_BYTES_MAX: Final = 4096
BODY_BYTES_MAX: Final = PAYLOAD_BYTES_MAX + (1 << 20)


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=100):
    """Who speaks.  Later versions add fields at the end, which earlier ones do not look at."""

    mark: str
    level_min: int  # at which its cluster works, as far as it knows
    level_max: int  # the highest that it knows
    cluster_id: bytes
    node_id: int
    disk_id: int
    incarnation: int
    doors: dict[str, str]  # where clients of this node go, by what they speak


class Entries(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=101):
    """An Append with the bytes of its entries, as they stand in the log."""

    append: Append
    payloads: list[bytes]


class Chunk(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=102):
    """A piece of an image; the last one has `crc` over the whole, the others have 0 there."""

    stream: int
    offset: int
    data: bytes
    is_last: bool = False
    crc: int = 0


class ChunkTaken(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=103):
    """So many bytes of a stream have arrived: more may be sent."""

    stream: int
    size_bytes: int


Frame = Hello | Entries | Chunk | ChunkTaken | AnyMessage

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of a node; IPv6 as [::1]:2603."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise BadField(f"{address!r} is not the address of a node; write HOST:PORT, such as 10.0.0.1:2603")
    return host.removeprefix("[").removesuffix("]"), int(port)


def encode(frame: Frame) -> bytes:
    """Give one frame with its front."""
    body = _ENCODER.encode(frame)
    return FRONT.pack(len(body), crc32(body)) + body


def check_hello(hello: Frame, own: Hello) -> Hello:
    """Return what a peer said first, if a node that says `own` can talk to it; else say why not."""
    if not isinstance(hello, Hello) or hello.mark != MARK:
        raise PeerRefused("it does not begin with a hello of wakeq; check the address in `peers`")
    if hello.cluster_id != own.cluster_id:
        raise PeerRefused(
            f"node {hello.node_id} is of cluster {hello.cluster_id.hex()}, this one of {own.cluster_id.hex()}; "
            "check `peers`, or start the one that is new with --join and an empty data directory"
        )
    if hello.node_id == own.node_id:
        raise PeerRefused(f"it says that it is node {own.node_id}, as this one; give each its own --node")
    if hello.level_min > own.level_max or hello.level_max < own.level_min:
        raise PeerRefused(
            f"node {hello.node_id} works at levels {hello.level_min} to {hello.level_max}, this one at "
            f"{own.level_min} to {own.level_max}; upgrade the older one, one release at a time"
        )
    return hello


class FrameReader:
    """Cut a byte stream into frames; a torn one waits for its rest."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._is_known = False

    def receive(self, data: bytes) -> list[Frame]:
        """Take what the socket gave; return the frames that are whole by now."""
        buffer = self._buffer
        buffer += data
        frames: list[Frame] = []
        at = 0
        while len(buffer) - at >= FRONT.size:
            size, checksum = FRONT.unpack_from(buffer, at)
            if size > (BODY_BYTES_MAX if self._is_known else HELLO_BYTES_MAX):
                raise PeerRefused(f"a frame of {size} bytes; nothing that long comes here")
            end = at + FRONT.size + size
            if len(buffer) < end:
                break
            body = bytes(buffer[at + FRONT.size : end])
            if crc32(body) != checksum:
                raise PeerRefused(f"a frame of {size} bytes whose checksum does not fit")
            frames.append(_decode(body))
            self._is_known = True
            at = end
        del buffer[:at]
        return frames


def _decode(body: bytes) -> Frame:
    try:
        frame = _DECODER.decode(body)
    except msgspec.MsgspecError as error:
        raise PeerRefused(f"a frame that says nothing we know ({error})") from error
    if isinstance(frame, Entries):
        _check_entries(frame.append, frame.payloads)
    return frame


def _check_entries(append: Append, payloads: Sequence[bytes]) -> None:
    count = append.last_index - append.prev_index
    if len(payloads) != count or (count and (not append.runs or append.runs[0][0] != append.prev_index + 1)):
        raise PeerRefused(f"{len(payloads)} entries for {append.prev_index + 1} to {append.last_index}")
