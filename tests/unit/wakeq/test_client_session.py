"""Proves the client: the conversation (session.py), and the waiting for it over a socket (blocking.py)."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeq import Client, errors
from wakeq.client import blocking, patience, transport
from wakeq.client.message import Body, bytes_of_body
from wakeq.client.session import UNDER_WAY_MAX, Answer, Awoken, Event, NotTheProtocol, Session
from wakeq.protocol.wire import worker as wire

Script = Callable[[int, wire.Command], wire.Reply | list[wire.Reply] | None]


def sent(session: Session) -> list[wire.Command]:
    """What the session sends now, as the broker reads it."""
    commands = wire.decode(session.bytes_to_send())
    assert not [bad for bad in commands if isinstance(bad, wire.Bad)]
    return commands  # type: ignore[return-value]


def online(session_id: str = "s") -> Session:
    session = Session(session_id)
    session.connected()
    session.bytes_to_send()
    session.receive(wire.encode([wire.HelloReply(version="1")]))
    return session


# The session ----------------------------------------------------------------------------------------------


def test_a_connection_begins_with_hello_and_its_session() -> None:
    session = Session("abc")

    session.connected()

    assert sent(session) == [wire.Hello(session="abc")]


def test_answers_find_their_questions_in_any_order() -> None:
    session = online()
    first = session.ask(wire.Fet(qname="a", wait=5.0))
    second = session.ask(wire.Ping())

    events = session.receive(wire.encode([wire.Pong(cmd_id=second), wire.Nomsg(qname="a", cmd_id=first)]))

    assert events == [
        Answer(second, wire.Pong(cmd_id=second)),
        Answer(first, wire.Nomsg(qname="a", cmd_id=first)),
    ]


@given(step=st.integers(1, 60), bodies=st.lists(st.text(max_size=20), max_size=5))
def test_replies_survive_any_cut_of_the_stream(step: int, bodies: list[str]) -> None:
    session = online()
    tickets = [session.ask(wire.Fet(qname="q")) for _ in bodies]
    replies: list[wire.Reply] = [
        wire.Msg(qname="q", uid="u", error_count=0, msg=body, cmd_id=ticket)
        for ticket, body in zip(tickets, bodies, strict=True)
    ]
    stream = wire.encode([wire.Awk(qname="q"), *replies])

    events: list[Event] = []
    for start in range(0, len(stream), step):
        events += session.receive(stream[start : start + step])

    assert events == [Awoken("q"), *map(Answer, tickets, replies)]


@given(garbage=st.binary(max_size=80))
def test_garbage_is_a_wakeq_error_or_nothing(garbage: bytes) -> None:
    session = online()

    try:
        events = session.receive(garbage + b"\n")
    except errors.WakeqError:
        return

    assert events == []


def test_publishes_are_numbered_in_their_session() -> None:
    session = online()

    for _ in range(3):
        session.ask(wire.Pub(qname="q", message="x"))

    assert [command.n for command in sent(session) if isinstance(command, wire.Pub)] == [1, 2, 3]


def test_a_publish_with_an_id_needs_no_number() -> None:
    session = online()

    session.ask(wire.Pub(qname="q", message="x", id="mine"))

    (command,) = sent(session)
    assert isinstance(command, wire.Pub)
    assert (command.id, command.n) == ("mine", None)


def test_an_unanswered_publish_is_repeated_with_the_same_number_in_the_same_session() -> None:
    session = online("abc")
    answered = session.ask(wire.Pub(qname="q", message="first"))
    session.ask(wire.Pub(qname="q", message="second"))
    before = sent(session)
    session.receive(wire.encode([wire.Ok(uid="u", cmd_id=answered)]))

    lost = session.disconnected()
    session.connected()

    assert lost == []
    assert sent(session) == [wire.Hello(session="abc"), before[1]]


def test_subscriptions_are_restated_before_what_is_repeated() -> None:
    session = online()
    session.subscribe("q")
    session.ask(wire.Fet(qname="q", wait=1.0))
    first = sent(session)

    session.disconnected()
    session.connected()

    assert [type(command) for command in first] == [wire.Sub, wire.Fet]
    assert [type(command) for command in sent(session)] == [wire.Hello, wire.Sub, wire.Fet]


@pytest.mark.parametrize(
    "command",
    [wire.Create(qname="q"), wire.Drop(qname="q"), wire.Purge(qname="q"), wire.Nack(qname="q", uid="u")],
)
def test_what_must_not_be_done_twice_is_answered_by_the_loss(command: wire.Command) -> None:
    session = online()
    ticket = session.ask(command)

    (answer,) = session.disconnected()
    session.connected()

    assert answer.ticket == ticket
    assert isinstance(answer.outcome, errors.Disconnected)
    assert [type(one) for one in sent(session)] == [wire.Hello]


def test_what_is_asked_between_two_connections_waits_for_the_next_one() -> None:
    session = online()
    session.disconnected()

    session.ask(wire.Create(qname="q"))

    assert session.bytes_to_send() == b""
    session.connected()
    assert [type(one) for one in sent(session)] == [wire.Hello, wire.Create]


@pytest.mark.parametrize(("code", "kind"), errors.BY_CODE.items())
def test_each_refusal_is_its_own_error(code: str, kind: type[errors.Refused]) -> None:
    session = online()
    ticket = session.ask(wire.Ping())

    (event,) = session.receive(wire.encode([wire.Nok(err=code, detail="because", cmd_id=ticket)]))

    assert isinstance(event, Answer)
    assert type(event.outcome) is kind
    assert str(event.outcome) == "because"


def test_a_code_of_a_newer_broker_is_a_plain_refusal_that_names_it() -> None:
    session = online()
    ticket = session.ask(wire.Ping())

    (event,) = session.receive(wire.encode([wire.Nok(err="NEW", detail="because", cmd_id=ticket)]))

    assert isinstance(event, Answer)
    assert type(event.outcome) is errors.Refused
    assert "NEW" in str(event.outcome)


def test_a_refusal_before_the_greeting_is_the_connections() -> None:
    session = Session("s")
    session.connected()

    with pytest.raises(errors.Busy):
        session.receive(wire.encode([wire.Nok(err="BUSY", detail="too many connections")]))


def test_an_answer_nobody_waits_for_any_more_is_nothing() -> None:
    session = online()
    ticket = session.ask(wire.Ping())

    session.forget(ticket)

    assert session.receive(wire.encode([wire.Pong(cmd_id=ticket)])) == []


def test_no_more_commands_are_under_way_than_a_session_can_repeat() -> None:
    session = online()
    for _ in range(UNDER_WAY_MAX):
        session.ask(wire.Ping())

    with pytest.raises(errors.Busy):
        session.ask(wire.Ping())


@pytest.mark.parametrize(
    ("body", "expected"),
    [("é", "é".encode()), (b"\xff", b"\xff"), ({"a": 1}, b'{"a":1}'), ([1], b"[1]"), (None, b"null")],
)
def test_bodies_are_text_bytes_or_json(body: Body, expected: bytes) -> None:
    assert bytes_of_body(body) == expected


# The waiting ----------------------------------------------------------------------------------------------


@contextmanager
def scripted(script: Script) -> Iterator[str]:
    """A peer on a free port that answers each command as the script says; None closes the connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connections.append(connection)
            threading.Thread(target=talk, args=(connection, len(connections)), daemon=True).start()

    def talk(connection: socket.socket, number: int) -> None:
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                (command,) = wire.decode(line)
                assert not isinstance(command, wire.Bad)
                if isinstance(command, wire.Hello):
                    connection.sendall(wire.encode([wire.HelloReply(version="7.7")]))
                    continue
                answer = script(number, command)
                if answer is None:
                    connection.shutdown(socket.SHUT_RDWR)
                    return
                connection.sendall(wire.encode(answer if isinstance(answer, list) else [answer]))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for connection in connections:
            connection.close()


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PAUSE_S_MIN", 0.0)


