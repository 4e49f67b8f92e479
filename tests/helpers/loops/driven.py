"""A loop whose time is driven by its own timers: an hour takes no time, and every run is the same.

scenario --> in_driven_time --> time stands still while anything is to be done, and jumps to the next timer when not
"""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any


class _JumpingSelector(selectors.SelectSelector):
    """Lets the clock jump to the next timer instead of waiting for it."""

    now_s = 1000.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "no timer is set, so nothing will ever happen"
        self.now_s += max(0.0, timeout)
        return super().select(0)


class DrivenLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is driven by its own timers."""

    def __init__(self) -> None:
        self.clock = _JumpingSelector()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now_s


def in_driven_time(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario to its end."""
    with asyncio.Runner(loop_factory=DrivenLoop) as runner:
        runner.run(_awaited(scenario))


async def _awaited(scenario: Callable[[], Awaitable[None]]) -> None:
    await scenario()
