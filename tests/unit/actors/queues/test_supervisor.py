"""Queues: the catalog, what is seen of queues, and dead incarnations."""

import pytest

from tests.helpers.brokers.broker import Broker, Client
from wakeq.actors.mail import Propose
from wakeq.protocol.log.entries import ANY_TOKEN, Delivered, Draft, Publish
from wakeq.protocol.queue.lanes import Proposal
from wakeq.storage.state.store import GRAVES, MESSAGES, QUEUES

Q = "q"


# Looking, changing ----------------------------------------------------------------------------------------------------


def test_list_stats_and_peek_tell_every_state_apart(broker: Broker, client: Client) -> None:
    leased, ready, delayed = client.publish(Q, "l"), client.publish(Q, "r", priority=5), client.publish(Q, "d", delay=9)
    client.fetch(Q)

    found = {
        state: [(m["uid"], m["state"]) for m in client.call("PEEK", Q, state=state)["messages"]]
        for state in ("ready", "leased", "delayed", "any")
    }
    broker.advance(0.1)
    figures = client.figures(Q)

    assert found == {
        "leased": [(leased, "leased")],
        "ready": [(ready, "ready")],
        "delayed": [(delayed, "delayed")],
        "any": [(leased, "leased"), (ready, "ready"), (delayed, "delayed")],
    }
    assert [figures[name] for name in ("ready", "delayed", "leased", "size")] == [1, 1, 1, 2]
    assert [row["qname"] for row in client.call("LIST", prefix="q")["queues"]] == [Q]
    assert client.call("PEEK", "nowhere")["err"] == client.call("STATS", "nowhere")["err"] == "Q_NOT_FOUND"


@pytest.mark.parametrize("stored", [False, True])
def test_update_of_the_structure_keeps_the_ready_messages(broker: Broker, client: Client, stored: bool) -> None:
    for place, priority in enumerate([2, 0, 1, 0, 2]):
        client.publish(Q, str(place), priority=priority)
    if stored:
        broker.flush()

    assert client.call("UPDATE", Q, structure="QA", priority_min=0, priority_max=2)["cmd"] == "okupdate"
    first = [client.fetch(Q)["msg"] for _ in range(2)]
    assert client.call("UPDATE", Q, structure="H4")["cmd"] == "okupdate"

    assert first + [client.fetch(Q)["msg"] for _ in range(3)] == ["1", "3", "2", "0", "4"]
    assert client.finds_nothing(Q)


@pytest.mark.parametrize("structure", ["H4", "QA"])
@pytest.mark.parametrize("restart", [False, True])
def test_structures_deliver_the_smallest_priority_first_and_its_oldest(
    broker: Broker, client: Client, structure: str, restart: bool
) -> None:
    client.call("CREATE", Q, structure=structure, priority_min=-3, priority_max=3)
    for place, priority in enumerate([3, -3, 0, -3, 3, 0]):
        client.publish(Q, str(place), priority=priority)
    if restart:
        broker.crash_and_restart()
        client = broker.client()

    assert [client.fetch(Q)["msg"] for _ in range(6)] == ["1", "3", "2", "5", "0", "4"]
    assert client.call("PUB", Q, message="m", priority=4)["err"] == "KEY_RANGE"


def test_default_queue_is_there_and_cannot_be_deleted(broker: Broker, client: Client) -> None:
    reply = client.call("DROP", "")
    client.publish("", "m")

    assert (reply["cmd"], reply["err"]) == ("nok", "BAD_NAME")
    assert client.fetch("")["msg"] == "m"
    assert client.call("PURGE", "")["cmd"] == "purged"


def test_follow_ups_to_a_queue_that_has_had_no_turn_are_applied_once(broker: Broker, client: Client) -> None:
    uid = client.publish("source")
    follow_ups = [{"qname": "new", "message": str(number)} for number in range(3)]

    reply = client.call("ACK", "source", uid=uid, publish=follow_ups)

    assert len(reply["published"]) == 3
    assert client.figures("new")["published"] == 3
    assert [client.fetch("new")["msg"] for _ in range(3)] == ["0", "1", "2"]
    assert client.finds_nothing("new")


def test_delivery_of_a_removed_message_changes_nothing(broker: Broker, client: Client) -> None:
    uid = client.publish(Q)
    queue_id = broker.queue(Q).ledger.id
    client.call("ACK", Q, uid=uid)

    broker.raft_log.tell(Propose([Proposal(Delivered(Q, queue_id, [1], [broker.now_ms() + 5], 9), None)]))
    broker.settle()

    assert broker.queue(Q).ledger.deliveries.leased == 0
    assert ANY_TOKEN == (0, 0)
    broker.check(Q)