def test_a_publish_whose_answer_was_lost_is_repeated_in_the_same_session() -> None:
    seen: list[wire.Command] = []

    def script(connection: int, command: wire.Command) -> wire.Reply | None:
        seen.append(command)
        return wire.Ok(uid="first", cmd_id=command.cmd_id) if connection == 2 else None

    with scripted(script) as address, Client(address) as client:
        uid = client.publish("q", {"a": 1})

    assert uid == "first"
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert isinstance(seen[0], wire.Pub)
    assert (seen[0].n, seen[0].message) == (1, '{"a":1}')


def test_a_fetch_that_waits_subscribes_first() -> None:
    seen: list[wire.Command] = []

    def script(_: int, command: wire.Command) -> wire.Reply:
        seen.append(command)
        if isinstance(command, wire.Sub):
            return wire.Oksub(qname=command.qname)
        return wire.Msg(qname="q", uid="u", error_count=2, msg="/w==", enc="b64", lease="1.5", cmd_id=command.cmd_id)

    with scripted(script) as address, Client(address) as client:
        message = client.fetch("q", wait=5)

    assert [type(command) for command in seen] == [wire.Sub, wire.Fet]
    assert message is not None
    assert (message.uid, message.body, message.delivery, message.lease) == ("u", b"\xff", 3, "1.5")


