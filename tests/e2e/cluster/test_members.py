"""The life of a cluster under an operator: nodes join and leave, leadership moves, disks are lost and replaced."""

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.brokers.process import BrokerProcess, status_of
from tests.helpers.brokers.sized import sized
from tests.helpers.clients.lines import LineClient
from tests.helpers.clusters.processes import Cluster
from tests.helpers.loads.crash_loop import CUTS_OFTEN_MS, crash_loop
from tests.helpers.programs.started import eventually
from wakeq import Client

SMALL_FILES = sized(segment_bytes_max=1 << 20, snapshot_bytes_min=1 << 20, flush_after_ms=CUTS_OFTEN_MS)
OPS_PER_S_MIN = 100


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, command=SMALL_FILES) as made:
        yield made


def test_new_nodes_that_are_started_one_after_another_are_each_ready_before_the_next(tmp_path: Path) -> None:
    """As a StatefulSet starts pods unless it is told to start all at once."""
    cluster = Cluster(tmp_path)
    try:
        for node in cluster.nodes[:2]:
            node.start()
            for path in ("/livez", "/readyz"):
                eventually(lambda: status_of(node, path) == 200, f"{path} of a new node")  # noqa: B023
            assert status_of(node, "/readyz?leader") == 503
        with LineClient(cluster.nodes[0].worker_address) as client:
            answer = client.ask("LIST")
        assert answer["err"] == "NOT_LEADER"
        assert "a new cluster begins once every node of it has been up" in answer["detail"]
        cluster.nodes[2].start()

        cluster.leader()
    finally:
        cluster.close()


