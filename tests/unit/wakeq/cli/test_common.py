"""What the commands share: names of queues that the shell completes."""

import logging
import os
from collections.abc import Iterator

import pytest
from click.shell_completion import BashComplete

from tests.helpers.clients.scripted import FakeClient
from wakeq.cli.entry import cli
from wakeq.protocol.errors import Forbidden


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.delenv("WAKEQ_BROKER", raising=False)
    yield
    logging.disable(logging.NOTSET)


def completed(*words: str) -> list[str]:
    """Return what a shell offers for the last of these words."""
    found = BashComplete(cli, {}, "wakeq", "_WAKEQ_COMPLETE").get_completions(list(words[:-1]), words[-1])
    return [one.value for one in found]


@pytest.mark.parametrize(
    "words",
    [
        ["pub", "em"],
        ["queue", "pause", "em"],
        ["queue", "move", "jobs", "em"],
        ["queue", "redrive", "dead", "--to", "em"],
        ["--broker", "b:1", "--token-file", "t", "work", "em"],
        ["why", "em"],
        ["export", "jobs", "em"],
    ],
)
def test_queue_is_completed_with_the_names_that_the_broker_knows(fake: type[FakeClient], words: list[str]) -> None:
    assert completed(*words) == ["emails"]

    address = "b:1" if "--broker" in words else "127.0.0.1:2601"
    assert fake.calls == [("connect", address), ("queues", ("em",), {})]


def test_name_of_a_new_queue_is_not_completed(fake: type[FakeClient]) -> None:
    assert completed("queue", "create", "em") == []
    assert fake.calls == []


def test_completion_is_silent_if_the_broker_refuses(fake: type[FakeClient], capsys: pytest.CaptureFixture[str]) -> None:
    fake.error = Forbidden("this token does not allow that")

    assert completed("pub", "em") == []
    assert completed("--token-file", "/does/not/exist", "pub", "em") == []
    assert completed("--broker", "no:port", "pub", "em") == []
    assert capsys.readouterr() == ("", "")
