"""Bodies that are no longer in memory: read again when their turn comes, whatever happens meanwhile."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.helpers.brokers.broker import Broker, Client
from wakeq.actors.mail import Follow, Loaded, Propose
from wakeq.actors.queue import fetching
from wakeq.actors.queue.leading import Lead
from wakeq.actors.queue.process import QueueProcess
from wakeq.actors.queue.reading import BODIES_AHEAD, BODIES_AHEAD_MAX
from wakeq.protocol.errors import REBUILD
from wakeq.protocol.log.entries import PAUSE_MS_MAX, PauseQueue
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.storage.state.store import MESSAGES, Checkpoint

Q = "q"


def evict(broker: Broker, name: str = Q) -> None:
    """Have a queue's bodies in the store only."""
    broker.flush()
    broker.queue(name).bodies.flushed(lambda count: [], 0)


def begin_to_read(broker: Broker, worker: Client) -> None:
    """Let a worker fetch what is no longer in memory; the disk takes its time."""
    evict(broker)
    broker.reader_disk.held = True
    worker.send({"cmd": "FET", "qname": Q})
    broker.settle()


def wait_behind_a_read(broker: Broker, client: Client, worker: Client) -> None:
    """Let a worker have the first message read for it, and a client ask for the second one, which is in memory."""
    client.publish(Q, "1")
    begin_to_read(broker, worker)
    client.publish(Q, "2")
    client.send({"cmd": "FET", "qname": Q})
    broker.settle()


def end_reading(broker: Broker) -> None:
    broker.reader_disk.held = False
    broker.reader_disk.complete()


def test_stored_message_with_a_wrong_checksum_ends_the_node_with_its_place(broker: Broker, client: Client) -> None:
    uid = client.publish(Q, "body")
    evict(broker)
    store, key = broker.files.store, f"{Q}-{uid}".encode()
    (row,) = store.get_many([key])
    assert row is not None
    store.commit(Checkpoint(*store.applied(), [(MESSAGES, [(key, row[:-1] + b"X")])]))

    broker.may_fail = True
    client.send({"cmd": "FET", "qname": Q})
    broker.settle()

    assert [str(error) for error in broker.failures] == [
        "state/data.mdb: at offset 0: expected whole records, found a stored message with a wrong checksum: "
        "number 1 of queue 'q'; " + REBUILD
    ]


@pytest.mark.parametrize("asked", ["FET", "PEEK"])
def test_message_that_the_store_has_lost_ends_the_node_instead_of_being_read_for_ever(
    broker: Broker, client: Client, asked: str
) -> None:
    uid = client.publish(Q)
    evict(broker)
    store = broker.files.store
    store.commit(Checkpoint(*store.applied(), (), [(MESSAGES, [f"{Q}-{uid}".encode()])]))

    broker.may_fail = True
    client.send({"cmd": asked, "qname": Q})
    broker.settle()

    assert [str(error) for error in broker.failures] == [
        "state/data.mdb: at offset 0: expected a message that is in the index, found none: number 1 of queue 'q'; "
        + REBUILD
    ]


def test_fetch_reads_a_message_that_is_not_in_memory(broker: Broker, client: Client) -> None:
    uid = client.publish(Q, "body", priority=3, headers={"a": "b"}, timeout=5)
    evict(broker)

    message = client.fetch(Q)

    assert (message["uid"], message["msg"], message["priority"]) == (uid, "body", 3)
    assert message["headers"] == {"a": "b"}


def test_thousand_messages_drain_in_order_from_the_store(broker: Broker, client: Client) -> None:
    client.call("PUB", Q, messages=[str(i) for i in range(1_000)])
    evict(broker)

    drained = []
    while (reply := client.call("FET", Q, count=7))["cmd"] == "msgs":
        drained += [int(message["msg"]) for message in reply["messages"]]

    assert drained == list(range(1_000))
    broker.check(Q)


