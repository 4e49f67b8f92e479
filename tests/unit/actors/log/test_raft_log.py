"""RaftLog: when it writes, what it waits for, and what happens when it cannot."""

import errno
from collections import deque
from typing import Any

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.brokers.by_hand import Json
from tests.helpers.clusters.by_hand import HandCluster, HandNode
from tests.helpers.disks.sync_place import sync_on_loop
from wakeq.actors.log import raft_log
from wakeq.actors.log.raft_log import GiveUp
from wakeq.actors.log.writer import Cut, Roll
from wakeq.actors.mail import Applied, Pressure, Propose, Throttle
from wakeq.actors.runtime import Process
from wakeq.protocol.errors import SyncFailed
from wakeq.protocol.log.entries import Delivered, Draft, Expired, Noop, Publish, PurgeQueue, SetAside
from wakeq.protocol.log.reader import decode_entry
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.leases.audience import NEVER
from wakeq.protocol.queue.outcomes import Refusal

Q = "q"


def pub(name: str = Q) -> Json:
    return {"cmd": "PUB", "qname": name, "message": "m"}


def test_proposals_during_a_sync_share_the_next_sync(broker: Broker) -> None:
    clients = [broker.client() for _ in range(20)]
    broker.log_disk.held = True
    clients[0].send(pub())
    broker.settle()
    for client in clients[1:]:
        client.send(pub())
    broker.settle()
    syncs = broker.raft_log.writer.syncs

    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert [client.words() for client in clients] == [["ok"]] * 20
    assert broker.raft_log.writer.syncs - syncs == 2


def test_proposals_of_one_turn_are_one_write(broker: Broker) -> None:
    clients = [broker.client() for _ in range(20)]
    clients[0].publish(Q)
    clients[0].publish("other")
    syncs = broker.raft_log.writer.syncs

    for client in clients:
        client.send(pub(), pub("other"))
    broker.settle()

    assert broker.raft_log.writer.syncs - syncs == 1


def test_proposals_that_waited_for_the_store_are_one_write(broker: Broker) -> None:
    clients = [broker.client() for _ in range(20)]
    broker.raft_log.tell(Throttle(True))
    for client in clients:
        client.send(pub())
    broker.settle()
    syncs = broker.raft_log.writer.syncs

    broker.raft_log.tell(Throttle(False))
    broker.settle()

    assert [client.words() for client in clients] == [["ok"]] * 20
    assert broker.raft_log.writer.syncs - syncs == 1


