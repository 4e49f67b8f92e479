"""Tests of route.py: the next address, the pause before it, and the end of the attempts."""

import logging
from itertools import pairwise
from typing import Any

import pytest

from wakeq import errors
from wakeq.client.connection import unreachable
from wakeq.client.route import (
    ELECTION_S_MAX,
    PAUSE_S_MIN,
    SILENT_LAST_S,
    Route,
    default_address,
    fell_silent,
    parse_address,
    redirect,
)
from wakeq.client.session import NotReady

NOW_S = 100.0


def connected_route(addresses: str, *, reconnect_for_s: float = 10.0) -> Route:
    """Return a route that has been connected once."""
    route = Route(addresses, reconnect_for_s=reconnect_for_s)
    route.connected(NOW_S)
    return route


def unreachable_at(address: str) -> errors.BrokerUnreachable:
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
def test_address_is_split_into_host_and_port(address: str, expected: tuple[str, int]) -> None:
    assert parse_address(address) == expected


@pytest.mark.parametrize(
    "address", ["", ":1", "host:", "host:port", "host:0", "host:65536", "http://host:1", "a..b:1", "é" * 64]
)
def test_malformed_address_is_refused(address: str) -> None:
    with pytest.raises(errors.BadSettings, match="HOST:PORT"):
        parse_address(address)


@pytest.mark.parametrize("address", [2601, ("127.0.0.1", 2601)])
def test_address_that_is_not_text_is_refused(address: Any) -> None:
    with pytest.raises(errors.BadSettings, match=r"2601.* is not the address of a broker; write HOST:PORT"):
        Route(address, reconnect_for_s=10)


def test_malformed_address_among_several_is_refused() -> None:
    with pytest.raises(errors.BadSettings, match="http://b"):
        Route("a:1, http://b", reconnect_for_s=10)


def test_default_address_comes_from_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAKEQ_BROKER", raising=False)
    assert default_address() == "127.0.0.1:2601"

    monkeypatch.setenv("WAKEQ_BROKER", "a:1,b:2")

    assert default_address() == "a:1,b:2"


# The first connection -------------------------------------------------------------------------------------


def test_first_connection_is_not_waited_for() -> None:
    route = Route("a:1", reconnect_for_s=10)

    with pytest.raises(errors.BrokerUnreachable, match="no broker at a:1"):
        route.failed(unreachable_at("a:1"), NOW_S)


def test_first_connection_tries_every_address_and_error_lists_them() -> None:
    route = Route("a:1,b:2", reconnect_for_s=10)

    assert route.address == "a:1"
    assert route.failed(unreachable_at("a:1"), NOW_S) == 0.0
    assert route.address == "b:2"
    with pytest.raises(errors.BrokerUnreachable, match="tried 2 addresses: no broker at a:1; no broker at b:2"):
        route.failed(unreachable_at("b:2"), NOW_S)


def test_broker_that_is_not_ready_is_tried_again_before_the_first_connection() -> None:
    route = Route("a:1,b:2", reconnect_for_s=10)

    assert route.failed(NotReady("a:1 is busy"), NOW_S) == 0.0
    assert route.failed(unreachable_at("b:2"), NOW_S) == PAUSE_S_MIN
    assert route.failed(NotReady("a:1 is busy"), NOW_S + 10) == 0.0
    with pytest.raises(errors.BrokerUnreachable, match="tried 2 addresses: a:1 is busy; no broker at b:2"):
        route.failed(unreachable_at("b:2"), NOW_S + 10)


# Later connections -----------------------------------------------------------------------------------------------


def test_lost_connection_is_dialled_again_at_once() -> None:
    route = connected_route("a:1,b:2")

    assert route.lost(errors.Disconnected("broke"), NOW_S) == 0.0
    assert route.address == "a:1"


def test_connection_that_breaks_twice_is_dialled_after_a_pause() -> None:
    route = connected_route("a:1")
    route.lost(errors.Disconnected("broke"), NOW_S)
    route.connected(NOW_S)

    assert route.lost(errors.Disconnected("broke"), NOW_S) == PAUSE_S_MIN


