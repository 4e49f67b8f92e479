"""W11: MoniQue over WebSocket: many subscribers, one message to all of them, and one who does not read.

Frames are prepared and counted by their size, for the generator shares the machine with what it measures.  A mask of
zeros leaves a client's frame as it is.
"""

import asyncio
import re
import time
from collections.abc import Callable
from statistics import median
from typing import cast

import msgspec

from bench.load.clients import PeerFailed
from bench.peers.peer import Peer
from bench.workloads.workload import NOISE, Column, Figures, Plan, Workload, start_fresh

SUBSCRIBERS = 1_000
HEARERS = 10  # of each message
MESSAGES_A_SECOND = 4_000
MESSAGE_BYTES = 200
TICK_S = 0.005
TO_ALL_ROUNDS = 30
SECONDS = 10.0  # of the paced run
ANSWER_S_MAX = 60.0
ADDRESS = re.compile(r"^wakeq ready .*?http=\S*:(\d+)", re.MULTILINE)
NO_MASK = bytes(4)
HELLO = (
    b"GET /monique HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
TO_ALL = "bench_all"


def client_frame(command: str, data: object) -> bytes:
    payload = msgspec.msgpack.encode({"command": command, "data": data})
    size = len(payload)
    head = bytes((0x82, 0x80 | size)) if size < 126 else bytes((0x82, 0xFE)) + size.to_bytes(2, "big")
    return head + NO_MASK + payload


def push_frame(spec: str) -> bytes:
    tag = f"data:{spec}:{'i' * 40}::bench"
    return client_frame("push_to_mq", {"tag": tag, "message": b"x" * MESSAGE_BYTES})


def spec_of(group: int) -> str:
    return f"bench_{group:04}"


class Client(asyncio.Protocol):
    """Shakes hands, says one thing, and counts the bytes behind the answer to it."""

    def __init__(self, first: bytes, came: Callable[[int], None]) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._first = first
        self._came = came
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(HELLO)

    def data_received(self, data: bytes) -> None:
        if self.ready.done():
            self._came(len(data))
            return
        self._head += data
        if self._first and self._head.endswith(b"\r\n\r\n"):
            if b" 101 " not in self._head:
                self.ready.set_exception(PeerFailed(f"no WebSocket: {self._head[:100]!r}"))
                return
            self.transport.write(self._first)
            self._head = self._first = b""
        elif not self._first:
            self.ready.set_result(None)  # subscribed; nothing else can have come before

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ready.done():
            self.ready.set_exception(PeerFailed(f"the server closed a connection ({error or 'end of stream'})"))


class Counter:
    """Counts frames of one size, and says when there are so many."""

    def __init__(self, frame_bytes: int) -> None:
        self._frame_bytes = frame_bytes
        self._bytes = 0
        self._wanted_bytes = 0
        self._reached: asyncio.Future[None] | None = None

    @property
    def frames(self) -> int:
        return self._bytes // self._frame_bytes

    def came(self, count: int) -> None:
        self._bytes += count
        if self._reached is not None and self._bytes >= self._wanted_bytes and not self._reached.done():
            self._reached.set_result(None)

    async def reaches(self, frames: int) -> None:
        self._wanted_bytes = frames * self._frame_bytes
        if self._bytes < self._wanted_bytes:
            self._reached = asyncio.get_running_loop().create_future()
            await asyncio.wait_for(self._reached, ANSWER_S_MAX)


async def connect(port: int, first: bytes, came: Callable[[int], None]) -> Client:
    client = Client(first, came)
    await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", port)
    await asyncio.wait_for(client.ready, ANSWER_S_MAX)
    return client


def pushed_bytes(spec: str) -> int:
    """How long the frame is that a subscriber gets for a push."""
    tag = f"data:{spec}:{'i' * 40}::bench"
    data = {"message": b"x" * MESSAGE_BYTES, "tag": tag}
    return 4 + len(msgspec.msgpack.encode({"command": "pushed_from_mq", "data": data}))


async def paced(pusher: Client, counter: Counter, groups: int, seconds: float) -> float:
    """Push at the asked rate, and wait until all of it is heard; return frames a second."""
    frames = [push_frame(spec_of(group)) for group in range(groups)]
    each_tick = int(MESSAGES_A_SECOND * TICK_S)
    before, pushed, began = counter.frames, 0, time.perf_counter()
    while (now := time.perf_counter()) < began + seconds:
        while pushed < (now - began) * MESSAGES_A_SECOND:
            pusher.transport.write(b"".join(frames[(pushed + number) % groups] for number in range(each_tick)))
            pushed += each_tick
        await asyncio.sleep(TICK_S)
    await counter.reaches(before + pushed * HEARERS)
    return pushed * HEARERS / (time.perf_counter() - began)


async def to_all(pusher: Client, counter: Counter, subscribers: int, rounds: int) -> list[float]:
    """How many milliseconds until the last of all subscribers has a message."""
    frame, taken_ms = push_frame(TO_ALL), []
    for _ in range(rounds):
        before, began = counter.frames, time.perf_counter()
        pusher.transport.write(frame)
        await counter.reaches(before + subscribers)
        taken_ms.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(0.02)
    return taken_ms


class Audience:
    """Those who listen: groups who hear their spec, and everybody who hears what is for all."""

    def __init__(self, port: int, subscribers: int) -> None:
        self.subscribers = subscribers
        self.groups = subscribers // HEARERS
        self.counter = Counter(pushed_bytes(spec_of(0)))
        self.all_counter = Counter(pushed_bytes(TO_ALL))
        self._port = port
        self._clients: list[Client] = []

    async def gather(self) -> None:
        for number in range(self.subscribers):
            await self.join(spec_of(number % self.groups), self.counter.came)
            await self.join(TO_ALL, self.all_counter.came)

    async def join(self, spec: str, came: Callable[[int], None]) -> Client:
        subscribe = client_frame("subscribe", [{"spec": spec, "type": "*"}])
        self._clients.append(await connect(self._port, subscribe, came))
        return self._clients[-1]

    def leave(self) -> None:
        for client in self._clients:
            client.transport.close()


async def heard(peer: Peer, pusher: Client, audience: Audience, seconds: float) -> Figures:
    """The paced run: frames by wall and by CPU, and how much the server has grown by it."""
    before_bytes, meter = peer.memory().resident_bytes, peer.meter()
    rate = await paced(pusher, audience.counter, audience.groups, seconds)
    figures = meter.stop(0)
    server_s = figures["server"] / 100 * seconds
    grown_mb = (peer.memory().resident_bytes - before_bytes) / 1e6
    return figures | {"frames": rate, "per_cpu": rate * seconds / max(server_s, 0.01), "grown_mb": grown_mb}


async def monique(peer: Peer, plan: Plan) -> Figures:
    await start_fresh(peer)
    found = ADDRESS.search(peer.log.read_text(errors="replace"))
    if found is None:
        raise PeerFailed("the ready line has no http=HOST:PORT")
    seconds, port = SECONDS * plan.scale, int(found[1])
    audience = Audience(port, plan.count(SUBSCRIBERS, least=100))
    await audience.gather()
    pusher = await connect(port, client_frame("subscribe", []), lambda _: None)
    await heard(peer, pusher, audience, min(1.0, seconds))
    figures = await heard(peer, pusher, audience, seconds)
    all_ms = await to_all(pusher, audience.all_counter, audience.subscribers, TO_ALL_ROUNDS)
    stopped = await audience.join("*", lambda _: None)
    stopped.transport.pause_reading()
    beside_ms = await to_all(pusher, audience.all_counter, audience.subscribers, TO_ALL_ROUNDS)
    beside = await heard(peer, pusher, audience, seconds)
    audience.leave()
    pusher.transport.close()
    return figures | {
        "count": float(audience.counter.frames),
        "all_ms": median(all_ms),
        "all_worst_ms": max(all_ms),
        "beside_mb": beside["grown_mb"],
        "beside_cpu_ratio": beside["per_cpu"] / figures["per_cpu"],
        "beside_ms_ratio": median(beside_ms) / median(all_ms),
    }


COLUMNS = (
    Column("frames", "frames/s"),
    Column("per_cpu", "per server-CPU-s"),
    Column("grown_mb", "MB grown", ".1f"),
    Column("all_ms", "ms to all", ".1f"),
    Column("all_worst_ms", "worst", ".1f"),
    Column("beside_cpu_ratio", "per server-CPU-s beside a stopped reader, to without", ".2f"),
    Column("beside_mb", "MB grown", ".1f"),
    Column("beside_ms_ratio", "ms to all, to without", ".2f"),
    Column("server", "server %"),
    Column("generator", "generator %"),
    *NOISE,
)
WORKLOADS = (
    Workload(
        "W11", "MoniQue: 1,000 subscribers, 4,000 messages/s to 10 each", monique, COLUMNS, ("wakeq",), repeats=False
    ),
)
