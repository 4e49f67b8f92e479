"""Queues: the catalog, cuts of the state store, dead incarnations, and queues that crash."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.broker import Broker, Client
from wakeq.actors import queue
from wakeq.actors.listing import SLICE_QUEUES
from wakeq.actors.messages import Answered, Asker, Collect, Fetch, Propose, Stats, Tick, Want
from wakeq.actors.queue import QueueProcess
from wakeq.actors.queue_deliveries import Lead
from wakeq.actors.runtime import Process
from wakeq.actors.sync_place import SyncPlace
from wakeq.protocol.commands import ANY_TOKEN, Delivered, Draft, Publish
from wakeq.protocol.ledger import Ledger
from wakeq.storage.store import GRAVES, MESSAGES, QUEUES, Cut

Q = "q"
POISON = b"poison"
Poison = Callable[[], None]


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let a ledger fail on a certain body as often as the first number says; -1 is always."""
    times = [0]
    publish = Ledger.publish

    def fragile(self: Ledger, entry: Publish, at_ms: int) -> Any:
        if times[0] and any(draft.body == POISON for draft in entry.drafts):
            times[0] -= 1
            raise ZeroDivisionError("poisoned")
        return publish(self, entry, at_ms)

    monkeypatch.setattr(Ledger, "publish", fragile)
    return times


