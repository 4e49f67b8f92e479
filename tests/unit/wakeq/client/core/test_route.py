"""Proves where a client looks for its broker (route.py), and for how long (patience.py)."""

import logging
from itertools import pairwise
from typing import Any

import pytest

from wakeq import errors
from wakeq.client.connection import unreachable
from wakeq.client.core.backoff import ELECTION_S_MAX, PAUSE_S_MIN, ReconnectBackoff
from wakeq.client.core.route import SILENT_LAST_S, Route, default_address, parse_address, redirect
from wakeq.client.core.session import NotReady
from wakeq.client.core.timeouts import fell_silent

NOW_S = 100.0


def found(addresses: str, *, reconnect_for_s: float = 10.0) -> Route:
    """A route that led to a broker once."""
    route = Route(addresses, reconnect_for_s=reconnect_for_s)
    route.connected(NOW_S)
    return route


def gone(address: str) -> errors.BrokerUnreachable:
    return errors.BrokerUnreachable(f"no broker at {address}")


# Addresses ------------------------------------------------------------------------------------------------


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
    assert parse_address(address) == expected


@pytest.mark.parametrize(
    "address", ["", ":1", "host:", "host:port", "host:0", "host:65536", "http://host:1", "a..b:1", "é" * 64]
)
def test_what_is_no_address_is_said(address: str) -> None:
    with pytest.raises(errors.BadSettings, match="HOST:PORT"):
        parse_address(address)


@pytest.mark.parametrize("address", [2601, ("127.0.0.1", 2601)])
def test_what_is_no_text_is_no_address(address: Any) -> None:
    with pytest.raises(errors.BadSettings, match=r"2601.* is not the address of a broker; write HOST:PORT"):
        Route(address, reconnect_for_s=10)


def test_one_bad_address_among_several_is_said() -> None:
    with pytest.raises(errors.BadSettings, match="http://b"):
        Route("a:1, http://b", reconnect_for_s=10)


def test_the_address_is_the_environments_if_nobody_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAKEQ_BROKER", raising=False)
    assert default_address() == "127.0.0.1:2601"

    monkeypatch.setenv("WAKEQ_BROKER", "a:1,b:2")

    assert default_address() == "a:1,b:2"


# The first connection -------------------------------------------------------------------------------------


def test_nobody_is_waited_for_before_the_first_connection() -> None:
    route = Route("a:1", reconnect_for_s=10)

    with pytest.raises(errors.BrokerUnreachable, match="no broker at a:1"):
        route.failed(gone("a:1"), NOW_S)


def test_every_address_is_tried_for_the_first_connection_and_the_error_lists_them() -> None:
    route = Route("a:1,b:2", reconnect_for_s=10)

    assert route.address == "a:1"
    assert route.failed(gone("a:1"), NOW_S) == 0.0
    assert route.address == "b:2"
    with pytest.raises(errors.BrokerUnreachable, match="tried 2 addresses: no broker at a:1; no broker at b:2"):
        route.failed(gone("b:2"), NOW_S)


def test_broker_that_will_serve_soon_is_waited_for_before_the_first_connection() -> None:
    route = Route("a:1,b:2", reconnect_for_s=10)

    assert route.failed(NotReady("a:1 is busy"), NOW_S) == 0.0
    assert route.failed(gone("b:2"), NOW_S) == PAUSE_S_MIN
    assert route.failed(NotReady("a:1 is busy"), NOW_S + 10) == 0.0
    with pytest.raises(errors.BrokerUnreachable, match="tried 2 addresses: a:1 is busy; no broker at b:2"):
        route.failed(gone("b:2"), NOW_S + 10)


# Later ones -----------------------------------------------------------------------------------------------


def test_a_lost_connection_is_tried_again_at_once_at_the_same_address() -> None:
    route = found("a:1,b:2")

    assert route.lost(errors.Disconnected("broke"), NOW_S) == 0.0
    assert route.address == "a:1"


def test_a_connection_that_breaks_again_without_an_answer_is_tried_after_a_pause() -> None:
    route = found("a:1")
    route.lost(errors.Disconnected("broke"), NOW_S)
    route.connected(NOW_S)

    assert route.lost(errors.Disconnected("broke"), NOW_S) == PAUSE_S_MIN


def test_addresses_are_tried_in_turn_with_a_pause_after_each_round() -> None:
    route = found("a:1,b:2")
    route.lost(errors.Disconnected("broke"), NOW_S)

    pauses, tried = [], []
    for _ in range(4):
        tried.append(route.address)
        pauses.append(route.failed(gone(route.address), NOW_S))

    assert tried == ["a:1", "b:2", "a:1", "b:2"]
    assert pauses == [0.0, PAUSE_S_MIN, 0.0, 2 * PAUSE_S_MIN]