def test_thousand_single_fetches_in_one_read_drain_in_order(broker: Broker, client: Client) -> None:
    client.call("PUB", Q, messages=[str(i) for i in range(1_000)])
    evict(broker)
    broker.reader_disk.held = True

    client.send(*[{"cmd": "FET", "qname": Q}] * 1_000)
    broker.settle()
    end_reading(broker)

    assert [int(reply["msg"]) for reply in client.take()] == list(range(1_000))


def test_message_that_is_being_read_is_not_overtaken(broker: Broker, client: Client, worker: Client) -> None:
    wait_behind_a_read(broker, client, worker)

    meanwhile = client.take()
    end_reading(broker)
    broker.settle()

    assert meanwhile == []
    assert (worker.take()[0]["msg"], client.take()[0]["msg"]) == ("1", "2")
    broker.check(Q)


def test_message_that_leaves_memory_while_another_is_read_is_read_in_its_turn(
    broker: Broker, client: Client, worker: Client
) -> None:
    wait_behind_a_read(broker, client, worker)

    evict(broker)
    end_reading(broker)
    broker.settle()

    assert (worker.take()[0]["msg"], client.take()[0]["msg"]) == ("1", "2")
    broker.check(Q)


def test_message_read_for_a_worker_that_dies_goes_to_the_next_waiting_fetch(
    broker: Broker, client: Client, worker: Client
) -> None:
    wait_behind_a_read(broker, client, worker)
    worker.close()

    end_reading(broker)
    broker.settle()

    assert client.take()[0]["msg"] == "1"
    assert client.fetch(Q)["msg"] == "2"
    broker.check(Q)


def test_messages_read_for_two_fetches_of_a_dead_worker_keep_their_order(
    broker: Broker, client: Client, worker: Client
) -> None:
    client.call("PUB", Q, messages=["1", "2", "3", "4"])
    evict(broker)
    broker.reader_disk.held = True
    worker.send({"cmd": "FET", "qname": Q, "count": 2}, {"cmd": "FET", "qname": Q})
    broker.settle()
    worker.close()

    end_reading(broker)
    broker.settle()

    assert [client.fetch(Q)["msg"] for _ in range(4)] == ["1", "2", "3", "4"]
    broker.check(Q)


def test_message_whose_worker_dies_while_its_body_is_read_is_available_again(
    broker: Broker, client: Client, worker: Client
) -> None:
    uid = client.publish(Q)
    begin_to_read(broker, worker)
    worker.close()

    end_reading(broker)
    broker.settle()

    broker.check(Q)
    assert client.fetch(Q)["uid"] == uid


def test_sleeper_is_woken_for_a_message_whose_fetch_was_abandoned(
    broker: Broker, client: Client, worker: Client
) -> None:
    sleeper = broker.client()
    client.publish(Q)
    begin_to_read(broker, worker)
    sleeper.fall_asleep(Q)
    worker.close()

    end_reading(broker)
    broker.settle()

    assert sleeper.words() == ["awk"]


@pytest.mark.parametrize("leads_again", [False, True])
def test_message_read_for_a_leadership_that_has_ended_is_not_delivered(
    broker: Broker, client: Client, worker: Client, leads_again: bool
) -> None:
    uid = client.publish(Q)
    begin_to_read(broker, worker)
    term = broker.queue(Q).term
    broker.queue(Q).tell(Follow(term, Refusal("NOT_LEADER", "another one leads")))
    if leads_again:
        broker.queue(Q).tell(Lead(term, first_sequence=7))

    end_reading(broker)

    assert worker.words() == ["nok"]
    if leads_again:
        assert client.fetch(Q)["uid"] == uid
        broker.check(Q)


def test_message_read_while_the_node_cannot_serve_returns_to_the_line(
    broker: Broker, client: Client, worker: Client
) -> None:
    uid = client.publish(Q)
    begin_to_read(broker, worker)
    broker.log_disk.held = True
    client.send({"cmd": "PUB", "qname": "other", "message": "m"})
    broker.advance(4)  # a lone node whose disk hangs is BUSY by then

    end_reading(broker)
    refused = worker.take()
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert [reply["err"] for reply in refused] == ["BUSY"]
    assert worker.fetch(Q)["uid"] == uid
    broker.check(Q)


