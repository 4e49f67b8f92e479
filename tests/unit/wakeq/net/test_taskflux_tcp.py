"""The TaskFlux port: quiet connections, peers that do not read, too much at once, and how a connection ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.helpers.doors.noting import MAIL_S_MAX, Clock, Noting
from tests.helpers.loops.both import Run
from tests.helpers.loops.rounds import in_rounds
from wakeq.actors.sessions.door import (
    MIB,
    STUCK_S_MAX,
    UNREAD_BYTES_MAX,
    Admission,
    Closed,
    Drained,
    Ended,
    Idle,
    Received,
)
from wakeq.net.listening import bound_socket
from wakeq.net.taskflux_tcp import TaskFluxTcpDoor, TaskFluxTcpListener
from wakeq.protocol.wire.taskflux.codec import encode
from wakeq.protocol.wire.taskflux.commands import (
    OK,
    AuthorizationRequest,
    Bad,
    BootstrapRequest,
    Count,
    Crowded,
    Enqueue,
    ErrorResponse,
    Record,
)
from wakeq.protocol.wire.taskflux.dialects import SPEC

pytestmark = pytest.mark.usefixtures("short_goodbyes")

IDLE_S = 60.0
HANDSHAKE = encode([AuthorizationRequest(), BootstrapRequest(1, 0, 0)], SPEC)

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Guest(Noting):
    """A subscriber that hangs up when the test says so."""

    async def hung_up(self) -> None:
        """Hang up when the client has, as a subscriber does."""
        await self.until_told(Ended)
        self.door.hang_up()
        await self.until_told(Closed)


class Port:
    """A listener, the subscribers it made, and a way to connect to it."""

    def __init__(self, admission: Admission | None = None) -> None:
        self.clock = Clock()
        self.guests: list[Guest] = []
        self.listener = TaskFluxTcpListener(
            self.make, SPEC, admission=admission, payload_bytes_max=MIB, idle_s=IDLE_S, clock=self.clock
        )
        self.port = 0

    def make(self, door: TaskFluxTcpDoor) -> Guest:
        self.guests.append(Guest(door))
        return self.guests[-1]

    async def connect(self) -> Connection:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def greet(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Guest]:
        """Connect and shake hands, until the other side knows."""
        reader, writer = await self.connect()
        writer.write(HANDSHAKE)
        await in_rounds(lambda: self.guests and self.guests[-1].commands)
        subscriber = self.guests[-1]
        subscriber.door.welcome()
        subscriber.told.clear()
        return reader, writer, subscriber

    def pass_time(self, seconds: float) -> None:
        self.clock.now_s += seconds
        self.listener.sweep()
        self.listener.report_idle()


@asynccontextmanager
async def listening(admission: Admission | None = None) -> AsyncIterator[Port]:
    port = Port(admission)
    port.port = await port.listener.start(await bound_socket("127.0.0.1", 0))
    try:
        yield port
    finally:
        await asyncio.wait_for(port.listener.close(), MAIL_S_MAX)


def test_quiet_connection_is_reported_once_for_each_idle_limit(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            _, _, subscriber = await port.greet()
            port.pass_time(IDLE_S - 1)
            assert not subscriber.heard(Idle)

            port.pass_time(1)
            port.pass_time(IDLE_S - 1)
            assert subscriber.heard(Idle) == 1
            port.pass_time(1)

            assert subscriber.heard(Idle) == 2

    run(test)


def test_packets_and_answers_restart_the_idle_limit_and_half_a_packet_does_not(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            _, writer, subscriber = await port.greet()
            port.pass_time(IDLE_S / 2)
            writer.write(encode([Count("")], SPEC))
            await subscriber.until_told(Received)
            port.pass_time(IDLE_S / 2)
            subscriber.door.send([OK])
            port.pass_time(IDLE_S / 2)
            assert not subscriber.heard(Idle)

            subscriber.told.clear()
            writer.write(encode([Count("")], SPEC) + b"C")  # the packet before tells when the half one is there
            await subscriber.until_told(Received)
            port.pass_time(IDLE_S)

            assert subscriber.heard(Idle) == 1

    run(test)


def test_dropped_connection_is_reported(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            reader, _, subscriber = await port.greet()

            subscriber.door.drop("idle for too long")

            assert await reader.read() == b""
            await subscriber.until_told(Closed)
            assert not port.listener.doors

    run(test)


def test_lost_connection_with_unread_bytes_is_not_watched(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            _, writer, subscriber = await port.greet()
            writer.close()
            await subscriber.hung_up()

            subscriber.door.keep(MIB)  # of what was received before, and is looked at only now

            assert not port.listener.sweep()
            assert port.listener.admission.held_bytes == 0

    run(test)


def test_packet_that_comes_in_many_reads_has_its_own_size(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            _, writer, subscriber = await port.greet()
            wire = encode([Enqueue("", 1, bytes(300_000))], SPEC)

            writer.write(wire[:-1])
            while subscriber.door.unfinished_bytes < len(wire) - 1:
                await asyncio.sleep(0)
            writer.write(wire[-1:] + wire[:10])
            await subscriber.until_told(Received)

            assert [told.size_bytes for told in subscriber.told if isinstance(told, Received)] == [len(wire)]

    run(test)


def test_last_answer_arrives_although_the_client_continues_to_send(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            reader, writer, subscriber = await port.greet()
            writer.write(b"Z" + bytes(MIB))
            await subscriber.until_told(Received)
            subscriber.door.send([ErrorResponse(0, "no")])
            subscriber.door.close("bad input")
            subscriber.told.clear()

            assert await reader.read() == encode([ErrorResponse(0, "no")], SPEC)
            assert not subscriber.heard(Received)
            writer.close()
            await subscriber.hung_up()

    run(test)


def test_half_closed_client_is_reported_and_still_answered(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            reader, writer, subscriber = await port.greet()
            writer.write_eof()
            await subscriber.until_told(Ended)

            subscriber.door.send([OK])
            subscriber.door.hang_up()

            assert await reader.read() == b"k"

    run(test)


def test_connection_beyond_the_limit_is_closed_silently(run: Run) -> None:
    async def test() -> None:
        async with listening(Admission(connections_max=1)) as port:
            await port.greet()
            reader, _ = await port.connect()

            assert await reader.read() == b""
            assert port.listener.refused == 1
            assert len(port.guests) == 1

    run(test)


def test_client_with_much_unread_is_congested_until_it_has_read(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            reader, writer, subscriber = await port.greet()
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            door, sent = subscriber.door, 0
            while not door.is_congested:
                door.send([Record(1, bytes(MIB))])
                sent += 1
            assert sent > UNREAD_BYTES_MAX // MIB

            writer.transport.resume_reading()  # type: ignore[attr-defined]
            await reader.readexactly(sent * len(encode([Record(1, bytes(MIB))], SPEC)))
            await subscriber.until_told(Drained)

            assert not door.is_congested

    run(test)


def test_client_that_never_reads_is_disconnected(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            _, writer, subscriber = await port.greet()
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            while not subscriber.door.is_congested:
                subscriber.door.send([Record(1, bytes(MIB))])
            port.pass_time(0)

            # The kernel may take some bytes meanwhile, which is progress once more.
            while not subscriber.heard(Closed):
                port.pass_time(STUCK_S_MAX)
                await asyncio.sleep(0)

    run(test)


def test_unfinished_packet_ends_its_connection_when_all_hold_too_much(run: Run) -> None:
    async def test() -> None:
        admission = Admission(held_bytes_max=200_000)
        async with listening(admission) as port:
            _, first, holder = await port.greet()
            half = encode([Enqueue("", 1, bytes(300_000))], SPEC)[:250_000]
            holder.door.keep(150_000)
            assert admission.held_bytes == 150_000

            _, second, subscriber = await port.greet()
            second.write(half)
            await subscriber.until_told(Received)
            assert isinstance(subscriber.commands[-1], Bad)
            assert isinstance(subscriber.commands[-1].error, Crowded)
            subscriber.door.close("crowded")
            second.close()
            first.close()
            await subscriber.hung_up()
            await holder.hung_up()

            assert admission.held_bytes == 0
            assert admission.connections == 0

    run(test)
