"""Tests of session.py: commands, answers, and what outlives a connection."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.clients.session import ANSWER_S, NOW_S, events_for, message, online, sent
from wakeq import errors
from wakeq.client.session import UNDER_WAY_MAX, Answer, Event, Session, Woken, WrongProtocol, error_of
from wakeq.protocol.wire.worker import codec as wire

# The session ----------------------------------------------------------------------------------------------


def test_connection_begins_with_hello_and_session_id() -> None:
    session = Session("abc", answer_timeout_s=ANSWER_S)

    session.connected(NOW_S)

    assert sent(session) == [wire.Hello(session="abc")]


def test_connection_begins_with_what_the_client_says_of_itself_then() -> None:
    names = iter(["first", "second"])
    session = Session("abc", answer_timeout_s=ANSWER_S, introduce=lambda: wire.Hello(name=next(names)))

    session.connected(NOW_S, "a secret")
    first = sent(session)
    session.disconnected()
    session.connected(NOW_S)

    assert first == [wire.Hello(session="abc", token="a secret", name="first")]
    assert sent(session) == [wire.Hello(session="abc", name="second")]


def test_answer_to_a_later_hello_is_no_greeting() -> None:
    session = online()
    ticket = session.ask(wire.Hello(name="changed"), NOW_S)

    reply = wire.HelloReply(version="1", cmd_id=ticket)

    assert events_for(session, reply) == [Answer(ticket, reply)]


def test_answers_find_their_commands_in_any_order() -> None:
    session = online()
    first = session.ask(wire.Fet(qname="a", wait=5.0), NOW_S)
    second = session.ask(wire.Ping(), NOW_S)

    events = events_for(session, wire.Pong(cmd_id=second), wire.Nomsg(qname="a", cmd_id=first))

    assert events == [
        Answer(second, wire.Pong(cmd_id=second)),
        Answer(first, wire.Nomsg(qname="a", cmd_id=first)),
    ]


@given(step=st.integers(1, 60), bodies=st.lists(st.text(max_size=20), max_size=5))
def test_replies_survive_any_cut_of_the_stream(step: int, bodies: list[str]) -> None:
    session = online()
    tickets = [session.ask(wire.Fet(qname="q"), NOW_S) for _ in bodies]
    replies: list[wire.Reply] = [
        wire.Msg(qname="q", uid="u", error_count=0, msg=body, cmd_id=ticket)
        for ticket, body in zip(tickets, bodies, strict=True)
    ]
    stream = wire.encode([wire.Awk(qname="q"), *replies])

    events: list[Event] = []
    for start in range(0, len(stream), step):
        events += session.receive(stream[start : start + step], NOW_S)

    assert events == [Woken("q"), *map(Answer, tickets, replies)]


@given(garbage=st.binary(max_size=80))
def test_garbage_raises_a_wakeq_error_or_nothing(garbage: bytes) -> None:
    session = online()

    try:
        events = session.receive(garbage + b"\n", NOW_S)
    except errors.WakeqError:
        return

    assert events == []


def test_publishes_are_numbered_in_their_session() -> None:
    session = online()

    for _ in range(3):
        session.ask(wire.Pub(qname="q", message="x"), NOW_S)

    assert [command.n for command in sent(session) if isinstance(command, wire.Pub)] == [1, 2, 3]


def test_publish_with_an_id_has_no_number() -> None:
    session = online()

    session.ask(wire.Pub(qname="q", message="x", id="mine"), NOW_S)

    (command,) = sent(session)
    assert isinstance(command, wire.Pub)
    assert (command.id, command.n) == ("mine", None)


def test_unanswered_publish_is_repeated_with_the_same_number() -> None:
    session = online("abc")
    answered = session.ask(wire.Pub(qname="q", message="first"), NOW_S)
    session.ask(wire.Pub(qname="q", message="second"), NOW_S)
    before = sent(session)
    events_for(session, wire.Ok(uid="u", cmd_id=answered))

    lost = session.disconnected()
    session.connected(NOW_S)

    assert lost == []
    assert sent(session) == [wire.Hello(session="abc"), before[1]]


def test_numbers_continue_after_a_reconnect() -> None:
    session = online()
    answered = session.ask(wire.Pub(qname="q", message="a"), NOW_S)
    events_for(session, wire.Ok(qname="q", uid="u1", cmd_id=answered))
    for body in ("b", "c"):
        session.ask(wire.Pub(qname="q", message=body), NOW_S)
        session.disconnected()
        session.ask(wire.Pub(qname="q", message=f"{body} while away"), NOW_S)
        session.connected(NOW_S)
    session.ask(wire.Pub(qname="q", message="d"), NOW_S)

    publishes = [command for command in sent(session) if isinstance(command, wire.Pub)]

    assert [(command.message, command.n) for command in publishes] == [
        ("b", 2), ("b while away", 3), ("c", 4), ("c while away", 5), ("d", 6),
    ]  # fmt: skip


def test_subscriptions_are_restated_before_commands_are_repeated() -> None:
    session = online()
    session.ask(wire.Fet(qname="q", wait=1.0), NOW_S)
    first = sent(session)

    session.disconnected()
    session.connected(NOW_S)

    assert [type(command) for command in first] == [wire.Sub, wire.Fet]
    assert [type(command) for command in sent(session)] == [wire.Hello, wire.Sub, wire.Fet]


@pytest.mark.parametrize(
    "command",
    [wire.Create(qname="q"), wire.Drop(qname="q"), wire.Purge(qname="q"), wire.Nack(qname="q", uid="u")],
)
def test_unrepeatable_command_fails_when_the_connection_is_lost(command: wire.Command) -> None:
    session = online()
    ticket = session.ask(command, NOW_S)

    (answer,) = session.disconnected()
    session.connected(NOW_S)

    assert answer.ticket == ticket
    assert isinstance(answer.outcome, errors.Disconnected)
    assert [type(one) for one in sent(session)] == [wire.Hello]


def test_command_without_a_connection_waits_for_the_next_one() -> None:
    session = online()
    session.disconnected()

    session.ask(wire.Create(qname="q"), NOW_S)

    assert session.bytes_to_send() == b""
    session.connected(NOW_S)
    assert [type(one) for one in sent(session)] == [wire.Hello, wire.Create]


@pytest.mark.parametrize(("code", "kind"), errors.BY_CODE.items())
def test_refusal_codes_have_errors_of_their_own(code: str, kind: type[errors.Refused]) -> None:
    error = error_of(wire.Nok(err=code, detail="because"))

    assert type(error) is kind
    assert str(error) == "because"


def test_unknown_refusal_code_is_a_plain_refused_that_names_it() -> None:
    error = error_of(wire.Nok(err="NEW", detail="because"))

    assert type(error) is errors.Refused
    assert "NEW" in str(error)


def test_refusal_before_the_greeting_is_raised() -> None:
    session = Session("s", answer_timeout_s=ANSWER_S)
    session.connected(NOW_S)

    with pytest.raises(errors.Busy):
        events_for(session, wire.Nok(err="BUSY", detail="too many connections"))


def test_answer_to_abandoned_command_is_ignored() -> None:
    session = online()
    ticket = session.ask(wire.Ping(), NOW_S)

    session.abandon(ticket)

    assert events_for(session, wire.Pong(cmd_id=ticket)) == []


def test_too_large_refusal_of_abandoned_command_answers_no_other() -> None:
    session = online()
    large = session.ask(wire.Pub(qname="q", message="x" * 100), NOW_S)
    small = session.ask(wire.Pub(qname="q", message="x"), NOW_S)
    session.abandon(large)

    assert events_for(session, wire.Nok(err="TOO_LARGE")) == []
    assert events_for(session, wire.Ok(uid="u", cmd_id=small)) == [Answer(small, wire.Ok(uid="u", cmd_id=small))]


def test_commands_beyond_the_limit_of_a_session_are_refused() -> None:
    session = online()
    for _ in range(UNDER_WAY_MAX):
        session.ask(wire.Ping(), NOW_S)

    with pytest.raises(errors.Busy):
        session.ask(wire.Ping(), NOW_S)


def test_command_that_cannot_be_encoded_is_refused_at_once() -> None:
    session = online()
    session.ask(wire.Ping(), NOW_S)

    with pytest.raises(errors.BadField, match="PUB has a value of the wrong type"):
        session.ask(wire.Pub(qname="q", message=object()), NOW_S)  # type: ignore[arg-type]
    with pytest.raises(errors.BadField, match="UTF-8"):
        session.ask(wire.Pub(qname="q", message="\ud800"), NOW_S)

    assert [type(command) for command in sent(session)] == [wire.Ping]
    session.connected(NOW_S)
    assert [type(command) for command in sent(session)] == [wire.Hello, wire.Ping]


def test_line_too_long_for_the_broker_is_refused_before_it_is_sent() -> None:
    session = online()
    events_for(session, wire.HelloReply(version="1", limits={"message_bytes_max": 1000}))
    # The newline does not count.
    around = len(wire.encode_commands([wire.Pub(qname="q", message="", cmd_id=1, n=1)])) - 1
    # The broker refuses this line and keeps the connection.
    fits = session.ask(wire.Pub(qname="q", message="x" * (68_536 - around)), NOW_S)
    sent(session)

    # The limit of the last connection still counts.
    session.connected(NOW_S)
    sent(session)
    with pytest.raises(
        errors.TooLarge, match="68537 bytes, and the broker reads up to 68536 for messages of up to 1000"
    ):
        session.ask(wire.Pub(qname="q", message="x" * (68_536 - around + 1)), NOW_S)

    assert sent(session) == []
    assert events_for(session, wire.Ok(qname="q", uid="u", cmd_id=fits)) != []


def test_bytes_of_another_protocol_raise_wrong_protocol() -> None:
    session = Session("s", answer_timeout_s=ANSWER_S)
    session.connected(NOW_S)

    with pytest.raises(WrongProtocol):
        session.receive(b"HTTP/1.1 400 Bad Request\r\n", NOW_S)


def test_successor_has_the_subscriptions_and_nothing_else() -> None:
    session = online("parent")
    session.ask(wire.Sub(qname="q"), NOW_S)
    session.ask(wire.Pub(qname="q", message="the parent's"), NOW_S)

    child = session.successor("child")

    child.connected(NOW_S)
    assert sent(child) == [wire.Hello(session="child"), wire.Sub(qname="q")]


# Waiting fetches ----------------------------------------------------------------------------------------------------


def test_repeated_fetch_waits_for_the_rest_of_its_wait() -> None:
    session = online()
    session.ask(wire.Fet(qname="q", wait=100.0), NOW_S)
    sent(session)

    session.disconnected()
    session.connected(NOW_S + 60)

    fetch = sent(session)[-1]
    assert isinstance(fetch, wire.Fet)
    assert fetch.wait == 40.0


def test_remaining_subscriptions_are_restated_in_their_order() -> None:
    session = online()
    for ticket, queue in enumerate(("b", "gone", "a", "c"), 1):
        session.ask(wire.Sub(qname=queue), NOW_S)
        events_for(session, wire.Oksub(qname=queue, cmd_id=ticket))
    events_for(session, wire.Okuns(qname="gone", cmd_id=session.ask(wire.Uns(qname="gone"), NOW_S)))

    session.disconnected()
    session.connected(NOW_S)

    assert sent(session) == [wire.Hello(session="s"), *[wire.Sub(qname=queue) for queue in ("b", "a", "c")]]


def test_message_for_abandoned_fetch_is_released() -> None:
    session = online()
    ticket = session.ask(wire.Fet(qname="q"), NOW_S)
    sent(session)

    session.abandon(ticket)

    assert events_for(session, message(ticket)) == []
    line = session.bytes_to_send()
    assert b'"failed":false' in line
    assert all(field in line for field in (b'"NACK"', b'"u"', b'"1-1"', b'"delay":0'))


def test_messages_for_abandoned_fetch_are_released_together() -> None:
    session = online()
    ticket = session.ask(wire.Fet(qname="q", count=2), NOW_S)
    sent(session)
    session.abandon(ticket)
    both = [wire.Delivery("u1", 0, "x", None, "1-1"), wire.Delivery("u2", 0, "x", None, "1-2")]

    events_for(session, wire.Msgs(qname="q", messages=both, cmd_id=ticket))

    assert b'"uids":["u1","u2"],"leases":["1-1","1-2"]' in session.bytes_to_send()


def test_abandoned_fetch_is_adopted_by_the_next_fetch_of_its_queue() -> None:
    session = online()
    ticket = session.ask(wire.Fet(qname="q", wait=10.0), NOW_S)
    sent(session)
    session.abandon(ticket)

    again = session.ask(wire.Fet(qname="q", wait=10.0), NOW_S + 1)

    assert again == ticket
    assert session.bytes_to_send() == b""
    assert events_for(session, message(ticket)) == [Answer(ticket, message(ticket))]


def test_adopted_fetch_waits_as_long_as_its_new_caller_wants() -> None:
    session = online()
    ticket = session.ask(wire.Fet(qname="q", wait=10.0), NOW_S)
    sent(session)
    session.abandon(ticket)
    session.ask(wire.Fet(qname="q", wait=10.0), NOW_S + 4)
    nothing = wire.Nomsg(qname="q", cmd_id=ticket)

    assert events_for(session, nothing, now_s=NOW_S + 10) == []
    (rest,) = sent(session)
    assert isinstance(rest, wire.Fet)
    assert rest.wait == 4.0
    assert events_for(session, nothing, now_s=NOW_S + 14) == [Answer(ticket, nothing)]


@pytest.mark.parametrize(
    "other",
    [
        wire.Fet(qname="other", wait=50.0),
        wire.Fet(qname="q", wait=50.0, count=3),
        wire.Fet(qname="q", wait=1),
        wire.Fet(qname="q", wait=50.0, timeout=300),
    ],
)
def test_fetch_with_other_arguments_or_shorter_wait_adopts_nothing(other: wire.Fet) -> None:
    session = online()
    ticket = session.ask(wire.Fet(qname="q", wait=10.0), NOW_S)
    session.abandon(ticket)

    assert session.ask(other, NOW_S) != ticket


def test_acks_are_repeated_before_fetches() -> None:
    session = online()
    session.ask(wire.Fet(qname="q", count=8), NOW_S)
    session.ask(wire.Ack(qname="q", uid="u", lease="1-1"), NOW_S)
    sent(session)

    session.disconnected()
    session.connected(NOW_S)

    assert [type(command) for command in sent(session)] == [wire.Hello, wire.Ack, wire.Fet]
