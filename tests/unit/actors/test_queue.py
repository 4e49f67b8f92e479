"""QueueProcess: deliveries, expiry, dead letters and waking of one queue; and the known faults that need time."""

import pytest

from tests.helpers.broker import Broker, Client

Q = "q"


# Expiry -----------------------------------------------------------------------------------------------------------


def test_an_expired_message_is_never_handed_out_and_goes_without_a_fetch(broker: Broker, client: Client) -> None:
    client.publish(Q, expires=10)

    broker.advance(9.9)
    before = client.figures(Q)["size"]
    broker.advance(0.2)

    assert before == 1
    assert client.finds_nothing(Q)
    figures = client.figures(Q)
    assert (figures["size"], figures["expired"]) == (0, 1)


@pytest.mark.parametrize(("delay", "expires"), [(10, 10), (11, 10)])
def test_a_delay_that_is_not_shorter_than_the_expiry_means_never(
    broker: Broker, client: Client, delay: int, expires: int
) -> None:
    client.publish(Q, delay=delay, expires=expires)

    for _ in range(15):
        broker.advance(1)
        assert client.finds_nothing(Q)

    assert client.figures(Q)["size"] == 0


def test_a_message_handed_out_before_its_expiry_stays_with_the_worker(broker: Broker, client: Client) -> None:
    client.publish(Q, expires=10, timeout=30)
    message = client.fetch(Q)

    broker.advance(20)
    reply = client.call("ACK", Q, uid=message["uid"], lease=message["lease"])

    assert reply.get("known", True)
    assert client.figures(Q)["expired"] == 0


@pytest.mark.parametrize("expires", [7, 100])
def test_a_message_that_comes_back_expires_all_the_same(broker: Broker, client: Client, expires: int) -> None:
    client.publish(Q, expires=expires, timeout=5)
    broker.advance(3)
    client.fetch(Q)

    broker.advance(5)
    after_its_return = client.figures(Q)["size"]
    broker.advance(100)

    figures = client.figures(Q)
    assert after_its_return == (0 if expires == 7 else 1)
    assert (figures["size"], figures["expired"], figures["leased"]) == (0, 1, 0)


