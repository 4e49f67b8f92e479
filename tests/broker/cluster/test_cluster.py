"""The processes of three nodes: who serves, what is lost with a leader, and what never is."""

import logging
import os
import shutil
from pathlib import Path

import pytest

from tests.helpers.brokers.broker import Broker
from tests.helpers.brokers.by_hand import HandDisk
from tests.helpers.clusters.by_hand import ELECTION_S, HandCluster, HandNode, Operator, size_of, successor
from wakeq.actors.log.writer import KEEP_ACKNOWLEDGED_MS
from wakeq.actors.mail import Propose
from wakeq.actors.sessions.operator_mail import Administer
from wakeq.protocol.errors import DiskDisowned
from wakeq.protocol.log.entries import Expired
from wakeq.protocol.queue.lanes import Proposal

Q = "q"
LEASE_S = 60


def test_published_messages_are_on_every_node(cluster: HandCluster, leader: HandNode) -> None:
    for _ in range(10):
        leader.client().publish(Q)

    cluster.advance(0.2)  # the others hear with the next heartbeat that it is committed

    assert [size_of(node) for node in cluster.nodes] == [10, 10, 10]


def test_follower_refuses_commands_and_names_the_leader(cluster: HandCluster, leader: HandNode) -> None:
    follower = cluster.others(leader)[0]

    replies = [follower.client().call(cmd, Q, **more) for cmd, more in (("PUB", {"message": "m"}), ("FET", {}))]

    assert [(reply["err"], reply["leader"]) for reply in replies] == [("NOT_LEADER", f"node-{leader.number}:2601")] * 2


def test_changes_of_the_cluster_are_logged(
    cluster: HandCluster, leader: HandNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="wakeq.admin")
    client = leader.client()

    client.call("CLUSTER")
    client.ask({"cmd": "CLUSTER", "do": "add", "node": 3, "address": "d:2603"})
    client.ask({"cmd": "CLUSTER", "do": "remove", "node": 9})
    client.ask({"cmd": "CLUSTER", "do": "transfer"})

    said = [record.message for record in caplog.records if record.name == "wakeq.admin"]
    assert [line.partition(" ")[2] for line in said] == [
        "CLUSTER add 3 d:2603",
        "CLUSTER remove 9",
        "CLUSTER transfer",
    ]


def test_follower_answers_ping_and_hello(cluster: HandCluster, leader: HandNode) -> None:
    client = cluster.others(leader)[0].client()

    assert [client.call("PING")["cmd"], client.call("HELLO")["cmd"]] == ["pong", "hello"]


def test_publish_is_not_answered_before_a_majority_has_it(cluster: HandCluster, leader: HandNode) -> None:
    client = leader.client()
    client.publish(Q)
    cluster.isolate(leader)

    answered = client.ask({"cmd": "PUB", "qname": Q, "message": "m"})

    assert answered == []


def test_publish_at_a_cut_off_leader_is_answered_unknown(cluster: HandCluster, leader: HandNode) -> None:
    client = leader.client()
    client.publish(Q)
    cluster.isolate(leader)
    client.send({"cmd": "PUB", "qname": Q, "message": "m"})

    cluster.advance(4 * ELECTION_S)

    assert [reply["err"] for reply in client.take()] == ["UNKNOWN"]


def test_strict_delivery_at_a_cut_off_leader_is_answered_unknown(cluster: HandCluster, leader: HandNode) -> None:
    client = leader.client()
    client.call("CREATE", Q, lease="strict")
    client.publish(Q)
    cluster.isolate(leader)
    client.send({"cmd": "FET", "qname": Q})

    cluster.advance(4 * ELECTION_S)

    assert [reply.get("err") for reply in client.take()] == ["UNKNOWN"]


def test_touch_on_a_leader_that_is_cut_off_promises_no_more_time(cluster: HandCluster, leader: HandNode) -> None:
    client = leader.client()
    client.publish(Q, timeout=5)
    held = client.fetch(Q)
    cluster.advance(0.2)
    cluster.isolate(leader)

    client.send({"cmd": "TOUCH", "qname": Q, "uid": held["uid"], "timeout": 60})
    new = successor(cluster, leader)
    cluster.advance(5.0)

    assert [reply.get("err") for reply in client.take()] == ["UNKNOWN"]
    assert new.client().fetch(Q)["uid"] == held["uid"]


