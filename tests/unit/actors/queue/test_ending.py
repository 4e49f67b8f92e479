"""How the deliveries of a queue end: expiry, dead letters, and what is rejected or returned."""

import pytest

from tests.helpers.brokers.broker import Broker, Client
from wakeq.protocol.log.entries import Reason

Q = "q"


# Expiry ---------------------------------------------------------------------------------------------------------------


def test_expired_message_is_removed_without_a_fetch(broker: Broker, client: Client) -> None:
    client.publish(Q, expires=10)

    broker.advance(9.9)
    before = client.figures(Q)["size"]
    broker.advance(0.2)

    assert before == 1
    assert client.finds_nothing(Q)
    figures = client.figures(Q)
    assert (figures["size"], figures["expired"]) == (0, 1)


@pytest.mark.parametrize(("delay", "expires"), [(10, 10), (11, 10)])
def test_delay_that_is_not_shorter_than_the_expiry_means_never(
    broker: Broker, client: Client, delay: int, expires: int
) -> None:
    client.publish(Q, delay=delay, expires=expires)

    for _ in range(15):
        broker.advance(1)
        assert client.finds_nothing(Q)

    assert client.figures(Q)["size"] == 0


def test_message_delivered_before_its_expiry_stays_with_the_worker(broker: Broker, client: Client) -> None:
    client.publish(Q, expires=10, timeout=30)
    message = client.fetch(Q)

    broker.advance(20)
    reply = client.call("ACK", Q, uid=message["uid"], lease=message["lease"])

    assert reply.get("known", True)
    assert client.figures(Q)["expired"] == 0


@pytest.mark.parametrize("expires", [7, 100])
def test_message_that_comes_back_expires_all_the_same(broker: Broker, client: Client, expires: int) -> None:
    client.publish(Q, expires=expires, timeout=5)
    broker.advance(3)
    client.fetch(Q)

    broker.advance(5)
    after_its_return = client.figures(Q)["size"]
    broker.advance(100)

    figures = client.figures(Q)
    assert after_its_return == (0 if expires == 7 else 1)
    assert (figures["size"], figures["expired"], figures["leased"]) == (0, 1, 0)


# Dead letters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [False, True], ids=["body in memory", "body in the store"])
@pytest.mark.parametrize("how", ["timeout", "nack"])
def test_last_allowed_delivery_ends_in_the_dead_letter_queue(
    broker: Broker, client: Client, how: str, stored: bool
) -> None:
    client.call("CREATE", Q, max_deliveries=2)
    uid = client.publish(Q, "body", timeout=5, priority=-3, headers={"mine": "1"})
    for _ in range(2):
        message = client.fetch(Q)
        if stored:
            broker.advance(0.1)  # the delivery is committed
            broker.flush()
            assert broker.queue(Q).bodies.missing([1]) == [1]
        if how == "nack":
            reply = client.call("NACK", Q, uid=uid, lease=message["lease"], error="it broke")
            assert reply["cmd"] == "oknack"
        broker.advance(5)

    dead = client.fetch("q.dead")

    assert client.finds_nothing(Q)
    assert (dead["msg"], dead["priority"], dead["error_count"]) == ("body", -3, 0)
    expected = {"mine": "1", "wakeq-origin": Q, "wakeq-origin-uid": uid, "wakeq-deliveries": "2", "wakeq-reason": how}
    assert dead["headers"] == expected | ({"wakeq-error": "it broke"} if how == "nack" else {})
    assert client.figures(Q)["dead"] == 1


def test_dead_letter_is_in_one_queue_only_after_a_restart(broker: Broker, client: Client) -> None:
    client.call("CREATE", Q, max_deliveries=1, dead_letter="grave")
    client.publish(Q)
    client.call("NACK", Q, uid=client.fetch(Q)["uid"])

    broker.crash_and_restart()
    client = broker.client()

    assert client.finds_nothing(Q)
    assert client.fetch("grave")["headers"]["wakeq-deliveries"] == "1"
    assert client.finds_nothing("grave")


def test_dead_letter_is_not_refused_by_a_full_queue(broker: Broker, client: Client) -> None:
    client.call("CREATE", "grave", max_size=0)
    client.call("CREATE", Q, max_deliveries=1, dead_letter="grave")
    client.publish(Q)

    client.call("NACK", Q, uid=client.fetch(Q)["uid"])

    assert client.fetch("grave")["msg"] == "hi"


