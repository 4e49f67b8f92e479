"""Cut a TaskFlux stream into packets, whatever pieces it comes in.

    bytes --> receive --> [Packet | Bad, ...]

What one read brings becomes one list.  The server's reader also knows the handshake: until it is over nothing else is
read, and its version decides in which dialect the bytes behind it are understood.  Must never raise for what a peer
sent, keep more than a packet may have, or look again at a packet before what it lacks has come.
"""

from collections.abc import Mapping
from functools import lru_cache

from wakeq.protocol.wire.taskflux.dialects import DIALECTS, SPEC, Dialect, dialect_of
from wakeq.protocol.wire.taskflux.fields import SHORT, Decode, Decoders, Torn, Wrong, by_marker
from wakeq.protocol.wire.taskflux.packets import OK, PAYLOAD_BYTES_MAX, Bad, BootstrapRequest, Packet
from wakeq.protocol.wire.taskflux.requests import AUTHORIZATION, BOOTSTRAP, RequestDecoder
from wakeq.protocol.wire.taskflux.responses import ResponseDecoder
from wakeq.protocol.wire.taskflux.runs import Runs

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
