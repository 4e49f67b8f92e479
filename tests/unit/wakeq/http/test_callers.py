"""Callers: tokens at the HTTP API, queue by queue: open paths, required rights, hidden queues."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.helpers.brokers.node_here import NodeHere, node_here, run
from wakeq.actors.mail import Propose
from wakeq.config.settings import Auth
from wakeq.protocol.access import Grant, Right, digest_of
from wakeq.protocol.log.entries import Draft, Publish
from wakeq.protocol.queue.dead_letters import ORIGIN_UID
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.redrive import ORIGIN
from wakeq.storage.credentials import TokenFile

LETTER = msgspec.msgpack.encode({ORIGIN: "other", ORIGIN_UID: "u"})
TEAM, WORKER, SCRAPER, OWNER = "team-secret", "worker-secret", "scraper-secret", "owner-secret"
PUBLISHER = "publisher-secret"
GRANTS = {
    TEAM: (("team.*",), (Right.ADMIN,)),
    WORKER: (("team.a",), (Right.FETCH, Right.PUBLISH)),
    SCRAPER: (("*",), (Right.FETCH,)),
    OWNER: (("*",), (Right.ADMIN,)),
    PUBLISHER: (("*",), (Right.PUBLISH,)),
}
ANYBODY, READERS, ADMINS = {PUBLISHER, SCRAPER, OWNER}, {SCRAPER, OWNER}, {OWNER}
QUEUE = {"queue": "team.a"}
# Which of these three tokens may use each path with these parameters; a path that is missing fails the test.
ALLOWED = {
    ("GET", "/queues"): (ANYBODY, {}, None),
    ("POST", "/queues"): (ADMINS, {}, {"queue": "made"}),
    ("GET", "/queue"): (ANYBODY, QUEUE, None),
    ("PATCH", "/queue"): (ADMINS, QUEUE, {"policies": {}}),
    ("DELETE", "/queue"): (ADMINS, {"queue": "nowhere"}, None),
    ("POST", "/queue/pause"): (ADMINS, QUEUE, {}),
    ("POST", "/queue/resume"): (ADMINS, QUEUE, {}),
    ("GET", "/messages"): (READERS, QUEUE, None),
    ("GET", "/message"): (READERS, QUEUE | {"uid": "u"}, None),
    ("GET", "/messages/history"): (READERS, QUEUE | {"uid": "u"}, None),
    ("POST", "/messages"): ({PUBLISHER}, {}, {"queue": "team.a", "body": "1"}),
    ("GET", "/messages/why"): (READERS, QUEUE | {"uid": "u"}, None),
    ("POST", "/messages/move"): (ADMINS, QUEUE, {"to": "made"}),
    ("POST", "/messages/purge"): (ADMINS, QUEUE, {}),
    ("POST", "/messages/requeue"): (ADMINS, QUEUE, {}),
    ("POST", "/messages/redrive"): (ADMINS, QUEUE, {}),
    ("GET", "/leases"): (READERS, QUEUE, None),
    ("GET", "/claims"): (READERS, QUEUE, None),
    ("POST", "/leases/release"): (ADMINS, QUEUE, {"uids": ["u"]}),
    ("GET", "/node"): (ANYBODY, {}, None),
    ("GET", "/cluster"): (ANYBODY, {}, None),
    ("POST", "/cluster"): (ADMINS, {}, {"do": "snapshot"}),
    ("GET", "/connections"): (ADMINS, {}, None),
    ("GET", "/workers"): (ADMINS, {}, None),
    ("DELETE", "/connection"): (ADMINS, {"id": "999"}, None),
    ("GET", "/events"): (ANYBODY, {}, None),
    ("GET", "/series"): (ANYBODY, {}, None),
    ("GET", "/backup"): (ADMINS, {}, None),
    ("GET", "/journal"): (READERS, {}, None),
    ("GET", "/journal/segment"): (READERS, {"first_index": "1"}, None),
    ("GET", "/journal/outcomes"): (READERS, {"first_index": "1"}, None),
}


class Asked:
    """A node that requires tokens, and its answers to each of them."""

    def __init__(self, here: NodeHere) -> None:
        self.here = here

    async def ask(self, secret: str | None, method: str, path: str, body: Any = None, **query: Any) -> int:
        """Send a request; return the status."""
        return (await self.answer(secret, method, "/api/v1" + path, body, **query))[0]

    async def answer(self, secret: str | None, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Send a request; return status and text.  A query with repeated names is passed as `params`."""
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        json = (body or {}) if method in ("POST", "PATCH") else None
        async with self.here.session.request(
            method, self.here.http + path, headers=headers, params=query.get("params", query), json=json
        ) as response:
            return response.status, await response.text()


