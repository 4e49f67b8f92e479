"""TLS before every kind of door, over real loopback sockets."""

import asyncio
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.helpers.loops.both import Run
from tests.helpers.network.certificates import Authority, Pair
from wakeq.actors.sessions.door import Admission, Door, Received
from wakeq.client.connection import dial
from wakeq.client.tls_connection import TlsConnection
from wakeq.net.listening import bound_socket
from wakeq.net.tls import ServerTls, is_valid_for, server_context
from wakeq.net.worker_tcp import WorkerTcpListener
from wakeq.protocol.errors import BadSettings, BrokerUnreachable, Disconnected
from wakeq.protocol.wire.worker.codec import Ping, Pong

pytestmark = pytest.mark.usefixtures("short_goodbyes")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.issue("broker")


class Echo:
    """A subscriber that answers every PING, as often as it came."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.closed = asyncio.Event()

    def tell(self, message: object, /) -> None:
        if isinstance(message, Received):
            self.door.send([Pong() for command in message.commands if command == Ping()])
        else:
            self.closed.set()

    arrive = tell


class Port:
    def __init__(self, tls: ServerTls, admission: Admission | None = None) -> None:
        self.tls = tls
        self.echoes: list[Echo] = []
        self.admission = admission or Admission()
        self.listener = WorkerTcpListener(self.make, admission=self.admission, tls=tls)
        self.port = 0

    def make(self, door: Door) -> Echo:
        self.echoes.append(Echo(door))
        return self.echoes[-1]

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not true():
                await asyncio.sleep(0.001)


@asynccontextmanager
async def listening(pair: Pair, admission: Admission | None = None) -> AsyncIterator[Port]:
    port = Port(ServerTls(lambda: server_context(*pair)), admission)
    port.port = await port.listener.start(await bound_socket("127.0.0.1", 0))
    try:
        yield port
    finally:
        await port.listener.close()


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.ca.cert))


def test_bytes_arrive_in_both_directions_and_a_closed_connection_is_not_counted(
    run: Run, authority: Authority, pair: Pair
) -> None:
    async def test() -> None:
        async with listening(pair) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port.port, ssl=trusting(authority))
            writer.write(b'{"cmd":"PING"}\n' * 3)
            for _ in range(3):
                assert await reader.readline() == b'{"cmd":"pong"}\n'
            assert port.admission.connections == 1

            writer.close()

            await port.echoes[0].closed.wait()
            assert port.admission.connections == 0

    run(test)


def test_last_answer_arrives_before_the_connection_ends(run: Run, authority: Authority, pair: Pair) -> None:
    async def test() -> None:
        async with listening(pair) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port.port, ssl=trusting(authority))
            writer.write(b'{"cmd":"PING"}\n')
            await reader.readline()

            port.echoes[0].door.send([Pong()] * 1000)
            port.echoes[0].door.close("enough")

            assert await reader.read() == b'{"cmd":"pong"}\n' * 1000
            writer.close()

    run(test)


def test_plain_text_on_a_tls_port_is_refused_and_not_counted(
    run: Run, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with listening(pair) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
            writer.write(b'{"cmd":"HELLO","token":"wakeq_s3cret"}\n')

            await reader.read()

            await port.until(lambda: port.admission.connections == 0)
            assert not port.echoes
            assert "no TLS with 127.0.0.1" in caplog.text
            assert "s3cret" not in caplog.text
            writer.close()

    run(test)


def test_stalled_handshake_is_counted_and_closed_in_time(run: Run, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeq.net.tls.HANDSHAKE_S_MAX", 0.5)

    async def test() -> None:
        async with listening(pair, Admission(connections_max=2)) as port:
            stalled = [await asyncio.open_connection("127.0.0.1", port.port) for _ in range(2)]
            stalled[0][1].write(b"\x16\x03\x01\x02\x00")  # the beginning of a handshake
            await port.until(lambda: port.admission.connections == 2)
            third, writer = await asyncio.open_connection("127.0.0.1", port.port)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await third.readexactly(1)
            assert port.admission.connections == 2, "it was refused only when the others were given up"

            await port.until(lambda: port.admission.connections == 0)

            for _, other in (*stalled, (third, writer)):
                other.close()

    run(test)


def test_new_certificate_is_used_after_a_reload_and_connections_stay(
    run: Run, tmp_path: Path, authority: Authority, pair: Pair
) -> None:
    live = Pair(tmp_path / "cert.pem", tmp_path / "key.pem")

    def install(source: Pair) -> None:
        live.cert.write_bytes(source.cert.read_bytes())
        live.key.write_bytes(source.key.read_bytes())

    async def name_shown(port: Port) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port, ssl=trusting(authority))
        return writer.get_extra_info("peercert")["subject"][0][0][1], reader, writer

    async def test() -> None:
        install(pair)
        async with listening(live) as port:
            before, reader, writer = await name_shown(port)
            install(authority.issue("renewed"))
            port.tls.reload()
            after, *_, other = await name_shown(port)
            assert (before, after) == ("broker", "renewed")

            live.key.write_text("no key")
            with pytest.raises(BadSettings, match="no TLS is possible"):
                port.tls.reload()
            assert (await name_shown(port))[0] == "renewed"

            writer.write(b'{"cmd":"PING"}\n')
            assert await reader.readline() == b'{"cmd":"pong"}\n'
            writer.close()
            other.close()

    run(test)


# --- the client's side ---


class Served:
    """A listener on a loop in a thread, for clients that wait."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with listening(self._pair) as port:
            self.port = port
            self._ready.set()
            await self._stop.wait()

    def __enter__(self) -> "Served":
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port.port}"


