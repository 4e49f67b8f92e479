"""WorkerSession: one connection: what waits, what ends a wait, and what its end does."""

import json

import pytest

from tests.helpers.brokers.broker import Broker, Client
from tests.helpers.brokers.by_hand import Json
from wakeq.actors.queue import outgoing
from wakeq.actors.sessions.door import IN_FLIGHT_MAX, KEPT_BYTES_MIN, Received
from wakeq.protocol.wire.lines import LineTooLong
from wakeq.protocol.wire.worker import codec as wire
from wakeq.protocol.wire.worker.conversation import BAD_LINES_MAX, GOOD_FOR_BAD

Q = "q"
PING: Json = {"cmd": "PING"}


def fet(**fields: object) -> Json:
    return {"cmd": "FET", "qname": Q, **fields}


# FET with wait ----------------------------------------------------------------------------------------------------


def test_fetch_that_waits_is_answered_by_the_first_message(broker: Broker, client: Client, worker: Client) -> None:
    client.publish(Q, "first")
    client.fetch(Q)

    worker.send(fet(wait=10))
    nothing = worker.take()
    client.publish(Q, "second")

    assert nothing == []
    assert [reply["msg"] for reply in worker.take()] == ["second"]
    broker.check(Q)


@pytest.mark.parametrize(
    ("idle", "hears"),
    [([fet(wait=10)], "msg"), ([{"cmd": "SUB", "qname": Q}, {"cmd": "ISLP", "qname": Q}], "awk")],
    ids=["waits", "sleeps"],
)
def test_waiting_fetch_or_sleeper_is_answered_before_the_publisher(
    broker: Broker, client: Client, worker: Client, monkeypatch: pytest.MonkeyPatch, idle: list[Json], hears: str
) -> None:
    """The publisher only wants to know that it is safe; how soon a job begins is what people measure."""
    worker.ask(*idle)
    order: list[str] = []
    for connection in (client, worker):
        monkeypatch.setattr(connection.door, "told", lambda reply: order.append(reply["cmd"]))

    client.send({"cmd": "PUB", "qname": Q, "message": "hi"})
    broker.settle()

    assert order == [hears, "ok"]


def test_fetch_that_waits_is_answered_by_nomsg_when_its_time_is_over(broker: Broker, worker: Client) -> None:
    worker.send({"cmd": "SUB", "qname": Q}, fet(wait=10))
    worker.take()

    broker.advance(9.95)
    early = worker.take()
    broker.advance(0.1)

    assert early == []
    assert worker.words() == ["nomsg"]


def test_waiting_fetches_are_served_in_their_order(broker: Broker, client: Client) -> None:
    workers = [broker.client() for _ in range(3)]
    for worker in workers:
        worker.ask({"cmd": "SUB", "qname": Q})
        worker.ask(fet(wait=10))

    client.publish(Q, "1")
    client.publish(Q, "2")

    assert [[r["msg"] for r in worker.take()] for worker in workers] == [["1"], ["2"], []]


@pytest.mark.parametrize("together", [True, False], ids=["in one read", "in two reads"])
@pytest.mark.parametrize("ender", [PING, {"cmd": "FET", "qname": Q}, {"cmd": "SUB", "qname": "x"}])
def test_wait_without_cmd_id_ends_with_any_further_command(worker: Client, ender: Json, together: bool) -> None:
    worker.ask({"cmd": "SUB", "qname": Q})

    replies = worker.ask(fet(wait=60), ender) if together else worker.ask(fet(wait=60)) + worker.ask(ender)

    assert replies[0]["cmd"] == "nomsg"
    assert len(replies) == 2


@pytest.mark.parametrize("together", [True, False], ids=["in one read", "in two reads"])
def test_wait_does_not_end_with_another_waiting_fetch(
    broker: Broker, client: Client, worker: Client, together: bool
) -> None:
    worker.ask({"cmd": "SUB", "qname": Q})
    if together:
        worker.ask(fet(wait=60), fet(wait=60))
    else:
        worker.ask(fet(wait=60))
        worker.ask(fet(wait=60))

    client.publish(Q, "1")
    client.publish(Q, "2")

    assert [reply["msg"] for reply in worker.take()] == ["1", "2"]


def test_fetch_without_wait_ends_the_waits_of_its_own_read_and_of_earlier_ones(worker: Client) -> None:
    worker.ask({"cmd": "SUB", "qname": Q})
    waiting = worker.ask(fet(wait=60))

    replies = worker.ask(fet(wait=60), {"cmd": "FET", "qname": Q})

    assert waiting == []
    assert [reply["cmd"] for reply in replies] == ["nomsg"] * 3