def test_entries_of_queues_share_the_write_of_what_was_buffered_during_a_write(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync_on_loop(monkeypatch, lambda: False)
    client.publish(Q)
    syncs = broker.raft_log.writer.syncs
    broker.log_disk.held = True
    client.send(pub())
    broker.settle()
    broker.raft_log.tell(Propose([Proposal(Publish("other", [Draft(b"buffered")]))]))
    broker.settle()
    client.send(pub())
    broker.settle()

    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert client.words() == ["ok", "ok"]
    assert broker.raft_log.writer.syncs - syncs == 2


def test_delivery_is_written_after_20_ms_if_nothing_else_is(broker: Broker, client: Client) -> None:
    client.publish(Q)
    syncs = broker.raft_log.writer.syncs
    client.fetch(Q)

    broker.advance(0.019)
    before = broker.raft_log.writer.syncs
    broker.advance(0.002)

    assert before == syncs
    assert broker.raft_log.writer.syncs == syncs + 1
    assert client.figures(Q)["delivered"] == 1


def test_delivery_stands_in_the_log_before_an_entry_that_is_proposed_by_mail(broker: Broker, client: Client) -> None:
    client.publish(Q)
    client.fetch(Q)

    broker.raft_log.tell(Propose([Proposal(PurgeQueue(Q))]))
    broker.settle()

    payloads = [payload for _, _, payload in broker.files.log.entries(1, broker.raft_log.core.log.last_index)]
    assert [type(decode_entry(payload)[0]) for payload in payloads[-2:]] == [Delivered, PurgeQueue]


def test_delivery_rides_with_the_next_entry(broker: Broker, client: Client) -> None:
    client.publish(Q)
    syncs = broker.raft_log.writer.syncs
    client.fetch(Q)

    client.publish("other")
    broker.advance(0.1)

    assert broker.raft_log.writer.syncs == syncs + 1
    assert client.figures(Q)["delivered"] == 1


@pytest.mark.parametrize("on_loop", [False, True])
def test_failed_sync_ends_the_process_and_no_answer_leaves(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, on_loop: bool
) -> None:
    def fail(*_: object) -> None:
        raise SyncFailed("raft.log: sync failed: Input/output error")

    monkeypatch.setattr(broker.files.log, "write", fail)
    sync_on_loop(monkeypatch, lambda: on_loop)
    broker.may_fail = True

    client.send(pub())
    replies = client.take()

    assert replies == []
    assert [type(error) for error in broker.failures] == [SyncFailed]
    assert not broker.raft_log.alive


def test_error_of_the_disk_is_a_failed_sync_whatever_it_is_called(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.pwritev", fail)
    broker.may_fail = True

    client.send(pub())

    assert client.take() == []
    assert [type(error) for error in broker.failures] == [SyncFailed]


def test_publishes_under_pressure_are_refused_and_acknowledgements_are_not(broker: Broker, client: Client) -> None:
    uids = [client.publish(Q) for _ in range(2)]
    client.fetch(Q)
    broker.raft_log.tell(Pressure(Refusal("DISK_FULL", "no room")))

    refused = [client.call("PUB", Q, message="m"), client.call("CREATE", "new")]
    acked = client.call("ACK", Q, uid=uids[0])
    nacked = client.call("NACK", Q, uid=client.fetch(Q)["uid"])
    broker.raft_log.tell(Pressure(None))

    assert [(reply["cmd"], reply["err"], reply["detail"]) for reply in refused] == [("nok", "DISK_FULL", "no room")] * 2
    assert (acked["cmd"], nacked["cmd"]) == ("okack", "oknack")
    assert client.publish(Q)


@pytest.mark.parametrize("many", [False, True])
def test_messages_of_a_refused_acknowledgement_are_not_stuck(broker: Broker, client: Client, many: bool) -> None:
    uid = client.publish(Q, timeout=5)
    client.fetch(Q)
    broker.raft_log.tell(Pressure(Refusal("DISK_FULL", "no room")))

    which = {"uids": [uid]} if many else {"uid": uid}
    reply = client.call("ACK", Q, **which, publish=[{"qname": "b", "message": "m"}])
    broker.advance(5)

    assert reply["err"] == "DISK_FULL"
    assert client.fetch(Q)["uid"] == uid
    broker.check(Q)


def test_dead_letters_are_written_under_pressure(broker: Broker, client: Client) -> None:
    client.call("CREATE", Q, max_deliveries=1)
    client.publish(Q)
    uid = client.fetch(Q)["uid"]
    broker.raft_log.tell(Pressure(Refusal("DISK_FULL", "no room")))

    client.call("NACK", Q, uid=uid)

    assert client.fetch("q.dead")


def test_proposals_wait_in_their_order_while_the_store_is_behind(broker: Broker, client: Client) -> None:
    broker.raft_log.tell(Throttle(True))
    client.send({"cmd": "PUB", "qname": Q, "message": "1"}, {"cmd": "PUB", "qname": Q, "message": "2"})
    waiting = client.take()

    broker.raft_log.tell(Throttle(False))

    assert waiting == []
    assert client.words() == ["ok", "ok"]
    assert [client.fetch(Q)["msg"] for _ in range(2)] == ["1", "2"]


def test_proposal_that_has_waited_for_the_store_waits_until_it_is_committed(broker: Broker, client: Client) -> None:
    log = broker.raft_log
    log.tell(Throttle(True))
    client.send(pub())
    broker.settle()
    since_ms = log.waits_since_ms()
    broker.advance(0.5)
    broker.log_disk.held = True

    log.tell(Throttle(False))
    broker.settle()
    in_the_log = log.waits_since_ms()
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert in_the_log == since_ms < broker.now_ms()
    assert log.waits_since_ms() == NEVER


def test_delivery_that_is_collected_and_in_no_write_yet_has_waited_since_it_left(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync_on_loop(monkeypatch, lambda: False)
    monkeypatch.setattr(raft_log, "WRITE_MESSAGES_MAX", 1)
    for name in "ab":
        client.publish(name)
    broker.advance(0.1)
    broker.log_disk.held = True
    broker.client().send(pub("other"))
    broker.settle()
    since_ms = broker.now_ms()
    for name in "ab":
        client.fetch(name)
    for _ in range(2):
        broker.advance(0.05)
        broker.log_disk.complete(1)
        broker.settle()

    waits_since_ms = broker.raft_log.waits_since_ms()
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert waits_since_ms == since_ms
    assert broker.raft_log.waits_since_ms() == NEVER


def test_skip_of_an_entry_does_not_wait_for_the_store_that_needs_it(broker: Broker, client: Client) -> None:
    broker.raft_log.tell(Throttle(True))
    client.send(pub())
    broker.settle()
    before = broker.raft_log.core.committed

    broker.raft_log.tell(Propose([Proposal(SetAside(Q, 10_000, "it crashes its queue"), None)]))

    assert client.words() == []
    assert broker.raft_log.core.committed - before == 1


def test_proposals_go_on_with_the_news_that_entries_were_applied(
    cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log was cut meanwhile, so the peers are not too far behind any more; nobody waits for the next tick."""
    client = leader.client()
    client.publish(Q)
    cluster.advance(0.2)
    with monkeypatch.context() as patch:
        patch.setattr(raft_log, "UNCOMMITTED_BYTES_MAX", -1)
        cluster.advance(0.1)
        client.send(pub())
        cluster.settle()
        waiting = client.take()

    leader.raft_log.tell(Applied(leader.raft_log.core.applied_index))
    cluster.settle()

    assert waiting == []
    assert client.words() == ["ok"]


# --- a queue that cannot make its entries ----------------------------------------------------------------------------


class Failing(Process):
    """A queue that fails when the log asks it for its entries, or has them refused."""

    def on_receive(self, message: Any) -> None:
        raise AssertionError(f"{message} was told")

    def put_entries(self, items: list[Proposal], behind: list[Proposal]) -> None:
        items.append(Proposal(Publish(Q, [Draft(b"half")])))
        behind.append(Proposal(Publish(Q, [Draft(b"half")])))
        raise ZeroDivisionError("no entry can be made of this")

    def refuse_filed(self, refusal: Refusal) -> None:
        raise ZeroDivisionError("nobody can be refused")


def spoil(broker: Broker, name: str) -> None:
    """Let no entry be made of the last publishes that wait for the log: one more message than publishers."""
    outgoing = broker.queue(name).outgoing
    assert outgoing is not None
    outgoing[-1].entry.drafts.append(Draft(b"of nobody"))


def test_queue_that_cannot_make_its_entries_ends_alone_and_none_of_them_is_in_the_log(broker: Broker) -> None:
    client = broker.client()
    client.publish("good")
    failing = broker.runtime.spawn(Failing)
    before = broker.raft_log.core.log.last_index

    broker.raft_log.enlist(failing)
    client.send(pub("good"))
    broker.settle()

    assert client.words() == ["ok"]
    assert (failing.alive, broker.raft_log.alive) == (False, True)
    assert broker.raft_log.core.log.last_index == before + 1


def test_queue_that_cannot_be_refused_ends_alone(cluster: HandCluster, leader: HandNode) -> None:
    follower = cluster.others(leader)[0]
    failing = follower.runtime.spawn(Failing)

    follower.raft_log.enlist(failing)
    cluster.settle()

    assert (failing.alive, follower.raft_log.alive) == (False, True)


def test_commands_that_no_entry_can_be_made_of_are_refused_and_all_others_are_done(broker: Broker) -> None:
    spoiling, several, other = broker.client(), broker.client(), broker.client()
    for name in (Q, "good"):
        other.publish(name)
    broker.log_disk.held = True
    other.send(pub("good"))
    broker.settle()
    several.send({"cmd": "PUB", "qname": Q, "messages": ["1", "2"]})
    broker.settle()
    spoiling.send(pub())
    broker.settle()
    other.send(pub("good"))
    broker.settle()
    spoil(broker, Q)

    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert [reply.get("err") for reply in spoiling.take()] == ["BUSY"]
    assert (several.words(), other.words()) == (["ok"], ["ok", "ok"])
    assert [other.figures(name)["ready"] for name in (Q, "good")] == [3, 3]
    broker.check(Q)


def test_deliveries_of_a_queue_that_cannot_make_its_entries_are_in_the_log(broker: Broker) -> None:
    spoiling, worker = broker.client(), broker.client()
    worker.publish(Q)
    broker.log_disk.held = True
    spoiling.send(pub("other"))
    broker.settle()
    assert worker.fetch(Q)["msg"] == "hi"
    spoiling.send(pub())
    broker.settle()
    spoil(broker, Q)

    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert spoiling.words() == ["ok", "nok"]
    assert worker.finds_nothing(Q)
    assert broker.queue(Q).ledger.deliveries.leased == 1


def test_segment_is_sealed_although_an_older_one_was_being_removed(broker: Broker, client: Client) -> None:
    while not broker.files.log.roll_due:
        client.publish(Q, "m" * 100_000)
    broker.log_disk.held = True
    broker.raft_log.tell(Cut(0))
    broker.raft_log.tell(Roll(broker.queues.applied[0]))
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert not broker.files.log.roll_due


def test_command_of_this_term_is_not_given_up_with_a_former_term(broker: Broker, client: Client) -> None:
    client.publish(Q)
    broker.log_disk.held = True
    client.send(pub())
    broker.settle()

    broker.raft_log.tell(GiveUp(broker.raft_log.core.term - 1))
    meanwhile = client.take()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert (meanwhile, client.words()) == ([], ["ok"])


# --- how much one write holds ----------------------------------------------------------------------------------------


def publishes(*sizes: tuple[int, int]) -> deque[Proposal]:
    """Return publishes of so many messages of so many bytes."""
    return deque(Proposal(Publish(Q, [Draft(bytes(size))] * count)) for count, size in sizes)


@pytest.mark.parametrize(
    ("collected", "taken"),
    [
        (publishes(), 0),
        (publishes((1, 1), (1, 1)), 2),
        (publishes((raft_log.WRITE_MESSAGES_MAX + 1, 0), (1, 0)), 1),
        (publishes((raft_log.WRITE_MESSAGES_MAX - 1, 0), (2, 0), (1, 0)), 2),
        (publishes((1, raft_log.WRITE_BYTES_MAX), (1, 0)), 1),
        (publishes((1, raft_log.WRITE_BYTES_MAX - 1), (1, 1), (1, 0)), 2),
        (deque([Proposal(Expired(Q, 1, list(range(raft_log.WRITE_MESSAGES_MAX)))), Proposal(Noop())]), 1),
    ],
)
def test_write_takes_entries_up_to_its_bounds_and_at_least_one(collected: deque[Proposal], taken: int) -> None:
    before = list(collected)

    write = raft_log.take_one_write(collected)

    assert write == before[:taken]
    assert list(collected) == before[taken:]


@pytest.mark.parametrize("draft", [Draft(b"", priority=1 << 63), Draft(bytes(2_000))], ids=["number", "size"])
def test_draft_that_cannot_be_encoded_is_left_out_alone(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, draft: Draft
) -> None:
    monkeypatch.setattr(raft_log, "PAYLOAD_BYTES_MAX", 1_000)
    drafts = [Draft(b"before"), draft, Draft(b"behind")]

    broker.raft_log.tell(Propose([Proposal(Publish(Q, [each]), None) for each in drafts]))
    broker.settle()

    assert [client.fetch(Q)["msg"] for _ in range(2)] == ["before", "behind"]
    assert client.finds_nothing(Q)


def test_answered_commands_survive_a_crash(broker: Broker, client: Client) -> None:
    uids = [client.publish(Q, str(i), priority=-i) for i in range(5)]
    client.call("ACK", Q, uid=uids[4])

    broker.crash_and_restart()
    client = broker.client()

    assert [client.fetch(Q)["msg"] for _ in range(4)] == ["3", "2", "1", "0"]
    assert client.finds_nothing(Q)
    assert broker.raft_log.core.term == 2
