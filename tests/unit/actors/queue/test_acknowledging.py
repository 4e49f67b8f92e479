"""Acknowledging: what is marked before any read of its turn is served, and what follows a refusal by the log."""

import pytest

from tests.helpers.brokers.broker import Broker, Client
from wakeq.actors.log import admission
from wakeq.actors.mail import Pressure
from wakeq.protocol.log.entries import Ack
from wakeq.protocol.queue.outcomes import Refusal

Q = "q"


@pytest.mark.parametrize("several", [False, True])
def test_message_whose_acknowledgement_stands_behind_a_nack_is_not_delivered_in_the_same_turn(
    broker: Broker, client: Client, worker: Client, several: bool
) -> None:
    held = client.publish(Q, "held")
    client.fetch(Q)
    uid = client.publish(Q, "done")
    about = {"uids": [uid]} if several else {"uid": uid}

    worker.send({"cmd": "FET", "qname": Q})
    client.send({"cmd": "NACK", "qname": Q, "uid": held}, {"cmd": "ACK", "qname": Q, **about})
    replies = worker.take()

    assert [reply["cmd"] for reply in replies] == ["nomsg"]
    assert client.words() == ["oknack", "okack"]
    assert client.fetch(Q)["msg"] == "held"
    assert client.finds_nothing(Q)


def test_messages_of_plain_acknowledgements_that_the_log_refuses_are_not_stuck(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    uids = [client.publish(Q) for _ in range(2)]
    client.fetch(Q)
    monkeypatch.setattr(admission, "_needs_room", lambda entry: type(entry) is Ack)
    broker.raft_log.tell(Pressure(Refusal("DISK_FULL", "no room")))
    replies = client.ask(*[{"cmd": "ACK", "qname": Q, "uid": uid} for uid in uids])
    broker.raft_log.tell(Pressure(None))

    assert [reply["err"] for reply in replies] == ["DISK_FULL"] * 2
    assert client.fetch(Q)["uid"] == uids[1]
    assert client.call("NACK", Q, uid=uids[0])["cmd"] == "oknack"
    assert client.fetch(Q)["uid"] == uids[0]
    broker.check(Q)
