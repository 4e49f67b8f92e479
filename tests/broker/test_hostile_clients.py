"""What one client can do: nothing of it ends the node, loses a message, or holds up the others."""

from base64 import b64encode

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.loops.recorder import serve_one
from tests.helpers.steps import steps
from wakeq.actors.mail import Propose
from wakeq.actors.queue import process as queue
from wakeq.protocol.log.entries import ANY_TOKEN, Ack, Draft, Publish
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.uid import parse
from wakeq.protocol.wire.worker.blocks import pack

Q = "q"
YEAR_S = 31_536_000


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every queue crash on one body."""
    apply = queue._APPLY[Publish]

    def fragile(self: queue.QueueProcess, entry: Publish, *moment: int) -> object:
        if any(draft.body == b"poison" for draft in entry.drafts):
            raise ValueError("poison")
        return apply(self, entry, *moment)

    monkeypatch.setitem(queue._APPLY, Publish, fragile)


def test_longest_timeout_delay_and_expiry_are_accepted_and_survive(broker: Broker, client: Client) -> None:
    client.publish(Q, timeout=YEAR_S, expires=10 * YEAR_S)
    client.publish(Q, delay=YEAR_S)
    broker.flush()

    broker.crash_and_restart()

    assert broker.client().figures(Q)["size"] == 2


def test_longest_id_is_accepted_and_survives(broker: Broker, client: Client) -> None:
    name = "\N{GRINNING FACE}" * 120
    uid = client.publish(Q, id=name)
    broker.flush()

    broker.crash_and_restart()

    assert broker.client().publish(Q, id=name) == uid


def test_entry_that_the_log_has_no_room_for_is_refused(broker: Broker, client: Client) -> None:
    broker.raft_log.tell(Propose([Proposal(Publish(Q, [Draft(b"", priority=1 << 70)]), None)]))

    uid = client.publish(Q)

    assert client.fetch(Q)["uid"] == uid


def test_stop_in_the_middle_of_an_entry_for_several_queues_loses_nothing(broker: Broker, client: Client) -> None:
    client.publish("from")
    uid = client.fetch("from")["uid"]
    broker.advance(1)
    broker.state_disk.held = True
    broker.queues.flush_now(lambda: None)
    broker.settle()

    client.send({"cmd": "ACK", "qname": "from", "uid": uid, "publish": [{"qname": "to", "message": "next"}]})
    while not any(type(mail).__name__ == "Committed" for mail in broker.queues._mail or ()):
        serve_one(broker.runtime)
    broker.state_disk.complete()  # the end of the cut comes right behind the entry
    broker.state_disk.held = False
    broker.settle()
    reply = client.take()[0]
    broker.crash_and_restart()

    again = broker.client()
    assert reply["cmd"] == "okack"
    assert again.fetch("to")["msg"] == "next"
    assert again.finds_nothing("from")


@pytest.mark.usefixtures("poison")
@pytest.mark.parametrize("held_up_by", ["a cut", "a barrier"])
def test_queue_that_crashes_for_good_does_not_delay_other_queues(directory: object, held_up_by: str) -> None:
    broker = Broker(directory, flush_bytes=1_000 if held_up_by == "a cut" else 1 << 24)  # type: ignore[arg-type]
    client = broker.client()
    client.publish(Q)
    uid = client.publish("p")
    client.send(
        {"cmd": "PUB", "qname": "z", "message": "y" * 2_000},
        {"cmd": "PUB", "qname": Q, "message": "poison"},
        {
            "cmd": "ACK",
            "qname": "p",
            "uid": uid,
            "publish": [{"qname": "r", "message": "n"}, {"qname": Q, "message": "n"}],
        },
    )
    broker.settle()
    broker.advance(5)

    other = broker.client()

    assert other.publish("other")
    assert other.fetch("other")["cmd"] == "msg"
    broker.close()


def test_lease_whose_end_was_refused_ends_a_little_later(broker: Broker, client: Client) -> None:
    client.call("CREATE", "letters", max_size=0)
    client.call("CREATE", Q, max_deliveries=1, dead_letter="letters", timeout=5)
    uid = client.publish(Q)
    client.fetch(Q)
    leases = broker.queue(Q).leases
    assert leases is not None
    leases.mark_ending([1])  # an acknowledgement is on its way when the lease runs out ...
    broker.advance(5.5)
    leases.keep_leased([1], broker.now_ms())  # ... and is refused

    broker.advance(5)

    assert client.fetch("letters")["headers"]["wakeq-origin-uid"] == uid


def test_queues_that_come_and_go_leave_nothing_behind(broker: Broker, client: Client) -> None:
    for number in range(50):
        client.call("CREATE", f"reply-{number}")
        client.call("DROP", f"reply-{number}")
    broker.flush()
    broker.advance(1)

    assert len(broker.queues.processes.by_name) <= 2


@pytest.mark.parametrize(
    "headers", [b"\x81\xa1a\xa1\xff", b"\x81\xa1\xff\xa1a", b"\x81\xa1a\x01", b"\x81\xa1a" + b"\x91" * 5_000]
)
def test_headers_of_a_block_that_are_no_texts_are_refused(broker: Broker, client: Client, headers: bytes) -> None:
    block = b64encode(pack([("body", [b"x"]), ("headers", [headers])])).decode()

    reply = client.call("PUBB", Q, rows=1, columns=["body", "headers"], block=block)

    assert reply["err"] == "BAD_FIELD"
    assert "a MessagePack map of texts" in reply["detail"]


def test_headers_count_like_bodies(broker: Broker, client: Client) -> None:
    client.call("CREATE", Q, max_bytes=10_000)
    headers = {"k": "v" * 6_000}

    first = client.call("PUB", Q, message="", headers=headers)
    second = client.call("PUB", Q, message="", headers=headers)
    huge = client.call("PUB", "other", messages=[""] * 10_000, headers={"k": "v" * 16_000})

    assert (first["cmd"], second["err"], huge["err"]) == ("ok", "QUEUE_FULL", "TOO_LARGE")


def test_read_full_of_pings_costs_in_proportion_to_its_length(broker: Broker) -> None:
    clients: list[Client] = []
    broker.log_disk.held = True

    def cost_of(pings: int) -> int:
        clients.append(client := broker.client())
        client.send({"cmd": "PUB", "qname": Q, "message": "m"}, *[{"cmd": "PING"}] * pings)
        return steps(broker.settle)

    assert cost_of(2_000) < 9 * cost_of(250), "each command would look at all before it"
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert [len(client.take()) for client in clients] == [2_001, 251]


def test_subscriber_that_ends_in_the_turn_in_which_it_came_leaves_nothing_behind(broker: Broker) -> None:
    for number in range(20):
        client = broker.client()
        client.send({"cmd": "SUB", "qname": f"n{number}"}, {"cmd": "ISLP", "qname": f"n{number}"})
        client.close()
    broker.settle()
    broker.advance(1)

    assert [name for name in broker.queues.processes.by_name if name.startswith("n")] == []


def test_acknowledgements_with_follow_ups_in_one_read_leave_the_connection_free(broker: Broker, client: Client) -> None:
    uids = [client.publish(Q) for _ in range(2)]
    client.send(*[{"cmd": "ACK", "qname": Q, "uid": uid, "publish": [{"qname": "r", "message": "n"}]} for uid in uids])
    client.send({"cmd": "FET", "qname": "r"}, {"cmd": "PING"})

    assert [reply["cmd"] for reply in client.take()] == ["okack", "okack", "msg", "pong"]


@pytest.mark.parametrize("end", ["DROP", "PURGE"])
def test_strict_delivery_behind_the_end_of_its_queue_is_no_message(broker: Broker, client: Client, end: str) -> None:
    client.call("CREATE", Q, lease="strict")
    client.publish(Q)
    broker.log_disk.held = True
    other = broker.client()
    other.send({"cmd": end, "qname": Q})
    broker.settle()

    client.send({"cmd": "FET", "qname": Q}, {"cmd": "PING"})
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert [reply["cmd"] for reply in client.take()] == ["nomsg", "pong"]


@pytest.mark.parametrize("wait", [0, 5])
def test_strict_delivery_behind_an_acknowledgement_leaves_out_the_acknowledged_message(
    broker: Broker, client: Client, wait: int
) -> None:
    """An acknowledgement by the uid alone may be in the log before the queue hears of it."""
    client.call("CREATE", Q, lease="strict")
    numbers = [parse(client.publish(Q, message))[1] for message in ("taken away", "stays")]  # type: ignore[index]
    broker.log_disk.held = True
    ack = Ack(Q, broker.queue(Q).ledger.id, [numbers[0]], [ANY_TOKEN])
    broker.raft_log.tell(Propose([Proposal(ack, None)]))
    broker.settle()

    client.send({"cmd": "FET", "qname": Q, "count": 2, "wait": wait})
    late = broker.client()
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert [message["msg"] for message in client.take()[0]["messages"]] == ["stays"]
    assert late.finds_nothing(Q)


@pytest.mark.parametrize(("wait", "said"), [(0, ["nomsg"]), (5, [])])
def test_strict_delivery_of_a_message_acknowledged_before_it_is_not_sent(
    broker: Broker, client: Client, wait: int, said: list[str]
) -> None:
    client.call("CREATE", Q, lease="strict")
    number = parse(client.publish(Q))[1]  # type: ignore[index]
    broker.log_disk.held = True
    broker.raft_log.tell(Propose([Proposal(Ack(Q, broker.queue(Q).ledger.id, [number], [ANY_TOKEN]), None)]))
    broker.settle()

    client.send({"cmd": "FET", "qname": Q, "wait": wait})
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert client.words() == said
    broker.client().publish(Q, "another")
    assert [reply["msg"] for reply in client.take()] == (["another"] if wait else [])


@pytest.mark.parametrize("goes_on", [False, True])
def test_waiting_fetch_goes_on_waiting_if_its_strict_delivery_is_behind_a_purge(
    broker: Broker, client: Client, goes_on: bool
) -> None:
    client.call("CREATE", Q, lease="strict")
    client.publish(Q)
    broker.log_disk.held = True
    other = broker.client()
    other.send({"cmd": "PURGE", "qname": Q})
    broker.settle()

    client.send({"cmd": "FET", "qname": Q, "wait": 5}, *[{"cmd": "PING"}] * goes_on)
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()
    broker.client().publish(Q)

    assert client.words() == (["nomsg", "pong"] if goes_on else ["msg"])
