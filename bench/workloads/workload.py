"""Workload: the description of one measurement, and the pieces that several of them share.

A workload gets a peer that was not started yet and a Plan, and returns its figures by name.  The runner
stops the server and removes its files, whatever happened.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bench.load.flow import Flow, Load
from bench.peers.peer import Peer, close_all

Figures = dict[str, float]
PRODUCERS = CONSUMERS = 8
SETTLE_S = 0.3
DRAIN_S_MAX = 120.0
QUIET_CPU_SHARE = 0.05
QUIET_S_MAX = 90.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How long, and how large.  `scale` shrinks what is counted; `full` adds what takes very long."""

    seconds: float
    scale: float = 1.0
    full: bool = False

    def count(self, full_count: int, *, least: int = 1_000) -> int:
        return max(least, int(full_count * self.scale) // least * least)


@dataclass(frozen=True, slots=True)
class Column:
    """`compared` adds a column with the ratio to the yardstick."""

    figure: str
    title: str
    form: str = ",.0f"
    compared: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    title: str
    run: Callable[[Peer, Plan], Awaitable[Figures]]
    columns: tuple[Column, ...]
    peers: tuple[str, ...]  # where it makes sense
    repeats: bool = True  # False: once is enough, whatever --rounds says


COST = (
    Column("server", "server %"),
    Column("generator", "generator %"),
)
NOISE = (
    Column("other", "others %"),
    Column("sync_us", "fdatasync us"),
)


def cpu_us(figures: Figures) -> float:
    """Microseconds of the server's CPU for one of what was counted."""
    return figures["server"] / 100 / figures["rate"] * 1e6


async def start_fresh(peer: Peer) -> None:
    await peer.start()
    await asyncio.sleep(SETTLE_S)


async def publish_all(peer: Peer, load: Load, *, seconds: float | None = None, count: int | None = None) -> Figures:
    """Publish from all producers until time or count is up and every publish is confirmed."""
    flow = Flow(seconds=seconds, count=count)
    producers = await peer.producers(PRODUCERS, flow, load)
    meter = peer.meter()
    for producer in producers:
        producer.refill()
    await flow.all_confirmed()
    figures = meter.stop(flow.confirmed)
    close_all(producers)
    return figures


async def live_all(peer: Peer, flow: Flow, load: Load) -> Figures:
    """Publish, fetch and acknowledge side by side until all that was sent is finished."""
    producers = await peer.producers(PRODUCERS, flow, load)
    consumers = await peer.consumers(CONSUMERS, flow, load.window)
    meter = peer.meter()
    for consumer in consumers:
        consumer.begin()
    for producer in producers:
        producer.refill()
    await flow.all_confirmed()
    await asyncio.wait_for(flow.all_finished(), DRAIN_S_MAX)
    figures = meter.stop(flow.finished)
    close_all(producers, consumers)
    return figures


def bulk_load(peer: Peer, *, body_bytes: int, queues: tuple[str, ...] = ("bench",)) -> Load:
    """The fastest way to fill this peer."""
    if peer.batch_max > 1:
        return Load(body_bytes=body_bytes, batch=peer.batch_max, window=8, queues=queues)
    return Load(body_bytes=body_bytes, window=256, queues=queues)


async def until_quiet(peer: Peer) -> None:
    """Wait until the server has done what it does behind its answers: its CPU is idle for a second."""
    for _ in range(int(QUIET_S_MAX)):
        meter = peer.meter()
        await asyncio.sleep(1)
        if meter.stop(0)["server"] < QUIET_CPU_SHARE * 100:
            return