def test_publish_at_a_cut_off_leader_is_refused_once_another_leader_has_committed(
    cluster: HandCluster, leader: HandNode
) -> None:
    client = leader.client()
    client.publish(Q)
    cluster.isolate(leader)
    client.send({"cmd": "PUB", "qname": Q, "message": "m"})
    successor(cluster, leader)

    cluster.heal()
    cluster.advance(0.3)

    assert [reply["err"] for reply in client.take()] == ["NOT_LEADER"]
    assert [size_of(node) for node in cluster.nodes] == [1, 1, 1]


def test_leader_that_transfers_leadership_delivers_nothing(cluster: HandCluster, leader: HandNode) -> None:
    client, heir = leader.client(), cluster.others(leader)[0]
    uid = client.publish(Q)
    operator = leader.runtime.spawn(Operator)
    cluster.isolate(heir)

    leader.raft_log.tell(Administer(operator.asker, "transfer", heir.number))
    meanwhile = client.call("FET", Q)
    cluster.until(lambda: leader.raft_log.refusal() is None, "it is given up")

    assert (meanwhile["err"], "leader" in meanwhile) == ("NOT_LEADER", False)
    assert client.call("FET", Q)["uid"] == uid


def test_messages_read_by_a_leader_that_may_not_deliver_them_keep_their_place(
    cluster: HandCluster, leader: HandNode
) -> None:
    client, term = leader.client(), leader.raft_log.core.term
    sleepers = [leader.client() for _ in range(2)]
    client.call("PUB", Q, messages=["1", "2", "3"])
    cluster.advance(2.0)
    evict(leader)
    reader = leader.assembly.reader_disk
    assert isinstance(reader, HandDisk)
    reader.held = True
    client.send({"cmd": "FET", "qname": Q, "count": 2}, {"cmd": "FET", "qname": Q})
    for sleeper in sleepers:
        sleeper.fall_asleep(Q)
    late = leader.client()
    late.publish(Q, "4")  # it wakes one of them, and is in memory
    late.send({"cmd": "FET", "qname": Q})
    cluster.isolate(leader)

    cluster.advance(ELECTION_S * 0.6)
    reader.held = False
    reader.complete()
    cluster.settle()
    refused = [reply.get("err") for reply in client.take() + late.take()]
    cluster.heal()
    cluster.until(lambda: leader.raft_log.refusal() is None, "the others answer again")

    assert (refused, leader.raft_log.core.term) == (["NO_QUORUM"] * 3, term)
    assert [sleeper.awks for sleeper in sleepers] == [1, 1]
    assert [client.fetch(Q)["msg"] for _ in range(4)] == ["1", "2", "3", "4"]


def evict(node: HandNode) -> None:
    """Have a node forget the bodies that are on its disk."""
    bodies = node.queues.processes.by_name[Q].bodies
    bodies.flushed(lambda count: [], 0)
    assert bodies.missing([1]) == [1], "written down"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ({"cmd": "STATS", "qname": Q}, "stats"),
        ({"cmd": "STATS"}, "stats"),
        ({"cmd": "LIST"}, "queues"),
        ({"cmd": "PEEK", "qname": Q}, "peeked"),
    ],
)
def test_figures_are_shown_only_by_a_leader_that_a_majority_still_follows(
    cluster: HandCluster, leader: HandNode, command: dict[str, str], shown: str
) -> None:
    client = leader.client()
    client.publish(Q)
    together = client.ask(command)

    cluster.isolate(leader)
    may_serve = leader.raft_log.refusal() is None
    client.send(command)
    cluster.advance(ELECTION_S * 0.4)
    at_first = client.take()
    successor(cluster, leader)

    assert [reply["cmd"] for reply in together] == [shown]
    assert (may_serve, at_first) == (True, [])
    assert [reply["err"] for reply in client.take()] == ["NOT_LEADER"]


