"""One timer looks at the connections of a port: while there is somebody to look at, and never twice at once."""

import asyncio

import pytest

from wakeq.net.sweeping import Sweeping


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeq.net.sweeping.SWEEP_EVERY_S", 0.0)


def test_sweeps_repeat_only_while_a_connection_is_watched() -> None:
    async def swept() -> tuple[int, int]:
        left = [False, True, True]
        sweeping = Sweeping(lambda: left.pop())
        sweeping.begin()
        while left:
            await asyncio.sleep(0)
        left.append(False)
        for _ in range(10):
            await asyncio.sleep(0)
        resting = len(left)
        sweeping.begin()
        for _ in range(10):
            await asyncio.sleep(0)
        return resting, len(left)

    assert asyncio.run(swept()) == (1, 0)


def test_repeated_begin_does_not_multiply_sweeps_and_stop_ends_them() -> None:
    async def counts() -> list[int]:
        seen: list[int] = []
        sweeping = Sweeping(lambda: seen.append(1) is not None)
        for stops in (False, True):
            sweeping.begin()
            sweeping.begin()
            if stops:
                sweeping.stop()
            for _ in range(10):
                await asyncio.sleep(0)
        return seen

    assert asyncio.run(counts()) == [1]
