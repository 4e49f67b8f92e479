"""Commands for messages: their requests, their output, their exit statuses."""

import io
import json
import sys
from typing import Any

import pytest

from tests.helpers.clients.scripted import FakeClient, give_on_standard_input, message
from wakeq.cli import main
from wakeq.cli.output import moment
from wakeq.client.session import WrongProtocol
from wakeq.protocol import errors
from wakeq.protocol.log.entries import PAUSE_MS_MAX


def test_pub_prints_the_uid(fake: type[FakeClient], capsys: pytest.CaptureFixture[str]) -> None:
    line = "pub emails hello --delay 5 --timeout 30 --expires 60 --priority -20 --header trace=1"

    status = main(line.split())

    assert (status, *capsys.readouterr()) == (0, "0000001_00000001\n", "")
    name, arguments, named = fake.calls[1]
    assert (name, arguments) == ("publish", ("emails", b"hello"))
    expected = {
        "delay": 5,
        "timeout": 30,
        "expires": 60,
        "priority": -20,
        "headers": {"trace": "1"},
        "id": "",
    }
    assert named == expected


@pytest.mark.parametrize("arguments", [["pub", "q", "-"], ["pub", "q"]])
def test_pub_reads_standard_input_unchanged(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    give_on_standard_input(monkeypatch, b"\xff\x00\n")

    main(arguments)

    assert fake.calls[1][1] == ("q", b"\xff\x00\n")


@pytest.mark.parametrize("arguments", [["pub", "", "x"], ["import", "--to", ""], ["pipeline", "load", ".", "--to", ""]])
def test_publish_to_an_empty_name_is_refused(
    fake: type[FakeClient], capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """It comes from an unset variable of a script; the default queue would take the message silently."""
    assert main(arguments) == 2

    assert "it is empty; name a queue" in capsys.readouterr().err
    assert fake.calls == []


def test_fetch_from_an_empty_name_means_the_default_queue(fake: type[FakeClient]) -> None:
    fake.messages = [message()]

    main(["fetch", ""])

    assert fake.calls[1][1] == ("", 1)


def test_fetch_prints_only_the_body_to_standard_output(
    fake: type[FakeClient], capsys: pytest.CaptureFixture[str]
) -> None:
    fake.messages = [message()]

    status = main(["fetch", "q"])

    output, said = capsys.readouterr()
    assert (status, output) == (0, "hi\n")
    assert "wakeq ack q u1 --lease 1.2" in said
    assert [call[0] for call in fake.calls] == ["connect", "fetch_many"]


def test_fetch_acknowledges_after_printing(fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch) -> None:
    fake.messages = [message()]
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(BrokenOutput()))

    # This output has no file descriptor to redirect.
    with pytest.raises(io.UnsupportedOperation):
        main(["fetch", "q", "--ack"])

    assert "ack_many" not in [call[0] for call in fake.calls]


class BrokenOutput(io.BytesIO):
    def write(self, _: Any) -> int:
        raise BrokenPipeError


# The first is the name in other commands, the second that of FET.
@pytest.mark.parametrize("how_many", ["--limit", "--count"])
def test_fetch_with_json_prints_one_message_per_line(
    fake: type[FakeClient], capsys: pytest.CaptureFixture[str], how_many: str
) -> None:
    fake.messages = [message(headers={"a": "b"}), message(uid="u2", body=b"\xff")]

    main(["fetch", "q", how_many, "2", "--json", "--ack"])

    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {
        "queue": "q",
        "uid": "u1",
        "lease": "1.2",
        "delivery": 1,
        "priority": 0,
        "headers": {"a": "b"},
        "encoding": "text",
        "body": "hi",
    }
    assert (second["encoding"], second["body"]) == ("base64", "/w==")
    assert fake.calls[-1] == ("ack_many", (fake.messages,), {})


def test_fetch_from_an_empty_queue_ends_with_3(fake: type[FakeClient], capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["fetch", "q", "--wait", "7"])

    output, said = capsys.readouterr()
    assert (status, output) == (3, "")
    assert said.startswith("wakeq: queue q has nothing")
    assert fake.calls[1] == ("fetch_many", ("q", 1), {"wait": 7, "timeout": None})


@pytest.mark.parametrize(
    ("stats", "reason"),
    [
        (
            {"delayed": 2, "leased": 1, "staged": 0},
            "has nothing to fetch now (2 delayed, 1 leased by workers); --wait S",
        ),
        ({"paused_until_ms": PAUSE_MS_MAX, "delayed": 2}, "is paused; `wakeq queue resume` resumes it"),
        ({"paused_until_ms": 1000}, f"is paused until {moment(1000)};"),
        (errors.Forbidden("the token may not look"), "has nothing to fetch now; --wait S"),
    ],
)
def test_fetch_from_an_empty_queue_names_the_reason(
    fake: type[FakeClient],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    stats: dict[str, int] | errors.WakeqError,
    reason: str,
) -> None:
    def answer(_self: FakeClient, name: str) -> object:
        if name == "stats" and isinstance(stats, errors.WakeqError):
            raise stats
        return stats if name == "stats" else []

    monkeypatch.setattr(fake, "answer", answer)

    status = main(["fetch", "q"])

    assert status == 3
    assert capsys.readouterr().err.startswith(f"wakeq: queue q {reason}")


def test_ack_nack_or_touch_of_a_missing_message_ends_with_3(
    fake: type[FakeClient], capsys: pytest.CaptureFixture[str]
) -> None:
    statuses = [main(["ack", "q", "u1"]), main(["nack", "q", "u1"]), main(["touch", "q", "u1"])]

    assert statuses == [3, 3, 3]
    assert capsys.readouterr().err.count("\n") == 3


def test_ack_in_a_missing_queue_says_so(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(_: FakeClient, name: str) -> object:
        if name == "stats":
            raise errors.QueueNotFound("there is no queue of this name")
        return False

    monkeypatch.setattr(fake, "answer", answer)

    assert main(["ack", "emial", "u1"]) == 3
    assert capsys.readouterr().err.startswith("wakeq: queue emial does not exist; `wakeq queue list`")


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ([], {"failed": True, "dead": False}),
        (["--no-failure"], {"failed": False, "dead": False}),
        (["--dead"], {"failed": True, "dead": True}),
    ],
)
def test_nack_passes_on_no_failure_and_dead(
    fake: type[FakeClient], options: list[str], fields: dict[str, bool]
) -> None:
    main(["nack", "q", "u1", *options])

    assert fake.calls[-1] == ("nack", ("q", "u1"), {"delay": None, "lease": None, **fields})


