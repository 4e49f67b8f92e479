"""The known faults of the original server, each shown to be fixed, and the behaviour that its real clients rely on.

The numbers are those of section 5 of the worker protocol. Where a fault needs time to pass (4, 9, and parts
of 7, 8 and 11) it is proved with the manual clock; here stands what can be seen of it at once.
"""

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.conftest import Connect
from tests.helpers.brokers.process import BrokerProcess
from tests.helpers.clients.lines import LineClient, Message
from tests.helpers.programs import traced

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
BURST = 100_000
SYNC_DELAY_S = 0.3


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """Return the name of a queue that no other test uses."""
    return "".join(letter if letter.isalnum() else "." for letter in str(request.node.name)[:200])


@pytest.fixture
def publisher(shared_broker: BrokerProcess, connect: Connect) -> LineClient:
    return connect(shared_broker)


@pytest.fixture
def worker(shared_broker: BrokerProcess, connect: Connect) -> LineClient:
    return connect(shared_broker)


def publish(client: LineClient, qname: str, message: str = "hi", **fields: Any) -> str:
    """Publish and return the uid."""
    reply = client.ask("PUB", qname, message=message, **fields)
    assert reply["cmd"] == "ok", reply
    return str(reply["uid"])


def fetch(client: LineClient, qname: str, **fields: Any) -> Message:
    """Fetch what must be there."""
    reply = client.ask("FET", qname, **fields)
    assert reply["cmd"] == "msg", reply
    return reply


def fall_asleep(client: LineClient, qname: str) -> None:
    """Subscribe, find nothing, sleep: as the real client does."""
    assert client.ask("SUB", qname)["cmd"] == "oksub"
    assert client.ask("FET", qname)["cmd"] == "nomsg"
    assert client.ask("ISLP", qname)["cmd"] == "okslp"


def heard_before_pong(client: LineClient) -> list[str]:
    """Return what the broker had to say before it answered a PING."""
    client.send({"cmd": "PING"})
    return list(_until_pong(client))


def _until_pong(client: LineClient) -> Iterator[str]:
    while (reply := client.recv())["cmd"] != "pong":
        yield str(reply["cmd"])


def successor(uid: str) -> str:
    """Return the uid that the queue gives next."""
    head, number = uid[:-8], 0
    for digit in uid[-8:]:
        number = number * 62 + DIGITS.index(digit)
    number += 1
    tail = ""
    for _ in range(8):
        number, digit_value = divmod(number, 62)
        tail = DIGITS[digit_value] + tail
    return head + tail


# The faults -------------------------------------------------------------------------------------------------


def test_fault_1_message_between_nomsg_and_islp_wakes_the_worker(
    publisher: LineClient, worker: LineClient, queue: str
) -> None:
    worker.ask("SUB", queue)
    assert worker.ask("FET", queue)["cmd"] == "nomsg"
    publish(publisher, queue)

    worker.send({"cmd": "ISLP", "qname": queue})

    assert {worker.recv()["cmd"], worker.recv()["cmd"]} == {"okslp", "awk"}
    assert fetch(worker, queue)["msg"] == "hi"


def test_fault_2_woken_worker_always_finds_the_message(publisher: LineClient, worker: LineClient, queue: str) -> None:
    worker.ask("SUB", queue)
    for number in range(300):
        assert worker.ask("FET", queue)["cmd"] == "nomsg"
        assert worker.ask("ISLP", queue)["cmd"] == "okslp"
        publisher.send({"cmd": "PUB", "qname": queue, "message": str(number)})

        assert worker.recv() == {"cmd": "awk", "qname": queue}
        message = fetch(worker, queue)

        assert message["msg"] == str(number)
        assert worker.ask("ACK", queue, uid=message["uid"])["cmd"] == "okack"
        assert publisher.recv()["cmd"] == "ok"


@pytest.mark.parametrize(("policy", "woken"), [("ready", 1), ("all", 20), ("sleeper", 20), (None, 20)])
def test_fault_3_publish_wakes_as_many_sleepers_as_the_policy_says(
    shared_broker: BrokerProcess, connect: Connect, publisher: LineClient, queue: str, policy: str | None, woken: int
) -> None:
    assert publisher.ask("CREATE", queue, **({"wake": policy} if policy else {}))["cmd"] == "okcreate"
    sleepers = [connect(shared_broker) for _ in range(20)]
    for sleeper in sleepers:
        fall_asleep(sleeper, queue)

    publish(publisher, queue)

    assert sum(heard_before_pong(sleeper).count("awk") for sleeper in sleepers) == woken