def test_wait_that_begins_behind_a_publish_is_ended_too(broker: Broker, worker: Client) -> None:
    broker.log_disk.held = True
    worker.send({"cmd": "PUB", "qname": Q, "message": "m", "delay": 100}, fet(wait=60), PING)
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert worker.words() == ["ok", "nomsg", "pong"]


def test_wait_with_cmd_id_does_not_hold_up_the_answers_behind_it(client: Client, worker: Client) -> None:
    worker.ask({"cmd": "SUB", "qname": Q})

    at_once = worker.ask(fet(wait=60, cmd_id="w"), PING, {"cmd": "SUB", "qname": "x"})
    client.publish(Q, "m")

    assert [reply["cmd"] for reply in at_once] == ["pong", "oksub"]
    assert [(reply["cmd"], reply["cmd_id"]) for reply in worker.take()] == [("msg", "w")]


def test_leaving_the_group_leaves_no_fetch_without_an_answer(broker: Broker, client: Client, worker: Client) -> None:
    worker.ask({"cmd": "SUB", "qname": Q}, fet(wait=10, cmd_id=1))

    replies = worker.ask({"cmd": "UNS", "qname": Q})
    broker.advance(11)
    replies += worker.take()

    assert sorted(reply["cmd"] for reply in replies) == ["nomsg", "okuns"]


def test_wait_is_ended_although_the_queue_had_no_process_when_it_began(broker: Broker, worker: Client) -> None:
    worker.send({"cmd": "SUB", "qname": Q}, fet(wait=60))
    worker.send(PING)

    assert worker.words() == ["oksub", "nomsg", "pong"]


def test_wake_never_overtakes_the_okslp_that_it_belongs_to(broker: Broker, client: Client, worker: Client) -> None:
    client.publish(Q)
    broker.log_disk.held = True

    worker.send({"cmd": "PUB", "qname": "other", "message": "m"}, {"cmd": "ISLP", "qname": Q})
    broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert worker.words() == ["ok", "okslp", "awk"]


# The end of a connection ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "after_s"), [("keep", 30), ("release", 0)])
def test_messages_leased_by_a_closed_connection_come_back_by_the_policy_of_the_queue(
    broker: Broker, client: Client, worker: Client, policy: str, after_s: int
) -> None:
    client.call("CREATE", Q, on_disconnect=policy)
    client.publish(Q, timeout=30)
    worker.fetch(Q)
    worker.close()

    at_once = client.call("FET", Q)["cmd"]
    broker.advance(after_s + 0.1)

    assert at_once == ("msg" if policy == "release" else "nomsg")
    assert client.figures(Q)["delivered"] == (2 if policy == "release" else 1)
    assert policy == "release" or client.fetch(Q)["error_count"] == 1


@pytest.mark.parametrize(("before", "after"), [("keep", "release"), ("release", "keep")])
def test_update_of_the_disconnect_policy_counts_for_existing_leases(
    broker: Broker, client: Client, worker: Client, before: str, after: str
) -> None:
    client.call("CREATE", Q, on_disconnect=before)
    client.publish(Q, timeout=30)
    worker.fetch(Q)
    client.call("UPDATE", Q, on_disconnect=after)

    worker.close()
    broker.settle()

    assert client.call("FET", Q)["cmd"] == ("msg" if after == "release" else "nomsg")
    broker.check(Q)


def test_message_for_a_connection_that_has_just_ended_goes_to_the_next(
    broker: Broker, client: Client, worker: Client
) -> None:
    client.publish(Q)

    worker.send(fet())
    worker.process.stop()
    broker.settle()

    broker.check(Q)
    broker.advance(60)
    assert client.fetch(Q)


def test_sleeper_that_comes_while_the_last_one_leaves_is_not_forgotten(broker: Broker, client: Client) -> None:
    leaves, comes = broker.client(), broker.client()
    leaves.ask({"cmd": "SUB", "qname": Q}, {"cmd": "ISLP", "qname": Q})

    leaves.alive = False
    leaves.process.stop()
    comes.send({"cmd": "SUB", "qname": Q}, {"cmd": "ISLP", "qname": Q})
    broker.settle()
    client.publish(Q)

    assert "awk" in comes.words()


# What belongs to the connection -----------------------------------------------------------------------------------