def wakeq(*arguments: str, status: int = 0) -> str:
    """Run a verb of the command line; return what it printed."""
    done = subprocess.run([sys.executable, "-m", "wakeq", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == status, (arguments, done.stdout, done.stderr)
    return done.stdout + done.stderr


def view_of(node: BrokerProcess) -> dict[str, Any]:
    with LineClient(node.worker_address) as client:
        return dict(client.ask("CLUSTER")["cluster"])


def role_of(node: BrokerProcess) -> str:
    """Return a node's role, empty while it does not answer: it may be starting again from its leader's state."""
    try:
        return str(view_of(node)["role"])
    except OSError:
        return ""


def fill(cluster: Cluster, batches: int, bodies: int = 200, body_bytes: int = 1000) -> list[str]:
    """Publish; return the uids."""
    with Client(cluster.addresses) as client:
        return [uid for _ in range(batches) for uid in client.publish_many("q", ["x" * body_bytes] * bodies)]


def held(node: BrokerProcess) -> int:
    """Return how many messages the queue of the test has, by the node that serves."""
    with LineClient(node.worker_address) as client:
        return int(client.ask("STATS", "q")["stats"]["size"])


def make_lead(cluster: Cluster, node: BrokerProcess) -> None:
    """Have a node lead, once it can."""
    number = str(cluster.nodes.index(node))
    if cluster.leader() is not node:
        wakeq("--broker", cluster.addresses, "cluster", "transfer", number)
        assert cluster.leader() is node


def test_leadership_moves_when_an_operator_asks(cluster: Cluster) -> None:
    uids = fill(cluster, 1)
    heir = cluster.followers()[0]

    make_lead(cluster, heir)

    assert held(heir) == len(uids)
    facts = json.loads(wakeq("--broker", heir.address, "cluster", "status", "--json"))
    assert (facts["role"], facts["node"], facts["serves"]) == ("leader", cluster.nodes.index(heir), True)
    assert [member["behind_bytes"] for member in facts["members"]] == [0, 0, 0]


def test_leader_that_shuts_down_transfers_leadership_first(cluster: Cluster) -> None:
    leader = cluster.leader()
    others = [node for node in cluster.nodes if node is not leader]
    term = view_of(leader)["term"]
    with Client(cluster.addresses) as client:
        client.publish("q", "before")

        assert leader.terminate() == 0
        client.publish("q", "after")

    assert view_of(cluster.leader(others))["term"] == term + 1, "the heir was elected at once, and alone"
    assert held(cluster.leader(others)) == 2


def test_node_that_was_away_for_long_gets_a_snapshot(cluster: Cluster) -> None:
    away = cluster.followers()[0]
    away.kill()
    uids = fill(cluster, 40)
    leader = cluster.leader()
    eventually(lambda: segments(leader)[0] > "raft.log", "the log is sealed")
    eventually(lambda: is_cut(leader), "the log is cut")

    away.start()

    eventually(lambda: (away.data_dir / "consensus" / "raft.snapshot").exists(), f"the image has come\n{away.stderr}")
    eventually(lambda: _keeps_up(cluster, away), "the node keeps up")
    make_lead(cluster, away)
    assert held(away) == len(uids)


def is_cut(node: BrokerProcess) -> bool:
    """Have an image written; it is of use once the state store has all of the sealed log."""
    wakeq("--broker", node.address, "cluster", "snapshot")
    return "raft.log.0000000000000000001" not in segments(node)


def segments(node: BrokerProcess) -> list[str]:
    return sorted(path.name for path in (node.data_dir / "consensus").glob("raft.log*"))[::-1]


def _keeps_up(cluster: Cluster, node: BrokerProcess) -> bool:
    number = cluster.nodes.index(node)
    member = next(member for member in view_of(cluster.leader())["members"] if member["node"] == number)
    return bool(member["is_connected"] and member["behind_bytes"] == 0)


def test_node_with_an_emptied_disk_may_not_vote_and_rejoins_as_a_new_node(cluster: Cluster) -> None:
    uids = fill(cluster, 2)
    lost = cluster.followers()[0]
    number = cluster.nodes.index(lost)
    lost.kill()
    shutil.rmtree(lost.data_dir)

    lost.launch()

    assert lost.wait() == 65, lost.stderr
    assert "is not the one that joined" in lost.stderr
    wakeq("--broker", cluster.addresses, "cluster", "remove", str(number), "--yes")
    wakeq("--broker", cluster.addresses, "cluster", "add", str(number), cluster.peer_addresses[number])
    shutil.rmtree(lost.data_dir)
    lost.extra_args = (*lost.extra_args, "--join")
    lost.start()
    eventually(lambda: role_of(lost) == "voter", f"it votes again\n{lost.stderr}")
    make_lead(cluster, lost)
    assert held(lost) == len(uids)


def test_old_copy_of_a_disk_is_refused_by_every_leader(cluster: Cluster, tmp_path: Path) -> None:
    lost, heir = cluster.followers()
    lost.terminate()
    copy = shutil.copytree(lost.data_dir, tmp_path / "copy")
    lost.start()
    eventually(lambda: _keeps_up(cluster, lost), "the node keeps up")
    fill(cluster, 2)
    eventually(lambda: _keeps_up(cluster, lost), "the node has acknowledged it")
    lost.terminate()
    shutil.rmtree(lost.data_dir)
    shutil.move(copy, lost.data_dir)
    make_lead(cluster, heir)

    lost.launch()

    assert lost.wait() == 65, lost.stderr
    assert "has lost what it acknowledged" in lost.stderr


def test_restored_backup_grows_into_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    """What three nodes held is brought back on new disks, by the steps of docs/operations/backup.md."""
    uids = fill(cluster, 3)
    host, port = cluster.leader().http_address
    backup = str(tmp_path / "backup")
    wakeq("--http", f"{host}:{port}", "backup", backup)
    for node in cluster.nodes:
        node.kill()
        shutil.rmtree(node.data_dir)
    first, *others = cluster.nodes

    wakeq("restore", backup, "--data-dir", str(first.data_dir), "--node", "0")
    first.start()

    assert cluster.leader([first]) is first
    assert held(first) == len(uids)
    for number, node in enumerate(others, 1):
        wakeq("--broker", first.address, "cluster", "add", str(number), cluster.peer_addresses[number])
        node.extra_args = (*node.extra_args, "--join")
        node.start()
        eventually(lambda node=node: role_of(node) == "voter", f"it votes\n{node.stderr}")  # type: ignore[misc]
    first.kill()
    assert held(cluster.leader(others)) == len(uids), "the two others have all of it"


def test_cluster_that_lost_its_majority_is_recovered_from_one_node_and_grows(cluster: Cluster) -> None:
    uids = fill(cluster, 2)
    left = cluster.followers()[0]
    eventually(lambda: _keeps_up(cluster, left), "the node keeps up")
    for node in cluster.nodes:
        node.kill()

    wakeq("cluster", "recover", "--from-this-node", "--yes", "--data-dir", str(left.data_dir))
    left.start()

    assert cluster.leader([left]) is left
    assert held(left) == len(uids)
    with Client(left.address) as client:
        client.publish("q", "it goes on")
    lost = next(node for node in cluster.nodes if node is not left)
    number = cluster.nodes.index(lost)
    shutil.rmtree(lost.data_dir)
    wakeq("--broker", left.address, "cluster", "add", str(number), cluster.peer_addresses[number])
    lost.extra_args = (*lost.extra_args, "--join")
    lost.start()
    eventually(lambda: role_of(lost) == "voter", f"it votes\n{lost.stderr}")


@pytest.mark.long
def test_members_that_join_and_leave_under_load_lose_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """One more joins; the leader is removed, emptied, and joins again; a follower goes for good."""
    seed = int(os.environ.get("WAKEQ_SEED", random.SystemRandom().randrange(10**6)))
    print(f"seed {seed}")
    acts = iter((add_one, renew_the_leader, remove_a_follower))

    outcome = asyncio.run(
        crash_loop(
            cluster,
            crashes=3,
            seed=seed,
            crash=lambda: next(acts)(cluster),
            up_s=(0.3, 0.8),
            ledger=tmp_path / "ledger.jsonl",
        )
    )

    print(outcome.explain())
    outcome.demand_nothing_broken()
    outcome.demand_valid(ops_per_s_min=OPS_PER_S_MIN)


async def add_one(cluster: Cluster) -> None:
    new = cluster.add()
    await join(cluster, new)


async def renew_the_leader(cluster: Cluster) -> None:
    """Remove the leader under load and add it again with an empty disk."""
    leader = cluster.leading
    await remove(cluster, leader)
    shutil.rmtree(leader.data_dir)
    leader.extra_args = (*leader.extra_args, "--join")
    await join(cluster, leader)


async def remove_a_follower(cluster: Cluster) -> None:
    await remove(cluster, next(node for node in cluster.nodes if node is not cluster.leading))


async def remove(cluster: Cluster, node: BrokerProcess) -> None:
    number = cluster.nodes.index(node)
    await by_hand("cluster", "remove", str(number), "--yes", broker=cluster)
    others = [other for other in cluster.nodes if other is not node]
    leader = await asyncio.to_thread(cluster.leader, others)
    assert number not in [member["node"] for member in view_of(leader)["members"]]
    await asyncio.to_thread(node.terminate)


async def join(cluster: Cluster, node: BrokerProcess) -> None:
    number = cluster.nodes.index(node)
    await by_hand("cluster", "add", str(number), cluster.peer_addresses[number], broker=cluster)
    node.launch()  # not in a thread: it would end with it
    await asyncio.to_thread(node.wait_ready)
    await asyncio.to_thread(eventually, lambda: role_of(node) == "voter", f"it votes\n{node.stderr}")


async def by_hand(*arguments: str, broker: Cluster) -> None:
    await asyncio.to_thread(wakeq, "--broker", broker.addresses, *arguments)
