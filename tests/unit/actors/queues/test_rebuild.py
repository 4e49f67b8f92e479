"""Queues that crash: they are built again, nothing is lost or told twice, and nobody waits for ever."""

from typing import Any

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.clusters.by_hand import HandCluster, HandNode
from tests.helpers.disks.sync_place import sync_on_loop
from tests.helpers.doors.lanes import HandSession
from wakeq.actors.mail import Answered, Propose, ReplyByMail
from wakeq.actors.queue import crashing, leading
from wakeq.actors.queue import process as queue
from wakeq.actors.queue.leading import Lead
from wakeq.actors.queue.process import QueueProcess
from wakeq.actors.queues.barrier import ANSWERED_PART
from wakeq.actors.queues.rebuild import CRASHES_MAX
from wakeq.actors.runtime import Process
from wakeq.protocol.log.entries import Ack, Draft, Extended, Publish, UpdateQueue
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.leases.leases import Leases
from wakeq.protocol.queue.ledger.ledger import Ledger
from wakeq.protocol.queue.orders import Stats
from wakeq.protocol.wire.slots import Slot
from wakeq.protocol.wire.worker import codec as wire
from wakeq.storage.state.store import QUEUES

Q = "q"


class Listener(Process):
    """Asks by mail; keeps the names of what was answered."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Any] = []

    def asker(self, name: str) -> ReplyByMail[Any]:
        return ReplyByMail(self, lambda _: self.heard.append(name))

    def on_receive(self, message: Answered[Any]) -> None:
        message.deliver()


def test_queue_that_crashes_once_is_rebuilt_and_nothing_is_lost(
    broker: Broker, client: Client, poison: list[int]
) -> None:
    stored, fresh = client.publish(Q, "stored"), ""
    broker.flush()
    fresh = client.publish(Q, "fresh")
    before = broker.queue(Q)
    poison[0] = 1

    replies = client.ask(
        {"cmd": "PUB", "qname": Q, "message": "poison"}, {"cmd": "PUB", "qname": "other", "message": "m"}
    )

    assert [reply["cmd"] for reply in replies] == ["ok", "ok"]
    assert broker.queue(Q) is not before
    assert [client.fetch(Q)["uid"] for _ in range(3)] == [stored, fresh, replies[0]["uid"]]
    broker.check(Q)


def test_queue_that_cannot_even_say_its_last_words_is_rebuilt(
    broker: Broker, client: Client, poison: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def speechless(self: QueueProcess) -> None:
        raise ZeroDivisionError("it is in no state to speak")

    monkeypatch.setattr(crashing, "leave_last_words", speechless)
    first = client.publish(Q, "first")
    poison[0] = 1

    second = client.publish(Q, "poison")

    assert [client.fetch(Q)["uid"] for _ in range(2)] == [first, second]


def test_messages_published_since_the_last_checkpoint_are_read_from_the_log_for_a_rebuild(
    broker: Broker, client: Client
) -> None:
    stored = client.publish(Q, "stored")
    broker.flush()
    client.call("PUB", Q, message="first", priority=2, headers={"a": "b"})
    client.ask(*({"cmd": "PUB", "qname": name, "message": "m"} for name in (Q, "other", Q, "another")))
    client.call("PUB", Q, messages=["a", "b"])
    client.call("ACK", Q, uid=stored)
    kept = broker.assembly.queues.applier.told[Q]

    broker.queue(Q).tell("nothing that a queue knows")
    broker.settle()

    assert [type(one) for one in kept] == [int] * 4, "only where they stand in the log"
    found = [client.fetch(Q) for _ in range(5)]
    assert [one["msg"] for one in found] == ["m", "m", "a", "b", "first"]
    assert found[-1]["headers"] == {"a": "b"}
    broker.check(Q)


def test_publish_that_is_read_from_the_log_for_a_rebuilt_queue_keeps_its_moment(broker: Broker, client: Client) -> None:
    uid = client.call("PUB", Q, message="once", id="order-1")["uid"]
    since_ms = client.figures(Q)["oldest_ready_ms"]

    broker.queue(Q).tell("nothing that a queue knows")
    broker.settle()

    assert client.figures(Q)["oldest_ready_ms"] == since_ms > 0
    assert client.call("PUB", Q, message="once", id="order-1")["uid"] == uid
    assert client.figures(Q)["ready"] == 1


def test_queue_that_crashes_before_it_comes_to_a_publish_answers_it_when_it_is_rebuilt(
    broker: Broker, client: Client
) -> None:
    client.publish(Q, "before")
    broker.queue(Q).tell("nothing that a queue knows")  # and behind that comes what is published

    replies = client.ask(*({"cmd": "PUB", "qname": name, "message": "m"} for name in (Q, "other")))

    assert [reply["cmd"] for reply in replies] == ["ok", "ok"]
    assert [client.fetch(Q)["msg"] for _ in range(2)] == ["before", "m"]
    broker.check(Q)


def test_crash_wakes_sleepers_and_answers_waiting_fetches(broker: Broker, client: Client, poison: list[int]) -> None:
    sleeps, waits = broker.client(), broker.client()
    client.publish(Q, delay=100)
    sleeps.fall_asleep(Q)
    waits.ask({"cmd": "FET", "qname": Q, "wait": 50, "cmd_id": 1})
    poison[0] = -1

    client.send({"cmd": "PUB", "qname": Q, "message": "poison"})
    broker.settle()

    assert set(sleeps.words()) == {"awk"}
    assert waits.words() == ["nomsg"]


@pytest.mark.parametrize("is_served", [True, False], ids=["in hand", "in the lanes"])
def test_islp_that_came_before_its_queue_crashed_is_answered_and_its_sleeper_woken(
    broker: Broker, client: Client, worker: Client, is_served: bool
) -> None:
    client.publish(Q)
    process = broker.queue(Q)

    if not is_served:
        process.tell("nothing that a queue knows")
    worker.send({"cmd": "SUB", "qname": Q}, {"cmd": "ISLP", "qname": Q})
    if is_served:  # an order crashes the queue in the very turn that serves the ISLP
        broker.assembly.lobby.filed(Q).orders.append("nothing that a queue knows")
    broker.settle()

    assert broker.queue(Q) is not process
    assert worker.words() == ["oksub", "okslp", "awk"]


@pytest.mark.parametrize("count", [1, 3])
def test_entry_that_crashes_a_queue_three_times_is_skipped_with_its_reason(
    broker: Broker, client: Client, poison: list[int], count: int, caplog: pytest.LogCaptureFixture
) -> None:
    client.publish(Q, "before")
    poison[0] = -1

    replies = client.ask(*[{"cmd": "PUB", "qname": Q, "message": "poison"}] * count)
    after = client.publish(Q, "after")
    entries = broker.queues.skipped_count

    assert [reply.get("err") for reply in replies] == ["SET_ASIDE"] * count
    assert [client.fetch(Q)["msg"] for _ in range(2)] == ["before", "after"]
    for stored in (False, True):
        if stored:
            broker.advance(0.1)
            broker.flush()
        broker.crash_and_restart()
        client = broker.client()
        assert client.figures(Q)["size"] + client.figures(Q)["leased"] == 2
        assert client.call("ACK", Q, uid=after).get("known", True) is (not stored)
        client.publish(Q, "one more")
        assert broker.queues.skipped_count == entries > 0
    with broker.files.store.read() as view:
        assert any(b"ZeroDivisionError: poisoned" in value for _, value in view.scan(QUEUES))
    assert "which crashed the queue: ZeroDivisionError: poisoned" in caplog.text


@pytest.mark.parametrize("numbered", [False, True])
def test_publish_that_crashes_a_queue_takes_no_other_connections_publish_with_it(
    broker: Broker, client: Client, poison: list[int], numbered: bool
) -> None:
    """Publishes of one round share an entry; only the client whose publish crashes the queue is answered SET_ASIDE."""
    client.publish(Q, "before")
    clients = [broker.client() for _ in range(3)]
    for number, one in enumerate(clients if numbered else ()):
        one.call("HELLO", session=f"s{number}")
    poison[0] = -1

    for one, text in zip(clients, ["good", "poison", "fine"], strict=True):
        one.send({"cmd": "PUB", "qname": Q, "message": text, **({"n": 1} if numbered else {})})
    broker.settle()

    assert [reply.get("err", "ok") for one in clients for reply in one.take()] == ["ok", "SET_ASIDE", "ok"]
    assert sorted(client.fetch(Q)["msg"] for _ in range(3)) == ["before", "fine", "good"]
    assert client.finds_nothing(Q)


def test_commands_are_answered_after_a_rebuild_and_other_queues_go_on_meanwhile(
    broker: Broker, client: Client, poison: list[int]
) -> None:
    worker, other = broker.client(), broker.client()
    worker.call("SUB", Q)
    uid = client.publish(Q)
    client.fetch(Q)
    client.publish("other")
    poison[0] = 1
    broker.state_disk.held = True
    client.send({"cmd": "PUB", "qname": Q, "message": "poison"})
    broker.settle()

    worker.send({"cmd": "FET", "qname": Q}, {"cmd": "ISLP", "qname": Q}, {"cmd": "NACK", "qname": Q, "uid": uid})
    other.send({"cmd": "LIST"}, {"cmd": "FET", "qname": "other"})
    straight = other.words(), worker.words()
    broker.state_disk.held = False
    broker.state_disk.complete()
    broker.settle()

    assert straight == (["queues", "msg"], [])
    assert worker.words() == ["msg", "okslp", "awk", "oknack"]
    assert client.words() == ["ok"]
    broker.check(Q)
    assert worker.fetch(Q)["uid"] == uid


@pytest.mark.parametrize("bad", ["a", "b"])
def test_queue_that_crashes_does_not_withhold_the_answers_of_another_queue(
    broker: Broker, client: Client, worker: Client, poison: list[int], bad: str
) -> None:
    for name in ("a", "b"):
        client.publish(name)
    poison[0] = 1

    worker.send(*[{"cmd": "PUB", "qname": name, "msg": "poison" if name == bad else "good"} for name in "ab"])

    assert worker.words() == ["ok", "ok"]


def test_queue_that_crashes_again_while_it_is_rebuilt_begins_to_lead_once(
    broker: Broker, client: Client, poison: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    client.publish(Q)
    led: list[QueueProcess] = []

    def note_and_lead(self: QueueProcess, message: Lead) -> None:
        led.append(self)
        leading.on_lead(self, message)

    monkeypatch.setitem(queue._HANDLERS, Lead, note_and_lead)
    poison[0] = 2

    client.publish(Q, "poison")

    assert led == [broker.queue(Q)]  # once more would forget who sleeps, who waits, and what is on its way


@pytest.mark.parametrize("what", ["a batch", "a look at all queues", "one look"])
def test_mail_before_the_news_of_a_crash_is_answered(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    for name in ("a", "b"):
        client.publish(name)
    sync_on_loop(monkeypatch, lambda: True)
    listener = broker.runtime.spawn(Listener)
    publish = Ledger.publish
    crashed: list[Ledger] = []

    def fragile(self: Ledger, entry: Publish, at_ms: int, **about: Any) -> Any:
        if entry.drafts[0].body == b"poison" and not crashed:
            crashed.append(self)
            come()
            raise ZeroDivisionError("poisoned")
        return publish(self, entry, at_ms, **about)

    def come() -> None:
        """Have Queues told of something, behind which the news of the crash will stand."""
        match what:
            case "a batch":
                entries = [Publish(name, [Draft(b"")]) for name in ("a", "b")]
                broker.raft_log.on_receive(Propose([Proposal(entry, listener.asker(entry.queue)) for entry in entries]))
            case "a look at all queues":
                broker.queues.tell(Stats(listener.asker("all"), "", all_queues=True))
            case _:
                broker.queues.tell(Stats(listener.asker("a"), "a"))

    monkeypatch.setattr(Ledger, "publish", fragile)
    client.publish("a", "poison")

    assert sorted(listener.heard) == {"a batch": ["a", "b"], "a look at all queues": ["all"], "one look": ["a"]}[what]
    assert crashed


def test_replay_sends_no_second_answer(broker: Broker, client: Client, poison: list[int]) -> None:
    client.call("CREATE", Q, lease="strict")
    worker = broker.client()
    worker.ask({"cmd": "FET", "qname": Q, "wait": 10, "cmd_id": "w"})
    client.publish(Q, "m")
    first = worker.words()
    poison[0] = 1

    client.publish(Q, "poison")

    assert first == ["msg"]
    assert worker.words() == []


@pytest.mark.parametrize("times", [1, 3])
def test_replayed_entries_do_not_keep_askers_that_were_answered(
    broker: Broker, client: Client, poison: list[int], times: int
) -> None:
    client.ask(*({"cmd": "PUB", "qname": Q, "message": "m"} for _ in range(times)))
    uids = [client.fetch(Q)["uid"] for _ in range(times)]
    client.call("NACK", Q, uid=uids[0])
    client.ask(*({"cmd": "ACK", "qname": Q, "uid": uid} for uid in uids))
    client.call("UPDATE", Q, max_size=100)
    uid = client.publish(Q)
    client.fetch(Q)
    client.call("TOUCH", Q, uid=uid)
    client.call("ACK", Q, uid=uid, publish=[{"qname": "other", "message": "m"}])
    kept = [one for one in broker.assembly.queues.applier.told[Q] if not isinstance(one, int)]
    poison[0] = 1

    replies = client.ask({"cmd": "PUB", "qname": Q, "message": "poison"})

    assert {type(item.entry) for item in kept} >= {UpdateQueue, Extended, Ack}
    assert [item.reply_to for item in kept if item.reply_to not in (None, ANSWERED_PART)] == []
    assert [reply["cmd"] for reply in replies] == ["ok"]
    broker.check(Q)


def test_follow_up_to_a_queue_that_crashed_is_answered(broker: Broker, client: Client, poison: list[int]) -> None:
    client.publish("b")
    uid = client.publish(Q)
    client.fetch(Q)
    poison[0] = 2

    reply = client.call("ACK", Q, uid=uid, publish=[{"qname": "b", "message": "poison"}])

    assert reply["cmd"] == "okack"
    assert [client.fetch("b")["msg"] for _ in range(2)] == ["hi", "poison"]


def test_skipped_follow_up_undoes_its_acknowledgement(broker: Broker, client: Client, poison: list[int]) -> None:
    client.publish("b")
    uid = client.publish(Q, timeout=5)
    client.fetch(Q)
    poison[0] = -1

    reply = client.call("ACK", Q, uid=uid, publish=[{"qname": "b", "message": "poison"}])
    broker.advance(5)

    assert (reply["cmd"], reply.get("err")) == ("nok", "SET_ASIDE")
    assert client.fetch(Q)["uid"] == uid


def test_entry_that_crashes_two_queues_is_left_out_of_both(
    broker: Broker, client: Client, poison: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    client.publish("b")
    uid = client.publish(Q, timeout=5)
    client.fetch(Q)
    poison[0] = -1
    acknowledge = Ledger.acknowledge

    def fragile(self: Ledger, entry: Ack) -> Any:
        if self.name == Q:
            raise ZeroDivisionError("poisoned")
        return acknowledge(self, entry)

    monkeypatch.setattr(Ledger, "acknowledge", fragile)
    reply = client.call("ACK", Q, uid=uid, publish=[{"qname": "b", "message": "poison"}])
    broker.advance(5)

    assert (reply["cmd"], reply.get("err")) == ("nok", "SET_ASIDE")
    assert client.fetch(Q)["uid"] == uid
    assert client.fetch("b")["msg"] == "hi"
    broker.flush()


@pytest.mark.parametrize("stored", [False, True])
def test_queue_created_by_a_skipped_entry_keeps_later_messages(
    broker: Broker, client: Client, poison: list[int], stored: bool
) -> None:
    client.publish(Q)
    held = client.fetch(Q)["uid"]
    poison[0] = -1
    client.call("PUB", "new", message="poison")
    client.call("ACK", Q, uid=held, publish=[{"qname": "next", "message": "poison"}])

    uids = [client.publish("new", "after"), client.publish("next", "after")]
    if stored:
        broker.flush()
    broker.crash_and_restart()

    assert [broker.client().fetch(name)["uid"] for name in ("new", "next")] == uids


def test_acknowledgement_with_a_follow_up_waits_until_the_crashing_entry_is_skipped(
    broker: Broker, client: Client, poison: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused here, it would be done on a node whose queue crashed a moment later, or not at all."""
    client.publish("b")
    uid = client.publish(Q)
    client.fetch(Q)
    poison[0] = -1
    sync_on_loop(monkeypatch, lambda: False)
    broker.state_disk.held = True  # the queue is slow to be rebuilt, and to crash again
    poisoner = broker.client()
    poisoner.send({"cmd": "PUB", "qname": "b", "message": "poison"})
    broker.settle()
    broker.log_disk.held = True
    client.send({"cmd": "ACK", "qname": Q, "uid": uid, "publish": [{"qname": "b", "message": "m"}]})
    broker.settle()
    broker.state_disk.held = False
    broker.state_disk.complete()
    broker.settle()

    broker.log_disk.complete(1)  # it is committed, and what sets the other entry aside is not
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert [reply["err"] for reply in poisoner.take()] == ["SET_ASIDE"]
    assert client.words() == ["okack"]
    assert [client.fetch("b")["msg"] for _ in range(2)] == ["hi", "m"]