def on_node(tmp_path: Path, story: Callable[[Asked], Awaitable[Any]]) -> Any:
    async def tell() -> Any:
        tokens = tmp_path / "tokens.json"
        for secret, (queues, rights) in GRANTS.items():
            grant = Grant(secret.partition("-")[0], digest_of(secret).hex(), queues, rights, datetime.now(UTC))
            TokenFile(tokens).change(lambda grants, grant=grant: (*grants, grant))
        async with node_here(tmp_path / "data", auth=Auth(required=True, tokens_file=tokens)) as here:
            drafts = {"team.a": Draft(b"1"), "team.a.dead": Draft(b"2", headers=LETTER), "other": Draft(b"3")}
            for name, draft in drafts.items():
                here.node.raft_log.tell(Propose([Proposal(Publish(name, [draft]), None)]))
            async with asyncio.timeout(10):
                while not all(map(here.node.queues.exists, drafts)):
                    await asyncio.sleep(0)
            return await story(Asked(here))

    return run(tell())


def test_request_without_a_token_reaches_only_probes_and_static_pages(tmp_path: Path) -> None:
    async def story(node: Asked) -> Any:
        opened = [
            (await node.answer(None, "GET", path))[0] for path in ("/livez", "/readyz", "/", "/dashboard/main.js")
        ]
        closed = [
            (await node.answer(None, "GET", path))[0] for path in ("/metrics", "/api/v1/queues", "/api/v1/backup")
        ]
        wrong = await node.answer("no such token", "GET", "/api/v1/queues")
        return opened, closed, wrong

    opened, closed, (status, text) = on_node(tmp_path, story)

    assert (opened, closed, status) == ([200] * 4, [401] * 3, 401)
    assert "no such token" not in text


def test_path_requires_its_own_right(tmp_path: Path) -> None:
    async def status(node: Asked, secret: str | None, method: str, path: str, query: Any, body: Any) -> int:
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        url = node.here.http + "/api/v1" + path
        async with node.here.session.request(method, url, headers=headers, params=query, json=body) as response:
            # The body is not read: some streams never end.
            return response.status

    async def story(node: Asked) -> Any:
        document = msgspec.json.decode((await node.answer(None, "GET", "/api/v1/openapi.json"))[1])
        described = {
            (method.upper(), path.removeprefix("/api/v1"))
            for path, methods in document["paths"].items()
            for method in methods
        }
        strangers = {await status(node, None, *key, *asked) for key, (_, *asked) in ALLOWED.items()}
        allowed = {
            key: {who for who in ANYBODY if await status(node, who, *key, *asked) not in (401, 403)}
            for key, (_, *asked) in ALLOWED.items()
        }
        return described, strangers, allowed

    described, strangers, allowed = on_node(tmp_path, story)

    assert described == set(ALLOWED)
    assert strangers == {401}
    assert allowed == {key: who for key, (who, *_) in ALLOWED.items()}


def test_token_sees_and_changes_only_its_own_queues(tmp_path: Path) -> None:
    async def story(node: Asked) -> Any:
        _, listed = await node.answer(TEAM, "GET", "/api/v1/queues")
        names = [queue["qname"] for queue in msgspec.json.decode(listed)["queues"]]
        mine = [
            await node.ask(TEAM, "POST", "/queue/pause", queue="team.a"),
            await node.ask(TEAM, "POST", "/queues", {"queue": "team.new"}),
            await node.ask(TEAM, "POST", "/messages/move", {"to": "team.b"}, queue="team.a"),
            await node.ask(WORKER, "GET", "/messages", queue="team.a"),
        ]
        not_mine = [
            await node.ask(TEAM, "POST", "/queue/pause", queue="other"),
            await node.ask(TEAM, "POST", "/queues", {"queue": "another"}),
            await node.ask(TEAM, "POST", "/messages/move", {"to": "other"}, queue="team.b"),
            await node.ask(TEAM, "POST", "/messages/move", {"to": "team.a"}, queue="other"),
            await node.ask(TEAM, "GET", "/messages", queue="other"),
            await node.ask(TEAM, "GET", "/connections"),
            await node.ask(TEAM, "GET", "/node"),
            await node.ask(TEAM, "GET", "/backup"),
            await node.ask(WORKER, "POST", "/queue/pause", queue="team.a"),
            await node.ask(WORKER, "POST", "/messages/purge", queue="team.a"),
        ]
        return names, mine, not_mine

    names, mine, not_mine = on_node(tmp_path, story)

    assert names == ["team.a", "team.a.dead"]
    assert (mine, not_mine) == ([200] * 4, [403] * 10)


def test_why_shows_a_dead_letter_only_to_a_token_that_may_read_it(tmp_path: Path) -> None:
    """The error of a dead letter may reveal the content of its message."""

    async def story(node: Asked) -> Any:
        headers = msgspec.msgpack.encode({ORIGIN: "team.a", ORIGIN_UID: "gone"})
        node.here.node.raft_log.tell(Propose([Proposal(Publish("team.a.dead", [Draft(b"4", headers=headers)]), None)]))
        async with asyncio.timeout(10):
            while '"size":2' not in (await node.answer(OWNER, "GET", "/api/v1/queue", queue="team.a.dead"))[1]:
                await asyncio.sleep(0)
        codes = {}
        for secret in (WORKER, TEAM, SCRAPER):
            _, text = await node.answer(secret, "GET", "/api/v1/messages/why", queue="team.a", uid="gone")
            codes[secret] = msgspec.json.decode(text)["causes"][0]["code"]
        return codes

    assert on_node(tmp_path, story) == {WORKER: "no_uid", TEAM: "dead", SCRAPER: "dead"}


