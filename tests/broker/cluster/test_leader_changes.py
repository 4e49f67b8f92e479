"""What a change of leaders must not bring to a stand, nor mix up: each of these once did."""

from collections import deque
from typing import Any

import pytest

from tests.helpers.brokers.by_hand import HandDisk
from tests.helpers.clusters.by_hand import HandCluster, HandNode, Operator, leads_again, size_of, successor
from wakeq.actors.log.peer import Outgoing, Peer, ToSend
from wakeq.actors.log.raft_log import BEAT
from wakeq.actors.mail import HandOver, LogItem, OutOfRoom, Propose, StateHasSkippedEntry
from wakeq.actors.queue.process import QueueProcess
from wakeq.actors.sessions.operator_mail import Administer
from wakeq.node.assembly import RestartWithNewState
from wakeq.protocol.log.entries import Draft, Entry, Publish
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.ledger.ledger import Ledger
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.raft.messages import Append
from wakeq.protocol.wire.peer.frames import Entries, Frame

Q = "q"
HOUR_MS = 3_600_000


def test_full_segment_does_not_keep_a_new_leader_from_committing(cluster: HandCluster, leader: HandNode) -> None:
    client = leader.client()
    client.publish(Q)
    cluster.advance(0.2)
    for other in cluster.others(leader):
        other.opened.log.segment_bytes_max = 1  # it is to be sealed with the next cut of the state
    client.publish(Q)  # written everywhere; that it is committed only its leader knows

    cluster.isolate(leader)
    new = successor(cluster, leader)

    assert size_of(new) == 2
    cluster.advance(2.0)
    assert [other.opened.log.sealed_bytes > 0 for other in cluster.others(leader)] == [True, True]


