"""Neighbourhood: of nodes that are no members nothing is kept once they are gone."""

import pytest

from tests.helpers.clusters.by_hand import CLUSTER_ID, HandCluster, HandNode, HandPeerDoor
from wakeq.actors.log.members import Introduced
from wakeq.actors.log.peer import Heard
from wakeq.protocol.raft.core import TERM_JUMP_MAX
from wakeq.protocol.raft.membership import LEVEL
from wakeq.protocol.raft.messages import Heartbeat, HeartbeatAnswer, RequestVote
from wakeq.protocol.wire.peer.frames import MARK, Hello

STRANGER = 7


class Door(HandPeerDoor):
    """A connection of somebody who is no node of this test; what is said to it is kept."""

    def __init__(self, cluster: HandCluster, node: HandNode) -> None:
        super().__init__(cluster, node, node)
        self.refusals: list[str] = []
        self.other = self

    def send(self, frames: object) -> None:
        pass

    def refuse(self, reason: str) -> None:
        self.refusals.append(reason)
        self.close(reason)


def come_in(cluster: HandCluster, node: HandNode, number: int, disk: int = 5) -> Door:
    door = Door(cluster, node)
    hello = Hello(MARK, LEVEL, LEVEL, CLUSTER_ID, number, disk, 9, {"worker": "evil:1"})
    node.raft_log.tell(Introduced(door, hello))
    node.runtime.run_until_idle()
    return door


def test_stranger_that_has_gone_is_forgotten(cluster: HandCluster, leader: HandNode) -> None:
    around = leader.raft_log._around
    peers = dict(around.peers)

    for number in range(STRANGER, STRANGER + 20):
        door = come_in(cluster, leader, number)
        assert around.address(number, "worker") == "evil:1"
        door.close("it has gone")
        leader.runtime.run_until_idle()

    assert around.peers == peers
    assert [around.address(number, "worker") for number in range(STRANGER, STRANGER + 20)] == [""] * 20


def test_address_of_a_member_is_known_after_its_connection_is_lost(cluster: HandCluster, leader: HandNode) -> None:
    member = cluster.others(leader)[0]
    known = leader.raft_log.address_of(member.number, "worker")

    member.kill()
    cluster.settle()

    assert leader.raft_log.address_of(member.number, "worker") == known != ""


@pytest.mark.parametrize("life", [(6, 9), (5, 10)])
def test_message_in_the_name_of_another_life_is_not_heard(
    cluster: HandCluster, leader: HandNode, life: tuple[int, int]
) -> None:
    door = come_in(cluster, leader, STRANGER)
    term = leader.raft_log.core.term
    assert door.told is not None

    door.told.tell(Heard([RequestVote(STRANGER, leader.number, *life, term + 1, 99, term, False, True)]))
    cluster.settle()

    assert leader.raft_log.core.term == term
    assert leader.raft_log.core.leads


def test_peer_with_an_impossible_claim_is_refused_and_changes_nothing(cluster: HandCluster, leader: HandNode) -> None:
    core, follower = leader.raft_log.core, cluster.others(leader)[0]
    term = core.term
    for message in (
        Heartbeat(STRANGER, leader.number, 5, 9, term + TERM_JUMP_MAX + 1, 1, 0),
        Heartbeat(STRANGER, leader.number, 5, 9, term, 1, 0),
        HeartbeatAnswer(STRANGER, leader.number, 5, 9, term, 1 << 40),
    ):
        door = come_in(cluster, leader, STRANGER)
        assert door.told is not None
        door.told.tell(Heard([message]))
        leader.runtime.run_until_idle()
        assert len(door.refusals) == 1, message

    cluster.advance(3.0)

    assert (core.leads, core.term) == (True, term)
    assert follower.raft_log.core.leader_id == leader.number