def test_queue_that_was_not_created_is_unknown_until_a_client_subscribes_to_it(client: Client, worker: Client) -> None:
    before = client.call("FET", Q)
    worker.call("SUB", Q)
    meanwhile = [worker.call("FET", Q)["cmd"], client.call("FET", Q)["cmd"], client.call("ISLP", Q)["cmd"]]
    rows = client.call("LIST")["queues"]
    worker.call("UNS", Q)
    client.call("UNS", Q)

    assert before["err"] == "Q_NOT_FOUND"
    assert meanwhile == ["nomsg", "nomsg", "okslp"]
    assert [row["qname"] for row in rows] == [""]
    assert client.call("FET", Q)["err"] == "Q_NOT_FOUND"


def test_reading_pauses_while_too_much_is_under_way(broker: Broker, client: Client) -> None:
    broker.log_disk.held = True
    client.send(*[{"cmd": "PUB", "qname": Q, "message": "m"}] * (IN_FLIGHT_MAX + 1))
    broker.settle()
    paused = client.door.paused
    broker.log_disk.held = False
    broker.log_disk.complete()

    replies = client.take()

    assert paused
    assert not client.door.paused
    assert len(replies) == IN_FLIGHT_MAX + 1


def test_list_behind_a_create_sees_the_queue(client: Client) -> None:
    replies = client.ask({"cmd": "CREATE", "qname": Q}, {"cmd": "LIST"})

    assert [row["qname"] for row in replies[1]["queues"]] == ["", Q]


def test_cmd_id_is_echoed_whatever_it_is(client: Client) -> None:
    replies = client.ask(*[{"cmd": "PING", "cmd_id": value} for value in (0, "", None, 1.5, True, "x")])

    assert [reply["cmd_id"] for reply in replies] == [0, "", None, 1.5, True, "x"]


# Publishing once --------------------------------------------------------------------------------------------------


def test_publish_with_an_id_is_stored_once_within_the_window(broker: Broker, client: Client) -> None:
    first = client.publish(Q, id="once")
    client.call("ACK", Q, uid=first)

    again = client.publish(Q, id="once")
    broker.advance(14 * 60)
    late = client.publish(Q, id="once")
    broker.advance(61)
    after = client.publish(Q, id="once")

    assert again == late == first
    assert after != first
    assert client.figures(Q)["published"] == 2


def test_numbered_publish_is_stored_once_after_a_restart_too(broker: Broker, client: Client) -> None:
    client.call("HELLO", session="s")
    first = client.publish(Q, n=1)
    broker.flush()
    second = client.publish(Q, n=2)
    broker.crash_and_restart()
    client = broker.client()
    client.call("HELLO", session="s")

    again = [client.publish(Q, n=n) for n in (1, 2)]

    assert again == [first, second]
    assert client.figures(Q)["ready"] == 2


def test_reading_pauses_while_many_bytes_are_under_way_and_goes_on_when_all_are_answered(
    broker: Broker, client: Client
) -> None:
    door = client.door
    broker.log_disk.held = True
    line = json.dumps({"cmd": "PUB", "qname": Q, "message": "x" * 1_000_000}).encode()

    for _ in range(20):
        client.process.tell(Received(wire.decode(line + b"\n"), len(line)))
        broker.settle()
    paused = door.paused
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert (paused, door.paused) == (True, False)


# The end of a connection that cannot be read any further --------------------------------------------------------------


@pytest.mark.parametrize("before", [[], [fet()], [{"cmd": "ISLP", "qname": Q}, fet(wait=10)]])
def test_connection_is_closed_when_all_that_came_before_is_answered(
    broker: Broker, client: Client, before: list[Json]
) -> None:
    client.call("CREATE", Q)
    broker.log_disk.held = True
    client.send({"cmd": "PUB", "qname": Q, "message": "m", "delay": 9}, *before)
    client.process.tell(Received([wire.Bad(LineTooLong(7, b""))]))
    early = client.words(), client.door.closed
    broker.log_disk.held = False
    broker.log_disk.complete()

    words = client.words()

    assert early == ([], "")
    assert (words[0], words[-1], len(words)) == ("ok", "nok", 2 + len(before))
    assert client.door.closed == LineTooLong.code


# What waits for what stands before it -----------------------------------------------------------------------------


