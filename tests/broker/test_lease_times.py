"""When a message comes back or falls due, by the clients' eyes: timeouts, delays, retries, and clocks that go wrong."""

from base64 import b64encode
from typing import Any

import pytest
from freezegun import freeze_time

from tests.helpers.brokers.broker import LATE_MS, Broker, Client
from tests.helpers.brokers.by_hand import Json
from wakeq.actors.runtime.clock import SystemClock
from wakeq.protocol.wire.worker.blocks import pack

Q = "q"


def packed(bodies: list[str], *numbers: list[int]) -> str:
    """Return a block of bodies and of columns of numbers, as JSON has it."""
    columns = [("body", [body.encode() for body in bodies]), *(("delay", column) for column in numbers)]
    return b64encode(pack(columns)).decode()


@pytest.mark.parametrize(("fields", "after_s"), [({}, 60), ({"timeout": 5}, 5), ({"timeout": 90}, 90)])
def test_delivery_that_is_not_acknowledged_ends_at_its_timeout(
    broker: Broker, client: Client, fields: dict[str, Any], after_s: int
) -> None:
    uid = client.publish(Q, **fields)
    client.fetch(Q)

    broker.advance(after_s - 0.05)
    assert client.finds_nothing(Q)
    broker.advance(0.06)

    assert client.fetch(Q) | {"lease": ""} == {
        "cmd": "msg", "qname": Q, "uid": uid, "error_count": 1, "msg": "hi", "lease": "",
    }  # fmt: skip


@pytest.mark.parametrize("timeout", [4, 0, -1, 1.5, "5"])
def test_timeout_out_of_range_is_refused(client: Client, timeout: object) -> None:
    assert client.call("PUB", Q, message="m", timeout=timeout)["err"] == "BAD_FIELD"
    assert client.call("FET", Q)["err"] == "Q_NOT_FOUND"


def test_timeout_of_the_queue_counts_for_messages_without_their_own(broker: Broker, client: Client) -> None:
    client.call("CREATE", Q, timeout=7)
    client.publish(Q)
    client.fetch(Q)

    broker.advance(6.9)
    assert client.finds_nothing(Q)
    broker.advance(0.2)

    client.fetch(Q)


@pytest.mark.parametrize("way", ["fetch", "many", "wait", "read"])
@pytest.mark.parametrize("own", [{}, {"timeout": 90}])
def test_fetch_with_a_timeout_leases_for_that_time(broker: Broker, way: str, own: dict[str, Any]) -> None:
    client, worker = broker.client(), broker.client()
    fields: dict[str, Any] = {"fetch": {}, "many": {"count": 10}, "wait": {"wait": 1}, "read": {}}[way]
    if way == "wait":
        worker.send({"cmd": "FET", "qname": Q, "timeout": 30, **fields})
    client.publish(Q, **own)
    if way == "read":  # what is no longer in memory is fetched a moment later
        broker.advance(2)
        broker.queue(Q).bodies.clear()
    if way != "wait":
        worker.send({"cmd": "FET", "qname": Q, "timeout": 30, **fields})
    got = worker.words()

    broker.advance(29.9)
    assert client.finds_nothing(Q)
    broker.advance(0.2)

    assert got == (["msgs"] if way == "many" else ["msg"])
    assert client.fetch(Q)["error_count"] == 1


def test_fetch_for_a_time_that_is_out_of_range_is_refused(client: Client) -> None:
    client.publish(Q)

    assert client.call("FET", Q, timeout=4)["err"] == "BAD_FIELD"
    client.fetch(Q)


def test_touch_puts_the_timeout_off_from_now(broker: Broker, client: Client) -> None:
    uid = client.publish(Q, timeout=10)
    lease = client.fetch(Q)["lease"]
    broker.advance(9)

    assert client.call("TOUCH", Q, uid=uid, lease=lease, timeout=20)["cmd"] == "oktouch"
    broker.advance(19.9)
    assert client.finds_nothing(Q)
    broker.advance(0.2)

    assert client.fetch(Q)["error_count"] == 1