@pytest.mark.parametrize("asked", ["PEEK", "NACK"])
def test_request_for_a_body_is_answered_not_leader_when_leadership_ends(
    broker: Broker, client: Client, worker: Client, asked: str
) -> None:
    client.call("CREATE", Q, max_deliveries=1)
    uid = client.publish(Q)
    worker.fetch(Q)
    broker.advance(0.1)
    evict(broker)
    broker.reader_disk.held = True
    worker.send({"cmd": asked, "qname": Q, **({"uid": uid} if asked == "NACK" else {"state": "any"})})
    broker.settle()

    broker.queue(Q).tell(Follow(broker.queue(Q).term, Refusal("NOT_LEADER", "another one leads")))
    broker.settle()

    assert [reply["err"] for reply in worker.take()] == ["NOT_LEADER"]
    end_reading(broker)
    assert worker.take() == []


@pytest.mark.parametrize("end", ["ACK", "PURGE", "DROP"])
def test_fetch_whose_message_goes_while_it_is_read_gets_nothing(
    broker: Broker, client: Client, worker: Client, end: str
) -> None:
    uid = client.publish(Q)
    begin_to_read(broker, worker)

    client.ask({"cmd": end, "qname": Q, **({"uid": uid} if end == "ACK" else {})})
    end_reading(broker)

    assert worker.words() in (["nomsg"], ["nok"])


@pytest.mark.parametrize("end", ["ACK", "PURGE", "DROP"])
@pytest.mark.parametrize("asked", ["PEEK", "NACK"])
def test_request_for_a_body_that_is_removed_meanwhile_is_answered(
    broker: Broker, client: Client, worker: Client, asked: str, end: str
) -> None:
    client.call("CREATE", Q, max_deliveries=1)
    uid = client.publish(Q)
    worker.fetch(Q)
    broker.advance(0.1)
    evict(broker)
    broker.reader_disk.held = True
    worker.send({"cmd": asked, "qname": Q, **({"uid": uid} if asked == "NACK" else {"state": "any"})})
    broker.settle()

    client.ask({"cmd": end, "qname": Q, **({"uid": uid} if end == "ACK" else {})})
    end_reading(broker)

    assert len(worker.take()) == 1


