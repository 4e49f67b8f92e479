"""Proves what the verbs of operators print (operating.py); tests/e2e/test_operating.py has them run."""

import pytest

from wakeq.cli.queues.operating import print_messages


def test_a_dead_letter_that_would_be_done_something_to_shows_why_it_died(capsys: pytest.CaptureFixture[str]) -> None:
    own = {"uid": "u", "state": "ready", "priority": 0, "error_count": 0, "error": "", "body": "x"}

    print_messages([own | {"headers": {"wakeq-error": "no such address"}}, own | {"error": "busy", "headers": {}}])

    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[rows[0].index("error")] for row in rows[1:]] == ["no such address", "busy"]
