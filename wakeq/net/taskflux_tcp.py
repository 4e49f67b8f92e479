"""The TaskFlux protocol over TCP: binary packets in, binary packets out.

    socket --> packets --> one Received --> session --> send --> one write --> socket

A listener has one dialect for all clients that do not name an older one.  The session is told of a connection on which
nothing was sent or received for the idle limit, and decides whether to close it.  A door must never look inside a
packet, or answer one itself.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence

from wakeq.actors.runtime.rounds import FREE_BYTES, SHARE_BYTES_MAX
from wakeq.actors.sessions.door import (
    DOOR_TASKFLUX,
    HANDSHAKE_S_MAX,
    UNREAD_BYTES_MAX,
    Admission,
    Drained,
    Idle,
    Received,
    SendAway,
    Told,
)
from wakeq.net.tcp_door import TcpDoor
from wakeq.net.tcp_listener import TcpListener
from wakeq.net.tls import ServerTls
from wakeq.protocol.wire.taskflux.codec import PACKET_BYTES_MAX, PACKET_ROOM_BYTES, RequestReader, encode
from wakeq.protocol.wire.taskflux.commands import PAYLOAD_BYTES_MAX, Bad, Crowded, Enqueues, Response
from wakeq.protocol.wire.taskflux.dialects import Dialect

IDLE_S = 60.0
# Idle connections that are reported in one turn of the loop.
IDLE_SLICE = 128
# Between two checks for idle connections.
CHECK_S_MIN = 0.01
CROWDED = "too much is unfinished on all connections together; try again later"


class TaskFluxTcpDoor(TcpDoor[Response]):
    """One connection."""

    __slots__ = ("_port", "_reader", "is_congested")

    kind = DOOR_TASKFLUX
    pauses_early = True

    def __init__(self, listener: "TaskFluxTcpListener") -> None:
        super().__init__(listener)
        self._port = listener
        self._reader = RequestReader(listener.dialect, listener.packet_bytes_max)
        self.is_congested = False

    @property
    def unfinished_bytes(self) -> int:
        return self._reader.waiting_bytes

    def encode(self, replies: Sequence[Response]) -> bytes:
        return encode(replies, self._reader.dialect)

    def is_burst(self, replies: Sequence[Response]) -> bool:
        """A client that pipelines may read later: its session begins less while the connection is congested."""
        return True

    def forget_unfinished(self) -> None:
        self._reader.forget()

    def turn_away(self, reason: str) -> None:
        # Before the handshake nothing can be sent.
        self.refuse([], reason)

    def take(self, data: bytes, at: int, commands_max: int) -> int:
        reader, end = self._reader, len(data)
        if self._subscriber is None:
            return end
        if self.exceeds_stranger_bytes:
            self.expel("the packet before the handshake is too long")
            return end
        if end > FREE_BYTES:
            end = min(end, at + max(SHARE_BYTES_MAX, reader.missing_bytes))
        # All of the data is not copied.
        data = data[at:end]
        size_bytes = reader.waiting_bytes + len(data)
        packets = reader.receive(data, commands_max)
        end -= reader.unread_bytes
        size_bytes -= reader.waiting_bytes + reader.unread_bytes
        if reader.waiting_bytes or self.holds_work:
            self._watch().hold(self)
            if self._listener.admission.crowded:
                packets.append(Bad(Crowded(CROWDED)))
                self.stop_receiving()
        if packets:
            self._port.note_traffic(self)
            count = len(packets)
            if size_bytes > FREE_BYTES:
                # Each record of a piece is work.
                count += sum([len(packet) for packet in packets if type(packet) is Enqueues])
            self._listener.admission.rounds.left -= count
            self._subscriber.arrive(Received(packets, size_bytes))
        return end

    def send(self, replies: Sequence[Response]) -> None:
        if self._transport is None:
            return
        super().send(replies)
        self._port.note_traffic(self)
        if self._transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            self.is_congested = True

    def resume_writing(self) -> None:
        """The peer has read everything."""
        if self.is_congested and self._subscriber is not None:
            self.is_congested = False
            self.check(self._listener.clock())
            self._subscriber.tell(Drained())

    def report_idle(self) -> None:
        """Tell the session that nothing was sent or received for the idle limit."""
        if self._subscriber is not None:
            self._subscriber.tell(Idle())


class TaskFluxTcpListener(TcpListener[TaskFluxTcpDoor]):
    """A port of the TaskFlux protocol."""

    def __init__(
        self,
        make_subscriber: Callable[[TaskFluxTcpDoor], Told],
        dialect: Dialect,
        *,
        admission: Admission | None = None,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
        idle_s: float = IDLE_S,
        clock: Callable[[], float] | None = None,
        tls: ServerTls | None = None,
        handshake_s: float | None = HANDSHAKE_S_MAX,
    ) -> None:
        super().__init__(make_subscriber, admission=admission, clock=clock, tls=tls, handshake_s=handshake_s)
        self.dialect = dialect
        self.packet_bytes_max = max(PACKET_BYTES_MAX, payload_bytes_max + PACKET_ROOM_BYTES)
        self._idle_s = idle_s
        # When each connection had its last traffic; the longest idle one first.
        self._traffic_s: OrderedDict[TaskFluxTcpDoor, float] = OrderedDict()
        self._idle_timer: asyncio.TimerHandle | None = None

    def make_door(self) -> TaskFluxTcpDoor:
        return TaskFluxTcpDoor(self)

    def enter(self, door: TaskFluxTcpDoor) -> None:
        super().enter(door)
        if door.receives:
            self.note_traffic(door)
            self._set_idle_timer()

    def send_away(self) -> None:
        """Accept no more connections, and send each client away with the answer to its next command."""
        if self._server is not None:
            self._server.close()
        for door in self.doors:
            if door.subscriber is not None:
                door.subscriber.tell(SendAway())

    def leave(self, door: TaskFluxTcpDoor, *, entered: bool) -> None:
        super().leave(door, entered=entered)
        self._traffic_s.pop(door, None)

    def note_traffic(self, door: TaskFluxTcpDoor) -> None:
        """Restart the idle limit of a connection."""
        self._traffic_s[door] = self.clock()
        self._traffic_s.move_to_end(door)

    def report_idle(self) -> None:
        """Report connections that were idle for the limit; one that stays is reported again after another limit."""
        now_s = self.clock()
        for _ in range(IDLE_SLICE):
            door, since_s = next(iter(self._traffic_s.items()), (None, now_s))
            if door is None or now_s - since_s < self._idle_s:
                break
            self.note_traffic(door)
            door.report_idle()

    def _set_idle_timer(self) -> None:
        if self._idle_timer is None and self._traffic_s:
            since_s = next(iter(self._traffic_s.values()))
            wait_s = max(since_s + self._idle_s - self.clock(), CHECK_S_MIN)
            self._idle_timer = asyncio.get_running_loop().call_later(wait_s, self._on_idle_timer)

    def _on_idle_timer(self) -> None:
        self._idle_timer = None
        self.report_idle()
        self._set_idle_timer()

    async def close(self, reason: str = "the broker stops") -> None:
        await super().close(reason)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
