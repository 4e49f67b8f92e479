"""The HTTP API: the programs that are connected, and what they are busy with."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.helpers.brokers.node_here import node_here, run
from wakeq.actors.queue import looking
from wakeq.actors.sessions import worker as sessions
from wakeq.client.aio import AsyncClient
from wakeq.http.api import node
from wakeq.http.api.queries import Queries, RequestRefused
from wakeq.protocol.queue.outcomes import Refusal

HELLO = {
    "cmd": "HELLO", "host": "db1", "pid": 71, "name": "mails", "versions": {"python": "3.13.1"}, "concurrency": 8,
    "tasks": ["emails"], "schedules": [{"name": "emails", "every": 60, "next": "2026-12-24T18:00:00Z"}],
}  # fmt: skip
FET = {"cmd": "FET", "qname": "emails"}


class Lines:
    """A connection that sends JSON objects."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, *commands: dict[str, Any]) -> list[dict[str, Any]]:
        """Send commands and return a reply for each."""
        self.writer.write(b"".join(msgspec.json.encode(command) + b"\n" for command in commands))
        return [msgspec.json.decode(await self.reader.readline()) for _ in commands]


async def connect(address: str) -> Lines:
    host, _, port = address.rpartition(":")
    return Lines(*await asyncio.open_connection(host, int(port)))


def test_workers_show_who_they_are_and_what_they_have(tmp_path: Path) -> None:
    async def story() -> Any:
        async with node_here(tmp_path / "data") as here, AsyncClient(here.worker) as publisher:
            uids = [await publisher.publish("emails", body, timeout=30) for body in "abc"]
            worker = await connect(here.worker)
            await worker.ask(HELLO, {"cmd": "SUB", "qname": "emails"}, FET, FET)
            answer = await here.call("GET", "/workers")
            await worker.ask({"cmd": "ACK", "qname": "emails", "uid": uids[0]})
            return uids, answer, await here.call("GET", "/workers")

    uids, (status, before), (_, after) = run(story())

    worker, publisher = before["workers"]
    begun = datetime.fromisoformat(worker["since"])
    since, until = (datetime.fromisoformat(worker["busy"][0][name]) for name in ("since", "until"))
    assert (status, before["total"], before["is_complete"]) == (200, 2, True)
    assert {name: worker[name] for name in HELLO if name != "cmd"} == {
        name: value for name, value in HELLO.items() if name != "cmd"
    }
    assert (worker["door"], worker["queues"], worker["leased"]) == ("worker", ["emails"], 2)
    assert [(one["queue"], one["uid"]) for one in worker["busy"]] == [("emails", uid) for uid in uids[:2]]
    assert abs(datetime.now(UTC) - begun) < timedelta(minutes=5)
    assert begun <= since
    assert until - since == timedelta(seconds=30)
    assert (publisher["tasks"], publisher["queues"], publisher["busy"], publisher["leased"]) == ([], [], [], 0)
    assert [one["uid"] for one in after["workers"][0]["busy"]] == [uids[1]]


def test_client_that_says_nothing_of_itself_has_null_in_its_place(tmp_path: Path) -> None:
    async def story() -> Any:
        async with node_here(tmp_path / "data") as here:
            client = await connect(here.worker)
            await client.ask({"cmd": "PUB", "qname": "q", "message": "x"}, FET)
            return await here.call("GET", "/workers")

    _, answer = run(story())

    (worker,) = answer["workers"]
    said = {name: worker[name] for name in HELLO if name != "cmd"}
    assert said == dict.fromkeys(said) | {"tasks": [], "schedules": []}


def test_workers_come_before_connections_that_only_publish(tmp_path: Path) -> None:
    async def story() -> Any:
        async with node_here(tmp_path / "data") as here:
            publishers = [await connect(here.worker) for _ in range(3)]
            for publisher in publishers:
                await publisher.ask({"cmd": "PING"})
            worker = await connect(here.worker)
            await worker.ask({"cmd": "SUB", "qname": "q"})
            return await here.call("GET", "/workers", limit=2)

    _, answer = run(story())

    assert [worker["queues"] for worker in answer["workers"]] == [["q"], []]
    assert [worker["number"] for worker in answer["workers"]] == [4, 1]
    assert answer["total"] == 4


@pytest.mark.parametrize("bounded", [None, looking, sessions, node])
def test_answer_says_that_it_did_not_count_all_that_workers_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bounded: Any
) -> None:
    async def story() -> Any:
        async with node_here(tmp_path / "data") as here:
            worker = await connect(here.worker)
            for queue in "aab":
                await worker.ask({"cmd": "PUB", "qname": queue, "message": "x"}, {"cmd": "FET", "qname": queue})
            await worker.ask({"cmd": "FET", "qname": "gone"})
            if bounded is not None:
                monkeypatch.setattr(bounded, "LEASES_SEEN_MAX" if bounded is looking else "QUEUES_ASKED_MAX", 1)
            return await here.call("GET", "/workers")

    _, answer = run(story())

    assert answer["is_complete"] == (bounded is None)
    assert (answer["workers"][0]["leased"] == 3) == (bounded is None)


def test_answer_says_that_a_queue_did_not_tell_what_workers_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_busy(*_: Any) -> Any:
        raise RequestRefused(Refusal("BUSY", "no answer"))

    async def story() -> Any:
        async with node_here(tmp_path / "data") as here:
            worker = await connect(here.worker)
            await worker.ask({"cmd": "PUB", "qname": "q", "message": "x"}, {"cmd": "FET", "qname": "q"})
            monkeypatch.setattr(Queries, "held", is_busy)
            return await here.call("GET", "/workers")

    _, answer = run(story())

    assert (answer["workers"][0]["leased"], answer["is_complete"]) == (0, False)
