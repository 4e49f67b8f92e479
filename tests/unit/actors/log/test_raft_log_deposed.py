"""RaftLog at a leader that others replace: who is answered what, which writes count, as of which moment it serves.

The others are played by hand: an Append says exactly what a later leader's log holds, entry by entry.
"""

from collections.abc import Sequence

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.clusters.by_hand import ELECTION_S, HandCluster, HandNode, Operator, leads_again, successor
from tests.helpers.disks.sync_place import sync_on_loop
from wakeq.actors.log import raft_log
from wakeq.actors.log.peer import FromPeer, Peer
from wakeq.actors.log.raft_log import UNKNOWN_AFTER_S, WRITE_MESSAGES_MAX, CaughtUp, GiveUp
from wakeq.actors.mail import HandOver, Propose, Throttle
from wakeq.actors.sessions.operator_mail import Administer
from wakeq.protocol.log.entries import Draft, Noop, Publish
from wakeq.protocol.log.records import encode_entry
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.raft.messages import Append, AppendAnswer
from wakeq.protocol.wire.peer.frames import Entries, Frame

Q = "q"


class Deposed:
    """A leader that is cut off, and what later leaders tell it.  `begin` is the first index that it has to itself."""

    def __init__(self, cluster: HandCluster, node: HandNode) -> None:
        self.cluster, self.node, self.log = cluster, node, node.raft_log
        self.term = self.log.core.term
        self.begin = self.log.core.log.last_index + 1
        self.said: list[Frame] = []  # by this node

    def publishes(self) -> Client:
        """Let a client publish; its entry is one of its own, and nobody else gets it."""
        client = self.node.client()
        assert client.ask({"cmd": "PUB", "qname": Q, "message": "m"}) == []
        return client

    def payload(self, index: int) -> bytes:
        """Return an entry as this node has it in memory, on its way to the others."""
        found = self.log.writer.payloads.get(index, index)
        assert found is not None
        return found[0]

    def hears(self, term: int, after: int, entries: Sequence[tuple[int, bytes]], commit: int) -> None:
        """Be told by the leader of a term what stands after an index: terms and bytes."""
        other = self.cluster.others(self.node)[term % 2]
        me = other.raft_log.core.me
        runs: list[tuple[int, int]] = []
        for index, (of_term, _) in enumerate(entries, after + 1):
            if not runs or runs[-1][1] != of_term:
                runs.append((index, of_term))
        previous = self.log.core.log.term_at(after)
        assert previous is not None
        header = (other.number, self.node.number, me.disk_id, me.incarnation, term)
        append = Append(*header, after, previous, after + len(entries), tuple(runs), commit)
        self.log.tell(FromPeer(other.number, [Entries(append, [payload for _, payload in entries])]))
        self.cluster.settle()

    def noop(self) -> bytes:
        return encode_entry(Noop(), self.node.now_ms())

    def listen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Hear what it says to the others from now on."""
        for peer in self.log.table.peers.values():
            assert isinstance(peer, Peer)
            monkeypatch.setattr(peer._door, "send", self.said.extend)

    @property
    def acknowledged(self) -> int:
        """Up to where it has said that its disk holds the log of the last leader."""
        answers = [said for said in self.said if isinstance(said, AppendAnswer) and said.rejected is None]
        return max((answer.match for answer in answers), default=0)


@pytest.fixture
def deposed(cluster: HandCluster, leader: HandNode) -> Deposed:
    leader.client().publish(Q)
    cluster.advance(0.2)
    cluster.isolate(leader)
    return Deposed(cluster, leader)


# Who is answered ------------------------------------------------------------------------------------------------------


def test_publish_whose_entry_was_dropped_and_brought_back_is_answered_ok(deposed: Deposed) -> None:
    client, at, term = deposed.publishes(), deposed.begin, deposed.term
    payload = deposed.payload(at)

    deposed.hears(term + 1, at - 1, [(term + 1, deposed.noop())], commit=at - 1)
    assert client.words() == []
    deposed.hears(term + 2, at - 1, [(term, payload), (term + 2, deposed.noop())], commit=at + 1)

    assert client.words() == ["ok"]


def test_asker_of_a_dropped_entry_is_not_answered_while_another_of_its_term_is_committed(deposed: Deposed) -> None:
    clients, at, term = [deposed.publishes() for _ in range(2)], deposed.begin, deposed.term
    payloads = [deposed.payload(at), deposed.payload(at + 1)]
    deposed.hears(term + 1, at - 1, [(term + 1, deposed.noop())], commit=at - 1)

    deposed.hears(term + 2, at - 1, [(term, payloads[0])], commit=at)
    assert [client.words() for client in clients] == [["ok"], []]
    deposed.hears(term + 2, at, [(term, payloads[1]), (term + 2, deposed.noop())], commit=at + 2)

    assert [client.words() for client in clients] == [[], ["ok"]]


def test_publish_of_a_dropped_entry_is_refused_once_a_later_term_is_committed(
    deposed: Deposed,
) -> None:
    deposed.node.log_disk.held = True  # so that both are committed together
    clients, at, term = [deposed.publishes() for _ in range(2)], deposed.begin, deposed.term

    deposed.hears(term + 1, at, [(term + 1, deposed.noop())], commit=at + 1)
    deposed.node.log_disk.held = False
    deposed.node.log_disk.complete()

    assert [[reply.get("err") for reply in client.take()] for client in clients] == [[None], ["NOT_LEADER"]]


def test_publish_of_a_dropped_entry_without_news_is_answered_unknown(deposed: Deposed) -> None:
    client, at, term = deposed.publishes(), deposed.begin, deposed.term
    deposed.hears(term + 1, at - 1, [(term + 1, deposed.noop())], commit=at - 1)

    deposed.cluster.advance(4 * ELECTION_S)

    assert [reply["err"] for reply in client.take()] == ["UNKNOWN"]


def test_asker_of_a_dropped_entry_is_not_given_up_with_askers_of_a_former_term(deposed: Deposed) -> None:
    client, at, term = deposed.publishes(), deposed.begin, deposed.term
    payload = deposed.payload(at)
    deposed.hears(term + 1, at - 1, [(term + 1, deposed.noop())], commit=at - 1)

    deposed.log.tell(GiveUp(term - 1))
    assert client.words() == []
    deposed.hears(term + 2, at - 1, [(term, payload), (term + 2, deposed.noop())], commit=at + 1)

    assert client.words() == ["ok"]


def test_asker_of_a_later_term_is_not_given_up_with_askers_of_the_lost_term(deposed: Deposed) -> None:
    """The node leads again by the time at which it gives up the askers of its earlier term."""
    cluster, node = deposed.cluster, deposed.node
    cluster.until(lambda: not deposed.log.core.leads, "it knows that it leads no longer")
    gives_up_s = cluster.time.monotonic_s() + UNKNOWN_AFTER_S
    cluster.heal()
    cluster.until(lambda: leads_again(cluster, node), "it leads again")
    cluster.isolate(node)
    client = deposed.publishes()
    assert cluster.time.monotonic_s() < gives_up_s

    cluster.advance(gives_up_s - cluster.time.monotonic_s() + 0.1)

    assert client.words() == []


def test_asker_that_was_answered_unknown_gets_no_second_answer(deposed: Deposed) -> None:
    operator, at, term = deposed.node.runtime.spawn(Operator), deposed.begin, deposed.term
    deposed.log.tell(Propose([Proposal(Publish(Q, [Draft(b"m")]), operator.asker)]))
    deposed.cluster.advance(4 * ELECTION_S)
    term_then = deposed.log.core.term

    deposed.hears(term_then + 1, at, [(term_then + 1, deposed.noop())], commit=at + 1)

    assert deposed.log.core.committed == at + 1
    assert term_then >= term
    assert len(operator.heard) == 1


def test_proposal_that_was_parked_when_leadership_was_lost_is_refused_and_not_written(deposed: Deposed) -> None:
    client = deposed.node.client()
    deposed.log.tell(Throttle(True))
    assert client.ask({"cmd": "PUB", "qname": Q, "message": "m"}) == []
    deposed.cluster.advance(1.5 * ELECTION_S)

    deposed.log.tell(Throttle(False))

    assert [reply["err"] for reply in client.take()] == ["NOT_LEADER"]
    assert deposed.log.core.log.last_index == deposed.begin - 1


def test_noop_of_a_lost_term_that_is_committed_later_makes_no_queue_lead(
    cluster: HandCluster, leader: HandNode
) -> None:
    leader.client().publish(Q)
    cluster.advance(0.2)
    node = cluster.others(leader)[0]
    node.log_disk.held = True
    cluster.isolate(leader)
    cluster.until(lambda: wins(node), "it is elected")
    cluster.isolate(node)
    deposed = Deposed(cluster, node)
    at = deposed.begin - 1
    assert node.raft_log.core.committed < at, "its own no-op is not on its disk"

    deposed.hears(deposed.term + 1, at, [(deposed.term + 1, deposed.noop())], commit=at + 1)
    node.log_disk.held = False
    node.log_disk.complete()
    cluster.settle()

    assert node.raft_log.core.committed == at + 1
    assert node.queues.processes.by_name[Q].leases is None


def wins(node: HandNode) -> bool:
    """Let its disk save a vote, but write no entry; return whether it leads."""
    if not node.raft_log.core.leads:
        node.log_disk.complete(1)
        node.network.settle()
    return node.raft_log.core.leads


# Which writes count ---------------------------------------------------------------------------------------------------


def test_write_of_entries_that_were_dropped_meanwhile_acknowledges_nothing(
    deposed: Deposed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One write is under way, another one still in memory, and the truncation has to wait behind both."""
    disk, at, term = deposed.node.log_disk, deposed.begin, deposed.term
    disk.held = True
    for _ in range(2):
        deposed.publishes()
    deposed.listen(monkeypatch)
    new = [(term + 1, deposed.noop())] * 2

    deposed.hears(term + 1, at - 1, new, commit=at - 1)
    steps = []
    while disk.waiting:
        steps.append((deposed.acknowledged >= at, deposed.node.opened.log.term_at(at + 1) == term + 1))
        disk.complete(1)
        deposed.cluster.settle()
    steps.append((deposed.acknowledged >= at, deposed.node.opened.log.term_at(at + 1) == term + 1))

    assert len(steps) >= 5, "a write, another one, the truncation, and what replaces both"
    assert all(is_written for is_acknowledged, is_written in steps if is_acknowledged)
    assert deposed.acknowledged == at + 1


