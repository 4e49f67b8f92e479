"""MoniQue's WebSocket door over real loopback sockets: pushed frames, and clients that do not read them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest

from tests.helpers.doors.noting import Clock, Noting
from tests.helpers.loops.both import Run
from wakeq.actors.sessions.door import FRAME_S_MAX, MIB, UNREAD_BYTES_MAX, Received
from wakeq.client import route
from wakeq.http.server import WebServer
from wakeq.http.websocket.monique import JOINED_BYTES_MAX, MoniqueDoor, MoniquePath, joined
from wakeq.monique import AsyncMoniqueClient, MoniqueClient
from wakeq.net.listening import bound_socket
from wakeq.protocol.errors import BrokerUnreachable
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.wire.monique.codec import encode
from wakeq.protocol.wire.monique.commands import Bad, Ping, Pong
from wakeq.protocol.wire.websocket import BINARY, frame


class Answering(Noting):
    """A session that answers every ping."""

    def tell(self, message: object, /) -> None:
        super().tell(message)
        if isinstance(message, Received):
            self.door.send([Pong(command.data) for command in message.commands if isinstance(command, Ping)])


class Port:
    def __init__(
        self, session: aiohttp.ClientSession, refusal: Callable[[], Refusal | None], *, wants_id_cookie: bool
    ) -> None:
        self.clock = Clock()
        self.session = session
        self.subscribers: list[Answering] = []
        self.path = MoniquePath(self.make, clock=self.clock, refusal=refusal, wants_id_cookie=wants_id_cookie)
        self.server = WebServer(greeting=None)
        self.server.add("GET", "/", self.path.handle)
        self.address = ""

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def make(self, door: MoniqueDoor) -> Answering:
        self.subscribers.append(Answering(door))
        return self.subscribers[-1]

    async def client(self) -> tuple[aiohttp.ClientWebSocketResponse, Answering]:
        """Connect, and wait until the server has the connection."""
        ws = await self.session.ws_connect(self.url, autoping=False, max_msg_size=0)
        await ws.send_bytes(encode([Ping(1)])[0])
        assert (await ws.receive()).data == encode([Pong(1)])[0]
        return ws, self.subscribers[-1]


@asynccontextmanager
async def serving(
    refusal: Callable[[], Refusal | None] = lambda: None, *, wants_id_cookie: bool = False
) -> AsyncIterator[Port]:
    async with aiohttp.ClientSession() as session:
        port = Port(session, refusal, wants_id_cookie=wants_id_cookie)
        port.server.before_stop(port.path.close)
        port.address = f"127.0.0.1:{await port.server.start(await bound_socket('127.0.0.1', 0))}"
        try:
            yield port
        finally:
            await session.close()
            await asyncio.wait_for(port.server.close(), 20)


@pytest.mark.parametrize("size", [100, JOINED_BYTES_MAX // 2, JOINED_BYTES_MAX + 1])
def test_frames_are_pushed_unchanged_and_in_order(run: Run, size: int) -> None:
    async def test() -> None:
        async with serving() as port:
            ws, subscriber = await port.client()
            payloads = [bytes([number]) * size for number in range(5)]

            subscriber.door.push([frame(BINARY, payload) for payload in payloads])

            assert [(await ws.receive()).data for _ in payloads] == payloads

    run(test)


def test_short_frames_are_joined_and_a_long_one_is_not_copied() -> None:
    short, long = b"x" * 300, b"y" * (JOINED_BYTES_MAX + 1)

    burst = joined([short] * 1000)
    mixed = joined([short, long, short, short])

    assert b"".join(burst) == short * 1000
    assert len(burst) == 300_000 // JOINED_BYTES_MAX + 1
    assert max(map(len, burst)) <= JOINED_BYTES_MAX
    assert mixed == [short, long, short * 2]
    assert mixed[1] is long


def test_client_that_does_not_read_is_closed_with_a_reason(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with serving() as port:
            slow, slow_subscriber = await port.client()
            quick, quick_subscriber = await port.client()
            slow._conn.protocol.pause_reading()  # type: ignore[union-attr]
            pushed = frame(BINARY, b"x" * MIB)

            for _ in range(40):
                slow_subscriber.door.push([pushed])
                quick_subscriber.door.push([pushed])
                assert len((await quick.receive()).data) == MIB
            assert slow_subscriber.door._transport.get_write_buffer_size() <= UNREAD_BYTES_MAX + 2 * MIB
            slow._conn.protocol.resume_reading()  # type: ignore[union-attr]
            got = [message async for message in slow]

            assert quick_subscriber.closed is None
            assert slow.close_code == aiohttp.WSCloseCode.POLICY_VIOLATION
            assert 0 < len(got) < 40
            await slow_subscriber.until(lambda: slow_subscriber.closed is not None)
            assert "more than 4 MiB of messages are unread" in (slow_subscriber.closed or "")
            assert port.path.admission.held_bytes == 0
            assert port.path.slow_clients == 1

    run(test)
    assert ": more than 4 MiB" in caplog.text


def test_client_that_never_reads_again_is_dropped(run: Run) -> None:
    async def test() -> None:
        async with serving() as port:
            dead, subscriber = await port.client()
            dead._conn.protocol.pause_reading()  # type: ignore[union-attr]
            while port.path.slow_clients == 0:
                subscriber.door.push([frame(BINARY, b"x" * MIB)])
                await asyncio.sleep(0)
            # The clock would do this; the client does not read it either.
            subscriber.door.send_ping()

            port.clock.now_s += FRAME_S_MAX
            port.path.sweep()

            await subscriber.until(lambda: subscriber.closed is not None)
            assert port.path.admission.held_bytes == 0

    run(test)


def test_silent_client_is_dropped_after_a_ping(run: Run) -> None:
    async def test() -> None:
        async with serving() as port:
            silent, gone = await port.client()
            lively, kept = await port.client()
            for _ in range(2):
                for _ in range(MoniquePath.heartbeat_s):
                    port.path.sweep()
                assert (await lively.receive()).type is aiohttp.WSMsgType.PING
                await lively.pong()
                await lively.send_bytes(encode([Ping(1)])[0])
                await lively.receive()
            await gone.until(lambda: gone.closed is not None)

            assert (gone.closed, kept.closed) == ("no sign of life", None)
            assert (await silent.receive()).type is aiohttp.WSMsgType.PING

    run(test)


def test_binary_data_in_a_text_frame_is_accepted(run: Run) -> None:
    async def test() -> None:
        async with serving() as port:
            ws, subscriber = await port.client()
            await ws._writer.send_frame(b"\xff\xfe", aiohttp.WSMsgType.TEXT)
            await subscriber.until(lambda: len(subscriber.commands) == 2)

            assert isinstance(subscriber.commands[-1], Bad)
            assert subscriber.closed is None

    run(test)


@pytest.mark.parametrize(("cookie", "status"), [(None, 400), ("id=", 400), ("xid=5", 400), ("a=b; id=5", 101)])
def test_id_cookie_is_required_if_configured(run: Run, cookie: str | None, status: int) -> None:
    async def test() -> None:
        async with serving(wants_id_cookie=True) as port:
            headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
            headers |= {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="} | (
                {} if cookie is None else {"Cookie": cookie}
            )
            async with port.session.get(port.url, headers=headers) as answer:
                assert answer.status == status
                if status == 400:
                    assert await answer.read() == b"\x81\xa5error\xbduser id not found in cookies."

    run(test)


def test_client_of_a_follower_is_refused(run: Run) -> None:
    async def test() -> None:
        refusal = Refusal("NOT_LEADER", "node 2 leads; connect to it")
        async with serving(lambda: refusal) as port, port.session.get(port.url) as answer:
            assert (answer.status, await answer.text()) == (503, "node 2 leads; connect to it\n")

    run(test)


@pytest.mark.parametrize("code", ["BUSY", "NO_QUORUM"])
def test_clients_that_connect_while_a_leader_opens_its_ports_wait_for_them(
    run: Run, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setattr(route, "PAUSE_S_MIN", 0.001)
    refusal = Refusal(code, "the ports of MoniQue cannot be opened now; try again")

    async def test() -> None:
        answers = iter([refusal, refusal, None] * 2)
        async with serving(lambda: next(answers)) as port:
            async with AsyncMoniqueClient(f"ws://{port.address}/") as client:
                await client.close()
            (await asyncio.to_thread(MoniqueClient, f"ws://{port.address}/")).close()

            assert len(port.subscribers) == 2

    run(test)


def test_client_that_connects_to_a_follower_is_refused_at_once(run: Run) -> None:
    async def test() -> None:
        answers = iter([Refusal("NOT_LEADER", "node 2 leads; connect to it")])
        async with serving(lambda: next(answers)) as port:
            with pytest.raises(BrokerUnreachable, match="node 2 leads"):
                await AsyncMoniqueClient(f"ws://{port.address}/").connect()

    run(test)
