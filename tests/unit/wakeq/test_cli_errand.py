"""Proves wakeq/cli/errand.py: an errand ends when there is nothing to be had and nothing held, not sooner."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.wakeq.test_cli import message as message_of
from wakeq.cli.errand import Bounded
from wakeq.client.aio import AsyncClient
from wakeq.client.requests import Settled
from wakeq.protocol.errors import Disconnected, Refused


class Queue:
    """What the broker has, in the place of a connection to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *uids: str) -> None:
        self.uids = list(uids)
        self.heard: list[str] = []
        self.refusal: Exception | None = None
        self.lost: tuple[str, ...] = ()

        async def fetch_many(_client: object, _queue: str, count: int, *, wait: float = 0) -> list[Any]:
            taken, self.uids = self.uids[:count], self.uids[count:]
            self.heard.append(f"fetch {count}")
            return [message_of(uid=uid) for uid in taken]

        async def sleep(_client: object, _queue: str) -> None:
            self.heard.append("sleep")

        async def settle(_client: object, messages: Sequence[Any], **_how: object) -> Settled:
            if self.refusal:
                raise self.refusal
            return Settled()

        async def touch(_client: object, _messages: Sequence[Any], *, timeout: int | None = None) -> Settled:
            return Settled(stale=list(self.lost))

        for name, answer in (
            ("fetch_many", fetch_many),
            ("sleep", sleep),
            ("ack_many", settle),
            ("nack_many", settle),
            ("touch_many", touch),
        ):
            monkeypatch.setattr(AsyncClient, name, answer)


class Engine:
    """Who listens to the client, and is told of the end."""

    def __init__(self) -> None:
        self.ended = 0
        self.woken = 0

    def connected(self) -> None: ...

    def disconnected(self, error: object) -> None: ...

    def awoken(self, queue: str) -> None:
        self.woken += 1

    def end(self) -> None:
        self.ended += 1


def bounded(engine: Engine, limit: int | None = None) -> Bounded:
    return Bounded("here:1", "q", listener=engine, limit=limit, finished=engine.end)


def test_an_empty_queue_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, engine = Queue(monkeypatch), Engine()

    async def work() -> None:
        client = bounded(engine)
        assert await client.fetch_many("q", 8) == []
        await client.sleep("q")

    asyncio.run(work())

    assert (engine.ended, queue.heard) == (1, ["fetch 8"])


@pytest.mark.parametrize("settle", ["ack_many", "nack_many"])
def test_what_is_held_is_waited_for_and_the_queue_is_asked_again(monkeypatch: pytest.MonkeyPatch, settle: str) -> None:
    queue, engine = Queue(monkeypatch, "u1", "u2"), Engine()

    async def work() -> None:
        client = bounded(engine)
        first, second = await client.fetch_many("q", 8)
        await client.sleep("q")
        assert queue.heard[-1] == "sleep"
        await getattr(client, settle)([first])
        assert (engine.ended, engine.woken) == (0, 0)
        await getattr(client, settle)([second])
        assert (engine.ended, engine.woken) == (0, 1)
        await client.sleep("q")

    asyncio.run(work())

    assert engine.ended == 1


def test_no_more_is_asked_for_than_the_limit_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, engine = Queue(monkeypatch, "u1", "u2", "u3"), Engine()

    async def work() -> None:
        client = bounded(engine, limit=2)
        messages = await client.fetch_many("q", 8)
        assert await client.fetch_many("q", 8) == []
        await client.sleep("q")
        await client.ack_many(messages)
        await client.sleep("q")

    asyncio.run(work())

    assert (queue.heard, queue.uids, engine.ended) == (["fetch 2"], ["u3"], 1)


def test_a_message_whose_lease_was_lost_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, engine = Queue(monkeypatch, "u1"), Engine()

    async def work() -> None:
        client = bounded(engine)
        messages = await client.fetch_many("q", 8)
        queue.lost = ("u1",)
        await client.touch_many(messages)
        await client.sleep("q")

    asyncio.run(work())

    assert (engine.woken, engine.ended) == (1, 1)


@pytest.mark.parametrize(("refusal", "ended"), [(Disconnected("gone"), 0), (Refused("no"), 1)])
def test_an_answer_that_may_still_come_is_waited_for_and_a_refusal_is_not(
    monkeypatch: pytest.MonkeyPatch, refusal: Exception, ended: int
) -> None:
    queue, engine = Queue(monkeypatch, "u1"), Engine()

    async def work() -> None:
        client = bounded(engine)
        messages = await client.fetch_many("q", 8)
        queue.refusal = refusal
        with pytest.raises(type(refusal)):
            await client.ack_many(messages)
        await client.sleep("q")

    asyncio.run(work())

    assert engine.ended == ended
