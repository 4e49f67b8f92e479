"""W6: a million waiting messages of 1 KB.  The cost of one of them in memory and on disk, and how long a
restart takes."""

import asyncio
import time

from bench.load.clients import PeerFailed
from bench.machine import disk_bytes, is_lmdb
from bench.peers.peer import Peer
from bench.workloads.workload import (
    NOISE,
    Column,
    Figures,
    Plan,
    Workload,
    bulk_load,
    publish_all,
    start_fresh,
    until_quiet,
)

MESSAGES = 1_000_000
BODY_BYTES = 1_000
SLICE = 50_000
FILL_S_MAX = 180.0
LATE_SHARE = 20  # one in so many is published right before the server is killed
FETCH_S_MAX = 60.0


async def backlog(peer: Peer, plan: Plan) -> Figures:
    await start_fresh(peer)
    empty = peer.memory()
    figures = await fill(peer, plan.count(MESSAGES), body_bytes=BODY_BYTES)
    await until_quiet(peer)
    count, memory = figures["count"], peer.memory()
    figures |= {
        "resident_each": (memory.resident_bytes - empty.resident_bytes) / count,
        "own_each": (memory.own_bytes - empty.own_bytes) / count,
        "files_each": disk_bytes(peer.folder) / count,
    }
    if lmdb_bytes := disk_bytes(peer.folder, is_lmdb):
        figures["lmdb_each"] = lmdb_bytes / count
    if peer.recovers:
        await fill(peer, int(count) // LATE_SHARE, body_bytes=BODY_BYTES)
        figures["after_kill_s"] = await restart_s(peer, kill=True)
        figures["after_term_s"] = await restart_s(peer, kill=False)
    return figures


async def fill(
    peer: Peer,
    count: int,
    *,
    body_bytes: int,
    queues: tuple[str, ...] = ("bench",),
    most_s: float = FILL_S_MAX,
) -> Figures:
    """Publish the fastest way, in slices; a slow peer is cut short, for its figures are per message."""
    load = bulk_load(peer, body_bytes=body_bytes, queues=queues)
    published, wall_s, peak_bytes = 0.0, 0.0, 0
    while published < count and wall_s < most_s:
        done = await publish_all(peer, load, count=min(SLICE, count - int(published)))
        published += done["count"]
        wall_s += done["count"] / done["rate"]
        peak_bytes = max(peak_bytes, disk_bytes(peer.folder))
    return {"count": published, "fill_rate": published / wall_s, "files_peak_each": peak_bytes / published}


async def restart_s(peer: Peer, *, kill: bool) -> float:
    """Seconds from the start of the process to the first message in a client's hand."""
    await peer.stop(kill=kill)
    began = time.perf_counter()
    await peer.start(fresh=False)
    while True:
        client = await peer.caller()
        try:
            await asyncio.wait_for(client.fetch(), FETCH_S_MAX)
            return time.perf_counter() - began
        except PeerFailed:  # up, but not serving yet
            if time.perf_counter() - began > FETCH_S_MAX:
                raise
            await asyncio.sleep(0.01)
        finally:
            client.close()


COLUMNS = (
    Column("count", "messages"),
    Column("fill_rate", "fill/s"),
    Column("resident_each", "resident B each"),
    Column("own_each", "of it not file-backed"),
    Column("lmdb_each", "LMDB B each"),
    Column("files_each", "all files B each"),
    Column("files_peak_each", "at the peak"),
    Column("after_kill_s", "restart after SIGKILL s", ".2f"),
    Column("after_term_s", "after SIGTERM s", ".2f"),
    *NOISE[1:],
)
WORKLOADS = (
    Workload(
        "W6", "a backlog of messages of 1 KB", backlog, COLUMNS,
        ("wakeq", "beanstalkd-f50", "redis-list-always", "rabbit-quorum"), repeats=False,
    ),
)  # fmt: skip