def test_write_of_entries_that_waited_behind_a_truncation_and_were_dropped_too_acknowledges_nothing(
    deposed: Deposed, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, at, term = deposed.node.log_disk, deposed.begin, deposed.term
    disk.held = True
    deposed.publishes()
    deposed.listen(monkeypatch)

    deposed.hears(term + 1, at - 1, [(term + 1, deposed.noop())] * 3, commit=at - 1)
    deposed.hears(term + 2, at - 1, [(term + 2, deposed.noop())] * 3, commit=at - 1)
    while disk.waiting:
        is_written = deposed.node.opened.log.term_at(at) == term + 2 and not disk.waiting
        assert is_written or deposed.acknowledged < at
        disk.complete(1)
        deposed.cluster.settle()

    assert deposed.acknowledged == at + 2
    assert deposed.node.opened.log.runs[-1] == (at, term + 2)


def test_entry_that_a_majority_has_is_applied_only_once_the_own_disk_has_it_too(
    cluster: HandCluster, leader: HandNode
) -> None:
    leader.client().publish(Q)
    clients = [leader.client() for _ in range(2)]
    leader.log_disk.held = True
    for client in clients:  # the first is being written, the second's is still in memory
        assert client.ask({"cmd": "PUB", "qname": Q, "message": "m"}) == []
    cluster.advance(0.1)
    assert leader.raft_log.core.commit == leader.raft_log.core.log.last_index, "the others have both"

    leader.log_disk.complete(1)
    assert [client.words() for client in clients] == [["ok"], []]
    leader.log_disk.complete(1)
    assert [client.words() for client in clients] == [[], ["ok"]]


def test_payload_of_a_dropped_entry_is_replaced_after_a_truncation(deposed: Deposed) -> None:
    deposed.publishes()
    at, term = deposed.begin, deposed.term
    dropped = deposed.payload(at)

    deposed.hears(term + 1, at - 1, [(term + 1, deposed.noop())], commit=at - 1)

    assert deposed.payload(at) != dropped


# As of which moment ---------------------------------------------------------------------------------------------------


def test_serving_lease_is_asked_as_of_now_and_not_as_of_the_last_tick(cluster: HandCluster, leader: HandNode) -> None:
    leader.client().publish(Q)
    cluster.advance(0.2)
    log, term = leader.raft_log, leader.raft_log.core.term
    assert (log.refusal(), log.withdrawal(term)) == (None, None)

    cluster.time._passed_us += round(0.6 * ELECTION_S * 1_000_000)  # for everybody but this process

    refusals = log.refusal(), log.withdrawal(term)
    assert [refusal and refusal.code for refusal in refusals] == ["NO_QUORUM", "NO_QUORUM"]


def test_entries_are_not_taken_from_a_leader_while_the_state_store_is_behind(
    cluster: HandCluster, leader: HandNode
) -> None:
    follower = cluster.others(leader)[0]
    leader.client().publish(Q)
    cluster.advance(0.2)
    last = follower.raft_log.core.log.last_index

    follower.raft_log.tell(Throttle(True))
    leader.client().publish(Q)
    cluster.advance(0.3)
    held = follower.raft_log.core.log.last_index
    follower.raft_log.tell(Throttle(False))
    cluster.advance(0.5)

    assert held == last
    assert follower.raft_log.core.log.last_index == leader.raft_log.core.log.last_index


# --- leadership is given away ----------------------------------------------------------------------------------------


def test_deliveries_beyond_one_write_are_in_the_log_before_another_node_leads(
    cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = leader.client()
    for name in "ab":
        client.publish(name)
    cluster.advance(0.2)
    monkeypatch.setattr(raft_log, "WRITE_MESSAGES_MAX", 1)
    for name in "ab":
        client.fetch(name)

    leader.raft_log.tell(HandOver())
    cluster.settle()

    other = successor(cluster, leader).client()
    assert [other.finds_nothing(name) for name in "ab"] == [True, True]


def test_nothing_is_handed_out_until_the_last_of_several_transfers_is_decided(
    cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, told = leader.raft_log, list[CaughtUp]()
    operator = leader.runtime.spawn(Operator)
    with monkeypatch.context() as patch:
        patch.setattr(log, "tell", told.append)
        for _ in range(2):
            log.on_administer(Administer(operator.asker, "transfer", 99))
    refusals = []
    for caught_up in told:
        refusals.append(log.refusal())
        log.on_caught_up(caught_up)

    assert [refusal and refusal.code for refusal in (*refusals, log.refusal())] == ["NOT_LEADER", "NOT_LEADER", None]


# --- how much one write holds ----------------------------------------------------------------------------------------


def batch(first: int) -> dict[str, object]:
    return {"cmd": "PUB", "qname": Q, "messages": [str(first + place) for place in range(WRITE_MESSAGES_MAX // 2)]}


def test_publishes_beyond_the_bound_of_one_write_are_written_in_several_in_their_order(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync_on_loop(monkeypatch, lambda: False)
    clients = [broker.client() for _ in range(3)]
    clients[0].publish("other")
    broker.log_disk.held = True
    clients[0].send({"cmd": "PUB", "qname": "other", "message": "under way"})
    broker.settle()
    for first, client in enumerate(clients):
        client.send(batch(first * WRITE_MESSAGES_MAX), batch(first * WRITE_MESSAGES_MAX + WRITE_MESSAGES_MAX // 2))
    broker.settle()
    syncs = broker.raft_log.writer.syncs

    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert broker.raft_log.writer.syncs - syncs >= 1 + len(clients)
    assert [client.words()[-2:] for client in clients] == [["ok", "ok"]] * 3
    texts = [int(clients[0].fetch(Q)["msg"]) for _ in range(3)]
    assert texts == [0, 1, 2]
    assert clients[0].figures(Q)["ready"] == len(clients) * WRITE_MESSAGES_MAX - 3


def test_publishes_beyond_the_bound_of_a_write_on_the_loop_are_written_without_other_work(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync_on_loop(monkeypatch, lambda: True)
    monkeypatch.setattr(raft_log, "WRITE_MESSAGES_MAX", 2)
    client.publish(Q)
    syncs = broker.raft_log.writer.syncs

    client.send(*[{"cmd": "PUB", "qname": Q, "messages": ["m", "m"]}] * 3)
    broker.settle()

    assert client.words() == ["ok"] * 3
    assert broker.raft_log.writer.syncs - syncs == 3


def test_publishes_that_are_collected_and_not_written_stand_before_later_ones_of_their_connection(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync_on_loop(monkeypatch, lambda: False)
    monkeypatch.setattr(raft_log, "WRITE_MESSAGES_MAX", 2)
    client.publish(Q, "0")
    broker.log_disk.held = True
    client.send({"cmd": "PUB", "qname": Q, "message": "1"})
    broker.settle()
    client.send(*[{"cmd": "PUB", "qname": Q, "messages": [str(first), str(first + 1)]} for first in (2, 4)])
    broker.settle()
    broker.log_disk.complete(1)
    broker.settle()
    client.send({"cmd": "PUB", "qname": Q, "message": "6"})
    broker.settle()

    broker.raft_log.tell(Propose([Proposal(Noop(Q))]))
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert client.words() == ["ok"] * 4
    assert [client.fetch(Q)["msg"] for _ in range(7)] == [str(number) for number in range(7)]


def test_publishes_in_no_write_yet_are_answered_when_the_leader_is_deposed(
    cluster: HandCluster, leader: HandNode
) -> None:
    client, other = leader.client(), leader.client()
    client.publish(Q)
    cluster.advance(0.2)
    cluster.isolate(leader)
    client.send(batch(0), batch(1))
    other.send(batch(2), batch(3))
    cluster.settle()

    successor(cluster, leader)
    cluster.advance(UNKNOWN_AFTER_S + 4 * ELECTION_S)

    answers = [reply["err"] for reply in (*client.take(), *other.take())]
    assert sorted(answers) == ["NOT_LEADER"] * answers.count("NOT_LEADER") + ["UNKNOWN"] * answers.count("UNKNOWN")
    assert len(answers) == 4
    assert leader.raft_log.at_rest


def test_publishes_that_are_collected_and_in_no_write_yet_are_refused_when_the_leader_is_deposed(
    cluster: HandCluster, leader: HandNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft_log, "WRITE_MESSAGES_MAX", 1)
    client, other = leader.client(), leader.client()
    client.publish(Q)
    cluster.advance(0.2)
    cluster.isolate(leader)
    leader.log_disk.held = True
    client.send({"cmd": "PUB", "qname": Q, "message": "m"})
    cluster.settle()
    other.send(*[{"cmd": "PUB", "qname": Q, "messages": [str(number)]} for number in range(9)])
    cluster.settle()
    leader.log_disk.complete(1)
    cluster.settle()

    successor(cluster, leader)
    answers = [reply["err"] for reply in other.take()]
    cluster.advance(UNKNOWN_AFTER_S + 4 * ELECTION_S)
    answers += [reply["err"] for reply in other.take()]

    assert len(answers) == 9
    assert "NOT_LEADER" in answers
