"""The worker port over TCP: what comes together is told once, answers go out in order, and how connections end."""

import asyncio
import socket

import pytest

from tests.helpers.doors.worker_port import listening
from tests.helpers.loops.both import Run
from wakeq.actors.sessions.door import FRAME_S_MAX, Closed, Received
from wakeq.net.tcp_listener import CLOSE_SLICE
from wakeq.protocol.wire.worker.codec import Fet, Ok, Ping, Pong, encode

pytestmark = pytest.mark.usefixtures("short_goodbyes")


def test_commands_of_one_read_are_sent_to_the_session_together(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            _, writer, subscriber = await port.ask()

            writer.write(b'{"cmd":"FET","qname":"a"}\n' * 100)
            await subscriber.until(lambda: len(subscriber.commands) == 100)

            assert len(subscriber.told) == 1
            assert set(map(str, subscriber.commands)) == {str(Fet("a"))}

    run(test)


def test_line_in_pieces_is_sent_when_it_is_complete(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            _, writer, subscriber = await port.ask()
            for piece in (b'{"cmd":"FET","qname":"a"}\n{"cmd":', b'"PI', b'NG"}', b"\n"):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)

            await subscriber.until(lambda: len(subscriber.commands) == 2)
            assert subscriber.commands == [Fet("a"), Ping()]

    run(test)


def test_line_that_comes_in_many_reads_has_its_own_size(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            _, writer, subscriber = await port.ask()
            line = b'{"cmd":"PUB","qname":"q","msg":"' + b"x" * 300_000 + b'"}\n'

            writer.write(line[:-1])
            while subscriber.door.unfinished_bytes < len(line) - 1:
                await asyncio.sleep(0)
            writer.write(line[-1:] + b'{"cmd":"FET"')
            await subscriber.until(lambda: bool(subscriber.commands))

            assert [told.size_bytes for told in subscriber.told if isinstance(told, Received)] == [len(line)]

    run(test)


def test_answers_come_in_one_write_and_in_order(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            reader, _writer, subscriber = await port.ask()
            replies = [Ok("q", str(number)) for number in range(1000)]

            subscriber.door.send(replies)

            wire = encode(replies)
            assert await reader.readexactly(len(wire)) == wire

    run(test)


def test_end_of_a_peer_is_reported_once_after_its_commands(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            _, writer, subscriber = await port.ask()

            writer.write(b'{"cmd":"FET","qname":"a"}\n{"cmd":"unfinished')
            writer.close()
            await subscriber.until(lambda: subscriber.closed is not None)

            assert [type(told) for told in subscriber.told] == [Received, Closed]
            assert subscriber.told[0].commands == [Fet("a")]
            assert port.listener.admission.connections == 0
            assert port.listener.admission.held_bytes == 0
            subscriber.door.send([Pong()])
            subscriber.door.close("again")
            subscriber.door.pause()
            subscriber.door.resume()

    run(test)


def test_connection_at_rest_is_not_watched(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            _, writer, subscriber = await port.ask()
            writer.write(b'{"cmd":"FET","qn')
            while not port.listener.admission.held_bytes:
                await asyncio.sleep(0)
            writer.write(b'ame":"a"}\n')
            await subscriber.until(lambda: bool(subscriber.commands))

            port.pass_time(FRAME_S_MAX + 1)

            assert subscriber.closed is None
            assert not port.listener._watched
            assert port.listener.admission.held_bytes == 0

    run(test)


def test_paused_door_receives_nothing_until_it_is_resumed(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            reader, writer, subscriber = await port.ask()

            subscriber.door.pause()
            writer.write(b'{"cmd":"PING"}\n')
            await writer.drain()
            for _ in range(3):
                await port.ask()  # the loop has looked at its sockets by now
            assert subscriber.commands == []
            subscriber.door.resume()

            assert await reader.readline() == b'{"cmd":"pong"}\n'

    run(test)


def test_peer_that_does_not_close_is_dropped_in_time(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            port.listener.line_bytes_max = 100
            reader, writer, subscriber = await port.ask()
            writer.write(b"x" * 101)
            await subscriber.until(lambda: bool(subscriber.commands))
            subscriber.door.close("a line was too long")
            assert await reader.read() == b""

            port.pass_time(FRAME_S_MAX - 1)
            assert subscriber.closed is None
            port.pass_time(1)

            await subscriber.until(lambda: subscriber.closed is not None)
            assert subscriber.closed == "a line was too long"
            subscriber.door.send([Pong()])

    run(test)


def test_stop_sends_the_remaining_answers(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            reader, _writer, subscriber = await port.ask()

            subscriber.door.send([Ok("q", "u")] * 1000)
            await port.listener.close()

            assert (await reader.read()).count(b"\n") == 1000
            assert subscriber.closed == "the broker stops"
            with pytest.raises(OSError):
                await port.connect()

    run(test)


def test_peers_that_leave_together_are_closed_a_few_in_each_turn(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            writers = [(await port.ask())[1] for _ in range(2 * CLOSE_SLICE + 10)]
            for writer in writers:
                writer.transport.abort()

            most, before = 0, len(port.listener.doors)
            while port.listener.doors:
                await asyncio.sleep(0)
                most, before = max(most, before - len(port.listener.doors)), len(port.listener.doors)

            assert 0 < most <= CLOSE_SLICE
            assert all(subscriber.closed == "closed by peer" for subscriber in port.subscribers)

    run(test)


def test_accepted_connections_have_keepalive_and_no_delay(run: Run) -> None:
    async def test() -> None:
        async with listening() as port:
            _, _, subscriber = await port.ask()
            sock = subscriber.door._transport.get_extra_info("socket")  # type: ignore[attr-defined]

            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert [
                sock.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            ] == [5, 2, 3]
            assert subscriber.door.peer.startswith("127.0.0.1:")

    run(test)
