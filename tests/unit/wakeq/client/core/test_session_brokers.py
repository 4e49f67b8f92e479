"""Proves what the conversation (session.py) makes of brokers that do not lead, are silent, or cannot be had."""

import pytest

from tests.helpers.session_by_hand import ANSWER_S, NOW_S, heard, online, sent
from wakeq import errors
from wakeq.client.core.session import PING_AFTER_S, Answer, Redirected
from wakeq.protocol.wire.worker import codec as wire

# Leaders --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [wire.Pub(qname="q", message="x"), wire.Create(qname="q"), wire.Islp(qname="q")])
def test_what_another_than_the_leader_refused_is_repeated_whatever_it_is(command: wire.Command) -> None:
    session = online()
    ticket = session.ask(command, NOW_S)
    before = sent(session)

    assert heard(session, wire.Nok(err="NOT_LEADER", leader="b:1", cmd_id=ticket)) == [Redirected("b:1")]
    assert session.disconnected() == []
    session.connected(NOW_S)

    assert sent(session)[1:] == before


def test_a_refusal_of_one_connection_says_nothing_about_the_next_one() -> None:
    session = online()
    ticket = session.ask(wire.Create(qname="q"), NOW_S)
    heard(session, wire.Nok(err="NOT_LEADER", cmd_id=ticket))
    session.disconnected()
    session.connected(NOW_S)

    (answer,) = session.disconnected()

    assert isinstance(answer.outcome, errors.Disconnected)


@pytest.mark.parametrize("greeted", [True, False])
def test_a_node_that_does_not_lead_may_say_so_of_what_has_no_ticket(greeted: bool) -> None:
    session = online()
    if not greeted:
        session.connected(NOW_S)

    assert heard(session, wire.Nok(err="NOT_LEADER", leader="b:1")) == [Redirected("b:1")]


def test_a_publish_of_unknown_outcome_is_repeated_elsewhere_with_its_number() -> None:
    session = online()
    ticket = session.ask(wire.Pub(qname="q", message="x"), NOW_S)
    before = sent(session)

    assert heard(session, wire.Nok(err="UNKNOWN", cmd_id=ticket)) == [Redirected(None)]
    session.disconnected()
    session.connected(NOW_S)

    assert sent(session)[1:] == before


def test_an_unknown_outcome_of_what_must_not_be_done_twice_is_said() -> None:
    session = online()
    ticket = session.ask(wire.Create(qname="q"), NOW_S)
    nok = wire.Nok(err="UNKNOWN", cmd_id=ticket)

    assert heard(session, nok) == [Answer(ticket, nok)]


# Signs of life --------------------------------------------------------------------------------------------


def test_an_answer_that_is_overdue_means_that_the_broker_hangs() -> None:
    session = online()
    ticket = session.ask(wire.Ping(), NOW_S)

    assert not session.is_hung(NOW_S + ANSWER_S - 1)
    assert session.is_hung(NOW_S + ANSWER_S)
    (answer,) = session.fail_overdue(errors.Disconnected("hung"), NOW_S + ANSWER_S)
    assert answer.ticket == ticket


def test_a_fetch_that_waits_is_due_only_when_its_wait_is_over() -> None:
    session = online()
    session.ask(wire.Fet(qname="q", wait=600.0), NOW_S)
    heard(session, wire.Awk(qname="other"), now_s=NOW_S + 590)

    assert not session.is_hung(NOW_S + 600 + ANSWER_S - 1)
    assert session.is_hung(NOW_S + 600 + ANSWER_S)


def test_a_hung_broker_is_the_answer_to_what_is_overdue_only() -> None:
    session = online()
    session.ask(wire.Fet(qname="q", wait=600.0), NOW_S)
    overdue = session.ask(wire.Ping(), NOW_S)
    session.ask(wire.Ping(), NOW_S + 10)

    answers = session.fail_overdue(errors.Disconnected("hung"), NOW_S + ANSWER_S)

    assert [answer.ticket for answer in answers] == [overdue]