# Rejected, and returned -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [False, True], ids=["body in memory", "body in the store"])
@pytest.mark.parametrize("allowed", [0, 5])
@pytest.mark.parametrize("reason", ["rejected", "exhausted"])
def test_rejected_message_is_a_dead_letter_at_once(
    broker: Broker, client: Client, allowed: int, stored: bool, reason: str
) -> None:
    client.call("CREATE", Q, max_deliveries=allowed)
    uid = client.publish(Q, "body")
    lease = client.fetch(Q)["lease"]
    if stored:
        broker.advance(0.1)  # the delivery is committed
        broker.flush()
        assert broker.queue(Q).bodies.missing([1]) == [1]

    why = {"exhausted": True} if reason == "exhausted" else {}
    reply = client.call("NACK", Q, uid=uid, lease=lease, dead=True, error="it is no order", **why)

    assert reply == {"cmd": "oknack", "uid": uid, "qname": Q}
    assert client.finds_nothing(Q)
    letter = client.fetch("q.dead")
    assert (letter["msg"], letter["headers"]["wakeq-reason"]) == ("body", reason)
    assert (letter["headers"]["wakeq-deliveries"], letter["headers"]["wakeq-error"]) == ("1", "it is no order")


def test_nack_of_several_checks_each_lease(broker: Broker, client: Client, worker: Client) -> None:
    uids = [client.publish(Q, str(i), timeout=5) for i in range(4)]
    leases = [client.fetch(Q)["lease"] for _ in uids]
    client.call("NACK", Q, uid=uids[1])
    worker.fetch(Q)  # the second one is somebody else's now
    client.call("ACK", Q, uid=uids[2])

    reply = client.call("NACK", Q, uids=uids, leases=leases, dead=True)

    assert (reply["err"], reply["stale"], reply["unknown"]) == ("STALE_LEASE", [uids[1]], [uids[2]])
    assert reply["uids"] == [uids[0], uids[3]]
    assert sorted(client.fetch("q.dead")["msg"] for _ in range(2)) == ["0", "3"]
    assert client.finds_nothing("q.dead")


@pytest.mark.parametrize("fields", [{"dead": True}, {"failed": False}])
def test_message_without_a_lease_is_neither_rejected_nor_returned(
    broker: Broker, client: Client, fields: dict[str, bool]
) -> None:
    uid = client.publish(Q, timeout=5)
    lease = client.fetch(Q)["lease"]
    broker.advance(5)

    replies = [client.call("NACK", Q, uid=uid, **given, **fields) for given in ({}, {"lease": lease})]

    assert [reply["known"] for reply in replies] == [False, False]
    assert client.fetch(Q)["error_count"] == 1


def test_reject_behind_a_lease_timeout_under_way_finds_the_delivery_ended(
    broker: Broker, client: Client, worker: Client
) -> None:
    uid = client.publish(Q, timeout=5)
    lease = client.fetch(Q)["lease"]
    worker.send({"cmd": "FET", "qname": Q, "wait": 60})
    broker.advance(4)
    broker.log_disk.held = True
    broker.advance(1)  # the end of the lease is on its way to the disk

    client.send({"cmd": "NACK", "qname": Q, "uid": uid, "lease": lease, "dead": True})
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert client.take() == [{"cmd": "oknack", "uid": uid, "qname": Q, "known": False}]
    assert worker.words() == ["msg"]
    assert worker.call("ACK", Q, uid=uid).get("known", True)


def test_message_is_not_rejected_where_its_letter_could_have_no_queue(broker: Broker, client: Client) -> None:
    name = "x" * 255
    uid = client.publish(name, timeout=5)
    client.fetch(name)

    refused = client.call("NACK", name, uid=uid, dead=True)
    broker.advance(5)
    client.fetch(name)  # the refusal did not keep it from coming back
    client.call("UPDATE", name, dead_letter="letters")
    taken = client.call("NACK", name, uid=uid, dead=True)

    assert (refused["err"], taken["cmd"]) == ("BAD_NAME", "oknack")
    assert client.fetch("letters")["headers"]["wakeq-origin-uid"] == uid


def test_returned_message_is_redelivered_at_once_and_has_not_failed(broker: Broker, client: Client) -> None:
    client.call("CREATE", Q, max_deliveries=2, retry={"base": 30})
    uid = client.publish(Q)

    for deliveries in range(4):
        message = client.fetch(Q)
        assert (message["error_count"], message.get("failures")) == (deliveries, 0 if deliveries else None)
        client.call("NACK", Q, uid=uid, lease=message["lease"], failed=False)

    client.fetch(Q)
    client.call("NACK", Q, uid=uid)
    broker.advance(30)
    client.fetch(Q)
    client.call("NACK", Q, uid=uid, failed=False)  # one more failure would be the last
    (message,) = client.call("FET", Q, count=1)["messages"]
    client.call("NACK", Q, uid=uid)

    assert (message["error_count"], message["failures"]) == (6, 1)
    assert client.fetch("q.dead")["headers"]["wakeq-deliveries"] == "7"


