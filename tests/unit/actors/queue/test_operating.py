"""QueueOperations: what an operator moves or lets go is there once, whatever happens meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.brokers.broker import Asked, Broker, Client
from wakeq.actors.mail import Propose
from wakeq.actors.sessions.operator import Question
from wakeq.actors.sessions.operator_mail import Move, Requeue, Scan
from wakeq.protocol.log.entries import PAUSE_MS_MAX, PauseQueue
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.leases import leases
from wakeq.protocol.queue.orders import Peek

Q = "q"
OTHER = "other"


def asked_of_two(broker: Broker, client: Client, make: Callable[[Question, list[str]], Any]) -> tuple[list[str], Any]:
    """Ask about a message on disk and one in memory, of which the second leaves memory while the first is read."""
    uids = [client.publish(Q, "on disk", delay=1_000)]
    broker.flush()
    uids.append(client.publish(Q, "in memory", delay=1_000))
    question = Asked(broker.runtime)
    broker.reader_disk.held = True
    broker.queue(Q).tell(make(question, uids))
    broker.settle()
    broker.flush()
    assert not question.done(), "it waits for the disk"
    broker.reader_disk.held = False
    broker.reader_disk.complete()
    broker.settle()
    return uids, question.get()


def test_message_that_leaves_memory_during_a_read_is_moved_with_the_rest(broker: Broker, client: Client) -> None:
    uids, moved = asked_of_two(broker, client, lambda me, named: Move(me, Q, named, OTHER))

    assert all(moved.uids[uid] for uid in uids)
    assert (client.figures(Q)["size"], client.figures(OTHER)["size"]) == (0, 2)


@pytest.mark.parametrize("cmd", ["page", "peek"])
def test_message_that_leaves_memory_during_a_read_is_shown_with_the_rest(
    broker: Broker, client: Client, cmd: str
) -> None:
    def make(me: Question, _: list[str]) -> Any:
        return Scan(me, Q, 0, 10) if cmd == "page" else Peek(me, Q, "delayed", 10)

    uids, seen = asked_of_two(broker, client, make)

    rows = seen.rows if cmd == "page" else seen
    assert [(row["uid"], row["body"]) for row in rows] == list(zip(uids, [b"on disk", b"in memory"], strict=True))


def test_look_at_all_messages_leaves_none_of_them_in_memory(broker: Broker, client: Client) -> None:
    client.publish(Q, delay=1_000)
    broker.flush()

    broker.operate(Q, lambda me: Scan(me, Q, 0, 10))

    assert not len(broker.queue(Q).bodies)


def test_message_that_is_named_twice_is_moved_once(broker: Broker, client: Client) -> None:
    uid = client.publish(Q)

    moved = broker.operate(Q, lambda me: Move(me, Q, [uid, uid], OTHER))

    assert list(moved.uids) == [uid]
    assert client.figures(OTHER)["size"] == 1


def test_move_takes_a_bounded_number_of_bytes_and_names_the_messages_that_stay(broker: Broker, client: Client) -> None:
    uids = [client.publish(Q, "x" * 1_000_000) for _ in range(9)]

    moved = broker.operate(Q, lambda me: Move(me, Q, uids, OTHER))

    assert [uid for uid, new in moved.uids.items() if new is None] == uids[8:], "eight of a million are within 8 MiB"
    assert (client.figures(Q)["size"], client.figures(OTHER)["size"]) == (1, 8)


def test_message_with_an_uncommitted_delivery_is_not_moved(broker: Broker, client: Client) -> None:
    uids = [client.publish(Q), client.publish(Q)]
    broker.log_disk.held = True
    client.fetch(Q)
    question = Asked(broker.runtime)

    broker.queue(Q).tell(Move(question, Q, uids, OTHER))
    broker.settle()
    leaving = set(broker.queue(Q).leases.ending)  # type: ignore[union-attr]
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert leaving == {2}
    assert [uid for uid, new in question.get().uids.items() if new is None] == uids[:1]


def test_message_whose_move_is_refused_stays_and_is_delivered(broker: Broker, client: Client) -> None:
    uid = client.publish(Q)
    broker.disk_full(True)

    moved = broker.operate(Q, lambda me: Move(me, Q, [uid], OTHER))

    assert (moved.uids, moved.refusal.code) == ({uid: None}, "DISK_FULL")
    assert client.fetch(Q)["uid"] == uid


def test_requeued_message_that_was_released_with_a_delay_is_delivered_once(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "DUE_MAX", 10)  # of so many messages each call takes a piece
    uids = client.call("PUB", Q, messages=["x"] * 50, delay=100)["uids"]
    broker.operate(Q, lambda me: Requeue(me, Q, uids))
    held = client.call("FET", Q, count=50)["messages"]
    client.call("NACK", Q, uids=uids, leases=[message["lease"] for message in held], delay=200)

    broker.advance(150)  # behind the moment that they had at first
    broker.advance(60)
    first, second = client.call("FET", Q, count=100), client.call("FET", Q, count=100)

    assert sorted(message["uid"] for message in first["messages"]) == uids
    assert second["cmd"] == "nomsg"


@pytest.mark.parametrize("seconds", [None, 20])
def test_waiting_fetch_at_a_paused_queue_costs_nothing_until_it_goes_on(
    broker: Broker, client: Client, seconds: int | None
) -> None:
    client.publish(Q)
    until_ms = PAUSE_MS_MAX if seconds is None else broker.now_ms() + 1000 * seconds
    broker.operate(Q, lambda me: Propose([Proposal(PauseQueue(Q, until_ms), me)]))
    client.send({"cmd": "FET", "qname": Q, "wait": 60})
    broker.flush()
    before = broker.runtime.messages

    broker.advance(10)
    served = broker.runtime.messages - before
    if seconds is None:
        broker.operate(Q, lambda me: Propose([Proposal(PauseQueue(Q, 0), me)]))
    else:
        broker.advance(seconds - 10)

    assert served < 10
    assert client.words() == ["msg"]


def test_pause_that_ends_by_itself_ends_after_a_restart_too(broker: Broker, client: Client) -> None:
    client.publish(Q)
    until_ms = broker.now_ms() + 30_000
    broker.operate(Q, lambda me: Propose([Proposal(PauseQueue(Q, until_ms), me)]))

    broker.crash_and_restart()
    waits = broker.client()
    waits.send({"cmd": "FET", "qname": Q, "wait": 60})
    broker.advance(29)
    before = waits.words()
    broker.advance(2)

    assert (before, waits.words()) == ([], ["msg"])