def test_a_message_is_acknowledged_at_the_end_of_its_block_and_given_back_by_an_error() -> None:
    seen: list[wire.Command] = []

    def script(_: int, command: wire.Command) -> wire.Reply:
        seen.append(command)
        match command:
            case wire.Fet():
                return wire.Msg(qname="q", uid="u", error_count=0, msg="", lease="1.1", cmd_id=command.cmd_id)
            case wire.Ack():
                return wire.Okack(uid="u", qname="q", cmd_id=command.cmd_id)
            case _:
                return wire.Oknack(uid="u", qname="q", cmd_id=command.cmd_id)

    with scripted(script) as address, Client(address) as client:
        good, bad = client.fetch("q"), client.fetch("q")
        assert good is not None
        assert bad is not None
        with good:
            pass
        with pytest.raises(ValueError, match="no"), bad:
            raise ValueError("no")

    ack, nack = seen[2:]
    assert isinstance(ack, wire.Ack)
    assert isinstance(nack, wire.Nack)
    assert (ack.uid, ack.lease, nack.uid, nack.lease) == ("u", "1.1", "u", "1.1")
    assert nack.error == "ValueError: no"


def test_a_refusal_is_raised_and_leaves_the_connection_usable() -> None:
    def script(connection: int, command: wire.Command) -> wire.Reply:
        assert connection == 1
        if isinstance(command, wire.Ping):
            return wire.Pong(cmd_id=command.cmd_id)
        return wire.Nok(err="Q_NOT_FOUND", detail="no such queue", cmd_id=command.cmd_id)

    with scripted(script) as address, Client(address) as client:
        with pytest.raises(errors.QueueNotFound, match="no such queue"):
            client.fetch("q")
        client.ping()


def test_a_create_whose_answer_was_lost_is_in_doubt_and_not_repeated() -> None:
    seen: list[wire.Command] = []

    def script(_: int, command: wire.Command) -> None:
        seen.append(command)

    with (
        scripted(script) as address,
        Client(address) as client,
        pytest.raises(errors.Disconnected, match="CREATE"),
    ):
        client.create_queue("q", max_size=5)

    assert len(seen) == 1


def test_nobody_there_is_said_with_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"

    with pytest.raises(errors.BrokerUnreachable, match=address):
        Client(address)


def test_a_broker_that_stays_away_is_said_in_the_end() -> None:
    with scripted(lambda _connection, _command: None) as address:
        client = Client(address, reconnect_for_s=0)

    with pytest.raises((errors.Disconnected, errors.BrokerUnreachable)):
        client.ping()


def test_a_peer_that_says_nothing_is_no_broker() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(errors.Disconnected, match="is it a wakeq worker port"),
    ):
        Client(f"127.0.0.1:{listener.getsockname()[1]}", connect_timeout_s=0.05)


def test_a_hung_broker_is_said_and_not_asked_again() -> None:
    seen: list[wire.Command] = []

    def script(_: int, command: wire.Command) -> list[wire.Reply]:
        seen.append(command)
        return []

    with (
        scripted(script) as address,
        Client(address, answer_timeout_s=0.05) as client,
        pytest.raises(errors.Disconnected, match="does not answer"),
    ):
        client.ping()

    assert len(seen) == 1


