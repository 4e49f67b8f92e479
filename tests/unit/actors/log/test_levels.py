"""Nodes of neighbouring releases in one cluster: what an older one could not read is held back, and nothing else."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.helpers.hand_cluster import HandCluster, HandNode
from wakeq.actors.log.peer import FromPeer
from wakeq.actors.mail import Propose
from wakeq.actors.sessions.operator import Operator
from wakeq.actors.sessions.operator_mail import Administer
from wakeq.protocol.errors import WrongVersion
from wakeq.protocol.log import level
from wakeq.protocol.log.entries import Entry, PauseQueue
from wakeq.protocol.log.level import LEVEL, LEVEL_MIN
from wakeq.protocol.raft.messages import Append, SnapshotOffer

OLDER = LEVEL_MIN
STASH = {"stash": "s", "messages": ["m"]}


@pytest.fixture
def cluster(directory: Path) -> Iterator[HandCluster]:
    """Three nodes, of which the last is of the oldest release that this one knows."""
    made = HandCluster(directory)
    made.nodes[2].level_max = OLDER
    made.start()
    made.advance(1.0)
    yield made
    made.close()


def leader_of(cluster: HandCluster) -> HandNode:
    found = cluster.leader()
    assert found is not None
    return found


def upgrade(cluster: HandCluster, node: HandNode) -> None:
    node.kill()
    node.level_max = LEVEL
    cluster.bring_up(node)


def levels(cluster: HandCluster) -> list[int]:
    return [node.raft_log.level for node in cluster.nodes]


def rises(cluster: HandCluster) -> None:
    cluster.until(lambda: set(levels(cluster)) == {LEVEL}, "the cluster works at the level of this release")


def outcome_of(node: HandNode, entry: Entry) -> Any:
    """Propose an entry as an operator does; return what becomes of it."""
    answers: list[Any] = []
    operator = node.runtime.spawn(Operator)
    node.raft_log.tell(Propose([(entry, operator.asker(answers.append))]))
    node.settle()
    return answers[0]


def test_a_new_cluster_works_at_the_level_of_its_nodes_as_soon_as_it_serves(directory: Path) -> None:
    cluster = HandCluster(directory)
    cluster.start()

    assert leader_of(cluster).raft_log.level == LEVEL

    cluster.close()


def test_while_a_node_is_older_what_it_could_not_read_is_refused(cluster: HandCluster) -> None:
    leader = leader_of(cluster)
    client = leader.client()
    client.publish("q")

    refused = [
        client.call("STAGE", "q", source="s", epoch=1)["err"],
        client.call("STASH", "q", **STASH)["err"],
        client.call("UPDATE", "q", wake="sleeper")["err"],
        outcome_of(leader, PauseQueue("q", 9)).code,
    ]

    assert client.call("UPDATE", "q", wake="ready")["cmd"] == "okupdate"
    assert levels(cluster) == [OLDER] * 3
    assert refused == ["OLDER_NODES"] * 4


def test_what_is_refused_leaves_nothing_behind(cluster: HandCluster) -> None:
    client = leader_of(cluster).client()
    uid = client.publish("q")

    client.call("STAGE", "q", source="s", epoch=1)

    assert client.call("FET", "q")["uid"] == uid


def test_once_the_last_node_is_upgraded_the_cluster_works_at_the_new_level(cluster: HandCluster) -> None:
    leader_of(cluster).client().publish("q")

    upgrade(cluster, cluster.nodes[2])
    rises(cluster)

    client = leader_of(cluster).client()
    assert client.call("STAGE", "q", source="s", epoch=1)["sizes"] == [1]
    assert client.call("STASH", "q", **STASH)["cmd"] != "nok"


def test_a_node_that_is_away_is_waited_for(cluster: HandCluster) -> None:
    cluster.nodes[2].kill()

    cluster.advance(3.0)

    assert [node.raft_log.level for node in cluster.nodes[:2]] == [OLDER] * 2


def test_a_node_that_is_removed_is_waited_for_no_longer(cluster: HandCluster) -> None:
    older = cluster.nodes[2]
    older.kill()
    leader = leader_of(cluster)
    operator = leader.runtime.spawn(Operator)

    leader.raft_log.tell(Administer(operator.asker(lambda _: None), "remove", 2))
    cluster.until(lambda: [node.raft_log.level for node in cluster.nodes[:2]] == [LEVEL] * 2, "the level rises")


def test_the_level_stays_when_another_node_leads_and_a_third_is_away(cluster: HandCluster) -> None:
    upgrade(cluster, cluster.nodes[2])
    rises(cluster)
    former = leader_of(cluster)
    former.kill()

    cluster.until(lambda: cluster.leader() is not None, "another one leads")

    client = leader_of(cluster).client()
    client.publish("q")
    assert client.call("STAGE", "q", source="s", epoch=1)["sizes"] == [1]


def test_an_operator_sees_which_node_holds_the_level_back(cluster: HandCluster) -> None:
    facts: list[Any] = []
    leader = leader_of(cluster)

    leader.raft_log.tell(Administer(leader.runtime.spawn(Operator).asker(facts.append), "status"))
    cluster.settle()

    assert facts[0]["level"] == OLDER
    assert {member["node"]: member["level"] for member in facts[0]["members"]} == {0: LEVEL, 1: LEVEL, 2: OLDER}


@pytest.mark.parametrize("kind", [Append, SnapshotOffer])
def test_a_node_ends_rather_than_take_what_is_beyond_its_release(cluster: HandCluster, kind: type) -> None:
    leader = leader_of(cluster)
    follower = cluster.others(leader)[0]
    core = leader.raft_log.core
    beyond = msgspec.structs.replace(core.members.config, level=LEVEL + 1)
    header = core.me.node_id, follower.number, core.me.disk_id, core.me.incarnation, core.term
    last = core.log.last_index
    said = (
        Append(*header, last, core.term, last + 1, ((last + 1, core.term),), last, 0, ((last + 1, beyond),))
        if kind is Append
        else SnapshotOffer(*header, last, core.term, beyond, 7)
    )

    follower.raft_log.tell(FromPeer(leader.number, [said]))

    with pytest.raises(WrongVersion, match=f"works at level {LEVEL + 1}"):
        cluster.settle()


def test_an_older_release_does_not_start_on_what_the_newer_one_wrote(
    cluster: HandCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade(cluster, cluster.nodes[2])
    rises(cluster)
    cluster.nodes[2].kill()
    monkeypatch.setattr(level, "LEVEL", OLDER)

    with pytest.raises(WrongVersion, match=f"works at level {LEVEL}, this release knows levels up to {OLDER}"):
        cluster.nodes[2].start()

    cluster.nodes[2].is_up = False
    cluster.nodes[2].opened.close()
