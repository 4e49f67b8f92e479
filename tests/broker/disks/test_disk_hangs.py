"""A disk that does not answer: who notices, what is said meanwhile, and who leads instead."""

import logging

import pytest

from tests.helpers.brokers.broker import Broker
from tests.helpers.brokers.by_hand import Json
from tests.helpers.clusters.by_hand import ELECTION_S, HandCluster, HandNode, leads_again, size_of, successor
from tests.helpers.disks.sync_place import sync_on_loop
from wakeq.actors.log.leadership import HAND_OVER_AGAIN_MS

Q = "q"
LOOK_S = ELECTION_S / 4
BEFORE_S, AFTER_S = 2 * ELECTION_S - LOOK_S, 2 * ELECTION_S + 3 * LOOK_S  # around the moment of handing over


def pub(body: str = "m") -> Json:
    return {"cmd": "PUB", "qname": Q, "message": body}


def hang(node: HandNode, held: bool = True) -> None:
    """Let a node's log disk answer nothing from now on, or everything at once."""
    node.log_disk.held = held
    if not held:
        node.log_disk.complete()
        node.settle()


def warnings(said: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in said.records if record.levelno == logging.WARNING]


def test_leader_whose_disk_hangs_lets_a_node_lead_that_has_its_entries(cluster: HandCluster, leader: HandNode) -> None:
    leader.client().publish(Q)
    client = leader.client()
    hang(leader)

    client.send(pub())
    cluster.advance(BEFORE_S)
    before = leader.raft_log.core.leads, client.take()
    cluster.advance(AFTER_S - BEFORE_S)
    new = cluster.leader()

    assert before == (True, [])
    assert new in cluster.others(leader)
    assert [reply["err"] for reply in client.take()] == ["UNKNOWN"]
    assert size_of(new) == 2
    assert new.client().call("PUB", Q, message="m")["cmd"] == "ok"


def test_leader_whose_disk_never_answers_again_sends_its_clients_to_the_one_that_leads(
    cluster: HandCluster, leader: HandNode
) -> None:
    hang(leader)
    leader.client().send(pub())

    cluster.advance(60)

    new = successor(cluster, leader)
    reply = leader.client().call("PUB", Q, message="m")
    assert (reply["err"], reply["leader"]) == ("NOT_LEADER", f"node-{new.number}:2601")


def test_disk_that_answers_again_catches_up_and_the_new_leader_stays(cluster: HandCluster, leader: HandNode) -> None:
    hang(leader)
    leader.client().send(pub())
    new = successor(cluster, leader)
    term = new.raft_log.core.term
    new.client().publish(Q)

    cluster.advance(12)
    hang(leader, held=False)
    cluster.advance(5)

    assert cluster.leader() is new
    assert new.raft_log.core.term == term
    assert [size_of(node) for node in cluster.nodes] == [2, 2, 2]


def test_hang_that_ends_in_time_changes_no_leader(cluster: HandCluster, leader: HandNode) -> None:
    client = leader.client()
    hang(leader)
    client.send(pub())

    cluster.advance(BEFORE_S)
    hang(leader, held=False)
    cluster.advance(AFTER_S)

    assert client.words() == ["ok"]
    assert cluster.leader() is leader


def test_leader_whose_disk_hangs_is_not_ready_after_one_election_timeout(
    cluster: HandCluster, leader: HandNode
) -> None:
    hang(leader)
    leader.client().send(pub())

    cluster.advance(ELECTION_S - LOOK_S)
    served = cluster.leader()
    cluster.advance(3 * LOOK_S)

    assert served is leader
    assert leader.raft_log.core.leads
    replies = [leader.client().call(cmd, Q, **more) for cmd, more in (("PUB", {"message": "m"}), ("FET", {}))]
    assert [reply["err"] for reply in replies] == ["NO_QUORUM", "NO_QUORUM"]
    assert "the disk of this node has not answered for 1." in replies[0]["detail"]


def test_leader_whose_disk_hangs_logs_a_warning_meanwhile(
    cluster: HandCluster, leader: HandNode, caplog: pytest.LogCaptureFixture
) -> None:
    hang(leader)
    leader.client().send(pub())

    cluster.advance(AFTER_S)

    first, second = warnings(caplog)[:2]
    assert first.startswith("the disk does not answer: a write of the log has taken 1.")
    assert second.startswith("the disk of this leader has not answered for 2.")


