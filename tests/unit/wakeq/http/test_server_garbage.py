"""WebServer: a finished HTTP or WebSocket session leaves nothing that only a full collection would free."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from tests.helpers.brokers.node_here import node_here, run
from wakeq.http.connection import HttpConnection

REST = b" HTTP/1.1\r\nHost: localhost\r\n"
JSON = b"Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{}"
UPGRADE = (
    b"GET /connect"
    + REST
    + (
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
)
SESSIONS = {
    "an answer": b"GET /" + REST + b"\r\n",
    "no such path": b"GET /nothing" + REST + b"\r\n",
    "refused": b"GET /" + REST + b"X-Name: \xff\r\n\r\n",
    "no HTTP": b"\x00\xff garbage\r\n\r\n",
    "half a head": b"GET / HTTP/1.1\r\nHost: loc",
    "half a body": b"POST /api/v1/queues" + REST + JSON,
    "an upgrade": UPGRADE,
    "an upgrade and a close": UPGRADE + b"\x88\x80abcd",
    "an upgrade and garbage": UPGRADE + b"\xff\xff\xff",
}


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /" + REST + b"\r\n",
        b"GET /dashboard/main.js" + REST + b"\r\n",
        b"GET /api/v1/queues" + REST + b"\r\n",
        b"GET /api/v1/queue?queue=none" + REST + b"\r\n",
        b"GET /metrics" + REST + b"\r\n",
        b"GET /nothing" + REST + b"\r\n",
        b"GET /" + REST + b"X-Name: \xff\r\n\r\n",
        b"\x00\xff garbage\r\n\r\n",
        UPGRADE,
    ],
)
def test_response_has_safe_headers_and_names_no_version(tmp_path: Path, request_: bytes) -> None:
    async def heads() -> list[bytes]:
        async with node_here(tmp_path / "data") as here:
            host, _, port = here.http.removeprefix("http://").rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(request_)
            head = await reader.readuntil(b"\r\n\r\n")
            writer.close()
            return head.split(b"\r\n")

    lines = run(heads())

    assert b"X-Content-Type-Options: nosniff" in lines
    assert b"Cross-Origin-Resource-Policy: same-origin" in lines
    assert [line for line in lines if line.startswith(b"Server:")] == [b"Server: wakeq"]


class Seen(HttpConnection):
    """A connection that can be referred to weakly, because it has no slots."""


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[WeakSet[HttpConnection]]:
    """Return the living ones, after freeing only what nothing refers to."""
    found: WeakSet[HttpConnection] = WeakSet()

    def made(*arguments: Any) -> HttpConnection:
        connection = Seen(*arguments)
        found.add(connection)
        return connection

    monkeypatch.setattr("wakeq.http.server.HttpConnection", made)
    gc.disable()
    yield found
    gc.enable()


@pytest.mark.parametrize("ends", ["half-closed", "closed"])
def test_finished_session_is_freed_without_a_full_collection(
    tmp_path: Path, connections: WeakSet[HttpConnection], ends: str
) -> None:
    async def speak(host: str, port: str, said: bytes) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(said)
        with suppress(TimeoutError, ConnectionError):
            if ends == "half-closed":
                writer.write_eof()
            await asyncio.wait_for(reader.read(65_536), 0.1)
        writer.close()

    async def story() -> None:
        async with node_here(tmp_path / "data") as here:
            host, _, port = here.http.removeprefix("http://").rpartition(":")
            left = []
            for name, said in SESSIONS.items():
                before = len(connections)
                await speak(host, port, said)
                with suppress(TimeoutError):
                    async with asyncio.timeout(30):
                        while len(connections) > before:
                            await asyncio.sleep(0.01)
                if len(connections) > before:
                    left.append(name)
            assert left == []

    run(story())