class Listener(Process):
    """An asker; keeps the places of what was answered."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Any] = []

    def on_receive(self, message: Answered) -> None:
        self.heard += [place for _, place, _ in message.answers]


# Looking, changing ------------------------------------------------------------------------------------------------


def test_list_stats_and_peek_tell_every_state_apart(broker: Broker, client: Client) -> None:
    leased, ready, delayed = client.publish(Q, "l"), client.publish(Q, "r", priority=5), client.publish(Q, "d", delay=9)
    client.fetch(Q)

    found = {
        state: [(m["uid"], m["state"]) for m in client.call("PEEK", Q, state=state)["messages"]]
        for state in ("ready", "leased", "delayed", "any")
    }
    broker.advance(0.1)
    figures = client.figures(Q)

    assert found == {
        "leased": [(leased, "leased")],
        "ready": [(ready, "ready")],
        "delayed": [(delayed, "delayed")],
        "any": [(leased, "leased"), (ready, "ready"), (delayed, "delayed")],
    }
    assert [figures[name] for name in ("ready", "delayed", "leased", "size")] == [1, 1, 1, 2]
    assert [row["qname"] for row in client.call("LIST", prefix="q")["queues"]] == [Q]
    assert client.call("PEEK", "nowhere")["err"] == client.call("STATS", "nowhere")["err"] == "Q_NOT_FOUND"


@pytest.mark.parametrize("stored", [False, True])
def test_an_update_of_the_structure_keeps_what_is_in_line(broker: Broker, client: Client, stored: bool) -> None:
    for place, priority in enumerate([2, 0, 1, 0, 2]):
        client.publish(Q, str(place), priority=priority)
    if stored:
        broker.flush()

    assert client.call("UPDATE", Q, structure="QA", priority_min=0, priority_max=2)["cmd"] == "okupdate"
    first = [client.fetch(Q)["msg"] for _ in range(2)]
    assert client.call("UPDATE", Q, structure="H4")["cmd"] == "okupdate"

    assert first + [client.fetch(Q)["msg"] for _ in range(3)] == ["1", "3", "2", "0", "4"]
    assert client.finds_nothing(Q)


@pytest.mark.parametrize("structure", ["H4", "QA"])
@pytest.mark.parametrize("restart", [False, True])
def test_both_structures_give_the_smallest_priority_first_and_its_oldest(
    broker: Broker, client: Client, structure: str, restart: bool
) -> None:
    client.call("CREATE", Q, structure=structure, priority_min=-3, priority_max=3)
    for place, priority in enumerate([3, -3, 0, -3, 3, 0]):
        client.publish(Q, str(place), priority=priority)
    if restart:
        broker.crash_and_restart()
        client = broker.client()

    assert [client.fetch(Q)["msg"] for _ in range(6)] == ["1", "3", "2", "5", "0", "4"]
    assert client.call("PUB", Q, message="m", priority=4)["err"] == "KEY_RANGE"


def test_the_default_queue_is_there_and_cannot_be_deleted(broker: Broker, client: Client) -> None:
    reply = client.call("DROP", "")
    client.publish("", "m")

    assert (reply["cmd"], reply["err"]) == ("nok", "BAD_NAME")
    assert client.fetch("")["msg"] == "m"
    assert client.call("PURGE", "")["cmd"] == "purged"


# Incarnations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["PURGE", "DROP"])
@pytest.mark.parametrize("stored", [False, True])
def test_a_dead_incarnation_vanishes_at_once_and_its_records_are_swept(
    broker: Broker, client: Client, end: str, stored: bool
) -> None:
    uids = client.call("PUB", Q, messages=["m"] * 2_500)["uids"]
    client.fetch(Q)
    if stored:
        broker.flush()

    client.call(end, Q)
    at_once = client.call("FET", Q)["cmd"]
    old = client.call("ACK", Q, uid=uids[0])
    new = client.publish(Q, "new")
    broker.flush()

    assert at_once == ("nomsg" if end == "PURGE" else "nok")
    assert old["known"] is False
    assert new not in uids
    assert new[:7] != uids[0][:7]
    assert client.call("NACK", Q, uid=uids[1])["known"] is False
    records = broker.files.store.stats().records
    assert (records[MESSAGES], records[GRAVES], records[QUEUES]) == (1, 0, 2)


@pytest.mark.parametrize("end", ["PURGE", "DROP"])
def test_a_dead_incarnation_does_not_come_back_with_a_restart(broker: Broker, client: Client, end: str) -> None:
    client.publish(Q, "old")
    broker.flush()
    client.call(end, Q)

    broker.crash_and_restart()
    client = broker.client()

    assert client.call("FET", Q)["cmd"] == ("nomsg" if end == "PURGE" else "nok")
    assert client.publish(Q, "new")
    assert client.fetch(Q)["msg"] == "new"


@pytest.mark.parametrize(("end", "again"), [("PURGE", True), ("DROP", False)])
def test_publishers_are_remembered_over_a_purge_and_forgotten_with_the_queue(
    client: Client, end: str, again: bool
) -> None:
    first = client.publish(Q, id="once")
    client.call(end, Q)

    second = client.publish(Q, id="once")

    assert (second == first) is again
    assert client.call("FET", Q)["cmd"] == ("nomsg" if again else "msg")


def test_those_who_sleep_and_wait_outlive_a_purge(client: Client, broker: Broker) -> None:
    sleeps, waits = broker.client(), broker.client()
    client.publish(Q, delay=100)
    sleeps.fall_asleep(Q)
    waits.ask({"cmd": "FET", "qname": Q, "wait": 50, "cmd_id": 1})

    client.call("PURGE", Q)
    client.call("PUB", Q, messages=["1", "2"])

    assert waits.words() == ["msg"]
    assert sleeps.words() == ["awk"]


# Writing down -----------------------------------------------------------------------------------------------------


def test_a_cut_ends_at_one_index_for_all_queues(broker: Broker, client: Client) -> None:
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
def test_a_crash_at_any_point_of_a_flush_loses_and_doubles_nothing(broker: Broker, stop_after: int) -> None:
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


# Crashes ----------------------------------------------------------------------------------------------------------


def test_a_queue_that_crashes_once_is_rebuilt_and_nothing_is_lost(
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


def test_a_crash_wakes_who_sleeps_and_answers_who_waits(broker: Broker, client: Client, poison: list[int]) -> None:
    sleeps, waits = broker.client(), broker.client()
    client.publish(Q, delay=100)
    sleeps.fall_asleep(Q)
    waits.ask({"cmd": "FET", "qname": Q, "wait": 50, "cmd_id": 1})
    poison[0] = -1

    client.send({"cmd": "PUB", "qname": Q, "message": "poison"})
    broker.settle()

    assert set(sleeps.words()) == {"awk"}
    assert waits.words() == ["nomsg"]


@pytest.mark.parametrize("count", [1, 3])
def test_what_crashes_a_queue_three_times_is_set_aside_with_its_reason(
    broker: Broker, client: Client, poison: list[int], count: int
) -> None:
    client.publish(Q, "before")
    poison[0] = -1

    replies = client.ask(*[{"cmd": "PUB", "qname": Q, "message": "poison"}] * count)
    after = client.publish(Q, "after")

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
    with broker.files.store.read() as view:
        assert any(b"ZeroDivisionError: poisoned" in value for _, value in view.scan(QUEUES))


def test_while_a_queue_is_rebuilt_everybody_is_answered_and_the_others_go_on(
    broker: Broker, client: Client, poison: list[int]
) -> None:
    worker = broker.client()
    worker.call("SUB", Q)
    uid = client.publish(Q)
    client.fetch(Q)
    poison[0] = 1
    broker.state_disk.held = True
    client.send({"cmd": "PUB", "qname": Q, "message": "poison"})
    broker.settle()

    worker.send(
        {"cmd": "FET", "qname": Q},
        {"cmd": "LIST"},
        {"cmd": "ISLP", "qname": Q},
        {"cmd": "NACK", "qname": Q, "uid": uid},
    )
    straight = worker.words()
    broker.state_disk.held = False
    broker.state_disk.complete()
    broker.settle()

    assert set(straight) | set(worker.words()) >= {"queues"}
    assert client.words() == ["ok"]
    broker.check(Q)
    assert worker.fetch(Q)["msg"] == "poison"


def test_a_crash_while_a_cut_is_collected_loses_nothing_of_it(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    uids = [client.publish("a", "1"), client.publish("b", "2")]
    collect = QueueProcess.on_collect
    crashed: list[QueueProcess] = []

    def fragile(self: QueueProcess, message: Any) -> None:
        collect(self, message)
        if self.name == "a" and not crashed:
            crashed.append(self)
            raise ZeroDivisionError("after the part was handed in")

    monkeypatch.setitem(queue._HANDLERS, Collect, fragile)
    broker.queues.tell(Tick("flush"))
    broker.settle()

    assert crashed
    assert [client.fetch(name)["uid"] for name in ("a", "b")] == uids


def test_a_queue_that_crashes_before_it_is_asked_for_its_part_hands_it_in_all_the_same(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"q-{number}" for number in range(2 * SLICE_QUEUES + 2)]
    for name in names:
        client.publish(name, name)
    collect = QueueProcess.on_collect
    last = broker.queue(names[-1])

    def fragile(self: QueueProcess, message: Any) -> None:
        if self.name == names[0]:
            last.tell(object())  # a bug: no handler knows it
        collect(self, message)

    monkeypatch.setitem(queue._HANDLERS, Collect, fragile)
    broker.flush()
    monkeypatch.undo()

    assert broker.queue(names[-1]) is not last
    assert broker.files.store.stats().records[MESSAGES] == len(names)
    assert client.fetch(names[-1])["msg"] == names[-1]


@pytest.mark.parametrize("bad", ["a", "b"])
def test_a_queue_that_crashes_holds_up_nobody_elses_answer(
    broker: Broker, client: Client, worker: Client, poison: list[int], bad: str
) -> None:
    for name in ("a", "b"):
        client.publish(name)
    poison[0] = 1

    worker.send(*[{"cmd": "PUB", "qname": name, "msg": "poison" if name == bad else "good"} for name in "ab"])

    assert worker.words() == ["ok", "ok"]


def test_a_queue_that_crashes_again_while_it_is_rebuilt_begins_to_lead_once(
    broker: Broker, client: Client, poison: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    client.publish(Q)
    led: list[QueueProcess] = []
    lead = QueueProcess.on_lead

    def note_and_lead(self: QueueProcess, message: Lead) -> None:
        led.append(self)
        lead(self, message)

    monkeypatch.setitem(queue._HANDLERS, Lead, note_and_lead)
    poison[0] = 2

    client.publish(Q, "poison")

    assert led == [broker.queue(Q)]  # once more would forget who sleeps, who waits, and what is on its way


@pytest.mark.parametrize("what", ["a batch", "a look at all queues", "a fetch"])
def test_what_comes_before_the_news_of_a_crash_is_answered_all_the_same(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    for name in ("a", "b"):
        client.publish(name)
    monkeypatch.setattr(SyncPlace, "on_loop", lambda *_: True)
    listener = broker.runtime.spawn(Listener)
    publish = Ledger.publish
    crashed: list[Ledger] = []

    def fragile(self: Ledger, entry: Publish, at_ms: int) -> Any:
        if entry.drafts[0].body == POISON and not crashed:
            crashed.append(self)
            come()
            raise ZeroDivisionError("poisoned")
        return publish(self, entry, at_ms)

    def come() -> None:
        """Have Queues told of something, behind which the news of the crash will stand."""
        match what:
            case "a batch":
                entries = [Publish(name, [Draft(b"")]) for name in ("a", "b")]
                broker.raft_log.on_receive(Propose([(entry, Asker(listener, None, entry.queue)) for entry in entries]))
            case "a look at all queues":
                broker.queues.tell(Stats(Asker(listener, None, "all"), "", all_queues=True))
            case _:
                broker.queues.tell(Fetch("a", listener, None, [Want("a", 0)]))

    monkeypatch.setattr(Ledger, "publish", fragile)
    client.publish("a", "poison")

    assert sorted(listener.heard) == {"a batch": ["a", "b"], "a look at all queues": ["all"], "a fetch": ["a"]}[what]
    assert crashed


def test_a_replay_tells_nobody_a_second_time(broker: Broker, client: Client, poison: list[int]) -> None:
    client.call("CREATE", Q, lease="strict")
    worker = broker.client()
    worker.ask({"cmd": "FET", "qname": Q, "wait": 10, "cmd_id": "w"})
    client.publish(Q, "m")
    first = worker.words()
    poison[0] = 1

    client.publish(Q, "poison")

    assert first == ["msg"]
    assert worker.words() == []


def test_a_follow_up_to_a_queue_that_crashed_is_answered(broker: Broker, client: Client, poison: list[int]) -> None:
    client.publish("b")
    uid = client.publish(Q)
    client.fetch(Q)
    poison[0] = 2

    reply = client.call("ACK", Q, uid=uid, publish=[{"qname": "b", "message": "poison"}])

    assert reply["cmd"] == "okack"
    assert [client.fetch("b")["msg"] for _ in range(2)] == ["hi", "poison"]


def test_a_follow_up_that_is_set_aside_takes_the_acknowledgement_with_it(
    broker: Broker, client: Client, poison: list[int]
) -> None:
    client.publish("b")
    uid = client.publish(Q, timeout=5)
    client.fetch(Q)
    poison[0] = -1

    reply = client.call("ACK", Q, uid=uid, publish=[{"qname": "b", "message": "poison"}])
    broker.advance(5)

    assert (reply["cmd"], reply.get("err")) == ("nok", "SET_ASIDE")
    assert client.fetch(Q)["uid"] == uid


@pytest.mark.parametrize("stored", [False, True])
def test_a_queue_that_was_made_by_what_was_set_aside_keeps_what_comes_after(
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


def test_an_acknowledgement_with_a_follow_up_waits_until_its_queue_is_without_what_crashed_it(
    broker: Broker, client: Client, poison: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused here, it would be done on a node whose queue crashed a moment later, or not at all."""
    client.publish("b")
    uid = client.publish(Q)
    client.fetch(Q)
    poison[0] = -1
    monkeypatch.setattr(SyncPlace, "on_loop", lambda *_: False)
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


