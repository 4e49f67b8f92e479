"""What these tests share: each test of a door runs on both loops, no door waits, and verbs meet no broker."""

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest

from tests.helpers.clients.scripted import FakeClient
from tests.helpers.loops.both import LOOPS, Run

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
    monkeypatch.setattr("wakeq.net.tcp_listener.GOODBYE_S_MAX", 0.01)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeClient]:
    """Return what the verbs take for a client; nothing of our environment is around it."""
    for name in list(os.environ):
        if name.startswith("WAKEQ_"):
            monkeypatch.delenv(name)
    FakeClient.calls, FakeClient.messages, FakeClient.error = [], [], None
    monkeypatch.setattr("wakeq.cli.common.Client", FakeClient)
    return FakeClient
