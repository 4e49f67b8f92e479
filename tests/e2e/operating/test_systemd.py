"""The broker tells systemd that it is ready, reloads, lives, and stops."""

import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.brokers.process import BrokerProcess


def test_systemd_is_told_of_start_reload_life_and_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        hear: Callable[[], str] = lambda: manager.recv(4096).decode()  # noqa: E731
        with BrokerProcess(tmp_path / "data") as broker:
            assert hear().startswith("READY=1\nSTATUS=worker=127.0.0.1:")
            assert hear() == "WATCHDOG=1"
            assert hear() == "WATCHDOG=1"
            broker.send_signal(signal.SIGHUP)
            said = [hear() for _ in range(6)]
            reloading = next(
                place for place, text in enumerate(said) if text.startswith("RELOADING=1\nMONOTONIC_USEC=")
            )
            assert "READY=1" in said[reloading:]
            assert broker.terminate() == 0
            rest = []
            while "STOPPING=1" not in rest:
                rest.append(hear())