def test_stats_do_not_count_a_fetch_behind_them_on_the_connection(cluster: HandCluster, leader: HandNode) -> None:
    client = leader.client()
    client.publish(Q)

    looked, *_ = client.ask({"cmd": "STATS", "qname": Q}, {"cmd": "FET", "qname": Q}, {"cmd": "STATS", "qname": Q})

    assert (looked["stats"]["ready"], looked["stats"]["leased"]) == (1, 0)


def test_cut_off_leader_serves_nothing_after_half_an_election(cluster: HandCluster, leader: HandNode) -> None:
    client = leader.client()
    client.publish(Q)
    cluster.isolate(leader)

    cluster.advance(ELECTION_S * 0.6)
    early = client.call("FET", Q)
    cluster.advance(ELECTION_S)
    late = client.call("FET", Q)

    assert [early["err"], late["err"]] == ["NO_QUORUM", "NOT_LEADER"]


def test_successor_has_all_messages_whose_publish_was_answered(cluster: HandCluster, leader: HandNode) -> None:
    uids = [leader.client().publish(Q) for _ in range(5)]
    leader.kill()

    client = successor(cluster, leader).client()

    assert [client.fetch(Q)["uid"] for _ in range(5)] == uids


def test_committed_delivery_stays_with_its_worker_when_the_leader_is_killed(
    cluster: HandCluster, leader: HandNode
) -> None:
    worker = leader.client()
    worker.call("CREATE", Q, lease="strict")
    worker.publish(Q)
    lease = worker.fetch(Q)["lease"]
    leader.kill()

    client = successor(cluster, leader).client()
    assert client.finds_nothing(Q)
    cluster.advance(LEASE_S + 1)
    again = client.fetch(Q)

    assert again["error_count"] == 1
    assert client.call("ACK", Q, uid=again["uid"], lease=lease)["err"] == "STALE_LEASE"


def test_acknowledgement_with_a_lease_of_the_former_leader_counts(cluster: HandCluster, leader: HandNode) -> None:
    worker = leader.client()
    worker.publish(Q)
    message = worker.fetch(Q)
    cluster.advance(0.2)
    leader.kill()

    client = successor(cluster, leader).client()

    assert client.call("ACK", Q, uid=message["uid"], lease=message["lease"])["cmd"] == "okack"
    assert client.figures(Q)["size"] == 0


def test_sleeper_at_a_leader_that_steps_down_is_woken_and_then_refused(cluster: HandCluster, leader: HandNode) -> None:
    worker = leader.client()
    worker.publish(Q)
    worker.call("ACK", Q, uid=worker.fetch(Q)["uid"])
    worker.fall_asleep(Q)
    cluster.isolate(leader)

    cluster.advance(2 * ELECTION_S)

    assert worker.words() == ["awk"]
    assert worker.call("FET", Q)["err"] == "NOT_LEADER"


def test_waiting_fetch_at_a_leader_that_steps_down_is_refused(cluster: HandCluster, leader: HandNode) -> None:
    worker = leader.client()
    worker.send({"cmd": "SUB", "qname": Q}, {"cmd": "FET", "qname": Q, "wait": 60})
    worker.take()
    cluster.isolate(leader)

    cluster.advance(2 * ELECTION_S)

    assert [reply["err"] for reply in worker.take()] == ["NOT_LEADER"]


def test_leader_after_a_pause_notices_it_before_it_accepts_commands(cluster: HandCluster, leader: HandNode) -> None:
    leader.client().publish(Q)
    cluster.advance(0.2)
    last_index = leader.opened.log.last_index
    cluster.isolate(leader)

    leader.raft_log.tell(Propose([Proposal(Expired(Q, 1, [1]), None)]))  # as a queue does whose alarm comes first
    cluster.time.stall(10.0)

    assert leader.opened.log.last_index == last_index
    assert leader.client().call("PUB", Q, message="m")["err"] == "NOT_LEADER"


def test_node_that_was_away_catches_up(cluster: HandCluster, leader: HandNode) -> None:
    away = cluster.others(leader)[0]
    away.kill()
    for _ in range(20):
        leader.client().publish(Q)

    cluster.bring_up(away)
    cluster.advance(0.5)

    assert size_of(away) == 20


