"""Tokens, TLS and what is safe by default, as an operator and his clients meet them."""

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from msgspec.structs import replace

from tests.e2e.conftest import Connect, StartBroker
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.certificates import Authority
from tests.helpers.cluster import Cluster
from tests.helpers.line_client import LineConversation
from tests.helpers.started import eventually
from wakeq import AsyncClient, AsyncTaskFluxClient, Client, TaskFluxClient, Worker
from wakeq.protocol.access import Right
from wakeq.protocol.errors import BrokerUnreachable, Disconnected, Forbidden, NotLeader, Refused, Unauthorized
from wakeq.storage.tokens import TokenFile

RELOAD_S_MAX = 5.0


def wakeq(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a verb as a user does, with nothing of ours in its environment."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WAKEQ_")}
    command = [sys.executable, "-m", "wakeq", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env=clean | environment)


class Guarded:
    """A broker that asks for tokens, and a way to make them."""

    def __init__(self, start: StartBroker, data_dir: Path, *flags: str) -> None:
        self.data_dir = data_dir
        self.secrets: list[str] = []
        self.broker = start("--auth", *flags, data_dir=data_dir)

    def token(self, name: str, *flags: str) -> str:
        made = wakeq("token", "create", name, "--data-dir", str(self.data_dir), *flags)
        assert made.returncode == 0, made.stderr
        self.secrets.append(made.stdout.strip())
        return self.secrets[-1]

    def revoke(self, name: str) -> None:
        assert wakeq("token", "revoke", name, "--yes", "--data-dir", str(self.data_dir)).returncode == 0

    def narrow(self, name: str, *rights: Right) -> None:
        """Leave a token nothing but these."""
        TokenFile(self.data_dir / "tokens.json").change(
            lambda grants: [replace(grant, rights=rights) if grant.name == name else grant for grant in grants]
        )

    def client(self, token: str | None, reconnect_for_s: float = 0.0) -> Client:
        return Client(address_of(self.broker), token=token, reconnect_for_s=reconnect_for_s)

    def until_taken(self, token: str) -> Client:
        """The broker looks for new tokens twice a second."""
        found: list[Client] = []

        def is_taken() -> bool:
            with suppress(Unauthorized):
                found.append(self.client(token))
            return bool(found)

        eventually(is_taken, "the new token is taken", RELOAD_S_MAX)
        return found[0]


def address_of(broker: BrokerProcess) -> str:
    return "{}:{}".format(*broker.worker_address)


@pytest.fixture
def guarded(start_broker: StartBroker, tmp_path: Path) -> Iterator[Guarded]:
    """Return one whose log is searched at the end for every token that was made."""
    made = Guarded(start_broker, tmp_path / "guarded")
    yield made
    said = made.broker.stderr
    assert not [secret for secret in made.secrets if secret in said], said
    on_disk = b"".join(path.read_bytes() for path in made.data_dir.rglob("*") if path.is_file())
    assert not [secret for secret in made.secrets if secret.encode() in on_disk]


# --- safe by default ---


def test_a_broker_that_others_reach_wants_tokens_and_tls_or_a_word(tmp_path: Path, start_broker: StartBroker) -> None:
    naked = BrokerProcess(tmp_path / "data", "--host", "0.0.0.0")
    assert naked.run_to_end() == 78
    assert "auth.required" in naked.stderr
    assert "--insecure" in naked.stderr
    half = BrokerProcess(tmp_path / "data", "--host", "0.0.0.0", "--auth")
    assert half.run_to_end() == 78
    assert "tls.cert_file" in half.stderr

    assert start_broker("--host", "0.0.0.0", "--insecure").running


def test_a_page_of_another_site_can_open_nothing(broker: BrokerProcess) -> None:
    host = "{}:{}".format(*broker.http_address)

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


# --- tokens ---


def test_the_life_of_a_token(guarded: Guarded) -> None:
    with pytest.raises(Unauthorized):
        guarded.client(None)
    with guarded.until_taken(guarded.token("web", "--queues", "emails*")) as client:
        assert client.publish("emails", "hi")
        assert client.publish("emails.urgent", "hi")
        with pytest.raises(Forbidden):
            client.publish("secrets", "hi")
        with pytest.raises(Forbidden):
            client.purge("emails")
        with pytest.raises(Forbidden):
            client.queues()

        guarded.revoke("web")

        def is_out() -> bool:
            try:
                client.ping()
            except (Disconnected, Unauthorized):
                return True
            return False

        eventually(is_out, "who has a revoked token is disconnected", RELOAD_S_MAX)
    with pytest.raises(Unauthorized):
        guarded.client(guarded.secrets[-1])


