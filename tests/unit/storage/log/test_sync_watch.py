"""SyncWatch: a thread reports a sync that hangs on the loop, and nothing else."""

import logging
import threading

import pytest

from wakeq.storage.log import sync_watch
from wakeq.storage.log.sync_watch import AGAIN_S, HANGS_S, SyncWatch


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.WARNING]


def test_hanging_sync_is_reported_once_and_again_later(caplog: pytest.LogCaptureFixture) -> None:
    watch = SyncWatch()
    watch.since_s = 100.0

    for passed_s in (0.5, HANGS_S, HANGS_S + 1, HANGS_S + AGAIN_S):
        watch.tick(100.0 + passed_s)

    assert [line.split(" has taken ")[1].split(" so far")[0] for line in warnings(caplog)] == ["1.0 s", "11.0 s"]


def test_next_hanging_sync_is_reported_at_once(caplog: pytest.LogCaptureFixture) -> None:
    watch = SyncWatch()

    for since_s in (100.0, 103.0):
        watch.since_s = since_s
        watch.tick(since_s + HANGS_S)

    assert len(warnings(caplog)) == 2


def test_watch_reports_nothing_without_a_sync(caplog: pytest.LogCaptureFixture) -> None:
    SyncWatch().tick(1e9)

    assert warnings(caplog) == []


def test_thread_ticks_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_watch, "TICK_S", 0.0)
    ticked = threading.Event()
    watch = SyncWatch()
    monkeypatch.setattr(watch, "tick", lambda _now_s: ticked.set())

    watch.start()
    ticked.wait(10)
    watch.close()

    assert ticked.is_set()
    assert "wakeq-watch" not in [thread.name for thread in threading.enumerate()]
