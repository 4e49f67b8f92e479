"""`wakeq tasks`: the tasks and schedules of a worker, and errors of an unusable one."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from freezegun import freeze_time

from wakeq.cli import main

FRIDAY_NOON = "2026-11-20 12:00:00"
SHOP = """
from wakeq import Retry, Worker
worker = Worker()

@worker.task("reports", timeout=90, max_run=60, retry=Retry(max=3))
def report(kind: str = "short") -> None: ...

@worker.task("emails", retry=None)
async def send(to: str) -> None: ...

worker.schedule(report, "30 6 * * mon-fri", zone="Europe/Berlin", arguments={"kind": "long"})
worker.schedule(report, 3600)
idle = Worker()
"""


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The current directory, with the module `shop`."""
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield
    sys.modules.pop("shop", None)


@freeze_time(FRIDAY_NOON)
def test_tasks_lists_tasks_and_schedules_in_order_of_due_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "shop:worker"]) == 0

    assert [line.split("\t") for line in capsys.readouterr().out.splitlines()] == [
        ["queue", "handler", "mode", "timeout", "max_run", "retries"],
        ["reports", "shop.report", "thread", "90", "60", "3"],
        ["emails", "shop.send", "coroutine", "60", "3600", "-"],
        [""],
        ["next", "queue", "when", "arguments"],
        ["2026-11-20T13:00:00+00:00", "reports", "every 3600 s", "{}"],
        ["2026-11-23T06:30:00+01:00", "reports", "30 6 * * mon-fri Europe/Berlin", '{"kind":"long"}'],
    ]


@freeze_time(FRIDAY_NOON)
def test_tasks_with_json_prints_tasks_and_schedules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "shop:worker", "--json"]) == 0

    shown = json.loads(capsys.readouterr().out)
    assert [(task["queue"], task["retries"]) for task in shown["tasks"]] == [("reports", 3), ("emails", None)]
    assert shown["schedules"][1] == {
        "next": "2026-11-23T06:30:00+01:00",
        "queue": "reports",
        "when": "30 6 * * mon-fri Europe/Berlin",
        "arguments": {"kind": "long"},
    }


def test_tasks_of_an_unusable_worker_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "shop:idle"]) != 0

    assert "this worker has no tasks" in capsys.readouterr().err