def test_touch_before_the_acknowledgement_of_its_message_in_one_read_is_done(client: Client) -> None:
    """A worker that extends its lease just before it is done must not hear that it has lost it."""
    client.publish(Q)
    message = client.fetch(Q)
    lease = {"qname": Q, "uid": message["uid"], "lease": message["lease"]}

    touched, acknowledged = client.ask({"cmd": "TOUCH", **lease}, {"cmd": "ACK", **lease})

    assert (touched["cmd"], touched.get("known")) == ("oktouch", None)
    assert (acknowledged["cmd"], acknowledged.get("known")) == ("okack", None)


def test_messages_returned_together_are_one_entry_and_due_after_their_delay(broker: Broker, client: Client) -> None:
    uids = client.call("PUB", Q, messages=["1", "2", "3"])["uids"]
    client.call("FET", Q, count=3)
    broker.advance(0.1)  # the log has the deliveries
    before = broker.raft_log.core.log.last_index

    client.call("NACK", Q, uids=uids, failed=False, delay=3)

    assert broker.raft_log.core.log.last_index - before == 1
    broker.advance(2.9)
    assert client.finds_nothing(Q)
    broker.advance(0.2)
    assert len(client.call("FET", Q, count=3)["messages"]) == 3


def test_wait_after_a_failure_grows_with_failures_alone(broker: Broker, client: Client) -> None:
    client.call("CREATE", Q, retry={"backoff": "exponential", "base": 1})
    uid = client.publish(Q)
    for _ in range(5):
        client.fetch(Q)
        client.call("NACK", Q, uid=uid, failed=False)

    for wait_s in (1, 2):
        client.fetch(Q)
        client.call("NACK", Q, uid=uid)
        broker.advance(wait_s - 0.05)
        assert client.finds_nothing(Q)
        broker.advance(0.06)


@pytest.mark.parametrize("flushed", [False, True])
def test_restart_forgets_no_failure(broker: Broker, client: Client, flushed: bool) -> None:
    uid = client.publish(Q)
    for fields in ({"failed": False}, {}, {"failed": False}):
        client.fetch(Q)
        client.call("NACK", Q, uid=uid, **fields)
    if flushed:
        broker.flush()

    broker.crash_and_restart()
    client = broker.client()

    (seen,) = client.call("PEEK", Q)["messages"]
    message = client.fetch(Q)
    assert (seen["error_count"], seen["failures"]) == (3, 1)
    assert (message["error_count"], message["failures"]) == (3, 1)


def test_delivery_that_a_crash_forgot_counts_as_neither(broker: Broker, client: Client) -> None:
    uid = client.publish(Q)
    client.fetch(Q)
    client.call("NACK", Q, uid=uid, failed=False)
    broker.log_disk.held = True
    client.fetch(Q)  # handed out before it is on disk

    broker.crash_and_restart()

    message = broker.client().fetch(Q)
    assert (message["error_count"], message["failures"]) == (1, 0)


# Why they ended -------------------------------------------------------------------------------------------------------


def test_deliveries_that_ended_without_an_acknowledgement_are_counted_by_reason(broker: Broker, client: Client) -> None:
    client.call("CREATE", Q, on_disconnect="release", retry={"first": 0})
    later = {"delay": 1_000}
    ways = (later, {"failed": False, **later}, {"dead": True}, {"dead": True, "exhausted": True})
    for more in ways:
        client.publish(Q)
        message = client.fetch(Q)
        client.call("NACK", Q, uid=message["uid"], lease=message["lease"], **more)
    client.publish(Q, timeout=5)
    client.fetch(Q)
    broker.advance(6)
    other = broker.client()
    other.fetch(Q)
    other.close()

    timings = broker.queue(Q).timings
    assert timings is not None
    assert {reason.name: timings.ended[reason] for reason in Reason if reason} == dict.fromkeys(
        ("NACK", "TIMEOUT", "DISCONNECT", "RETURNED", "REJECTED", "EXHAUSTED"), 1
    )
    assert broker.assembly.timings.ended == timings.ended
