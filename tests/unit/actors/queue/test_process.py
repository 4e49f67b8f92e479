"""QueueProcess: whom it wakes, what a strict queue waits for, and the known faults that need time."""

from collections.abc import Callable

import pytest

from tests.helpers.brokers.broker import Broker, Client
from wakeq.actors.mail import Follow, Propose
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import PAUSE_MS_MAX, PauseQueue
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.uid import parse

Q = "q"


# Waking ---------------------------------------------------------------------------------------------------------------


def test_woken_worker_that_does_not_fetch_is_passed_over(broker: Broker, client: Client) -> None:
    workers = [broker.client() for _ in range(2)]
    for worker in workers:
        worker.fall_asleep(Q, wake="ready")

    client.publish(Q)
    at_once = [worker.awks for worker in workers]
    broker.advance(4.9)
    soon = [worker.awks for worker in workers]
    broker.advance(0.2)

    assert (at_once, soon) == ([1, 0], [1, 0])
    assert [worker.awks for worker in workers] == [1, 1]


def test_woken_worker_that_sleeps_again_is_woken_again(broker: Broker, client: Client) -> None:
    worker = broker.client()
    worker.fall_asleep(Q)
    client.publish(Q)

    words = [reply["cmd"] for reply in worker.ask({"cmd": "ISLP", "qname": Q})]

    assert words == ["awk", "okslp", "awk"]


def test_woken_worker_that_never_comes_costs_nothing(broker: Broker, client: Client) -> None:
    worker = broker.client()
    worker.fall_asleep(Q)
    client.publish(Q)

    broker.advance(6)
    calls = broker.time.calls
    broker.advance(60)

    assert broker.time.calls - calls < 200


def test_plain_sleepers_are_all_woken_after_a_purge_too(broker: Broker, client: Client) -> None:
    client.call("CREATE", Q)
    plain, choosy = [broker.client() for _ in range(3)], [broker.client() for _ in range(3)]
    for worker in choosy:
        worker.fall_asleep(Q, wake="ready")
    for worker in plain:
        worker.fall_asleep(Q)

    client.call("PURGE", Q)
    client.publish(Q)

    assert [worker.awks for worker in plain] == [1, 1, 1]
    assert sum(worker.awks for worker in choosy) == 1


def test_sleeper_that_was_woken_under_one_policy_is_asleep_under_no_other(broker: Broker, client: Client) -> None:
    client.call("CREATE", Q, wake="ready")
    woken, choosy = broker.client(), broker.client()
    woken.fall_asleep(Q)
    choosy.fall_asleep(Q, wake="ready")
    client.publish(Q)

    client.call("UPDATE", Q, wake="sleeper")
    client.publish(Q)

    assert (woken.awks, choosy.awks) == (1, 1)
    assert broker.failures == []


def test_sleeper_beside_a_waiting_fetch_is_not_woken_for_a_paused_queue(broker: Broker, client: Client) -> None:
    client.call("CREATE", Q)
    sleeper, waits = broker.client(), broker.client()
    sleeper.fall_asleep(Q)
    broker.operate(Q, lambda me: Propose([Proposal(PauseQueue(Q, PAUSE_MS_MAX), me)]))
    waits.send({"cmd": "FET", "qname": Q, "wait": 60})
    broker.settle()

    client.publish(Q)
    paused = sleeper.awks, waits.words()
    broker.operate(Q, lambda me: Propose([Proposal(PauseQueue(Q, 0), me)]))

    assert paused == (0, [])
    assert (sleeper.awks, waits.words()) == (1, ["msg"])


@pytest.mark.parametrize(
    "ends",
    ["nothing that a queue knows", Follow(1, Refusal("NOT_LEADER", "another one leads"))],
    ids=["a_crash", "the_lead_is_lost"],
)
def test_woken_sleeper_that_has_not_fetched_is_woken_again_when_its_queue_forgets_it(
    broker: Broker, client: Client, ends: object
) -> None:
    worker = broker.client()
    worker.fall_asleep(Q, wake="ready")
    client.publish(Q)
    before = worker.awks

    broker.queue(Q).tell(ends)
    broker.settle()

    assert (before, worker.awks) == (1, 2)


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


CHOOSY = {"wake": "ready"}


