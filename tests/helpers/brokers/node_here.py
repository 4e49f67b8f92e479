"""NodeHere: a whole node on this test's own loop, with real sockets and a real disk, and an HTTP client for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from wakeq.client.aio import AsyncClient
from wakeq.config.settings import Settings
from wakeq.node.node import Node, Sizes


class NodeHere:
    """A node, and ways to ask it."""

    def __init__(self, node: Node, addresses: dict[str, str], session: aiohttp.ClientSession) -> None:
        self.node = node
        self.worker = addresses["worker"]
        self.http = f"http://{addresses['http']}"
        self.session = session

    async def call(self, method: str, path: str, body: Any = None, **query: Any) -> tuple[int, Any]:
        """Ask the API; return the status and the JSON that came."""
        url = self.http + "/api/v1" + path
        json = {} if body is None and method not in ("GET", "DELETE") else body
        async with self.session.request(method, url, params=query, json=json) as response:
            return response.status, await response.json()

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Get any path of the HTTP port, as text."""
        async with self.session.get(self.http + path, headers=headers) as response:
            return response.status, await response.text()


@asynccontextmanager
async def node_here(data_dir: Path, sizes: Sizes = Sizes(), **settings: Any) -> AsyncIterator[NodeHere]:  # noqa: B008
    """Run a node for the length of the block."""
    node = Node(Settings(data_dir=data_dir, worker_port=0, http_port=0, taskflux_port=0, **settings), sizes=sizes)
    addresses = await node.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield NodeHere(node, addresses, session)
    finally:
        await node.stop()


@asynccontextmanager
async def client_of(here: NodeHere) -> AsyncIterator[AsyncClient]:
    """Connect to a node as its clients do."""
    async with AsyncClient(here.worker) as client:
        yield client


def run(coroutine: Any) -> Any:
    """Run a test's coroutine on a loop of its own."""
    return asyncio.run(coroutine)
