"""Sweeping: one timer for all connections of a port or a path, which rests while nobody has to be looked at.

    begin --> SWEEP_EVERY_S later: sweep --> again, for as long as that says that somebody is left to be looked at

It knows no connection: whom to look at, and what for, is the matter of whoever owns it.
"""

import asyncio
from collections.abc import Callable

SWEEP_EVERY_S = 1.0


class Sweeping:
    """See the head of this file."""

    def __init__(self, sweep: Callable[[], bool]) -> None:
        self._sweep = sweep
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """There is somebody to be looked at."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_EVERY_S, self._go)

    def stop(self) -> None:
        """Nobody is there any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _go(self) -> None:
        self._timer = None
        if self._sweep():
            self.begin()
