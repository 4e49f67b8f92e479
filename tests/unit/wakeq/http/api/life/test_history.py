"""The HTTP API: one message, and the life of one, finished or not."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.brokers.node_here import NodeHere, client_of, node_here, run
from wakeq.client.aio import AsyncClient
from wakeq.config.settings import Auth
from wakeq.http.api.life import lives
from wakeq.protocol.access import Grant, Right, digest_of
from wakeq.protocol.errors import QueueFull
from wakeq.storage.credentials import TokenFile
from wakeq.storage.log.journal import OutcomeFiles
from wakeq.storage.log.message_life import MessageLife

Story = Callable[[NodeHere, AsyncClient], Awaitable[Any]]


def on_node(tmp_path: Path, story: Story) -> Any:
    async def tell() -> Any:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            return await story(here, client)

    return run(tell())


async def life_of(here: NodeHere, queue: str, uid: str) -> dict[str, Any]:
    status, answer = await here.call("GET", "/messages/history", queue=queue, uid=uid)
    assert status == 200, answer
    found: dict[str, Any] = answer
    return found


def words(answer: dict[str, Any]) -> list[str]:
    return [event["event"] for event in answer["events"]]


def test_life_of_a_finished_message_has_each_event_in_order(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        uid = await client.publish("jobs", '{"to":"ada"}', headers={"tenant": "acme"})
        first = await client.fetch("jobs")
        await first.nack(error="boom", delay=0)
        again = await client.fetch("jobs", wait=10)
        await again.ack()
        return await life_of(here, "jobs", uid)

    answer = on_node(tmp_path, story)

    assert words(answer) == ["published", "delivered", "failed", "delivered", "acknowledged"]
    assert (answer["is_complete"], answer["is_living"]) == (True, False)
    moments = [datetime.fromisoformat(event["at"]) for event in answer["events"]]
    assert moments == sorted(moments)
    assert datetime.fromisoformat(answer["since"]) <= moments[0]
    assert answer["events"][2] | {"at": None} == {
        "at": None, "event": "failed", "worker": None, "reason": "nack", "error": "boom", "queue": None, "due": None,
        "times": 1,
    }  # fmt: skip
    assert all(event["worker"] for place, event in enumerate(answer["events"]) if place != 2)
    assert answer["message"]["headers"] == {"tenant": "acme"}
    assert answer["message"]["readable"]["text"] == '{\n  "to": "ada"\n}'


def test_life_goes_on_in_the_dead_letter_queue_and_ends_with_a_purge(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        await client.create_queue("jobs", max_deliveries=1)
        uid = await client.publish("jobs", "x")
        message = await client.fetch("jobs")
        await message.nack(error="boom")
        _, letters = await here.call("GET", "/messages", queue="jobs.dead", state="all")
        letter = letters["messages"][0]["uid"]
        before = await life_of(here, "jobs.dead", letter)
        await here.call("POST", "/messages/purge", {}, queue="jobs.dead")
        return await life_of(here, "jobs", uid), before, await life_of(here, "jobs.dead", letter)

    origin, before, after = on_node(tmp_path, story)

    assert words(origin) == ["published", "delivered", "dead lettered"]
    assert (origin["events"][-1]["queue"], origin["events"][-1]["error"]) == ("jobs.dead", "boom")
    assert (words(before), before["is_living"]) == (["published"], True)
    assert (before["events"][0]["queue"], before["events"][0]["reason"]) == ("jobs", "dead letter")
    assert (words(after), after["is_living"]) == (["published", "purged"], False)


def test_life_of_a_message_of_a_deleted_queue_is_still_told(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        uid = await client.publish("jobs", "x")
        await here.call("DELETE", "/queue", queue="jobs")
        return await life_of(here, "jobs", uid), (await here.call("GET", "/message", queue="jobs", uid=uid))[0]

    answer, status = on_node(tmp_path, story)

    assert (words(answer), answer["is_complete"], status) == (["published", "deleted with its queue"], True, 404)


@pytest.mark.parametrize("uid", ["nonsense", "0000003_00000009", "zzzzzzz_zzzzzzzz"])
def test_life_of_an_unknown_message_is_empty(tmp_path: Path, uid: str) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        await client.publish("jobs", "x")
        return await life_of(here, "jobs", uid)

    answer = on_node(tmp_path, story)

    assert (answer["events"], answer["is_complete"], answer["message"]) == ([], False, None)


def test_message_has_its_body_as_people_read_it(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        uid = await client.publish("jobs", b"[1]", delay=60)
        gone = await here.call("GET", "/message", queue="jobs", uid="0000003_00000009")
        return uid, (await here.call("GET", "/message", queue="jobs", uid=uid))[1]["message"], gone

    uid, message, gone = on_node(tmp_path, story)

    assert (message["uid"], message["state"], message["body"]) == (uid, "delayed", "[1]")
    assert (message["readable"]["format"], message["readable"]["text"]) == ("json", "[\n  1\n]")
    assert gone == (200, {"message": None})


def test_search_that_takes_too_long_tells_what_it_has_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        uid = await client.publish("jobs", "x")
        monkeypatch.setattr(lives, "SEARCH_S_MAX", 0.0)
        return await life_of(here, "jobs", uid)

    answer = on_node(tmp_path, story)

    assert (answer["events"], answer["is_complete"], answer["is_living"]) == ([], False, True)


def test_search_ends_when_its_caller_has_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[MessageLife] = []
    closed: list[MessageLife] = []
    close = MessageLife.close
    # The search has no end.
    monkeypatch.setattr(MessageLife, "step", lambda self: bool(steps.append(self)))
    monkeypatch.setattr(MessageLife, "close", lambda self: closed.append(self) or close(self))

    async def story(here: NodeHere, client: AsyncClient) -> Any:
        uid = await client.publish("jobs", "x")
        reader, writer = await asyncio.open_connection(*here.http.removeprefix("http://").split(":"))
        path = f"/api/v1/messages/history?queue=jobs&uid={uid}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        while not steps:
            await asyncio.sleep(0)
        writer.transport.abort()
        async with asyncio.timeout(20):
            while not closed:
                await asyncio.sleep(0.01)
        assert not reader.at_eof() or reader.exception() is None
        return closed == steps[:1]

    assert on_node(tmp_path, story)


def test_publishes_that_were_refused_just_now_do_not_pass_for_the_message(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        await client.create_queue("jobs", max_size=1)
        await client.publish("jobs", "A")
        for number in range(3):
            with pytest.raises(QueueFull):
                await client.publish("jobs", f"REFUSED{number}")
        first = await client.fetch("jobs")
        await first.ack()
        uid = await client.publish("jobs", "C", id="once")
        await client.publish("jobs", "C", id="once")
        return await life_of(here, "jobs", uid), await life_of(here, "jobs", first.uid)

    third, first = on_node(tmp_path, story)

    assert (words(third), third["message"]["readable"]["text"], third["is_complete"]) == (["published"], "C", True)
    assert (words(first)[-1], first["message"]["readable"]["text"]) == ("acknowledged", "A")


def test_outcomes_that_stay_away_leave_out_what_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "OUTCOMES_S_MAX", 0.0)

    async def story(here: NodeHere, client: AsyncClient) -> Any:
        monkeypatch.setattr(OutcomeFiles, "write", lambda self, outcomes: None)
        uid = await client.publish("jobs", "x")
        return await life_of(here, "jobs", uid)

    answer = on_node(tmp_path, story)

    assert (answer["events"], answer["is_complete"], answer["is_living"]) == ([], False, True)


def test_busy_searches_refuse_others_and_why_answers_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lives, "SEARCHING_MAX", 0)
    monkeypatch.setattr(lives, "WAITING_MAX", 0)

    async def story(here: NodeHere, client: AsyncClient) -> Any:
        uid = await client.publish("jobs", "x")
        await (await client.fetch("jobs")).ack()
        about = {"queue": "jobs", "uid": uid}
        why = await here.call("GET", "/messages/why", **about)
        return await here.call("GET", "/messages/history", **about), why

    (status, refusal), (why_status, why) = on_node(tmp_path, story)

    assert (status, refusal["error"]["code"]) == (503, "BUSY")
    assert (why_status, why["causes"][0]["code"]) == (200, "gone")


def test_queue_that_the_caller_may_not_read_is_not_named(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    grants = [
        Grant("owner", digest_of("owner").hex(), ("*",), tuple(Right), datetime.fromisoformat("2026-01-01T00:00Z")),
        Grant(
            "team", digest_of("team").hex(), ("team.*",), (Right.FETCH,), datetime.fromisoformat("2026-01-01T00:00Z")
        ),
    ]
    TokenFile(tokens).change(lambda before: (*before, *grants))

    async def tell() -> Any:
        auth = Auth(required=True, tokens_file=tokens)
        async with node_here(tmp_path / "data", auth=auth) as here, AsyncClient(here.worker, token="owner") as client:
            uid = await client.publish("team.a", "x")
            url = f"{here.http}/api/v1/messages"
            owner, team = ({"Authorization": f"Bearer {name}"} for name in ("owner", "team"))
            moved = {"uids": [uid], "to": "secret"}
            async with here.session.post(f"{url}/move", params={"queue": "team.a"}, json=moved, headers=owner) as done:
                assert done.status == 200
            asked = {"queue": "team.a", "uid": uid}
            found = []
            for headers in (owner, team):
                async with here.session.get(f"{url}/history", params=asked, headers=headers) as response:
                    found.append((await response.json())["events"][-1])
            return [(event["event"], event["queue"]) for event in found]

    assert run(tell()) == [("moved", "secret"), ("moved", None)]
