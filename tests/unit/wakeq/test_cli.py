"""Proves wakeq/cli: what is printed where, exit statuses, questions before destruction, and no traceback."""

import errno
import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wakeq.cli import main
from wakeq.cli.output import plain
from wakeq.cli.reference import MEANINGS, STATUSES, tree
from wakeq.client import Message
from wakeq.client.redrive import Redriven
from wakeq.protocol import errors
from wakeq.settings import Settings

Calls = list[tuple[Any, ...]]


class FakeClient:
    """A client that answers from a script and keeps what it was asked."""

    calls: Calls
    messages: list[Message]
    error: errors.WakeqError | None

    def __init__(self, address: str) -> None:
        self.calls.append(("connect", address))
        self.broker_version = "7.7"

    def __enter__(self) -> "FakeClient":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: object, **named: object) -> object:
            if self.error:
                raise self.error
            self.calls.append((name, arguments, named))
            return self.answer(name)

        return call

    def answer(self, name: str) -> object:
        answers: dict[str, object] = {
            "publish": "0000001_00000001",
            "fetch_many": self.messages,
            "queues": [{"qname": "emails", "ready": 3}],
            "stats": {"ready": 3, "policies": {"timeout": 60, "retry": {"base": 1.0, "max": 9.0}}},
            "peek": [{"uid": "u", "msg": "x" * 100}],
            "purge": 4,
            "redrive": Redriven(done=3, left=1),
            "ack": False,
            "nack": False,
            "touch": False,
        }
        return answers.get(name)


def message(**fields: Any) -> Message:
    given = {"queue": "q", "uid": "u1", "body": b"hi", "lease": "1.2", "delivery": 1, "settler": None}
    return Message(**{**given, **fields})


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeClient]]:
    for name in list(os.environ):
        if name.startswith("WAKEQ_"):
            monkeypatch.delenv(name)
    FakeClient.calls, FakeClient.messages, FakeClient.error = [], [], None
    monkeypatch.setattr("wakeq.cli.common.Client", FakeClient)
    return FakeClient  # type: ignore[return-value]


def answer_on_a_terminal(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    terminal = io.StringIO(text)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)


def give_on_standard_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


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
def test_pub_reads_standard_input_to_the_byte(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    give_on_standard_input(monkeypatch, b"\xff\x00\n")

    main(arguments)

    assert fake.calls[1][1] == ("q", b"\xff\x00\n")


def test_the_default_queue_is_named_by_the_empty_text(fake: type[FakeClient]) -> None:
    main(["pub", "", "x"])

    assert fake.calls[1][1] == ("", b"x")


def test_the_broker_is_named_by_flag_or_environment(fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKEQ_BROKER", "there:1")

    main(["ping"])
    main(["--broker", "elsewhere:2", "ping"])

    assert [call for call in fake.calls if call[0] == "connect"] == [
        ("connect", "there:1"),
        ("connect", "elsewhere:2"),
    ]


def test_fetch_prints_the_body_alone_and_says_how_to_acknowledge(
    fake: type[FakeClient], capsys: pytest.CaptureFixture[str]
) -> None:
    fake.messages = [message()]

    status = main(["fetch", "q"])

    output, said = capsys.readouterr()
    assert (status, output) == (0, "hi\n")
    assert "wakeq ack q u1 --lease 1.2" in said
    assert [call[0] for call in fake.calls] == ["connect", "fetch_many"]


def test_fetch_acknowledges_only_after_it_has_printed(fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch) -> None:
    fake.messages = [message()]
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(BrokenOutput()))

    with pytest.raises(io.UnsupportedOperation):  # this output has no descriptor to turn away
        main(["fetch", "q", "--ack"])

    assert "ack_many" not in [call[0] for call in fake.calls]


class BrokenOutput(io.BytesIO):
    def write(self, _: Any) -> int:
        raise BrokenPipeError


def test_fetch_with_json_gives_everything_one_message_a_line(
    fake: type[FakeClient], capsys: pytest.CaptureFixture[str]
) -> None:
    fake.messages = [message(headers={"a": "b"}), message(uid="u2", body=b"\xff")]

    main(["fetch", "q", "--count", "2", "--json", "--ack"])

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


def test_fetch_of_nothing_has_a_status_of_its_own(fake: type[FakeClient], capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["fetch", "q", "--wait", "7"])

    output, said = capsys.readouterr()
    assert (status, output) == (3, "")
    assert said.startswith("wakeq: queue q has nothing")
    assert fake.calls[1] == ("fetch_many", ("q", 1), {"wait": 7})


def test_what_is_gone_has_a_status_of_its_own(fake: type[FakeClient], capsys: pytest.CaptureFixture[str]) -> None:
    statuses = [main(["ack", "q", "u1"]), main(["nack", "q", "u1"]), main(["touch", "q", "u1"])]

    assert statuses == [3, 3, 3]
    assert capsys.readouterr().err.count("\n") == 3


def test_ack_in_a_queue_that_is_not_there_says_so(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(_: FakeClient, name: str) -> object:
        if name == "stats":
            raise errors.QueueNotFound("there is no queue of this name")
        return False

    monkeypatch.setattr(fake, "answer", answer)

    assert main(["ack", "emial", "u1"]) == 3
    assert capsys.readouterr().err.startswith("wakeq: there is no queue emial; `wakeq queue list`")


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ([], {"failed": True, "dead": False}),
        (["--no-failure"], {"failed": False, "dead": False}),
        (["--dead"], {"failed": True, "dead": True}),
    ],
)
def test_a_nack_may_be_no_failure_or_for_good(
    fake: type[FakeClient], options: list[str], fields: dict[str, bool]
) -> None:
    main(["nack", "q", "u1", *options])

    assert fake.calls[-1] == ("nack", ("q", "u1"), {"delay": None, "lease": None, **fields})


