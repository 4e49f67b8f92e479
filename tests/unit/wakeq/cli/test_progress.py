"""The progress of long commands: what it says, and who never gets to see it."""

import sys
from collections.abc import Callable

import pytest

from tests.helpers.clients.scripted import FakeClient
from wakeq.cli import main
from wakeq.cli.output import say
from wakeq.cli.progress import BYTES, amount_of, progress

# Makes standard error a terminal, and returns what reads from there.
Begin = Callable[[], Callable[[], str]]


class InstantTimer:
    """A timer whose time is over at once."""

    def __init__(self, _seconds: float, call: Callable[[], None]) -> None:
        self.daemon = False
        self.start = call

    def cancel(self) -> None:
        pass

    def join(self) -> None:
        pass


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Begin:
    """Return what makes standard error a terminal on which every command is long, and returns what reads from there."""
    monkeypatch.setattr("wakeq.cli.progress.threading.Timer", InstantTimer)
    monkeypatch.setattr("wakeq.cli.progress.REFRESH_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")

    def begin_here() -> Callable[[], str]:
        # pytest replaces standard error once more after the fixtures.
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        return lambda: capsys.readouterr().err

    return begin_here


@pytest.mark.parametrize(
    ("done", "total", "unit", "seconds", "words"),
    [
        (0, 10, "messages", 1.0, ""),
        (3, None, "", 1.0, ""),
        (12_000, None, "events", 4.0, "12,000 events, 3,000/s"),
        (12_000, 24_000, "messages", 4.0, "12,000 of 24,000 messages, 3,000/s, 4 s left"),
        (100, 100_100, "messages", 1.0, "100 of 100,100 messages, 100/s, 17 min left"),
        (100, 1_000_100, "messages", 1.0, "100 of 1,000,100 messages, 100/s, 3 h left"),
        (10, 10, "messages", 1.0, "10 of 10 messages, 10/s"),
        (500, None, BYTES, 1.0, "500 B, 500 B/s"),
        (3 << 20, 6 << 30, BYTES, 1.0, "3.0 MiB of 6.0 GiB, 3.0 MiB/s, 34 min left"),
        (5, 9, "messages", 0.0, "5 of 9 messages, 0/s"),
    ],
)
def test_amount_says_how_much_how_fast_and_how_long(
    done: int, total: int | None, unit: str, seconds: float, words: str
) -> None:
    assert amount_of(done, total, unit, seconds) == words


def test_line_shows_each_activity_and_disappears(begin: Begin) -> None:
    said = begin()
    with progress("moving [messages]", "messages") as shown:
        shown.update(1_000, 4_000)
        shown.begin("checking")

    shown_text = said()
    assert "moving [messages]" in shown_text
    assert "checking" in shown_text
    # The last thing that is written erases the line.
    assert shown_text.endswith("\x1b[2K")


def test_line_of_a_command_that_fails_disappears(begin: Begin) -> None:
    said = begin()
    with pytest.raises(ValueError, match="broken"), progress("moving", "messages"):
        raise ValueError("broken")

    assert said().endswith("\x1b[2K")


def test_words_on_standard_error_stand_above_the_line(begin: Begin) -> None:
    said = begin()
    with progress("publishing", "messages"):
        say("queue jobs exists already")

    assert "wakeq: queue jobs exists already\n" in said()


@pytest.mark.parametrize(("term", "is_terminal"), [("dumb", True), ("xterm", False)])
def test_pipe_and_dumb_terminal_get_no_line(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, term: str, is_terminal: bool
) -> None:
    said = begin()
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)

    with progress("moving", "messages") as shown:
        shown.update(1)

    assert said() == ""


@pytest.mark.parametrize(("command", "words"), [("purge", "deleting all messages"), ("redrive", "moving dead letters")])
def test_command_shows_its_progress_but_never_with_json(
    command: str, words: str, fake: type[FakeClient], begin: Begin
) -> None:
    said = begin()
    assert main(["queue", command, "q", "--yes"]) == 0
    assert words in said()

    assert main(["queue", command, "q", "--yes", "--json"]) == 0
    assert "\x1b" not in said()