def test_who_has_others_to_ask_bears_a_silence_twice_as_long_each_time_until_somebody_answers() -> None:
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
    heard(session, wire.Pong(cmd_id=ticket))

    assert (idle, silent, slow) == (False, [False, True], [False, True])
    assert session.silence_limit_s == 2.0


def test_who_has_no_others_to_ask_waits_for_the_answer() -> None:
    session = online()
    session.ask(wire.Ping(), NOW_S)

    assert not session.is_silent(NOW_S + ANSWER_S)


def test_a_silent_connection_is_pinged_once_a_minute_and_found_to_hang() -> None:
    session = online()
    session.ask(wire.Fet(qname="q", wait=3000.0), NOW_S)
    sent(session)

    assert session.next_check_s() == NOW_S + PING_AFTER_S
    assert not session.is_hung(NOW_S + PING_AFTER_S)
    assert [type(command) for command in sent(session)] == [wire.Ping]
    assert session.next_check_s() == NOW_S + PING_AFTER_S + ANSWER_S
    assert session.is_hung(NOW_S + PING_AFTER_S + ANSWER_S)


def test_who_never_waits_for_long_finds_a_silent_broker_all_the_same() -> None:
    session = online(silence_limit_s=2.0)
    muted = []

    for s in range(40):
        session.abandon(session.ask(wire.Pub(qname="q", message="x"), NOW_S + s))
        muted.append(session.is_silent(NOW_S + s + 0.9))

    assert muted[:4] == [False, False, True, True]
    assert session.is_hung(NOW_S + ANSWER_S)


def test_an_answer_that_nobody_waits_for_any_more_is_a_sign_of_life() -> None:
    session = online(silence_limit_s=2.0)
    ticket = session.ask(wire.Ping(), NOW_S)
    session.abandon(ticket)

    assert heard(session, wire.Pong(cmd_id=ticket), now_s=NOW_S + 1) == []

    assert not session.is_silent(NOW_S + 500)
    assert not session.owes_answer(NOW_S + 500)


def test_an_answered_ping_is_a_minute_of_peace() -> None:
    session = online()
    at_s = NOW_S + PING_AFTER_S
    session.is_hung(at_s)
    (ping,) = sent(session)

    heard(session, wire.Pong(cmd_id=ping.cmd_id), now_s=at_s)

    assert session.next_check_s() == at_s + PING_AFTER_S
    assert not session.is_hung(at_s + PING_AFTER_S - 1)
    assert session.bytes_to_send() == b""


def test_the_silence_of_a_client_that_asked_nothing_is_not_the_brokers() -> None:
    session = online()

    session.ask(wire.Ping(), NOW_S + 1000)

    assert session.next_check_s() == NOW_S + 1000 + ANSWER_S


def test_a_new_connection_gives_new_time_to_answer() -> None:
    session = online()
    session.ask(wire.Ping(), NOW_S)
    session.disconnected()

    session.connected(NOW_S + 25)

    assert not session.is_hung(NOW_S + ANSWER_S)


def test_the_silence_of_a_lost_connection_is_not_the_new_ones() -> None:
    session = online()
    session.ask(wire.Fet(qname="q", wait=3000.0), NOW_S)
    session.disconnected()

    session.connected(NOW_S + PING_AFTER_S)

    assert session.next_check_s() == NOW_S + 2 * PING_AFTER_S


def test_giving_up_answers_everything_with_an_error_of_its_own() -> None:
    session = online()
    tickets = [session.ask(wire.Ping(), NOW_S), session.ask(wire.Fet(qname="q", wait=5.0), NOW_S)]
    reason = errors.BrokerUnreachable("gone")

    answers = session.fail_all(reason)

    assert [answer.ticket for answer in answers] == tickets
    assert all(type(answer.outcome) is errors.BrokerUnreachable for answer in answers)
    assert len({id(answer.outcome) for answer in answers}) == 2  # raised by two tasks, each with its own traceback