def test_leader_that_transferred_the_lead_keeps_it_for_half_a_minute_once_it_leads_again(
    cluster: HandCluster, leader: HandNode
) -> None:
    hang(leader)
    leader.client().send(pub())
    new = successor(cluster, leader)
    cluster.advance(1)
    hang(leader, held=False)
    cluster.advance(1)
    new.raft_log.leadership.transfer(leader.number)
    new.raft_log._attend()
    cluster.until(lambda: cluster.leader() is leader, "the first one leads again")

    hang(leader)
    leader.client().send(pub())
    cluster.advance(5)
    in_time = leader.raft_log.core.leads
    cluster.advance(HAND_OVER_AGAIN_MS / 1000)

    assert in_time
    assert successor(cluster, leader).raft_log.core.leads
    assert not leader.raft_log.core.leads


@pytest.mark.parametrize("elections", [0, 1.25])
def test_leader_that_lost_the_lead_for_another_reason_transfers_it_as_soon_as_its_disk_hangs(
    cluster: HandCluster, leader: HandNode, elections: float
) -> None:
    hang(leader)
    leader.client().send(pub())
    cluster.advance(elections * ELECTION_S)
    leader.raft_log.leadership.transfer(cluster.others(leader)[0].number)
    leader.raft_log._attend()
    cluster.settle()
    led = leader.raft_log.core.leads
    hang(leader, held=False)
    cluster.until(lambda: leads_again(cluster, leader), "the first one leads again")

    hang(leader)
    leader.client().send(pub())
    cluster.advance(AFTER_S)

    assert not led
    assert cluster.leader() in cluster.others(leader)


def test_leader_keeps_leading_while_all_disks_hang(cluster: HandCluster, leader: HandNode) -> None:
    for node in cluster.nodes:
        hang(node)
    client = leader.client()
    client.send(pub())

    cluster.advance(10)
    led = leader.raft_log.core.leads
    for node in cluster.nodes:
        hang(node, held=False)
    cluster.advance(1)

    assert led
    assert client.words() == ["ok"]


def test_leader_whose_disk_hangs_keeps_leading_if_the_others_have_no_majority(
    cluster: HandCluster, leader: HandNode
) -> None:
    cluster.others(leader)[0].kill()
    client = leader.client()
    hang(leader)
    client.send(pub())

    cluster.advance(10)
    led = leader.raft_log.core.leads
    hang(leader, held=False)
    cluster.advance(1)

    assert led
    assert client.words() == ["ok"]


def test_disk_that_hangs_in_something_else_than_a_batch_moves_the_lead_too(
    cluster: HandCluster, leader: HandNode
) -> None:
    cluster.advance(1)
    hang(leader)
    leader.raft_log.writer.do_behind(lambda: None)

    cluster.advance(AFTER_S)

    assert cluster.leader() in cluster.others(leader)


def test_pause_of_a_node_is_no_hang_of_its_disk(broker: Broker) -> None:
    client = broker.client()
    broker.log_disk.held = True
    client.send(pub())
    broker.settle()

    broker.time.stall(60)

    assert broker.raft_log.refusal() is None


def test_lone_node_whose_disk_hangs_answers_busy_with_the_reason_and_goes_on_when_it_answers(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    waiting, late = broker.client(), broker.client()
    broker.log_disk.held = True
    waiting.send(pub())
    broker.settle()

    broker.advance(3.5)
    replies = [late.call(cmd, Q, **more) for cmd, more in (("PUB", {"message": "m"}), ("FET", {}))]
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert [reply["err"] for reply in replies] == ["BUSY", "BUSY"]
    assert replies[0]["detail"].startswith("the disk of this node has not answered for 3.")
    assert warnings(caplog)[0].startswith("the disk does not answer: a write of the log has taken 1.")
    assert waiting.words() == ["ok"]
    assert late.call("FET", Q)["cmd"] == "msg"


def test_idle_disk_is_not_watched(broker: Broker) -> None:
    broker.client().publish(Q)
    broker.advance(2)

    assert not broker.raft_log.writer.is_check_queued


def test_node_of_a_cluster_never_syncs_on_its_loop(
    cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync_on_loop(monkeypatch, lambda: True)
    hang(leader)
    client = leader.client()

    client.send(pub())
    cluster.settle()

    assert client.take() == []
