"""The HTTP API: messages, leases, connections, and why a message is not being processed."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.brokers.node_here import NodeHere, client_of, node_here, run
from wakeq.client.aio import AsyncClient
from wakeq.client.bulk import BulkClient
from wakeq.http.api import messages as api_messages
from wakeq.protocol.queue import view
from wakeq.protocol.queue.order import ready_line
from wakeq.protocol.queue.order.ready_line import ReadyLine

Story = Callable[[NodeHere, AsyncClient], Awaitable[Any]]
JOBS = {"queue": "jobs"}


def on_node(tmp_path: Path, story: Story) -> Any:
    async def tell() -> Any:
        async with node_here(tmp_path / "data") as here, client_of(here) as client:
            return await story(here, client)

    return run(tell())


async def bodies(here: NodeHere, queue: str, state: str = "any") -> list[str]:
    status, answer = await here.call("GET", "/messages", queue=queue, state=state, count=1000)
    assert status == 200, answer
    return [message["body"] for message in answer["messages"]]


# Moving -----------------------------------------------------------------------------------------------------------


def test_move_takes_messages_that_match_all_conditions_unchanged(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        for number in range(6):
            await client.publish("jobs", f"m{number}", priority=number, headers={"tenant": "ab"[number % 2]})
        body = {"to": "other", "where": ["header.tenant=a", "priority>0"]}
        answer = await here.call("POST", "/messages/move", body, **JOBS)
        moved = await client.fetch("other")
        return answer, await bodies(here, "jobs"), moved, await bodies(here, "other", "ready")

    (status, answer), left, moved, there = on_node(tmp_path, story)

    assert (status, answer["scanned"], answer["matched"], answer["done"]) == (200, 6, 2, 2)
    assert left == ["m0", "m1", "m3", "m5"]
    assert (moved.body, moved.priority, moved.headers) == (b"m2", 2, {"tenant": "a"})
    assert there == ["m4"]


def test_audit_log_has_the_first_call_and_continuations_that_changed_something(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="wakeq.admin")

    async def story(here: NodeHere, client: AsyncClient) -> None:
        for number in range(4):
            await client.publish("jobs", f"m{number}", headers={"tenant": "aaba"[number]})
        first = {"where": ["header.tenant=b"], "limit": 1}
        _, answer = await here.call("POST", "/messages/purge", first, **JOBS)
        for tenant in "ac":
            more = {"where": [f"header.tenant={tenant}"], "after": 1, "through": answer["through"]}
            await here.call("POST", "/messages/purge", more, **JOBS)

    on_node(tmp_path, story)

    said = [record.message for record in caplog.records if record.name == "wakeq.admin"]
    assert len(said) == 2, said
    assert '"header.tenant=b"' in said[0]
    assert '"header.tenant=a"' in said[1]
    assert said[1].endswith(": 2 done")


def test_failed_continuation_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="wakeq.admin")

    async def story(here: NodeHere, client: AsyncClient) -> int:
        await client.publish("jobs", "m")
        status, _ = await here.call("POST", "/messages/purge", {"where": ["no condition"], "after": 1}, **JOBS)
        return status

    assert on_node(tmp_path, story) == 400

    (said,) = [record.message for record in caplog.records if record.name == "wakeq.admin"]
    assert '"no condition"' in said


def test_delay_of_a_moved_message_continues_on_the_new_queue(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        uid = await client.publish("jobs", b"later", delay=100)
        _, before = await here.call("GET", "/messages", queue="jobs", state="delayed")
        await here.call("POST", "/messages/move", {"to": "other", "uids": [uid]}, **JOBS)
        _, after = await here.call("GET", "/messages", queue="other", state="delayed")
        return [message["due_ms"] for answer in (before, after) for message in answer["messages"]]

    before_ms, after_ms = on_node(tmp_path, story)

    assert 0 <= after_ms - before_ms < 100_000


def test_leased_message_is_not_moved(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        uids = [await client.publish("jobs", f"m{number}") for number in range(3)]
        await client.fetch("jobs")
        by_uid = await here.call("POST", "/messages/move", {"to": "other", "uids": uids[:2]}, **JOBS)
        by_condition = await here.call("POST", "/messages/move", {"to": "other"}, **JOBS)
        return by_uid[1]["done"], by_condition[1]["done"], await bodies(here, "jobs", "leased")

    assert on_node(tmp_path, story) == (1, 1, ["m0"])


def test_message_refused_by_the_target_queue_stays(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        await client.create_queue("small", max_size=1)
        for number in range(3):
            await client.publish("jobs", f"m{number}")
        refused = await here.call("POST", "/messages/move", {"to": "small"}, **JOBS)
        return refused, await bodies(here, "jobs"), await bodies(here, "small"), await client.fetch("jobs")

    (status, answer), left, there, next_one = on_node(tmp_path, story)

    assert (status, answer["error"]["code"]) == (409, "QUEUE_FULL")
    assert (left, there, next_one.body) == (["m0", "m1", "m2"], [], b"m0")


def test_move_of_many_messages_stops_at_its_limit_and_returns_a_position(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        await client.publish_many("jobs", [f"m{number}" for number in range(950)])
        first = (await here.call("POST", "/messages/move", {"to": "other", "limit": 400}, **JOBS))[1]
        await client.publish("jobs", b"new")
        more = {"to": "other", "limit": 10_000, "after": first["after"], "through": first["through"]}
        second = (await here.call("POST", "/messages/move", more, **JOBS))[1]
        return first, second, await bodies(here, "jobs"), (await here.call("GET", "/queue", queue="other"))[1]["ready"]

    first, second, left, there = on_node(tmp_path, story)

    assert (first["done"], first["after"], first["through"]) == (400, 400, 950)
    assert (second["done"], second["after"]) == (550, 0)
    assert (left, there) == (["new"], 950)


# Purging, requeueing ----------------------------------------------------------------------------------------------


def test_purge_with_a_condition_keeps_the_rest_and_a_dry_run_keeps_all(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        for text in ("keep", "drop one", "drop two"):
            await client.publish("jobs", text)
        body = {"where": ["body~drop"]}
        dry = (await here.call("POST", "/messages/purge", body | {"dry_run": True}, **JOBS))[1]
        before = await bodies(here, "jobs")
        done = (await here.call("POST", "/messages/purge", body, **JOBS))[1]
        _, stats = await here.call("GET", "/queue", **JOBS)
        return dry, before, done, await bodies(here, "jobs"), stats

    dry, before, done, after, stats = on_node(tmp_path, story)

    assert (dry["matched"], dry["done"], [message["body"] for message in dry["messages"]]) == (
        2,
        0,
        ["drop one", "drop two"],
    )
    assert len(before) == 3
    assert (done["done"], after) == (2, ["keep"])
    assert (stats["moved"], stats["acked"]) == (2, 0)


def test_purge_without_conditions_empties_the_queue(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        await client.publish_many("jobs", ["m"] * 5)
        await client.fetch("jobs")
        return (await here.call("POST", "/messages/purge", {}, **JOBS))[1]["done"], await bodies(here, "jobs")

    assert on_node(tmp_path, story) == (5, [])


def test_requeue_makes_delayed_messages_due_and_keeps_their_uid(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        published = await client.publish("jobs", b"1", delay=100)
        await client.create_queue("slow", retry={"base": 100})
        failed = await client.publish("slow", b"2")
        message = await client.fetch("slow")
        await message.nack()
        counts = [(await here.call("POST", "/messages/requeue", {}, queue=name))[1] for name in ("jobs", "slow")]
        again = [await client.fetch(name) for name in ("jobs", "slow")]
        return [published, failed], [count["done"] for count in counts], again

    uids, counts, again = on_node(tmp_path, story)

    assert counts == [1, 1]
    assert [message.uid for message in again] == uids
    assert again[1].delivery == 2


# Dead letters -----------------------------------------------------------------------------------------------------


async def with_dead_letters(client: AsyncClient, errors: list[str]) -> None:
    await client.create_queue("jobs", max_deliveries=1)
    for error in errors:
        await client.publish("jobs", f"for {error}", headers={"own": "yes"})
        message = await client.fetch("jobs", wait=5)
        assert message is not None
        await message.nack(error=error)


def test_redrive_moves_dead_letters_with_a_matching_error_to_their_origin(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        await with_dead_letters(client, ["timeout of a", "boom", "timeout of b"])
        await client.publish("jobs.dead", b"no dead letter")
        done = [
            (await here.call("POST", "/messages/redrive", {"where": [condition]}, queue="jobs.dead"))[1]["done"]
            for condition in ("error~timeout of a", "header.wakeq-error~timeout", "error~timeout")
        ]
        back = [await client.fetch("jobs") for _ in range(2)]
        everything = (await here.call("POST", "/messages/redrive", {}, queue="jobs.dead"))[1]["done"]
        return done, back, everything, await bodies(here, "jobs.dead")

    done, back, everything, left = on_node(tmp_path, story)

    assert (done, everything) == ([1, 1, 0], 1)
    assert [message.body for message in back] == [b"for timeout of a", b"for timeout of b"]
    assert back[0].headers == {"own": "yes", "wakeq-redriven": "1"}
    assert left == ["no dead letter"]


@pytest.mark.parametrize("origin", ["no name", "x" * 300, "jobs.dead"])
def test_dead_letter_without_an_origin_stays(tmp_path: Path, origin: str) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        await client.publish("jobs.dead", b"forged", headers={"wakeq-origin": origin, "wakeq-origin-uid": "u"})
        status, answer = await here.call("POST", "/messages/redrive", {}, queue="jobs.dead")
        return status, answer["done"], await bodies(here, "jobs.dead")

    assert on_node(tmp_path, story) == (200, 0, ["forged"])


def test_dead_letter_with_a_foreign_origin_stays_until_it_is_allowed(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        await with_dead_letters(client, ["own"])
        await client.create_queue("orders", dead_letter="jobs.dead")
        for origin in ("b1", "nowhere", "orders"):
            headers = {"wakeq-origin": origin, "wakeq-origin-uid": "u"}
            await client.publish("jobs.dead", f"of {origin}", headers=headers)
        await client.create_queue("b1")
        first = (await here.call("POST", "/messages/redrive", {}, queue="jobs.dead"))[1]
        left = await bodies(here, "jobs.dead")
        second = (await here.call("POST", "/messages/redrive", {"anywhere": True}, queue="jobs.dead"))[1]
        return first, left, second, await bodies(here, "b1"), await bodies(here, "orders")

    first, left, second, moved, own = on_node(tmp_path, story)

    assert (first["done"], first["matched"], first["strangers"]) == (2, 4, ["b1", "nowhere"])
    assert (left, own) == (["of b1", "of nowhere"], ["of orders"])
    assert (second["done"], second["strangers"]) == (2, [])
    assert moved == ["of b1"]


# Why --------------------------------------------------------------------------------------------------------------


def test_why_names_causes_whose_removal_lets_the_message_run(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        async def why(uid: str, queue: str = "jobs") -> list[str]:
            _, answer = await here.call("GET", "/messages/why", queue=queue, uid=uid)
            return [cause["code"] for cause in answer["causes"]]

        first = await client.publish("jobs", b"1")
        second = await client.publish("jobs", b"2", delay=100)
        await here.call("POST", "/queue/pause", **JOBS)
        seen = [await why(second)]
        await here.call("POST", "/queue/resume", **JOBS)
        seen.append(await why(second))
        await here.call("POST", "/messages/requeue", {"uids": [second]}, **JOBS)
        seen.append(await why(second))
        message = await client.fetch("jobs")
        seen += [await why(first), await why(second)]
        await message.ack()
        seen.append(await why(first))
        return seen

    assert on_node(tmp_path, story) == [
        ["paused", "delayed", "no_subscriber"],
        ["delayed", "no_subscriber"],
        ["in_line", "no_subscriber"],
        ["leased"],
        ["in_line", "no_subscriber"],
        ["gone"],
    ]


def test_why_of_a_finished_message_says_how_it_ended(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        uids = [await client.publish("jobs", body) for body in (b"1", b"2", b"3")]
        await (await client.fetch("jobs")).ack()
        await here.call("POST", "/messages/move", {"to": "other", "uids": uids[1:2]}, **JOBS)
        await here.call("POST", "/messages/purge", {"uids": uids[2:]}, **JOBS)
        answers = [(await here.call("GET", "/messages/why", uid=uid, **JOBS))[1]["causes"][0] for uid in uids]
        return [re.sub(r" at \S+ \S+ UTC$", "", cause["text"]) for cause in answers], answers

    texts, causes = on_node(tmp_path, story)

    assert texts == ["it was acknowledged", "it was moved to another queue", "it was deleted by an operator"]
    assert all(cause["code"] == "gone" and cause["at_ms"] > 0 for cause in causes)


def test_claimed_message_names_its_source_and_the_claims_of_a_queue_are_listed(tmp_path: Path) -> None:
    def claim(address: str) -> None:
        with BulkClient(address) as client:
            client.stage("jobs", "nightly", 3, count=2, timeout=60)
            client.read_slice("jobs", "nightly", 3, 0, offset=0, count=1, reader="query-7", batch=1, run="r")

    async def story(here: NodeHere, client: AsyncClient) -> Any:
        uids = [await client.publish("jobs", body) for body in (b"1", b"2")]
        await asyncio.to_thread(claim, here.worker)
        why = (await here.call("GET", "/messages/why", uid=uids[0], **JOBS))[1]["causes"]
        leased = (await here.call("GET", "/leases", **JOBS))[1]["messages"]
        claims = (await here.call("GET", "/claims", **JOBS))[1]["claims"]
        return why, leased, claims, (await here.call("GET", "/claims", queue="nowhere"))[0]

    (cause,), leased, (found,), missing = on_node(tmp_path, story)

    until_ms = found.pop("until_ms")
    assert found == {"source": "nightly", "epoch": 3, "messages": 2, "is_published": False, "readers": ["query-7"]}
    assert (cause["code"], cause["source"], cause["epoch"], cause["until_ms"]) == ("staged", "nightly", 3, until_ms)
    assert re.fullmatch(
        r"source nightly has claimed it in epoch 3 until \S+ \S+ UTC; then it is redelivered .*", cause["text"]
    )
    assert [(one["source"], one["until_ms"]) for one in leased] == [("nightly", until_ms)] * 2
    assert missing == 404


def test_why_of_an_unknown_message_says_that_it_is_not_there(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        uid = await client.publish("jobs", b"1")
        other = await client.publish("others", b"1")
        queue = uid.partition("_")[0]
        await (await client.fetch("jobs")).ack()
        asked = [uid, f"{queue}_00000002", f"{queue}_zzzzzzzz", f"{queue}_00000000", other, "job 17"]
        answers = [(await here.call("GET", "/messages/why", uid=one, **JOBS))[1]["causes"] for one in asked]
        await client.purge("jobs")
        answers.append((await here.call("GET", "/messages/why", uid=uid, **JOBS))[1]["causes"])
        return [[cause["code"] for cause in causes] for causes in answers], answers[0][0]["text"]

    codes, text = on_node(tmp_path, story)

    assert codes == [["gone"], ["never"], ["never"], ["never"], ["other_queue"], ["no_uid"], ["other_queue"]]
    assert re.fullmatch(r"it was acknowledged at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", text)


def test_why_finds_the_dead_letter_of_a_message(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        await client.create_queue("jobs", max_deliveries=1)
        uid = await client.publish("jobs", b"1")
        message = await client.fetch("jobs")
        await message.nack(error="no such file")
        return (await here.call("GET", "/messages/why", uid=uid, **JOBS))[1]["causes"]

    (cause,) = on_node(tmp_path, story)

    assert (cause["code"], cause["queue"]) == ("dead", "jobs.dead")
    assert "nack after 1 deliveries: no such file" in cause["text"]


# Bounds -----------------------------------------------------------------------------------------------------------

LARGE = b"x" * 1_000_000


@pytest.mark.parametrize("state", ["any", "ready", "all"])
def test_peek_at_large_messages_fills_one_answer(tmp_path: Path, state: str) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        for _ in range(6):
            await client.publish("jobs", LARGE)
        return await here.call("GET", "/messages", queue="jobs", state=state, count=1000)

    status, answer = on_node(tmp_path, story)

    assert status == 200
    assert len(answer["messages"]) == 4, "four of a million bytes are within 4 MiB"


def test_worker_peek_at_large_messages_fills_one_answer(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        for _ in range(6):
            await client.publish("jobs", LARGE)
        return await client.peek("jobs", 100)

    assert len(on_node(tmp_path, story)) == 4


def test_leases_of_large_messages_are_listed_in_pages(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        for number in range(6):
            await client.publish("jobs", LARGE if number else b"small")
        while await client.fetch("jobs"):
            pass
        pages, after = [], 0
        while not pages or after:
            _, answer = await here.call("GET", "/leases", after=after, **JOBS)
            pages.append(len(answer["messages"]))
            after = answer["after"]
        return pages

    pages = on_node(tmp_path, story)

    assert (pages[0], sum(pages)) == (5, 6)


# Leases and connections -------------------------------------------------------------------------------------------


def test_lease_is_listed_and_released(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        uid = await client.publish("jobs", b"1")
        await client.fetch("jobs")
        leases = (await here.call("GET", "/leases", **JOBS))[1]["messages"]
        released = [(await here.call("POST", "/leases/release", {"uids": [uid]}, **JOBS))[1] for _ in range(2)]
        return leases, released, await client.fetch("jobs")

    (lease,), released, again = on_node(tmp_path, story)

    assert (lease["worker"], lease["state"]) == (1, "leased")
    assert released == [{"done": 1}, {"done": 0}]
    assert (again.delivery, again.failures) == (2, 0)


def test_connections_are_listed_and_closed(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        await client.fetch("jobs", wait=0.01)
        async with AsyncClient(here.worker) as other:
            await other.ping()
            before = (await here.call("GET", "/connections"))[1]
            gone = before["connections"][1]["id"]
            closed = await here.call("DELETE", "/connection", id=gone)
            # The client connects again, as another connection.
            async with asyncio.timeout(10):
                while gone in [row["id"] for row in (await here.call("GET", "/connections"))[1]["connections"]]:
                    await asyncio.sleep(0)
            missing = await here.call("DELETE", "/connection", id=999)
        return before, closed, missing

    before, closed, missing = on_node(tmp_path, story)

    assert before["total"] == 2
    assert [connection["door"] for connection in before["connections"]] == ["worker", "worker"]
    assert before["connections"][0]["peer"].startswith("127.0.0.1:")
    assert closed == (200, {"id": before["connections"][1]["id"]})
    assert (missing[0], missing[1]["error"]["code"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/messages/move", {"to": "jobs"}),
        ("/messages/move", {"to": "a b"}),
        ("/messages/move", {}),
        ("/messages/purge", {"where": ["colour=red"]}),
        ("/messages/purge", {"where": ["priority~1"]}),
        ("/messages/purge", {"where": ["priority<many"]}),
        ("/messages/purge", {"where": ["body<x"]}),
        ("/messages/purge", {"where": ["nothing"]}),
        ("/messages/purge", {"where": ["state=ready"], "uids": ["x"]}),
        ("/messages/redrive", {"uids": ["x"]}),
        ("/messages/redrive", {"to": "jobs"}),
        ("/messages/purge", {"limit": 0}),
    ],
)
def test_invalid_selection_changes_nothing(tmp_path: Path, path: str, body: dict[str, Any]) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        await client.publish("jobs", b"1")
        return await here.call("POST", path, body, **JOBS), await bodies(here, "jobs")

    (status, answer), left = on_node(tmp_path, story)

    assert (status, answer["error"]["code"][:4], left) == (400, "BAD_", ["1"])


# Paging and searching ---------------------------------------------------------------------------------------------


async def pages(here: NodeHere, **query: Any) -> list[list[str]]:
    """Return the bodies of page after page."""
    found, after = [], 0
    while True:
        status, answer = await here.call("GET", "/messages", queue="jobs", after=after, **query)
        assert status == 200, answer
        found.append([message["body"] for message in answer["messages"]])
        after = answer["after"]
        if not after:
            return found


def test_ready_messages_are_paged_in_the_order_of_delivery(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        for number in range(7):
            await client.publish("jobs", f"m{number}", priority=-(number % 3))
        await client.publish("jobs", "later", delay=60)
        found = await pages(here, state="ready", count=3)
        return found, [message.body.decode() for message in await client.fetch_many("jobs", 9)]

    found, delivered = on_node(tmp_path, story)

    assert [len(page) for page in found] == [3, 3, 1]
    assert [body for page in found for body in page] == delivered


@pytest.mark.parametrize(("state", "count"), [("delayed", 5), ("leased", 5), ("all", 15), ("any", 15), ("ready", 5)])
def test_messages_in_each_state_are_paged_to_the_last_one(tmp_path: Path, state: str, count: int) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        await client.publish_many("jobs", [f"m{number}" for number in range(10)])
        await client.fetch_many("jobs", 5)
        for number in range(10, 15):
            await client.publish("jobs", f"m{number}", delay=60)
        return await pages(here, state=state, count=2)

    found = on_node(tmp_path, story)

    assert len([body for page in found for body in page]) == count == len({body for page in found for body in page})
    assert all(found)


def test_delayed_messages_among_many_others_are_found_in_bounded_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "PEEK_SCAN_MAX", 10)
    monkeypatch.setattr(api_messages, "SCANNED_MAX", 30)

    async def story(here: NodeHere, client: AsyncClient) -> Any:
        await client.publish_many("jobs", ["m"] * 45)
        await client.publish("jobs", "later", delay=60)
        return [await here.call("GET", "/messages", state="delayed", after=after, **JOBS) for after in (0, 30)]

    (_, first), (_, second) = on_node(tmp_path, story)

    assert (first["messages"], first["after"], first["scanned"], first["size"]) == ([], 30, 30, 46)
    assert ([one["body"] for one in second["messages"]], second["after"], second["scanned"]) == (["later"], 0, 16)


def test_search_looks_through_the_queue_in_steps_and_says_how_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_messages, "SCANNED_MAX", 200)

    async def story(here: NodeHere, client: AsyncClient) -> Any:
        await client.publish_many("jobs", [f"body {number}" for number in range(700)])
        found, scanned, calls, after = [], 0, 0, 0
        while calls == 0 or after:
            _, answer = await here.call(
                "GET", "/messages", state="all", where="text~BODY 6", count=40, after=after, **JOBS
            )
            found += [message["body"] for message in answer["messages"]]
            after, scanned, calls = answer["after"], scanned + answer["scanned"], calls + 1
        return found, scanned, calls

    found, scanned, calls = on_node(tmp_path, story)

    assert found == ["body 6", *(f"body {n}" for n in range(60, 70)), *(f"body {n}" for n in range(600, 700))]
    assert scanned >= 700
    assert calls >= 4


@pytest.mark.parametrize(
    "where", ["text~ACME", "text~Refused", "text~_00000001", "header.tenant=acme", "error~refused", "uid~_00000001"]
)
def test_search_finds_uid_header_and_error_in_every_state(tmp_path: Path, where: str) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        await client.create_queue("jobs", retry={"base": 60})
        await client.publish("jobs", "1", headers={"tenant": "acme"})
        message = await client.fetch("jobs")
        await message.nack(error="connection refused")
        await client.publish("jobs", "2")
        return [await pages(here, state=state, where=where) for state in ("all", "delayed", "ready")]

    assert on_node(tmp_path, story) == [[["1"]], [["1"]], [[]]]


def test_body_is_cut_on_request_between_two_characters(tmp_path: Path) -> None:
    async def story(here: NodeHere, client: AsyncClient) -> Any:
        await client.publish("jobs", "aüü")
        await client.publish("jobs", b"\xff\xfe\xfd")
        _, answer = await here.call("GET", "/messages", body_max=2, **JOBS)
        return [(one["body"], one["encoding"], one["size"]) for one in answer["messages"]]

    assert on_node(tmp_path, story) == [("a", "text", 5), ("//4=", "base64", 3)]


def test_look_at_a_line_with_many_gone_messages_walks_it_twice_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks: list[int] = []
    window = ReadyLine.window
    monkeypatch.setattr(ReadyLine, "window", lambda self, skip, count: walks.append(skip) or window(self, skip, count))

    async def story(here: NodeHere, client: AsyncClient) -> Any:
        uids = [await client.publish("jobs", f"m{number}", priority=number) for number in range(60)]
        await here.call("POST", "/messages/purge", {"uids": uids[:50]}, **JOBS)
        first = await here.call("GET", "/messages", count=1, **JOBS)
        count, rest = len(walks), await pages(here, state="ready", count=4)
        return first[1], count, [body for page in rest for body in page]

    first, count, rest = on_node(tmp_path, story)

    assert [one["body"] for one in first["messages"]] == ["m50"]
    assert count <= 2
    assert rest == [f"m{number}" for number in range(50, 60)]


def test_place_in_line_behind_too_many_priorities_is_refused_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready_line, "KEYS_PASSED_MAX", 3)

    async def story(here: NodeHere, client: AsyncClient) -> Any:
        for number in range(6):
            await client.publish("jobs", f"m{number}", priority=number)
        return await here.call("GET", "/messages", after=4, **JOBS)

    status, answer = on_node(tmp_path, story)

    assert (status, answer["error"]["code"]) == (400, "BAD_FIELD")
    assert "state=all" in answer["error"]["detail"]
