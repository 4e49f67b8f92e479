"""Fetching: whom one round of commands is delivered to, and what a crash in the middle of that leaves behind."""

from typing import Any

import pytest

from tests.helpers.brokers.broker import Asked, Broker, Client
from tests.helpers.brokers.by_hand import Json
from tests.helpers.steps import steps
from wakeq.actors.queue import fetching, outgoing, reading, waiting
from wakeq.actors.queue.process import QueueProcess
from wakeq.actors.sessions.operator_mail import Requeue

Q = "q"
FET: Json = {"cmd": "FET", "qname": Q}


def crash_at(monkeypatch: pytest.MonkeyPatch, owner: Any, step: str, call: int) -> None:
    """Let one step of fetching raise the so many'th time that it is taken."""
    sound, calls = getattr(owner, step), [0]

    def crashing(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == call:
            raise ZeroDivisionError("a bug")
        return sound(*arguments)

    monkeypatch.setattr(owner, step, crashing)


# --- one round ---------------------------------------------------------------------------------------------------


def test_message_acknowledged_in_the_round_of_a_fetch_is_not_delivered(broker: Broker, client: Client) -> None:
    """Rules 6 and 7: acknowledgements are marked first, whichever command came first."""
    uid = client.publish(Q, "1")
    client.publish(Q, "2")
    fetches = broker.client()
    broker.log_disk.held = True

    fetches.send(FET)
    client.send({"cmd": "ACK", "qname": Q, "uid": uid})
    broker.settle()

    assert [reply["msg"] for reply in fetches.take()] == ["2"]
    broker.log_disk.held = False
    broker.log_disk.complete()
    assert client.words() == ["okack"]
    broker.check(Q)


def test_fetches_of_many_connections_are_served_in_the_order_of_filing(broker: Broker, client: Client) -> None:
    """Rule 8: a fetch that comes when the line is empty gets nothing."""
    client.call("PUB", Q, messages=[str(number) for number in range(7)])
    workers = [broker.client() for _ in range(4)]

    for worker in workers:
        worker.send({**FET, "count": 2}, FET)
    broker.settle()

    got = [[m["msg"] for r in worker.take() for m in r.get("messages", [r]) if "msg" in m] for worker in workers]
    assert got == [["0", "1", "2"], ["3", "4", "5"], ["6"], []]
    broker.check(Q)


@pytest.mark.parametrize("policy", ["fast", "strict"])
def test_fetches_of_one_round_are_one_entry(broker: Broker, client: Client, policy: str) -> None:
    client.call("CREATE", Q, lease=policy)
    client.call("PUB", Q, messages=["a", "b", "c"])
    broker.advance(0.1)
    before = broker.raft_log.core.log.last_index
    workers = [broker.client() for _ in range(3)]

    for worker in workers:
        worker.send(FET)
    broker.settle()
    broker.advance(0.1)

    assert [reply["msg"] for worker in workers for reply in worker.take()] == ["a", "b", "c"]
    assert broker.raft_log.core.log.last_index - before == 1


def test_sleeper_that_leaves_and_joins_again_in_one_read_is_woken(
    broker: Broker, client: Client, worker: Client
) -> None:
    client.publish(Q, delay=100)
    worker.fall_asleep(Q)

    words = [reply["cmd"] for reply in worker.ask(*({"cmd": cmd, "qname": Q} for cmd in ("UNS", "SUB", "ISLP")))]
    client.publish(Q)

    assert words == ["okuns", "oksub", "okslp"]
    assert worker.words() == ["awk"]
    broker.check(Q)


def test_fetch_of_a_connection_that_ended_in_its_round_takes_nothing(
    broker: Broker, client: Client, worker: Client
) -> None:
    """Rule 20."""
    client.publish(Q)
    worker.send(FET, {"cmd": "PUB", "qname": Q, "message": "accepted"})
    worker.alive = False
    worker.process.stop()
    broker.settle()

    assert [reply["msg"] for reply in client.ask(FET, FET)] == ["hi", "accepted"]


@pytest.mark.parametrize("ends", ["PURGE", "DROP"])
@pytest.mark.parametrize("fields", [{}, {"wait": 5}], ids=["at once", "waiting"])
def test_strict_delivery_committed_together_with_the_end_of_its_queue_is_answered(
    broker: Broker, client: Client, worker: Client, ends: str, fields: Json
) -> None:
    client.call("CREATE", Q, lease="strict")
    client.publish(Q)

    worker.send({**FET, **fields})
    client.send({"cmd": ends, "qname": Q})
    broker.settle()
    broker.advance(6)

    assert broker.runtime.failures == 0
    assert worker.words() in (["msg"], ["nomsg"])


# --- a crash in the middle of a turn (rule 16) -----------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fast", "strict"])
@pytest.mark.parametrize(
    ("owner", "step"),
    [(fetching, "_deliveries"), (fetching, "_serve_one"), (fetching, "take"), (QueueProcess, "refusal")],
)
@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("fields", [{}, {"timeout": 3000}], ids=["together", "singly"])
def test_fetches_in_hand_of_a_queue_that_crashes_get_their_message_or_leave_it_to_the_next(
    broker: Broker,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
    owner: Any,
    step: str,
    call: int,
    fields: Json,
) -> None:
    client.call("CREATE", Q, lease=policy)
    client.call("PUB", Q, messages=["1", "2", "3"])
    workers = [broker.client() for _ in range(3)]
    crash_at(monkeypatch, owner, step, call)

    for worker in workers:
        worker.send({**FET, **fields})
    broker.settle()

    replies = [reply for worker in workers for reply in worker.take()]
    got = [reply["msg"] for reply in replies if reply["cmd"] == "msg"]
    while (reply := client.call("FET", Q))["cmd"] == "msg":
        got.append(reply["msg"])
    assert len(replies) == 3, "each is answered once"
    assert sorted(got) == ["1", "2", "3"], "what was answered with nothing is delivered to nobody"
    broker.check(Q)


@pytest.mark.parametrize(("owner", "step"), [(waiting, "sleep"), (fetching, "_deliveries")])
def test_islp_in_hand_of_a_queue_that_crashes_is_woken_right_behind_its_okslp(
    broker: Broker, client: Client, worker: Client, monkeypatch: pytest.MonkeyPatch, owner: Any, step: str
) -> None:
    """Nobody else would wake it: the rebuilt queue does not know of it."""
    client.publish(Q)
    worker.call("SUB", Q)
    crash_at(monkeypatch, owner, step, 1)

    words = [reply["cmd"] for reply in worker.ask(FET, {"cmd": "ISLP", "qname": Q})]

    assert words[-2:] == ["okslp", "awk"]


def test_strict_delivery_on_its_way_to_a_waiting_fetch_outlives_a_crash_of_its_queue(
    broker: Broker, client: Client, worker: Client
) -> None:
    client.call("CREATE", Q, lease="strict")
    client.publish(Q, "m")
    broker.log_disk.held = True
    worker.send({**FET, "wait": 5})
    broker.settle()

    broker.queue(Q).tell("nothing that a queue knows")
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()
    broker.advance(6)

    assert broker.runtime.failures == 1
    assert len(worker.take()) == 1
    broker.advance(60)
    assert client.fetch(Q)["msg"] == "m"


def test_commands_filed_while_a_queue_is_rebuilt_are_done_by_the_rebuilt_one(
    broker: Broker, client: Client, worker: Client
) -> None:
    """The lanes belong to the name."""
    uid = client.publish(Q, "before")
    client.fetch(Q)
    broker.state_disk.held = True
    broker.queue(Q).tell("nothing that a queue knows")
    broker.settle()

    client.send({"cmd": "ACK", "qname": Q, "uid": uid}, {"cmd": "PUB", "qname": Q, "message": "meanwhile"}, FET)
    worker.send({"cmd": "NACK", "qname": Q, "uid": "no such message"})
    broker.settle()
    early = client.take() + worker.take()
    broker.state_disk.held = False
    broker.state_disk.complete()

    assert early == []
    assert [reply.get("msg", reply["cmd"]) for reply in client.take()] == ["okack", "ok", "meanwhile"]
    assert worker.words() == ["oknack"]
    broker.check(Q)


def test_fetches_that_take_more_than_one_entry_may_hold_are_served_in_several(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "TOGETHER_MAX", 5)
    sizes: list[int] = []
    note = outgoing.note_delivered

    def noted(queue: QueueProcess, numbers: list[int], *about: Any) -> None:
        sizes.append(len(numbers))
        note(queue, numbers, *about)

    monkeypatch.setattr(outgoing, "note_delivered", noted)
    client.ask(*[{"cmd": "PUB", "qname": Q, "message": str(number)} for number in range(14)])

    replies = client.ask(*[{"cmd": "FET", "qname": Q, "count": count} for count in (2, 2, 6, 2, 2)])

    assert [len(reply["messages"]) for reply in replies] == [2, 2, 6, 2, 2]
    assert sizes == [4, 6, 4]


def test_waiting_fetches_that_end_together_do_not_look_at_each_other(broker: Broker, client: Client) -> None:
    """They may be 16,384, and end in one turn."""
    client.call("CREATE", Q)

    def end(count: int) -> int:
        """Return what it takes to end so many."""
        client.send(*[{"cmd": "FET", "qname": Q, "wait": 5} for _ in range(count)])
        broker.settle()
        replies: list[Json] = []
        taken = steps(lambda: replies.extend(client.ask({"cmd": "PING"})))
        assert [reply["cmd"] for reply in replies] == ["nomsg"] * count + ["pong"]
        return taken

    assert end(200) < 5 * end(50)


def test_queue_whose_bodies_are_in_memory_seldom_looks_whether_to_read_on(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.call("PUB", Q, messages=["m"] * 4 * reading.BODIES_AHEAD)
    looks: list[QueueProcess] = []
    monkeypatch.setattr(
        reading, "read_on", lambda queue, read_on=reading.read_on: looks.append(queue) or read_on(queue)
    )

    for _ in range(2 * reading.BODIES_AHEAD):
        client.fetch(Q)

    assert len(looks) == 4


# --- times -------------------------------------------------------------------------------------------------------


def waits_of(broker: Broker) -> tuple[int, int]:
    """Return the number of counted deliveries of the queue, and for how many seconds their messages were ready."""
    timings = broker.queue(Q).timings
    assert timings is not None
    assert broker.assembly.timings.waits == timings.waits, "there is one queue only"
    assert broker.assembly.timings.waited_ms == timings.waited_ms
    return sum(timings.waits), round(timings.waited_ms / 1000)


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("stored", [False, True], ids=["body in memory", "body in the store"])
def test_wait_is_counted_from_the_publication_to_the_delivery(
    broker: Broker, client: Client, count: int, stored: bool
) -> None:
    for _ in range(count):
        client.publish(Q)
    if stored:
        broker.flush()
        broker.crash()
        broker.start()
        client = broker.client()
    broker.advance(3)

    client.call("FET", Q, count=count)

    assert waits_of(broker) == (count, 3 * count)


def test_wait_of_a_delayed_message_begins_when_it_is_due(broker: Broker, client: Client) -> None:
    client.publish(Q, delay=10)
    broker.advance(12)

    client.fetch(Q)

    assert waits_of(broker) == (1, 2)


def test_wait_of_a_returned_message_begins_with_its_return(broker: Broker, client: Client) -> None:
    client.publish(Q)
    broker.advance(7)
    message = client.fetch(Q)
    broker.advance(5)
    client.call("NACK", Q, uid=message["uid"], lease=message["lease"], delay=0)
    broker.advance(2)

    client.fetch(Q)

    assert waits_of(broker) == (2, 7 + 2)
    assert not broker.queue(Q).leases.ready_since


def test_wait_of_a_retried_message_begins_when_the_retry_is_due(broker: Broker, client: Client) -> None:
    client.publish(Q)
    message = client.fetch(Q)
    client.call("NACK", Q, uid=message["uid"], lease=message["lease"], delay=10)
    broker.advance(14)

    client.fetch(Q)

    assert waits_of(broker) == (2, 4)


def test_wait_of_a_message_that_an_operator_made_ready_begins_then(broker: Broker, client: Client) -> None:
    uid = client.publish(Q, delay=100)
    broker.advance(20)
    broker.queue(Q).tell(Requeue(Asked(broker.runtime), Q, [uid]))
    broker.advance(3)

    client.fetch(Q)

    assert waits_of(broker) == (1, 3)


def test_wait_that_began_before_this_node_led_is_left_out_if_nobody_knows_its_beginning(
    broker: Broker, client: Client
) -> None:
    client.publish(Q)
    message = client.fetch(Q)
    client.call("NACK", Q, uid=message["uid"], lease=message["lease"], delay=0)
    broker.crash()
    broker.start()

    broker.client().fetch(Q)

    assert waits_of(broker) == (0, 0)


def test_work_is_counted_from_the_last_delivery_to_the_acknowledgement(broker: Broker, client: Client) -> None:
    client.publish(Q, timeout=5)
    client.fetch(Q)
    broker.advance(6)
    message = client.fetch(Q, timeout=60)
    broker.advance(3)
    client.call("TOUCH", Q, uid=message["uid"], lease=message["lease"], timeout=90)
    broker.advance(4)

    client.call("ACK", Q, uid=message["uid"], lease=message["lease"])

    timings = broker.queue(Q).timings
    assert timings is not None
    assert (sum(timings.works), round(timings.worked_ms / 1000)) == (1, 7)
    assert broker.assembly.timings.works == timings.works


def test_message_that_is_removed_otherwise_counts_as_no_work(broker: Broker, client: Client) -> None:
    client.publish(Q)
    client.publish(Q, expires=5)
    message = client.fetch(Q)
    client.call("NACK", Q, uid=message["uid"], lease=message["lease"], dead=True)
    broker.advance(10)

    timings = broker.queue(Q).timings
    assert timings is not None
    assert client.figures(Q)["size"] == 0
    assert sum(timings.works) == 0


def test_thing_that_is_remembered_of_a_ready_message_goes_with_it(broker: Broker, client: Client) -> None:
    uid = client.publish(Q)
    message = client.fetch(Q)
    client.call("NACK", Q, uid=uid, lease=message["lease"], delay=0)
    remembered = len(broker.queue(Q).leases.ready_since)

    client.call("DEL", Q, uid=uid)

    assert (remembered, len(broker.queue(Q).leases.ready_since)) == (1, 0)
