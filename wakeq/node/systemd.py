"""Systemd: notifications to the service manager (sd_notify), one datagram each.

    ready, reloading, stopping, and two signs of life in each watchdog period while the event loop runs

Without NOTIFY_SOCKET nothing is sent.  A manager that does not listen is ignored: the node must not depend on it.
"""

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress

SIGNS_PER_PERIOD = 2


class Systemd:
    """The connection to the service manager, if there is one."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._next_sign: asyncio.TimerHandle | None = None
        mine = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog_s = int(environment.get("WATCHDOG_USEC") or 0) / 1e6 if mine else 0.0

    def tell(self, *states: str) -> None:
        """Send these states, if there is a manager."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sending:
            sending.setblocking(False)
            sending.sendto("\n".join(states).encode(), address)

    def ready(self, status: str) -> None:
        """Report that the doors are open."""
        self.tell("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Report that settings are read again; `READY=1` must follow."""
        self.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Report that the shutdown has begun."""
        self.tell("STOPPING=1")

    def keep_watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send a sign of life and schedule the next one on the loop, so that a loop that hangs is noticed."""
        if self._address and self.watchdog_s:
            self.tell("WATCHDOG=1")
            if self._next_sign is not None:
                # A node that restarts within this program calls this again.
                self._next_sign.cancel()
            self._next_sign = loop.call_later(self.watchdog_s / SIGNS_PER_PERIOD, self.keep_watch, loop)
