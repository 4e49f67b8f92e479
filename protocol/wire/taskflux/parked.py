"""Parked: packets of one TaskFlux connection whose turn has not come, and which of them begin together.  Pure.

    Enqueue or Dequeue that begins --> enqueues_with, dequeues_with --> that and those behind it that go with it

Only what is acknowledged already goes with another, for nothing is left that the client could decide about it.  It
never changes the order of packets.
"""

from collections import deque
from collections.abc import Sequence

from wakeq.protocol.wire.taskflux.packets import ACK, Ack, Bad, Dequeue, Enqueue, Packet

TAKEN_TOGETHER_MAX = 256  # Dequeues that go together


class Parked(deque[Packet | Bad]):
    """See the head of this file.  With `one_phase` there are no Acks, and none is needed."""

    __slots__ = ()

    def enqueues_with(self, first: Enqueue, payload_bytes_max: int, *, one_phase: bool) -> list[Enqueue]:
        """Take those behind an acknowledged Enqueue that can be stored with it; what is too large goes alone."""
        enqueues = [first]
        if len(first.payload) > payload_bytes_max:
            return enqueues
        while self:
            packet = self[0]
            if type(packet) is not Enqueue or packet.queue != first.queue or len(packet.payload) > payload_bytes_max:
                break
            if not self._take_first(one_phase=one_phase):
                break
            enqueues.append(packet)
        return enqueues

    def dequeues_with(self, first: Dequeue, *, one_phase: bool) -> list[Dequeue]:
        """Take those behind a Dequeue that can go with it; if there are any, its own Ack is taken too."""
        dequeues = [first]
        if not one_phase:
            if len(self) < 3 or type(self[0]) is not Ack:
                return dequeues
            self.popleft()
        while self and len(dequeues) < TAKEN_TOGETHER_MAX:
            packet = self[0]
            if type(packet) is not Dequeue or packet.queue != first.queue or not self._take_first(one_phase=one_phase):
                break
            dequeues.append(packet)
        if len(dequeues) == 1 and not one_phase:
            self.appendleft(ACK)
        return dequeues

    def put_back(self, dequeues: Sequence[Dequeue], *, one_phase: bool) -> None:
        """Give Dequeues that went together their turn again, in their order."""
        for dequeue in reversed(dequeues):
            if not one_phase:
                self.appendleft(ACK)
            self.appendleft(dequeue)

    def _take_first(self, *, one_phase: bool) -> bool:
        """Take the first packet and its Ack; return whether it had one."""
        if not one_phase:
            if len(self) < 2 or type(self[1]) is not Ack:
                return False
            self.popleft()
        self.popleft()
        return True