def test_addresses_are_tried_in_turn_with_a_pause_after_each_round() -> None:
    route = connected_route("a:1,b:2")
    route.lost(errors.Disconnected("broke"), NOW_S)

    pauses, tried = [], []
    for _ in range(4):
        tried.append(route.address)
        pauses.append(route.failed(unreachable_at(route.address), NOW_S))

    assert tried == ["a:1", "b:2", "a:1", "b:2"]
    assert pauses == [0.0, PAUSE_S_MIN, 0.0, 2 * PAUSE_S_MIN]


def test_pauses_are_short_during_an_election_but_not_for_long() -> None:
    route = connected_route("a:1,b:2")
    now_s, moments_s = NOW_S, []
    route.lost(errors.Disconnected("broke"), now_s)

    while now_s < NOW_S + 6:
        now_s += route.failed(unreachable_at("a:1"), now_s)
        now_s += route.failed(redirect("b:2", None), now_s)
        moments_s.append(now_s - NOW_S)

    gaps_s = [after - before for before, after in pairwise(moments_s)]
    assert max(gap_s for gap_s, at_s in zip(gaps_s, moments_s, strict=False) if at_s < ELECTION_S_MAX) <= 0.11
    assert gaps_s[-1] >= 0.2


def test_named_leader_is_dialled_next_and_at_once() -> None:
    route = connected_route("a:1,b:2")

    assert route.lost(redirect("a:1", "c:3"), NOW_S) == 0.0
    assert route.address == "c:3"


def test_unreachable_leader_is_left_for_the_listed_addresses() -> None:
    route = connected_route("a:1,b:2")
    route.lost(redirect("a:1", "c:3"), NOW_S)

    route.failed(unreachable_at("c:3"), NOW_S)

    assert route.address in ("a:1", "b:2")


def test_silent_leader_is_not_dialled_next() -> None:
    route = connected_route("a:1,b:2,c:3")
    route.lost(redirect("a:1", "b:2"), NOW_S)
    route.connected(NOW_S)
    route.reset()

    route.lost(fell_silent("b:2"), NOW_S + 5)
    asked = [route.address]
    route.failed(unreachable_at(route.address), NOW_S + 5)
    asked.append(route.address)

    assert sorted(asked) == ["a:1", "c:3"]


def test_silent_address_named_as_leader_is_skipped() -> None:
    route = connected_route("a:1,b:2,c:3")

    route.lost(fell_silent("a:1"), NOW_S)
    assert route.address == "b:2"
    assert route.failed(redirect("b:2", "a:1"), NOW_S) == 0.0
    assert route.address == "c:3"
    assert route.failed(redirect("c:3", "a:1"), NOW_S) > 0.0
    assert route.address == "b:2"


def test_silent_address_is_tried_again_after_some_seconds() -> None:
    route = connected_route("a:1,b:2")
    route.lost(fell_silent("a:1"), NOW_S)

    route.failed(unreachable_at("b:2"), NOW_S + 0.1)
    assert route.address == "b:2"
    route.failed(unreachable_at("b:2"), NOW_S + SILENT_LAST_S)
    assert route.address == "a:1"


def test_address_with_connect_timeout_counts_as_silent() -> None:
    route = connected_route("a:1,b:2")
    timed_out = unreachable_at("a:1")
    timed_out.__cause__ = TimeoutError()
    route.lost(unreachable_at("a:1"), NOW_S)
    route.failed(timed_out, NOW_S)

    route.failed(redirect("b:2", "a:1"), NOW_S)

    assert route.address == "b:2"


def test_silent_addresses_are_tried_if_there_are_no_others() -> None:
    route = connected_route("a:1,b:2")
    route.lost(fell_silent("a:1"), NOW_S)

    route.failed(fell_silent("b:2"), NOW_S + 1)

    assert route.address == "a:1"


def test_address_that_answers_again_is_not_silent() -> None:
    route = connected_route("a:1,b:2")
    route.lost(fell_silent("a:1"), NOW_S)
    route.failed(fell_silent("b:2"), NOW_S)
    route.connected(NOW_S + 1)

    route.lost(redirect("a:1", "b:2"), NOW_S + 1)
    route.failed(redirect("b:2", "a:1"), NOW_S + 1)

    assert route.address == "a:1"


