"""What the tests of the doors share: each test runs on both loops, and no door waits for clients that stay."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.helpers.both_loops import LOOPS, Run

TEST_S_MAX = 30.0


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Return a function that runs a test on one of the loops, for so long and no longer."""

    def run_in_loop(test: Callable[[], Awaitable[None]]) -> None:
        async def limited() -> None:
            await asyncio.wait_for(test(), TEST_S_MAX)

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(limited())

    return run_in_loop


@pytest.fixture
def short_goodbyes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of these tests stay where they are when the listener closes: do not wait for them."""
    monkeypatch.setattr("wakeq.listeners.tcp_listener.GOODBYE_S_MAX", 0.01)
