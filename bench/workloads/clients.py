"""W9: the cost of the Python client beside a bare socket that sends prepared bytes to the same broker.

A socket and `Client` take turns in slices of a tenth of a second, so that what the disk does hits both alike; the
ratio is made within each pair of slices, and the median of the pairs is shown.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from statistics import median
from typing import TypeAlias

from bench.load.clients import PeerFailed
from bench.load.flow import QUEUE, Load
from bench.peers.peer import Peer
from bench.peers.wakeq import line
from bench.workloads.workload import NOISE, Column, Figures, Plan, Workload, start_fresh
from wakeq import AsyncClient, Client

SLICE_S = 0.1
BATCH = 100
TOGETHER = 64  # tasks that share an AsyncClient
READ_BYTES = 65_536

Step: TypeAlias = Callable[[], object]


class BareSocket:
    """The least work in Python: it sends prepared bytes, and reads up to a newline."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> None:
        self._socket.sendall(request)
        reply = self._socket.recv(READ_BYTES)
        while not reply.endswith(b"\n"):
            reply += self._socket.recv(READ_BYTES)
        if b'"ok"' not in reply:
            raise PeerFailed(reply[:200].decode(errors="replace"))

    def close(self) -> None:
        self._socket.close()


async def costs(peer: Peer, plan: Plan) -> Figures:
    """One publish after the other, then batches; and many tasks on one AsyncClient."""
    await start_fresh(peer)
    meter = peer.meter()
    figures, published = await asyncio.to_thread(_beside_a_socket, peer.port, plan)
    together, rate = await _together(peer.port, plan)
    return meter.stop(published + together) | figures | {"aio_rate": rate}


def _beside_a_socket(port: int, plan: Plan) -> tuple[Figures, int]:
    body = Load().body.decode()
    single = line("PUB", qname=QUEUE, msg=body)
    batch = line("PUB", qname=QUEUE, messages=[body] * BATCH)
    bare = BareSocket(port)
    with Client(f"127.0.0.1:{port}") as client:
        one = _compare(lambda: bare.ask(single), lambda: client.publish(QUEUE, body), plan)
        many = _compare(lambda: bare.ask(batch), lambda: client.publish_many(QUEUE, [body] * BATCH), plan)
    bare.close()
    figures = {
        "rate": one.client_rate,
        "bare_rate": one.bare_rate,
        "ratio": one.ratio,
        "batch_rate": many.client_rate * BATCH,
        "bare_batch_rate": many.bare_rate * BATCH,
        "batch_ratio": many.ratio,
    }
    return figures, one.steps + many.steps * BATCH


class _Comparison:
    """Pairs of slices, as steps a second."""

    def __init__(self) -> None:
        self.pairs: list[tuple[float, float]] = []
        self.steps = 0

    @property
    def bare_rate(self) -> float:
        return median(bare for bare, _ in self.pairs)

    @property
    def client_rate(self) -> float:
        return median(client for _, client in self.pairs)

    @property
    def ratio(self) -> float:
        return median(client / bare for bare, client in self.pairs)

    def rate(self, step: Step) -> float:
        """Do it for a slice of time."""
        count, began = 0, time.perf_counter()
        while (took := time.perf_counter() - began) < SLICE_S:
            step()
            count += 1
        self.steps += count
        return count / took


def _compare(bare: Step, client: Step, plan: Plan) -> _Comparison:
    """Slices in turn, every second pair in the opposite order."""
    found = _Comparison()
    bare()
    client()
    ends_at = time.perf_counter() + plan.seconds
    while time.perf_counter() < ends_at or not found.pairs:
        if len(found.pairs) % 2 == 0:
            bare_rate = found.rate(bare)
            found.pairs.append((bare_rate, found.rate(client)))
        else:
            client_rate = found.rate(client)
            found.pairs.append((found.rate(bare), client_rate))
    return found


async def _together(port: int, plan: Plan) -> tuple[int, float]:
    """Tasks that publish one message after the other over one AsyncClient: how many, and how many a second."""
    body, published = Load().body.decode(), 0

    async def publish() -> None:
        nonlocal published
        while time.perf_counter() < ends_at:
            await client.publish(QUEUE, body)
            published += 1

    async with AsyncClient(f"127.0.0.1:{port}") as client:
        began = time.perf_counter()
        ends_at = began + plan.seconds
        await asyncio.gather(*(publish() for _ in range(TOGETHER)))
    return published, published / (time.perf_counter() - began)


COLUMNS = (
    Column("rate", "publish/s"),
    Column("bare_rate", "bare socket"),
    Column("ratio", "x bare", ".2f"),
    Column("batch_rate", "publish_many(100)/s"),
    Column("bare_batch_rate", "bare socket"),
    Column("batch_ratio", "x bare", ".2f"),
    Column("aio_rate", f"AsyncClient, {TOGETHER} tasks"),
    *NOISE,
)
WORKLOADS = (Workload("W9", "the Python client beside a bare socket", costs, COLUMNS, ("wakeq",)),)