def test_crashes_that_have_nothing_to_do_with_each_other_end_no_node(broker: Broker, client: Client) -> None:
    uid = client.publish(Q)

    for _ in range(5):
        broker.queue(Q).tell(object())  # a bug: no handler knows it
        broker.advance(3_600)

    assert client.fetch(Q)["uid"] == uid


def test_queue_that_crashes_again_and_again_outside_of_any_entry_ends_its_node(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("whatever is asked")

    client.publish(Q)
    monkeypatch.setattr(Leases, "take", crash)
    broker.may_fail = True

    for _ in range(CRASHES_MAX - 1):
        assert client.call("FET", Q)["cmd"] == "nomsg"
    before = list(broker.failures)
    client.ask({"cmd": "FET", "qname": Q})

    assert before == []
    assert [str(error) for error in broker.failures] == [
        "queue 'q' crashes again and again outside of any entry: ZeroDivisionError: whatever is asked"
    ]


def test_lease_from_before_a_crash_of_its_queue_is_older_than_any_after_it(
    broker: Broker, client: Client, worker: Client, poison: list[int]
) -> None:
    client.publish(Q, "m", timeout=5)
    for _ in range(3):
        before = client.fetch(Q)
        client.call("NACK", Q, uid=before["uid"], lease=before["lease"])
    before = client.fetch(Q)
    poison[0] = 1
    client.publish(Q, "poison")
    broker.advance(6)

    after = next(message for message in (worker.fetch(Q), worker.fetch(Q)) if message["msg"] == "m")

    assert after["uid"] == before["uid"]
    assert client.call("ACK", Q, uid=before["uid"], lease=before["lease"])["err"] == "STALE_LEASE"
    reply = worker.call("ACK", Q, uid=after["uid"], lease=after["lease"])
    assert (reply["cmd"], "known" in reply) == ("okack", False)


def test_leases_between_crashes_of_a_queue_are_each_older_than_the_next(
    broker: Broker, client: Client, worker: Client
) -> None:
    client.publish(Q, "m", timeout=5)
    earlier = []
    for _ in range(CRASHES_MAX - 1):
        earlier.append(worker.fetch(Q))
        broker.advance(0.1)  # the delivery is in the log
        broker.queue(Q).tell("nothing that a queue knows")
        broker.advance(6)

    last = worker.fetch(Q)

    for delivery in earlier:
        assert client.call("ACK", Q, uid=last["uid"], lease=delivery["lease"])["err"] == "STALE_LEASE"
    assert worker.call("ACK", Q, uid=last["uid"], lease=last["lease"])["cmd"] == "okack"


@pytest.mark.parametrize("lease", ["fast", "strict"])
def test_delivery_on_its_way_when_its_queue_crashes_is_not_made_twice(
    broker: Broker, client: Client, worker: Client, poison: list[int], lease: str
) -> None:
    client.call("CREATE", Q, lease=lease)
    client.publish(Q, "m")
    poison[0] = 1
    broker.log_disk.held = True  # the poison is on its way, and the delivery behind it

    client.send({"cmd": "PUB", "qname": Q, "message": "poison"})
    broker.settle()
    worker.send({"cmd": "FET", "qname": Q})
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()
    broker.advance(1)
    second = client.ask({"cmd": "FET", "qname": Q}, {"cmd": "FET", "qname": Q})

    got = [reply["msg"] for reply in (*worker.take(), *second) if reply["cmd"] == "msg"]
    assert sorted(got) == ["m", "poison"]


def test_entry_whose_judgement_always_crashes_the_queue_is_skipped(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each node that reads the log would end over it, whenever it starts."""
    uid = client.publish(Q)
    client.publish("next")

    def judge(ledger: Ledger, entry: Publish) -> int:
        raise ZeroDivisionError("poisoned")

    monkeypatch.setattr(Ledger, "judge", judge)
    (reply,) = client.ask({"cmd": "ACK", "qname": Q, "uid": uid, "publish": [{"qname": "next", "message": "m"}]})

    assert reply["err"] == "SET_ASIDE"
    assert client.call("PUB", "next", message="m")["cmd"] == "ok"
    assert client.fetch(Q)["uid"] == uid


def test_command_filed_with_a_crashed_queue_of_a_follower_is_refused(cluster: HandCluster, leader: HandNode) -> None:
    """TaskFlux and MoniQue file without asking who leads."""
    leader.client().publish(Q)
    cluster.advance(0.5)
    follower = cluster.others(leader)[0]
    slot = Slot(HandSession(), wire.Pub(qname=Q, message="m"))

    queue = follower.queues.processes.by_name[Q]
    follower.runtime.end(queue, ZeroDivisionError("a bug"))
    follower.assembly.lobby.filed(Q).publish(slot, Draft(b"m"), "", 0, is_alike=True)
    cluster.advance(0.5)

    assert slot.outcome.code == "NOT_LEADER"
