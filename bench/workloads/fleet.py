"""W12: a fleet of workers.  Each connection publishes, fetches and acknowledges, one command at a time, as most
programs do; nothing is batched but what the server gathers by itself.

The figure to compare is the server's CPU for one life.  The generator takes about 25 us of its own, two thirds of them
in the kernel, so a fast server and the generator are equally busy.
"""

import asyncio
import time
from functools import partial

from bench.load.clients import PeerFailed
from bench.load.flow import QUEUE, Flow, Load
from bench.peers.peer import Peer, close_all
from bench.workloads.workload import COST, DRAIN_S_MAX, NOISE, Column, Figures, Plan, Workload, cpu_us, start_fresh

QUEUES = 100
WARM_UP_SHARE = 0.25  # of the measured time
WAVE_S_MAX = 60.0
LOOK_EVERY_S = 0.005


async def fleet(peer: Peer, plan: Plan, *, connections: int, queues: tuple[str, ...] = (QUEUE,)) -> Figures:
    """Lives while all connections are at work; neither their first steps nor their last ones count."""
    await start_fresh(peer)
    flow = Flow()
    members = await peer.members(plan.count(connections, least=1), flow, Load(queues=queues))
    warm_up_s = plan.seconds * WARM_UP_SHARE
    for number, member in enumerate(members):  # one after the other: a fleet does not march in step
        asyncio.get_running_loop().call_later(warm_up_s / 2 * number / len(members), member.begin)
    await asyncio.sleep(warm_up_s)
    await until_ended(flow, len(members))
    meter, before = peer.meter(), flow.finished
    await asyncio.sleep(plan.seconds)
    await until_ended(flow, before + len(members))
    figures = meter.stop(flow.finished - before)
    flow.close()
    await asyncio.wait_for(flow.all_finished(), DRAIN_S_MAX)  # raises what has failed meanwhile
    close_all(members)
    return figures | {"cpu_us": cpu_us(figures)}


async def until_ended(flow: Flow, lives: int) -> None:
    """Return when so many lives have ended, or one has failed.

    A server that syncs for each command serves all publishes, then all acknowledgements: one such wave is the least
    that says anything.
    """
    gives_up_at = time.perf_counter() + WAVE_S_MAX
    while flow.finished < lives and not flow.closed:
        if time.perf_counter() > gives_up_at:
            raise PeerFailed(f"only {flow.finished} of {lives} lives ended in {WAVE_S_MAX:g} s")
        await asyncio.sleep(LOOK_EVERY_S)


COLUMNS = (
    Column("rate", "lives/s", compared=True),
    Column("cpu_us", "server CPU us a life", ".1f", compared=True),
    *COST,
    *NOISE,
)
MANY_QUEUES = (QUEUE, *(f"{QUEUE}-{number}" for number in range(1, QUEUES)))
FLEETS = ("wakeq", "wakeq-numbered", "toy-group", "redis-list-always", "beanstalkd-f0")
WORKLOADS = (
    Workload("W12A", "a fleet of 1 connection", partial(fleet, connections=1), COLUMNS, FLEETS),
    Workload("W12B", "a fleet of 16 connections", partial(fleet, connections=16), COLUMNS, FLEETS),
    Workload("W12C", "a fleet of 200 connections", partial(fleet, connections=200), COLUMNS, FLEETS),
    Workload("W12D", "a fleet of 1,000 connections", partial(fleet, connections=1_000), COLUMNS, FLEETS),
    Workload(
        "W12E", f"a fleet of 1,000 connections over {QUEUES} queues",
        partial(fleet, connections=1_000, queues=MANY_QUEUES), COLUMNS,
        tuple(name for name in FLEETS if name != "toy-group"),  # it has one queue
    ),
)  # fmt: skip
