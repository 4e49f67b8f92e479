"""Connections between nodes: who is let in as which node, and what a stranger can use up or make the log say."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.helpers.loops.both import LOOPS
from tests.helpers.loops.rounds import in_rounds
from tests.helpers.network.certificates import Authority, Pair
from tests.helpers.network.ports import free_port
from wakeq.actors.log.members import Introduced
from wakeq.net import peer_tcp
from wakeq.net.handshakes import Handshakes
from wakeq.net.peer_tcp import NEWCOMERS_MAX, Identity, PeerTcp, PeerTcpDoor
from wakeq.net.tls import PeerTls
from wakeq.protocol.raft.membership import LEVEL
from wakeq.protocol.wire.peer.frames import MARK, NO_CLUSTER, ChunkTaken, Hello, encode_body, framed
from wakeq.protocol.wire.peer.session import MAC_BYTES, NONCE_BYTES, PeerSession

CLUSTER = b"0123456789abcdef"
SECRET = b"a secret of thirty-two bytes, or more"
HOST = "127.0.0.1"


def hello_of(node_id: int, cluster_id: bytes = CLUSTER) -> Hello:
    return Hello(MARK, LEVEL, LEVEL, cluster_id, node_id, 1, 1, {})


def tcp_of(
    node_id: int,
    introduced: Callable[[Introduced], None] = lambda _: None,
    secret: bytes | None = None,
    tls: PeerTls | None = None,
) -> PeerTcp:
    return PeerTcp(Identity(lambda: hello_of(node_id), secret, tls), introduced)


@asynccontextmanager
async def listening(tcp: PeerTcp) -> AsyncIterator[int]:
    """Let others connect; gives the port."""
    bound = socket.socket()
    bound.bind((HOST, 0))
    bound.setblocking(False)
    await tcp.start(bound)
    try:
        yield int(bound.getsockname()[1])
    finally:
        await tcp.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


def test_impossible_host_name_is_a_node_without_an_answer() -> None:
    async def is_connected() -> bool:
        tcp = tcp_of(0)
        tcp.dial(1, ("a" * 70 + ".example", 2603))  # 63 characters are the most between two dots
        return await tcp._connect(1)

    assert asyncio.run(is_connected()) is False


class Hosts:
    """Addresses by host, in the place of a name server."""

    def __init__(self, tcp: PeerTcp, **addresses: list[str]) -> None:
        self.addresses = addresses
        tcp._resolver.addresses = self.look_up  # type: ignore[method-assign]

    async def look_up(self, host: str, port: int) -> list[str]:
        if host not in self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.addresses[host]


def test_node_is_dialled_at_the_address_that_its_host_has_now() -> None:
    async def connected_at() -> list[str]:
        found: list[str] = []
        one = tcp_of(1, lambda it: found.append(it.door.peer.rpartition(":")[0]))
        hosts = Hosts(one, zero=["127.0.0.1"])
        port = free_port()
        for address in ("127.0.0.1", "127.0.0.2"):
            hosts.addresses["zero"] = [address]
            zero = tcp_of(0)
            bound = socket.create_server((address, port))
            bound.setblocking(False)
            await zero.start(bound)
            one.dial(0, ("zero", port))
            await until(lambda: found[-1:] == [address])  # noqa: B023
            await zero.close()
        await one.close()
        return found

    assert asyncio.run(connected_at()) == ["127.0.0.1", "127.0.0.2"]


def test_node_is_found_although_its_first_address_refuses() -> None:
    async def is_connected() -> bool:
        introduced: list[Introduced] = []
        zero, one = tcp_of(0), tcp_of(1, introduced.append)
        Hosts(one, zero=["127.0.0.2", HOST])
        async with listening(zero) as port:
            one.dial(0, ("zero", port))
            await until(lambda: bool(introduced))
            await one.close()
        return True

    assert asyncio.run(is_connected())


def test_host_without_an_address_is_logged_once_until_it_has_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "wakeq.peers")

    async def dial() -> None:
        tcp = tcp_of(1)
        hosts = Hosts(tcp)
        tcp._addresses[0] = ("zero", free_port())
        for hosts.addresses in ({}, {}, {"zero": [HOST]}, {}):
            assert await tcp._connect(0) is False

    asyncio.run(dial())

    line = "the host of node 0, zero, has no address: [Errno -2] Name or service not known; trying again"
    assert [record.getMessage() for record in caplog.records] == [line, line]


async def dialled(tcp: PeerTcp) -> asyncio.Server:
    """Have node 1 dial node 0; return as soon as somebody there has let it in."""
    let_in = asyncio.Event()
    server = await asyncio.start_server(lambda reader, writer: let_in.set(), "127.0.0.1", 0)
    tcp.dial(0, server.sockets[0].getsockname())
    await let_in.wait()
    return server


def test_dialled_connection_has_keepalive() -> None:
    async def is_asked() -> int:
        tcp = tcp_of(1)
        server = await dialled(tcp)
        (door,) = tcp.doors
        assert door._transport is not None
        asked = door._transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        await tcp.close()
        server.close()
        return int(asked)

    assert asyncio.run(is_asked()) == 1


def test_close_ends_although_a_connection_is_made_meanwhile() -> None:
    async def end() -> None:
        tcp = tcp_of(1)
        server = await dialled(tcp)
        ending = asyncio.ensure_future(tcp.close())
        await in_rounds(ending.done)
        await ending
        server.close()

    asyncio.run(end())


def test_repeated_silent_hangup_is_logged_once_with_a_hint_at_tls(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """But not of one that was ended in that moment."""

    async def dial_thrice() -> str:
        tcp = tcp_of(1)
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        tcp._addresses[0] = (host, port)
        assert await tcp._connect(0) is False
        assert not caplog.records
        for _ in range(2):
            assert await tcp._connect(0) is False
        server.close()
        return f"{host}:{port}"

    where = asyncio.run(dial_thrice())

    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"the peer at {where} is refused: it hung up before it said which node it is; its log says why, or it wants "
        "TLS (tls.peer_ca_file)"
    ]


def test_peer_that_hangs_up_on_a_known_node_is_logged_and_dialled_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As one does that finds the certificate to be that of another node."""

    async def dial_thrice() -> list[bool]:
        zero = tcp_of(0, lambda it: it.door.close("it is another node"))
        one = tcp_of(1)
        async with listening(zero) as port:
            one._addresses[0] = (HOST, port)
            outcomes = [await one._connect(0) for _ in range(3)]
            await one.close()
        return outcomes

    assert asyncio.run(dial_thrice()) == [False, False, False]
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert warnings[0].endswith("it hung up as soon as it knew which node this is; its log says why")


