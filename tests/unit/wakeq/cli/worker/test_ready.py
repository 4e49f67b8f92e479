"""Tests of ready.py: what a worker shows when it is ready, on a terminal and in a log."""

import logging
import sys
from collections.abc import Iterator

import pytest

from wakeq.cli.worker.ready import LINES_MAX, announce, log
from wakeq.worker import Worker


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    yield
    log.setLevel(logging.NOTSET)


def shop(queues: int = 1) -> Worker:
    worker = Worker(concurrency=2)

    def bill(number: int = 1) -> None: ...

    for number in range(queues):
        worker.task(f"bills-{number}")(bill)

    @worker.task("pages")
    async def fetch(url: str) -> None: ...

    worker.schedule(worker.tasks["bills-0"], 3600)
    return worker


def test_ready_worker_is_one_line_of_the_log_whatever_its_level(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger().setLevel(logging.WARNING)

    announce(shop(), target="shop", as_json=False)("broker.test:2601")

    assert caplog.messages == [
        "ready: serving bills-0, pages, 2 threads, 2 coroutines at once, from broker.test:2601; "
        "schedules: bills-0 every 3600 s"
    ]


def test_ready_worker_on_a_terminal_shows_what_it_serves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")

    announce(shop(), target="shop", as_json=False)("broker.test:2601")

    lines = capsys.readouterr().err.splitlines()
    assert "worker" in lines[0]
    assert [line.split()[:4] for line in lines[1:-1]] == [
        ["broker", "broker.test:2601"],
        ["at", "once", "2", "threads,"],
        ["tasks", "bills-0", f"{__name__}.shop.<locals>.bill", "thread"],
        ["pages", f"{__name__}.shop.<locals>.fetch", "coroutine"],
        ["schedules", "bills-0", "every", "3600"],
    ]
    assert lines[-1] == "ready; Ctrl-C stops it"


def test_long_list_of_tasks_on_a_terminal_is_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    announce(shop(queues=30), target="shop", as_json=False)("broker.test:2601")

    shown = capsys.readouterr().err
    assert shown.count("<locals>") == LINES_MAX - 1
    assert "and 12 more; see wakeq tasks shop" in shown


def test_with_json_a_terminal_gets_the_line_of_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    announce(shop(), target="shop", as_json=True)("broker.test:2601")

    assert len(caplog.messages) == 1
