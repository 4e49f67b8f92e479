"""A node of a cluster whose disk is full leaves the cluster to the other nodes and returns once it has space."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.clients.lines import LineClient
from tests.helpers.clusters.processes import Cluster
from tests.helpers.programs.started import eventually
from wakeq import Client

SMALL_BYTES, LARGE_BYTES = 48 << 20, 256 << 20
BODY = "x" * 60_000
MESSAGES = 1_500  # more than a small disk holds


def mount(directory: Path, size_bytes: int, *options: str) -> None:
    what = ",".join((*options, f"size={size_bytes}"))
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", what, "tmpfs", str(directory)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a full disk needs root to mount a tmpfs: {done.stderr.strip()}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "small"
    directory.mkdir()
    mount(directory, SMALL_BYTES)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


@pytest.fixture
def cluster(tmp_path: Path, small_disk: Path) -> Iterator[Cluster]:
    """Return three nodes, of which the last one has a small disk."""
    made = Cluster(tmp_path)
    made.nodes[2].data_dir = small_disk / "data"
    with made:
        yield made


def member(cluster: Cluster, node: BrokerProcess) -> dict[str, Any]:
    with LineClient(cluster.leader().worker_address) as client:
        members = client.ask("CLUSTER")["cluster"]["members"]
    return dict(members[cluster.nodes.index(node)])


def make_follow(cluster: Cluster, node: BrokerProcess) -> None:
    if cluster.leader() is node:
        with Client(cluster.addresses) as client:
            client.cluster("transfer")
        eventually(lambda: cluster.leader() is not node, "another one leads")


@pytest.mark.long
def test_follower_with_a_full_disk_leaves_and_catches_up_once_it_has_space(cluster: Cluster, small_disk: Path) -> None:
    small = cluster.nodes[2]
    make_follow(cluster, small)

    with Client(cluster.addresses) as client:
        for _ in range(MESSAGES // 20):
            client.publish_many("q", [BODY] * 20)

    assert small.running, small.stderr
    assert "steps aside: its disk is full" in small.stderr
    assert member(cluster, small)["behind_bytes"] > 0
    mount(small_disk, LARGE_BYTES, "remount")
    eventually(lambda: member(cluster, small)["behind_bytes"] == 0, f"it keeps up again\n{small.stderr}")
    assert "takes part again" in small.stderr