@pytest.mark.parametrize("verb", ["delete", "purge"])
def test_destruction_asks_first(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    answer_on_a_terminal(monkeypatch, "n\n")

    status = main(["queue", verb, "q"])

    assert status == 1
    assert "nothing was changed" in capsys.readouterr().err
    assert fake.calls == []


@pytest.mark.parametrize(("verb", "call"), [("delete", "delete_queue"), ("purge", "purge")])
def test_destruction_goes_on_after_yes(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch, verb: str, call: str
) -> None:
    answer_on_a_terminal(monkeypatch, "y\n")

    statuses = [main(["queue", verb, "q"]), main(["queue", verb, "q", "--yes"])]

    assert statuses == [0, 0]
    assert [name for name, *_ in fake.calls if name == call] == [call, call]


def test_destruction_is_refused_where_nobody_can_answer(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give_on_standard_input(monkeypatch, b"y\n")

    status = main(["queue", "delete", "q"])

    assert status == 2
    assert "--yes" in capsys.readouterr().err
    assert fake.calls == []


def test_queue_create_passes_every_policy_that_was_named(fake: type[FakeClient]) -> None:
    line = (
        "queue create q --max-size 1 --max-bytes 2 --max-message-size 3 --priority-min -4 --priority-max 4 "
        "--structure QA --timeout 30 --max-deliveries 5 --dead-letter graves --retry-backoff exponential "
        "--retry-base 1 --retry-max 60 --retry-jitter 0.5 --wake all --lease strict --on-disconnect release"
    )

    main(line.split())

    assert fake.calls[1] == (
        "create_queue",
        ("q",),
        {
            "max_size": 1,
            "max_bytes": 2,
            "max_message_size": 3,
            "priority_min": -4,
            "priority_max": 4,
            "structure": "QA",
            "timeout": 30,
            "max_deliveries": 5,
            "dead_letter": "graves",
            "retry": {"backoff": "exponential", "base": 1.0, "max": 60.0, "jitter": 0.5},
            "wake": "all",
            "lease": "strict",
            "on_disconnect": "release",
        },
    )


def test_queue_update_keeps_what_is_not_named_of_the_retry_policy(fake: type[FakeClient]) -> None:
    main(["queue", "update", "q", "--retry-base", "2", "--reset", "max-size"])

    assert fake.calls[-1] == (
        "update_queue",
        ("q",),
        {"retry": {"base": 2.0, "max": 9.0}, "max_size": None},
    )


def test_the_default_queue_can_be_seen_in_a_table(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fake, "answer", lambda _self, _name: {"queues": [{"qname": "", "ready": 1}]})

    main(["queue", "stats"])

    assert capsys.readouterr().out.splitlines()[1].startswith('""\t1')


def test_tables_are_tab_separated_lines_where_there_is_no_terminal(
    fake: type[FakeClient], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["queue", "list"])
    main(["queue", "stats", "q"])

    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split("\t")[:2] == ["emails", "3"]
    assert "policies.retry.base\t1.0" in lines
    assert "\x1b" not in "".join(lines)


def test_a_dead_letter_shows_where_it_came_from_and_why(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    headers = {"wakeq-origin": "emails", "wakeq-reason": "rejected", "wakeq-error": "no address"}
    letter = {"uid": "u", "state": "ready", "priority": 0, "error": "", "msg": "x", "headers": headers}
    monkeypatch.setattr(fake, "answer", lambda _self, _name: [letter])

    main(["queue", "peek", "emails.dead"])

    assert capsys.readouterr().out.splitlines() == [
        "uid\tstate\tpriority\torigin\treason\terror\tmsg",
        "u\tready\t0\temails\trejected\tno address\tx",
    ]


def test_redrive_says_what_it_moved_and_what_stays(fake: type[FakeClient], capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["queue", "redrive", "emails.dead", "--count", "5", "--to", "again"])

    said = capsys.readouterr()
    assert status == 0
    assert fake.calls[-1] == ("redrive", ("emails.dead", 5), {"to": "again"})
    assert said.out == "redriven from queue emails.dead: 3\n"
    assert said.err.startswith("wakeq: left in queue emails.dead for want of a wakeq-origin: 1;")


def test_a_dry_run_of_redrive_moves_nothing(fake: type[FakeClient], capsys: pytest.CaptureFixture[str]) -> None:
    main(["queue", "redrive", "emails.dead", "--dry-run"])

    assert [name for name, *_ in fake.calls] == ["connect", "stats", "peek"]
    assert "nothing was moved; ready in queue emails.dead: 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["queue", "redrive", "emails.dead"], "done"),
        (["queue", "list"], "queues"),
        (["queue", "stats"], "ready"),
        (["queue", "peek", "q"], "messages"),
        (["ping"], "version"),
        (["config", "show"], "settings"),
    ],
)
def test_whatever_reads_can_say_it_in_json(
    fake: type[FakeClient], capsys: pytest.CaptureFixture[str], arguments: list[str], key: str
) -> None:
    status = main([*arguments, "--json"])

    assert status == 0
    assert key in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("kind", [kind for kind in tree(errors.WakeqError) if kind is not errors.DamagedFile])
def test_every_error_is_one_line_and_its_documented_status(
    fake: type[FakeClient], capsys: pytest.CaptureFixture[str], kind: type[errors.WakeqError]
) -> None:
    fake.error = kind("what happened;\nwhat to try")

    status = main(["pub", "q", "x"])

    assert status == kind.exit_status
    assert status in STATUSES
    assert kind.code in MEANINGS
    assert capsys.readouterr().err == "wakeq: what happened;\\nwhat to try\n"


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["bogus"], 2, "No such command 'bogus'; try `wakeq --help`"),
        (["pub"], 2, "try `wakeq pub --help`"),
        (["fetch", "q", "--count", "0"], 2, "'--count'"),
        (["pub", "q", "x", "--header", "novalue"], 2, "NAME=VALUE"),
        (["queue", "update", "q"], 2, "nothing to change"),
        (["queue", "list", "--broker", "b:1"], 2, "--broker stands before the verb: `wakeq --broker ... queue list`"),
        (["pub", "q", "x", "--delay", "0.5"], 2, "'0.5' is not a whole number"),
        (["inspect", "/does/not/exist"], 2, "does not exist"),
        (["serve", "--set", "worker_prt=1"], 78, "did you mean worker_port?"),
        (["serve", "--set", "novalue"], 78, "NAME=VALUE"),
        (["config", "check", "/does/not/exist"], 78, "cannot read"),
    ],
)
def test_mistakes_are_one_line_that_says_what_to_try(
    fake: type[FakeClient], capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, words: str
) -> None:
    assert main(arguments) == status

    output, said = capsys.readouterr()
    assert output == ""
    assert words in said
    assert said.count("\n") == 1
    assert said.startswith("wakeq: ")


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (OSError(errno.EADDRINUSE, "Address already in use"), 78, "--worker-port"),
        (socket.gaierror(-2, "Name or service not known"), 78, "--host"),
        (PermissionError(errno.EACCES, "Permission denied", "/data"), 70, "/data: Permission denied"),
    ],
)
def test_a_broker_that_cannot_start_says_why_in_one_line(
    fake: type[FakeClient],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: OSError,
    status: int,
    words: str,
) -> None:
    def run(_: Settings, load: object) -> int:
        raise error

    monkeypatch.setattr("wakeq.service.run", run)

    assert main(["serve"]) == status
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_control_c_ends_with_130_and_nothing_said(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: FakeClient, __: str) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(fake, "answer", interrupted)

    assert main(["fetch", "q", "--wait", "60"]) == 130
    assert capsys.readouterr().err == ""