class Starting:
    """A clock and a broker that starts: each moment has its obstacle, and afterwards the broker serves."""

    def __init__(self, fake: type[FakeClient], *in_the_way: errors.WakeqError | dict[str, object]) -> None:
        self._fake, self._in_the_way = fake, list(in_the_way)
        self.now_s = 0.0
        self.pauses = 0
        self.sleep(0.0)

    def sleep(self, span_s: float) -> None:
        self.now_s += span_s
        self.pauses += 1
        self._now = self._in_the_way.pop(0) if self._in_the_way else SERVES
        self._fake.error = self._now if isinstance(self._now, errors.WakeqError) else None
        self._fake.cluster = lambda _: self._cluster()  # type: ignore[attr-defined]

    def _cluster(self) -> dict[str, object]:
        if isinstance(self._now, errors.WakeqError):
            raise self._now
        return self._now

    def monotonic(self) -> float:
        return self.now_s


SERVES: dict[str, object] = {"node": 0, "serves": True, "leader": 0}
NOBODY_LEADS: dict[str, object] = {"node": 0, "serves": False, "leader": None}
BEGINS_TO_LEAD: dict[str, object] = {"node": 0, "serves": False, "leader": 0}
FOLLOWS: dict[str, object] = {"node": 0, "serves": False, "leader": 2}