def test_redrive_to_a_queue_without_permission_is_refused(tmp_path: Path) -> None:
    async def story(node: Asked) -> Any:
        refused = await node.ask(TEAM, "POST", "/messages/redrive", queue="team.a.dead")
        return refused, await node.ask(OWNER, "POST", "/messages/redrive", queue="team.a.dead")

    assert on_node(tmp_path, story) == (403, 200)


def test_dead_letter_policy_grants_no_right_to_its_queue(tmp_path: Path) -> None:
    async def story(node: Asked) -> Any:
        asked = []
        for target in ("other", "team.letters"):
            body = {"policies": {"dead_letter": target, "max_deliveries": 1}}
            asked.append(await node.ask(TEAM, "POST", "/queues", body | {"queue": f"team.to-{target}"}))
            asked.append(await node.ask(TEAM, "PATCH", "/queue", body, queue="team.a"))
        return asked, await node.ask(TEAM, "PATCH", "/queue", {"policies": {"dead_letter": None}}, queue="team.a")

    assert on_node(tmp_path, story) == ([403, 403, 200, 200], 200)


@pytest.mark.parametrize("query", [{}, {"prefix": "o"}, {"after": "a"}], ids=str)
def test_queue_list_never_names_a_foreign_queue(tmp_path: Path, query: dict[str, str]) -> None:
    """The position of the next page must not reveal a name either."""

    async def story(node: Asked) -> Any:
        pages, after = [], query
        while True:
            _, text = await node.answer(TEAM, "GET", "/api/v1/queues", params={"limit": "1"} | query | after)
            page = msgspec.json.decode(text)
            pages.append(([row["qname"] for row in page["queues"]], page["after"]))
            if page["after"] is None:
                return pages
            after = {"after": page["after"]}

    whole = [(["team.a"], "team.a"), (["team.a.dead"], "team.a.dead"), ([], None)]
    assert on_node(tmp_path, story) == ([([], None)] if "prefix" in query else whole)


def test_metrics_need_a_right_on_all_queues_and_disconnecting_needs_admin(tmp_path: Path) -> None:
    async def story(node: Asked) -> Any:
        scraped = [(await node.answer(secret, "GET", "/metrics"))[0] for secret in (SCRAPER, TEAM, OWNER)]
        return scraped, [await node.ask(secret, "DELETE", "/connection", id=999) for secret in (SCRAPER, OWNER)]

    assert on_node(tmp_path, story) == ([200, 403, 200], [403, 404])


def test_event_stream_shows_permitted_queues_and_the_node_only_with_all_rights(tmp_path: Path) -> None:
    async def watched(node: Asked, secret: str) -> Any:
        headers = {"Authorization": f"Bearer {secret}"}
        async with node.here.session.get(node.here.http + "/api/v1/events", headers=headers) as response:
            return msgspec.json.decode((await response.content.readline()).removeprefix(b"data: "))

    async def story(node: Asked) -> Any:
        return await watched(node, TEAM), await watched(node, SCRAPER)

    team, everywhere = on_node(tmp_path, story)

    assert {queue["name"] for queue in team["queues"]} == {"team.a", "team.a.dead"}
    assert (team["queues_total"], team["totals"]["ready"]) == (2, 2)
    assert (team["figures"], team["cluster"]) == ({}, {})
    assert {"team.a", "other", ""} <= {queue["name"] for queue in everywhere["queues"]}
    assert everywhere["cluster"]["role"] == "leader"
    assert everywhere["figures"]


def test_queue_parameter_given_twice_is_refused(tmp_path: Path) -> None:
    """Otherwise the right could be checked on one queue and the operation applied to the other."""

    async def story(node: Asked) -> Any:
        names = [("queue", "team.a"), ("queue", "other")]
        return [await node.ask(TEAM, "POST", "/queue/pause", params=order) for order in (names, names[::-1])]

    assert on_node(tmp_path, story) == [400, 403]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Host": "localhost:8080"}, 200),
        ({"Host": "evil.example:80"}, 403),
        ({"Host": "127.0.0.1:x"}, 400),
        ({"Origin": "http://evil.example"}, 403),
        ({"Content-Type": "text/plain"}, 400),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 400),
    ],
    ids=str,
)
def test_cross_site_browser_request_changes_nothing(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    """Without tokens this check alone protects the queues from that page."""

    async def story() -> int:
        async with node_here(tmp_path / "data") as here:
            url = here.http + "/api/v1/queue/resume?queue="
            given = {"Content-Type": "application/json"} | headers
            async with here.session.post(url, data=b"{}", headers=given) as response:
                return response.status

    assert run(story()) == status
