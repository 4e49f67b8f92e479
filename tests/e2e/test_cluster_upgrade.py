"""A cluster is upgraded one node at a time under load: nodes of neighbouring releases are one broker.

The release before is played by `tests/helpers/older_node.py`.  WAKEQ_SEED sets the moments.
"""

import asyncio
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.broker_process import THIS_RELEASE, BrokerProcess
from tests.helpers.cluster import Cluster
from tests.helpers.crash_loop import crash_loop
from tests.helpers.history import History
from tests.helpers.line_client import LineClient
from tests.helpers.started import eventually
from wakeq.protocol.log.level import LEVEL

THE_RELEASE_BEFORE = (sys.executable, "-m", "tests.helpers.older_node", "serve")
OPS_PER_S_MIN = 100
ROUNDS = 100 if "SOAK" in os.environ else 1  # there and back, before the cluster is upgraded for good


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    for node in made.nodes:
        node.command = THE_RELEASE_BEFORE
    with made:
        yield made


def stop(node: BrokerProcess) -> None:
    assert node.terminate() == 0, node.stderr


def level_of(cluster: Cluster) -> Any:
    with LineClient(cluster.leader().worker_address) as client:
        return client.ask("CLUSTER")["cluster"]["level"]


def ask_for_news(cluster: Cluster) -> dict[str, Any]:
    """Ask for something that came with this release; the leader may change meanwhile."""
    answers: list[dict[str, Any]] = []

    def is_answered() -> bool:
        with LineClient(cluster.leader().worker_address) as client:
            client.ask("PUB", "new", message="m")
            answers.append(client.ask("UPDATE", "new", wake="sleeper"))
        return answers[-1].get("err") not in ("UNKNOWN", "NOT_LEADER", "NO_QUORUM", "Q_NOT_FOUND")

    eventually(is_answered, "a leader answers")
    return answers[-1]


@pytest.mark.long
def test_nodes_are_upgraded_one_by_one_and_back_under_load_and_nothing_is_lost(
    cluster: Cluster, tmp_path: Path
) -> None:
    seed = int(os.environ.get("WAKEQ_SEED", random.SystemRandom().randrange(10**6)))
    print(f"seed {seed}")
    first, second, third = cluster.nodes
    history = History()
    there_and_back = [(first, THIS_RELEASE), (first, THE_RELEASE_BEFORE)]
    steps = iter([*there_and_back * ROUNDS, *((node, THIS_RELEASE) for node in (first, second, third))])

    async def step() -> None:
        node, release = next(steps)
        assert level_of(cluster) == LEVEL - 1
        assert ask_for_news(cluster)["err"] in ("OLDER_NODES", "BAD_FIELD")  # the latter if the older release leads
        history.crash()  # the moment that counts: what a leader delivered last may be delivered again
        await asyncio.to_thread(stop, node)
        node.command = release
        node.launch()  # not in a thread: it would end with it
        await asyncio.to_thread(node.wait_ready)

    outcome = asyncio.run(
        crash_loop(
            cluster,
            crashes=2 * ROUNDS + 3,
            seed=seed,
            crash=step,
            up_s=(0.2, 0.6),
            ledger=tmp_path / "ledger.jsonl",
            history=history,
        )
    )

    print(outcome.explain())
    outcome.demand_nothing_broken()
    outcome.demand_valid(ops_per_s_min=OPS_PER_S_MIN)
    eventually(lambda: level_of(cluster) == LEVEL, "the cluster works at the level of this release")
    assert ask_for_news(cluster).get("err") is None
    refuse_the_release_before(cluster)


def refuse_the_release_before(cluster: Cluster) -> None:
    """Once something of this release may be in the log, there is no way back, and a node says so."""
    node = cluster.followers()[0]
    eventually(lambda: caught_up(cluster), "every node has the new level in its log")
    stop(node)
    node.command = THE_RELEASE_BEFORE

    assert node.run_to_end() == 66, node.stderr

    assert f"the cluster works at level {LEVEL}, this release knows levels up to {LEVEL - 1}" in node.stderr


def caught_up(cluster: Cluster) -> bool:
    with LineClient(cluster.leader().worker_address) as client:
        return all(member["behind_bytes"] == 0 for member in client.ask("CLUSTER")["cluster"]["members"])
