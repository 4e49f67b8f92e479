"""Deliveries that have not left when their node ceases to lead: by now they may be somebody else's, and done."""

from typing import Any

import pytest

from tests.helpers.clusters.by_hand import ELECTION_S, HandCluster, HandNode, leads_again, successor
from wakeq.actors.sessions.taskflux import TaskFluxSession
from wakeq.actors.sessions.worker import WorkerSession
from wakeq.protocol.wire.taskflux.commands import ACK, EMPTY, NACK, OK, UNKNOWN_NODE, Dequeue, NotLeader, Record

Q = "q"
OTHER = "other"

FETCHES: dict[str, dict[str, Any]] = {
    "one": {"cmd": "FET", "qname": Q},
    "many": {"cmd": "FET", "qname": Q, "count": 10},
    "waiting": {"cmd": "FET", "qname": Q, "wait": 5},
    "apart": {"cmd": "FET", "qname": Q, "wait": 5, "cmd_id": 7},
    "block": {"cmd": "FETB", "qname": Q, "count": 10},
}


def is_done_elsewhere(cluster: HandCluster, deposed: HandNode, uid: str) -> None:
    """Have the message delivered and acknowledged by the next leader."""
    client = successor(cluster, deposed).client()
    assert client.fetch(Q)["uid"] == uid
    assert client.call("ACK", Q, uid=uid)["cmd"] == "okack"


class HeldMail:
    """What a session is told, or is about to send, until it arrives."""

    def __init__(self, process: WorkerSession | TaskFluxSession, monkeypatch: pytest.MonkeyPatch) -> None:
        self._process, self._monkeypatch = process, monkeypatch
        self.messages: list[Any] = []
        monkeypatch.setattr(process, "tell", self.messages.append)
        monkeypatch.setattr(process, "flush", lambda: None)

    def arrive(self) -> None:
        self._monkeypatch.undo()
        for message in self.messages:
            self._process.tell(message)
        self._process.flush()


@pytest.mark.parametrize("fetch", [fetch for name, fetch in FETCHES.items() if name != "apart"])
def test_delivery_behind_an_acknowledgement_is_not_sent_by_a_deposed_leader(
    cluster: HandCluster, leader: HandNode, fetch: dict[str, Any]
) -> None:
    client = leader.client()
    client.publish(OTHER)
    done = client.fetch(OTHER)
    uid = client.publish(Q)
    cluster.advance(0.2)
    cluster.isolate(leader)

    assert client.ask({"cmd": "ACK", "qname": OTHER, "uid": done["uid"]}, fetch) == []
    is_done_elsewhere(cluster, leader, uid)
    cluster.advance(2 * ELECTION_S)

    assert [reply.get("err") for reply in client.take()] == ["UNKNOWN", "NOT_LEADER"]


def test_slice_behind_an_acknowledgement_is_not_sent_by_a_deposed_leader(
    cluster: HandCluster, leader: HandNode
) -> None:
    client = leader.client()
    client.publish(OTHER)
    done = client.fetch(OTHER)
    client.publish(Q)
    client.call("STAGE", Q, source="s", epoch=1, count=10)
    cluster.advance(0.2)
    cluster.isolate(leader)

    slice_ = {"cmd": "SLICE", "qname": Q, "source": "s", "epoch": 1, "slice": 0, "offset": 0, "count": 10}
    assert client.ask({"cmd": "ACK", "qname": OTHER, "uid": done["uid"]}, slice_) == []
    cluster.advance(4 * ELECTION_S)

    assert [reply.get("err") for reply in client.take()] == ["UNKNOWN", "NOT_LEADER"]


@pytest.mark.parametrize("lease", ["fast", "strict"])
def test_delivery_behind_a_waiting_fetch_is_not_sent_by_a_deposed_leader(
    cluster: HandCluster, leader: HandNode, lease: str
) -> None:
    client = leader.client()
    client.call("CREATE", Q, lease=lease)
    client.publish(Q)
    client.publish(OTHER)
    client.fetch(OTHER)
    assert client.ask(*({"cmd": "FET", "qname": name, "wait": 60} for name in (OTHER, Q))) == []
    cluster.advance(0.2)
    cluster.isolate(leader)

    successor(cluster, leader)

    assert [reply.get("err") for reply in client.take()] == ["NOT_LEADER", "NOT_LEADER"]


@pytest.mark.parametrize("fetch", FETCHES.values(), ids=FETCHES)
def test_delivery_in_the_mail_of_its_connection_is_not_sent_by_a_deposed_leader(
    cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch, fetch: dict[str, Any]
) -> None:
    client = leader.client()
    client.publish(Q)
    client.send(fetch)
    mail = HeldMail(client.process, monkeypatch)
    cluster.settle()
    cluster.isolate(leader)
    successor(cluster, leader)

    mail.arrive()

    assert [reply.get("err") for reply in client.take()] == ["NOT_LEADER"]