def test_while_nodes_look_for_a_leader_they_are_asked_often_but_not_for_long() -> None:
    route = found("a:1,b:2")
    now_s, moments_s = NOW_S, []
    route.lost(errors.Disconnected("broke"), now_s)

    while now_s < NOW_S + 6:
        now_s += route.failed(gone("a:1"), now_s)
        now_s += route.failed(redirect("b:2", None), now_s)
        moments_s.append(now_s - NOW_S)

    gaps_s = [after - before for before, after in pairwise(moments_s)]
    assert max(gap_s for gap_s, at_s in zip(gaps_s, moments_s, strict=False) if at_s < ELECTION_S_MAX) <= 0.11
    assert gaps_s[-1] >= 0.2


def test_a_leader_that_was_named_is_asked_next_and_at_once() -> None:
    route = found("a:1,b:2")

    assert route.lost(redirect("a:1", "c:3"), NOW_S) == 0.0
    assert route.address == "c:3"


def test_a_leader_that_does_not_answer_is_left_for_the_addresses_of_the_list() -> None:
    route = found("a:1,b:2")
    route.lost(redirect("a:1", "c:3"), NOW_S)

    route.failed(gone("c:3"), NOW_S)

    assert route.address in ("a:1", "b:2")


def test_a_leader_that_has_fallen_silent_is_not_the_next_one_to_be_asked() -> None:
    route = found("a:1,b:2,c:3")
    route.lost(redirect("a:1", "b:2"), NOW_S)
    route.connected(NOW_S)
    route.reset()

    route.lost(fell_silent("b:2"), NOW_S + 5)
    asked = [route.address]
    route.failed(gone(route.address), NOW_S + 5)
    asked.append(route.address)

    assert sorted(asked) == ["a:1", "c:3"]


def test_silent_address_that_others_name_as_leader_is_left_out() -> None:
    route = found("a:1,b:2,c:3")

    route.lost(fell_silent("a:1"), NOW_S)
    assert route.address == "b:2"
    assert route.failed(redirect("b:2", "a:1"), NOW_S) == 0.0
    assert route.address == "c:3"
    assert route.failed(redirect("c:3", "a:1"), NOW_S) > 0.0
    assert route.address == "b:2"


def test_silent_address_has_its_turn_again_after_some_seconds() -> None:
    route = found("a:1,b:2")
    route.lost(fell_silent("a:1"), NOW_S)

    route.failed(gone("b:2"), NOW_S + 0.1)
    assert route.address == "b:2"
    route.failed(gone("b:2"), NOW_S + SILENT_LAST_S)
    assert route.address == "a:1"


def test_address_that_let_nobody_connect_in_time_is_silent_too() -> None:
    route = found("a:1,b:2")
    timed_out = gone("a:1")
    timed_out.__cause__ = TimeoutError()
    route.lost(gone("a:1"), NOW_S)
    route.failed(timed_out, NOW_S)

    route.failed(redirect("b:2", "a:1"), NOW_S)

    assert route.address == "b:2"


def test_silent_addresses_are_asked_if_there_are_no_others() -> None:
    route = found("a:1,b:2")
    route.lost(fell_silent("a:1"), NOW_S)

    route.failed(fell_silent("b:2"), NOW_S + 1)

    assert route.address == "a:1"


def test_address_that_answers_again_is_not_silent() -> None:
    route = found("a:1,b:2")
    route.lost(fell_silent("a:1"), NOW_S)
    route.failed(fell_silent("b:2"), NOW_S)
    route.connected(NOW_S + 1)

    route.lost(redirect("a:1", "b:2"), NOW_S + 1)
    route.failed(redirect("b:2", "a:1"), NOW_S + 1)

    assert route.address == "a:1"


@pytest.mark.parametrize("leader", [None, "", "nonsense:port"])
def test_without_a_leader_the_next_address_is_asked(leader: str | None) -> None:
    route = found("a:1,b:2")

    assert route.lost(redirect("a:1", leader), NOW_S) == 0.0
    assert route.address == "b:2"


def test_two_nodes_that_name_each_other_are_not_asked_without_pauses_nor_for_ever() -> None:
    route = found("a:1,b:2")
    leaders = {"a:1": "b:2", "b:2": "a:1"}
    now_s, pauses = NOW_S, 0

    with pytest.raises(errors.NotLeader, match="a:1 does not lead") as caught:  # noqa: PT012
        for _ in range(1000):
            pause_s = route.lost(redirect(route.address, leaders[route.address]), now_s)
            now_s += pause_s
            pauses += pause_s > 0
            route.connected(now_s)

    assert "b:2 does not lead" in str(caught.value)
    assert 10 <= pauses < 50
    assert now_s <= NOW_S + 10


def test_a_mixture_of_failures_is_a_not_leader_that_lists_them() -> None:
    route = Route("a:1,b:2", reconnect_for_s=10)
    route.failed(redirect("a:1", None), NOW_S)

    with pytest.raises(errors.NotLeader, match="a:1 does not lead and knows of no leader; no broker at b:2"):
        route.failed(gone("b:2"), NOW_S)


