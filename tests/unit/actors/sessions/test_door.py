"""What all doors share: how many connections there may be, and from where."""

import pytest

from wakeq.actors.sessions.door import SPARE_CONNECTIONS, UNREAD_BYTES_MAX, Admission, Backlog, Verdict
from wakeq.protocol.access import is_this_machine


def test_connections_are_bounded_in_all_and_by_address() -> None:
    admission = Admission(connections_max=4, per_address_max=2)

    assert [admission.enter("10.0.0.1") for _ in range(2)] == ["", ""]
    assert "2 connections from 10.0.0.1" in admission.enter("10.0.0.1")
    assert admission.enter("10.0.0.2") == ""
    assert admission.enter("10.0.0.3") == ""
    assert "4 connections already" in admission.enter("10.0.0.4")

    admission.leave("10.0.0.1")
    assert admission.enter("10.0.0.1") == ""


def test_requests_by_http_find_some_places_beyond_the_others() -> None:
    admission = Admission(connections_max=2)

    spare = [admission.enter(may_be_spare=True) for _ in range(2 + SPARE_CONNECTIONS)]

    assert set(spare) == {""}
    assert "2 connections already" in admission.enter(may_be_spare=True)
    admission.leave()
    assert "2 connections already" in admission.enter()


def test_loopback_and_unknown_addresses_have_no_limit_of_their_own() -> None:
    admission = Admission(connections_max=100, per_address_max=1)

    for address in ("127.0.0.1", "::1", ""):
        assert [admission.enter(address) for _ in range(3)] == ["", "", ""]


def test_address_is_forgotten_when_its_last_connection_goes() -> None:
    admission = Admission(per_address_max=10)
    for number in range(1000):
        admission.enter(f"10.0.{number // 256}.{number % 256}")
    for number in range(1000):
        admission.leave(f"10.0.{number // 256}.{number % 256}")

    assert admission.connections == 0
    assert not admission._by_address


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("::ffff:127.0.0.1", True),
     ("::ffff:10.0.0.1", False), ("localhost", True), ("0.0.0.0", False), ("", False),
     ("::", False), ("10.0.0.1", False), ("localhost.evil.example", False), ("*", False)],
)  # fmt: skip
def test_loopback_addresses_alone_are_this_machine(host: str, own: bool) -> None:
    assert is_this_machine(host) is own


def test_peer_that_reads_all_but_the_last_answer_may_ask_for_as_much_as_it_likes() -> None:
    answer = UNREAD_BYTES_MAX // 2
    backlog = Backlog(0, 0.0)

    verdicts = [backlog.wrote(answer, answer + 1, float(at), burst=False, crowded=False) for at in range(20)]

    assert set(verdicts) == {Verdict.KEEP}


def test_peer_that_reads_none_of_its_answers_is_dropped() -> None:
    answer = UNREAD_BYTES_MAX // 2
    backlog = Backlog(0, 0.0)

    verdicts = [backlog.wrote(answer, answer * (at + 1), 0.0, burst=False, crowded=False) for at in range(4)]

    assert verdicts == [Verdict.KEEP] * 3 + [Verdict.DROP]