def test_append_of_a_former_term_is_not_sent_with_the_entries_that_replaced_its_own(
    cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The append may have waited for a slow connection while this node lost the lead and its entries."""
    leader.client().publish(Q)
    core, other = leader.raft_log.core, cluster.others(leader)[0]
    peer = leader.raft_log.table.peers[other.number]
    assert isinstance(peer, Peer)
    left: list[Frame] = []
    monkeypatch.setattr(peer._door, "send", left.extend)
    last, term = core.log.last_index, core.term
    header = (core.me.node_id, other.number, core.me.disk_id, core.me.incarnation)

    for of_term in (term - 1, term):
        peer.tell(Outgoing([ToSend(Append(*header, of_term, last - 1, of_term, last, ((last, of_term),), 0))]))
    cluster.settle()

    assert [frame.append.term for frame in left if isinstance(frame, Entries)] == [term]


def test_entry_that_no_queue_can_apply_is_skipped_by_the_next_leader(
    cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader.client().publish(Q)

    set_aside_by_a_successor(cluster, leader, monkeypatch)
    new = successor(cluster, leader)

    assert new.client().call("PUB", Q, message="m")["cmd"] == "ok"
    assert size_of(new) == 2


def set_aside_by_a_successor(cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lose the leader while an entry that crashes every queue is committed and not set aside."""
    poison(monkeypatch)
    assert isinstance(leader.assembly.state_disk, HandDisk)
    leader.assembly.state_disk.held = True  # so it does not come to set the entry aside itself
    leader.client().ask({"cmd": "PUB", "qname": Q, "message": "poison"})
    cluster.advance(0.2)  # the others hear that it is committed, and halt
    cluster.isolate(leader)
    successor(cluster, leader)
    cluster.advance(5.0)  # each lets the other one lead, for whom it may be no harm
    leader.assembly.state_disk.held = False
    leader.assembly.state_disk.complete()
    cluster.advance(0.2)


def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an entry crash its queue on every node."""
    publish = Ledger.publish

    def publish_or_crash(ledger: Ledger, entry: Publish, at_ms: int) -> Any:
        if is_poison(entry):
            raise ZeroDivisionError("poisoned")
        return publish(ledger, entry, at_ms)

    monkeypatch.setattr(Ledger, "publish", publish_or_crash)


class PoisonOfOne:
    """An entry that crashes the queue of one node only, as something would that only a leader has."""

    def __init__(self, node: HandNode, monkeypatch: pytest.MonkeyPatch) -> None:
        apply = QueueProcess.apply

        def apply_or_crash(process: QueueProcess, items: list[LogItem]) -> None:
            if process.runtime is node.runtime and any(is_poison(item.entry) for item in items):
                process.applying = next(item.index for item in items if is_poison(item.entry))
                raise ZeroDivisionError("poisoned")
            apply(process, items)

        monkeypatch.setattr(QueueProcess, "apply", apply_or_crash)


def is_poison(entry: Entry) -> bool:
    return isinstance(entry, Publish) and entry.drafts[0].body == b"poison"


def begin_again(cluster: HandCluster, nodes: list[HandNode]) -> None:
    """Do what a node does by itself when its state is replaced."""
    for node in nodes:
        assert [type(failure) for failure in node.failures] == [RestartWithNewState]
        node.failures.clear()
        node.kill()
    for node in nodes:
        cluster.bring_up(node)


def test_entry_that_crashed_the_queue_of_the_leader_is_skipped_where_it_was_stored_already(
    cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = leader.client()
    client.publish(Q)
    cluster.advance(2.0)
    PoisonOfOne(leader, monkeypatch)
    assert isinstance(leader.assembly.state_disk, HandDisk)
    leader.assembly.state_disk.held = True  # it is slow to crash for the third time
    asked = client.ask({"cmd": "PUB", "qname": Q, "message": "poison"})
    cluster.advance(2.0)
    others = cluster.others(leader)
    assert [size_of(other) for other in others] == [2, 2], "the others have it, and have written it down"

    leader.assembly.state_disk.held = False
    leader.assembly.state_disk.complete()
    with pytest.raises(RestartWithNewState):
        cluster.settle()
    begin_again(cluster, others)
    cluster.until(lambda: cluster.leader() is not None, "a node leads")
    found = cluster.leader()
    assert found is not None
    found.client().publish(Q)
    cluster.advance(1.0)

    assert asked == []
    assert [size_of(node) for node in cluster.nodes] == [2, 2, 2]


@pytest.mark.parametrize("is_second", [False, True])
def test_answered_entry_that_crashes_a_queue_of_one_node_only_is_kept(
    cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch, is_second: bool
) -> None:
    halted, other = cluster.others(leader)
    leader.client().publish(Q)
    if is_second:  # of an earlier entry both have let the other one try
        with pytest.MonkeyPatch.context() as patch:
            set_aside_by_a_successor(cluster, leader, patch)
        cluster.heal()
        cluster.until(lambda: leads_again(cluster, leader), "the first one leads again")
    PoisonOfOne(halted, monkeypatch)
    answered = leader.client().call("PUB", Q, message="poison")
    cluster.advance(0.3)

    index = leader.raft_log.core.committed
    leader.kill()
    cluster.until(lambda: cluster.leader() is other, "the other one leads")

    assert index in halted.raft_log.leadership.yielded, "it was elected, and did not set the entry aside"
    messages = other.client().call("FET", Q, count=10)["messages"]
    assert messages[-1]["uid"] == answered["uid"]


@pytest.mark.parametrize("is_follow_up", [False, True])
def test_node_that_alone_cannot_apply_an_entry_ends_with_the_reason(
    cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch, is_follow_up: bool
) -> None:
    halted = cluster.others(leader)[0]
    PoisonOfOne(halted, monkeypatch)
    client = leader.client()
    client.publish("done")
    held = client.fetch("done")
    cluster.advance(3.0)  # nothing is left to be done
    if is_follow_up:
        client.call("ACK", "done", uid=held["uid"], publish=[{"qname": Q, "message": "poison"}])
    else:
        client.call("PUB", Q, message="poison")

    cluster.advance(6.0)
    cluster.isolate(halted)
    cluster.advance(6.0)  # in which no leader could have set it aside
    cluster.heal()
    cluster.advance(6.0)
    with pytest.raises(RuntimeError, match=r"crashes on entry .* on this node only: ZeroDivisionError: poisoned"):
        cluster.advance(15.0)

    assert size_of(leader) == 1


def test_skipped_entry_is_left_out_where_it_and_its_skip_are_applied_together(
    cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader.client().publish(Q)
    cluster.advance(2.0)
    away = cluster.others(leader)[0]
    away.kill()
    PoisonOfOne(leader, monkeypatch)

    refused = [leader.client().call("PUB", name, message="poison")["err"] for name in (Q, "new")]
    for name in (Q, "new"):
        leader.client().publish(name)
    cluster.bring_up(away)
    cluster.advance(2.0)

    assert refused == ["SET_ASIDE", "SET_ASIDE"]
    assert [size_of(node) for node in cluster.nodes] == [2, 2, 2]
    ledgers = [node.queues.processes.by_name["new"].ledger for node in cluster.nodes]
    assert [(ledger.id, ledger.columns.living) for ledger in ledgers] == [(ledgers[0].id, 1)] * 3
    assert ledgers[0].id > 0


def test_rebuild_goes_on_when_its_entry_is_skipped_meanwhile(
    cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader.client().publish(Q)
    cluster.advance(2.0)
    poison(monkeypatch)
    asks = leader.client()
    disks = [node.assembly.state_disk for node in (cluster.others(leader)[0], leader)]
    for disk in disks:
        assert isinstance(disk, HandDisk)
        disk.held = True

    asks.ask({"cmd": "PUB", "qname": Q, "message": "poison"})
    cluster.advance(0.1)
    disks[0].complete(1)  # there the queue crashes for the second time
    cluster.settle()
    for disk in reversed(disks):  # and for the third when its leader has set the entry aside
        disk.held = False
        disk.complete()
        cluster.advance(0.2)
    leader.client().publish(Q)
    cluster.advance(2.0)

    assert [size_of(node) for node in cluster.nodes] == [2, 2, 2]


def test_clock_does_not_go_back_to_that_of_a_node_that_has_caught_up(cluster: HandCluster, leader: HandNode) -> None:
    away = cluster.others(leader)[1]
    away.kill()
    leader.clock.reach(leader.now_ms() + HOUR_MS)  # as if it had been started with a wrong one
    leader.client().publish(Q)
    stamped_ms = leader.now_ms()
    cluster.advance(0.5)
    cluster.bring_up(away)
    cluster.advance(0.5)

    operator = leader.runtime.spawn(Operator)
    leader.raft_log.tell(Administer(operator.asker, "transfer", away.number))
    cluster.until(lambda: cluster.leader(cluster.others(leader)) is away, "it leads")

    assert away.now_ms() >= stamped_ms


def test_delay_is_none_the_shorter_while_the_clock_leans_forward(cluster: HandCluster, leader: HandNode) -> None:
    """The clock leans forward after every change of leaders, for a follower hears the time late."""
    client = leader.client()
    for queue in ("returned", "done"):
        client.publish(queue)
    cluster.time.step_ms = HOUR_MS
    cluster.advance(0.5)

    client.publish("published", delay=10)
    held = client.fetch("returned")
    client.call("NACK", "returned", uid=held["uid"], delay=10)
    held = client.fetch("done")
    follow_up = [{"qname": "next", "message": "m", "delay": 10}]
    client.call("ACK", "done", uid=held["uid"], publish=follow_up)
    client.call("STASH", "staged", stash="s", messages=[{"message": "m", "delay": 10}])
    assert client.call("UNSTASH", "staged", writer="w", epoch=1, stashes=[["s", 1]])["rows"] == 1

    delayed = "published", "returned", "next", "staged"
    cluster.advance(9.995)
    assert [queue for queue in delayed if not client.finds_nothing(queue)] == []
    cluster.advance(0.03)
    assert [queue for queue in delayed if client.finds_nothing(queue)] == []


@pytest.mark.parametrize(
    "orders",
    [[HandOver()], [HandOver()] * 2, [HandOver()] * 3, [OutOfRoom(True), BEAT]],
    ids=["once", "twice", "three times", "for want of room"],
)
def test_delivery_in_the_turn_before_a_transfer_is_known_to_the_new_leader(
    cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch, orders: list[object]
) -> None:
    client, log = leader.client(), leader.raft_log
    client.publish(Q)
    may_serve, left = leader.queues.services.refusal, deque(orders)

    def asked() -> Refusal | None:
        refusal = may_serve()
        while left:
            log.tell(left.popleft())  # it stands in the mail before what the queue is about to propose
        return refusal

    queue = leader.queues.processes.by_name[Q]
    monkeypatch.setattr(queue, "services", queue.services._replace(refusal=asked))

    delivered = client.fetch(Q)
    new = successor(cluster, leader)

    assert delivered["msg"] == "hi"
    assert new.client().finds_nothing(Q)


def test_delivery_of_a_leader_that_is_being_removed_is_known_to_its_successor(
    cluster: HandCluster, leader: HandNode
) -> None:
    """The news of the committed removal may stand in the leader's mail before the latest delivery of a queue."""
    client, operator = leader.client(), leader.runtime.spawn(Operator)
    client.publish(Q)
    cluster.advance(0.5)

    def deliver(*, to_leader: bool) -> None:
        for packet in [packet for packet in cluster.flying if (packet[0].sender is leader) is to_leader]:
            cluster.flying.remove(packet)
            door, data = packet
            door.take(data)

    leader.raft_log.tell(Administer(operator.asker, "remove", leader.number))
    leader.runtime.run_until_idle()
    deliver(to_leader=False)
    for other in cluster.others(leader):
        other.runtime.run_until_idle()
    client.send({"cmd": "FET", "qname": Q})
    deliver(to_leader=True)
    new = successor(cluster, leader)

    assert len(operator.heard) == 1
    assert (client.words(), new.client().call("FET", Q)["cmd"]) in [(["msg"], "nomsg"), (["nok"], "msg")]


def test_removed_leader_shows_the_role_removed(cluster: HandCluster, leader: HandNode) -> None:
    operator = leader.runtime.spawn(Operator)

    leader.raft_log.tell(Administer(operator.asker, "remove", leader.number))
    cluster.advance(1.0)
    successor(cluster, leader)
    leader.raft_log.tell(Administer(operator.asker, "status"))
    cluster.settle()

    assert "'role': 'removed'" in str(operator.heard[-1])


def test_entries_skipped_while_a_slow_node_waits_for_verdicts_are_skipped_there_too(
    cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, slow = leader.client(), cluster.others(leader)[0]
    client.publish(Q)
    client.publish("other")
    held = client.fetch(Q)
    cluster.advance(2.0)
    poison(monkeypatch)
    assert isinstance(slow.assembly.state_disk, HandDisk)
    slow.assembly.state_disk.held = True  # its queue has crashed once, and waits to be made anew

    follow_ups = [{"qname": name, "message": body} for name, body in ((Q, "next"), ("other", "poison"))]
    publisher = leader.client()
    publisher.send({"cmd": "PUB", "qname": "other", "message": "poison"})
    client.send({"cmd": "ACK", "qname": Q, "uid": held["uid"], "publish": follow_ups})
    cluster.advance(0.5)
    slow.assembly.state_disk.held = False
    slow.assembly.state_disk.complete()
    cluster.advance(2.0)

    assert [reply["err"] for reply in (*publisher.take(), *client.take())] == ["SET_ASIDE"] * 2
    assert [list(node.queues.processes.by_name[Q].ledger.columns.living_numbers()) for node in cluster.nodes] == [
        [1]
    ] * 3


def test_node_that_rebuilds_its_state_still_finishes_the_write_before_a_truncation(
    cluster: HandCluster, leader: HandNode
) -> None:
    client = leader.client()
    client.publish(Q)
    cluster.cuts = {(leader.number, other.number) for other in cluster.others(leader)}  # it still hears them
    leader.log_disk.held = True
    client.send({"cmd": "PUB", "qname": Q, "message": "lost"})  # this is being written ...
    cluster.settle()
    leader.raft_log.tell(Propose([Proposal(Publish(Q, [Draft(b"lost")]), None)]))  # ... and this is still in memory
    cluster.settle()
    successor(cluster, leader)
    assert leader.raft_log.writer.behind, "to be taken back"
    assert leader.raft_log.writer.log.buffered_bytes, "what was not written yet"

    leader.raft_log.tell(StateHasSkippedEntry(1, 2))
    cluster.settle()
    leader.log_disk.held = False
    leader.log_disk.complete()
    with pytest.raises(RestartWithNewState):
        cluster.settle()
