"""What the log of a node says about who leads, who belongs to the cluster, and why nobody serves."""

import logging
from pathlib import Path

import pytest

from tests.helpers.brokers.node_here import node_here, run
from tests.helpers.clusters.by_hand import ELECTION_S, HandCluster, HandNode, Operator, successor
from wakeq.actors.log.leader_watch import ELECTIONS_WITHOUT, LeaderWatch
from wakeq.actors.mail import HandOver
from wakeq.actors.sessions.operator_mail import Administer

LONG_S = (ELECTIONS_WITHOUT + 3) * ELECTION_S


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="wakeq.raft_log")
    return caplog


def lines(said: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
    return [record.message for record in said.records if record.name == "wakeq.raft_log" and record.levelno >= level]


def ask(node: HandNode, what: str, number: int | None = None, address: str = "") -> None:
    node.raft_log.tell(Administer(node.runtime.spawn(Operator).asker, what, number, address))


def test_new_leader_is_logged_by_the_nodes(
    said: pytest.LogCaptureFixture, cluster: HandCluster, leader: HandNode
) -> None:
    cluster.isolate(leader)
    said.clear()

    heir = successor(cluster, leader)
    cluster.advance(0.3)

    term = heir.raft_log.core.term
    assert lines(said).count(f"this node leads in term {term}") == 1
    assert lines(said).count(f"node {heir.number} leads in term {term}") == 1


def test_election_is_worth_no_warning(said: pytest.LogCaptureFixture, cluster: HandCluster, leader: HandNode) -> None:
    leader.kill()
    said.clear()

    cluster.advance(LONG_S)

    assert lines(said, logging.WARNING) == []


def test_node_without_a_majority_logs_once_the_absent_nodes_and_then_the_leader(
    said: pytest.LogCaptureFixture, cluster: HandCluster, leader: HandNode
) -> None:
    left, lost = cluster.others(leader)
    leader.kill()
    lost.kill()
    said.clear()

    cluster.advance(3 * LONG_S)
    warned = lines(said, logging.WARNING)
    cluster.bring_up(lost)
    cluster.until(lambda: cluster.leader() is not None, "a node leads again")
    cluster.advance(1)

    away = " and ".join(f"node {node.number} (node-{node.number}:2603)" for node in cluster.others(left))
    assert warned == [f"no node has served for 10 s: {away} are unreachable, and without a majority no node can lead"]
    assert len(lines(said, logging.WARNING)) == 2
    assert " leads in term " in lines(said, logging.WARNING)[-1]


def test_leader_that_loses_its_majority_logs_one_warning(
    said: pytest.LogCaptureFixture, cluster: HandCluster, leader: HandNode
) -> None:
    said.clear()
    for other in cluster.others(leader):
        other.kill()

    cluster.advance(LONG_S)

    (warned,) = lines(said, logging.WARNING)
    assert "without a majority this node, which led in term" in warned


def test_leader_that_shuts_down_after_the_others_logs_no_warning(
    said: pytest.LogCaptureFixture, cluster: HandCluster, leader: HandNode
) -> None:
    said.clear()
    leader.raft_log.tell(HandOver())
    for other in cluster.others(leader):
        other.kill()

    cluster.advance(LONG_S)

    assert lines(said, logging.WARNING) == []
    assert any("no longer leads" in line for line in lines(said, logging.INFO))


def test_new_cluster_that_waits_for_a_node_says_for_which(said: pytest.LogCaptureFixture, directory: Path) -> None:
    cluster = HandCluster(directory)
    for node in cluster.nodes[:2]:
        cluster.bring_up(node)

    cluster.advance(LONG_S + 2 * ELECTION_S)

    assert lines(said, logging.WARNING) == [
        "no node has served for 10 s: a new cluster begins once every node has been up, and node 2 (node-2:2603) "
        "is unreachable"
    ]
    cluster.close()


def test_new_cluster_whose_last_node_has_just_come_names_no_absent_node(
    said: pytest.LogCaptureFixture, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = HandCluster(directory)
    for node in cluster.nodes[:2]:
        cluster.bring_up(node)
    monkeypatch.setattr(LeaderWatch, "_away", lambda _self: [])

    cluster.advance(LONG_S + 2 * ELECTION_S)

    assert "no node has served for 10 s: a new cluster begins once every node has been up" in lines(said)
    cluster.close()


def test_removed_node_logs_its_removal_once(
    said: pytest.LogCaptureFixture, cluster: HandCluster, leader: HandNode
) -> None:
    removed = cluster.others(leader)[0]
    said.clear()

    ask(leader, "remove", removed.number)
    cluster.advance(LONG_S)

    (warned,) = lines(said, logging.WARNING)
    assert warned.startswith("this node was removed from the cluster by entry ")


def test_node_that_missed_its_removal_logs_that_it_may_have_been_removed(
    said: pytest.LogCaptureFixture, cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = cluster.others(leader)[0]
    monkeypatch.setattr(removed.raft_log.core, "_learn_removal", lambda _index: None)
    said.clear()

    ask(leader, "remove", removed.number)
    cluster.advance(LONG_S)

    (warned,) = lines(said, logging.WARNING)
    assert warned.endswith("if it was removed, stop it")


def test_leader_that_answers_reach_too_late_says_why_it_cannot_serve(
    said: pytest.LogCaptureFixture, cluster: HandCluster, leader: HandNode
) -> None:
    said.clear()
    cluster.delay_s = 0.3  # a round trip of 0.6 s, and half of the election timeout is 0.5 s

    cluster.advance(2 * LONG_S)

    assert leader.raft_log.core.leads
    assert lines(said, logging.WARNING) == [
        "no node has served for 10 s: this node leads, but a majority answers it only after 600 ms, and that must take "
        "less than 500 ms, half of cluster.election_ms; find out what slows the network or the nodes, or set "
        "cluster.election_ms to at least 1800 on every node"
    ]
    assert len(lines(said)) == 1


def test_leader_that_can_serve_again_says_so(
    said: pytest.LogCaptureFixture, cluster: HandCluster, leader: HandNode
) -> None:
    cluster.delay_s = 0.3
    cluster.advance(LONG_S)
    said.clear()
    cluster.delay_s = 0.1

    cluster.advance(LONG_S)

    assert lines(said, logging.WARNING) == [f"this node leads in term {leader.raft_log.core.term}"]


def test_leader_whose_answers_take_a_third_of_an_election_timeout_serves_without_a_gap(
    cluster: HandCluster, leader: HandNode
) -> None:
    cluster.delay_s = ELECTION_S / 6
    cluster.advance(1)

    served = []
    for _ in range(100):
        cluster.advance(0.03)
        served.append(leader.raft_log.refusal() is None)

    assert all(served)


def test_moment_in_which_a_leader_does_not_serve_does_not_add_up(
    said: pytest.LogCaptureFixture, cluster: HandCluster, leader: HandNode
) -> None:
    said.clear()

    for _ in range(3):
        cluster.delay_s = 0.3
        cluster.advance(0.9 * ELECTIONS_WITHOUT * ELECTION_S)
        cluster.delay_s = 0.0
        cluster.advance(1)

    assert lines(said) == []


@pytest.mark.parametrize("stands", ["leader", "follower"])
def test_node_that_stood_still_does_not_call_its_own_pause_an_outage(
    said: pytest.LogCaptureFixture, cluster: HandCluster, leader: HandNode, stands: str
) -> None:
    node = leader if stands == "leader" else cluster.others(leader)[0]
    said.clear()
    node.freeze()
    cluster.advance(LONG_S)

    node.thaw()
    cluster.advance(2 * ELECTION_S)

    assert lines(said, logging.WARNING) == []


def test_leaders_that_come_and_go_are_told_as_an_outage(
    said: pytest.LogCaptureFixture, cluster: HandCluster, leader: HandNode
) -> None:
    """Each leader is heard by the other nodes, and hears none of them as soon as it leads."""
    cluster.delay_s = 0.1
    said.clear()
    for _ in range(2 * ELECTIONS_WITHOUT):
        cluster.until(lambda: any(node.raft_log.core.leads for node in cluster.nodes), "a node leads")
        leading = next(node for node in cluster.nodes if node.raft_log.core.leads)
        cluster.cuts = {(other.number, leading.number) for other in cluster.others(leading)}
        cluster.until(lambda led=leading: not led.raft_log.core.leads, "it gives up")
        cluster.cuts = set()

    warned = lines(said, logging.WARNING)
    assert len(warned) == 3  # each node once
    assert all("no node has served for 10 s: " in line and "cluster.election_ms" in line for line in warned)


def test_round_trip_too_long_for_an_election_is_logged_as_an_outage(
    said: pytest.LogCaptureFixture, cluster: HandCluster, leader: HandNode
) -> None:
    said.clear()
    cluster.delay_s = 0.6

    cluster.advance(3 * LONG_S)

    warned = lines(said, logging.WARNING)
    assert len(warned) == 3
    assert all("must take less than 500 ms, half of cluster.election_ms" in line for line in warned)


def test_members_are_logged_by_every_node_and_again_when_they_change(
    said: pytest.LogCaptureFixture, directory: Path
) -> None:
    cluster = HandCluster(directory)
    cluster.start()
    cluster.advance(1)
    leader = cluster.leader()
    assert leader is not None
    founded = belongings(said)
    said.clear()

    ask(leader, "add", 3, "d:2603")
    cluster.advance(1)

    three = "node 0 (node-0:2603); node 1 (node-1:2603); node 2 (node-2:2603)"
    assert founded == [three] * 3  # and not for each of their disks, and for the level
    assert belongings(said) == [f"{three}; node 3 (d:2603), which does not vote yet"] * 3
    cluster.close()


def belongings(said: pytest.LogCaptureFixture) -> list[str]:
    """What was said after `members of the cluster from entry N on:`."""
    return [line.partition(" on: ")[2] for line in lines(said) if line.startswith("members of the cluster from entry ")]


def test_broker_that_is_alone_says_nothing_of_leading(said: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    async def start() -> None:
        async with node_here(tmp_path):
            pass

    run(start())

    assert [line for line in lines(said) if "lead" in line or "term" in line] == []
