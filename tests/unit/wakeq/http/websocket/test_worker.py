"""The worker protocol's WebSocket door and the HTTP port, over real loopback sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from tests.helpers.doors.noting import Answering, Clock
from tests.helpers.loops.both import Run
from tests.helpers.loops.rounds import in_rounds
from wakeq.actors.runtime.rounds import SHARE_COMMANDS_MAX
from wakeq.actors.sessions.access import Access
from wakeq.actors.sessions.door import BURST_BYTES_MAX, FRAME_S_MAX, MIB, STUCK_S_MAX, Admission, Closed, Door, Received
from wakeq.http import server as server_module
from wakeq.http.server import WebServer
from wakeq.http.websocket.worker import WorkerPath
from wakeq.net.listening import bound_socket
from wakeq.protocol.errors import Unauthorized
from wakeq.protocol.wire.websocket import PING, PONG, frame
from wakeq.protocol.wire.worker.codec import Bad, Fet, Msg, Ok, Ping, Pong


class Port:
    """A server, its sessions, and a way to connect to it."""

    def __init__(self, session: aiohttp.ClientSession, **limits: object) -> None:
        self.clock = Clock()
        self.session = session
        self.subscribers: list[Answering] = []
        self.connect = WorkerPath(self.make, clock=self.clock, **limits)  # type: ignore[arg-type]
        self.server = WebServer("hello", admission=self.connect.admission)
        self.url = ""
        # Kept here, because aiohttp closes a connection that nothing refers to.
        self._open: list[aiohttp.ClientWebSocketResponse] = []

    def make(self, door: Door) -> Answering:
        self.subscribers.append(Answering(door))
        return self.subscribers[-1]

    async def ask(self, path: str = "/connect") -> tuple[aiohttp.ClientWebSocketResponse, Answering]:
        """Connect, and wait until the server has the connection."""
        ws = await self.session.ws_connect(self.url + path, autoping=False, max_msg_size=0)
        await ws.send_str('{"cmd":"PING"}')
        self._open.append(ws)
        assert await ws.receive_str() == '{"cmd":"pong"}'
        subscriber = self.subscribers[-1]
        subscriber.told.clear()
        return ws, subscriber


@asynccontextmanager
async def serving(**limits: object) -> AsyncIterator[Port]:
    async with aiohttp.ClientSession() as session:
        port = Port(session, **limits)
        for path in ("/connect", "/connect/"):
            port.server.add("GET", path, port.connect.handle)
        port.server.before_stop(port.connect.close)
        port.url = f"http://127.0.0.1:{await port.server.start(await bound_socket('127.0.0.1', 0))}"
        try:
            yield port
        finally:
            await session.close()
            await asyncio.wait_for(port.server.close(), 10)


def test_root_path_returns_a_greeting(run: Run) -> None:
    async def test() -> None:
        async with serving() as port, port.session.get(port.url + "/") as response:
            assert (response.status, await response.text()) == (200, "hello\n")

    run(test)


def test_connect_works_with_and_without_a_trailing_slash(run: Run) -> None:
    async def test() -> None:
        async with serving() as port:
            await port.ask("/connect")
            await port.ask("/connect/")

            assert port.connect.admission.connections == 2

    run(test)


def test_request_without_an_upgrade_is_refused_and_its_connection_counted(run: Run) -> None:
    async def test() -> None:
        async with serving() as port:
            async with port.session.get(port.url + "/connect") as response:
                assert response.status == 400
            assert port.connect.admission.connections == 1

            await port.session.close()

            await in_rounds(lambda: not port.connect.admission.connections)

    run(test)


def test_waiting_frames_reach_the_session_together_and_in_order(run: Run) -> None:
    async def test() -> None:
        async with serving() as port:
            ws, subscriber = await port.ask()

            for number in range(200):
                await ws.send_str(f'{{"cmd":"FET",\n"qname":"{number}"}}')
            await subscriber.until(lambda: len(subscriber.commands) == 200)

            assert subscriber.commands == [Fet(str(number)) for number in range(200)]
            assert len(subscriber.told) < 50

    run(test)


@pytest.mark.parametrize("opcode", [0x81, 0x89], ids=["text", "ping"])
def test_frame_beside_a_flood_waits_for_one_share_at_most(run: Run, opcode: int) -> None:
    async def test() -> None:
        async with serving() as port:
            flood, flooding = await port.ask()
            calm, other = await port.ask()
            transport = flood._response.connection.transport  # type: ignore[union-attr]
            rounds = port.connect.admission.rounds
            taken: list[int] = []
            take_turn = type(flooding.door).take_turn

            def counted(door: object) -> None:
                taken.append(flooding.door._taken)  # type: ignore[attr-defined]
                take_turn(door)  # type: ignore[arg-type]

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(type(flooding.door), "take_turn", counted)
                transport.write((bytes([opcode, 0x80]) + bytes(4)) * 50_000)
                for number in range(20):
                    await calm.send_str(f'{{"cmd":"FET","qname":"{number}"}}')
                    await other.until(lambda count=number: len(other.commands) > count)

            told = [len(received.commands) for received in flooding.told if isinstance(received, Received)]
            assert taken
            assert max([*told, *taken]) <= SHARE_COMMANDS_MAX
            assert len(rounds.waiting) <= 1

    run(test)


def test_answer_is_sent_in_a_frame_of_its_own(run: Run) -> None:
    async def test() -> None:
        async with serving() as port:
            ws, subscriber = await port.ask()
            bodies = ["", "x" * 60, "x" * 1000, "x" * 70_000]

            subscriber.door.send([Msg("q", "u", 0, body) for body in bodies])

            assert [(await ws.receive_json())["msg"] for _ in bodies] == bodies

    run(test)


def test_binary_frame_is_refused_in_order(run: Run) -> None:
    async def test() -> None:
        async with serving() as port:
            ws, subscriber = await port.ask()

            await ws.send_str('{"cmd":"FET","qname":"a"}')
            await ws.send_bytes(b'{"cmd":"PING"}')
            await ws.send_str("")
            await ws.send_str('{"cmd":"FET","qname":"b"}')
            await subscriber.until(lambda: len(subscriber.commands) == 4)

            first, binary, empty, last = subscriber.commands
            assert (first, last) == (Fet("a"), Fet("b"))
            assert isinstance(binary, Bad)
            assert isinstance(empty, Bad)
            assert "binary" in str(binary.error)
            assert binary.error.code == empty.error.code == "BAD_JSON"

    run(test)


def test_oversized_frame_ends_the_connection(run: Run) -> None:
    async def test() -> None:
        async with serving(message_bytes_max=1000) as port:
            ws, subscriber = await port.ask()

            await ws.send_str("x" * (port.connect.frame_bytes_max + 1))
            message = await ws.receive()

            assert message.type is aiohttp.WSMsgType.CLOSE
            assert message.data == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
            await ws.close()
            await subscriber.until(lambda: subscriber.closed is not None)
            assert subscriber.commands == []

    run(test)


def test_compression_is_never_negotiated(run: Run) -> None:
    async def test() -> None:
        async with serving() as port:
            ws = await port.session.ws_connect(port.url + "/connect", compress=15)

            assert not ws.compress

    run(test)


def test_session_learns_of_the_end_once_after_the_last_commands(run: Run) -> None:
    async def test() -> None:
        async with serving() as port:
            ws, subscriber = await port.ask()

            await ws.send_str('{"cmd":"FET","qname":"a"}')
            await ws.close()
            await subscriber.until(lambda: subscriber.closed is not None)

            assert [type(told) for told in subscriber.told] == [Received, Closed]
            assert subscriber.told[0].commands == [Fet("a")]
            assert port.connect.admission.connections == 0
            subscriber.door.send([Pong()])
            subscriber.door.close("again")
            subscriber.door.pause()
            subscriber.door.resume()

    run(test)


def test_paused_door_reads_nothing_until_resumed(run: Run) -> None:
    async def test() -> None:
        async with serving() as port:
            ws, subscriber = await port.ask()

            subscriber.door.pause()
            for _ in range(3):
                await ws.send_str('{"cmd":"FET","qname":"a"}')
            for _ in range(3):
                # The answer shows that the loop has read its sockets by now.
                await port.ask()
            # The door was already waiting for one message.
            assert len(subscriber.commands) <= 1
            subscriber.door.resume()

            await subscriber.until(lambda: len(subscriber.commands) == 3)

    run(test)


def test_frame_must_be_complete_in_time(run: Run) -> None:
    async def test() -> None:
        async with serving() as port:
            _, subscriber = await port.ask()

            # A byte now and then does not extend the deadline.
            for _ in range(2):
                subscriber.door.on_data(1)
                port.connect.sweep()
                assert subscriber.closed is None
                port.clock.now_s += FRAME_S_MAX / 2
            port.connect.sweep()
            await subscriber.until(lambda: subscriber.closed is not None)

            assert "not complete" in (subscriber.closed or "")

    run(test)


def test_constant_sender_is_not_late_with_a_frame(run: Run) -> None:
    """At each check a frame is unfinished, but never the same one."""

    async def test() -> None:
        async with serving() as port:
            ws, subscriber = await port.ask()

            for _ in range(4):
                subscriber.door.on_data(5)
                port.connect.sweep()
                await ws.send_str('{"cmd":"PING"}')
                assert await ws.receive_str() == '{"cmd":"pong"}'
                port.clock.now_s += FRAME_S_MAX / 2

            assert subscriber.closed is None

    run(test)


@pytest.mark.parametrize("kind", [PING, PONG])
def test_unmasked_control_frame_closes_the_connection(run: Run, kind: int) -> None:
    """If the door counted the four bytes of the missing mask, it would take an unfinished message for complete."""

    async def test() -> None:
        async with serving() as port:
            ws, subscriber = await port.ask()
            assert ws._conn is not None
            assert ws._conn.transport is not None
            send = ws._conn.transport.write
            # A masked fragment of a message that continues.
            send(b"\x01\x94" + bytes(4) + b"x" * 20)

            send(frame(kind, b""))
            message = await ws.receive()

            assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, aiohttp.WSCloseCode.PROTOCOL_ERROR)
            await ws.close()
            await subscriber.until(lambda: subscriber.closed is not None)
            assert "not masked" in (subscriber.closed or "")

    run(test)


@pytest.mark.parametrize("payload", [b"", b"abc"])
def test_masked_control_frame_is_accepted(run: Run, payload: bytes) -> None:
    async def test() -> None:
        async with serving() as port:
            ws, subscriber = await port.ask()

            await ws.pong(payload)
            await ws.ping(payload)
            await ws.send_str('{"cmd":"PING"}')

            assert (await ws.receive()).type == aiohttp.WSMsgType.PONG
            assert await ws.receive_str() == '{"cmd":"pong"}'
            assert subscriber.closed is None

    run(test)


def test_ping_is_answered_with_its_payload(run: Run) -> None:
    async def test() -> None:
        async with serving() as port:
            ws, _ = await port.ask()

            await ws.ping(b"abc")
            message = await ws.receive()

            assert (message.type, bytes(message.data)) == (aiohttp.WSMsgType.PONG, b"abc")

    run(test)


def test_silent_peer_is_pinged_and_then_dropped(run: Run) -> None:
    async def test() -> None:
        async with serving() as port:
            silent, gone = await port.ask()
            lively, kept = await port.ask()
            # The first round forgets that the peer was heard; the second one pings it.
            for _ in range(2 * WorkerPath.heartbeat_s):
                port.connect.sweep()
            assert (await silent.receive()).type is aiohttp.WSMsgType.PING
            assert (await lively.receive()).type is aiohttp.WSMsgType.PING
            await lively.pong()
            await lively.send_str('{"cmd":"PING"}')
            assert await lively.receive_str() == '{"cmd":"pong"}'

            for _ in range(WorkerPath.heartbeat_s):
                port.connect.sweep()
            await gone.until(lambda: gone.closed is not None)

            assert gone.closed == "no sign of life"
            assert kept.closed is None

    run(test)


def test_peer_that_does_not_read_its_answers_is_disconnected(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with serving() as port:
            _, subscriber = await port.ask()

            sent = 0
            while subscriber.closed is None and sent < 64:
                subscriber.door.send([Msg("q", "u", 0, "x" * MIB)])
                sent += 1
                await asyncio.sleep(0)

            await subscriber.until(lambda: subscriber.closed is not None)
            assert subscriber.closed == "it does not read its answers"
            assert port.connect.admission.held_bytes == 0
            assert any("was disconnected: it does not read its answers" in line for line in caplog.messages)

    run(test)


def test_unread_oks_pause_reading_and_then_close_the_connection(run: Run) -> None:
    async def test() -> None:
        async with serving() as port:
            ws, subscriber = await port.ask()
            oks = [Ok("q" * 255, "u" * 16)] * 10_000

            while port.connect.admission.held_bytes <= BURST_BYTES_MAX:
                subscriber.door.send(oks)
                await asyncio.sleep(0)

            # The frame that the door already waits for is the last one.
            for _ in range(2):
                await ws.send_str('{"cmd":"PING"}')
            await subscriber.until(lambda: subscriber.commands == [Ping()])
            await port.ask()
            assert subscriber.commands == [Ping()]
            port.clock.now_s += STUCK_S_MAX - 1
            port.connect.sweep()
            assert subscriber.closed is None
            # The kernel may have taken some bytes meanwhile, which is progress once more.
            while subscriber.closed is None:
                port.clock.now_s += STUCK_S_MAX
                port.connect.sweep()
                await asyncio.sleep(0)
            assert subscriber.closed == "it does not read its answers"

    run(test)


class Revoked:
    """A gate that accepts a token with the request and refuses it after the handshake."""

    def __init__(self) -> None:
        self.asked = 0

    def login(self, *_: object, **__: object) -> Access:
        self.asked += 1
        if self.asked > 1:
            raise Unauthorized("revoked meanwhile")
        return Access()


def test_token_that_ends_during_the_handshake_closes_the_connection(run: Run) -> None:
    async def test() -> None:
        async with serving(gate=Revoked()) as port:
            headers = {"Authorization": "Bearer wakeq_a"}
            ws = await port.session.ws_connect(port.url + "/connect", headers=headers)

            assert (await ws.receive()).type is aiohttp.WSMsgType.CLOSE
            await ws.close()

            assert not port.connect.doors
            assert not port.subscribers

    run(test)


def test_websocket_beyond_the_limit_is_refused_but_a_request_is_answered(run: Run) -> None:
    """A refused probe would make a supervisor restart a healthy broker."""

    async def test() -> None:
        async with serving(admission=Admission(connections_max=1)) as port:
            await port.ask()

            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await port.ask()

            assert refused.value.status == 503
            async with port.session.get(port.url + "/") as response:
                assert response.status == 200

    run(test)


def test_request_without_room_gets_a_reason(run: Run) -> None:
    async def test() -> None:
        admission = Admission(connections_max=1)
        while not admission.enter(may_be_spare=True):
            pass
        async with serving(admission=admission) as port, port.session.get(port.url + "/") as response:
            assert (response.status, response.content_type) == (503, "text/plain")
            assert await response.text() == "there are 1 connections already; try again later\n"

    run(test)


def test_shutdown_sends_pending_answers_and_a_close_frame(run: Run) -> None:
    async def test() -> None:
        async with serving() as port:
            ws, subscriber = await port.ask()

            subscriber.door.send([Pong()] * 100)
            closing = asyncio.create_task(port.server.close())
            got = [await ws.receive() for _ in range(101)]
            await ws.close()
            await closing

            assert got[-1].type is aiohttp.WSMsgType.CLOSE
            assert {message.data for message in got[:-1]} == {'{"cmd":"pong"}'}
            assert subscriber.closed == "the broker stops"

    run(test)


def test_connection_without_a_request_is_closed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HANDSHAKE_S_MAX", 0.01)

    async def test() -> None:
        async with serving() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(port.url.rsplit(":", 1)[1]))
            writer.write(b"GET /connect HTTP/1.1\r\nHost: a\r\n")
            ws, subscriber = await port.ask()

            # Long before a kept-alive connection would be closed.
            async with asyncio.timeout(2):
                assert await reader.read() == b""
            await ws.send_str('{"cmd":"PING"}')
            assert await ws.receive_str() == '{"cmd":"pong"}'
            assert subscriber.closed is None

    run(test)
