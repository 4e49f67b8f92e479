"""Tests of session.py with brokers that do not lead, are silent, or cannot be reached."""

import pytest

from tests.helpers.clients.session import ANSWER_S, NOW_S, events_for, online, sent
from wakeq import errors
from wakeq.client.session import PING_AFTER_S, Answer, Redirected
from wakeq.protocol.wire.worker import codec as wire

# Leaders --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [wire.Pub(qname="q", message="x"), wire.Create(qname="q"), wire.Islp(qname="q")])
def test_command_refused_by_a_follower_is_repeated(command: wire.Command) -> None:
    session = online()
    ticket = session.ask(command, NOW_S)
    before = sent(session)

    assert events_for(session, wire.Nok(err="NOT_LEADER", leader="b:1", cmd_id=ticket)) == [Redirected("b:1")]
    assert session.disconnected() == []
    session.connected(NOW_S)

    assert sent(session)[1:] == before


def test_refusal_on_one_connection_does_not_count_on_the_next() -> None:
    session = online()
    ticket = session.ask(wire.Create(qname="q"), NOW_S)
    events_for(session, wire.Nok(err="NOT_LEADER", cmd_id=ticket))
    session.disconnected()
    session.connected(NOW_S)

    (answer,) = session.disconnected()

    assert isinstance(answer.outcome, errors.Disconnected)


@pytest.mark.parametrize("greeted", [True, False])
def test_follower_may_redirect_without_a_ticket(greeted: bool) -> None:
    session = online()
    if not greeted:
        session.connected(NOW_S)

    assert events_for(session, wire.Nok(err="NOT_LEADER", leader="b:1")) == [Redirected("b:1")]


def test_publish_with_unknown_outcome_is_repeated_elsewhere_with_its_number() -> None:
    session = online()
    ticket = session.ask(wire.Pub(qname="q", message="x"), NOW_S)
    before = sent(session)

    assert events_for(session, wire.Nok(err="UNKNOWN", cmd_id=ticket)) == [Redirected(None)]
    session.disconnected()
    session.connected(NOW_S)

    assert sent(session)[1:] == before


def test_unknown_outcome_of_unrepeatable_command_is_an_answer() -> None:
    session = online()
    ticket = session.ask(wire.Create(qname="q"), NOW_S)
    nok = wire.Nok(err="UNKNOWN", cmd_id=ticket)

    assert events_for(session, nok) == [Answer(ticket, nok)]


# Signs of life --------------------------------------------------------------------------------------------


def test_overdue_answer_means_that_the_broker_hangs() -> None:
    session = online()
    ticket = session.ask(wire.Ping(), NOW_S)

    assert not session.is_hung(NOW_S + ANSWER_S - 1)
    assert session.is_hung(NOW_S + ANSWER_S)
    (answer,) = session.fail_overdue(errors.Disconnected("hung"), NOW_S + ANSWER_S)
    assert answer.ticket == ticket


def test_waiting_fetch_is_due_after_its_wait() -> None:
    session = online()
    session.ask(wire.Fet(qname="q", wait=600.0), NOW_S)
    events_for(session, wire.Awk(qname="other"), now_s=NOW_S + 590)

    assert not session.is_hung(NOW_S + 600 + ANSWER_S - 1)
    assert session.is_hung(NOW_S + 600 + ANSWER_S)


def test_hung_broker_fails_only_overdue_commands() -> None:
    session = online()
    session.ask(wire.Fet(qname="q", wait=600.0), NOW_S)
    overdue = session.ask(wire.Ping(), NOW_S)
    session.ask(wire.Ping(), NOW_S + 10)

    answers = session.fail_overdue(errors.Disconnected("hung"), NOW_S + ANSWER_S)

    assert [answer.ticket for answer in answers] == [overdue]