def test_fault_3_sleeper_that_asks_for_it_is_woken_only_with_a_message(
    shared_broker: BrokerProcess, connect: Connect, publisher: LineClient, queue: str
) -> None:
    sleepers = [connect(shared_broker) for _ in range(20)]
    for number, sleeper in enumerate(sleepers):
        fall_asleep(sleeper, queue)
        if number % 2:
            sleeper.ask("ISLP", queue, wake="ready")

    publish(publisher, queue)

    woken = [heard_before_pong(sleeper).count("awk") for sleeper in sleepers]
    assert (woken[::2], sum(woken[1::2])) == ([1] * 10, 1)


def test_fault_3_wake_of_a_killed_worker_goes_to_another(
    shared_broker: BrokerProcess, connect: Connect, publisher: LineClient, queue: str
) -> None:
    publisher.ask("CREATE", queue, wake="ready")
    sleepers = {number: connect(shared_broker) for number in range(2)}
    for sleeper in sleepers.values():
        fall_asleep(sleeper, queue)
    publish(publisher, queue)
    woken = next(number for number, sleeper in sleepers.items() if heard_before_pong(sleeper) == ["awk"])

    sleepers[woken].close()

    assert sleepers[1 - woken].recv()["cmd"] == "awk"
    assert fetch(sleepers[1 - woken], queue)["msg"] == "hi"


def test_fault_4_message_acknowledged_while_it_is_delayed_stays_removed(
    publisher: LineClient, worker: LineClient, queue: str
) -> None:
    publish(publisher, queue)
    message = fetch(worker, queue)
    assert worker.ask("NACK", queue, uid=message["uid"], lease=message["lease"], delay=3600)["cmd"] == "oknack"

    first = worker.ask("ACK", queue, uid=message["uid"])
    second = worker.ask("ACK", queue, uid=message["uid"])

    assert first["cmd"] == "okack"
    assert first.get("known", True)
    assert second.get("known") is False


def test_fault_5_ack_of_a_future_uid_removes_no_message(publisher: LineClient, worker: LineClient, queue: str) -> None:
    coming = successor(publish(publisher, queue, "first"))
    for _ in range(3):
        reply = worker.ask("ACK", queue, uid=coming)
        assert (reply["cmd"], reply["known"]) == ("okack", False)

    assert publish(publisher, queue, "second") == coming

    assert [fetch(worker, queue)["msg"] for _ in range(2)] == ["first", "second"]


def test_fault_5_second_ack_is_ok_and_marked_unknown(publisher: LineClient, worker: LineClient, queue: str) -> None:
    publish(publisher, queue)
    uid = fetch(worker, queue)["uid"]

    replies = [worker.ask("ACK", queue, uid=uid) for _ in range(2)]

    assert [reply["cmd"] for reply in replies] == ["okack", "okack"]
    assert [reply.get("known", True) for reply in replies] == [True, False]


def test_fault_6_ack_with_another_queue_changes_nothing(broker: BrokerProcess, connect: Connect, queue: str) -> None:
    client = connect(broker)
    publish(client, queue)
    publish(client, "another")
    message = fetch(client, queue)

    wrong = client.ask("ACK", "another", uid=message["uid"])
    right = client.ask("ACK", queue, uid=message["uid"])

    assert (wrong["cmd"], wrong["known"]) == ("okack", False)
    assert right.get("known", True)
    broker.restart()
    again = connect(broker)
    assert again.ask("FET", queue)["cmd"] == "nomsg"
    assert fetch(again, "another")["msg"] == "hi"


def test_fault_7_late_ack_with_an_old_lease_leaves_the_new_lease_alone(
    shared_broker: BrokerProcess, connect: Connect, publisher: LineClient, worker: LineClient, queue: str
) -> None:
    publish(publisher, queue)
    second = connect(shared_broker)
    old = fetch(worker, queue)
    assert worker.ask("NACK", queue, uid=old["uid"], lease=old["lease"], delay=0)["cmd"] == "oknack"
    new = fetch(second, queue)

    late = worker.ask("ACK", queue, uid=old["uid"], lease=old["lease"])
    right = second.ask("ACK", queue, uid=new["uid"], lease=new["lease"])

    assert (late["cmd"], late["err"]) == ("nok", "STALE_LEASE")
    assert right["cmd"] == "okack"
    assert right.get("known", True)


