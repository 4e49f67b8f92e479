"""Resolver: each connection looks its host up anew, and a name server that fails costs no address that was known."""

import asyncio
import socket
from collections.abc import Callable, Coroutine

import pytest

from wakeq.net import resolver
from wakeq.net.resolver import Resolver

HOST = "wakeq-0.wakeq-nodes", 2603
GONE = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
SILENT = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")


class NameServer:
    """Answers lookups with what stands in `answer`; holds them back while it hangs."""

    def __init__(self) -> None:
        self.answer: list[str] | Exception = ["10.0.0.1"]
        self.hangs = asyncio.Event()
        self.hangs.set()
        # How often it was asked.
        self.asked = 0

    async def getaddrinfo(self, host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        self.asked += 1
        await self.hangs.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in self.answer]


def run(story: Callable[[Resolver, NameServer], Coroutine[None, None, None]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a story happen on a loop whose lookups go to a name server of the test."""
    monkeypatch.setattr(resolver, "LOOKUP_S_MAX", 0.01)

    async def told() -> None:
        server = NameServer()
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", server.getaddrinfo)
        async with asyncio.timeout(30):
            await story(Resolver(), server)

    asyncio.run(told())


def test_host_that_has_moved_is_found_at_its_new_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(resolver: Resolver, server: NameServer) -> None:
        assert await resolver.addresses(*HOST) == ["10.0.0.1"]
        server.answer = ["10.0.0.2", "10.0.0.3"]

        assert await resolver.addresses(*HOST) == ["10.0.0.2", "10.0.0.3"]

    run(story, monkeypatch)


def test_known_address_is_used_while_no_name_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(resolver: Resolver, server: NameServer) -> None:
        await resolver.addresses(*HOST)
        server.answer = SILENT

        assert await resolver.addresses(*HOST) == ["10.0.0.1"]
        assert await resolver.addresses(*HOST) == ["10.0.0.1"]

    run(story, monkeypatch)


def test_name_that_is_unknown_now_has_no_address_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(resolver: Resolver, server: NameServer) -> None:
        await resolver.addresses(*HOST)
        for server.answer in (GONE, SILENT):
            with pytest.raises(socket.gaierror):
                await resolver.addresses(*HOST)

    run(story, monkeypatch)


def test_name_server_that_hangs_is_asked_once_and_its_late_answer_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(resolver: Resolver, server: NameServer) -> None:
        server.hangs.clear()
        for _ in range(3):
            with pytest.raises(TimeoutError, match="no answer about this name"):
                await resolver.addresses(*HOST)
        server.hangs.set()

        assert await resolver.addresses(*HOST) == ["10.0.0.1"]
        assert server.asked == 1

    run(story, monkeypatch)


def test_known_address_is_used_while_the_name_server_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(resolver: Resolver, server: NameServer) -> None:
        await resolver.addresses(*HOST)
        server.hangs.clear()

        assert await resolver.addresses(*HOST) == ["10.0.0.1"]
        resolver.close()

    run(story, monkeypatch)


def test_failed_lookup_that_nobody_awaited_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(resolver: Resolver, server: NameServer) -> None:
        server.hangs.clear()
        with pytest.raises(TimeoutError):
            await resolver.addresses(*HOST)
        server.answer = GONE
        server.hangs.set()
        while resolver._lookups:
            await asyncio.sleep(0)
        server.answer = ["10.0.0.9"]

        assert await resolver.addresses(*HOST) == ["10.0.0.9"]

    run(story, monkeypatch)


def test_lookup_keeps_the_link_of_an_ipv6_address() -> None:
    async def looked_up() -> list[str]:
        return await Resolver().addresses("fe80::1%lo", 1)

    index = socket.if_nametoindex("lo")
    assert asyncio.run(looked_up()) == [f"fe80::1%{index}"]