# --- who is let in ---


async def knock(port: int, session: PeerSession, tls: ssl.SSLContext | None = None) -> str:
    """Connect, and prove what the session can; return `in`, `told` or `refused`."""
    reader, writer = await asyncio.open_connection(HOST, port, ssl=tls, server_hostname=None if tls is None else HOST)
    writer.write(session.take_unsent())
    try:
        while data := await reader.read(65_536):
            session.receive(data)
            writer.write(session.take_unsent())
        return "told" if session.peer is not None else "refused"
    except OSError:
        return "refused"
    finally:
        writer.close()


def newcomer(
    node_id: int, secret: bytes | None = SECRET, cluster_id: bytes = CLUSTER, *, seals: bool = True
) -> PeerSession:
    return PeerSession(hello_of(node_id, cluster_id), secret, b"n" * NONCE_BYTES, dials=True, seals=seals)


def test_nodes_with_one_secret_are_introduced_to_each_other() -> None:
    async def both() -> list[int]:
        met: list[int] = []
        zero = tcp_of(0, lambda it: met.append(it.hello.node_id), SECRET)
        one = tcp_of(1, lambda it: met.append(it.hello.node_id), SECRET)
        async with listening(zero) as port:
            one.dial(0, (HOST, port))
            await until(lambda: len(met) == 2)
            await one.close()
        return sorted(met)

    assert asyncio.run(both()) == [0, 1]


