"""A leader whose disk does not answer, in a cluster of real processes: leadership moves while the disk hangs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.brokers.process import BrokerProcess, status_of
from tests.helpers.clients.lines import LineClient
from tests.helpers.clusters.processes import Cluster
from tests.helpers.disks.hanging import HangingDisk, unavailable_reason
from tests.helpers.programs.started import eventually
from wakeq import Client

Disks = dict[BrokerProcess, HangingDisk]


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    if reason := unavailable_reason():
        pytest.skip(reason)


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    return {}


@pytest.fixture
def cluster(tmp_path: Path, disks: Disks) -> Iterator[Cluster]:
    """Three nodes, each on a disk that can hang."""
    made = Cluster(tmp_path)
    for number, node in enumerate(made.nodes):
        disks[node] = HangingDisk(tmp_path / f"disk-{number}")
        node.prefix = disks[node].prefix
    with made:
        yield made


def others(cluster: Cluster, leader: BrokerProcess) -> list[BrokerProcess]:
    return [node for node in cluster.nodes if node is not leader]


def test_leadership_moves_while_the_leaders_disk_hangs(cluster: Cluster, disks: Disks) -> None:
    leader = cluster.leader()
    with Client(cluster.addresses) as client:
        client.publish("q", "before")
        ready = status_of(leader, "/readyz?leader")

        disks[leader].hang()
        uids = {client.publish("q", f"meanwhile {number}") for number in range(50)}
        cluster.leader(others(cluster, leader))
        eventually(lambda: status_of(leader, "/readyz") == 200, "the old leader knows the new one")
        follows = status_of(leader, "/readyz?leader")
        stats = client.stats("q")

    assert (ready, follows) == (200, 503)
    assert len(uids) == 50
    assert stats["published"] == 51  # what was UNKNOWN was repeated, and is there once
    assert "the disk does not answer: a write of the log has taken" in leader.stderr
    assert "transferring leadership to node" in leader.stderr


def test_former_leader_whose_disk_answers_again_follows_and_catches_up(cluster: Cluster, disks: Disks) -> None:
    leader = cluster.leader()
    with Client(cluster.addresses) as client:
        disks[leader].hang()
        client.publish_many("q", ["meanwhile"] * 50)
        new = cluster.leader(others(cluster, leader))

        disks[leader].answer()
        number = cluster.nodes.index(leader)
        eventually(lambda: client.cluster()["members"][number]["behind_bytes"] == 0, "the old leader has everything")
        still = cluster.leader()

    assert still is new
    assert leader.running


def test_single_broker_whose_disk_hangs_says_so_and_answers_afterwards(tmp_path: Path) -> None:
    disk = HangingDisk(tmp_path / "disk")
    broker = BrokerProcess(tmp_path / "data", prefix=disk.prefix)
    with broker, LineClient(broker.worker_address) as client:
        disk.hang()
        client.send({"cmd": "PUB", "qname": "q", "message": "meanwhile"})
        eventually(lambda: "the disk does not answer" in broker.stderr, "it says that its disk hangs")
        eventually(lambda: status_of(broker, "/readyz") == 503, "it is not ready")  # its first syncs are in the thread
        with LineClient(broker.worker_address) as late:
            refusal = late.ask("PUB", "q", message="late")
        disk.answer()

        assert client.recv()["cmd"] == "ok"
        assert refusal["err"] == "BUSY"
        assert "the disk of this node has not answered for" in refusal["detail"]
        eventually(lambda: client.ask("PUB", "q", message="after")["cmd"] == "ok", "it goes on")
