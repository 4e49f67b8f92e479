"""A node that was removed and still runs: it knows, and takes no part until it is added again."""

import pytest

from tests.helpers.clusters.by_hand import ELECTION_S, HandCluster, HandNode, Operator
from wakeq.actors.sessions.operator_mail import Administer

Q = "q"


def ask(node: HandNode, what: str, number: int, address: str = "") -> None:
    node.raft_log.tell(Administer(node.runtime.spawn(Operator).asker, what, number, address))


@pytest.fixture
def removed(cluster: HandCluster, leader: HandNode) -> HandNode:
    """Return a node that was removed, and runs on."""
    leader.client().publish(Q)
    cluster.advance(0.5)
    found = cluster.others(leader)[0]
    ask(leader, "remove", found.number)
    cluster.advance(0.5)
    return found


def knows(node: HandNode) -> tuple[str, bool]:
    status = node.client().call("CLUSTER")["cluster"]
    return status["role"], status["serves"]


def test_removed_node_knows_that_it_is_removed(removed: HandNode) -> None:
    reply = removed.client().call("PUB", Q, message="m")

    assert knows(removed) == ("removed", False)
    assert reply["err"] == "NOT_LEADER"
    assert reply["detail"] == "this node was removed from the cluster; connect to another one"


def test_removed_node_does_not_campaign(removed: HandNode) -> None:
    term = removed.raft_log.core.term

    removed.network.advance(10 * ELECTION_S)

    assert type(removed.raft_log.core.role).__name__ == "Follower"
    assert removed.raft_log.core.term == term


def test_removed_node_is_told_again_after_a_restart(removed: HandNode) -> None:
    removed.kill()

    removed.network.bring_up(removed)

    assert knows(removed) == ("removed", False)


def test_absent_removed_node_is_told_when_it_reconnects(cluster: HandCluster, leader: HandNode) -> None:
    away = cluster.others(leader)[0]
    cluster.advance(0.5)
    away.kill()
    ask(leader, "remove", away.number)
    cluster.advance(0.5)

    cluster.bring_up(away)

    assert knows(away) == ("removed", False)


def test_removed_node_that_is_added_again_takes_part(cluster: HandCluster, leader: HandNode, removed: HandNode) -> None:
    ask(leader, "add", removed.number, f"node-{removed.number}:2603")
    cluster.advance(5)

    assert knows(removed) == ("voter", False)
    assert removed.client().call("PUB", Q, message="m")["leader"] == f"node-{leader.number}:2601"


def test_members_are_not_told_that_they_were_removed(cluster: HandCluster, leader: HandNode, removed: HandNode) -> None:
    cluster.advance(2 * ELECTION_S)

    members = [node for node in cluster.nodes if node is not removed]
    assert [knows(node)[0] for node in members if node is not leader] == ["voter"]
    assert knows(leader) == ("leader", True)