@pytest.mark.parametrize("secret", [None, b"another secret of thirty-two bytes"])
def test_stranger_without_the_secret_is_not_introduced(secret: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    async def outcome() -> list[Introduced]:
        met: list[Introduced] = []
        tcp = tcp_of(0, met.append, SECRET)
        async with listening(tcp) as port:
            said = PeerSession(hello_of(1), secret, b"n" * NONCE_BYTES, dials=True, seals=True)
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(said.take_unsent())
            if secret is not None:
                said.receive(await reader.read(4096))
                writer.write(said.take_unsent())
                assert await reader.read() == b"", "it says nothing to somebody who cannot prove himself"
            else:
                await until(lambda: not tcp.doors and bool(caplog.records))
            writer.close()
        return met

    assert asyncio.run(outcome()) == []
    assert "cluster.secret_file" in caplog.text


def test_joining_node_learns_the_cluster_and_is_not_introduced() -> None:
    async def ask() -> tuple[str, int]:
        met: list[Introduced] = []
        async with listening(tcp_of(0, met.append, SECRET)) as port:
            answer = await knock(port, newcomer(3, cluster_id=NO_CLUSTER))
        return answer, len(met)

    assert asyncio.run(ask()) == ("told", 0)


# --- certificates ---


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def certified(authority: Authority, pair: Pair) -> PeerTls:
    return PeerTls(pair.cert, pair.key, authority.ca.cert)


@pytest.mark.parametrize(
    ("claims", "answer"),
    [(1, "in"), (2, "its certificate is not for c.example"), (9, "node 9 is not known here")],
)
def test_node_with_the_certificate_of_another_is_refused(
    authority: Authority, claims: int, answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Node 1 lives at 127.0.0.1, and that is what its certificate says; node 2 elsewhere."""
    pair = authority.issue("node-1")  # for localhost and 127.0.0.1

    async def outcome() -> list[int]:
        met: list[int] = []
        tcp = tcp_of(0, lambda it: met.append(it.hello.node_id), tls=certified(authority, pair))
        tcp.dial(1, (HOST, 1))
        tcp.dial(2, ("c.example", 1))
        async with listening(tcp) as port:
            knocking = asyncio.create_task(
                knock(port, newcomer(claims, None, seals=False), certified(authority, pair).dialing)
            )
            await until(lambda: bool(met) or knocking.done())
            knocking.cancel()
        return met

    met = asyncio.run(outcome())

    assert met == ([1] if answer == "in" else [])
    assert (answer in caplog.text) is (answer != "in")


def test_joining_node_may_have_any_certificate_of_the_authority(authority: Authority) -> None:
    pair = authority.issue("joins")

    async def ask() -> str:
        async with listening(tcp_of(0, tls=certified(authority, pair))) as port:
            asker = newcomer(9, None, NO_CLUSTER, seals=False)
            return await knock(port, asker, certified(authority, pair).dialing)

    assert asyncio.run(ask()) == "told"


@pytest.mark.parametrize("has_tls", [False, True])
def test_frames_are_sealed_by_the_secret_unless_tls_does_that(authority: Authority, has_tls: bool) -> None:
    tls = certified(authority, authority.issue("node")) if has_tls else None
    one, two = (tcp_of(node_id, secret=SECRET, tls=tls).new_session(dials=node_id > 0) for node_id in (1, 0))
    for _ in range(2):
        one.receive(two.take_unsent())
        two.receive(one.take_unsent())
    one.receive(two.take_unsent())

    wire = one.encode([ChunkTaken(1, 2)])

    assert (len(wire) - len(framed(encode_body(ChunkTaken(1, 2))))) == (0 if has_tls else MAC_BYTES)
    assert two.receive(wire) == [ChunkTaken(1, 2)]


def test_node_at_the_address_of_another_is_not_introduced(caplog: pytest.LogCaptureFixture) -> None:
    met: list[int] = []

    async def dial() -> None:
        async with listening(tcp_of(1, secret=SECRET)) as port:
            two = tcp_of(2, lambda it: met.append(it.hello.node_id), SECRET)
            two.dial(0, (HOST, port))
            await until(lambda: bool(met) or "node 1 answers where node 0 should be" in caplog.text)
            await two.close()

    asyncio.run(dial())

    assert met == []


# --- what a stranger can use up ---


def test_half_open_handshakes_do_not_keep_a_node_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def outcome() -> int:
        met: list[int] = []
        zero = tcp_of(0, lambda it: met.append(it.hello.node_id), SECRET)
        zero.handshakes = Handshakes(8)
        async with listening(zero) as port:
            crowd = [await asyncio.open_connection(HOST, port) for _ in range(20)]
            await until(lambda: len(zero.doors) == 8)
            one = tcp_of(1, secret=SECRET)
            one.dial(0, (HOST, port))
            await until(lambda: bool(met))
            await one.close()
            for _, writer in crowd:
                writer.close()
        return met[0]

    monkeypatch.setattr(peer_tcp, "HELLO_S_MAX", 60.0)
    assert asyncio.run(outcome()) == 1


def test_place_of_a_silent_connection_is_free_after_its_hangup() -> None:
    async def outcome() -> int:
        zero = tcp_of(0, secret=SECRET)
        async with listening(zero) as port:
            for _ in range(3):
                _, writer = await asyncio.open_connection(HOST, port)
                await until(lambda: len(zero.handshakes) == 1)
                writer.close()
                await until(lambda: not zero.doors)
            return len(zero.handshakes)

    assert asyncio.run(outcome()) == 0


@pytest.mark.parametrize("new_loop", LOOPS)
def test_stalled_tls_handshakes_do_not_keep_a_node_out(
    new_loop: Callable[[], asyncio.AbstractEventLoop], authority: Authority
) -> None:
    pair = authority.issue("crowded")

    async def outcome() -> int:
        met: list[int] = []
        zero = tcp_of(0, lambda it: met.append(it.hello.node_id), tls=certified(authority, pair))
        zero.dial(1, (HOST, 1))
        zero.handshakes = Handshakes(8)
        async with listening(zero) as port:
            crowd = [await asyncio.open_connection(HOST, port) for _ in range(20)]
            await until(lambda: len(zero.handshakes) == 8)
            one = tcp_of(1, tls=certified(authority, pair))
            one.dial(0, (HOST, port))
            await until(lambda: bool(met))
            assert await crowd[0][0].read() == b"", "the oldest made room"
            await one.close()
            for _, writer in crowd:
                writer.close()
        return met[0]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(outcome()) == 1


def test_more_newcomers_than_a_cluster_has_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Without a secret anybody may invent numbers."""

    async def outcome() -> set[int]:
        met: list[int] = []
        tcp = tcp_of(0, lambda it: met.append(it.hello.node_id))
        tcp.dial(1, (HOST, 1))
        async with listening(tcp) as port:
            crowd = [
                asyncio.create_task(knock(port, newcomer(100 + number, None))) for number in range(NEWCOMERS_MAX + 3)
            ]
            await until(lambda: sum(task.done() for task in crowd) == 3)
            member = asyncio.create_task(knock(port, newcomer(1, None)))
            await until(lambda: 1 in met)
            for task in (member, *crowd):
                task.cancel()
        return set(met)

    met = asyncio.run(outcome())

    assert 1 in met
    assert len(met) == NEWCOMERS_MAX + 1
    assert f"{NEWCOMERS_MAX} other unknown nodes are connected" in caplog.text


def test_flood_of_refusals_is_a_few_lines_of_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def flood() -> PeerTcp:
        tcp = tcp_of(0)
        async with listening(tcp) as port:
            for number in range(200):
                other = hello_of(1 + number % 7, number.to_bytes(16, "big"))
                session = PeerSession(other, None, b"", dials=True, seals=False)
                _reader, writer = await asyncio.open_connection(HOST, port)
                writer.write(session.take_unsent())
                await writer.drain()
                writer.close()
            await until(lambda: not tcp.doors)
        return tcp

    asyncio.run(flood())

    assert 1 <= len(caplog.records) < 20


def test_flood_of_nodes_that_come_and_go_is_a_few_lines_of_log(caplog: pytest.LogCaptureFixture) -> None:
    """Of one that is a member by its number as well: without a secret anybody may say that."""
    caplog.set_level(logging.INFO)

    async def flood() -> None:
        met: list[int] = []
        tcp = tcp_of(0, lambda it: met.append(it.hello.node_id))
        tcp.dial(1, (HOST, 1))
        async with listening(tcp) as port:
            for number in range(100):
                _reader, writer = await asyncio.open_connection(HOST, port)
                writer.write(newcomer(1 + number % 2, None).take_unsent())
                await until(lambda: len(met) == number + 1)  # noqa: B023 - it is over before the number changes
                writer.close()
                await until(lambda: not tcp.doors)

    asyncio.run(flood())

    assert 1 <= len(caplog.records) < 20


def test_peer_that_is_refused_later_is_closed_and_named(caplog: pytest.LogCaptureFixture) -> None:
    async def outcome() -> bool:
        doors: list[PeerTcpDoor] = []
        tcp = tcp_of(0, lambda it: doors.append(it.door))  # type: ignore[arg-type]
        async with listening(tcp) as port:
            knocking = asyncio.create_task(knock(port, newcomer(1, None)))
            await until(lambda: bool(doors))
            doors[0].refuse("it is in term 7000000")
            await knocking
            await until(lambda: not tcp.doors)
        return True

    assert asyncio.run(outcome())
    assert "is refused: it is in term 7000000" in caplog.text