# Dead letters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [False, True], ids=["body in memory", "body in the store"])
@pytest.mark.parametrize("how", ["timeout", "nack"])
def test_the_last_allowed_delivery_ends_in_the_dead_letter_queue(
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


def test_a_dead_letter_is_in_one_queue_only_after_a_restart(broker: Broker, client: Client) -> None:
    client.call("CREATE", Q, max_deliveries=1, dead_letter="grave")
    client.publish(Q)
    client.call("NACK", Q, uid=client.fetch(Q)["uid"])

    broker.crash_and_restart()
    client = broker.client()

    assert client.finds_nothing(Q)
    assert client.fetch("grave")["headers"]["wakeq-deliveries"] == "1"
    assert client.finds_nothing("grave")


def test_a_dead_letter_is_not_refused_by_a_full_queue(broker: Broker, client: Client) -> None:
    client.call("CREATE", "grave", max_size=0)
    client.call("CREATE", Q, max_deliveries=1, dead_letter="grave")
    client.publish(Q)

    client.call("NACK", Q, uid=client.fetch(Q)["uid"])

    assert client.fetch("grave")["msg"] == "hi"


# Rejected, and returned -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [False, True], ids=["body in memory", "body in the store"])
@pytest.mark.parametrize("allowed", [0, 5])
def test_a_rejected_message_is_a_dead_letter_at_once(
    broker: Broker, client: Client, allowed: int, stored: bool
) -> None:
    client.call("CREATE", Q, max_deliveries=allowed)
    uid = client.publish(Q, "body")
    lease = client.fetch(Q)["lease"]
    if stored:
        broker.advance(0.1)  # the delivery is committed
        broker.flush()
        assert broker.queue(Q).bodies.missing([1]) == [1]

    reply = client.call("NACK", Q, uid=uid, lease=lease, dead=True, error="it is no order")

    assert reply == {"cmd": "oknack", "uid": uid, "qname": Q}
    assert client.finds_nothing(Q)
    letter = client.fetch("q.dead")
    assert (letter["msg"], letter["headers"]["wakeq-reason"]) == ("body", "rejected")
    assert (letter["headers"]["wakeq-deliveries"], letter["headers"]["wakeq-error"]) == ("1", "it is no order")


def test_of_many_each_is_rejected_by_its_own_lease(broker: Broker, client: Client, worker: Client) -> None:
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
def test_what_nobody_holds_is_neither_rejected_nor_returned(
    broker: Broker, client: Client, fields: dict[str, bool]
) -> None:
    uid = client.publish(Q, timeout=5)
    lease = client.fetch(Q)["lease"]
    broker.advance(5)

    replies = [client.call("NACK", Q, uid=uid, **given, **fields) for given in ({}, {"lease": lease})]

    assert [reply["known"] for reply in replies] == [False, False]
    assert client.fetch(Q)["error_count"] == 1


def test_a_lease_that_ends_while_its_message_is_rejected_is_not_handed_on(
    broker: Broker, client: Client, worker: Client
) -> None:
    uid = client.publish(Q, timeout=5)
    lease = client.fetch(Q)["lease"]
    worker.send({"cmd": "FET", "qname": Q, "wait": 60})
    broker.settle()
    broker.log_disk.held = True
    broker.advance(5)  # the end of the lease is on its way to the disk

    client.send({"cmd": "NACK", "qname": Q, "uid": uid, "lease": lease, "dead": True})
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert client.take() == [{"cmd": "oknack", "uid": uid, "qname": Q, "known": False}]
    assert worker.words() == ["msg"]
    assert worker.call("ACK", Q, uid=uid).get("known", True)


def test_a_message_is_not_rejected_where_its_letter_could_have_no_queue(broker: Broker, client: Client) -> None:
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


def test_what_was_returned_comes_back_at_once_and_has_not_failed(broker: Broker, client: Client) -> None:
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


def test_many_are_returned_in_one_entry_after_their_delay(broker: Broker, client: Client) -> None:
    uids = client.call("PUB", Q, messages=["1", "2", "3"])["uids"]
    client.call("FET", Q, count=3)
    before = broker.raft_log.core.log.last_index

    client.call("NACK", Q, uids=uids, failed=False, delay=3)

    assert broker.raft_log.core.log.last_index - before == 1
    broker.advance(2.9)
    assert client.finds_nothing(Q)
    broker.advance(0.2)
    assert len(client.call("FET", Q, count=3)["messages"]) == 3


def test_the_wait_after_a_failure_grows_with_failures_alone(broker: Broker, client: Client) -> None:
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
def test_a_restart_forgets_no_failure(broker: Broker, client: Client, flushed: bool) -> None:
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


def test_a_delivery_that_a_crash_forgot_counts_as_neither(broker: Broker, client: Client) -> None:
    uid = client.publish(Q)
    client.fetch(Q)
    client.call("NACK", Q, uid=uid, failed=False)
    broker.log_disk.held = True
    client.fetch(Q)  # handed out before it is on disk

    broker.crash_and_restart()

    message = broker.client().fetch(Q)
    assert (message["error_count"], message["failures"]) == (1, 0)


# Waking -----------------------------------------------------------------------------------------------------------


def test_a_woken_worker_that_does_not_fetch_is_passed_over(broker: Broker, client: Client) -> None:
    workers = [broker.client() for _ in range(2)]
    for worker in workers:
        worker.fall_asleep(Q)

    client.publish(Q)
    at_once = [worker.awks for worker in workers]
    broker.advance(4.9)
    soon = [worker.awks for worker in workers]
    broker.advance(0.2)

    assert (at_once, soon) == ([1, 0], [1, 0])
    assert [worker.awks for worker in workers] == [1, 1]


def test_a_woken_worker_that_sleeps_again_is_woken_again(broker: Broker, client: Client) -> None:
    worker = broker.client()
    worker.fall_asleep(Q)
    client.publish(Q)

    words = [reply["cmd"] for reply in worker.ask({"cmd": "ISLP", "qname": Q})]

    assert words == ["awk", "okslp", "awk"]


def test_a_woken_worker_that_never_comes_costs_nothing(broker: Broker, client: Client) -> None:
    worker = broker.client()
    worker.fall_asleep(Q)
    client.publish(Q)

    broker.advance(6)
    calls = broker.time.calls
    broker.advance(60)

    assert broker.time.calls - calls < 200


@pytest.mark.parametrize(("policy", "woken"), [("ready", 2), ("all", 5)])
def test_fault_3_a_publish_wakes_as_many_as_the_policy_says(
    broker: Broker, client: Client, policy: str, woken: int
) -> None:
    client.call("CREATE", Q, wake=policy)
    workers = [broker.client() for _ in range(5)]
    for worker in workers:
        worker.fall_asleep(Q)

    client.call("PUB", Q, messages=["1", "2"])

    assert sum(worker.awks for worker in workers) == woken
    assert client.figures(Q)["wakes"] == woken
    assert [workers[0].fetch(Q)["msg"] for _ in range(2)] == ["1", "2"]
    broker.advance(0.1)  # the deliveries are committed
    assert client.figures(Q)["wakes_per_delivery"] == woken / 2


@pytest.mark.parametrize("end", ["close", "UNS"])
def test_when_a_woken_worker_leaves_the_next_is_woken(broker: Broker, client: Client, end: str) -> None:
    first, second = broker.client(), broker.client()
    first.fall_asleep(Q)
    second.fall_asleep(Q)
    client.publish(Q)

    first.close() if end == "close" else first.call("UNS", Q)
    broker.settle()

    assert second.awks == 1


def test_a_policy_of_waking_all_wakes_those_who_sleep_already(broker: Broker, client: Client) -> None:
    workers = [broker.client() for _ in range(3)]
    for worker in workers:
        worker.fall_asleep(Q)
    client.publish(Q)

    client.call("UPDATE", Q, wake="all")

    assert [worker.awks for worker in workers] == [1, 1, 1]


# Strict queues ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lease", "at_once"), [("fast", ["msg"]), ("strict", [])])
def test_a_strict_queue_answers_a_fetch_only_when_it_is_committed(
    broker: Broker, client: Client, lease: str, at_once: list[str]
) -> None:
    client.call("CREATE", Q, lease=lease)
    client.publish(Q)
    broker.log_disk.held = True

    client.send({"cmd": "FET", "qname": Q})
    before = client.words()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert before == at_once
    assert before + client.words() == ["msg"]


def test_a_strict_queue_answers_a_touch_only_when_it_is_committed(broker: Broker, client: Client) -> None:
    client.call("CREATE", Q, lease="strict")
    client.publish(Q)
    uid = client.fetch(Q)["uid"]
    broker.log_disk.held = True

    client.send({"cmd": "TOUCH", "qname": Q, "uid": uid})
    before = client.words()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert before == []
    assert client.words() == ["oktouch"]


# The known faults of the original that need time ------------------------------------------------------------------


def test_fault_4_a_message_acknowledged_while_hidden_wakes_nobody_later(broker: Broker, client: Client) -> None:
    worker = broker.client()
    uid = client.publish(Q, timeout=5)
    client.fetch(Q)
    worker.fall_asleep(Q)

    client.call("ACK", Q, uid=uid)
    broker.advance(60)

    assert worker.awks == 0
    assert not broker.queue(Q).leases.held  # type: ignore[union-attr]


def test_fault_5_acknowledgements_of_what_is_unknown_leave_nothing_behind(broker: Broker, client: Client) -> None:
    uid = client.publish(Q, delay=100)
    client.call("ACK", Q, uid=uid)
    for _ in range(100):
        client.call("ACK", Q, uid=uid)
        client.call("ACK", Q, uid=uid[:-1] + "z")
    broker.advance(200)

    leases = broker.queue(Q).leases
    assert leases is not None
    assert not leases.leaving
    assert not leases._withheld


def test_fault_6_an_acknowledgement_in_the_wrong_queue_removes_nothing(broker: Broker, client: Client) -> None:
    uid = client.publish(Q)
    client.publish("other")

    assert client.call("ACK", "other", uid=uid)["known"] is False

    assert client.fetch(Q)["uid"] == uid
    client.fetch("other")


def test_fault_7_a_late_acknowledgement_ends_the_message_for_everybody(
    broker: Broker, client: Client, worker: Client
) -> None:
    uid = client.publish(Q, timeout=5)
    client.fetch(Q)
    broker.advance(5)
    second = worker.fetch(Q)

    assert client.call("ACK", Q, uid=uid)["cmd"] == "okack"

    assert worker.call("ACK", Q, uid=uid, lease=second["lease"])["known"] is False
    broker.advance(100)
    assert worker.finds_nothing(Q)


def test_fault_8_neither_expiry_nor_delay_grows_with_redeliveries_or_a_restart(broker: Broker, client: Client) -> None:
    client.publish(Q, expires=30, timeout=5)
    for _ in range(3):
        client.fetch(Q)
        broker.advance(5)
    broker.flush()
    broker.crash_and_restart()
    client = broker.client()
    client.fetch(Q)

    broker.advance(15.1)

    assert client.finds_nothing(Q)
    assert client.figures(Q)["size"] == 0


def test_fault_9_expired_messages_go_without_a_fetch_even_from_the_store(broker: Broker, client: Client) -> None:
    client.publish(Q, expires=10)
    broker.flush()

    broker.advance(11)
    broker.flush()

    assert broker.files.store.stats().records[1] == 0


def test_fault_10_the_error_count_does_not_wrap(broker: Broker, client: Client) -> None:
    uid = client.publish(Q)
    for _ in range(300):
        client.ask({"cmd": "FET", "qname": Q}, {"cmd": "NACK", "qname": Q, "uid": uid})

    assert client.fetch(Q)["error_count"] == 300


def test_fault_11_a_worker_that_goes_keeps_its_message_until_the_timeout_and_no_longer(
    broker: Broker, client: Client, worker: Client
) -> None:
    client.publish(Q, timeout=5)
    worker.fetch(Q)
    worker.close()

    assert client.finds_nothing(Q)
    broker.advance(5)
    client.fetch(Q)


def test_fault_12_a_subscriber_of_a_queue_without_messages_may_sleep_and_is_woken(
    broker: Broker, client: Client, worker: Client
) -> None:
    worker.fall_asleep(Q)

    client.publish(Q)

    assert worker.words() == ["awk"]


def test_fault_13_no_answer_leaves_before_its_entry_is_on_disk(broker: Broker, client: Client) -> None:
    broker.log_disk.held = True

    client.send({"cmd": "PUB", "qname": Q, "message": "m"})
    before = client.take()
    broker.crash_and_restart()

    assert before == []
    assert broker.client().call("FET", Q)["err"] == "Q_NOT_FOUND"


def test_fault_14_queues_are_created_side_by_side(client: Client) -> None:
    replies = client.ask(*[{"cmd": "PUB", "qname": f"q{i}", "message": "m"} for i in range(500)])

    assert {reply["cmd"] for reply in replies} == {"ok"}
    assert len(client.call("LIST")["queues"]) == 501


@pytest.mark.parametrize("delay", [0, 5])
def test_fault_1_a_message_between_nomsg_and_islp_wakes_the_worker(
    broker: Broker, client: Client, worker: Client, delay: int
) -> None:
    worker.ask({"cmd": "SUB", "qname": Q}, {"cmd": "FET", "qname": Q})
    client.publish(Q, delay=delay)
    broker.advance(delay)

    assert worker.ask({"cmd": "ISLP", "qname": Q}) == [{"cmd": "okslp", "qname": Q}, {"cmd": "awk", "qname": Q}]


@pytest.mark.parametrize("kind", ["published", "delayed", "timed out", "nacked"])
def test_fault_2_a_woken_worker_finds_the_message(broker: Broker, client: Client, worker: Client, kind: str) -> None:
    if kind in ("timed out", "nacked"):
        uid = client.publish(Q, timeout=5)
        client.fetch(Q)
    worker.fall_asleep(Q)

    match kind:
        case "published" | "delayed":
            client.publish(Q, delay=5 if kind == "delayed" else 0)
        case "nacked":
            client.call("NACK", Q, uid=uid)
    broker.advance(5)

    assert worker.awks >= 1
    worker.fetch(Q)


def test_one_answer_holds_only_so_many_bytes_and_the_rest_keeps_its_place(broker: Broker, client: Client) -> None:
    body = "x" * 1_000_000
    uids = [client.publish(Q, body) for _ in range(10)]

    first = client.call("FET", Q, count=10)
    second = client.call("FET", Q, count=10)

    got = [message["uid"] for reply in (first, second) for message in reply["messages"]]
    assert len(first["messages"]) == 4
    assert got == uids[:8]