def test_thread_can_read_while_another_writes(authority: Authority, pair: Pair) -> None:
    with Served(pair) as served:
        wire = dial(served.address, trusting(authority), timeout_s=5)
        heard = bytearray()
        count = 20_000

        def read() -> None:
            while len(heard) < count * len(b'{"cmd":"pong"}\n'):
                heard.extend(wire.receive(timeout_s=10))

        reader = threading.Thread(target=read)
        reader.start()
        for _ in range(count // 100):
            wire.send(b'{"cmd":"PING"}\n' * 100, timeout_s=10)
        reader.join(20)

        assert heard == b'{"cmd":"pong"}\n' * count
        assert wire.receive(timeout_s=0.01) == b""
        wire.close()


def test_bytes_that_arrive_during_the_liveness_check_are_read_once(authority: Authority, pair: Pair) -> None:
    with Served(pair) as served:
        wire = dial(served.address, trusting(authority), timeout_s=5)
        wire.send(b'{"cmd":"PING"}\n', timeout_s=5)
        until_s = time.monotonic() + 10

        while not wire._read_ahead:  # type: ignore[attr-defined]
            assert wire.fault() is None
            assert time.monotonic() < until_s
        assert wire.fault() is None

        assert wire.receive(timeout_s=5) == b'{"cmd":"pong"}\n'
        wire.close()


def test_connection_ended_by_the_broker_is_known_as_lost(authority: Authority, pair: Pair) -> None:
    with Served(pair) as served:
        wire = dial(served.address, trusting(authority), timeout_s=5)
        wire.send(b'{"cmd":"PING"}\n', timeout_s=5)
        assert wire.receive(timeout_s=5)
        assert wire.fault() is None

        served._loop.call_soon_threadsafe(served.port.echoes[0].door.close, "enough")

        with pytest.raises(Disconnected):
            wire.receive(timeout_s=5)
        assert wire.fault() is not None
        wire.close()  # the broker waits for that, though not for ever


def test_untrusted_certificate_is_refused(pair: Pair, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "stranger", "stranger")
    with Served(pair) as served, pytest.raises(BrokerUnreachable, match="no TLS with"):
        dial(served.address, trusting(stranger), timeout_s=5)


def test_certificate_of_another_host_is_refused(authority: Authority) -> None:
    elsewhere = authority.issue("elsewhere", "DNS:elsewhere.example")
    with Served(elsewhere) as served, pytest.raises(BrokerUnreachable, match="no TLS with"):
        dial(served.address, trusting(authority), timeout_s=5)


def test_silent_port_is_given_up_in_time(authority: Authority) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"

        with pytest.raises(BrokerUnreachable, match="in time"):
            TlsConnection(address, trusting(authority), timeout_s=0.2)


# --- for whom a certificate stands ---

NAMES = {"subjectAltName": (("DNS", "a.example"), ("DNS", "*.nodes.example"), ("IP Address", "10.0.0.1"))}
COMMON_NAME = {"subject": ((("organizationName", "b.example"),), (("commonName", "a.example"),))}


@pytest.mark.parametrize(
    ("certificate", "host"),
    [
        (NAMES, "a.example"),
        (NAMES, "A.Example."),
        (NAMES, "one.nodes.example"),
        (NAMES, "10.0.0.1"),
        ({"subjectAltName": (("IP Address", "0:0:0:0:0:0:0:1\n"),)}, "::1"),  # as OpenSSL writes it
        (COMMON_NAME, "a.example"),  # where it has no other name
    ],
)
def test_certificate_is_valid_for_the_hosts_that_it_names(certificate: dict[str, object], host: str) -> None:
    assert is_valid_for(certificate, host)


@pytest.mark.parametrize(
    ("certificate", "host"),
    [
        ({}, "a.example"),
        (NAMES, "b.example"),
        (NAMES, "x.a.example"),
        (NAMES, "one.two.nodes.example"),
        (NAMES, ".nodes.example"),
        (NAMES, "nodes.example"),
        (NAMES, "10.0.0.2"),
        ({"subjectAltName": (("DNS", "10.0.0.1"),)}, "10.0.0.1"),  # a name is no address
        ({"subjectAltName": (("DNS", "*.example"),)}, "a.example"),  # too wide
        ({"subjectAltName": (("DNS", "*"),)}, "a"),
        (COMMON_NAME, "b.example"),
        ({**NAMES, "subject": ((("commonName", "c.example"),),)}, "c.example"),
    ],
)
def test_certificate_is_valid_for_no_other_host(certificate: dict[str, object], host: str) -> None:
    assert not is_valid_for(certificate, host)