@pytest.mark.parametrize("asked", ["FET", "PEEK"])
def test_request_that_waits_for_a_read_is_answered_when_the_queue_crashes(
    broker: Broker, client: Client, worker: Client, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    client.publish(Q)
    evict(broker)
    broker.reader_disk.held = True
    worker.send({"cmd": asked, "qname": Q})
    broker.settle()

    broker.queue(Q).tell(object())  # a bug: no handler knows it
    broker.settle()
    end_reading(broker)

    assert len(worker.take()) == 1
    assert client.fetch(Q)


def crash_once(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Give this step of a delivery a bug that shows once."""
    sound, bugs = getattr(fetching, name), [RuntimeError("a bug")]

    def crashing(queue: QueueProcess, *arguments: Any) -> Any:
        if bugs:
            raise bugs.pop()
        return sound(queue, *arguments)

    monkeypatch.setattr(fetching, name, crashing)


@pytest.mark.parametrize("step", ["_deliveries", "take"])
def test_waiting_fetch_is_answered_when_delivering_a_read_message_crashes_the_queue(
    broker: Broker, client: Client, worker: Client, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    client.call("PUB", Q, messages=["1", "2"])
    begin_to_read(broker, worker)
    client.send({"cmd": "FET", "qname": Q})
    broker.settle()
    worker.close()  # so that everything is taken again

    crash_once(monkeypatch, step)
    end_reading(broker)
    broker.settle()

    assert client.words() == ["nomsg"]
    assert [client.fetch(Q)["msg"] for _ in range(2)] == ["1", "2"]


def test_waiting_fetch_is_answered_when_its_delivery_crashes_the_queue(
    broker: Broker, client: Client, worker: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.send({"cmd": "FET", "qname": Q, "wait": 1})
    broker.settle()

    crash_once(monkeypatch, "_deliveries")
    client.publish(Q)

    assert worker.words() == ["nomsg"]
    assert client.fetch(Q)


@pytest.mark.parametrize("end", ["ACK", "PURGE"])
def test_fetch_that_waits_goes_on_waiting_if_its_message_goes_while_it_is_read(
    broker: Broker, client: Client, worker: Client, end: str
) -> None:
    uid = client.publish(Q)
    evict(broker)
    broker.reader_disk.held = True
    worker.send(*[{"cmd": "FET", "qname": Q, "wait": 5, "cmd_id": number} for number in (1, 2)])
    broker.settle()

    client.ask({"cmd": end, "qname": Q, **({"uid": uid} if end == "ACK" else {})})
    end_reading(broker)
    broker.settle()
    meanwhile = worker.take()
    client.publish(Q, "new")
    found = worker.take()
    broker.advance(5)

    assert meanwhile == []
    assert [reply.get("msg") for reply in found] == ["new"]
    assert worker.words() == ["nomsg"]
    broker.check(Q)


def test_fetch_whose_wait_was_ended_while_its_message_was_read_gets_nothing_at_once_if_that_goes(
    broker: Broker, client: Client, worker: Client
) -> None:
    uid = client.publish(Q)
    evict(broker)
    broker.reader_disk.held = True
    worker.send({"cmd": "FET", "qname": Q, "wait": 5})
    worker.send({"cmd": "STATS", "qname": Q})  # whoever says something else waits no longer
    broker.settle()

    client.ask({"cmd": "ACK", "qname": Q, "uid": uid})
    end_reading(broker)
    broker.settle()

    assert worker.words() == ["nomsg", "stats"]


def test_messages_read_while_the_queue_is_paused_keep_their_place(
    broker: Broker, client: Client, worker: Client
) -> None:
    client.call("PUB", Q, messages=["1", "2", "3"])
    evict(broker)
    broker.reader_disk.held = True
    worker.send(*[{"cmd": "FET", "qname": Q, "wait": wait, "cmd_id": wait} for wait in (5, 0)])
    broker.settle()

    broker.operate(Q, lambda me: Propose([Proposal(PauseQueue(Q, PAUSE_MS_MAX), me)]))
    end_reading(broker)
    broker.settle()
    meanwhile = worker.take()
    broker.operate(Q, lambda me: Propose([Proposal(PauseQueue(Q, 0), me)]))

    assert [(reply["cmd"], reply["cmd_id"]) for reply in meanwhile] == [("nomsg", 0)]
    assert [reply["msg"] for reply in worker.take()] == ["1"]
    assert [client.fetch(Q)["msg"] for _ in range(2)] == ["2", "3"]
    broker.check(Q)


@pytest.mark.parametrize("end", ["PURGE", "DROP"])
def test_body_read_for_an_earlier_incarnation_is_not_delivered_by_the_new_one(
    broker: Broker, client: Client, end: str
) -> None:
    uid = client.publish(Q, "old")
    evict(broker)
    (row,) = broker.files.store.get_many([f"{Q}-{uid}".encode()])
    late = Loaded([1], [row], (broker.queue(Q).ledger.id, None))  # it was read, and its mail is on the way
    client.call(end, Q)
    client.publish(Q, "new")
    evict(broker)

    broker.queue(Q).tell(late)
    broker.settle()

    assert client.fetch(Q)["msg"] == "new"


def test_queue_that_is_emptied_fast_is_read_in_ever_larger_pieces(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(10):
        client.call("PUB", Q, messages=["x"] * 400)
    evict(broker)
    pieces: list[int] = []
    store = broker.assembly.files.store
    get_many = store.get_many

    def counted(keys: Sequence[bytes]) -> list[bytes | None]:
        pieces.append(len(keys))
        return get_many(keys)

    monkeypatch.setattr(store, "get_many", counted)

    for _ in range(40):
        client.call("FET", Q, count=64)

    assert pieces[:2] == [64, BODIES_AHEAD]
    assert set(pieces[4:]) == {BODIES_AHEAD_MAX // 2}