def test_silence_limit_doubles_until_a_node_answers() -> None:
    session = online(silence_limit_s=2.0)
    session.ask(wire.Fet(qname="q", wait=600.0), NOW_S)
    idle = session.is_silent(NOW_S + 500)
    session.ask(wire.Pub(qname="q", message="x"), NOW_S + 500)

    silent = [session.is_silent(NOW_S + 500 + s) for s in (1.9, 2.0)]
    session.double_silence_limit()
    session.disconnected()
    session.connected(NOW_S + 502)
    slow = [session.is_silent(NOW_S + 502 + s) for s in (3.9, 4.0)]
    ticket = session.ask(wire.Ping(), NOW_S + 502)
    events_for(session, wire.Pong(cmd_id=ticket))

    assert (idle, silent, slow) == (False, [False, True], [False, True])
    assert session.silence_limit_s == 2.0


def test_single_address_has_no_silence_limit() -> None:
    session = online()
    session.ask(wire.Ping(), NOW_S)

    assert not session.is_silent(NOW_S + ANSWER_S)


def test_silent_connection_is_pinged_once_a_minute_and_found_to_hang() -> None:
    session = online()
    session.ask(wire.Fet(qname="q", wait=3000.0), NOW_S)
    sent(session)

    assert session.next_check_s() == NOW_S + PING_AFTER_S
    assert not session.is_hung(NOW_S + PING_AFTER_S)
    assert [type(command) for command in sent(session)] == [wire.Ping]
    assert session.next_check_s() == NOW_S + PING_AFTER_S + ANSWER_S
    assert session.is_hung(NOW_S + PING_AFTER_S + ANSWER_S)


def test_short_calls_find_a_silent_broker_too() -> None:
    session = online(silence_limit_s=2.0)
    muted = []

    for s in range(40):
        session.abandon(session.ask(wire.Pub(qname="q", message="x"), NOW_S + s))
        muted.append(session.is_silent(NOW_S + s + 0.9))

    assert muted[:4] == [False, False, True, True]
    assert session.is_hung(NOW_S + ANSWER_S)


def test_answer_to_abandoned_command_is_a_sign_of_life() -> None:
    session = online(silence_limit_s=2.0)
    ticket = session.ask(wire.Ping(), NOW_S)
    session.abandon(ticket)

    assert events_for(session, wire.Pong(cmd_id=ticket), now_s=NOW_S + 1) == []

    assert not session.is_silent(NOW_S + 500)
    assert not session.owes_answer(NOW_S + 500)


def test_no_ping_is_sent_within_a_minute_of_a_pong() -> None:
    session = online()
    at_s = NOW_S + PING_AFTER_S
    session.is_hung(at_s)
    (ping,) = sent(session)

    events_for(session, wire.Pong(cmd_id=ping.cmd_id), now_s=at_s)

    assert session.next_check_s() == at_s + PING_AFTER_S
    assert not session.is_hung(at_s + PING_AFTER_S - 1)
    assert session.bytes_to_send() == b""


def test_silence_counts_only_from_the_first_command() -> None:
    session = online()

    session.ask(wire.Ping(), NOW_S + 1000)

    assert session.next_check_s() == NOW_S + 1000 + ANSWER_S


def test_answer_timeout_starts_anew_on_a_new_connection() -> None:
    session = online()
    session.ask(wire.Ping(), NOW_S)
    session.disconnected()

    session.connected(NOW_S + 25)

    assert not session.is_hung(NOW_S + ANSWER_S)


def test_silence_limit_starts_anew_on_a_new_connection() -> None:
    session = online()
    session.ask(wire.Fet(qname="q", wait=3000.0), NOW_S)
    session.disconnected()

    session.connected(NOW_S + PING_AFTER_S)

    assert session.next_check_s() == NOW_S + 2 * PING_AFTER_S


def test_commands_get_separate_errors_when_no_broker_is_reached() -> None:
    session = online()
    tickets = [session.ask(wire.Ping(), NOW_S), session.ask(wire.Fet(qname="q", wait=5.0), NOW_S)]
    reason = errors.BrokerUnreachable("gone")

    answers = session.fail_all(reason)

    assert [answer.ticket for answer in answers] == tickets
    assert all(type(answer.outcome) is errors.BrokerUnreachable for answer in answers)
    # Two tasks raise them, each with a traceback of its own.
    assert len({id(answer.outcome) for answer in answers}) == 2
