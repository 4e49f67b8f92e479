"""Sweeping: one timer for all connections of a port or a path, which rests while no connection is watched.

    begin --> SWEEP_EVERY_S later: sweep --> again, as long as it returns that a connection is watched

It knows no connection: its owner knows which ones to check.
"""

import asyncio
from collections.abc import Callable

SWEEP_EVERY_S = 1.0


class Sweeping:
    """The timer of one port or path."""

    def __init__(self, sweep: Callable[[], bool]) -> None:
        self._sweep = sweep
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start the timer, unless it runs."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_EVERY_S, self._fire)

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        if self._sweep():
            self.begin()
