"""Members: of nodes that are no members nothing is kept once they are gone; and how the members change."""

import pytest

from tests.helpers.clusters.by_hand import CLUSTER_ID, HandCluster, HandNode, HandPeerDoor
from tests.helpers.raft.script import Scene
from wakeq.actors.log.members import (
    Introduced,
    PeerTable,
    describe,
    role_of,
    with_member,
    with_next_voter,
    without_member,
)
from wakeq.actors.log.peer import Heard, PeerLost
from wakeq.protocol.errors import WakeqError
from wakeq.protocol.raft.core import TERM_JUMP_MAX
from wakeq.protocol.raft.membership import LEVEL, Member, config_of
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
    table = leader.raft_log.table
    peers = dict(table.peers)

    for number in range(STRANGER, STRANGER + 20):
        door = come_in(cluster, leader, number)
        assert table.address(number, "worker") == "evil:1"
        door.close("it has gone")
        leader.runtime.run_until_idle()

    assert table.peers == peers
    assert [table.address(number, "worker") for number in range(STRANGER, STRANGER + 20)] == [""] * 20


def test_connection_that_ends_behind_the_next_one_of_its_node_takes_nothing_with_it(
    cluster: HandCluster, leader: HandNode
) -> None:
    table = leader.raft_log.table
    first, second = (come_in(cluster, leader, STRANGER) for _ in range(2))
    peer = table.peers[STRANGER]

    leader.raft_log.tell(PeerLost(STRANGER, first))
    leader.runtime.run_until_idle()

    assert table.connected[STRANGER].door is second
    assert table.peers[STRANGER] is peer
    assert table.address(STRANGER, "worker") == "evil:1"


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


# --- changes of the members ------------------------------------------------------------------------------------------


def test_added_member_does_not_vote_and_stands_in_its_order() -> None:
    config = with_member(config_of([1, 3]), 2, "other:5000")

    assert [member.node_id for member in config.members] == [1, 2, 3]
    assert config.member(2) == Member(2, voter=False, address="other:5000")


@pytest.mark.parametrize(
    ("node_id", "address", "why"),
    [
        (None, "other:5000", "give its number and its address"),
        (2, "", "give its number and its address"),
        (2, "nonsense", "nonsense"),
        (1, "other:5000", "belongs to the cluster already"),
    ],
)
def test_member_that_cannot_be_added_is_refused(node_id: int | None, address: str, why: str) -> None:
    with pytest.raises(WakeqError, match=why):
        with_member(config_of([1, 3]), node_id, address)


def test_removed_member_is_gone() -> None:
    assert without_member(config_of([1, 2, 3]), 2) == config_of([1, 3])


@pytest.mark.parametrize("node_id", [None, 9])
def test_stranger_cannot_be_removed(node_id: int | None) -> None:
    with pytest.raises(WakeqError, match="does not belong to the cluster"):
        without_member(config_of([1, 2, 3]), node_id)


def test_learner_votes_once_it_has_caught_up() -> None:
    scene = Scene()
    for command in ("cluster 1 2 learner=3", "lead 1"):
        scene.play(command)
    core = scene.actors[1].core

    config = with_next_voter(core)

    assert config is not None
    assert [(member.node_id, member.voter) for member in config.members] == [(1, True), (2, True), (3, True)]


def test_learner_that_is_behind_or_voters_only_change_nothing() -> None:
    scene = Scene()
    for command in ("cluster 1 2 learner=3", "lead 1", "propose 1 50", "deliver 1>2", "deliver 2>1"):
        scene.play(command)
    whole = Scene()
    for command in ("cluster 1 2 3", "lead 1"):
        whole.play(command)

    assert with_next_voter(scene.actors[1].core) is None
    assert with_next_voter(whole.actors[1].core) is None


def test_learner_waits_for_the_change_before_it() -> None:
    scene = Scene()
    for command in ("cluster 1 2 learner=3 learner=4", "lead 1"):
        scene.play(command)
    core = scene.actors[1].core
    first = with_next_voter(core)
    assert first is not None
    core.leader().change_members(first)

    assert with_next_voter(core) is None


# --- what operators see ----------------------------------------------------------------------------------------------


def test_roles_are_those_of_the_configuration() -> None:
    scene = Scene()
    for command in ("cluster 1 2 learner=3", "lead 1"):
        scene.play(command)

    assert [role_of(scene.actors[node].core) for node in (1, 2, 3)] == ["leader", "voter", "learner"]


def test_only_the_leader_knows_how_far_members_are_behind() -> None:
    scene = Scene()
    for command in ("cluster 1 2 3", "lead 1", "propose 1 3"):
        scene.play(command)
    leader, follower = (scene.actors[node].core for node in (1, 2))

    facts = [describe(member, leader, PeerTable(1, None)) for member in leader.members.config.members]
    others = [describe(member, follower, PeerTable(2, None)) for member in follower.members.config.members]

    assert [(fact["node"], fact["is_connected"], fact["behind_bytes"] > 0) for fact in facts] == [
        (1, True, False),
        (2, False, True),
        (3, False, True),
    ]
    assert [fact["behind_bytes"] for fact in others] == [None, 0, None]