@pytest.mark.parametrize("leader", [None, "", "nonsense:port"])
def test_next_address_is_tried_when_no_leader_is_known(leader: str | None) -> None:
    route = connected_route("a:1,b:2")

    assert route.lost(redirect("a:1", leader), NOW_S) == 0.0
    assert route.address == "b:2"


def test_nodes_that_name_each_other_are_given_up_after_pauses() -> None:
    route = connected_route("a:1,b:2")
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


def test_error_for_mixed_failures_is_not_leader_and_lists_them() -> None:
    route = Route("a:1,b:2", reconnect_for_s=10)
    route.failed(redirect("a:1", None), NOW_S)

    with pytest.raises(errors.NotLeader, match="a:1 does not lead and knows of no leader; no broker at b:2"):
        route.failed(unreachable_at("b:2"), NOW_S)


def test_broken_connection_is_tried_once_with_reconnect_for_zero() -> None:
    route = connected_route("a:1", reconnect_for_s=0)

    assert route.lost(errors.Disconnected("broke"), NOW_S) == 0.0
    with pytest.raises(errors.BrokerUnreachable):
        route.failed(unreachable_at("a:1"), NOW_S)


def test_single_address_is_dialled_by_the_next_call_after_silence_without_reconnects() -> None:
    route = connected_route("a:1", reconnect_for_s=0.0)
    with pytest.raises(errors.Disconnected) as caught:
        route.lost(fell_silent("a:1"), 0.0)
    route.reset()

    pause_s = route.lost(caught.value, 10.0)

    assert (route.address, pause_s) == ("a:1", 0.0)


def test_outage_is_logged_once_however_often_the_connection_breaks(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="wakeq.client")
    route = connected_route("a:1")

    for _ in range(3):
        route.lost(errors.Disconnected("the connection broke"), NOW_S)
        route.failed(unreachable_at("a:1"), NOW_S)
        route.connected(NOW_S)

    assert caplog.messages == ["the connection broke; reconnecting", "connected to a:1 again"]
    # Both records have the same level.
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_error_shows_the_default_port_that_was_tried() -> None:
    assert Route("broker.example", reconnect_for_s=0).address == "broker.example:2601"
    assert Route("[::1]", reconnect_for_s=0).address == "[::1]:2601"


def test_end_of_attempts_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    route = connected_route("a:1", reconnect_for_s=5)
    route.lost(errors.Disconnected("the connection broke"), NOW_S)

    with pytest.raises(errors.BrokerUnreachable):
        route.failed(unreachable_at("a:1"), NOW_S + 5)

    # The error lists the attempts.
    assert caplog.messages[-1] == "no broker was reachable within 5 s"


def test_error_for_several_addresses_gives_its_advice_once() -> None:
    route = Route("a:1,b:2,c:3", reconnect_for_s=10)
    refused = ConnectionRefusedError(111, "Connection refused")
    route.failed(unreachable("a:1", refused), NOW_S)
    route.failed(redirect("b:2", None), NOW_S)

    with pytest.raises(errors.NotLeader) as caught:
        route.failed(unreachable("c:3", refused), NOW_S)

    assert str(caught.value) == (
        "no broker serves; tried 3 addresses: no broker answers at a:1 (Connection refused); "
        "b:2 does not lead and knows of no leader; no broker answers at c:3 (Connection refused); "
        "start it with `wakeq serve`, or give its address: WAKEQ_BROKER=HOST:PORT "
        "(HTTP and MoniQue: WAKEQ_HTTP, TaskFlux: WAKEQ_TASKFLUX)"
    )
    # The same status as for an unreachable broker.
    assert caught.value.exit_status == 69


def test_redirect_to_leader_is_not_logged_as_outage(caplog: pytest.LogCaptureFixture) -> None:
    route = connected_route("a:1,b:2")

    assert route.lost(redirect("a:1", "b:2"), NOW_S) == 0.0
    route.connected(NOW_S)

    assert (route.address, caplog.messages) == ("b:2", [])


def test_outage_is_logged_once_if_the_named_leader_is_away_too(caplog: pytest.LogCaptureFixture) -> None:
    route = connected_route("a:1,b:2")

    route.lost(redirect("a:1", "b:2"), NOW_S)
    route.failed(unreachable_at("b:2"), NOW_S)
    route.connected(NOW_S)

    assert caplog.messages == ["no broker at b:2; reconnecting", "connected to b:2 again"]
