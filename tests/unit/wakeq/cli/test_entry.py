"""The command line: errors in one line, exit statuses, no traceback; the output of config and version."""

import errno
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from docs.reference_pages import MEANINGS, STATUSES, tree
from tests.helpers.clients.scripted import FakeClient
from wakeq.cli import main
from wakeq.cli.common import Broker
from wakeq.cli.entry import cli
from wakeq.cli.output import plain
from wakeq.config.settings import Settings
from wakeq.protocol import errors


def test_broker_address_comes_from_flag_or_environment(fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKEQ_BROKER", "there:1")

    main(["ping"])
    main(["--broker", "elsewhere:2", "ping"])

    assert [call for call in fake.calls if call[0] == "connect"] == [
        ("connect", "there:1"),
        ("connect", "elsewhere:2"),
    ]


@pytest.mark.parametrize(
    ("broker", "http", "found"),
    [
        ("127.0.0.1:2601", None, "127.0.0.1:8080"),
        ("prod", None, "prod:8080"),
        ("a:2601,[::1]:2601", None, "a:8080,[::1]:8080"),
        # The first node knows the leader.
        ("127.0.0.1:2601,127.0.0.1:2611", None, "127.0.0.1:8080"),
        ("127.0.0.1:2701", "127.0.0.1:8081", "127.0.0.1:8081"),
    ],
)
def test_http_address_follows_the_named_broker(broker: str, http: str | None, found: str) -> None:
    assert Broker(broker, http).http_address == found


def test_unknown_http_port_is_refused_with_advice(
    fake: type[FakeClient], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another broker may listen on the default port, and would be paused instead."""
    monkeypatch.delenv("WAKEQ_HTTP", raising=False)

    status = main(["--broker", "127.0.0.1:2701", "queue", "pause", "jobs"])

    assert status == 2
    assert "the HTTP port of 127.0.0.1:2701 is unknown; pass --http 127.0.0.1:PORT" in capsys.readouterr().err


def test_taskflux_port_follows_the_named_broker() -> None:
    assert Broker("a:2601,[::1]:2601").taskflux_address == "a:2602,[::1]:2602"
    with pytest.raises(click.UsageError, match="the TaskFlux port of b:1 is unknown; pass --address b:PORT"):
        Broker("b:1").taskflux_address  # noqa: B018


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["queue", "redrive", "emails.dead", "--yes"], "done"),
        (["queue", "list"], "queues"),
        (["queue", "stats"], "ready"),
        (["queue", "peek", "q"], "messages"),
        (["ping"], "version"),
        (["config", "show"], "settings"),
    ],
)
def test_reading_commands_have_json(
    fake: type[FakeClient], capsys: pytest.CaptureFixture[str], arguments: list[str], key: str
) -> None:
    status = main([*arguments, "--json"])

    assert status == 0
    assert key in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("content", "why"), [(None, "No such file or directory"), (b"\xff", "it is not UTF-8")])
def test_unreadable_token_file_is_reported_for_flag_and_environment(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: bytes | None,
    why: str,
) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ, WAKEQ_TOKEN=""))
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)

    status = main(["--broker", "127.0.0.1:1", "--token-file", str(file), "ping"])

    said = f"wakeq: the token file {file} cannot be read: {why}; check --token-file or WAKEQ_TOKEN_FILE\n"
    assert (status, capsys.readouterr().err) == (78, said)


@pytest.mark.parametrize("kind", [kind for kind in tree(errors.WakeqError) if kind is not errors.DamagedFile])
def test_errors_are_one_line_with_their_documented_status(
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
        (["peek", "q"], 2, "No such command 'peek'; did you mean `wakeq queue peek`? Try `wakeq --help`"),
        (["queu"], 2, "No such command 'queu'; did you mean `wakeq queue`? Try `wakeq --help`"),
        (["purgee"], 2, "No such command 'purgee'; did you mean `wakeq queue purge`? Try `wakeq --help`"),
        (["queue", "lst"], 2, "No such command 'lst'; did you mean `wakeq queue list`? Try `wakeq queue --help`"),
        (["worker", "m:w"], 2, "No such command 'worker'; did you mean `wakeq run`? Try `wakeq --help`"),
        (["--broker", "", "ping"], 2, "--broker is empty; write HOST:PORT"),
        (["--broker", ",", "cluster", "status"], 2, "--broker is empty; write HOST:PORT"),
        (["pub"], 2, "try `wakeq pub --help`"),
        (["fetch", "q", "--limit", "0"], 2, "'--limit'"),
        (["pub", "q", "x", "--header", "novalue"], 2, "NAME=VALUE"),
        (["pub", "q", "x", "--id", ""], 2, "'--id': it is empty"),
        (["queue", "update", "q"], 2, "nothing to change"),
        (["queue", "list", "--broker", "b:1"], 2, "--broker goes before the command: `wakeq --broker ... queue list`"),
        (["pub", "q", "x", "--delay", "soon"], 2, "'soon' is not a number"),
        (["inspect", "/does/not/exist"], 2, "does not exist"),
        (["serve", "--set", "worker_prt=1"], 78, "did you mean worker_port?"),
        (["serve", "--set", "novalue"], 78, "NAME=VALUE"),
        (["config", "check", "/does/not/exist"], 78, "cannot read"),
    ],
)
def test_usage_errors_are_one_line_with_advice(
    fake: type[FakeClient], capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, words: str
) -> None:
    assert main(arguments) == status

    output, said = capsys.readouterr()
    assert output == ""
    assert words in said
    assert said.count("\n") == 1
    assert said.startswith("wakeq: ")


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ("", 0, ": 0 settings, all right"),
        ('host = "::1"', 0, ": 1 setting, all right"),
        (
            'insecure = true\n[cluster]\nnode = 5\npeers = "127.0.0.1:1,[::1]:2"',
            78,
            "--node 5 has no address in --peers",
        ),
        ('insecure = true\n[cluster]\nnode = 0\npeers = "127.0.0.1:1,localhost"', 78, "--peers: "),
    ],
)
def test_config_check_reports_what_a_start_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, status: int, words: str
) -> None:
    file = tmp_path / "wakeq.toml"
    file.write_text(text)

    assert main(["config", "check", str(file)]) == status

    assert words in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (OSError(errno.EADDRINUSE, "Address already in use"), 71, "--worker-port"),
        (socket.gaierror(-2, "Name or service not known"), 71, "--host"),
        (PermissionError(errno.EACCES, "Permission denied", "/data"), 70, "/data: Permission denied"),
    ],
)
def test_broker_that_cannot_start_prints_one_line(
    fake: type[FakeClient],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: OSError,
    status: int,
    words: str,
) -> None:
    def run(_: Settings, load: object) -> int:
        raise error

    monkeypatch.setattr("wakeq.node.service.run", run)

    assert main(["serve"]) == status
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_unreadable_file_is_no_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wakeq.toml"
    file.touch()

    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    # click would find out with this call.
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(Path, "read_text", refuse)

    assert main(["serve", "--data-dir", str(tmp_path), "--config", str(file)]) == 78
    assert f"cannot read the settings file {file}: Permission denied" in capsys.readouterr().err


def test_control_c_ends_with_130_silently(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: FakeClient, __: str) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(fake, "answer", interrupted)

    assert main(["fetch", "q", "--wait", "60"]) == 130
    assert capsys.readouterr().err == ""


def test_control_c_while_loading_prints_no_traceback() -> None:
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


def test_closed_output_pipe_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)

    command = [sys.executable, "-m", "wakeq", "config", "show"]
    with os.fdopen(writer, "wb") as output:
        ended = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, check=False)

    assert (ended.returncode, ended.stderr) == (141, b"")


def test_config_show_names_the_origin_of_a_value(
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


def test_commands_are_each_listed_once_by_subject(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0

    shown = re.findall(r"^  ([a-z-]+)  ", capsys.readouterr().out.partition("\nMessages:\n")[2], re.MULTILINE)
    context = click.Context(cli)
    assert sorted(shown) == cli.list_commands(context)
    for name in shown:
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name


@pytest.mark.parametrize(
    "group", [None, *(name for name, verb in cli.commands.items() if isinstance(verb, click.Group))]
)
def test_command_lists_fit_80_columns(
    group: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    assert main([*([group] if group else []), "--help"]) == 0

    _usage, *listed = re.split(r"^(?:Messages|Commands):$", capsys.readouterr().out, flags=re.MULTILINE)
    assert listed
    assert [line for line in listed[0].splitlines() if line.endswith("...")] == []


def commands_of(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that is no group, with the words that call it."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            for inner, one in commands_of(command, context):
                yield f"{name} {inner}", one


@pytest.mark.parametrize("name", [name for name, _ in commands_of(cli, click.Context(cli))])
def test_options_say_what_they_do_and_what_they_take(name: str) -> None:
    command = dict(commands_of(cli, click.Context(cli)))[name]
    options = [one for one in command.params if isinstance(one, click.Option)]

    assert [one.name for one in options if not one.help] == []
    # The name of a type says nothing to a user.
    assert [
        one.name
        for one in options
        if not one.is_flag and not isinstance(one.type, click.Choice) and one.metavar is None
    ] == []
    assert command.help
    assert command.help.splitlines()[0].endswith(".")


def test_version_is_printed(fake: type[FakeClient], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("wakeq ")


def test_text_of_a_peer_cannot_control_the_terminal() -> None:
    assert plain("a\x1b[31m\nb") == "a\\x1b[31m\\nb"
