"""W10: the TaskFlux door beside the JSON one, on one server: pipelined Enqueue+Ack and Dequeue+Ack, each in turn with
PUB, and what thousands of idle connections cost.

Requests are prepared bytes and answers are counted, as for every other peer; a turn begins when the server is quiet.
"""

import asyncio
import re
import time
from statistics import median
from typing import cast

from bench.load.clients import PeerFailed
from bench.load.flow import Load
from bench.peers.peer import Peer
from bench.workloads.workload import NOISE, Column, Figures, Plan, Workload, publish_all, start_fresh, until_quiet
from wakeq.protocol.wire.taskflux.codec import encode
from wakeq.protocol.wire.taskflux.commands import (
    ACK,
    OK,
    AuthorizationRequest,
    AuthorizationResponse,
    BootstrapRequest,
    BootstrapResponse,
    CreateQueue,
    Dequeue,
    Enqueue,
    Record,
)
from wakeq.protocol.wire.taskflux.dialects import SPEC

RECORDS = 40_000  # in one turn: their bodies stay at hand in memory
TURNS = 5
CONNECTIONS = 8
WINDOW = 64  # pairs in flight on each
IDLE = 5_000
TURN_S_MAX = 120.0
ADDRESS = re.compile(r"^wakeq ready .*?taskflux=\S*:(\d+)", re.MULTILINE)
BODY = Load().body
HELLO = encode([AuthorizationRequest(), BootstrapRequest(1, 0, 0)], SPEC)
WELCOME = encode([AuthorizationResponse(True), BootstrapResponse(True)], SPEC)
ENQUEUE, ENQUEUED = encode([Enqueue("w10", 0, BODY), ACK], SPEC), encode([OK, OK], SPEC)
DEQUEUE, DEQUEUED = encode([Dequeue("w10", 5_000), ACK], SPEC), encode([Record(0, BODY), OK], SPEC)


class Pipeline(asyncio.Protocol):
    """Keeps a window of requests under way, whose answers are all of one size, until so many are answered."""

    def __init__(self, request: bytes, answer: bytes, count: int) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request, self._answer = request, answer
        self._to_send = self._to_come = count
        self._welcome = WELCOME
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._transport.write(HELLO)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        if self._welcome:
            if len(data) >= len(self._welcome):
                self._welcome = b""
                self.ready.set_result(None)
            return
        answered, left = divmod(len(data), len(self._answer))
        whole, self._rest = data[: len(data) - left], data[len(data) - left :]
        if whole != self._answer * answered:
            self._end(PeerFailed(f"unexpected answer: {whole[:100].hex()}"))
            return
        self._to_come -= answered
        self._send(answered)
        if not self._to_come:
            self._end(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(PeerFailed(f"the server closed a connection ({error or 'end of stream'})"))

    def begin(self) -> None:
        """Fill the window."""
        self._send(WINDOW)

    def close(self) -> None:
        self._transport.close()

    def _send(self, room: int) -> None:
        count = min(room, self._to_send)
        self._to_send -= count
        if count:
            self._transport.write(self._request * count)

    def _end(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error) if error else self.done.set_result(None)


async def pipelined(port: int, request: bytes, answer: bytes, count: int) -> float:
    """Do it so often on all connections together; return how many a second."""
    loop = asyncio.get_running_loop()
    each = count // CONNECTIONS
    flows = [Pipeline(request, answer, each) for _ in range(CONNECTIONS)]
    for flow in flows:
        await loop.create_connection(lambda flow=flow: flow, "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.wait_for(asyncio.gather(*(flow.ready for flow in flows)), TURN_S_MAX)
    began = time.perf_counter()
    for flow in flows:
        flow.begin()
    await asyncio.wait_for(asyncio.gather(*(flow.done for flow in flows)), TURN_S_MAX)
    rate = each * CONNECTIONS / (time.perf_counter() - began)
    for flow in flows:
        flow.close()
    return rate


async def open_idle(port: int, count: int) -> list[asyncio.StreamWriter]:
    """Open so many connections that have shaken hands and say nothing."""
    writers = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HELLO)
        await reader.readexactly(len(WELCOME))
        writers.append(writer)
    return writers


async def taskflux(peer: Peer, plan: Plan) -> Figures:
    await start_fresh(peer)
    found = ADDRESS.search(peer.log.read_text(errors="replace"))
    if found is None:
        raise PeerFailed("the ready line has no taskflux=HOST:PORT")
    port, count = int(found[1]), plan.count(RECORDS)
    idle = await open_idle(port, plan.count(IDLE, least=100))
    idle_mb = peer.memory().resident_bytes / 1e6
    for writer in idle:
        writer.close()
    await create_queue(port)
    rates: dict[str, list[float]] = {"publish": [], "enqueue": [], "fresh": [], "stored": []}
    for _ in range(TURNS):
        await until_quiet(peer)
        rates["publish"].append((await publish_all(peer, Load(), count=count))["rate"])
        await until_quiet(peer)
        rates["enqueue"].append(await pipelined(port, ENQUEUE, ENQUEUED, count))
        rates["fresh"].append(await pipelined(port, DEQUEUE, DEQUEUED, count))
        await pipelined(port, ENQUEUE, ENQUEUED, count)
        await until_quiet(peer)
        rates["stored"].append(await pipelined(port, DEQUEUE, DEQUEUED, count))
    return {
        **{f"{name}_rate": median(values) for name, values in rates.items()},
        **{f"{name}_ratio": ratio(rates[name], rates["publish"]) for name in ("enqueue", "fresh", "stored")},
        "idle_count": float(len(idle)),
        "idle_mb": idle_mb,
    }


def ratio(rates: list[float], others: list[float]) -> float:
    """The median of the turns' ratios."""
    return median(mine / other for mine, other in zip(rates, others, strict=True))


async def create_queue(port: int) -> None:
    """Make the queue of the measured records."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HELLO + encode([CreateQueue("w10")], SPEC))
    if await reader.readexactly(len(WELCOME) + 1) != WELCOME + b"k":
        raise PeerFailed("the queue was not made")
    writer.close()


COLUMNS = (
    Column("publish_rate", "PUB/s"),
    Column("enqueue_rate", "Enqueue+Ack/s"),
    Column("enqueue_ratio", "to PUB", ".2f"),
    Column("fresh_rate", "Dequeue+Ack/s"),
    Column("fresh_ratio", "to PUB", ".2f"),
    Column("stored_rate", "the same, stored before"),
    Column("stored_ratio", "to PUB", ".2f"),
    Column("idle_count", "idle"),
    Column("idle_mb", "MB with them", ".0f"),
    *NOISE,
)
WORKLOADS = (
    Workload("W10", "TaskFlux beside JSON, 8 connections, 64 in flight", taskflux, COLUMNS, ("wakeq",), repeats=False),
)
