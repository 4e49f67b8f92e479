"""Output of the command line: whole numbers in any terminal, and no traceback if it cannot be written."""

import json
import os
import socket
import subprocess
import sys
import threading

import pytest
from rich.cells import cell_len

from wakeq.cli import main
from wakeq.cli.output import print_body, print_json, print_table

QUEUES = [("emails", 28_000, 1_000, 308_890), ("a-queue-with-a-name-that-is-long", 7, 0, 9)]


@pytest.mark.parametrize(
    ("shell", "status", "words"),
    [
        ("exec {} -m wakeq config show > /dev/full", 74, b"wakeq: the output is incomplete: No space left"),
        ("exec {} -m wakeq config show <&- >&- 2>&-", 0, b""),
    ],
)
def test_unwritable_output_prints_no_traceback(shell: str, status: int, words: bytes) -> None:
    ended = subprocess.run(["sh", "-c", shell.format(sys.executable)], capture_output=True, check=False)

    assert ended.returncode == status
    assert ended.stderr.startswith(words)
    assert ended.stderr.count(b"\n") == min(1, len(words))


@pytest.mark.parametrize("width", [30, 50, 80, 200])
def test_numbers_and_headings_stay_whole_in_a_narrow_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")

    print_table(("queue", "ready", "leased", "bytes"), QUEUES)

    words = capsys.readouterr().out.split()
    assert {"queue", "ready", "leased", "bytes", "emails", "28000", "1000", "308890", "7"} <= set(words)


@pytest.mark.parametrize("text", ["word " * 40, "0123456789" * 9, "漢字" * 40])
def test_long_text_is_folded_to_the_terminal(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")

    print_table(("uid", "msg"), [("0000003_00000001", text)])

    assert max(map(cell_len, capsys.readouterr().out.splitlines())) <= 60


def test_unencodable_characters_are_escaped() -> None:
    command = [sys.executable, "-m", "wakeq", "config", "show", "--data-dir", "тело"]

    ended = subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": "latin-1"}, capture_output=True, check=False)

    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"\\u0442" in ended.stdout


def test_foreign_port_output_is_not_shown_as_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            # The client connects twice.
            for _ in range(2):
                connection, _ = listening.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(b'{"cmd":"nok"}\n')

        threading.Thread(target=answer, daemon=True).start()
        status = main(["--http", f"127.0.0.1:{listening.getsockname()[1]}", "top", "--once"])

    said = capsys.readouterr().err
    assert status == 69
    assert "does not speak HTTP; check the address of the HTTP port (--http" in said
    assert "nok" not in said


HOSTILE = "a\x1b]0;title\x07 \x9b2J \x7f\u202egnp.exe\u2066 \u2028\U000e0041"


def test_json_escapes_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_json({"body": HOSTILE, "plain": "é 漢字 😀 \\u202e"})

    printed = capsys.readouterr().out
    assert printed.removesuffix("\n").isprintable()
    assert "\\u009b2J \\u007f\\u202egnp.exe" in printed
    assert json.loads(printed) == {"body": HOSTILE, "plain": "é 漢字 😀 \\u202e"}


def test_body_on_a_terminal_loses_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    print_body(b"one\ttwo\nthr\x1b[31mee\r\xff\xc2\x9b\n")

    assert capsys.readouterr().out == "one\ttwo\nthr\\x1b[31mee\\r\\xff\\x9b\n"


def test_body_on_a_pipe_is_unchanged(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    print_body(b"\x1b[31m\xff\x00")

    assert capfdbinary.readouterr().out == b"\x1b[31m\xff\x00"
