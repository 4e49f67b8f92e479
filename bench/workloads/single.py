"""W3, W4, W4B: one thing at a time.  What one client waits for, and how long an idle worker takes to have a
message."""

import asyncio
import time
from itertools import pairwise
from statistics import median, quantiles

from bench.load.clients import Caller, connect
from bench.load.flow import Load
from bench.peers.peer import Peer
from bench.peers.wakeq import Wakeq, WakeqWaiter
from bench.workloads.workload import NOISE, Column, Figures, Plan, Workload, start_fresh

WARM_UP = 20
TRIES = 500
DOZE_S = 0.003  # long enough for the worker to be known as idle


def p99(values: list[float]) -> float:
    return quantiles(values, n=100)[98]


async def cycles(peer: Peer, plan: Plan) -> Figures:
    """Publish, fetch, acknowledge; each step begins when the one before was answered."""
    await start_fresh(peer)
    client, body = await peer.caller(), Load().body
    for _ in range(WARM_UP):
        await one_cycle(client, body)
    meter, ends_at = peer.meter(), time.perf_counter() + plan.seconds
    steps = []
    while time.perf_counter() < ends_at:
        steps.append(await one_cycle(client, body))
    figures = meter.stop(len(steps))
    client.close()
    for name, values in zip(("publish_us", "fetch_us", "ack_us"), zip(*steps, strict=True), strict=True):
        figures[name] = median(values)
    return figures


async def one_cycle(client: Caller, body: bytes) -> tuple[float, float, float]:
    """Microseconds of the three steps."""
    moments = [time.perf_counter()]
    await client.publish(body)
    moments.append(time.perf_counter())
    handle = await client.fetch()
    moments.append(time.perf_counter())
    await client.ack(handle)
    moments.append(time.perf_counter())
    publish, fetch, ack = ((after - before) * 1e6 for before, after in pairwise(moments))
    return publish, fetch, ack


async def wakes(peer: Peer, plan: Plan) -> Figures:
    await start_fresh(peer)
    return await measure_wakes(peer, await peer.caller(), plan)


async def wakes_by_wait(peer: Peer, plan: Plan) -> Figures:
    """wakeq's worker waits inside of its FET; the others wait as they always do."""
    await start_fresh(peer)
    if isinstance(peer, Wakeq):
        return await measure_wakes(peer, await connect(WakeqWaiter(), peer.port), plan)
    return await measure_wakes(peer, await peer.caller(), plan)


async def measure_wakes(peer: Peer, worker: Caller, plan: Plan) -> Figures:
    publisher, body = await peer.caller(), Load().body
    meter, taken = peer.meter(), []
    for _ in range(WARM_UP + plan.count(TRIES, least=20)):
        taken.append(await one_wake(publisher, worker, body))
    figures = meter.stop(len(taken))
    publisher.close()
    worker.close()
    return figures | {"p50_us": median(taken[WARM_UP:]), "p99_us": p99(taken[WARM_UP:])}


async def one_wake(publisher: Caller, worker: Caller, body: bytes) -> float:
    """Microseconds from the call of publish to the message in the worker's hand."""
    await worker.doze()
    woken = asyncio.create_task(_wake(worker))
    await asyncio.sleep(DOZE_S)
    began = time.perf_counter()
    await publisher.publish(body)
    handle, at = await woken
    await worker.ack(handle)
    return (at - began) * 1e6


async def _wake(worker: Caller) -> tuple[object, float]:
    handle = await worker.wake()
    return handle, time.perf_counter()


CYCLES = (
    Column("rate", "cycles/s", compared=True),
    Column("per_cpu", "per server-CPU-s", compared=True),
    Column("publish_us", "publish p50 us"),
    Column("fetch_us", "fetch p50 us"),
    Column("ack_us", "ack p50 us"),
    Column("generator", "generator %"),
    *NOISE,
)
WAKES = (Column("p50_us", "wake p50 us", compared=True), Column("p99_us", "wake p99 us"), *NOISE)
ONE_BY_ONE = (
    "wakeq",
    "wakeq-three",
    "toy-group",
    "beanstalkd-f0",
    "redis-list-always",
    "rabbit-quorum",
    "rabbit-classic",
)
WORKLOADS = (
    Workload("W3", "one client, one thing at a time", cycles, CYCLES, ONE_BY_ONE),
    Workload("W4", "wake an idle worker (wakeq: SUB, ISLP, awk, FET)", wakes, WAKES, ONE_BY_ONE),
    Workload("W4B", "wake an idle worker (wakeq: FET with wait)", wakes_by_wait, WAKES, ONE_BY_ONE),
)
