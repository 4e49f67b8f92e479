"""A power cut of a whole cluster: every answered publish is on the disks of a majority.

All nodes have their data on one disk, whose power can be cut: they lose what they have not synced in the same moment,
and none of them can be asked what it was.  WAKEQ_CUTS sets the number of cuts, WAKEQ_SEED their moments.
"""

import asyncio
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.clusters.processes import Cluster
from tests.helpers.disks import power_cut
from tests.helpers.disks.power_cut import LoopDisk
from tests.helpers.loads.crash_loop import crash_loop

CUTS = int(os.environ.get("WAKEQ_CUTS", "500" if "SOAK" in os.environ else "3"))
OPS_PER_S_MIN = 100


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    reason = power_cut.unavailable_reason()
    if reason:
        pytest.skip(reason)
    with LoopDisk(tmp_path, size_bytes=1 << 30) as disk:
        yield disk


@pytest.mark.long
def test_power_cuts_of_all_nodes_at_once_lose_nothing(disk: LoopDisk, tmp_path: Path) -> None:
    seed = int(os.environ.get("WAKEQ_SEED", random.SystemRandom().randrange(10**6)))
    print(f"seed {seed}, {CUTS} cuts")
    draw = random.Random(seed)
    cluster = Cluster(disk.path)

    async def cut() -> None:
        disk.cut(draw)
        for node in cluster.nodes:
            node.kill()
        disk.power_on()
        for node in cluster.nodes:
            node.launch()
        for node in cluster.nodes:
            await asyncio.to_thread(node.wait_ready)

    with cluster:
        outcome = asyncio.run(
            crash_loop(cluster, crashes=CUTS, seed=seed, crash=cut, up_s=(0.3, 1.0), ledger=tmp_path / "ledger.jsonl")
        )

    print(outcome.explain())
    outcome.demand_nothing_broken()
    outcome.demand_valid(ops_per_s_min=OPS_PER_S_MIN)
