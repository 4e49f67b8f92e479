"""Images of the state between nodes: who lacks what was cut off gets one, whatever has become of it on the way."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.hand_cluster import HandCluster, HandNode
from wakeq.actors.log_files import Cut
from wakeq.assembly import StateReplaced

Q = "q"
MESSAGES = 5


@pytest.fixture
def cluster(directory: Path) -> Iterator[HandCluster]:
    made = HandCluster(directory)
    made.start()
    yield made
    made.close()


@pytest.fixture
def leader(cluster: HandCluster) -> HandNode:
    found = cluster.leader()
    assert found is not None
    return found


@pytest.fixture
def straggler(cluster: HandCluster, leader: HandNode) -> HandNode:
    """A node that was away so long that the others have cut off what it lacks."""
    away = cluster.others(leader)[-1]
    away.kill()
    client = leader.client()
    leader.opened.log.segment_bytes_max = 1
    for _ in range(MESSAGES):
        client.publish(Q)
        cluster.advance(1.5)  # a cut of the state, and a segment is sealed
    assert client.call("CLUSTER", do="snapshot")["cmd"] == "cluster"
    leader.raft_log.tell(Cut(leader.queues.flushed_index))
    cluster.settle()
    assert leader.opened.log.first_index > 1
    return away


def size(node: HandNode) -> int:
    return node.queues._processes[Q].ledger.living


def let_it_come(cluster: HandCluster, node: HandNode) -> None:
    cluster.bring_up(node)
    cluster.advance(60.0)


def bring_back(cluster: HandCluster, node: HandNode) -> None:
    """Start a node, and let it begin again once it has been sent the state."""
    with pytest.raises(StateReplaced):
        let_it_come(cluster, node)
    node.failures.clear()
    node.kill()
    cluster.bring_up(node)
    cluster.advance(0.5)


def test_who_lacks_what_was_cut_off_is_sent_the_state(cluster: HandCluster, straggler: HandNode) -> None:
    bring_back(cluster, straggler)

    assert size(straggler) == MESSAGES


@pytest.mark.parametrize("offset", [20, -40], ids=["header", "body"])
def test_an_image_that_has_rotted_is_made_again(
    cluster: HandCluster, leader: HandNode, straggler: HandNode, offset: int
) -> None:
    path = leader.opened.snapshot_path
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)

    bring_back(cluster, straggler)

    assert size(straggler) == MESSAGES
