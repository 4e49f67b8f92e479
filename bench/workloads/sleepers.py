"""W5: thousands of idle workers.  What each one costs, how soon one of them wakes, and what it takes to
lose them all.

The workers live in a process of their own (bench/load/workers.py), so that the pings of the measuring process show
the server's stalls and not those of the generator.
"""

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process
from statistics import median

from bench.load.clients import Caller, PeerFailed
from bench.load.flow import Load
from bench.machine import sync_p50_us
from bench.peers.peer import REPOSITORY, Peer
from bench.workloads.workload import NOISE, Column, Figures, Plan, Workload, start_fresh

SLEEPERS = 15_000
ASLEEP_S_MAX = 120.0
WAKE_TRIES = 20
WAKE_S_MAX = 5.0
STALL_AFTER_S = 3.0  # for how long we look for stalls after the workers are gone
PING_EVERY_S = 0.0005


async def sleepers(peer: Peer, plan: Plan) -> Figures:
    await start_fresh(peer)
    client = await peer.caller()
    await client.declare()
    await asyncio.sleep(1)
    empty, count = peer.memory(), plan.count(SLEEPERS, least=100)
    began = time.perf_counter()
    workers = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.load.workers", peer.name, str(peer.port), str(count)),
        stdin=PIPE,
        stdout=PIPE,
        cwd=REPOSITORY,
    )
    try:
        await said(workers, "asleep", ASLEEP_S_MAX)
        figures = {"count": float(count), "connects_rate": count / (time.perf_counter() - began)}
        await asyncio.sleep(1)
        figures |= idle_cost(peer, empty.resident_bytes, count)
        figures["idle_cpu"] = await idle_cpu(peer)
        figures |= await wake_times(peer, client, workers)
        figures |= await stall_when_lost(client, workers)
    finally:
        if workers.returncode is None:
            workers.kill()
        await workers.wait()
    client.close()
    return figures


def idle_cost(peer: Peer, empty_bytes: int, count: int) -> Figures:
    return {"kb_each": (peer.memory().resident_bytes - empty_bytes) / count / 1024}


async def idle_cpu(peer: Peer) -> float:
    meter = peer.meter()
    await asyncio.sleep(2)
    return meter.stop(0)["server"]


async def said(workers: Process, word: str, within_s: float) -> float:
    """Wait for a line of the workers' process that begins with this word, and return its number."""
    assert workers.stdout is not None
    reply = (await asyncio.wait_for(workers.stdout.readline(), within_s)).decode()
    if not reply.startswith(word):
        raise PeerFailed(f"the workers should have said {word}, not {reply.strip() or 'nothing'}")
    return float(reply.split()[1])


async def wake_times(peer: Peer, client: Caller, workers: Process) -> Figures:
    """Publish one message, and see when one worker has it; then whether anybody else woke up."""
    taken_ms = []
    for _ in range(WAKE_TRIES):
        began = time.perf_counter()
        await client.publish(Load().body)
        taken_ms.append((await said(workers, "awake", WAKE_S_MAX) - began) * 1e3)
        await asyncio.sleep(0.05)
    sync_ms = sync_p50_us(peer.folder.parent) / 1e3
    return {"wake_ms": median(taken_ms), "wake_beyond_ms": max(0.0, median(taken_ms) - sync_ms)}


async def stall_when_lost(client: Caller, workers: Process) -> Figures:
    """Ping without pause; then all workers hang up at once.  The longest answer is the longest stall."""
    quiet_ms = await longest_ping_ms(client, 1.0)
    assert workers.stdin is not None
    workers.stdin.close()  # they close their connections and end
    return {"stall_ms": await longest_ping_ms(client, STALL_AFTER_S), "stall_quiet_ms": quiet_ms}


async def longest_ping_ms(client: Caller, seconds: float) -> float:
    longest, ends_at = 0.0, time.perf_counter() + seconds
    while (began := time.perf_counter()) < ends_at:
        await client.ping()
        longest = max(longest, time.perf_counter() - began)
        await asyncio.sleep(PING_EVERY_S)
    return longest * 1e3


COLUMNS = (
    Column("count", "workers"),
    Column("kb_each", "KB each", ".1f", compared=True),
    Column("connects_rate", "connects/s"),
    Column("idle_cpu", "idle CPU %", ".1f"),
    Column("wake_ms", "wake ms", ".2f"),
    Column("wake_beyond_ms", "beyond a sync ms", ".2f"),
    Column("stall_ms", "stall ms", ".1f"),
    Column("stall_quiet_ms", "before ms", ".1f"),
    *NOISE,
)
WORKLOADS = (
    Workload(
        "W5", "idle sleeping workers", sleepers, COLUMNS,
        ("wakeq", "toy-group", "beanstalkd-f50", "redis-list-always", "rabbit-quorum"), repeats=False,
    ),
)  # fmt: skip