def test_without_patience_a_broken_connection_is_tried_once_and_no_more() -> None:
    route = found("a:1", reconnect_for_s=0)

    assert route.lost(errors.Disconnected("broke"), NOW_S) == 0.0
    with pytest.raises(errors.BrokerUnreachable):
        route.failed(gone("a:1"), NOW_S)


def test_only_address_is_dialled_again_for_the_next_call_after_a_silence_without_patience() -> None:
    route = found("a:1", reconnect_for_s=0.0)
    with pytest.raises(errors.Disconnected) as told:
        route.lost(fell_silent("a:1"), 0.0)
    route.reset()

    pause_s = route.lost(told.value, 10.0)

    assert (route.address, pause_s) == ("a:1", 0.0)


def test_an_outage_is_a_warning_once_however_often_the_connection_breaks(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="wakeq.client")
    route = found("a:1")

    for _ in range(3):
        route.lost(errors.Disconnected("the connection broke"), NOW_S)
        route.failed(gone("a:1"), NOW_S)
        route.connected(NOW_S)

    assert caplog.messages == ["the connection broke; reconnecting", "connected to a:1 again"]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}  # who saw it begin sees it end


def test_an_address_without_a_port_is_named_with_the_one_that_is_tried() -> None:
    assert Route("broker.example", reconnect_for_s=0).address == "broker.example:2601"
    assert Route("[::1]", reconnect_for_s=0).address == "[::1]:2601"


def test_the_end_of_patience_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    route = found("a:1", reconnect_for_s=5)
    route.lost(errors.Disconnected("the connection broke"), NOW_S)

    with pytest.raises(errors.BrokerUnreachable):
        route.failed(gone("a:1"), NOW_S + 5)

    assert caplog.messages[-1] == "no broker came back within 5 s"  # what was tried is said by the error


def test_an_error_of_several_addresses_says_its_advice_once() -> None:
    route = Route("a:1,b:2,c:3", reconnect_for_s=10)
    refused = ConnectionRefusedError(111, "Connection refused")
    route.failed(unreachable("a:1", refused), NOW_S)
    route.failed(redirect("b:2", None), NOW_S)

    with pytest.raises(errors.NotLeader) as caught:
        route.failed(unreachable("c:3", refused), NOW_S)

    assert str(caught.value) == (
        "no broker serves; tried 3 addresses: no broker answers at a:1 (Connection refused); "
        "b:2 does not lead and knows of no leader; no broker answers at c:3 (Connection refused); "
        "start it with `wakeq serve`, or give its address: WAKEQ_BROKER=HOST:PORT (TaskFlux and MoniQue: --address)"
    )
    assert caught.value.exit_status == 69  # as where nobody answers at all


# ReconnectBackoff -------------------------------------------------------------------------------------------------


def test_patience_with_a_broker_that_stays_away_ends_after_its_span() -> None:
    backoff = ReconnectBackoff(10.0)
    backoff.lost(NOW_S)
    now_s, tries = NOW_S, 0

    while (pause_s := backoff.next_pause_s(now_s)) is not None:
        now_s, tries = now_s + pause_s, tries + 1

    assert NOW_S + 9 <= now_s <= NOW_S + 10
    assert 10 <= tries <= 20


def test_endless_patience_never_ends() -> None:
    backoff = ReconnectBackoff(float("inf"))
    backoff.lost(NOW_S)

    assert all(backoff.next_pause_s(NOW_S + day * 86_400) is not None for day in range(1000))


def test_patience_is_new_after_a_connection_that_lasted() -> None:
    backoff = ReconnectBackoff(10.0)
    now_s = NOW_S

    for _ in range(10):
        backoff.connected(now_s)
        now_s += 60
        assert backoff.lost(now_s)


def test_patience_is_new_after_an_answer() -> None:
    backoff = ReconnectBackoff(10.0)
    backoff.lost(NOW_S)

    backoff.reset()

    assert backoff.lost(NOW_S + 9)
    assert backoff.next_pause_s(NOW_S + 18) == PAUSE_S_MIN


def test_patience_ends_with_a_broker_that_breaks_every_connection_at_once() -> None:
    backoff = ReconnectBackoff(10.0)
    now_s = NOW_S

    for _ in range(1000):
        backoff.connected(now_s)
        pause_s = 0.0 if backoff.lost(now_s) else backoff.next_pause_s(now_s)
        if pause_s is None:
            break
        now_s += pause_s

    assert pause_s is None
    assert now_s <= NOW_S + 10


def test_to_be_sent_on_to_the_leader_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    route = found("a:1,b:2")

    assert route.lost(redirect("a:1", "b:2"), NOW_S) == 0.0
    route.connected(NOW_S)

    assert (route.address, caplog.messages) == ("b:2", [])


def test_an_outage_is_told_once_when_the_leader_that_was_named_is_away_too(caplog: pytest.LogCaptureFixture) -> None:
    route = found("a:1,b:2")

    route.lost(redirect("a:1", "b:2"), NOW_S)
    route.failed(gone("b:2"), NOW_S)
    route.connected(NOW_S)

    assert caplog.messages == ["no broker at b:2; reconnecting", "connected to b:2 again"]