def test_a_peer_of_another_protocol_is_said() -> None:
    session = Session("s")
    session.connected()

    with pytest.raises(NotTheProtocol):
        session.receive(b"HTTP/1.1 400 Bad Request\r\n")


class FakeTime:
    """A clock that only sleeping and the test move."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, span_s: float) -> None:
        self.now_s += span_s


def test_a_wait_that_is_partly_over_is_repeated_for_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    clock = FakeTime()
    monkeypatch.setattr(blocking, "time", clock)

    def script(connection: int, command: wire.Command) -> wire.Reply | None:
        if isinstance(command, wire.Sub):
            return wire.Oksub(qname=command.qname)
        assert isinstance(command, wire.Fet)
        waits.append(command.wait)
        clock.now_s += 60.0
        return wire.Nomsg(qname="q", cmd_id=command.cmd_id) if connection == 2 else None

    with scripted(script) as address, Client(address) as client:
        assert client.fetch("q", wait=100) is None

    assert waits == [100.0, 40.0]


def test_patience_with_a_broker_that_stays_away_ends_after_its_span(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeTime()
    monkeypatch.setattr(patience, "time", clock)
    monkeypatch.setattr(patience, "PAUSE_S_MIN", 0.05)
    attempts = patience.Patience(10.0)

    tries = 0
    while attempts.pause():
        tries += 1

    assert 109.0 <= clock.now_s <= 110.0
    assert 10 <= tries <= 20


def test_patience_is_new_after_a_connection_that_lasted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeTime()
    monkeypatch.setattr(patience, "time", clock)
    attempts = patience.Patience(10.0)

    for _ in range(10):
        attempts.renew()
        clock.now_s += 60.0
        assert attempts.pause()


def test_patience_ends_with_a_broker_that_breaks_every_connection_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeTime()
    monkeypatch.setattr(patience, "time", clock)
    monkeypatch.setattr(patience, "PAUSE_S_MIN", 0.05)
    attempts = patience.Patience(10.0)

    for _ in range(100):
        attempts.renew()
        if not attempts.pause():
            break

    assert clock.now_s <= 110.0


def test_a_wait_ends_when_another_thread_closes_the_client() -> None:
    asked = threading.Event()

    def script(_: int, command: wire.Command) -> list[wire.Reply]:
        if isinstance(command, wire.Fet):
            asked.set()
        return []

    def close_later() -> None:
        asked.wait(5)
        client.close()

    with scripted(script) as address:
        client = Client(address)
        threading.Thread(target=close_later).start()

        with pytest.raises(errors.Disconnected, match="closed"):
            client.fetch("q", wait=60)


def test_a_closed_client_says_so() -> None:
    with scripted(lambda _connection, command: wire.Pong(cmd_id=command.cmd_id)) as address:
        client = Client(address)
        client.close()

        with pytest.raises(errors.Disconnected, match="closed"):
            client.ping()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("localhost", ("localhost", 2601)),
        ("localhost:1", ("localhost", 1)),
        ("[::1]:2", ("::1", 2)),
        ("[::1]", ("::1", 2601)),
    ],
)
def test_addresses_are_read(address: str, expected: tuple[str, int]) -> None:
    assert transport.parse_address(address) == expected


@pytest.mark.parametrize("address", ["", ":1", "host:", "host:port", "host:0", "host:65536", "http://host:1"])
def test_what_is_no_address_is_said(address: str) -> None:
    with pytest.raises(errors.BadSettings, match="HOST:PORT"):
        transport.parse_address(address)


def test_the_socket_finds_a_dead_peer_in_about_eleven_seconds() -> None:
    with scripted(lambda _connection, command: wire.Pong(cmd_id=command.cmd_id)) as address:
        wire_to = transport.Transport(address, timeout_s=5)

        option = wire_to._socket.getsockopt

        assert option(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert option(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 5
        assert option(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 2
        assert option(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 3
        assert option(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 11_000
        wire_to.close()