def begin(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch, *in_the_way: errors.WakeqError | dict[str, object]
) -> Starting:
    """Connect the commands to a broker that starts, and restore the fake afterwards."""
    monkeypatch.setattr(fake, "cluster", None, raising=False)
    starting = Starting(fake, *in_the_way)
    monkeypatch.setattr("wakeq.cli.messages.time", starting)
    return starting


def test_ping_with_wait_retries_until_the_broker_serves(
    fake: type[FakeClient], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    starting = begin(
        fake,
        monkeypatch,
        errors.BrokerUnreachable("no broker answers"),
        # A container's port accepts connections before its program does.
        errors.Disconnected("b:1 closed the connection"),
        NOBODY_LEADS,
        BEGINS_TO_LEAD,
    )

    assert main(["ping", "--wait", "60"]) == 0

    assert starting.pauses == 5
    assert "answers in" in capsys.readouterr().out


def test_ping_with_wait_accepts_a_node_that_knows_the_leader(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    starting = begin(fake, monkeypatch, FOLLOWS)

    assert main(["ping", "--wait", "60"]) == 0
    assert starting.pauses == 1


@pytest.mark.parametrize(
    ("in_the_way", "status", "says"),
    [
        (errors.BrokerUnreachable("no broker answers"), 69, "no broker answers"),
        (errors.Disconnected("it hangs up"), 69, "it hangs up"),
        (NOBODY_LEADS, 69, "answers but cannot serve"),
    ],
    ids=["nobody", "hangs up", "nobody leads"],
)
def test_ping_with_wait_ends_at_its_deadline(
    fake: type[FakeClient],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    in_the_way: errors.WakeqError | dict[str, object],
    status: int,
    says: str,
) -> None:
    starting = begin(fake, monkeypatch, *[in_the_way] * 100)

    assert main(["ping", "--wait", "2"]) == status

    assert starting.now_s == pytest.approx(2.0, abs=0.15)
    assert says in capsys.readouterr().err


def test_ping_with_wait_reports_permanent_errors_at_once(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    starting = begin(fake, monkeypatch, *[WrongProtocol("this is a port for HTTP")] * 2)

    assert main(["ping", "--wait", "60"]) == 69
    assert starting.pauses == 1


def test_ping_without_wait_accepts_any_answering_node(fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch) -> None:
    starting = begin(fake, monkeypatch, NOBODY_LEADS, errors.BrokerUnreachable("no broker answers"))

    assert main(["ping"]) == 0
    starting.sleep(0.0)
    assert main(["ping"]) == 69
    assert starting.pauses == 2


@pytest.mark.parametrize("facts", [NOBODY_LEADS, BEGINS_TO_LEAD], ids=["nobody leads", "its leader does not serve"])
def test_ping_of_a_cluster_names_a_node_that_does_not_serve(
    fake: type[FakeClient],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    facts: dict[str, object],
) -> None:
    begin(fake, monkeypatch, facts)

    assert main(["--broker", "a:1,b:2,c:3", "ping"]) == 69

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("wakeq: c:3 answers but cannot serve: ")


@pytest.mark.parametrize("facts", [SERVES, FOLLOWS], ids=["it serves", "another one does"])
def test_ping_of_a_cluster_names_the_node_that_answered(
    fake: type[FakeClient],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    facts: dict[str, object],
) -> None:
    begin(fake, monkeypatch, facts)

    assert main(["--broker", "a:1,b:2,c:3", "ping"]) == 0

    assert capsys.readouterr().out.startswith("c:3 answers in ")


def test_silent_port_delays_ping_no_longer_than_its_wait(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    starting = begin(fake, monkeypatch)

    def wait_for_nothing(_address: str, *, connect_timeout_s: float, **_others: float) -> None:
        starting.sleep(connect_timeout_s)
        raise errors.Disconnected("it says nothing")

    monkeypatch.setattr("wakeq.cli.common.Client", wait_for_nothing)

    assert main(["ping", "--wait", "7"]) == 69
    assert starting.now_s == pytest.approx(7.0, abs=0.25)
