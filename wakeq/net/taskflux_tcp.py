"""The TaskFlux protocol over TCP: binary packets in, binary packets out.

    socket --> packets --> one Received --> subscriber --> send --> one write --> socket

A listener has one dialect for all who do not say that they are older.  Of a connection that neither says nor is told
anything for the idle limit the subscriber hears; whether it may be closed is his to say.  Must never look inside a
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
IDLE_SLICE = 128  # connections looked at in one turn of the loop
LOOK_AGAIN_S_MIN = 0.01
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
        """Whoever pipelines may read later: his subscriber begins less when he is congested."""
        return True

    def forget_unfinished(self) -> None:
        self._reader.forget()

    def turn_away(self, reason: str) -> None:
        self.refuse([], reason)  # before the handshake nothing is said

    def take(self, data: bytes, at: int, commands_max: int) -> int:
        reader, end = self._reader, len(data)
        if self._subscriber is None:
            return end
        if self.presumes:
            self.expel("too much was begun before the handshake")
            return end
        if end > FREE_BYTES:
            end = min(end, at + max(SHARE_BYTES_MAX, reader.missing_bytes))
        data = data[at:end]  # not copied, if that is all of it
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
            self._port.heard_of(self)
            count = len(packets)
            if size_bytes > FREE_BYTES:  # records that come in one piece are work, each of them
                count += sum([len(packet) for packet in packets if type(packet) is Enqueues])
            self._listener.admission.rounds.left -= count
            self._subscriber.arrive(Received(packets, size_bytes))
        return end

    def send(self, replies: Sequence[Response]) -> None:
        if self._transport is None:
            return
        super().send(replies)
        self._port.heard_of(self)
        if self._transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            self.is_congested = True

    def resume_writing(self) -> None:
        """The peer has read everything."""
        if self.is_congested and self._subscriber is not None:
            self.is_congested = False
            self.check(self._listener.clock())
            self._subscriber.tell(Drained())

    def was_quiet(self) -> None:
        """Nothing came or went for the idle limit."""
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
        self._quiet: OrderedDict[TaskFluxTcpDoor, float] = OrderedDict()  # since when; the longest first
        self._looking: asyncio.TimerHandle | None = None

    def make_door(self) -> TaskFluxTcpDoor:
        return TaskFluxTcpDoor(self)

    def enter(self, door: TaskFluxTcpDoor) -> None:
        super().enter(door)
        if door.receives:
            self.heard_of(door)
            self._look_in_time()

    def send_away(self) -> None:
        """Take no more connections, and have the clients go, each in answer to what it asks for next."""
        if self._server is not None:
            self._server.close()
        for door in self.doors:
            if door.subscriber is not None:
                door.subscriber.tell(SendAway())

    def leave(self, door: TaskFluxTcpDoor, *, entered: bool) -> None:
        super().leave(door, entered=entered)
        self._quiet.pop(door, None)

    def heard_of(self, door: TaskFluxTcpDoor) -> None:
        """Something came or went."""
        self._quiet[door] = self.clock()
        self._quiet.move_to_end(door)

    def look_for_quiet(self) -> None:
        """Tell those that have been quiet for the idle limit; whoever may be so hears again after another one."""
        now_s = self.clock()
        for _ in range(IDLE_SLICE):
            door, since_s = next(iter(self._quiet.items()), (None, now_s))
            if door is None or now_s - since_s < self._idle_s:
                break
            self.heard_of(door)
            door.was_quiet()

    def _look_in_time(self) -> None:
        if self._looking is None and self._quiet:
            since_s = next(iter(self._quiet.values()))
            wait_s = max(since_s + self._idle_s - self.clock(), LOOK_AGAIN_S_MIN)
            self._looking = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _look(self) -> None:
        self._looking = None
        self.look_for_quiet()
        self._look_in_time()

    async def close(self, reason: str = "the broker stops") -> None:
        await super().close(reason)
        if self._looking is not None:
            self._looking.cancel()
