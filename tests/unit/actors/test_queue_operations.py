"""QueueOperations: what an operator moves or lets go is there once, whatever happens meanwhile."""

import pytest

from tests.helpers.broker import Broker, Client
from wakeq.actors import leases
from wakeq.actors.operator_messages import Requeue

Q = "q"


def test_what_was_let_go_and_given_back_is_delivered_once(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "FELL_DUE_MAX", 10)  # of so many messages each call takes a piece
    uids = client.call("PUB", Q, messages=["x"] * 50, delay=100)["uids"]
    broker.operate(Q, lambda me: Requeue(me, Q, uids))
    held = client.call("FET", Q, count=50)["messages"]
    client.call("NACK", Q, uids=uids, leases=[message["lease"] for message in held], delay=200)

    broker.advance(150)  # behind the moment that they had at first
    broker.advance(60)
    first, second = client.call("FET", Q, count=100), client.call("FET", Q, count=100)

    assert sorted(message["uid"] for message in first["messages"]) == uids
    assert second["cmd"] == "nomsg"