def test_nack_with_a_delay_brings_the_message_back_after_it(broker: Broker, client: Client) -> None:
    uid = client.publish(Q)
    client.fetch(Q)
    client.call("NACK", Q, uid=uid, delay=3)

    assert client.finds_nothing(Q)
    broker.advance(2.9)
    assert client.finds_nothing(Q)
    broker.advance(0.2)

    assert client.fetch(Q)["error_count"] == 1


def test_delayed_message_is_not_delivered_early(broker: Broker, client: Client) -> None:
    client.publish(Q, delay=30)

    assert client.finds_nothing(Q)
    broker.advance(29.95)
    assert client.finds_nothing(Q)
    broker.advance(0.05)

    client.fetch(Q)


@pytest.mark.parametrize(
    "publish",
    [
        {"cmd": "PUB", "qname": Q, "message": "m", "delay": 1.5},
        {"cmd": "PUB", "qname": Q, "message": "m", "delay": 1.4991},
        {"cmd": "PUB", "qname": Q, "messages": ["m"], "delay": 1.5},
        {"cmd": "PUB", "qname": Q, "messages": [{"message": "m", "delay": 1.5}]},
        {"cmd": "PUB", "qname": Q, "message": "bQ==", "enc": "b64", "delay": 1.5},
        {"cmd": "PUBB", "qname": Q, "rows": 1, "columns": ["body"], "block": packed(["m"]), "delay": 1.5},
        {"cmd": "PUBB", "qname": Q, "rows": 1, "columns": ["body", "delay_ms"], "block": packed(["m"], [1_500])},
    ],
)
def test_delay_with_a_fraction_ends_at_its_millisecond(broker: Broker, client: Client, publish: Json) -> None:
    client.send(publish)

    assert client.words() in (["ok"], ["okrows"])
    broker.advance(1.499)
    assert client.finds_nothing(Q)
    broker.advance(0.001 + LATE_MS / 1000)

    client.fetch(Q)


def test_lease_expiry_and_release_with_a_fraction_end_at_their_millisecond(broker: Broker, client: Client) -> None:
    expiring = client.publish("expiring", expires=0.25)
    uid = client.publish(Q, timeout=5.25)
    first = client.fetch(Q)

    broker.advance(0.26)
    assert client.finds_nothing("expiring"), expiring
    broker.advance(4.98)
    assert client.finds_nothing(Q)
    broker.advance(0.02)
    second = client.fetch(Q, timeout=6.5)
    broker.advance(6.49)
    assert client.call("TOUCH", Q, uid=uid, lease=second["lease"], timeout=5.5)["cmd"] == "oktouch"
    broker.advance(5.49)
    assert client.finds_nothing(Q)
    broker.advance(0.02)
    third = client.fetch(Q)
    client.call("NACK", Q, uid=uid, lease=third["lease"], delay=0.125)
    broker.advance(0.12)
    assert client.finds_nothing(Q)
    broker.advance(0.01)

    assert [one["error_count"] for one in (first, second, third, client.fetch(Q))] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("columns", "block", "words"),
    [
        (["body", "delay_ms"], packed(["m"], [-1]), "column delay_ms: milliseconds from 0 to 31536000000"),
        (["body", "delay_ms"], packed(["m"], [31_536_000_001]), "column delay_ms: milliseconds from 0 to"),
        (["body", "delay", "delay_ms"], packed(["m"], [1], [1]), "give delay or delay_ms, not both"),
    ],
)
def test_delays_of_a_block_that_are_out_of_range_or_given_twice_are_refused(
    client: Client, columns: list[str], block: str, words: str
) -> None:
    refused = client.call("PUBB", Q, rows=1, columns=columns, block=block)

    assert refused["err"] == "BAD_FIELD"
    assert words in refused["detail"]