def test_node_that_was_away_is_catching_up_until_it_has_everything(cluster: HandCluster, leader: HandNode) -> None:
    away = cluster.others(leader)[0]
    away.kill()
    for _ in range(40):
        assert leader.client().call("PUB", Q, message="m" * 900_000)["cmd"] == "ok"

    cluster.bring_up(away)
    cluster.until(lambda: away.raft_log.refusal() is not None and away.raft_log.other_leader is not None, "it follows")
    assert away.raft_log.is_catching_up
    assert size_of(away) < 40
    cluster.until(lambda: not away.raft_log.is_catching_up, "it has caught up", 60.0)

    cluster.advance(0.2)
    assert size_of(away) == 40


def test_entries_of_a_former_leader_are_taken_back_on_its_disk(cluster: HandCluster, leader: HandNode) -> None:
    client = leader.client()
    client.publish(Q)
    cluster.isolate(leader)
    client.send(*[{"cmd": "PUB", "qname": Q, "message": "m"}] * 3)
    client.take()
    other = successor(cluster, leader)
    uid = other.client().publish(Q)
    cluster.heal()
    cluster.advance(0.5)

    leader.kill()
    cluster.bring_up(leader)
    cluster.advance(0.5)

    assert size_of(leader) == 2
    terms = {node.number: node.opened.log.runs for node in cluster.nodes}
    assert terms[leader.number] == terms[other.number]
    assert uid


def test_answered_publishes_survive_a_crash_of_all_nodes(cluster: HandCluster, leader: HandNode) -> None:
    for _ in range(7):
        leader.client().publish(Q)
    for node in cluster.nodes:
        node.kill()

    for node in cluster.nodes:
        cluster.bring_up(node)
    cluster.until(lambda: cluster.leader() is not None, "a node serves")

    serving = cluster.leader()
    assert serving is not None
    assert serving.client().figures(Q)["size"] == 7


def test_node_without_a_majority_refuses_publishes(cluster: HandCluster, leader: HandNode) -> None:
    for node in cluster.others(leader):
        node.kill()

    cluster.advance(5 * ELECTION_S)

    assert leader.client().call("PUB", Q, message="m")["err"] == "NOT_LEADER"


def test_leadership_is_transferred_in_less_than_an_election_timeout(cluster: HandCluster, leader: HandNode) -> None:
    heir = cluster.others(leader)[0]
    operator = leader.runtime.spawn(Operator)

    leader.raft_log.tell(Administer(operator.asker, "transfer", heir.number))
    cluster.advance(0.2)

    assert cluster.leader() is heir
    assert operator.heard


def test_node_whose_address_is_none_is_not_added(cluster: HandCluster, leader: HandNode) -> None:
    operator = leader.runtime.spawn(Operator)
    last_index = leader.opened.log.last_index

    leader.raft_log.tell(Administer(operator.asker, "add", 3, "nonsense"))
    cluster.advance(0.2)

    assert "not the address of a node" in str(operator.heard)
    assert leader.opened.log.last_index == last_index


def test_node_is_not_added_to_a_broker_that_listens_for_none(broker: Broker) -> None:
    reply = broker.client().call("CLUSTER", do="add", node=2, address="b:2603")

    assert reply["err"] == "BAD_FIELD"
    assert "this broker listens for no other node" in reply["detail"]
    assert [member["node"] for member in broker.client().call("CLUSTER")["cluster"]["members"]] == [1]


def bring_up_for(cluster: HandCluster, node: HandNode, seconds: float) -> None:
    cluster.bring_up(node)
    cluster.advance(seconds)


def test_disk_that_was_set_back_by_one_life_stops_its_node_and_the_right_one_may_come_back(
    cluster: HandCluster, leader: HandNode, tmp_path: Path
) -> None:
    lost, copy, good = cluster.others(leader)[0], tmp_path / "copy", tmp_path / "good"
    lost.kill()
    shutil.copytree(lost.path, copy)
    bring_up_for(cluster, lost, 1.0)
    leader.client().publish(Q)
    cluster.advance(1.0)
    lost.kill()
    shutil.move(lost.path, good)
    shutil.move(copy, lost.path)

    with pytest.raises(DiskDisowned, match="has lost what it acknowledged"):
        bring_up_for(cluster, lost, 2.0)
    lost.kill()
    shutil.rmtree(lost.path)
    shutil.move(good, lost.path)
    bring_up_for(cluster, lost, 2.0)

    assert leader.raft_log.core.leader().peers[lost.number].counted_match == leader.opened.log.last_index


