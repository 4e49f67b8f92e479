"""Ports that nobody listens on, for programs that must be given a port or need the same one again after a kill.

A port that the kernel chooses may be an outgoing connection's a moment later; these are below all of those.  Where
tests run side by side each runner has its own: what one has killed and will start again is free for the others.
"""

import os
import random
import socket
from collections import deque
from collections.abc import Iterator

NOT_OUTGOING = range(20_000, 30_000)
RUNNER = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
RUNNERS = os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")


def ports_of(runner: str, runners: str) -> range:
    """Return the ports that a runner may take, by the names that pytest-xdist gives."""
    return NOT_OUTGOING[int(runner.removeprefix("gw")) :: int(runners)]


_PORTS = deque(random.sample(ports_of(RUNNER, RUNNERS), len(ports_of(RUNNER, RUNNERS))))


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    return [port for port, _ in zip(_unused(), range(count), strict=False)]


def _unused() -> Iterator[int]:
    """Yield free ports; one that was taken before is the last to come again, because nobody may listen on it yet."""
    for _ in range(len(_PORTS)):
        port = _PORTS[0]
        _PORTS.rotate(-1)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port
