"""TaskFlux in a cluster: who says `NotLeader`, where it sends its clients, and what became of a lost Ack."""

from pathlib import Path

import pytest

from tests.helpers.clusters.by_hand import ELECTION_S, HandCluster, HandNode
from wakeq.protocol.wire.taskflux.commands import (
    ACK,
    NACK,
    OK,
    UNKNOWN_NODE,
    BusinessError,
    ClusterMetadataRequest,
    ClusterMetadataResponse,
    Count,
    CreateQueue,
    Dequeue,
    Enqueue,
    ListQueues,
    NotLeader,
    Record,
)

Q = "q"
ADDRESSES = ("node-0:2602", "node-1:2602", "node-2:2602")


@pytest.fixture
def leader(leader: HandNode) -> HandNode:
    """The leader, with a queue that is there and empty."""
    leader.client().publish(Q, "first")
    leader.client().call("PURGE", Q)
    return leader


def test_metadata_of_every_node_name_all_nodes_the_leader_and_itself(cluster: HandCluster, leader: HandNode) -> None:
    answers = [node.taskflux().ask(ClusterMetadataRequest()) for node in cluster.nodes]

    assert answers == [[ClusterMetadataResponse(ADDRESSES, leader.number, node.number)] for node in cluster.nodes]


def test_unknown_node_has_the_address_of_the_one_that_answers(directory: Path) -> None:
    cluster = HandCluster(directory)
    for node in cluster.nodes[:2]:
        cluster.bring_up(node)

    assert cluster.nodes[1].nodes().addresses == ("node-0:2602", "node-1:2602", "node-1:2602")
    cluster.close()


def test_follower_answers_not_leader_to_every_command_and_to_an_enqueue_after_its_ack(
    cluster: HandCluster, leader: HandNode
) -> None:
    flux = cluster.others(leader)[0].taskflux()
    away = NotLeader(leader.number)

    assert flux.ask(Enqueue(Q, 1, b"x")) == [OK]
    assert flux.ask(ACK) == [away]
    assert flux.ask(Enqueue(Q, 1, b"x"), NACK) == [OK, OK]
    for command in (Dequeue(Q), Count(Q), ListQueues(), CreateQueue("new", 0), Dequeue("missing"), Count("")):
        assert flux.ask(command) == [away]


def test_record_enqueued_at_one_leader_is_dequeued_at_the_next(cluster: HandCluster, leader: HandNode) -> None:
    assert leader.taskflux().ask(Enqueue(Q, 1, b"x"), ACK) == [OK, OK]
    leader.kill()
    others = cluster.others(leader)
    cluster.until(lambda: cluster.leader(others) is not None, "another node serves")
    heir = cluster.leader(others)
    assert heir is not None

    flux = heir.taskflux()

    assert flux.ask(Dequeue(Q)) == [Record(1, b"x")]
    assert flux.ask(ACK) == [OK]


def test_ack_at_a_cut_off_leader_is_answered_not_leader(cluster: HandCluster, leader: HandNode) -> None:
    flux = leader.taskflux()
    flux.ask(Enqueue(Q, 1, b"x"), ACK)
    flux.ask(Dequeue(Q))
    cluster.isolate(leader)

    early = flux.ask(ACK)
    cluster.advance(4 * ELECTION_S)

    assert early == []
    assert flux.take() == [NotLeader(UNKNOWN_NODE)]


def test_enqueue_at_a_cut_off_leader_is_answered_unknown(cluster: HandCluster, leader: HandNode) -> None:
    flux = leader.taskflux()
    cluster.isolate(leader)

    assert flux.ask(Enqueue(Q, 1, b"x"), ACK) == [OK]
    cluster.advance(4 * ELECTION_S)

    (answer,) = flux.take()
    assert isinstance(answer, BusinessError)
    assert answer.details.startswith("UNKNOWN")


def test_waiting_dequeue_is_answered_not_leader_when_the_leader_steps_down(
    cluster: HandCluster, leader: HandNode
) -> None:
    flux = leader.taskflux()
    flux.say(Dequeue(Q, 60_000))
    cluster.isolate(leader)

    cluster.advance(2 * ELECTION_S)

    assert flux.take() == [NotLeader(UNKNOWN_NODE)]
