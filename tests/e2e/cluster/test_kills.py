"""Nodes of a cluster are killed under load: answered publishes survive, and the other nodes continue.

WAKEQ_KILLS sets the number of kills of the long run, WAKEQ_SEED the moments at which they come.
"""

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.clusters.processes import SERVES_ON_S, Cluster
from tests.helpers.loads.crash_loop import Crash, Outcome, crash_loop

OPS_PER_S_MIN = 100
UP_S = (0.1, 0.5)  # from when somebody serves again
AWAY_S = (0.0, 1.5)  # shorter and longer than the others need to find a leader
KILLS = int(os.environ.get("WAKEQ_KILLS", "5000" if "SOAK" in os.environ else "40"))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as made:
        yield made


def run(cluster: Cluster, tmp_path: Path, crash: Crash, crashes: int) -> Outcome:
    seed = int(os.environ.get("WAKEQ_SEED", random.SystemRandom().randrange(10**6)))
    print(f"seed {seed}")  # shown with a failure: WAKEQ_SEED repeats its moments
    outcome = asyncio.run(
        crash_loop(cluster, crashes=crashes, seed=seed, crash=crash, up_s=UP_S, ledger=tmp_path / "ledger.jsonl")
    )
    print(outcome.explain())
    outcome.demand_nothing_broken()
    outcome.demand_valid(ops_per_s_min=OPS_PER_S_MIN)
    return outcome


async def pause_the_leader(cluster: Cluster) -> None:
    """Stop the leader until another node serves, then continue it."""
    paused = cluster.leading
    paused.send_signal(signal.SIGSTOP)
    others = [node for node in cluster.nodes if node is not paused]
    await asyncio.to_thread(cluster.leader, others)
    paused.send_signal(signal.SIGCONT)


@pytest.mark.long
def test_cluster_whose_nodes_are_killed_and_paused_loses_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """The kills hit one node (leader or follower), two or all; between kills the leader is paused."""
    draw = random.Random(os.environ.get("WAKEQ_SEED"))
    counts = [draw.choice((1, 1, 1, 2, 3)) for _ in range(KILLS)] + [0] * (KILLS // 10)
    draw.shuffle(counts)

    async def crash() -> None:
        count = counts.pop()
        if not count:
            await pause_the_leader(cluster)
            return
        victims = draw.sample(cluster.nodes, count)
        for node in victims:
            node.kill()
        if cluster.leading not in victims:  # it is perhaps left alone: what it hands out until it knows is forgotten
            asyncio.get_running_loop().call_later(SERVES_ON_S, cluster.stepped_down)
        await asyncio.sleep(draw.uniform(*AWAY_S))
        for node in victims:
            node.launch()
        for node in victims:
            await asyncio.to_thread(node.wait_ready)

    run(cluster, tmp_path, crash, len(counts))
