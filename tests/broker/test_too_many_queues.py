"""Bounds of how many queues there are: of a node, by `Crowded`, and of a token, by its Gate."""

from datetime import UTC, datetime

import pytest

from tests.helpers.brokers.broker import Broker
from wakeq.actors.mail import Crowded
from wakeq.actors.sessions.access import Gate
from wakeq.protocol.access import Book, Grant, Right, digest_of
from wakeq.protocol.errors import TooManyQueues
from wakeq.protocol.queue.outcomes import Refusal

FULL = Refusal(TooManyQueues.code, "there are 3 queues")


def crowd(broker: Broker, refusal: Refusal | None) -> None:
    for process in (broker.raft_log, broker.queues):
        process.tell(Crowded(refusal, broker.queues.exists))
    broker.settle()


@pytest.mark.parametrize(
    ("command", "fields"),
    [
        ("PUB", {"message": "x"}),
        ("PUB", {"messages": ["x", "y"], "id": "an id"}),
        ("STASH", {"stash": "s", "messages": ["x"]}),
        ("CREATE", {}),
        ("FET", {"wait": 1}),
    ],
)
def test_new_queue_of_a_crowded_node_is_refused_until_there_is_room(
    broker: Broker, command: str, fields: dict[str, object]
) -> None:
    client = broker.client()
    client.publish("old")
    crowd(broker, FULL)

    refused = client.call(command, "new", **fields)
    taken = client.call("PUB", "old", message="y")

    assert (refused["cmd"], refused["err"], refused["detail"]) == ("nok", "TOO_MANY_QUEUES", "there are 3 queues")
    assert taken["cmd"] == "ok"
    assert not broker.queues.exists("new")
    crowd(broker, None)
    assert client.call("PUB", "new", message="x")["cmd"] == "ok"


def test_follow_up_for_a_new_queue_of_a_crowded_node_is_refused_with_its_acknowledgement(broker: Broker) -> None:
    client = broker.client()
    client.publish("old")
    one = client.fetch("old")
    crowd(broker, FULL)

    follow = [{"qname": "new", "message": "x"}]
    refused = client.call("ACK", "old", uid=one["uid"], lease=one["lease"], publish=follow)

    assert refused["err"] == "TOO_MANY_QUEUES"
    assert client.call("ACK", "old", uid=one["uid"], lease=one["lease"])["cmd"] == "okack"


def test_dead_letter_of_a_crowded_node_gets_its_queue(broker: Broker) -> None:
    client = broker.client()
    client.publish("old", "body")
    one = client.fetch("old")
    crowd(broker, FULL)

    client.call("NACK", "old", uid=one["uid"], lease=one["lease"], dead=True)

    assert client.fetch("old.dead")["msg"] == "body"


def test_token_makes_as_many_queues_as_it_may_whatever_its_connections() -> None:
    there = {"old"}
    moment = datetime(2026, 6, 1, tzinfo=UTC)
    grants = [Grant(name, digest_of(name).hex(), ("*",), tuple(Right), moment) for name in ("me", "you")]
    gate = Gate(Book(grants), lambda: 0)
    gate.limit_queues(2, there.__contains__)
    mine, again, other = gate.login("me"), gate.login("me"), gate.login("you")

    assert mine.may_any("looked-at")
    assert mine.covers(Right.PUBLISH, {"old", "a"})
    assert again.covers(Right.PUBLISH, {"b"})
    there |= {"a", "b"}
    assert not again.covers(Right.PUBLISH, {"c"})
    refusal = again.refusal(Right.PUBLISH, "c")
    assert (refusal.code, "queues_per_token_max" in str(refusal)) == ("TOO_MANY_QUEUES", True)
    assert again.covers(Right.PUBLISH, {"a", "b", "old"})
    assert again.covers(Right.FETCH, {"c"})
    assert other.covers(Right.PUBLISH, {"c"})
    there -= {"a"}
    assert again.covers(Right.PUBLISH, {"d"}), "one of its queues is gone"


def test_token_without_a_limit_creates_any_number_of_queues() -> None:
    moment = datetime(2026, 6, 1, tzinfo=UTC)
    gate = Gate(Book([Grant("me", digest_of("me").hex(), ("*",), tuple(Right), moment)]), lambda: 0)
    gate.limit_queues(0, lambda name: False)

    assert gate.login("me").covers(Right.PUBLISH, {str(number) for number in range(100)})
