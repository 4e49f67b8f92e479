"""Streaming: a peer that does not read a stream does not keep its slot forever."""

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers.brokers.node_here import node_here, run
from wakeq.http.api import streaming
from wakeq.http.api.backup import Backup
from wakeq.http.api.events import WATCHERS_MAX, Events, EventsQuery
from wakeq.http.api.streaming import write_in_time
from wakeq.http.health import Health
from wakeq.protocol.queue.timings import Timings

DEADLINE_S = 10.0


class Stuck:
    """A request and a response whose peer reads nothing."""

    def __init__(self) -> None:
        self.transport = self
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True

    async def prepare(self, _: Any) -> None:
        """Accept the headers, which always fit."""

    async def write(self, _: bytes) -> None:
        await asyncio.Event().wait()


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(streaming, "READ_S_MAX", 0.01)
    peer = Stuck()
    monkeypatch.setattr("aiohttp.web.StreamResponse", lambda **_: peer)
    return peer


def test_peer_that_does_not_read_is_disconnected(stuck: Any) -> None:
    with pytest.raises(ConnectionError, match="read nothing"):
        asyncio.run(asyncio.wait_for(write_in_time(stuck, stuck, b"x"), DEADLINE_S))

    assert stuck.aborted


def test_watcher_that_does_not_read_frees_its_slot(stuck: Any) -> None:
    async def nothing() -> Any:
        return {}

    async def watch() -> int:
        events = Events(SimpleNamespace(cluster=nothing, gauges=nothing), nothing, lambda: 0)  # type: ignore[arg-type]
        caller: Any = SimpleNamespace(sees=lambda _: True, sees_node=True)
        async with asyncio.timeout(DEADLINE_S):
            await events.watch(stuck, caller, EventsQuery())
        await events.stop()
        return len(events._watchers)

    assert asyncio.run(watch()) == 0
    assert stuck.aborted


def test_scrape_that_is_not_read_ends(stuck: Any) -> None:
    async def nothing() -> list[Any]:
        return []

    async def scrape() -> None:
        queries: Any = SimpleNamespace(gauges=nothing)
        unused: Any = None
        health = Health(queries, nothing, unused, lambda: 0, Timings(), queues_max=lambda: 1, timed_max=lambda: 1)
        async with asyncio.timeout(DEADLINE_S):
            await health.metrics(stuck)

    with pytest.raises(ConnectionError, match="read nothing"):
        asyncio.run(scrape())


def test_backup_that_is_not_read_ends_and_allows_the_next(stuck: Any) -> None:
    async def back_up() -> tuple[bool, list[Any]]:
        loop, ended = asyncio.get_running_loop(), []

        class Disk:
            def submit(self, work: Any, done: Any) -> None:
                self.writing = loop.run_in_executor(None, work)

            def close(self, *, wait: bool) -> None:
                assert not wait

        disk = Disk()
        backup = Backup(None, None, lambda: (0, 0), lambda _: disk)  # type: ignore[arg-type, return-value]

        def write(descriptor: int) -> None:
            try:
                while True:
                    os.write(descriptor, bytes(1 << 16))
            except BrokenPipeError as error:
                ended.append(type(error))

        backup._write = write  # type: ignore[assignment, method-assign]
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(ConnectionError, match="read nothing"):
                await backup.serve(stuck, None, None)  # type: ignore[arg-type]
            await disk.writing
        return backup._is_running, ended

    assert asyncio.run(back_up()) == (False, [BrokenPipeError])


def test_watchers_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    async def story() -> list[int]:
        async with node_here(tmp_path / "data") as here, AsyncExitStack() as opened:
            url = f"{here.http}/api/v1/events?leader=true"
            asked = [opened.enter_async_context(here.session.get(url)) for _ in range(WATCHERS_MAX + 8)]
            return [answer.status for answer in await asyncio.gather(*asked)]

    statuses = run(story())

    assert (statuses.count(200), statuses.count(503)) == (WATCHERS_MAX, 8)