@pytest.mark.parametrize("end", ["kill", "terminate"])
def test_fault_8_leased_message_stays_leased_over_a_restart(
    broker: BrokerProcess, connect: Connect, queue: str, end: str
) -> None:
    client = connect(broker)
    publish(client, queue, expires=3600, timeout=600)
    message = fetch(client, queue)
    publish(client, "another")  # a delivery rides to the disk with the next entry

    getattr(broker, end)()
    broker.restart()

    client = connect(broker)
    assert client.ask("FET", queue)["cmd"] == "nomsg"
    assert client.ask("NACK", queue, uid=message["uid"], lease=message["lease"], delay=0)["cmd"] == "oknack"
    assert fetch(client, queue)["error_count"] == 1


def test_fault_8_delay_is_not_shortened_by_a_restart(broker: BrokerProcess, connect: Connect, queue: str) -> None:
    publish(connect(broker), queue, delay=3600)

    broker.restart()

    assert connect(broker).ask("FET", queue)["cmd"] == "nomsg"


def test_fault_10_error_count_goes_on_past_256(publisher: LineClient, worker: LineClient, queue: str) -> None:
    publish(publisher, queue)

    for expected in range(300):
        message = fetch(worker, queue)
        assert message["error_count"] == expected
        worker.ask("NACK", queue, uid=message["uid"], lease=message["lease"], delay=0)


def test_fault_11_sleeper_that_left_does_not_swallow_a_wake(
    shared_broker: BrokerProcess, connect: Connect, publisher: LineClient, worker: LineClient, queue: str
) -> None:
    publisher.ask("CREATE", queue, wake="ready")
    for _ in range(10):
        gone = connect(shared_broker)
        fall_asleep(gone, queue)
        gone.close()
    fall_asleep(worker, queue)

    publish(publisher, queue)

    assert worker.recv()["cmd"] == "awk"


@pytest.mark.parametrize(("policy", "answer"), [("keep", "nomsg"), ("release", "msg")])
def test_fault_11_leases_of_a_lost_worker_follow_the_policy_of_the_queue(
    shared_broker: BrokerProcess,
    connect: Connect,
    publisher: LineClient,
    worker: LineClient,
    queue: str,
    policy: str,
    answer: str,
) -> None:
    publisher.ask("CREATE", queue, on_disconnect=policy)
    publish(publisher, queue)
    lost = connect(shared_broker)
    fetch(lost, queue)

    lost.close()

    assert worker.ask("SUB", queue)["cmd"] == "oksub"
    assert worker.ask("FET", queue, wait=0.5 if policy == "keep" else 10)["cmd"] == answer


@pytest.mark.parametrize("command", ["FET", "SUB then FET"])
def test_fault_12_missing_queue_is_reported_only_without_a_subscription(
    worker: LineClient, queue: str, command: str
) -> None:
    if command == "FET":
        reply = worker.ask("FET", queue)
        assert (reply["cmd"], reply["err"]) == ("nok", "Q_NOT_FOUND")
    else:
        worker.send({"cmd": "SUB", "qname": queue}, {"cmd": "FET", "qname": queue}, {"cmd": "ISLP", "qname": queue})
        assert [worker.recv()["cmd"] for _ in range(3)] == ["oksub", "nomsg", "okslp"]


def test_fault_12_subscription_creates_no_queue(publisher: LineClient, worker: LineClient, queue: str) -> None:
    worker.ask("SUB", queue)

    listed = publisher.ask("LIST")

    assert listed["cmd"] == "queues"
    assert queue not in json.dumps(listed["queues"])


def test_fault_13_message_is_on_disk_before_its_ok(broker: BrokerProcess, connect: Connect, queue: str) -> None:
    for number in range(5):
        publish(connect(broker), queue, str(number))
        broker.restart()

    client = connect(broker)
    assert [fetch(client, queue)["msg"] for _ in range(5)] == list("01234")


def test_fault_13_ok_waits_until_the_disk_is_done(broker: BrokerProcess, connect: Connect, queue: str) -> None:
    if reason := traced.unavailable_reason():
        pytest.skip(reason)
    client = connect(broker)
    publish(client, queue)
    client.socket.settimeout(SYNC_DELAY_S * 0.8)

    with traced.injected(broker.pid, f"{traced.SYNCS}:delay_enter={SYNC_DELAY_S * 1e6:.0f}"):
        client.send({"cmd": "PUB", "qname": queue, "message": "hi"})
        with pytest.raises(TimeoutError):
            client.socket.recv(1, socket.MSG_PEEK)
        client.socket.settimeout(30)
        assert client.socket.recv(1, socket.MSG_PEEK)


