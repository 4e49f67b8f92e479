"""Systemd: what a service says to the manager that started it (sd_notify), in a datagram each.

    ready, reloading, stopping, and twice in each watchdog period that the event loop still turns

Without NOTIFY_SOCKET it says nothing.  Must never keep the node from its work: a manager that
does not listen is ignored.
"""

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress

SIGNS_A_PERIOD = 2


class Systemd:
    """See the head of this file."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._next_sign: asyncio.TimerHandle | None = None
        mine = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog_s = int(environment.get("WATCHDOG_USEC") or 0) / 1e6 if mine else 0.0

    def tell(self, *states: str) -> None:
        """Say something, if there is somebody to hear it."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sending:
            sending.setblocking(False)
            sending.sendto("\n".join(states).encode(), address)

    def ready(self, status: str) -> None:
        """The doors are open."""
        self.tell("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Settings are read again; `ready` follows."""
        self.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Nothing more is taken."""
        self.tell("STOPPING=1")

    def keep_watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give a sign of life from the loop, so that a loop that hangs is found out."""
        if self._address and self.watchdog_s:
            self.tell("WATCHDOG=1")
            if self._next_sign is not None:
                self._next_sign.cancel()  # a node that begins again in this program asks for them once more
            self._next_sign = loop.call_later(self.watchdog_s / SIGNS_A_PERIOD, self.keep_watch, loop)
