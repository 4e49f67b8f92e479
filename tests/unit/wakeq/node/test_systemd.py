"""Systemd: signs of life come from one timer, however often a node restarts within the program."""

import asyncio
import os
import socket
from pathlib import Path

from wakeq.node.systemd import Systemd


def test_restarted_node_keeps_a_single_watchdog_timer(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        mine = {
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "1000000000",
            "WATCHDOG_PID": str(os.getpid()),
        }
        loop = asyncio.new_event_loop()
        systemd = Systemd(mine)

        for _ in range(3):
            systemd.keep_watch(loop)

        waiting = [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        assert len(waiting) == 1
        loop.close()
