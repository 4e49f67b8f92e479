"""Ports that nobody listens on, for what must be told its port, or must have it again after a kill.

A port that the kernel chooses may be an outgoing connection's a moment later; these are below all of those.
"""

import random
import socket
from collections.abc import Iterator

NOT_OUTGOING = range(20_000, 30_000)


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    return [port for port, _ in zip(_unused(), range(count), strict=False)]


def _unused() -> Iterator[int]:
    for port in random.sample(NOT_OUTGOING, len(NOT_OUTGOING)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port
