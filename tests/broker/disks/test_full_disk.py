"""A node of a cluster whose disk has hardly any room left: it leaves what is to be written to the others."""

from tests.helpers.clusters.by_hand import HandCluster, HandNode
from wakeq.actors.mail import OutOfRoom

Q = "q"


def step_aside(cluster: HandCluster, node: HandNode, *, on: bool) -> None:
    node.raft_log.tell(OutOfRoom(on))
    cluster.settle()


def test_follower_without_room_takes_nothing_and_the_others_go_on(cluster: HandCluster, leader: HandNode) -> None:
    full = cluster.others(leader)[0]
    step_aside(cluster, full, on=True)
    last_index = full.opened.log.last_index

    leader.client().publish(Q)
    cluster.advance(3.0)

    assert cluster.leader() is leader
    assert full.opened.log.last_index == last_index
    assert leader.opened.log.last_index > last_index


def test_follower_catches_up_once_it_has_room_again(cluster: HandCluster, leader: HandNode) -> None:
    full = cluster.others(leader)[0]
    step_aside(cluster, full, on=True)
    for _ in range(5):
        leader.client().publish(Q)
    cluster.advance(1.0)

    step_aside(cluster, full, on=False)
    cluster.advance(1.0)

    assert full.queues.processes.by_name[Q].ledger.columns.living == 5


def test_publish_is_refused_where_a_majority_has_no_room(cluster: HandCluster, leader: HandNode) -> None:
    """A client must not wait for an answer that cannot come."""
    client = leader.client()
    client.publish(Q)
    for other in cluster.others(leader):
        step_aside(cluster, other, on=True)
    cluster.advance(3.0)

    refused = [node.client().call("PUB", Q, message="m")["err"] for node in cluster.nodes]

    assert set(refused) <= {"NO_QUORUM", "NOT_LEADER"}
    for other in cluster.others(leader):
        step_aside(cluster, other, on=False)
    cluster.until(lambda: cluster.leader() is not None, "a node serves again")


def test_leader_without_room_lets_another_one_lead(cluster: HandCluster, leader: HandNode) -> None:
    leader.client().publish(Q)

    step_aside(cluster, leader, on=True)
    cluster.until(lambda: cluster.leader(cluster.others(leader)) is not None, "another node leads")

    found = cluster.leader(cluster.others(leader))
    assert found is not None
    assert found.client().call("PUB", Q, message="m")["cmd"] == "ok"
