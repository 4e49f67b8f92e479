"""Service: a restarted node keeps its ports, and a failure decides the exit status and its text."""

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from wakeq.config.settings import Settings, Tls
from wakeq.node import service
from wakeq.node.service import dashboard_url, with_ports
from wakeq.protocol.errors import SyncFailed

FREE = Settings(data_dir=Path("data"), worker_port=0, http_port=0, taskflux_port=0)


def test_restarted_node_keeps_its_ports() -> None:
    addresses = {
        "worker": "[::1]:1001",
        "http": "[::1]:1002",
        "taskflux": "[::1]:1003",
        "taskflux-csharp": "[::1]:1004",
    }

    settings = with_ports(FREE, addresses)

    assert (settings.worker_port, settings.http_port, settings.taskflux_port) == (1001, 1002, 1003)
    assert settings.taskflux_other_port == 1004


def test_restarted_node_takes_no_foreign_port_for_a_taskflux_door() -> None:
    doors = {"worker": "127.0.0.1:1001", "http": "127.0.0.1:1002", "taskflux": "127.0.0.1:1003"}
    others = {"monique": "127.0.0.1:1004", "scheduler-in": "tcp://127.0.0.1:1005", "peer": "127.0.0.1:1006"}

    settings = with_ports(FREE, doors | others)

    assert settings.taskflux_other_port is None


def test_shutdown_during_an_unfinished_start_closes_the_files() -> None:
    closed: list[bool] = []

    class Starting:
        async def start(self) -> Any:
            try:
                while True:
                    await asyncio.sleep(0)
            finally:
                closed.append(True)

    async def told_to_stop() -> Any:
        stopping = asyncio.Event()
        asyncio.get_running_loop().call_soon(stopping.set)
        return await service._start(Starting(), stopping)  # type: ignore[arg-type]

    assert asyncio.run(told_to_stop()) is None
    assert closed == [True]


def test_error_of_a_start_is_raised() -> None:
    class Failing:
        async def start(self) -> Any:
            raise SyncFailed("raft.log: sync failed")

    with pytest.raises(SyncFailed):
        asyncio.run(service._start(Failing(), asyncio.Event()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (SyncFailed("raft.log: write failed; make room"), 74, "wakeq: raft.log: write failed; make room\n"),
        (KeyError("x"), 70, "wakeq: KeyError: 'x'; this is a bug, the log above says where\n"),
    ],
)
def test_failure_of_a_node_is_printed_as_an_error_or_a_bug(
    error: BaseException, status: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    statuses: list[int] = []
    monkeypatch.setattr(os, "_exit", statuses.append)

    service._exit_after_failure(error)

    assert (statuses, capsys.readouterr().err) == ([status], said)


@pytest.mark.parametrize(
    ("error", "line", "has_traceback"),
    [
        (SyncFailed("the disk is gone"), "Log(1) failed and was ended: the disk is gone", False),
        (KeyError("bug"), "Log(1) failed and was ended", True),
    ],
)
def test_failure_of_an_actor_has_a_traceback_only_for_a_bug(error: Exception, line: str, has_traceback: bool) -> None:
    words = "%s failed and was ended", ("Log(1)",)
    record = logging.LogRecord("wakeq.runtime", logging.ERROR, "", 1, *words, (type(error), error, None))

    assert service._without_traceback(record)

    assert record.getMessage() == line
    assert bool(record.exc_info) is has_traceback


@pytest.mark.parametrize(
    ("settings", "address", "url"),
    [
        (Settings(), "127.0.0.1:8080", "http://127.0.0.1:8080/"),
        (Settings(), "0.0.0.0:8080", "http://127.0.0.1:8080/"),
        (Settings(), "[::]:8080", "http://[::1]:8080/"),
        (Settings(), "broker.lan:8080", "http://broker.lan:8080/"),
        (Settings(tls=Tls(cert_file=Path("cert"))), "127.0.0.1:8080", "https://127.0.0.1:8080/"),
    ],
)
def test_dashboard_url_opens_in_a_browser_on_this_machine(settings: Settings, address: str, url: str) -> None:
    assert dashboard_url(settings, address) == url
