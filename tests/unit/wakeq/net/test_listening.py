"""A port is the same at every door: where it listens, and what its connections inherit."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wakeq.config.settings import Cluster, Settings
from wakeq.data.inspect import inspect
from wakeq.http.server import WebServer
from wakeq.net.listening import bound_socket
from wakeq.net.worker_tcp import WorkerTcpListener
from wakeq.node.node import Node

PORTS: dict[str, Callable[[], Any]] = {
    "worker": lambda: WorkerTcpListener(lambda door: pytest.fail("nobody sends anything")),
    "web": WebServer,
}


@pytest.mark.parametrize("door", PORTS)
@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6 beside IPv4")
def test_listener_at_all_addresses_is_reached_by_both_families(door: str) -> None:
    async def reached() -> list[int]:
        port = PORTS[door]()
        number = await port.start(await bound_socket("::", 0))
        families = []
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, number), timeout=5) as connection:
                families.append(connection.family)
        await port.close()
        return families

    assert asyncio.run(reached()) == [socket.AF_INET, socket.AF_INET6]


def test_port_in_use_is_a_named_error_and_leaves_no_socket_open() -> None:
    async def bind_twice() -> None:
        with await bound_socket("127.0.0.1", 0) as first:
            first.listen()
            await bound_socket("127.0.0.1", first.getsockname()[1])

    with pytest.raises(OSError, match=r"port \d+: Address already in use"):
        asyncio.run(bind_twice())


def test_impossible_host_name_is_the_error_of_an_unknown_one() -> None:
    with pytest.raises(socket.gaierror, match=r"'a\.\.b' is not a valid host name"):
        asyncio.run(bound_socket("a..b", 0))


PORT_SETTINGS = ("worker_port", "http_port", "taskflux_port")


@pytest.mark.parametrize("which", [*PORT_SETTINGS, "peer"])
def test_node_with_a_port_in_use_fails_before_any_election(tmp_path: Path, which: str) -> None:
    async def start(taken_port: int) -> None:
        ports: dict[str, Any] = dict.fromkeys(PORT_SETTINGS, 0)
        if which == "peer":
            ports["cluster"] = Cluster(node=0, peers=f"127.0.0.1:{taken_port}")
        else:
            ports[which] = taken_port
        await Node(Settings(data_dir=tmp_path, **ports)).start()

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"port {port}: Address already in use"):
            asyncio.run(start(port))

    assert inspect(tmp_path)["metadata"]["term"] == 0
