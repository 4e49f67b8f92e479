"""Runs: what busy clients say, whole Enqueues and Dequeues with their Acks one behind the other, read in one piece.

    bytes, an offset --> read --> packets, the offset behind the last of them

A call for each packet and field takes twice as long.  Must never take what is torn, wrong or anything else: that is
left to the decoders of requests.py, which read the same packets and say what is wrong.
"""

from wakeq.protocol.wire.taskflux.fields import KEY_SIZE, UINT32
from wakeq.protocol.wire.taskflux.packets import ACK, Bad, Dequeue, Enqueue, Packet

_COMMAND, _ENQUEUE, _DEQUEUE = b"CED"
_HEAD_BYTES = 3  # the marker of a packet, that of its command, and the size of a name


class Runs:
    """See the head of this file; for the dialects whose packets have no frame."""

    __slots__ = ("_ack", "_packet_bytes_max")

    def __init__(self, ack: bytes, packet_bytes_max: int) -> None:
        self._ack = ord(ack)
        self._packet_bytes_max = packet_bytes_max

    def read(self, data: bytes, at: int, packets: list[Packet | Bad]) -> int:
        """Append the packets of a run; return where it ends."""
        ack, add, key_size_of, wait_of = self._ack, packets.append, KEY_SIZE.unpack_from, UINT32.unpack_from
        last, name = b"", ""
        size = len(data)
        while at < size:
            marker = data[at]
            if marker == ack:
                add(ACK)
                at += 1
                continue
            if marker != _COMMAND or at + _HEAD_BYTES > size:
                break
            fields = at + _HEAD_BYTES + data[at + 2]
            written = data[at + _HEAD_BYTES : fields]
            if written != last:
                last, name = written, written.decode("latin-1")
            kind = data[at + 1]
            if kind == _ENQUEUE and (start := fields + KEY_SIZE.size) <= size:
                key, payload_bytes = key_size_of(data, fields)
                end = start + payload_bytes
                if payload_bytes < 0 or end > size or end > at + 2 + self._packet_bytes_max:
                    break
                add(Enqueue(name, key, data[start:end]))
            elif kind == _DEQUEUE and (end := fields + UINT32.size) <= size:
                add(Dequeue(name, wait_of(data, fields)[0]))
            else:
                break
            at = end
        return at