def test_publishes_that_come_one_by_one_while_one_is_under_way_become_one_entry(broker: Broker, client: Client) -> None:
    client.publish(Q, "before")
    log = broker.assembly.files.log
    broker.log_disk.held = True
    before = log.last_index

    for number in range(50):
        client.send({"cmd": "PUB", "qname": Q, "message": str(number), "cmd_id": number})
        broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()
    replies = client.take()

    assert [reply["cmd_id"] for reply in replies] == list(range(50))
    assert log.last_index - before == 2
    assert [client.fetch(Q)["msg"] for _ in range(51)] == ["before", *map(str, range(50))]


def test_publishes_of_one_read_to_several_queues_are_an_entry_for_each_and_are_answered_in_their_order(
    broker: Broker, client: Client
) -> None:
    names = ["a", "b", "a", "c", "b", "a"]
    for name in "abc":
        client.call("CREATE", name)
    log = broker.assembly.files.log
    before = log.last_index

    published = [{"cmd": "PUB", "qname": name, "message": str(place)} for place, name in enumerate(names)]
    replies = client.ask(*published)
    entries = log.last_index - before
    found = {name: [client.fetch(name) for _ in range(names.count(name))] for name in "abc"}

    assert entries == 3
    assert [reply["qname"] for reply in replies] == names
    assert {name: [found["msg"] for found in mine] for name, mine in found.items()} == {
        "a": ["0", "2", "5"],
        "b": ["1", "4"],
        "c": ["3"],
    }
    assert [reply["uid"] for reply in replies] == [
        next(one["uid"] for one in found[name] if one["msg"] == str(place)) for place, name in enumerate(names)
    ]


@pytest.mark.parametrize(("limit", "size"), [("ENTRY_MESSAGES_MAX", 3), ("ENTRY_BYTES_MAX", 3)])
def test_publishes_that_wait_for_one_write_become_entries_of_bounded_size(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, limit: str, size: int
) -> None:
    monkeypatch.setattr(outgoing, limit, size)
    client.publish(Q, "before")
    log = broker.assembly.files.log
    broker.log_disk.held = True
    before = log.last_index

    for _ in range(7):
        client.send({"cmd": "PUB", "qname": Q, "message": "m"})
        broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()

    assert client.words() == ["ok"] * 7
    assert log.last_index - before == 3


def test_commands_of_one_kind_join_and_all_are_answered_in_their_order(broker: Broker, client: Client) -> None:
    client.publish(Q, "1")
    broker.log_disk.held = True

    for command in [
        {"cmd": "PUB", "qname": Q, "message": "2"},
        {"cmd": "FET", "qname": Q},
        {"cmd": "FET", "qname": Q},
        PING,
        {"cmd": "PUB", "qname": Q, "message": "3"},
        {"cmd": "PUB", "qname": "other", "message": "4"},
        {"cmd": "FET", "qname": Q},
    ]:
        client.send(command)
        broker.settle()
    broker.log_disk.held = False
    broker.log_disk.complete()
    replies = client.take()

    assert [reply["cmd"] for reply in replies] == ["ok", "msg", "msg", "pong", "ok", "ok", "msg"]
    assert [reply["msg"] for reply in replies if reply["cmd"] == "msg"] == ["1", "2", "3"]


# Lines that are no command ----------------------------------------------------------------------------------------

POST = b"POST / HTTP/1.1\r\n"
REST = b"Host: localhost:2601\r\nContent-Type: text/plain\r\n\r\n"
PUBLISH = b'{"cmd":"PUB","qname":"q","message":"forged"}\r\n'
UNKNOWN = b'{"cmd":"XYZ"}\n'


NO_OBJECTS = (b"x\n", b"[]\n", b'"{}"\n', b'{"cmd":\n', b"\xff\xfe\n", b" \n\tx\n", REST, POST)


@pytest.mark.parametrize("first", NO_OBJECTS)
def test_first_line_that_is_no_object_ends_the_connection(broker: Broker, client: Client, first: bytes) -> None:
    client.send(first + PUBLISH)
    client.send(PUBLISH)

    (refusal,) = client.take()

    assert refusal["err"] == "BAD_JSON"
    assert client.door.closed == "BAD_JSON"
    assert client.words() == []
    assert broker.client().call("FET", Q)["err"] == "Q_NOT_FOUND"


