"""Output of the operating commands; tests/e2e/operating/test_operating.py runs them."""

import pytest

from wakeq.cli.operating import print_messages


def test_dry_run_shows_the_reason_of_a_dead_letter(capsys: pytest.CaptureFixture[str]) -> None:
    own = {"uid": "u", "state": "ready", "priority": 0, "error_count": 0, "error": "", "body": "x"}

    print_messages([own | {"headers": {"wakeq-error": "no such address"}}, own | {"error": "busy", "headers": {}}])

    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[rows[0].index("error")] for row in rows[1:]] == ["no such address", "busy"]