@pytest.mark.parametrize(
    ("retry", "chance", "waits_s"),
    [
        ({"base": 4}, 0.0, [4, 4, 4]),
        ({"backoff": "exponential", "base": 1}, 0.0, [1, 2, 4, 8]),
        ({"backoff": "exponential", "base": 1, "max": 3}, 0.0, [1, 2, 3, 3]),
        ({"backoff": "exponential", "base": 4, "jitter": 0.5}, 0.5, [3, 6, 12]),
    ],
)
def test_failed_message_is_redelivered_after_the_retry_wait_of_its_queue(
    broker: Broker, client: Client, retry: dict[str, Any], chance: float, waits_s: list[float]
) -> None:
    client.call("CREATE", Q, retry=retry)
    broker.chance = chance
    client.publish(Q)

    for failures, wait_s in enumerate(waits_s):
        message = client.fetch(Q)
        assert message["error_count"] == failures
        client.call("NACK", Q, uid=message["uid"], lease=message["lease"])
        broker.advance(wait_s - 0.05)
        assert client.finds_nothing(Q), f"after failure {failures + 1}"
        broker.advance(0.06)


def test_step_of_the_wall_clock_moves_no_deadline(broker: Broker, client: Client) -> None:
    client.publish(Q, timeout=60)
    client.publish("d", delay=60)
    client.fetch(Q)

    broker.time.step_ms += 3_600_000
    broker.advance(58)
    early = [client.call("FET", name)["cmd"] for name in (Q, "d")]
    broker.time.step_ms -= 7_200_000
    broker.advance(3)

    assert early == ["nomsg", "nomsg"]
    assert [client.call("FET", name)["cmd"] for name in (Q, "d")] == ["msg", "msg"]


def test_pause_of_the_process_does_not_make_all_messages_due_at_once(broker: Broker, client: Client) -> None:
    client.publish(Q, timeout=60)
    client.fetch(Q)

    broker.time.stall(3_600)
    just_after = client.call("FET", Q)["cmd"]
    broker.advance(60)

    assert just_after == "nomsg"
    assert client.call("FET", Q)["cmd"] == "msg"


def test_moments_passed_while_the_broker_was_down_count_after_a_restart(broker: Broker, client: Client) -> None:
    client.publish(Q, timeout=60)
    client.publish("d", delay=60)
    client.publish("e", expires=60)
    client.fetch(Q)
    broker.crash()
    broker.time.advance(100)

    broker.restart()
    client = broker.client()

    assert [client.call("FET", name)["cmd"] for name in (Q, "d", "e")] == ["msg", "msg", "nomsg"]


def test_restart_forgets_no_lease_and_no_delay(broker: Broker, client: Client) -> None:
    client.publish(Q, timeout=60)
    client.publish("d", delay=60)
    lease = client.fetch(Q)["lease"]
    broker.advance(1)  # the delivery has been written

    broker.crash_and_restart()
    client = broker.client()

    assert [client.call("FET", name)["cmd"] for name in (Q, "d")] == ["nomsg", "nomsg"]
    broker.advance(59.1)
    assert [client.call("FET", name)["cmd"] for name in (Q, "d")] == ["msg", "msg"]
    assert lease == "1-1"


def test_timeout_is_kept_by_the_clock_of_the_machine(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with freeze_time("2030-01-01 00:00:00") as frozen:
        machine = SystemClock()
        monkeypatch.setattr(broker.time, "wall_ms", machine.wall_ms)
        monkeypatch.setattr(broker.time, "monotonic_ms", machine.monotonic_ms)
        broker.start_clock()
        client.publish(Q, timeout=60)
        client.fetch(Q)
        found = []
        for _ in range(61):
            found.append(client.call("FET", Q)["cmd"])
            frozen.tick(1)
            broker.advance(1)

        assert found == ["nomsg"] * 60 + ["msg"]