def test_control_c_while_the_verbs_are_loaded_is_no_traceback() -> None:
    program = """
import sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == "click":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
from wakeq.cli import main
sys.exit(main(["ping"]))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)

    assert (ended.returncode, ended.stderr) == (130, b"")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)

    command = [sys.executable, "-m", "wakeq", "config", "show"]
    with os.fdopen(writer, "wb") as output:
        ended = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, check=False)

    assert (ended.returncode, ended.stderr) == (141, b"")


def test_config_show_says_where_a_value_came_from(
    fake: type[FakeClient],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    file = tmp_path / "wakeq.toml"
    file.write_text("http_port = 1")
    monkeypatch.setenv("WAKEQ_HOST", "::1")

    main(["config", "show", "--origin", "--config", str(file), "--worker-port", "5", "--no-upgrade"])

    rows = {row[0]: row for row in (line.split("\t") for line in capsys.readouterr().out.splitlines())}
    assert rows["host"][1:3] == ["::1", "environment WAKEQ_HOST"]
    assert rows["http_port"][1:3] == ["1", f"file {file}"]
    assert rows["worker_port"][1:3] == ["5", "flag"]
    assert rows["upgrade"][1:3] == ["no", "flag"]


def test_version_is_printed(fake: type[FakeClient], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("wakeq ")


def test_what_a_peer_sent_cannot_write_to_the_terminal() -> None:
    assert plain("a\x1b[31m\nb") == "a\\x1b[31m\\nb"
