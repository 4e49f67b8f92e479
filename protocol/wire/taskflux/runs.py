"""Runs: what busy clients say: Enqueues or Dequeues of one queue in a row, each with its Ack, read in one piece.

    bytes, an offset --> read --> Enqueues or Dequeues, the offset behind the last Ack

A packet for each of them takes three times as long.  Must never take what is torn, wrong, without its Ack or anything
else: that is left to the decoders of requests.py, which read the same packets and say what is wrong.
"""

from wakeq.protocol.log.entries import Draft
from wakeq.protocol.wire.taskflux.fields import KEY_SIZE, UINT32
from wakeq.protocol.wire.taskflux.packets import (
    ACK,
    TAKEN_TOGETHER_MAX,
    Bad,
    Dequeue,
    Dequeues,
    Enqueue,
    Enqueues,
    Packet,
)

_ENQUEUE, _DEQUEUE = b"ED"
_HEAD_BYTES = 3  # the marker of a packet, that of its command, and the size of a name


class Runs:
    """See the head of this file; for the dialects whose packets have no frame."""

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