def test_what_is_set_aside_while_a_cut_is_collected_is_in_no_part_of_it(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.publish("b")
    uid = client.publish(Q, timeout=5)
    client.fetch(Q)
    broker.advance(0.1)
    publish = Ledger.publish

    def fragile(self: Ledger, entry: Publish, at_ms: int) -> Any:
        if entry.drafts[0].body == POISON:
            broker.queues.tell(Tick("flush"))  # the cut begins before the news of the crash is heard
            raise ZeroDivisionError("poisoned")
        return publish(self, entry, at_ms)

    monkeypatch.setattr(Ledger, "publish", fragile)
    reply = client.call("ACK", Q, uid=uid, publish=[{"qname": "b", "message": "poison"}])
    broker.flush()
    broker.crash_and_restart()
    broker.advance(5)

    assert reply["err"] == "SET_ASIDE"
    assert broker.client().fetch(Q)["uid"] == uid


def test_crashes_that_have_nothing_to_do_with_each_other_end_no_node(broker: Broker, client: Client) -> None:
    uid = client.publish(Q)

    for _ in range(5):
        broker.queue(Q).tell(object())  # a bug: no handler knows it
        broker.advance(3_600)

    assert client.fetch(Q)["uid"] == uid


def test_publishes_wait_while_the_store_is_too_far_behind(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakeq.actors.queue_cuts.BACKLOG_CUTS", 20_000 / broker.queues._settings.flush_bytes)
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


# Imported messages ------------------------------------------------------------------------------------------------


def test_an_imported_message_is_reached_by_its_old_uid_only(broker: Broker, client: Client) -> None:
    broker.raft_log.tell(Propose([(Publish("new", [Draft(b"old", alias="aB1440000000_250")]), None)]))
    other = client.publish(Q)

    wrong = client.call("ACK", "new", uid=other)
    message = client.fetch("new")

    assert wrong["known"] is False
    assert (message["uid"], message["msg"]) == ("aB1440000000_250", "old")
    assert client.call("ACK", "new", uid="aB1440000000_250").get("known", True)
    assert client.finds_nothing("new")


def test_a_delivery_of_what_is_gone_changes_nothing(broker: Broker, client: Client) -> None:
    uid = client.publish(Q)
    queue_id = broker.queue(Q).ledger.id
    client.call("ACK", Q, uid=uid)

    broker.raft_log.tell(Propose([(Delivered(Q, queue_id, [1], [broker.now_ms() + 5], 9), None)]))
    broker.settle()

    assert broker.queue(Q).ledger.out == 0
    assert ANY_TOKEN == (0, 0)
    broker.check(Q)


def test_a_lease_from_before_a_crash_of_its_queue_is_older_than_any_after_it(
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


@pytest.mark.parametrize("lease", ["fast", "strict"])
def test_a_delivery_on_its_way_when_its_queue_crashes_is_not_made_twice(
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


def test_a_stored_message_that_is_damaged_ends_the_node_and_says_so(broker: Broker, client: Client) -> None:
    uid = client.publish(Q, "m")
    broker.flush()
    broker.crash_and_restart()
    store = broker.queues._store
    (value,) = store.get_many([f"{Q}-{uid}".encode()])
    assert value is not None
    applied = store.applied()
    damaged = value[:-1] + b"!"
    cut = Cut(applied.log_index, applied.term, applied.clock_ms, [(MESSAGES, [(f"{Q}-{uid}".encode(), damaged)])])
    store.commit(cut)
    broker.may_fail = True

    broker.client().send({"cmd": "FET", "qname": Q})
    broker.settle()

    assert "checksum" in str(broker.failures[0])


def test_what_a_queue_is_told_before_it_has_its_turn_is_applied_once(broker: Broker, client: Client) -> None:
    uid = client.publish("source")
    follow_ups = [{"qname": "new", "message": str(number)} for number in range(3)]

    reply = client.call("ACK", "source", uid=uid, publish=follow_ups)

    assert len(reply["published"]) == 3
    assert client.figures("new")["published"] == 3
    assert [client.fetch("new")["msg"] for _ in range(3)] == ["0", "1", "2"]
    assert client.finds_nothing("new")