@pytest.mark.parametrize(
    ("policy", "woken"),
    [
        (None, ["plain 0", "plain 1", "plain 2", "choosy 0", "choosy 1"]),
        ("sleeper", ["plain 0", "plain 1", "plain 2", "choosy 0", "choosy 1"]),
        ("ready", ["plain 0", "choosy 0"]),
        ("all", ["plain 0", "choosy 0", "plain 1", "choosy 1", "plain 2", "choosy 2"]),
    ],
)
def test_mixed_sleepers_are_woken_as_each_asked_unless_the_policy_decides(
    broker: Broker, client: Client, policy: str | None, woken: list[str]
) -> None:
    client.call("CREATE", Q, **({"wake": policy} if policy else {}))
    sleepers = {f"{kind} {i}": broker.client() for i in range(3) for kind in ("plain", "choosy")}
    for name, sleeper in sleepers.items():
        sleeper.fall_asleep(Q, **({} if "plain" in name else CHOOSY))

    client.call("PUB", Q, messages=["1", "2"])

    assert sorted(name for name, sleeper in sleepers.items() if sleeper.awks) == sorted(woken)
    assert client.figures(Q)["wakes"] == len(woken)
    assert client.figures(Q)["sleepers"] == 6 - len(woken)


def a_publish(broker: Broker, client: Client) -> None:
    client.publish(Q)


def a_delay_that_ends(broker: Broker, client: Client) -> None:
    client.publish(Q, delay=5)
    broker.advance(5)


def a_lease_that_ends(broker: Broker, client: Client) -> None:
    broker.advance(60)


def a_nack(broker: Broker, client: Client) -> None:
    client.call("NACK", Q, uid="0000003_00000001")


def a_disconnect(broker: Broker, client: Client) -> None:
    client.close()


def a_publish_that_a_waiting_fetch_gets(broker: Broker, client: Client) -> None:
    waiter = broker.client()
    waiter.send({"cmd": "FET", "qname": Q, "wait": 60, "cmd_id": 1})
    broker.settle()
    client.publish(Q)
    assert waiter.words() == ["msg"]


@pytest.mark.parametrize(
    "event",
    [
        a_publish,
        a_delay_that_ends,
        a_lease_that_ends,
        a_nack,
        a_disconnect,
        a_publish_that_a_waiting_fetch_gets,
    ],
)
def test_plain_sleepers_are_all_woken_once_when_a_message_becomes_available(
    broker: Broker, client: Client, event: Callable[[Broker, Client], None]
) -> None:
    client.call("CREATE", Q, on_disconnect="release")
    client.publish(Q)
    assert client.fetch(Q)["uid"] == "0000003_00000001"
    sleepers = [broker.client() for _ in range(5)]
    for sleeper in sleepers:
        sleeper.fall_asleep(Q)

    event(broker, client)
    first = [sleeper.awks for sleeper in sleepers]
    broker.client().publish(Q)

    assert first == [1] * 5
    assert [sleeper.awks for sleeper in sleepers] == [1] * 5


def test_last_islp_of_a_connection_says_when_it_is_woken(broker: Broker, client: Client) -> None:
    changed, other = broker.client(), broker.client()
    other.fall_asleep(Q, **CHOOSY)
    changed.fall_asleep(Q)
    changed.call("ISLP", Q, **CHOOSY)

    client.publish(Q)

    assert (changed.awks, other.awks) == (0, 1)


def test_plain_sleeper_that_went_away_is_not_kept(broker: Broker, client: Client) -> None:
    client.publish(Q)
    client.fetch(Q)
    fetches, leaves, ends = (broker.client() for _ in range(3))
    for sleeper in (fetches, leaves, ends):
        sleeper.fall_asleep(Q)

    fetches.call("FET", Q)
    leaves.call("UNS", Q)
    ends.close()

    leases = broker.queue(Q).leases
    assert leases is not None
    assert (dict(leases.audience.sleepers), dict(leases.audience.always_woken)) == ({}, {})


@pytest.mark.parametrize("between", ["restart", "purge"])
def test_wake_ratio_counts_deliveries_of_the_same_time(broker: Broker, client: Client, between: str) -> None:
    for _ in range(4):
        client.publish(Q)
        client.call("ACK", Q, uid=client.fetch(Q)["uid"])
    broker.advance(0.1)
    if between == "restart":
        broker.crash_and_restart()
        client = broker.client()
    worker = broker.client()
    worker.fall_asleep(Q)
    client.publish(Q)
    worker.fetch(Q)
    if between == "purge":
        client.call("PURGE", Q)

    figures = client.figures(Q)

    assert figures["wakes"] == 1
    assert figures["wakes_per_delivery"] == (1.0 if between == "restart" else 0.2)


@pytest.mark.parametrize("end", ["close", "UNS"])
def test_sleeper_is_woken_when_the_woken_one_before_it_leaves(broker: Broker, client: Client, end: str) -> None:
    first, second = broker.client(), broker.client()
    first.fall_asleep(Q)
    second.fall_asleep(Q)
    client.publish(Q)

    first.close() if end == "close" else first.call("UNS", Q)
    broker.settle()

    assert second.awks == 1


