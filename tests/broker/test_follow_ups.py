"""An acknowledgement that publishes, by the clients' eyes: all of it is done, or nothing."""

import pytest

from tests.helpers.brokers.broker import Broker, Client

Q = "q"


def test_acknowledgement_with_follow_ups_does_all_of_it(client: Client) -> None:
    uid = client.publish(Q, "a")
    client.fetch(Q)

    reply = client.call("ACK", Q, uid=uid, publish=[{"qname": "b", "message": "b"}, {"qname": "c", "message": "c"}])

    assert reply["cmd"] == "okack"
    assert reply["published"] == [client.fetch(name)["uid"] for name in ("b", "c")]
    assert client.finds_nothing(Q)


def test_queues_that_one_acknowledgement_makes_have_uids_and_records_of_their_own(
    broker: Broker, client: Client
) -> None:
    uid = client.publish(Q, "a")
    client.fetch(Q)
    names = ["b", "c", "d", "b"]

    published = client.call("ACK", Q, uid=uid, publish=[{"qname": n, "message": n} for n in names])["published"]
    broker.flush()
    broker.crash_and_restart()

    assert len(set(published)) == len(names)
    again = broker.client()
    assert [again.fetch(name)["uid"] for name in names] == published


def test_acknowledgement_does_nothing_if_several_of_its_queues_are_dropped_meanwhile(
    broker: Broker, client: Client, worker: Client
) -> None:
    follow_ups = [{"qname": name, "message": name} for name in ("b", "c")]
    for follow_up in follow_ups:
        client.call("CREATE", follow_up["qname"])
    uid = client.publish(Q)
    client.fetch(Q)
    ack = {"cmd": "ACK", "qname": Q, "uid": uid, "publish": follow_ups}

    broker.log_disk.held = True
    worker.send(*({"cmd": "DROP", "qname": follow_up["qname"]} for follow_up in follow_ups))
    broker.settle()
    client.send(ack)
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()
    refused = client.take()
    repeated = client.ask(ack)

    assert [reply.get("err") for reply in refused] == ["BUSY"]
    assert [reply["cmd"] for reply in repeated] == ["okack"]
    assert len(set(repeated[0]["published"])) == 2


@pytest.mark.parametrize("targets", [["full"], ["b", "full"], ["one", "one"]])
def test_acknowledgement_whose_follow_up_finds_no_room_does_nothing(
    broker: Broker, client: Client, targets: list[str]
) -> None:
    client.call("CREATE", "full", max_size=0)
    client.call("CREATE", "one", max_size=1)
    uid = client.publish(Q, timeout=5)
    client.fetch(Q)

    reply = client.call("ACK", Q, uid=uid, publish=[{"qname": name, "message": "m"} for name in targets])

    assert (reply["cmd"], reply["err"]) == ("nok", "QUEUE_FULL")
    assert {client.call("FET", name)["cmd"] for name in targets} <= {"nomsg", "nok"}
    broker.advance(5)
    assert client.fetch(Q)["uid"] == uid
    broker.check(Q)


def test_acknowledgement_with_follow_ups_of_a_stale_or_unknown_message_does_nothing(
    broker: Broker, client: Client, worker: Client
) -> None:
    uid = client.publish(Q, timeout=5)
    old = client.fetch(Q)["lease"]
    broker.advance(5)
    worker.fetch(Q)
    publish = [{"qname": "b", "message": "m"}]

    stale = client.call("ACK", Q, uid=uid, lease=old, publish=publish)
    unknown = client.call("ACK", Q, uid=uid[:-1] + "z", publish=publish)
    nowhere = client.call("ACK", "nowhere", uid=uid, publish=publish)

    assert [reply["cmd"] for reply in (stale, unknown, nowhere)] == ["nok"] * 3
    assert stale["err"] == "STALE_LEASE"
    assert "b" not in broker.queues.catalog.queues
    assert worker.call("ACK", Q, uid=uid)["cmd"] == "okack"


def test_acknowledgements_of_one_message_are_done_in_the_order_in_which_they_came(client: Client) -> None:
    uid = client.publish(Q)
    client.fetch(Q)
    ack = {"cmd": "ACK", "qname": Q, "uid": uid}

    plain, with_follow_up = client.ask(ack, ack | {"publish": [{"qname": "b", "message": "b"}]})

    assert plain == {"cmd": "okack", "qname": Q, "uid": uid}
    assert with_follow_up["err"] == "UNKNOWN_UID"
    assert client.call("FET", "b")["cmd"] == "nok"
