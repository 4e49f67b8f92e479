"""W1, W2, W2B: as much as goes through, from eight connections (or sixteen), with 64 requests in flight on
each."""

from bench.load.flow import Flow, Load
from bench.peers.peer import Peer
from bench.workloads.workload import (
    COST,
    NOISE,
    Column,
    Figures,
    Plan,
    Workload,
    live_all,
    publish_all,
    start_fresh,
)

BACKLOG_MAX = 5_000
BATCHES_IN_FLIGHT = 8
RATES = (
    Column("rate", "messages/s", compared=True),
    Column("per_cpu", "per server-CPU-s", compared=True),
    *COST,
    *NOISE,
)


async def lives(peer: Peer, plan: Plan) -> Figures:
    await start_fresh(peer)
    return await live_all(peer, Flow(seconds=plan.seconds, backlog_max=BACKLOG_MAX), Load())


async def publishes(peer: Peer, plan: Plan) -> Figures:
    await start_fresh(peer)
    return await publish_all(peer, Load(), seconds=plan.seconds)


async def batch_publishes(peer: Peer, plan: Plan) -> Figures:
    """Peers without batches publish one by one: theirs is the rate to compare with."""
    await start_fresh(peer)
    load = Load(batch=peer.batch_max, window=BATCHES_IN_FLIGHT) if peer.batch_max > 1 else Load()
    return await publish_all(peer, load, seconds=plan.seconds)


DURABLE = (
    "wakeq", "wakeq-three", "toy-group", "redis-list-always", "beanstalkd-f50", "beanstalkd-f0",
    "rabbit-quorum", "rabbit-classic",
)  # fmt: skip
WORKLOADS = (
    Workload("W1", "lives (publish, fetch, acknowledge), 8 + 8 connections", lives, RATES, DURABLE),
    Workload("W2", "publish only, one by one, 8 connections", publishes, RATES, DURABLE),
    Workload("W2B", "publish only, wakeq in batches of 100", batch_publishes, RATES, ("wakeq", "toy-group")),
)
