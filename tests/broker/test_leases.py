"""Leases by the clients' eyes: who may end a delivery, in what order things seem to happen, and what stays in line."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.brokers.broker import Broker, Client
from wakeq.actors.log import raft_log
from wakeq.protocol.catalog import Policies
from wakeq.protocol.log.entries import ANY_TOKEN, Ack, Draft, Publish, Released, Requeued
from wakeq.protocol.queue.leases.audience import NEVER, WaitingFetch
from wakeq.protocol.queue.leases.due_moments import EXCESS_MAX
from wakeq.protocol.queue.leases.leases import ENDING_GRACE_MS, Leases
from wakeq.protocol.queue.ledger.ledger import Ledger
from wakeq.protocol.queue.ledger.publishers import Limits
from wakeq.protocol.queue.ledger.staging import STASH
from wakeq.protocol.queue.order.ready_line import GONE_MAX

Q = "q"


def words(replies: list[dict[str, Any]]) -> list[str]:
    return [str(reply["cmd"]) for reply in replies]


# Who may end a delivery -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cmd", ["ACK", "DEL", "NACK", "TOUCH"])
def test_older_lease_is_refused_and_changes_nothing(broker: Broker, client: Client, worker: Client, cmd: str) -> None:
    uid = client.publish(Q, timeout=5)
    old = client.fetch(Q)
    broker.advance(5)
    new = worker.fetch(Q)

    reply = client.call(cmd, Q, uid=uid, lease=old["lease"])

    assert (reply["cmd"], reply["err"]) == ("nok", "STALE_LEASE")
    assert old["lease"] != new["lease"]
    assert client.finds_nothing(Q)
    assert worker.call("ACK", Q, uid=uid, lease=new["lease"]) == {"cmd": "okack", "uid": uid, "qname": Q}


def test_leases_only_grow_through_a_purge_too(client: Client) -> None:
    client.publish(Q)
    before = client.fetch(Q)["lease"]

    client.call("PURGE", Q)
    client.publish(Q)
    behind = client.fetch(Q)["lease"]

    assert (before, behind) == ("1-1", "1-2")


def test_deliveries_of_one_moment_and_one_write_end_once_each(
    broker: Broker, client: Client, worker: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.call("PUB", Q, messages=["a", "b"])
    released: list[Released] = []
    release = Ledger.release
    monkeypatch.setattr(Ledger, "release", lambda ledger, entry: released.append(entry) or release(ledger, entry))

    broker.log_disk.held = True
    fetches = [one.ask({"cmd": "FET", "qname": Q})[0]["msg"] for one in (client, worker)]
    broker.log_disk.held = False
    broker.advance(Policies().timeout)

    assert fetches == ["a", "b"]
    assert [entry.numbers for entry in released] == [[1, 2]]


def test_acknowledgement_without_a_lease_is_accepted_as_in_the_original(
    broker: Broker, client: Client, worker: Client
) -> None:
    uid = client.publish(Q, timeout=5)
    client.fetch(Q)
    broker.advance(5)
    worker.fetch(Q)

    reply = client.call("ACK", Q, uid=uid)

    assert reply == {"cmd": "okack", "uid": uid, "qname": Q}
    broker.advance(100)
    assert worker.finds_nothing(Q)


def test_acknowledgement_of_an_unknown_message_is_answered_as_unknown(client: Client) -> None:
    uid = client.publish(Q)
    client.call("ACK", Q, uid=uid)

    again = client.call("ACK", Q, uid=uid)
    never = client.call("ACK", Q, uid="aB1440000000_250")
    nowhere = client.call("ACK", "no-such-queue", uid=uid)

    assert [reply["known"] for reply in (again, never, nowhere)] == [False, False, False]


def test_acknowledgement_of_several_uids_names_the_unknown_ones(client: Client) -> None:
    uids = client.call("PUB", Q, messages=["a", "b", "c"])["uids"]
    client.call("FET", Q, count=3)

    nacked = client.call("NACK", Q, uids=uids[:2])
    acked = client.call("ACK", Q, uids=[*uids, "nobody-knows-me"])

    assert nacked == {"cmd": "oknack", "uids": uids[:2], "qname": Q}
    assert acked == {"cmd": "okack", "uids": [*uids, "nobody-knows-me"], "qname": Q, "unknown": ["nobody-knows-me"]}
    assert client.finds_nothing(Q)


def test_uids_with_a_stale_lease_among_them_name_it(broker: Broker, client: Client, worker: Client) -> None:
    uids = client.call("PUB", Q, messages=["a", "b"], timeout=5)["uids"]
    old = client.call("FET", Q, count=2)["messages"]
    broker.advance(5)
    new = worker.call("FET", Q, count=1)["messages"][0]

    reply = client.call("ACK", Q, uids=uids, leases=[message["lease"] for message in old])

    assert new["uid"] == uids[0]
    assert reply["stale"] == [uids[0]]
    assert client.figures(Q)["leased"] == 1


# One after the other ----------------------------------------------------------------------------------------------


def test_fetch_behind_a_publish_on_one_connection_sees_the_message(client: Client) -> None:
    replies = client.ask(
        {"cmd": "PUB", "qname": Q, "message": "a"}, {"cmd": "FET", "qname": Q}, {"cmd": "FET", "qname": Q}
    )

    assert words(replies) == ["ok", "msg", "nomsg"]


def test_answers_come_in_the_order_of_the_requests(broker: Broker, client: Client) -> None:
    broker.log_disk.held = True
    client.send(
        {"cmd": "PUB", "qname": "a", "message": "1", "cmd_id": 1},
        {"cmd": "PING", "cmd_id": 2},
        {"cmd": "FET", "qname": "b", "cmd_id": 3},
        {"cmd": "PUB", "qname": "b", "message": "2", "cmd_id": 4},
        {"cmd": "SUB", "qname": "c", "cmd_id": 5},
        b"rubbish\n",
        {"cmd": "FET", "qname": "a", "cmd_id": 6},
        {"cmd": "FET", "qname": "c", "cmd_id": 7},
    )
    before = client.take()
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()
    broker.log_disk.complete()

    after = client.take()

    assert before == []
    assert [reply.get("cmd_id") for reply in after] == [1, 2, 3, 4, 5, None, 6, 7]
    assert words(after) == ["ok", "pong", "nok", "ok", "oksub", "nok", "msg", "nomsg"]


@pytest.mark.parametrize(
    ("second", "reply"), [("ACK", "okack"), ("NACK", "oknack"), ("TOUCH", "oktouch"), ("DEL", "okack")]
)
@pytest.mark.parametrize("first", ["ACK", "NACK"])
def test_command_behind_the_end_of_its_delivery_finds_it_ended(
    client: Client, first: str, second: str, reply: str
) -> None:
    uid = client.publish(Q)
    lease = client.fetch(Q)["lease"]

    _, found = client.ask(
        {"cmd": first, "qname": Q, "uid": uid, "lease": lease}, {"cmd": second, "qname": Q, "uid": uid, "lease": lease}
    )

    still_there = first == "NACK" and second in ("ACK", "DEL")  # it is in the queue, and may be acknowledged
    if found["cmd"] == "nok":
        assert (first, found["err"]) == ("NACK", "STALE_LEASE")
    else:
        assert found["cmd"] == reply
        assert found.get("known", True) is still_there


def test_touch_then_nack_then_fetch_are_done_one_after_the_other(client: Client) -> None:
    uid = client.publish(Q)
    client.fetch(Q)

    replies = client.ask(
        {"cmd": "TOUCH", "qname": Q, "uid": uid}, {"cmd": "NACK", "qname": Q, "uid": uid}, {"cmd": "FET", "qname": Q}
    )

    assert words(replies) == ["oktouch", "oknack", "msg"]
    assert replies[2]["error_count"] == 1


def test_message_with_an_uncommitted_acknowledgement_is_neither_delivered_nor_released(
    broker: Broker, client: Client, worker: Client
) -> None:
    held, ready = client.publish(Q, timeout=5), client.publish(Q)
    client.fetch(Q)
    broker.advance(4)
    broker.log_disk.held = True

    client.send({"cmd": "ACK", "qname": Q, "uid": held}, {"cmd": "ACK", "qname": Q, "uid": ready})
    broker.settle()
    broker.advance(2.5)  # the lease ends; after 3 s the broker would answer BUSY
    nothing = worker.ask({"cmd": "FET", "qname": Q})
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert words(nothing) == ["nomsg"]
    assert words(client.take()) == ["okack", "okack"]
    broker.advance(60)
    assert worker.finds_nothing(Q)
    assert worker.figures(Q)["released"] == 0


@pytest.mark.parametrize("delay", [0, 5])
@pytest.mark.parametrize("asked", ["FET", "PEEK"])
def test_message_whose_acknowledgement_is_refused_is_available_again(
    broker: Broker, client: Client, worker: Client, delay: int, asked: str
) -> None:
    client.call("CREATE", "full", max_size=0)
    uid = client.publish(Q, delay=delay)
    broker.log_disk.held = True
    client.send({"cmd": "ACK", "qname": Q, "uid": uid, "publish": [{"qname": "full", "message": "m"}]})
    broker.settle()

    broker.advance(6)  # a delayed one falls due meanwhile
    worker.ask({"cmd": asked, "qname": Q})
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert [reply["err"] for reply in client.take()] == ["QUEUE_FULL"]
    assert worker.fetch(Q)["uid"] == uid
    broker.check(Q)


def test_lease_whose_end_was_refused_ends_again() -> None:
    ledger = Ledger(Q, 1, Policies(), Limits())
    leases = Leases(ledger, 1, 0)
    leases.add_published(ledger.publish(Publish(Q, [Draft(b"", timeout_ms=5_000)]), 1), 1, lambda: 1)
    (until_ms,), _ = leases.lease(leases.take(1, 1), [None], [0], 1)

    assert leases.take_timed_out(until_ms) == [1]
    leases.mark_ending([1])  # its release was proposed
    leases.keep_leased([1], until_ms)

    assert leases.next_moment_ms() == until_ms + ENDING_GRACE_MS
    assert leases.take_timed_out(until_ms + ENDING_GRACE_MS) == [1]


def test_message_that_is_requeued_when_its_delay_is_over_anyway_is_in_line_once() -> None:
    ledger = Ledger(Q, 1, Policies(), Limits())
    leases = Leases(ledger, 1, 0)
    leases.add_published(ledger.publish(Publish(Q, [Draft(b"", delay_ms=5_000)] * 2), 1), 1, lambda: 1)

    leases.make_due_now([1], 6_000)  # before the alarm has come
    ledger.requeue(Requeued(Q, 1, [1]))
    leases.release_due(6_000)

    assert leases.take(10, 6_000) == [1, 2]


def _waits(leases: Leases) -> None:
    leases.audience.wait(WaitingFetch("somebody", None, 0, 1, 9_000, 0, 0))


def _has_been_woken(leases: Leases) -> None:
    leases.audience.sleep("somebody", only_ready=True)
    _publish(leases, Draft(b""))
    leases.to_wake(1)


def _is_paused(leases: Leases) -> None:
    leases.ledger.paused_until_ms = 9_000
    leases.note_pause()


def _has_something_out(leases: Leases) -> None:
    _publish(leases, Draft(b""))
    leases.lease(leases.take(1, 1), [None], [0], 1)


def _has_a_stash(leases: Leases) -> None:
    leases.watch_staged((STASH, "s"), {0: 9_000})


def _publish(leases: Leases, draft: Draft) -> None:
    leases.add_published(leases.ledger.publish(Publish(Q, [draft]), 1), 1, lambda: 1)


def next_moment_ms(leases: Leases) -> int:
    return min(leases.next_moment_ms(), leases.audience.next_moment_ms())


@pytest.mark.parametrize(
    "happens",
    [
        _waits,
        _has_been_woken,
        _is_paused,
        _has_something_out,
        _has_a_stash,
        lambda leases: _publish(leases, Draft(b"", delay_ms=5_000)),
        lambda leases: _publish(leases, Draft(b"", expires_ms=5_000)),
    ],
)
def test_queue_has_no_next_moment_only_without_consumers_leases_and_due_moments(
    happens: Callable[[Leases], None],
) -> None:
    leases = Leases(Ledger(Q, 1, Policies(), Limits()), 1, 0)
    _publish(leases, Draft(b""))
    assert next_moment_ms(leases) == NEVER
    leases.take(1, 1)

    happens(leases)

    assert next_moment_ms(leases) < NEVER
    assert leases.next_ms <= max(0, leases.next_moment_ms())


def test_messages_whose_acknowledgement_cannot_be_encoded_keep_their_place(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    uids = [client.publish(Q) for _ in range(2)]

    def encode(entry: Ack, at_ms: int) -> bytes:
        raise OverflowError("beyond a limit")

    monkeypatch.setitem(raft_log.ENCODERS, Ack, encode)
    replies = client.ask(*({"cmd": "ACK", "qname": Q, "uid": uid} for uid in uids))
    broker.settle()

    assert [reply["err"] for reply in replies] == ["BAD_FIELD"] * 2
    assert [client.fetch(Q)["uid"] for _ in uids] == uids


# What was acknowledged without a fetch ----------------------------------------------------------------------------


@pytest.mark.parametrize("delay_ms", [0, 60_000])
@pytest.mark.parametrize("step", [1, 7])
def test_messages_removed_before_any_fetch_do_not_pile_up_in_the_line(delay_ms: int, step: int) -> None:
    ledger = Ledger(Q, 1, Policies(), Limits())
    leases = Leases(ledger, 1, 0)
    numbers = list(ledger.publish(Publish(Q, [Draft(b"", delay_ms=delay_ms)] * 60_000), 1))
    leases.add_published(numbers, 1, lambda: 1)
    scattered = [number for first in range(step) for number in numbers[first::step]]

    for start in range(0, 50_000, 100):
        gone = scattered[start : start + 100]
        ledger.acknowledge(Ack(Q, 1, gone, [ANY_TOKEN] * 100))
        leases.forget_removed(gone)

    assert len(leases.line) <= ledger.columns.living * 2 + GONE_MAX
    delayed = leases.due.delayed if leases.due else None
    assert len(delayed or ()) <= ledger.columns.living * 2 + EXCESS_MAX
    assert leases.take(1, 1) == ([] if delay_ms else [min(scattered[50_000:])])


@pytest.mark.parametrize(("delay_ms", "looks"), [(0, 0), (5, 1)])
def test_clock_is_read_only_for_messages_that_may_have_to_wait(delay_ms: int, looks: int) -> None:
    ledger = Ledger(Q, 1, Policies(), Limits())
    leases = Leases(ledger, 1, 0)
    moments = [1]

    numbers = ledger.publish(Publish(Q, [Draft(b"", delay_ms=delay_ms)]), 1)
    leases.add_published(list(numbers), 1, lambda: moments.pop())

    assert len(moments) == 1 - looks
    assert len(leases.line) == 1 - looks


# What is taken and removed at once ---------------------------------------------------------------------------------


def test_withheld_messages_return_to_the_line_if_kept_and_leave_no_trace_if_removed() -> None:
    ledger = Ledger(Q, 1, Policies(), Limits())
    leases = Leases(ledger, 1, 0)
    numbers = list(ledger.publish(Publish(Q, [Draft(b"")] * 4), 1))
    leases.add_published(numbers, 1, lambda: 1)
    taken = leases.take(3, 1)

    leases.withhold(taken)
    assert leases.take(4, 1) == [4]
    leases.return_undelivered([4], 1)
    ledger.acknowledge(Ack(Q, 1, [1, 3], [ANY_TOKEN] * 2, delivered=True))
    leases.forget_removed([1, 3])
    leases.keep_leased([2], 1)

    assert leases.take(4, 1) == [4, 2]  # behind those of its priority, as whatever comes back
    assert not leases.ending
    assert not leases._withheld
    assert not leases.line.gone  # they were not in line: nothing there has to be passed over


# What was taken and is not handed out ------------------------------------------------------------------------------


def test_message_put_back_while_acknowledged_is_in_line_again_if_that_is_refused() -> None:
    ledger = Ledger(Q, 1, Policies(), Limits())
    leases = Leases(ledger, 1, 0)
    leases.add_published(ledger.publish(Publish(Q, [Draft(b"")] * 2), 1), 1, lambda: 1)
    taken = leases.take(1, 1)
    leases.mark_ending(taken)  # somebody acknowledges it, while its body is read for somebody else

    leases.return_undelivered(taken, 1)

    assert leases.take(2, 1) == [2]
    leases.keep_leased(taken, 1)  # but that was refused
    assert leases.take(2, 1) == taken