@pytest.mark.parametrize("first", [b'{"cmd":"PING"}\n', b' {"cmd":"FET","qname":"q"}\n', b'{"cmd":"PUB"}\n'])
def test_line_that_is_no_object_behind_a_known_command_is_only_refused(client: Client, first: bytes) -> None:
    client.send(first + b"x\n")
    client.send(b"[]\n")

    assert [reply.get("err") for reply in client.take()][1:] == ["BAD_JSON", "BAD_JSON"]
    assert client.words() == []
    assert client.call("PING")["cmd"] == "pong"


def test_object_that_is_no_known_command_leaves_a_stranger_a_stranger(client: Client) -> None:
    client.send(UNKNOWN)
    client.send(b"x\n" + PUBLISH)

    assert [reply["err"] for reply in client.take()] == ["BAD_COMMAND", "BAD_JSON"]
    assert client.door.closed == "BAD_JSON"


@pytest.mark.parametrize("request_line", [POST, b"GET /?" + b"x" * 5000 + b" HTTP/1.0\n", b"PRI * HTTP/2.0\r\n"])
def test_request_by_http_ends_the_connection_of_a_known_client_too(client: Client, request_line: bytes) -> None:
    client.call("PING")

    client.send(b'{"cmd":"PING"}\n' + request_line + REST + PUBLISH)

    assert client.words() == ["pong", "nok"]
    assert client.door.closed == "BAD_JSON"


def test_bad_line_beyond_a_thousand_closes_the_connection(client: Client) -> None:
    client.call("PING")

    client.send(b"x\n" * (BAD_LINES_MAX - 1) + UNKNOWN)
    allowed = client.words()
    closed = client.door.closed
    client.send(b"x\n" + PUBLISH)

    assert (allowed, closed) == (["nok"] * BAD_LINES_MAX, "")
    assert client.words() == ["nok"]
    assert client.door.closed == "BAD_JSON"


def test_bad_line_is_forgiven_for_each_ten_commands(client: Client) -> None:
    client.call("PING")
    client.send(b"x\n" * BAD_LINES_MAX)

    client.ask(*[PING] * (GOOD_FOR_BAD - 1))
    client.ask(PING)
    client.send(b"x\n")
    forgiven, closed = client.words(), client.door.closed
    client.send(b"x\n")
    client.take()

    assert (forgiven, closed) == (["nok"], "")
    assert client.door.closed == "BAD_JSON"


def test_refused_commands_are_no_bad_lines(client: Client) -> None:
    client.send(b'{"cmd":"PUB","qname":" ","message":"x"}\n' * (BAD_LINES_MAX + 1))

    assert client.words() == ["nok"] * (BAD_LINES_MAX + 1)
    assert client.call("PING")["cmd"] == "pong"


# Bytes that are under way -----------------------------------------------------------------------------------------


def read_of(*lines: bytes) -> Received:  # type: ignore[type-arg]
    return Received(wire.decode(b"".join(lines)), sum(map(len, lines)))


def test_publishes_that_are_not_confirmed_are_held_by_their_own_bytes(broker: Broker, client: Client) -> None:
    client.publish(Q)
    large = b'{"cmd":"PUB","qname":"q","message":"' + b"x" * 2 * KEPT_BYTES_MIN + b'"}\n'
    broker.log_disk.held = True
    kept = []

    for line in (PUBLISH, large, PUBLISH, large):
        client.process.tell(read_of(line))
        broker.settle()
        kept.append(client.door.kept_bytes)
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert kept == [0, len(large), len(large) + len(PUBLISH), 2 * len(large) + len(PUBLISH)]
    assert client.door.kept_bytes == 0


def test_connection_is_not_read_while_too_much_is_held_and_its_own_is_under_way(broker: Broker, client: Client) -> None:
    client.publish(Q)
    large = b'{"cmd":"PUB","qname":"q","message":"' + b"x" * 2 * KEPT_BYTES_MIN + b'"}\n'
    broker.log_disk.held = True
    client.door.has_room = False

    client.process.tell(read_of(large))
    broker.settle()
    paused = client.door.paused
    broker.log_disk.held = False
    broker.log_disk.complete()
    broker.settle()

    assert paused
    assert not client.door.paused


def test_reading_pauses_while_too_many_fetches_wait_out_of_order(broker: Broker, worker: Client) -> None:
    client = broker.client()
    client.call("CREATE", Q)

    worker.send(*[fet(wait=60, cmd_id=number) for number in range(IN_FLIGHT_MAX)])
    broker.settle()
    before = worker.door.paused
    worker.send(fet(wait=60, cmd_id="one more"))
    broker.settle()

    assert (before, worker.door.paused) == (False, True)
