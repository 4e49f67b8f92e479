"""Tokens, from their creation to their revocation, as operators make them and clients use them at every door."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from msgspec.structs import replace

from tests.e2e.conftest import StartBroker
from tests.helpers.clients.lines import LineConversation
from tests.helpers.programs.started import eventually
from tests.helpers.programs.verbs import wakeq
from wakeq import AsyncClient, AsyncTaskFluxClient, Client, TaskFluxClient, Worker
from wakeq.client.bulk import BulkClient, Columns
from wakeq.protocol.access import Right
from wakeq.protocol.errors import BadField, Disconnected, Forbidden, Unauthorized
from wakeq.protocol.wire.worker.blocks import pack
from wakeq.protocol.wire.worker.codec import Followup
from wakeq.storage.credentials import TokenFile

RELOAD_S_MAX = 5.0


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
        """Reduce a token to these rights."""
        TokenFile(self.data_dir / "tokens.json").change(
            lambda grants: [replace(grant, rights=rights) if grant.name == name else grant for grant in grants]
        )

    def client(self, token: str | None, reconnect_for_s: float = 0.0) -> Client:
        return Client(self.broker.address, token=token, reconnect_for_s=reconnect_for_s)

    def until_taken(self, token: str) -> Client:
        """The broker looks for new tokens twice a second."""
        found: list[Client] = []

        def is_taken() -> bool:
            with suppress(Unauthorized):
                found.append(self.client(token))
            return bool(found)

        eventually(is_taken, "the new token is taken", RELOAD_S_MAX)
        return found[0]


@pytest.fixture
def guarded(start_broker: StartBroker, tmp_path: Path) -> Iterator[Guarded]:
    """Return one whose log is searched at the end for every token that was made."""
    made = Guarded(start_broker, tmp_path / "guarded")
    yield made
    said = made.broker.stderr
    assert not [secret for secret in made.secrets if secret in said], said
    on_disk = b"".join(path.read_bytes() for path in made.data_dir.rglob("*") if path.is_file())
    assert not [secret for secret in made.secrets if secret.encode() in on_disk]


def test_token_opens_what_it_names_until_it_is_revoked(guarded: Guarded) -> None:
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


def test_token_is_exchanged_without_stopping_the_worker(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(guarded.token("one"))
    publisher = guarded.until_taken(guarded.token("publisher", "--rights", "publish"))
    monkeypatch.setenv("WAKEQ_TOKEN_FILE", str(file))
    done: list[int] = []
    worker = Worker(guarded.broker.address)

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
def test_waiting_connections_end_when_their_token_loses_its_rights(guarded: Guarded, how: str) -> None:
    """A waiting fetch, a MoniQue connection and the dashboard's events are never asked for their token again."""
    token = guarded.token("all", "--rights", "publish,fetch,admin")
    guarded.until_taken(token).close()
    http = f"http://{guarded.broker.addresses['http']}"

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


def test_token_is_required_at_every_door(guarded: Guarded) -> None:
    token = guarded.token("all", "--rights", "publish,fetch,admin")
    guarded.until_taken(token).close()
    http = f"http://{guarded.broker.addresses['http']}"
    taskflux = guarded.broker.addresses["taskflux"]

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
        async with AsyncClient(guarded.broker.address, token=token) as client:
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
        with pytest.raises(Forbidden, match="no right to fetch"), flux.dequeue("q"):
            pass
        with pytest.raises(Forbidden, match="no right to publish"):
            flux.enqueue("r", "z")