def test_policy_of_waking_all_wakes_existing_sleepers(broker: Broker, client: Client) -> None:
    workers = [broker.client() for _ in range(3)]
    for worker in workers:
        worker.fall_asleep(Q)
    client.publish(Q)

    client.call("UPDATE", Q, wake="all")

    assert [worker.awks for worker in workers] == [1, 1, 1]


# Strict queues --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lease", "at_once"), [("fast", ["msg"]), ("strict", [])])
def test_strict_queue_answers_a_fetch_only_when_it_is_committed(
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


@pytest.mark.parametrize("lease", ["fast", "strict"])
def test_touch_is_answered_when_it_is_committed(broker: Broker, client: Client, lease: str) -> None:
    client.call("CREATE", Q, lease=lease)
    client.publish(Q)
    uid = client.fetch(Q)["uid"]
    broker.log_disk.held = True

    client.send({"cmd": "TOUCH", "qname": Q, "uid": uid})
    before = client.words()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert before == []
    assert client.words() == ["oktouch"]


# The known faults of the original that need time ----------------------------------------------------------------------


def test_fault_4_a_message_acknowledged_while_leased_wakes_no_sleeper_later(broker: Broker, client: Client) -> None:
    worker = broker.client()
    uid = client.publish(Q, timeout=5)
    client.fetch(Q)
    worker.fall_asleep(Q)

    client.call("ACK", Q, uid=uid)
    broker.advance(60)

    assert worker.awks == 0
    assert not broker.queue(Q).leases.held  # type: ignore[union-attr]


def test_fault_5_acknowledgements_of_unknown_messages_leave_nothing_behind(broker: Broker, client: Client) -> None:
    uid = client.publish(Q, delay=100)
    client.call("ACK", Q, uid=uid)
    for _ in range(100):
        client.call("ACK", Q, uid=uid)
        client.call("ACK", Q, uid=uid[:-1] + "z")
    broker.advance(200)

    leases = broker.queue(Q).leases
    assert leases is not None
    assert not leases.ending
    assert not leases._withheld


def test_fault_6_an_acknowledgement_in_the_wrong_queue_removes_nothing(broker: Broker, client: Client) -> None:
    uid = client.publish(Q)
    client.publish("other")

    assert client.call("ACK", "other", uid=uid)["known"] is False

    assert client.fetch(Q)["uid"] == uid
    client.fetch("other")


def test_fault_7_a_late_acknowledgement_removes_the_message_from_its_next_worker(
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


@pytest.mark.parametrize("ends", ["PURGE", "DROP"])
@pytest.mark.parametrize("numbered", [False, True])
def test_publish_committed_together_with_the_end_of_its_incarnation_gets_the_uid_of_that(
    broker: Broker, client: Client, worker: Client, ends: str, numbered: bool
) -> None:
    worker.call("HELLO", session="s")
    queue_id = parse(client.publish(Q))[0]  # type: ignore[index]

    worker.send({"cmd": "PUB", "qname": Q, "message": "m", **({"n": 1} if numbered else {})})
    client.send({"cmd": ends, "qname": Q})
    broker.settle()

    (published,) = worker.take()
    assert client.words() == ["purged" if ends == "PURGE" else "okdrop"]
    assert parse(published["uid"]) == (queue_id, 2)


def test_answer_holds_a_bounded_number_of_bytes_and_the_rest_keeps_its_place(broker: Broker, client: Client) -> None:
    body = "x" * 1_000_000
    uids = [client.publish(Q, body) for _ in range(10)]

    first = client.call("FET", Q, count=10)
    second = client.call("FET", Q, count=10)

    got = [message["uid"] for reply in (first, second) for message in reply["messages"]]
    assert len(first["messages"]) == 4
    assert got == uids[:8]


# Queues that a publish makes ---------------------------------------------------------------------------------------


def test_queue_that_the_log_refused_is_made_with_the_defaults_of_the_node_later(broker: Broker, client: Client) -> None:
    broker.client().call("SUB", Q)
    process = broker.queue(Q)
    process.services = process.services._replace(defaults=Policies(timeout=77))
    broker.disk_full(True)
    (refused,) = client.ask({"cmd": "PUB", "qname": Q, "message": "m"})
    broker.disk_full(False)

    client.publish(Q)

    assert refused["err"] == "DISK_FULL"
    assert broker.queue(Q).ledger.policies.timeout == 77
