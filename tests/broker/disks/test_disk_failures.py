"""Whatever the disk does not take ends the node, wherever that was: no answer, no vote, no next try rests on it."""

from typing import Any

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.clusters.by_hand import ELECTION_S, HandCluster, HandNode, Operator, successor
from wakeq.actors import snapshots
from wakeq.actors.log.writer import Cut, Roll
from wakeq.actors.snapshots import WriteImage
from wakeq.protocol.errors import SyncFailed

Q = "q"


def fail(*_: object, **__: object) -> Any:
    raise SyncFailed("a file: sync failed: Input/output error")


@pytest.mark.parametrize(
    ("holder", "name"), [("log", "roll"), ("log", "cut_below"), ("metadata", "save")], ids=lambda what: str(what)
)
def test_failed_step_between_two_writes_of_the_log_ends_the_node(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, holder: str, name: str
) -> None:
    broker.files.log.segment_bytes_max = 1
    client.publish(Q)
    monkeypatch.setattr(getattr(broker.files, holder), name, fail)
    broker.may_fail = True

    broker.raft_log.tell(Roll(broker.queues.applied[0]))
    broker.raft_log.tell(Cut(1))
    client.send({"cmd": "PUB", "qname": Q, "message": "m"})

    assert client.take() == []
    assert [type(error) for error in broker.failures] == [SyncFailed]
    assert not broker.raft_log.alive


@pytest.mark.parametrize("name", ["commit", "sweep"])
def test_failed_write_of_the_state_ends_the_node(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    client.publish(Q)
    broker.advance(2)
    client.call("PURGE", Q)
    monkeypatch.setattr(broker.files.store, name, fail)
    broker.may_fail = True

    broker.advance(2)

    assert [type(error) for error in broker.failures] == [SyncFailed]
    assert not broker.queues.alive


def test_image_that_the_disk_does_not_take_ends_the_node(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.publish(Q)
    monkeypatch.setattr(snapshots, "write_snapshot", fail)
    broker.may_fail = True

    broker.snapshots.tell(WriteImage(broker.runtime.spawn(Operator)))
    broker.settle()

    assert [type(error) for error in broker.failures] == [SyncFailed]


def test_vote_that_could_not_be_saved_ends_its_node_and_elects_no_leader(
    cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = cluster.others(leader)
    for other in others:
        monkeypatch.setattr(other.opened.metadata, "save", fail)
    leader.kill()

    with pytest.raises(SyncFailed):
        cluster.advance(3 * ELECTION_S)

    assert not all(other.raft_log.alive for other in others)
    assert cluster.leader() is None


def test_truncation_that_the_disk_does_not_take_ends_its_node(
    cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = leader.client()
    client.publish(Q)
    cluster.isolate(leader)
    client.send({"cmd": "PUB", "qname": Q, "message": "only here"})
    successor(cluster, leader).client().publish(Q)
    monkeypatch.setattr(leader.opened.log, "truncate_from", fail)

    with pytest.raises(SyncFailed):
        cluster.heal()

    assert not leader.raft_log.alive
