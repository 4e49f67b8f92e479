"""Safe defaults and TLS, as operators and clients meet them."""

import asyncio
import signal
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.conftest import Connect, StartBroker
from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.clusters.processes import Cluster
from tests.helpers.network.certificates import Authority
from tests.helpers.programs.started import eventually
from tests.helpers.programs.verbs import wakeq
from wakeq import AsyncClient, AsyncTaskFluxClient, Client, TaskFluxClient
from wakeq.protocol.errors import BrokerUnreachable, NotLeader

RELOAD_S_MAX = 5.0


# --- safe by default ---


def test_broker_on_a_public_address_needs_tokens_and_tls_or_an_explicit_setting(
    tmp_path: Path, start_broker: StartBroker
) -> None:
    naked = BrokerProcess(tmp_path / "data", "--host", "0.0.0.0")
    assert naked.run_to_end() == 78
    assert "auth.required" in naked.stderr
    assert "--insecure" in naked.stderr
    half = BrokerProcess(tmp_path / "data", "--host", "0.0.0.0", "--auth")
    assert half.run_to_end() == 78
    assert "tls.cert_file" in half.stderr

    assert start_broker("--host", "0.0.0.0", "--insecure").running


def test_page_of_another_site_opens_no_connection(broker: BrokerProcess) -> None:
    host = broker.addresses["http"]

    async def statuses() -> list[int]:
        found = []
        async with aiohttp.ClientSession() as session:
            for origin in ("http://evil.example", f"http://{host}"):
                try:
                    ws = await session.ws_connect(f"http://{host}/connect", headers={"Origin": origin})
                    await ws.close()
                    found.append(101)
                except aiohttp.WSServerHandshakeError as refused:
                    found.append(refused.status)
            rebound = {"Origin": "http://evil.example:80", "Host": "evil.example:80"}  # a name that leads here
            async with session.get(f"http://{host}/", headers=rebound) as response:
                found.append(response.status)
        return found

    assert asyncio.run(statuses()) == [403, 101, 403]


# --- TLS ---


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def test_doors_with_tls_speak_nothing_else(start_broker: StartBroker, authority: Authority, connect: Connect) -> None:
    pair = authority.issue("every-door")
    broker = start_broker("--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
    trusted, address = str(authority.ca.cert), broker.address
    taskflux = broker.addresses["taskflux"]

    with Client(address, tls=trusted) as client:
        client.publish("q", "x" * 500_000)
        with TaskFluxClient(taskflux, tls=trusted) as flux:
            assert flux.count("q") == 1
    printed = wakeq("--broker", address, "--tls", trusted, "fetch", "q", "--ack")
    assert printed.stdout.strip() == "x" * 500_000, printed.stderr

    async def by_loop() -> None:
        async with AsyncClient(address, tls=trusted) as client:
            assert await client.publish("q", "y")
        async with AsyncTaskFluxClient(taskflux, tls=trusted) as flux:
            assert await flux.count("q") == 1
        context = ssl.create_default_context(cafile=trusted)
        async with aiohttp.ClientSession() as session:
            ws = await session.ws_connect(f"wss://{broker.addresses['http']}/connect", ssl=context)
            await ws.send_str('{"cmd":"PING"}')
            assert await ws.receive_json() == {"cmd": "pong"}
            await ws.close()

    asyncio.run(by_loop())
    with pytest.raises(BrokerUnreachable, match="no TLS with"):
        Client(address, tls=True)  # whom the system trusts did not sign for it
    plain = connect(broker)
    with pytest.raises(ConnectionError):
        plain.ask("PING")
    assert broker.terminate() == 0


def test_sighup_reloads_certificates_and_settings(
    start_broker: StartBroker, authority: Authority, tmp_path: Path
) -> None:
    config, cert, key = tmp_path / "wakeq.toml", tmp_path / "cert.pem", tmp_path / "key.pem"

    def install(name: str, text: str) -> None:
        pair = authority.issue(name)
        cert.write_bytes(pair.cert.read_bytes())
        key.write_bytes(pair.key.read_bytes())
        config.write_text(f'{text}\n[tls]\ncert_file = "{cert}"\nkey_file = "{key}"\n')

    def shown() -> str:
        context = ssl.create_default_context(cafile=str(authority.ca.cert))
        plain = socket.create_connection(broker.worker_address, timeout=5)
        with plain, context.wrap_socket(plain, server_hostname="localhost") as secured:
            return str(secured.getpeercert()["subject"][0][0][1])  # type: ignore[index]

    def reload(expected: str) -> None:
        count = broker.stderr.count(expected)
        broker.send_signal(signal.SIGHUP)
        eventually(lambda: broker.stderr.count(expected) > count, expected, RELOAD_S_MAX)

    install("before", "connections_max = 100")
    broker = start_broker("--config", str(config))
    with Client(broker.address, tls=str(authority.ca.cert)) as client:
        assert shown() == "before"

        install("after", "connections_max = 1\nmessage_bytes_max = 5")
        reload("reloaded")
        assert "message_bytes_max has changed; the new value takes effect at the next start" in broker.stderr
        with pytest.raises(OSError):  # there is one connection already
            shown()
        install("again", "connections_max = 100")
        reload("reloaded")
        assert shown() == "again"

        config.write_text("conections_max = 1")
        reload("did you mean connections_max?")
        assert shown() == "again"
        client.ping()


def test_nodes_admit_only_peers_signed_by_their_authority(tmp_path: Path, authority: Authority) -> None:
    pair, own = authority.issue("node"), tmp_path / "cluster"
    files = (f"tls.cert_file={pair.cert}", f"tls.key_file={pair.key}", f"tls.peer_ca_file={authority.ca.cert}")
    flags = [part for file in files for part in ("--set", file)]
    other = Authority(tmp_path / "other", "another authority").issue("node")

    cluster = Cluster(own, 3, *flags)
    try:
        for node in cluster.nodes:
            node.launch()
        for node in cluster.nodes:
            node.wait_ready()
        everywhere = ",".join(node.address for node in cluster.nodes)
        trusted = str(authority.ca.cert)
        eventually(lambda: _publishes(everywhere, trusted), "the nodes have let each other in, and one leads")
        host, _, port = cluster.peer_addresses[0].rpartition(":")
        assert _said_by_peer(None, host, int(port)) == b"", "it says who it is to anybody"
        for cert in (None, other):
            context = ssl.create_default_context(cafile=trusted)
            if cert is not None:
                context.load_cert_chain(*cert)
            assert _said_by_peer(context, host, int(port)) == b""
        context = ssl.create_default_context(cafile=trusted)
        context.load_cert_chain(*pair)
        assert _said_by_peer(context, host, int(port))

        cluster.add().start()  # it asks the others which cluster they are before it is ready
    finally:
        cluster.close()


def _publishes(addresses: str, trusted: str) -> bool:
    with suppress(BrokerUnreachable, NotLeader), Client(addresses, tls=trusted) as client:
        return bool(client.publish("q", "over three nodes"))
    return False


def _said_by_peer(context: ssl.SSLContext | None, host: str, port: int) -> bytes:
    """Return the first bytes of a node; none if it closes the connection."""
    with suppress(OSError), socket.create_connection((host, port), timeout=10) as plain:
        if context is None:
            plain.sendall(b"x" * 100)
            said = plain.recv(1000)
            return said if said[:1] != b"\x15" else b""  # an alert of TLS tells nobody anything
        with context.wrap_socket(plain, server_hostname=host) as secured:
            return secured.recv(1000)
    return b""
