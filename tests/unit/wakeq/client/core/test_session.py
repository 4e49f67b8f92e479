"""Proves the conversation (session.py): what is said, what is heard, and what outlives a connection."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.session_by_hand import ANSWER_S, NOW_S, heard, message, online, sent
from wakeq import errors
from wakeq.client.core.session import UNDER_WAY_MAX, Answer, Event, Session, Woken, WrongProtocol, error_of
from wakeq.protocol.wire.worker import codec as wire

# The session ----------------------------------------------------------------------------------------------


def test_a_connection_begins_with_hello_and_its_session() -> None:
    session = Session("abc", answer_timeout_s=ANSWER_S)

    session.connected(NOW_S)

    assert sent(session) == [wire.Hello(session="abc")]


def test_answers_find_their_questions_in_any_order() -> None:
    session = online()
    first = session.ask(wire.Fet(qname="a", wait=5.0), NOW_S)
    second = session.ask(wire.Ping(), NOW_S)

    events = heard(session, wire.Pong(cmd_id=second), wire.Nomsg(qname="a", cmd_id=first))

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
def test_garbage_is_a_wakeq_error_or_nothing(garbage: bytes) -> None:
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


def test_a_publish_with_an_id_needs_no_number() -> None:
    session = online()

    session.ask(wire.Pub(qname="q", message="x", id="mine"), NOW_S)

    (command,) = sent(session)
    assert isinstance(command, wire.Pub)
    assert (command.id, command.n) == ("mine", None)


def test_an_unanswered_publish_is_repeated_with_the_same_number_in_the_same_session() -> None:
    session = online("abc")
    answered = session.ask(wire.Pub(qname="q", message="first"), NOW_S)
    session.ask(wire.Pub(qname="q", message="second"), NOW_S)
    before = sent(session)
    heard(session, wire.Ok(uid="u", cmd_id=answered))

    lost = session.disconnected()
    session.connected(NOW_S)

    assert lost == []
    assert sent(session) == [wire.Hello(session="abc"), before[1]]


def test_publishes_after_a_reconnect_go_on_with_the_numbers_of_their_session() -> None:
    session = online()
    answered = session.ask(wire.Pub(qname="q", message="a"), NOW_S)
    heard(session, wire.Ok(qname="q", uid="u1", cmd_id=answered))
    for body in ("b", "c"):
        session.ask(wire.Pub(qname="q", message=body), NOW_S)
        session.disconnected()
        session.ask(wire.Pub(qname="q", message=f"{body} while away"), NOW_S)
        session.connected(NOW_S)
    session.ask(wire.Pub(qname="q", message="d"), NOW_S)

    said = [command for command in sent(session) if isinstance(command, wire.Pub)]

    assert [(command.message, command.n) for command in said] == [
        ("b", 2), ("b while away", 3), ("c", 4), ("c while away", 5), ("d", 6),
    ]  # fmt: skip


def test_subscriptions_are_restated_before_what_is_repeated() -> None:
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
def test_what_must_not_be_done_twice_is_answered_by_the_loss(command: wire.Command) -> None:
    session = online()
    ticket = session.ask(command, NOW_S)

    (answer,) = session.disconnected()
    session.connected(NOW_S)

    assert answer.ticket == ticket
    assert isinstance(answer.outcome, errors.Disconnected)
    assert [type(one) for one in sent(session)] == [wire.Hello]


def test_what_is_asked_between_two_connections_waits_for_the_next_one() -> None:
    session = online()
    session.disconnected()

    session.ask(wire.Create(qname="q"), NOW_S)

    assert session.bytes_to_send() == b""
    session.connected(NOW_S)
    assert [type(one) for one in sent(session)] == [wire.Hello, wire.Create]


@pytest.mark.parametrize(("code", "kind"), errors.BY_CODE.items())
def test_each_refusal_is_its_own_error(code: str, kind: type[errors.Refused]) -> None:
    error = error_of(wire.Nok(err=code, detail="because"))

    assert type(error) is kind
    assert str(error) == "because"


def test_a_code_of_a_newer_broker_is_a_plain_refusal_that_names_it() -> None:
    error = error_of(wire.Nok(err="NEW", detail="because"))

    assert type(error) is errors.Refused
    assert "NEW" in str(error)


def test_a_refusal_is_an_answer() -> None:
    session = online()
    ticket = session.ask(wire.Ping(), NOW_S)
    nok = wire.Nok(err="BUSY", cmd_id=ticket)

    assert heard(session, nok) == [Answer(ticket, nok)]


def test_a_refusal_before_the_greeting_is_the_connections() -> None:
    session = Session("s", answer_timeout_s=ANSWER_S)
    session.connected(NOW_S)

    with pytest.raises(errors.Busy):
        heard(session, wire.Nok(err="BUSY", detail="too many connections"))


def test_an_answer_nobody_waits_for_any_more_is_nothing() -> None:
    session = online()
    ticket = session.ask(wire.Ping(), NOW_S)

    session.abandon(ticket)

    assert heard(session, wire.Pong(cmd_id=ticket)) == []


def test_what_was_too_large_and_given_up_is_no_answer_to_others() -> None:
    session = online()
    large = session.ask(wire.Pub(qname="q", message="x" * 100), NOW_S)
    small = session.ask(wire.Pub(qname="q", message="x"), NOW_S)
    session.abandon(large)

    assert heard(session, wire.Nok(err="TOO_LARGE")) == []
    assert heard(session, wire.Ok(uid="u", cmd_id=small)) == [Answer(small, wire.Ok(uid="u", cmd_id=small))]


def test_no_more_commands_are_under_way_than_a_session_can_repeat() -> None:
    session = online()
    for _ in range(UNDER_WAY_MAX):
        session.ask(wire.Ping(), NOW_S)

    with pytest.raises(errors.Busy):
        session.ask(wire.Ping(), NOW_S)


def test_what_cannot_be_said_is_refused_at_once_and_spoils_nothing() -> None:
    session = online()
    session.ask(wire.Ping(), NOW_S)

    with pytest.raises(errors.BadField, match="PUB has a value of the wrong type"):
        session.ask(wire.Pub(qname="q", message=object()), NOW_S)  # type: ignore[arg-type]
    with pytest.raises(errors.BadField, match="UTF-8"):
        session.ask(wire.Pub(qname="q", message="\ud800"), NOW_S)

    assert [type(command) for command in sent(session)] == [wire.Ping]
    session.connected(NOW_S)
    assert [type(command) for command in sent(session)] == [wire.Hello, wire.Ping]


def test_what_the_broker_would_hang_up_for_is_refused_before_it_is_sent() -> None:
    session = online()
    heard(session, wire.HelloReply(version="1", limits={"message_bytes_max": 1000}))
    around = len(wire.encode_commands([wire.Pub(qname="q", message="", cmd_id=1, n=1)])) - 1  # its end does not count
    fits = session.ask(wire.Pub(qname="q", message="x" * (68_536 - around)), NOW_S)  # the broker says no, and goes on
    sent(session)

    session.connected(NOW_S)  # it will have the limit that it had
    sent(session)
    with pytest.raises(
        errors.TooLarge, match="68537 bytes, and the broker reads up to 68536 for messages of up to 1000"
    ):
        session.ask(wire.Pub(qname="q", message="x" * (68_536 - around + 1)), NOW_S)

    assert sent(session) == []
    assert heard(session, wire.Ok(qname="q", uid="u", cmd_id=fits)) != []


def test_a_peer_of_another_protocol_is_said() -> None:
    session = Session("s", answer_timeout_s=ANSWER_S)
    session.connected(NOW_S)

    with pytest.raises(WrongProtocol):
        session.receive(b"HTTP/1.1 400 Bad Request\r\n", NOW_S)


def test_a_successor_has_the_subscriptions_and_nothing_else() -> None:
    session = online("parent")
    session.ask(wire.Sub(qname="q"), NOW_S)
    session.ask(wire.Pub(qname="q", message="the parent's"), NOW_S)

    child = session.successor("child")

    child.connected(NOW_S)
    assert sent(child) == [wire.Hello(session="child"), wire.Sub(qname="q")]


# Waits ----------------------------------------------------------------------------------------------------


def test_a_wait_that_is_partly_over_is_repeated_for_what_is_left() -> None:
    session = online()
    session.ask(wire.Fet(qname="q", wait=100.0), NOW_S)
    sent(session)

    session.disconnected()
    session.connected(NOW_S + 60)

    fetch = sent(session)[-1]
    assert isinstance(fetch, wire.Fet)
    assert fetch.wait == 40.0


def test_every_subscription_is_restated_in_its_order() -> None:
    session = online()
    for queue in ("b", "a", "c"):
        session.ask(wire.Sub(qname=queue), NOW_S)
    heard(session, *[wire.Oksub(qname=queue, cmd_id=ticket) for ticket, queue in enumerate(("b", "a", "c"), 1)])

    session.disconnected()
    session.connected(NOW_S)

    assert sent(session) == [wire.Hello(session="s"), *[wire.Sub(qname=queue) for queue in ("b", "a", "c")]]


def test_an_unsubscribed_queue_is_not_restated() -> None:
    session = online()
    session.ask(wire.Sub(qname="q"), NOW_S)
    ticket = session.ask(wire.Uns(qname="q"), NOW_S)
    heard(session, wire.Oksub(qname="q", cmd_id=ticket - 1), wire.Okuns(qname="q", cmd_id=ticket))

    session.disconnected()
    session.connected(NOW_S)

    assert sent(session) == [wire.Hello(session="s")]


def test_a_message_for_an_abandoned_fetch_goes_back_and_is_no_failure() -> None:
    session = online()
    ticket = session.ask(wire.Fet(qname="q"), NOW_S)
    sent(session)

    session.abandon(ticket)

    assert heard(session, message(ticket)) == []
    line = session.bytes_to_send()
    assert b'"failed":false' in line
    assert all(field in line for field in (b'"NACK"', b'"u"', b'"1-1"', b'"delay":0'))


def test_many_messages_for_an_abandoned_fetch_go_back_together() -> None:
    session = online()
    ticket = session.ask(wire.Fet(qname="q", count=2), NOW_S)
    sent(session)
    session.abandon(ticket)
    both = [wire.Delivery("u1", 0, "x", None, "1-1"), wire.Delivery("u2", 0, "x", None, "1-2")]

    heard(session, wire.Msgs(qname="q", messages=both, cmd_id=ticket))

    assert b'"uids":["u1","u2"],"leases":["1-1","1-2"]' in session.bytes_to_send()


def test_an_abandoned_wait_is_taken_over_by_the_next_fetch_of_its_queue() -> None:
    session = online()
    ticket = session.ask(wire.Fet(qname="q", wait=10.0), NOW_S)
    sent(session)
    session.abandon(ticket)

    again = session.ask(wire.Fet(qname="q", wait=10.0), NOW_S + 1)

    assert again == ticket
    assert session.bytes_to_send() == b""
    assert heard(session, message(ticket)) == [Answer(ticket, message(ticket))]


def test_a_wait_that_was_taken_over_goes_on_until_its_new_asker_has_waited_enough() -> None:
    session = online()
    ticket = session.ask(wire.Fet(qname="q", wait=10.0), NOW_S)
    sent(session)
    session.abandon(ticket)
    session.ask(wire.Fet(qname="q", wait=10.0), NOW_S + 4)
    nothing = wire.Nomsg(qname="q", cmd_id=ticket)

    assert heard(session, nothing, now_s=NOW_S + 10) == []
    (rest,) = sent(session)
    assert isinstance(rest, wire.Fet)
    assert rest.wait == 4.0
    assert heard(session, nothing, now_s=NOW_S + 14) == [Answer(ticket, nothing)]


@pytest.mark.parametrize(
    "other",
    [
        wire.Fet(qname="other", wait=50.0),
        wire.Fet(qname="q", wait=50.0, count=3),
        wire.Fet(qname="q", wait=1),
        wire.Fet(qname="q", wait=50.0, timeout=300),
    ],
)
def test_a_wait_is_not_taken_over_by_a_fetch_that_wants_something_else_or_ends_sooner(other: wire.Fet) -> None:
    session = online()
    ticket = session.ask(wire.Fet(qname="q", wait=10.0), NOW_S)
    session.abandon(ticket)

    assert session.ask(other, NOW_S) != ticket


def test_what_ends_messages_is_repeated_before_a_fetch_that_would_bring_them_again() -> None:
    session = online()
    session.ask(wire.Fet(qname="q", count=8), NOW_S)
    session.ask(wire.Ack(qname="q", uid="u", lease="1-1"), NOW_S)
    sent(session)

    session.disconnected()
    session.connected(NOW_S)

    assert [type(command) for command in sent(session)] == [wire.Hello, wire.Ack, wire.Fet]