def test_token_of_one_team_publishes_nothing_into_the_queue_of_another(guarded: Guarded, tmp_path: Path) -> None:
    """The headers would steer an operator's redrive; every command that publishes is tried."""
    team = guarded.token("team", "--rights", "publish,fetch,admin", "--queues", "a*")
    owner = guarded.token("owner", "--rights", "publish,fetch,admin")
    planted = {"wakeq-origin": "b1", "wakeq-origin-uid": "x"}
    block = Columns(1, ["body", "headers"], pack([("body", [b"x"]), ("headers", [msgspec.msgpack.encode(planted)])]))
    options: dict[str, Any] = {"headers": planted}
    with guarded.until_taken(team) as mallory, BulkClient(guarded.broker.address, token=team) as in_bulk:
        mallory.publish("a1", "x")
        message = mallory.fetch("a1")
        assert message is not None
        followup = Followup(qname="a1.dead", message="x", headers=planted)
        for plant in (
            lambda: mallory.publish("a1.dead", "x", **options),
            lambda: mallory.publish_many("a1.dead", ["x"], **options),
            lambda: message.ack(then=[followup]),
            lambda: in_bulk.publish_block("a1.dead", block),
            lambda: in_bulk.stash("a1.dead", "s", 0, block, keep=60),
        ):
            with pytest.raises(BadField, match=r"wakeq-origin.*admin for 'a1.dead' and 'b1'"):
                plant()
        message.reject("a real one")

    http = f"http://{guarded.broker.addresses['http']}"
    at = {"WAKEQ_BROKER": guarded.broker.address, "WAKEQ_HTTP": http, "WAKEQ_TOKEN": owner}
    with guarded.until_taken(owner) as operator:
        operator.publish("a1.dead", "the operator may", headers=planted)
        said = wakeq("queue", "redrive", "a1.dead", "--yes", **at)
        assert "redriven from queue a1.dead: 1" in said.stdout
        assert "do not send dead letters there: queue b1;" in said.stderr
        lines = wakeq("export", **at).stdout
        operator.purge("a1.dead")
        (tmp_path / "lines").write_text(lines)
        wakeq("import", str(tmp_path / "lines"), **at)
        (letter,) = operator.peek("a1.dead")
        assert letter["headers"] == planted
        said = wakeq("queue", "redrive", "a1.dead", "--anywhere", "--yes", **at)
        assert "redriven from queue a1.dead: 1" in said.stdout
        assert operator.stats("b1")["ready"] == 1


def test_redrive_by_a_client_needs_admin_on_the_target_queue(guarded: Guarded) -> None:
    worker = guarded.token("worker", "--rights", "publish,fetch", "--queues", "a*")
    keeper = guarded.token("keeper", "--rights", "publish,fetch,admin", "--queues", "a*")
    with guarded.until_taken(worker) as client:
        client.publish("a1", "x")
        message = client.fetch("a1")
        assert message is not None
        message.reject("no")
        with pytest.raises(BadField, match=r"for a redrive .* a token with the right to admin for 'a1'"):
            client.redrive("a1.dead")
        assert client.stats("a1.dead")["ready"] == 1
    said = wakeq("queue", "redrive", "a1.dead", "--yes", WAKEQ_BROKER=guarded.broker.address, WAKEQ_TOKEN=worker)
    assert "the right to admin for 'a1'" in said.stderr
    with guarded.until_taken(keeper) as client:
        assert client.redrive("a1.dead").done == 1
        assert client.stats("a1")["ready"] == 1


def test_monique_listener_needs_both_rights_on_all_queues(guarded: Guarded) -> None:
    tokens = [
        None,
        "wrong",
        guarded.token("publisher", "--rights", "publish"),
        guarded.token("listener", "--rights", "fetch"),
        guarded.token("some", "--queues", "q*"),
        guarded.token("all"),
    ]
    guarded.until_taken(guarded.secrets[-1]).close()
    url = f"http://{guarded.broker.addresses['http']}/monique"

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


def test_damaged_token_file_is_ignored_at_a_reload_and_refused_at_a_start(
    guarded: Guarded,
) -> None:
    client = guarded.until_taken(guarded.token("web"))
    file = guarded.data_dir / "tokens.json"
    good = file.read_bytes()

    file.write_bytes(good[:-20])

    eventually(lambda: "the old ones stay valid" in guarded.broker.stderr, "it is in the log", RELOAD_S_MAX)
    client.ping()
    assert guarded.broker.terminate() == 0
    assert guarded.broker.run_to_end() == 78
    assert "tokens.json" in guarded.broker.stderr
    file.write_bytes(good)
    guarded.broker.start()


def test_token_commands_print_and_change_what_they_say(tmp_path: Path) -> None:
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