# Incarnations ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["PURGE", "DROP"])
@pytest.mark.parametrize("stored", [False, True])
def test_dead_incarnation_vanishes_at_once_and_its_records_are_swept(
    broker: Broker, client: Client, end: str, stored: bool
) -> None:
    uids = client.call("PUB", Q, messages=["m"] * 2_500)["uids"]
    client.fetch(Q)
    if stored:
        broker.flush()

    client.call(end, Q)
    at_once = client.call("FET", Q)["cmd"]
    old = client.call("ACK", Q, uid=uids[0])
    new = client.publish(Q, "new")
    broker.flush()

    assert at_once == ("nomsg" if end == "PURGE" else "nok")
    assert old["known"] is False
    assert new not in uids
    assert new[:7] != uids[0][:7]
    assert client.call("NACK", Q, uid=uids[1])["known"] is False
    records = broker.files.store.stats().records
    assert (records[MESSAGES], records[GRAVES], records[QUEUES]) == (1, 0, 2)


@pytest.mark.parametrize("end", ["PURGE", "DROP"])
def test_dead_incarnation_does_not_come_back_with_a_restart(broker: Broker, client: Client, end: str) -> None:
    client.publish(Q, "old")
    broker.flush()
    client.call(end, Q)

    broker.crash_and_restart()
    client = broker.client()

    assert client.call("FET", Q)["cmd"] == ("nomsg" if end == "PURGE" else "nok")
    assert client.publish(Q, "new")
    assert client.fetch(Q)["msg"] == "new"


@pytest.mark.parametrize(("end", "again"), [("PURGE", True), ("DROP", False)])
def test_publishers_are_remembered_over_a_purge_and_forgotten_with_the_queue(
    client: Client, end: str, again: bool
) -> None:
    first = client.publish(Q, id="once")
    client.call(end, Q)

    second = client.publish(Q, id="once")

    assert (second == first) is again
    assert client.call("FET", Q)["cmd"] == ("nomsg" if again else "msg")


def test_sleepers_and_waiting_fetches_survive_a_purge(client: Client, broker: Broker) -> None:
    sleeps, waits = broker.client(), broker.client()
    client.publish(Q, delay=100)
    sleeps.fall_asleep(Q)
    waits.ask({"cmd": "FET", "qname": Q, "wait": 50, "cmd_id": 1})

    client.call("PURGE", Q)
    client.call("PUB", Q, messages=["1", "2"])

    assert waits.words() == ["msg"]
    assert sleeps.words() == ["awk"]


@pytest.mark.parametrize(("subscribed", "word"), [(True, "nomsg"), (False, "nok")])
def test_wait_for_a_queue_that_is_deleted_ends_as_a_fetch_of_none_does(
    client: Client, broker: Broker, subscribed: bool, word: str
) -> None:
    waits = broker.client()
    client.call("CREATE", Q)
    if subscribed:
        waits.call("SUB", Q)
    waits.ask({"cmd": "FET", "qname": Q, "wait": 50, "cmd_id": 1})

    client.call("DROP", Q)

    assert waits.words() == [word]
    assert waits.call("FET", Q)["cmd"] == word


# Imported messages ----------------------------------------------------------------------------------------------------


def test_imported_message_is_reached_by_its_old_uid_only(broker: Broker, client: Client) -> None:
    broker.raft_log.tell(Propose([Proposal(Publish("new", [Draft(b"old", alias="aB1440000000_250")]), None)]))
    other = client.publish(Q)

    wrong = client.call("ACK", "new", uid=other)
    message = client.fetch("new")

    assert wrong["known"] is False
    assert (message["uid"], message["msg"]) == ("aB1440000000_250", "old")
    assert client.call("ACK", "new", uid="aB1440000000_250").get("known", True)
    assert client.finds_nothing("new")


def test_message_published_behind_a_skipped_entry_keeps_the_uid_that_was_answered(
    broker: Broker, client: Client, poison: list[int]
) -> None:
    publisher = broker.client()
    for name in ("done", "next", "other"):
        client.publish(name)
    held = client.fetch("done")
    broker.advance(0.1)
    poison[0] = -1

    follow_ups = [{"qname": "next", "message": "m"}, {"qname": "other", "message": "poison"}]
    client.send({"cmd": "ACK", "qname": "done", "uid": held["uid"], "publish": follow_ups})
    publisher.send({"cmd": "PUB", "qname": "next", "message": "behind"})
    (refused,), (published,) = client.take(), publisher.take()

    assert (refused["err"], published["cmd"]) == ("SET_ASIDE", "ok")
    assert [message["uid"] for message in client.call("FET", "next", count=9)["messages"]][1:] == [published["uid"]]