def test_fault_14_many_queues_are_created_at_once(shared_broker: BrokerProcess, connect: Connect, queue: str) -> None:
    clients = [connect(shared_broker) for _ in range(20)]
    together = threading.Barrier(len(clients))

    def publish_everywhere(client: LineClient) -> list[str]:
        together.wait()
        client.send(*({"cmd": "PUB", "qname": f"{queue}.{number}", "message": "hi"} for number in range(50)))
        return [client.recv()["cmd"] for _ in range(50)]

    with ThreadPoolExecutor(len(clients)) as pool:
        answers = list(pool.map(publish_everywhere, clients))

    assert all(answer == ["ok"] * 50 for answer in answers)
    for number in range(50):
        reply = clients[0].ask("FET", f"{queue}.{number}", count=100)
        assert len(reply["messages"]) == len(clients)


# What the real clients do -----------------------------------------------------------------------------------


def test_sub_and_fet_in_one_write_are_answered_in_order(publisher: LineClient, worker: LineClient, queue: str) -> None:
    publish(publisher, queue)

    worker.send({"cmd": "SUB", "qname": queue}, {"cmd": "FET", "qname": queue})

    assert [worker.recv()["cmd"] for _ in range(2)] == ["oksub", "msg"]


def burst(broker: BrokerProcess, connect: Connect, queue: str, size: int) -> None:
    """Publish in one burst without reading, then read that every one was accepted, and fetch them in order."""
    client, worker = connect(broker), connect(broker)
    client.socket.settimeout(300)
    worker.socket.settimeout(60)
    for start in range(0, size, 1000):
        client.send(
            *(
                {"qname": queue, "msg": str(number), "cmd": "PUB", "delay": 0, "expires": 0}
                for number in range(start, min(size, start + 1000))
            )
        )
    for _ in range(size):
        assert client.recv()["cmd"] == "ok"
    fetched = 0
    while fetched < size:
        messages = worker.ask("FET", queue, count=1000)["messages"]
        assert [message["msg"] for message in messages] == [str(fetched + place) for place in range(len(messages))]
        reply = worker.ask("ACK", queue, uids=[message["uid"] for message in messages])
        assert reply["cmd"] == "okack", reply
        fetched += len(messages)
    assert worker.ask("FET", queue)["cmd"] == "nomsg"


def test_burst_of_publishes_that_reads_no_answer_is_stored_whole(
    broker: BrokerProcess, connect: Connect, queue: str
) -> None:
    burst(broker, connect, queue, BURST)


@pytest.mark.long
def test_burst_of_a_million_publishes_is_stored_whole(broker: BrokerProcess, connect: Connect, queue: str) -> None:
    burst(broker, connect, queue, 10 * BURST)


def test_worker_may_lease_many_messages_and_acknowledge_late(
    publisher: LineClient, worker: LineClient, queue: str
) -> None:
    for number in range(100):
        publish(publisher, queue, str(number))
    held = [fetch(worker, queue) for _ in range(100)]

    worker.send(*({"qname": queue, "cmd": "ACK", "uid": message["uid"]} for message in reversed(held)))

    assert [worker.recv()["uid"] for _ in range(100)] == [message["uid"] for message in reversed(held)]


def test_text_may_stand_in_msg_and_message_has_precedence(
    publisher: LineClient, worker: LineClient, queue: str
) -> None:
    publisher.ask("PUB", queue, msg="only")
    publisher.ask("PUB", queue, msg="loses", message="wins")

    assert [fetch(worker, queue)["msg"] for _ in range(2)] == ["only", "wins"]


def test_expiry_of_0_means_never(publisher: LineClient, worker: LineClient, queue: str) -> None:
    publish(publisher, queue, expires=0)

    assert fetch(worker, queue)["msg"] == "hi"


def test_numbers_published_as_strings_come_back_as_strings(
    publisher: LineClient, worker: LineClient, queue: str
) -> None:
    publisher.send({"qname": queue, "msg": "5", "cmd": "PUB", "delay": 0, "expires": 0})
    assert publisher.recv()["cmd"] == "ok"

    message = fetch(worker, queue)

    assert (message["msg"], message["error_count"]) == ("5", 0)


@pytest.mark.parametrize("line", [b'{"cmd":\n', b"[1]\n", b'{"cmd":"XYZ"}\n', b'{"cmd":"FET"}\n', b"\xff\xfe\n"])
def test_bad_input_is_refused_and_the_connection_stays_open(worker: LineClient, line: bytes) -> None:
    assert worker.ask("PING")["cmd"] == "pong"
    worker.send_raw(line)

    refused = worker.recv()

    assert refused["cmd"] == "nok"
    assert refused["err"]
    assert worker.ask("PING")["cmd"] == "pong"
