"""Parked: packets of one TaskFlux connection whose turn has not come, and which of them begin together.  Pure.

    Enqueue or Dequeue that begins --> enqueues_with, add_dequeues --> that and those behind it that go with it

Only what is acknowledged already goes with another, for nothing is left that the client could decide about it.  It
never changes the order of packets, however many of them one value stands for.
"""

from collections import deque
from collections.abc import Sequence

from wakeq.protocol.wire.taskflux.commands import (
    ACK,
    TAKEN_TOGETHER_MAX,
    Ack,
    Bad,
    Dequeue,
    Dequeues,
    Enqueue,
    Enqueues,
    Packet,
)

_RUNS = frozenset({Enqueues, Dequeues})


class Parked:
    """See the head of this file.  With `one_phase` there are no Acks, and none is needed."""

    __slots__ = ("_in_runs", "packets")

    def __init__(self, packets: Sequence[Packet | Bad] = ()) -> None:
        self.packets: deque[Packet | Bad] = deque()  # what comes next stands first
        self._in_runs = 0  # packets in runs, but for one of each
        self.extend(packets)

    def __bool__(self) -> bool:
        return bool(self.packets)

    def __len__(self) -> int:
        """Return how many packets there are."""
        return len(self.packets) + self._in_runs

    def extend(self, packets: Sequence[Packet | Bad]) -> None:
        """Take what comes behind."""
        self.packets.extend(packets)
        for packet in packets:
            if type(packet) in _RUNS:
                self._in_runs += len(packet) - 1  # type: ignore[arg-type]

    def clear(self) -> None:
        """Forget everything."""
        self.packets.clear()
        self._in_runs = 0

    def take_first(self) -> Packet | Bad:
        """Take what comes next."""
        first = self.packets.popleft()
        if type(first) in _RUNS:
            self._in_runs -= len(first) - 1  # type: ignore[arg-type]
        return first

    def put_apart(self, run: Enqueues | Dequeues) -> None:
        """Give the packets of a run their turn again, one by one."""
        self.packets.extendleft(reversed(run.apart()))

    def enqueues_with(self, first: Enqueue, payload_bytes_max: int, *, one_phase: bool) -> list[Enqueue]:
        """Take those behind an acknowledged Enqueue that can be stored with it; what is too large goes alone."""
        enqueues = [first]
        if len(first.payload) > payload_bytes_max:
            return enqueues
        packets = self.packets
        while packets:
            packet = packets[0]
            if type(packet) is not Enqueue or packet.queue != first.queue or len(packet.payload) > payload_bytes_max:
                break
            if not self._take_acknowledged(one_phase=one_phase):
                break
            enqueues.append(packet)
        return enqueues

    def dequeues_with(self, first: Dequeue, *, one_phase: bool) -> list[Dequeue]:
        """Take those behind a Dequeue that can go with it; if there are any, its own Ack is taken too."""
        dequeues = [first]
        if not one_phase:
            if len(self) < 3 or type(self.packets[0]) is not Ack:
                return dequeues
            self.packets.popleft()
        self.add_dequeues(dequeues, one_phase=one_phase)
        if len(dequeues) == 1 and not one_phase:
            self.packets.appendleft(ACK)
        return dequeues

    def add_dequeues(self, dequeues: list[Dequeue], *, one_phase: bool) -> None:
        """Take those behind acknowledged Dequeues that can go with them."""
        packets, queue = self.packets, dequeues[0].queue
        while packets:
            packet = packets[0]
            if type(packet) is Dequeues:
                if packet.queue != queue or len(dequeues) + packet.count > TAKEN_TOGETHER_MAX:
                    break
                dequeues += [packet.dequeue] * packet.count
                self.take_first()
            else:
                if type(packet) is not Dequeue or packet.queue != queue or len(dequeues) >= TAKEN_TOGETHER_MAX:
                    break
                if not self._take_acknowledged(one_phase=one_phase):
                    break
                dequeues.append(packet)

    def put_back(self, dequeues: Sequence[Dequeue], *, one_phase: bool) -> None:
        """Give Dequeues that went together their turn again, in their order."""
        for dequeue in reversed(dequeues):
            if not one_phase:
                self.packets.appendleft(ACK)
            self.packets.appendleft(dequeue)

    def _take_acknowledged(self, *, one_phase: bool) -> bool:
        """Take the first packet and its Ack; return whether it had one."""
        if not one_phase:
            if len(self.packets) < 2 or type(self.packets[1]) is not Ack:
                return False
            self.packets.popleft()
        self.packets.popleft()
        return True