def set_back(cluster: HandCluster, leader: HandNode, copy: Path) -> HandNode:
    """Replace the disk of a node that is down by a copy from before a message that it has acknowledged."""
    lost = cluster.others(leader)[0]
    lost.kill()
    shutil.copytree(lost.path, copy)
    bring_up_for(cluster, lost, 1.0)
    leader.client().publish(Q)
    cluster.advance(1.0)
    lost.kill()
    shutil.rmtree(lost.path)
    shutil.move(copy, lost.path)
    return lost


def test_old_copy_of_a_disk_stops_its_node_after_a_change_of_leader(
    cluster: HandCluster, leader: HandNode, tmp_path: Path
) -> None:
    lost = set_back(cluster, leader, tmp_path / "copy")
    operator = leader.runtime.spawn(Operator)
    leader.raft_log.tell(Administer(operator.asker, "transfer", None))
    cluster.until(lambda: cluster.leader() not in (None, leader), "another node leads")

    with pytest.raises(DiskDisowned, match="has lost what it acknowledged"):
        bring_up_for(cluster, lost, 2.0)


def test_old_copy_of_a_disk_stops_its_node_before_its_vote_makes_a_leader(
    cluster: HandCluster, leader: HandNode, tmp_path: Path
) -> None:
    lost = set_back(cluster, leader, tmp_path / "copy")
    leader.kill()

    with pytest.raises(DiskDisowned, match="has lost what it acknowledged"):
        bring_up_for(cluster, lost, 5.0)

    assert cluster.leader() is None


@pytest.mark.parametrize("after_s", [KEEP_ACKNOWLEDGED_MS / 1000 + 1, 0.5])
def test_old_copy_of_a_disk_stops_its_node_after_all_nodes_were_killed(
    cluster: HandCluster, leader: HandNode, tmp_path: Path, after_s: float
) -> None:
    """The other nodes may then have forgotten acknowledgements of the last 10 s."""
    lost = set_back(cluster, leader, tmp_path / "copy")
    cluster.advance(after_s)
    others = cluster.others(lost)
    for node in others:
        node.kill()
    for node in others:
        cluster.bring_up(node)
    cluster.until(lambda: cluster.leader() is not None, "one of the others leads")
    is_kept = after_s > 1
    known = cluster.leader().raft_log.core.acknowledged  # type: ignore[union-attr]

    if is_kept:
        with pytest.raises(DiskDisowned, match="has lost what it acknowledged"):
            bring_up_for(cluster, lost, 2.0)
    else:
        bring_up_for(cluster, lost, 2.0)  # it catches up, like a node that was away

    assert known.of(lost.opened.metadata.state.disk_id) > 0


def test_quiet_cluster_saves_the_acknowledged_indexes_once(cluster: HandCluster, leader: HandNode) -> None:
    leader.client().publish(Q)
    cluster.advance(3 * KEEP_ACKNOWLEDGED_MS / 1000)
    before = [node.opened.metadata._sequence for node in cluster.nodes]

    cluster.advance(10 * KEEP_ACKNOWLEDGED_MS / 1000)

    assert [node.opened.metadata._sequence for node in cluster.nodes] == before
    assert {node.opened.metadata.state.acknowledged for node in cluster.nodes} == {
        tuple(sorted((node.opened.metadata.state.disk_id, leader.opened.log.last_index) for node in cluster.nodes))
    }


def test_emptied_disk_stops_its_node(cluster: HandCluster, leader: HandNode) -> None:
    leader.client().publish(Q)
    cluster.advance(0.2)
    lost = cluster.others(leader)[0]
    lost.kill()
    for folder, _, names in os.walk(lost.path):
        for name in names:
            os.unlink(os.path.join(folder, name))

    with pytest.raises(DiskDisowned, match="is not the one that joined"):
        bring_up_for(cluster, lost, 2.0)
