"""Flushes: each ends at one index for all queues, whatever crashes while it is collected or written."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers.brokers.broker import Broker, Client
from wakeq.actors.mail import CollectChanges, Flushed, Tick
from wakeq.actors.queue import process as queue
from wakeq.actors.queue.process import QueueProcess
from wakeq.actors.queues.listing import SLICE_QUEUES
from wakeq.protocol.log.entries import Publish, Result
from wakeq.protocol.log.outcomes import Outcomes
from wakeq.protocol.queue.ledger.ledger import Ledger
from wakeq.storage.state.store import MESSAGES, Checkpoint

Q = "q"
POISON = b"poison"


def test_flush_ends_at_one_index_for_all_queues(broker: Broker, client: Client) -> None:
    for place in range(50):
        client.send(*[{"cmd": "PUB", "qname": f"q{(place + i) % 7}", "message": "m"} for i in range(20)])
        if place % 9 == 0:
            broker.queues.tell(Tick("flush"))
            broker.settle()
            published = sum(q.ledger.totals.published for q in map(broker.queue, broker.queues.catalog.queues))
            assert broker.files.store.stats().records[MESSAGES] <= published
    client.take()

    broker.crash_and_restart()

    assert sum(row["ready"] for row in broker.client().call("LIST")["queues"]) == 1_000


@pytest.mark.parametrize("stop_after", range(12))
def test_crash_at_any_point_of_a_flush_loses_and_doubles_nothing(broker: Broker, stop_after: int) -> None:
    client = broker.client()
    uids = [client.publish(f"q{i % 3}", str(i)) for i in range(9)]
    broker.state_disk.held = True
    for step in range(stop_after):
        if step % 3 == 0:
            broker.queues.tell(Tick("flush"))
        elif step % 3 == 1:
            client.call("ACK", f"q{step % 9 % 3}", uid=uids.pop(step % len(uids) // 3 * 3 + step % 9 % 3))
            uids.insert(step % len(uids), "")
        else:
            broker.state_disk.complete(1)
        broker.settle()
    left = [row["ready"] for row in client.call("LIST")["queues"]]

    broker.crash_and_restart()

    client = broker.client()
    assert [row["ready"] for row in client.call("LIST")["queues"]] == left
    for name in ("q0", "q1", "q2"):
        broker.check(name)


def test_crash_while_a_flush_is_collected_loses_nothing_of_it(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    uids = [client.publish("a", "1"), client.publish("b", "2")]
    collect = QueueProcess.on_collect_changes
    crashed: list[QueueProcess] = []

    def fragile(self: QueueProcess, message: Any) -> None:
        collect(self, message)
        if self.name == "a" and not crashed:
            crashed.append(self)
            raise ZeroDivisionError("after the changes were handed in")

    monkeypatch.setitem(queue._HANDLERS, CollectChanges, fragile)
    broker.queues.tell(Tick("flush"))
    broker.settle()

    assert crashed
    assert [client.fetch(name)["uid"] for name in ("a", "b")] == uids


def test_queue_that_crashes_before_a_flush_reaches_it_still_hands_in_its_changes(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"q-{number}" for number in range(2 * SLICE_QUEUES + 2)]
    for name in names:
        client.publish(name, name)
    collect = QueueProcess.on_collect_changes
    last = broker.queue(names[-1])

    def fragile(self: QueueProcess, message: Any) -> None:
        if self.name == names[0]:
            last.tell(object())  # a bug: no handler knows it
        collect(self, message)

    monkeypatch.setitem(queue._HANDLERS, CollectChanges, fragile)
    broker.flush()
    monkeypatch.undo()

    assert broker.queue(names[-1]) is not last
    assert broker.files.store.stats().records[MESSAGES] == len(names)
    assert client.fetch(names[-1])["msg"] == names[-1]


def test_refusals_of_a_queue_are_written_with_the_flush_for_readers_of_the_log(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Outcomes] = []
    monkeypatch.setattr(broker.files.log, "outcomes", SimpleNamespace(write=written.append, close=lambda: None))
    client.call("CREATE", Q, max_size=1)
    client.publish(Q)
    refused = client.call("PUB", Q, message="too many")

    broker.flush()

    assert refused["cmd"] == "nok"
    assert [(index, code) for one in written for index, _, code in one.notes] == [
        (broker.queues.applied[0], int(Result.QUEUE_FULL))
    ]


def test_each_of_many_queues_is_told_once_that_the_flush_is_written(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"q-{number}" for number in range(2 * SLICE_QUEUES + 2)]
    for name in names:
        client.publish(name, name)
    told: list[str] = []

    def note(self: QueueProcess, message: Any) -> None:
        told.append(self.name)

    monkeypatch.setitem(queue._HANDLERS, Flushed, note)
    broker.flush()

    assert sorted(name for name in told if name in names) == sorted(names)


def test_entry_skipped_while_a_flush_is_collected_is_in_no_part_of_it(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.publish("b")
    uid = client.publish(Q, timeout=5)
    client.fetch(Q)
    broker.advance(0.1)
    publish = Ledger.publish

    def fragile(self: Ledger, entry: Publish, at_ms: int, **about: Any) -> Any:
        if entry.drafts[0].body == POISON:
            broker.queues.tell(Tick("flush"))  # the flush begins before the news of the crash is heard
            raise ZeroDivisionError("poisoned")
        return publish(self, entry, at_ms, **about)

    monkeypatch.setattr(Ledger, "publish", fragile)
    reply = client.call("ACK", Q, uid=uid, publish=[{"qname": "b", "message": "poison"}])
    broker.flush()
    broker.crash_and_restart()
    broker.advance(5)

    assert reply["err"] == "SET_ASIDE"
    assert broker.client().fetch(Q)["uid"] == uid


def test_publishes_wait_while_the_store_is_too_far_behind(directory: Path) -> None:
    broker = Broker(directory, flush_bytes=10_000)
    client = broker.client()
    broker.state_disk.held = True
    for _ in range(5):
        client.send({"cmd": "PUB", "qname": Q, "messages": ["x" * 1_000] * 10})
        broker.advance(1.1)
    answered = client.words()

    broker.state_disk.held = False
    broker.state_disk.complete()
    broker.advance(5)

    assert 0 < len(answered) < 5
    assert len(answered) + len(client.words()) == 5
    broker.close()


def test_stored_message_that_is_damaged_ends_the_node_with_the_reason(broker: Broker, client: Client) -> None:
    uid = client.publish(Q, "m")
    broker.flush()
    broker.crash_and_restart()
    store = broker.files.store
    (value,) = store.get_many([f"{Q}-{uid}".encode()])
    assert value is not None
    applied = store.applied()
    damaged = value[:-1] + b"!"
    checkpoint = Checkpoint(
        applied.log_index, applied.term, applied.clock_ms, [(MESSAGES, [(f"{Q}-{uid}".encode(), damaged)])]
    )
    store.commit(checkpoint)
    broker.may_fail = True

    broker.client().send({"cmd": "FET", "qname": Q})
    broker.settle()

    assert "checksum" in str(broker.failures[0])


def test_flush_waits_while_the_disk_has_no_room_for_it(
    broker: Broker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    free_bytes = [0]
    queues = broker.queues
    queues.flusher._services = queues.flusher._services._replace(free_bytes=lambda: free_bytes[0])
    client.publish(Q)

    broker.advance(10)
    before = queues.flusher.count, client.fetch(Q)["cmd"]
    free_bytes[0] = 1 << 40
    broker.advance(2)

    assert before == (0, "msg")
    assert queues.flusher.count > 0
    assert [record.message.partition(":")[0] for record in caplog.records if record.name == "wakeq.queues"] == [
        "the disk is full",
        "the disk has room again",
    ]


def test_stop_does_not_wait_for_a_disk_that_has_no_room(broker: Broker, client: Client) -> None:
    flusher = broker.queues.flusher
    flusher._services = flusher._services._replace(free_bytes=lambda: 0)
    client.publish(Q)
    ready = []

    broker.queues.flush_now(lambda: ready.append(True))
    broker.settle()

    assert ready == [True]
    assert broker.queues.flushed_index == 0
