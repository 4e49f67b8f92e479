"""Output of the operating commands; tests/e2e/operating/test_operating.py runs them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner

from wakeq.cli.operating import history, print_messages, workers


def test_dry_run_shows_the_reason_of_a_dead_letter(capsys: pytest.CaptureFixture[str]) -> None:
    own = {"uid": "u", "state": "ready", "priority": 0, "error_count": 0, "error": "", "body": "x"}

    print_messages([own | {"headers": {"wakeq-error": "no such address"}}, own | {"error": "busy", "headers": {}}])

    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[rows[0].index("error")] for row in rows[1:]] == ["no such address", "busy"]


EVENT = {
    "at": "2026-11-20T13:28:25.520000Z", "event": "published", "worker": 4, "reason": None, "error": None,
    "queue": None, "due": None,
}  # fmt: skip
FAILED = EVENT | {"event": "failed", "worker": None, "reason": "nack", "error": "boom\x1b[2J", "due": EVENT["at"]}
LIFE = {
    "uid": "u", "queue": "jobs", "events": [EVENT, FAILED], "is_complete": True, "since": "2026-11-13T00:00:00Z",
    "is_living": True, "message": None,
}  # fmt: skip


class TellsLife:
    """A broker that answers with one life, or what else it is given."""

    def __init__(self, life: dict[str, Any]) -> None:
        self.asked: list[Any] = []
        self._life = life

    @contextmanager
    def admin(self) -> Iterator["TellsLife"]:
        yield self

    def call(self, *asked: Any, **query: Any) -> dict[str, Any]:
        self.asked.append((asked, query))
        return self._life


def test_history_prints_a_line_for_each_event() -> None:
    broker = TellsLife(LIFE)

    done = CliRunner().invoke(history, ["jobs", "u"], obj=broker, standalone_mode=False)

    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert rows[0] == ["at", "event", "worker", "reason", "queue", "due", "error"]
    assert [row[1:4] for row in rows[1:]] == [["published", "4", "-"], ["failed", "-", "nack"]]
    assert rows[1][0].endswith(":25.520")
    assert "\x1b" not in done.stdout
    assert (done.return_value, done.stderr) == (0, "")
    assert broker.asked == [(("GET", "/messages/history"), {"queue": "jobs", "uid": "u"})]


def test_history_prints_json_as_it_came() -> None:
    done = CliRunner().invoke(history, ["jobs", "u", "--json"], obj=TellsLife(LIFE), standalone_mode=False)

    assert json.loads(done.stdout) == LIFE


def test_history_says_what_is_missing_and_that_nothing_is_known() -> None:
    part, nothing = LIFE | {"is_complete": False}, LIFE | {"is_complete": False, "events": []}

    told = [
        CliRunner().invoke(history, ["jobs", "u"], obj=TellsLife(one), standalone_mode=False) for one in (part, nothing)
    ]

    assert [one.return_value for one in told] == [0, 3]
    assert "events may be missing" in told[0].stderr
    assert "nothing is known of u" in told[1].stderr
    assert all("2026-11-13" in one.stderr for one in told)


@pytest.mark.parametrize("is_complete", [True, False])
def test_workers_say_that_they_may_have_more_only_if_not_all_was_counted(is_complete: bool) -> None:
    broker = TellsLife({"workers": [], "total": 0, "is_complete": is_complete})

    done = CliRunner().invoke(workers, [], obj=broker, standalone_mode=False)

    assert done.exception is None
    assert ("a program may have more" in done.output) == (not is_complete)
