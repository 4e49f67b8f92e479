"""Sessions by HTTP and WebSocket, however they end: nothing of them waits for a full collection, which comes seldom."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.helpers.node_here import node_here, run
from wakeq.web.connection import HttpConnection

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


@pytest.fixture
def only_counted() -> Iterator[None]:
    """Let nothing be freed but what nothing refers to any more."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def connections() -> int:
    return sum(isinstance(one, HttpConnection) for one in gc.get_objects())


@pytest.mark.parametrize("ends", ["half-closed", "closed"])
@pytest.mark.usefixtures("only_counted")
def test_a_session_that_is_over_is_forgotten_at_once(tmp_path: Path, ends: str) -> None:
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
                before = connections()
                await speak(host, port, said)
                with suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        while connections() > before:
                            await asyncio.sleep(0.01)
                if connections() > before:
                    left.append(name)
            assert left == []

    run(story())