def test_a_token_is_exchanged_while_a_worker_goes_on(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(guarded.token("one"))
    publisher = guarded.until_taken(guarded.token("publisher", "--rights", "publish"))
    monkeypatch.setenv("WAKEQ_TOKEN_FILE", str(file))
    done: list[int] = []
    worker = Worker(address_of(guarded.broker))

    @worker.task("jobs")
    def work(number: int) -> None:
        done.append(number)

    with worker:
        publisher.publish("jobs", {"number": 1})
        eventually(lambda: done == [1], "it works")

        file.write_text(guarded.token("two"))
        guarded.revoke("one")
        eventually(lambda: _is_refused(guarded, guarded.secrets[0]), "the first token is worth nothing")
        publisher.publish("jobs", {"number": 2})

        eventually(lambda: done == [1, 2], "it works again, with its new token")


def _is_refused(guarded: Guarded, token: str) -> bool:
    try:
        guarded.client(token).close()
    except Unauthorized:
        return True
    return False


@pytest.mark.parametrize("how", ["revoked", "good for less"])
def test_what_is_under_way_ends_when_its_token_is_good_for_less(guarded: Guarded, how: str) -> None:
    """A fetch that waits, messages of MoniQue, what the dashboard watches: none is asked for its token again."""
    token = guarded.token("all", "--rights", "publish,fetch,admin")
    guarded.until_taken(token).close()
    http = "http://{}:{}".format(*guarded.broker.http_address)

    def change() -> None:
        guarded.revoke("all") if how == "revoked" else guarded.narrow("all", Right.FETCH, Right.ADMIN)

    async def closed(socket: aiohttp.ClientWebSocketResponse) -> str:
        message = await socket.receive()
        assert message.type is aiohttp.WSMsgType.CLOSE
        return str(message.extra)

    async def under_way() -> list[str]:
        worker = await LineConversation.connect(guarded.broker.worker_address)
        await worker.send({"cmd": "HELLO", "token": token})
        await worker.receive()
        await worker.send({"cmd": "FET", "qname": "jobs", "wait": 60})
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
            sockets = [await session.ws_connect(http + path) for path in ("/monique", "/connect")]
            async with session.get(f"{http}/api/v1/events") as events:
                await events.content.readline()

                await asyncio.to_thread(change)

                async with asyncio.timeout(RELOAD_S_MAX):
                    with pytest.raises(ConnectionError):
                        await worker.receive()
                    with pytest.raises(aiohttp.ClientError):
                        await events.read()
                    return [await closed(socket) for socket in sockets]

    assert all(how in reason for reason in asyncio.run(under_way()))


def test_every_door_asks(guarded: Guarded) -> None:
    token = guarded.token("all", "--rights", "publish,fetch,admin")
    guarded.until_taken(token).close()
    http = "http://{}:{}".format(*guarded.broker.http_address)
    taskflux = "{}:{}".format(*guarded.broker.taskflux_address)

    async def through_http() -> None:
        bearer = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession() as session:
            for headers, status in (({}, 401), ({"Authorization": "Bearer wrong"}, 401), (bearer, 404)):
                async with session.get(f"{http}/nothing-here", headers=headers) as response:
                    assert response.status == status
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(f"{http}/connect", headers={"Authorization": "Bearer wrong"})
            assert refused.value.status == 401
            ws = await session.ws_connect(f"{http}/connect", headers=bearer)
            await ws.send_str('{"cmd":"PUB","qname":"q","message":"x"}')
            assert (await ws.receive_json())["cmd"] == "ok"
            ws = await session.ws_connect(f"{http}/connect")
            await ws.send_str('{"cmd":"PUB","qname":"q","message":"x"}')
            assert (await ws.receive_json())["err"] == "UNAUTHORIZED"
            assert (await ws.receive()).type is aiohttp.WSMsgType.CLOSE
        async with AsyncClient(address_of(guarded.broker), token=token) as client:
            assert await client.publish("q", "y")
        async with AsyncTaskFluxClient(taskflux, token=token) as flux:
            assert await flux.count("q") == 2

    asyncio.run(through_http())
    with pytest.raises(Unauthorized):
        TaskFluxClient(taskflux)
    with pytest.raises(Unauthorized):
        TaskFluxClient(taskflux, token="wrong")
    with TaskFluxClient(taskflux, token=token) as flux:
        flux.enqueue("q", "z")
    publisher = guarded.token("publisher", "--rights", "publish", "--queues", "q")
    guarded.until_taken(publisher).close()
    with TaskFluxClient(taskflux, token=publisher) as flux:
        flux.enqueue("q", "z")
        with pytest.raises(Refused, match="FORBIDDEN"), flux.dequeue("q"):
            pass
        with pytest.raises(Refused, match="FORBIDDEN"):
            flux.enqueue("r", "z")


def test_who_hears_everything_of_monique_needs_both_rights_for_all_queues(guarded: Guarded) -> None:
    tokens = [
        None,
        "wrong",
        guarded.token("publisher", "--rights", "publish"),
        guarded.token("listener", "--rights", "fetch"),
        guarded.token("some", "--queues", "q*"),
        guarded.token("all"),
    ]
    guarded.until_taken(guarded.secrets[-1]).close()
    url = "http://{}:{}/monique".format(*guarded.broker.http_address)

    async def statuses() -> list[int]:
        found = []
        async with aiohttp.ClientSession() as session:
            for token in tokens:
                headers = {} if token is None else {"Authorization": f"Bearer {token}"}
                try:
                    await (await session.ws_connect(url, headers=headers)).close()
                    found.append(101)
                except aiohttp.WSServerHandshakeError as refused:
                    found.append(refused.status)
        return found

    assert asyncio.run(statuses()) == [401, 401, 403, 403, 403, 101]


def test_a_damaged_file_of_tokens_changes_nothing_while_the_broker_runs_and_keeps_it_from_starting(
    guarded: Guarded,
) -> None:
    client = guarded.until_taken(guarded.token("web"))
    file = guarded.data_dir / "tokens.json"
    good = file.read_bytes()

    file.write_bytes(good[:-20])

    eventually(lambda: "the tokens stay as they were" in guarded.broker.stderr, "it is in the log", RELOAD_S_MAX)
    client.ping()
    assert guarded.broker.terminate() == 0
    assert guarded.broker.run_to_end() == 78
    assert "tokens.json" in guarded.broker.stderr
    file.write_bytes(good)
    guarded.broker.start()


def test_the_verbs_of_tokens(tmp_path: Path) -> None:
    where = ("--data-dir", str(tmp_path / "new"))
    made = wakeq(
        "token", "create", "a", "--queues", "x", "--queues", "y*", "--rights", "fetch", "--expires", "30d", *where
    )
    assert made.returncode == 0
    assert made.stdout.startswith("wakeq_")
    assert "--auth" in made.stderr
    assert wakeq("token", "create", "a", *where).returncode == 1

    (row,) = json.loads(wakeq("token", "list", "--json", *where).stdout)["tokens"]

    assert (row["name"], row["queues"], row["rights"], row["valid"]) == ("a", ["x", "y*"], ["fetch"], True)
    assert made.stdout.strip() not in wakeq("token", "list", *where).stdout
    assert wakeq("token", "revoke", "a", *where).returncode == 2  # nobody is there to be asked
    assert wakeq("token", "revoke", "a", "--yes", *where).returncode == 0
    assert wakeq("token", "revoke", "a", "--yes", *where).returncode == 1
    for wrong in (("--rights", "fly"), ("--queues", "a*b"), ("--expires", "soon"), ("--expires", "2001-01-01")):
        refused = wakeq("token", "create", "b", *wrong, *where)
        assert refused.returncode == 1
        assert refused.stderr.count("\n") == 1


# --- TLS ---


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def test_every_door_speaks_tls_and_nothing_else(
    start_broker: StartBroker, authority: Authority, connect: Connect
) -> None:
    pair = authority.issue("every-door")
    broker = start_broker("--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
    trusted, address = str(authority.ca.cert), address_of(broker)
    taskflux = "{}:{}".format(*broker.taskflux_address)

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
            ws = await session.ws_connect("wss://{}:{}/connect".format(*broker.http_address), ssl=context)
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


def test_sighup_reads_certificates_and_settings_again(
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
    with Client(address_of(broker), tls=str(authority.ca.cert)) as client:
        assert shown() == "before"

        install("after", "connections_max = 1\nmessage_bytes_max = 5")
        reload("read again")
        assert "message_bytes_max has changed, and is taken at the next start" in broker.stderr
        with pytest.raises(OSError):  # there is one connection already
            shown()
        install("again", "connections_max = 100")
        reload("read again")
        assert shown() == "again"

        config.write_text("conections_max = 1")
        reload("did you mean connections_max?")
        assert shown() == "again"
        client.ping()


@pytest.mark.long
def test_nodes_let_only_those_in_whom_their_authority_has_signed_for(tmp_path: Path, authority: Authority) -> None:
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
        everywhere = ",".join(map(address_of, cluster.nodes))
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
    """What a node says first; nothing if it does not want to speak with us."""
    with suppress(OSError), socket.create_connection((host, port), timeout=10) as plain:
        if context is None:
            plain.sendall(b"x" * 100)
            said = plain.recv(1000)
            return said if said[:1] != b"\x15" else b""  # an alert of TLS tells nobody anything
        with context.wrap_socket(plain, server_hostname=host) as secured:
            return secured.recv(1000)
    return b""


# --- systemd ---


def test_systemd_hears_when_it_is_ready_reloads_lives_and_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        hear: Callable[[], str] = lambda: manager.recv(4096).decode()  # noqa: E731
        with BrokerProcess(tmp_path / "data") as broker:
            assert hear().startswith("READY=1\nSTATUS=worker=127.0.0.1:")
            assert hear() == "WATCHDOG=1"
            assert hear() == "WATCHDOG=1"
            broker.send_signal(signal.SIGHUP)
            said = [hear() for _ in range(6)]
            reloading = next(
                place for place, text in enumerate(said) if text.startswith("RELOADING=1\nMONOTONIC_USEC=")
            )
            assert "READY=1" in said[reloading:]
            assert broker.terminate() == 0
            rest = []
            while "STOPPING=1" not in rest:
                rest.append(hear())
