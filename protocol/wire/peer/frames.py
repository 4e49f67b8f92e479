"""The wire between the nodes of one cluster: frames of MessagePack (docs/protocols/peer.md).

    Hello, Proof, and then messages of the core, an Append with its entries, Chunk, ChunkTaken  <-->  bytes

    frame   4 bytes length of the body | 4 bytes CRC-32 of the body | body | MAC, if the session seals its frames

The first frame of each side is its Hello, which must be small; it says at which levels its node can work, and a node
that does not know LEVEL is refused.  In which order frames may come, and how a node proves who it is, is the matter of
`session.py`.  Never believes a body whose checksum does not fit, nor a number that no cluster reaches.
"""

from collections.abc import Sequence
from itertools import pairwise
from struct import Struct
from typing import Annotated, Final
from zlib import crc32

import msgspec
from msgspec import Meta

from wakeq.protocol.errors import BadField, PeerRefused
from wakeq.protocol.log.format import PAYLOAD_BYTES_MAX
from wakeq.protocol.raft.membership import LEVEL
from wakeq.protocol.raft.messages import DISK_MAX, AnyMessage, Append, Number

MARK: Final = "wakeq-peer"
CLUSTER_ID_BYTES: Final = 16
NO_CLUSTER: Final = bytes(CLUSTER_ID_BYTES)  # in the hello of a node that asks which cluster it is to join
FRONT: Final = Struct(">II")
HELLO_BYTES_MAX: Final = 4096
BODY_BYTES_MAX: Final = PAYLOAD_BYTES_MAX + (1 << 20)
NODE_MAX: Final = 65_535
DOORS_MAX: Final = 16  # of one node
HOST_CHARS_MAX: Final = 255

NO_HOST: Final = frozenset(" /\\@?#\"'<>,")  # stand in no name and no address

NodeId = Annotated[int, Meta(ge=0, le=NODE_MAX)]


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=100):
    """Who speaks.  Later versions add fields at the end, which earlier ones do not look at."""

    mark: str
    level_min: int  # LEVEL; a range, so that a later release can also speak to nodes of this one
    level_max: int
    cluster_id: Annotated[bytes, Meta(min_length=CLUSTER_ID_BYTES, max_length=CLUSTER_ID_BYTES)]
    node_id: NodeId
    disk_id: Annotated[int, Meta(ge=0, le=DISK_MAX)]  # 0: it asks which cluster it is to join, and has none yet
    incarnation: Number
    doors: dict[str, str]  # where clients of this node go, by what they speak
    nonce: bytes = b""  # the challenge to the other side; empty if this node knows no secret of the cluster


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


class Proof(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=104):
    """Its sender knows the secret of the cluster: a MAC over both Hellos."""

    mac: bytes


Frame = Hello | Proof | Entries | Chunk | ChunkTaken | AnyMessage

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of a node; IPv6 as [::1]:2603."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise BadField(f"{address!r} is not the address of a node; write HOST:PORT, such as 10.0.0.1:2603")
    return host.removeprefix("[").removesuffix("]"), int(port)


def encode_body(frame: Frame) -> bytes:
    """Return the body of a frame."""
    return _ENCODER.encode(frame)


def framed(body: bytes) -> bytes:
    """Return a body with its front."""
    return FRONT.pack(len(body), crc32(body)) + body


def check_hello(hello: Frame, own: Hello) -> Hello:
    """Return what a peer said first, if a node that says `own` can talk to it; else say why not."""
    if not isinstance(hello, Hello) or hello.mark != MARK:
        raise PeerRefused("it does not begin with a hello of wakeq; check the address in `peers`")
    if hello.cluster_id != own.cluster_id and NO_CLUSTER not in (hello.cluster_id, own.cluster_id):
        raise PeerRefused(
            f"node {hello.node_id} is of cluster {hello.cluster_id.hex()}, this one of {own.cluster_id.hex()}; "
            "check `peers`, or start the one that is new with --join and an empty data directory"
        )
    if hello.node_id == own.node_id:
        raise PeerRefused(f"it says that it is node {own.node_id}, as this one; give each its own --node")
    if not hello.level_min <= LEVEL <= hello.level_max:
        raise PeerRefused(
            f"node {hello.node_id} works at levels {hello.level_min} to {hello.level_max}, this one at level {LEVEL}; "
            "run the same release on both"
        )
    _check_doors(hello)
    return hello


def _check_doors(hello: Hello) -> None:
    """Clients are sent to these addresses, so what can be none is refused."""
    if len(hello.doors) > DOORS_MAX:
        raise PeerRefused(f"node {hello.node_id} names {len(hello.doors)} addresses for clients")
    for address in hello.doors.values():
        try:
            host, _ = split_address(address)
        except BadField:
            host = ""
        if not 0 < len(host) <= HOST_CHARS_MAX or not host.isprintable() or set(host) & NO_HOST:
            raise PeerRefused(f"node {hello.node_id} names an address for clients that is not HOST:PORT")


class BodyReader:
    """Cut a byte stream into bodies whose checksums fit; a torn one waits for its rest."""

    def __init__(self, body_bytes_max: int) -> None:
        self.body_bytes_max = body_bytes_max
        self._buffer = bytearray()

    def receive(self, data: bytes) -> None:
        """Take what the socket gave."""
        self._buffer += data

    def next_body(self, mac_bytes: int = 0) -> bytes | None:
        """Return the next body, with the MAC that follows it; None until all of that is there."""
        buffer = self._buffer
        if len(buffer) < FRONT.size:
            return None
        size, checksum = FRONT.unpack_from(buffer)
        if size > self.body_bytes_max:
            raise PeerRefused(f"a frame of {size} bytes, which is too long")
        end = FRONT.size + size
        if len(buffer) < end + mac_bytes:
            return None
        found = bytes(buffer[FRONT.size : end + mac_bytes])
        if crc32(found[:size] if mac_bytes else found) != checksum:
            raise PeerRefused(f"a frame of {size} bytes with a wrong checksum")
        del buffer[: end + mac_bytes]
        return found


def decode_body(body: bytes) -> Frame:
    """Return what a body says."""
    try:
        frame = _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PeerRefused(f"an unknown frame ({error})") from error
    if isinstance(frame, Entries):
        _check_entries(frame.append, frame.payloads)
    elif isinstance(frame, Append):
        _check_entries(frame, ())
    return frame


def _check_entries(append: Append, payloads: Sequence[bytes]) -> None:
    """An Append brings exactly the entries that it names, with terms that only grow."""
    first, last = append.prev_index + 1, append.last_index
    runs, terms = [(append.prev_index, append.prev_term), *append.runs], [term for _, term in append.runs]
    is_in_order = all(one[0] < two[0] and one[1] <= two[1] for one, two in pairwise(runs))
    is_whole = len(payloads) == last - append.prev_index and (not append.runs or append.runs[-1][0] <= last)
    begins = append.runs[0][0] == first if append.runs else last < first
    if not (is_in_order and is_whole and begins and max(terms, default=0) <= append.term):
        raise PeerRefused(f"{len(payloads)} entries for {first} to {last}")