def test_delivery_of_an_earlier_term_is_not_sent_by_a_node_that_leads_again(
    cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = leader.client()
    client.publish(Q)
    client.send({"cmd": "FET", "qname": Q})
    mail = HeldMail(client.process, monkeypatch)
    cluster.advance(0.2)
    cluster.isolate(leader)
    successor(cluster, leader)
    cluster.heal()
    cluster.until(lambda: leads_again(cluster, leader), "the first one leads again")

    mail.arrive()

    assert [reply.get("err") for reply in client.take()] == ["NOT_LEADER"]
    assert leader.client().fetch(Q)["error_count"] == 1, "it went back, for this node leads and knows its lease"


def test_delivery_that_meets_a_silent_majority_returns_to_the_line_of_a_leader_that_stays(
    cluster: HandCluster, leader: HandNode
) -> None:
    client = leader.client()
    uid = client.publish(Q)
    client.publish(OTHER)
    client.fetch(OTHER)
    assert client.ask({"cmd": "FET", "qname": OTHER, "wait": 0.8}, {"cmd": "FET", "qname": Q, "wait": 5}) == []
    cluster.advance(0.1)
    cluster.isolate(leader)

    cluster.advance(0.8)
    cluster.heal()
    cluster.advance(0.3)

    assert [reply.get("err") for reply in client.take()] == [None, "NO_QUORUM"]
    assert leader.client().fetch(Q)["uid"] == uid


# TaskFlux -------------------------------------------------------------------------------------------------------------


def test_record_behind_an_acknowledgement_is_not_sent_by_a_deposed_leader(
    cluster: HandCluster, leader: HandNode
) -> None:
    leader.client().publish(OTHER)
    uid = leader.client().publish(Q)
    flux = leader.taskflux()
    assert flux.ask(Dequeue(OTHER)) == [Record(0, b"hi")]
    cluster.advance(0.2)
    cluster.isolate(leader)

    assert flux.ask(ACK, Dequeue(Q)) == []
    is_done_elsewhere(cluster, leader, uid)
    cluster.advance(2 * ELECTION_S)

    assert flux.take() == [NotLeader(UNKNOWN_NODE)] * 2


def test_record_that_its_client_has_acknowledged_unseen_is_sent_for_it_may_be_gone(
    cluster: HandCluster, leader: HandNode
) -> None:
    leader.client().publish(OTHER)
    leader.client().publish(Q)
    flux = leader.taskflux()
    assert flux.ask(Dequeue(OTHER)) == [Record(0, b"hi")]
    cluster.advance(0.2)
    cluster.isolate(leader)

    assert flux.ask(ACK, Dequeue(Q), ACK) == []
    cluster.advance(4 * ELECTION_S)

    assert flux.take() == [NotLeader(UNKNOWN_NODE), Record(0, b"hi"), NotLeader(UNKNOWN_NODE)]


@pytest.mark.parametrize("way", ["nack", "end"])
def test_record_that_its_client_released_unseen_is_not_sent_by_a_deposed_leader(
    cluster: HandCluster, leader: HandNode, way: str
) -> None:
    leader.client().publish(OTHER)
    uid = leader.client().publish(Q)
    flux = leader.taskflux()
    assert flux.ask(Dequeue(OTHER)) == [Record(0, b"hi")]
    cluster.advance(0.2)
    cluster.isolate(leader)

    flux.say(ACK, Dequeue(Q), *([NACK] if way == "nack" else []))
    if way == "end":
        flux.end()
    assert flux.take() == []
    is_done_elsewhere(cluster, leader, uid)
    cluster.advance(2 * ELECTION_S)

    assert flux.take()[:2] == [NotLeader(UNKNOWN_NODE)] * 2


def test_records_that_a_committed_entry_removed_are_sent_by_a_deposed_leader(
    cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        leader.client().publish(Q)
    flux = leader.taskflux()
    flux.say(Dequeue(Q), ACK, Dequeue(Q), ACK)
    mail = HeldMail(flux.process, monkeypatch)
    cluster.settle()
    cluster.isolate(leader)
    new = successor(cluster, leader)

    mail.arrive()

    assert flux.take() == [Record(0, b"hi"), OK] * 2
    assert new.taskflux().ask(Dequeue(Q)) == [EMPTY]


def test_record_in_the_mail_of_its_connection_is_not_sent_by_a_deposed_leader(
    cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader.client().publish(Q)
    flux = leader.taskflux()
    flux.say(Dequeue(Q))
    mail = HeldMail(flux.process, monkeypatch)
    cluster.settle()
    cluster.isolate(leader)
    successor(cluster, leader)

    mail.arrive()

    assert flux.take() == [NotLeader(UNKNOWN_NODE)]
    assert flux.ask(ACK) == [], "nothing is held, so nothing is acknowledged"
