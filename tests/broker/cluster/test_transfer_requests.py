"""An operator who wants another leader may ask any node."""

import pytest

from tests.helpers.brokers.by_hand import Json
from tests.helpers.clusters.by_hand import ELECTION_S, HandCluster, HandNode, successor
from wakeq.actors.log.leadership import WISH_ELECTIONS
from wakeq.protocol.raft.messages import Transfer


def transfer(node: HandNode, heir: int | None = None) -> list[Json]:
    """Ask a node for another leader, and let half a second pass."""
    client = node.client()
    replies = client.ask({"cmd": "CLUSTER", "do": "transfer"} | ({} if heir is None else {"node": heir}))
    node.network.advance(0.5)
    return replies + client.take()


def test_follower_passes_a_transfer_request_on_to_the_leader(cluster: HandCluster, leader: HandNode) -> None:
    replies = transfer(cluster.others(leader)[0])

    new = successor(cluster, leader)
    assert [reply["cluster"] for reply in replies] == [{"transferring_to": new.number}]


def test_follower_passes_on_the_named_node_of_a_transfer_request(cluster: HandCluster, leader: HandNode) -> None:
    asked, named = cluster.others(leader)

    replies = transfer(asked, named.number)

    assert [reply["cluster"] for reply in replies] == [{"transferring_to": named.number}]
    assert cluster.leader() is named


def test_follower_that_is_to_lead_itself_passes_that_on(cluster: HandCluster, leader: HandNode) -> None:
    asked = cluster.others(leader)[0]

    transfer(asked, asked.number)

    assert cluster.leader() is asked


@pytest.mark.parametrize("whom", ["the leader", "a stranger"])
def test_follower_refuses_a_transfer_to_the_leader_or_to_a_stranger(
    cluster: HandCluster, leader: HandNode, whom: str
) -> None:
    replies = transfer(cluster.others(leader)[0], leader.number if whom == "the leader" else 9)

    assert [reply["err"] for reply in replies] == ["BAD_FIELD"]
    assert cluster.leader() is leader


def test_follower_refuses_a_transfer_request_that_the_leader_does_not_follow(
    cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader.raft_log, "on_wish", lambda _wish: None)
    client = cluster.others(leader)[0].client()

    client.send({"cmd": "CLUSTER", "do": "transfer"})
    cluster.advance(WISH_ELECTIONS * ELECTION_S + 0.5)

    assert [reply["err"] for reply in client.take()] == ["NO_QUORUM"]


def test_follower_without_a_leader_refuses_as_ever(cluster: HandCluster, leader: HandNode) -> None:
    leader.kill()

    assert [reply["err"] for reply in transfer(cluster.others(leader)[0])[:1]] == ["NOT_LEADER"]


def test_transfer_request_of_a_former_term_is_ignored(cluster: HandCluster, leader: HandNode) -> None:
    core, other = leader.raft_log.core, cluster.others(leader)[0].raft_log.core
    wish = Transfer(other.me.node_id, core.me.node_id, other.me.disk_id, other.me.incarnation, core.term - 1, None)

    leader.raft_log.on_wish(wish)
    cluster.advance(1)

    assert cluster.leader() is leader


def test_transfer_request_of_a_node_that_is_no_member_is_ignored(cluster: HandCluster, leader: HandNode) -> None:
    core = leader.raft_log.core

    leader.raft_log.on_wish(Transfer(9, core.me.node_id, 1, 1, core.term, None))
    cluster.advance(1)

    assert cluster.leader() is leader


def test_leader_that_cannot_transfer_leadership_logs_the_request(
    cluster: HandCluster, leader: HandNode, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, away = cluster.others(leader)
    away.kill()
    monkeypatch.setattr(type(leader.raft_log.leadership), "heirs", [])

    transfer(asked)

    assert any("to transfer leadership, but it stays here" in record.message for record in caplog.records)
    assert cluster.leader() is leader
