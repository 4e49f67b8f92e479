"""Assembly: it restores from the files the state that was there, whatever clocks and queues did meanwhile."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.brokers.broker import Broker
from tests.helpers.clusters.by_hand import HandCluster
from tests.helpers.loops.recorder import serve_one
from wakeq.actors.log.writer import LogServices
from wakeq.actors.mail import Committed, Tick
from wakeq.actors.queues.supervisor import Queues
from wakeq.actors.runtime.clock import elapsed_ms
from wakeq.node.assembly import Environment
from wakeq.protocol.errors import WrongVersion
from wakeq.protocol.log.entries import Publish, SetAside
from wakeq.protocol.queue.ledger.ledger import Ledger
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.raft import membership
from wakeq.protocol.raft.membership import LEVEL
from wakeq.storage.state.checkpoint import load_skipped

Q = "q"
POISON = b"poison"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let every ledger fail on one body; the list records the moments at which one did."""
    met: list[int] = []
    publish = Ledger.publish

    def fragile(self: Ledger, entry: Publish, at_ms: int, **about: Any) -> Any:
        if any(draft.body == POISON for draft in entry.drafts):
            met.append(at_ms)
            raise ZeroDivisionError("poisoned")
        return publish(self, entry, at_ms, **about)

    monkeypatch.setattr(Ledger, "publish", fragile)
    return met


def test_skipped_entry_is_not_applied_after_a_restart_and_keeps_its_reason(broker: Broker, poisoned: list[int]) -> None:
    client = broker.client()
    client.publish(Q, "before")
    assert client.call("PUB", Q, message="poison")["err"] == "SET_ASIDE"
    times_met = len(poisoned)

    broker.crash_and_restart()
    broker.flush()

    assert len(poisoned) == times_met
    assert broker.client().fetch(Q)["msg"] == "before"
    with broker.files.store.read() as view:
        assert any(b"ZeroDivisionError: poisoned" in reason for reason in load_skipped(view).values())


def test_flush_during_replay_records_a_skipped_entry_before_its_mark(
    broker: Broker, poisoned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long start flushes on its way; no later start may take the skipped entry for one that was applied before."""
    assert broker.client().call("PUB", Q, message="poison")["err"] == "SET_ASIDE"
    monkeypatch.setattr("wakeq.node.assembly.REPLAY_BATCH", 1)
    receive, cuts = Queues.on_receive, []

    def receive_and_flush(queues: Queues, message: Any) -> None:
        receive(queues, message)
        if not isinstance(message, Committed):
            return
        if not cuts and any(isinstance(item.entry, SetAside) for item in message.items):
            with broker.files.store.read() as view:
                cuts.append(load_skipped(view))
        queues.tell(Tick("flush"))

    monkeypatch.setattr(Queues, "on_receive", receive_and_flush)
    broker.crash_and_restart()

    assert [len(asides) for asides in cuts] == [1]
    assert broker.client().publish(Q)


def test_start_completes_although_an_ack_waits_for_a_crashing_queue(broker: Broker, poisoned: list[int]) -> None:
    """The node died after the crash, before the leader could tell all nodes to skip the entry."""
    client, poisoner = broker.client(), broker.client()
    client.publish("b", "first")
    uid = client.publish(Q)
    client.fetch(Q)
    # The queue's rebuild, and its second crash, have to wait.
    broker.state_disk.held = True
    poisoner.send({"cmd": "PUB", "qname": "b", "message": "poison"})
    broker.settle()
    client.send({"cmd": "ACK", "qname": Q, "uid": uid, "publish": [{"qname": "b", "message": "m"}]})
    broker.settle()
    client.send({"cmd": "PUB", "qname": "other", "message": "behind"})
    broker.settle()

    broker.crash_and_restart()

    client = broker.client()
    assert [client.fetch("b")["msg"] for _ in range(2)] == ["first", "m"]
    assert client.finds_nothing(Q)
    assert client.fetch("other")["msg"] == "behind"


def test_clock_continues_after_the_last_entry_when_the_wall_clock_was_set_back(broker: Broker) -> None:
    broker.client().publish(Q)
    before_ms = broker.now_ms()

    broker.time.step_ms -= 3_600_000
    broker.crash_and_restart()

    assert broker.now_ms() >= before_ms


def test_replay_of_more_than_one_batch_applies_every_entry(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeq.node.assembly.REPLAY_BATCH", 7)
    client = broker.client()
    for number in range(20):
        client.publish(Q, str(number))

    broker.crash_and_restart()

    client = broker.client()
    assert [client.fetch(Q)["msg"] for _ in range(20)] == [str(number) for number in range(20)]


def test_end_of_an_essential_actor_is_reported(broker: Broker) -> None:
    broker.may_fail = True

    broker.timers.stop()
    broker.settle()

    assert [str(error) for error in broker.failures] == ["the process of the timers ended"]


def test_promises_between_nodes_use_a_clock_that_counts_suspension() -> None:
    assert Environment.__dataclass_fields__["monotonic_ms"].default is elapsed_ms
    # Without a default the log cannot measure by another clock than the core.
    assert "monotonic_ms" not in LogServices._field_defaults


def test_node_serves_as_soon_as_lead_has_returned(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the first clients would be refused, and MoniQue's ports would stay closed for a second."""
    seen: list[Refusal | None] = []

    def drive(steps: Iterator[None]) -> None:
        for _ in steps:
            if broker.runtime._ready:
                serve_one(broker.runtime)
            else:
                broker.settle()
        seen.append(broker.assembly.raft_log.refusal())

    monkeypatch.setattr(broker, "_drive", drive)
    broker.crash_and_restart()

    assert len(seen) == 2
    assert seen[1] is None


def test_start_on_the_log_of_a_later_level_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = HandCluster(tmp_path)
    cluster.start()
    node = cluster.nodes[2]
    node.kill()
    monkeypatch.setattr(membership, "LEVEL", LEVEL - 1)

    with pytest.raises(WrongVersion, match=f"works at level {LEVEL}, this release knows levels up to {LEVEL - 1}"):
        node.start()

    node.is_up = False
    node.opened.close()
    cluster.close()
