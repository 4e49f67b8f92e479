"""One timer looks at the connections of a port: while there is somebody to look at, and never twice at once."""

import asyncio

import pytest

from wakeq.net.sweeping import Sweeping


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeq.net.sweeping.SWEEP_EVERY_S", 0.0)


def test_it_sweeps_until_nobody_is_left_and_rests_until_somebody_comes() -> None:
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


def test_who_begins_again_is_swept_no_more_often_and_not_at_all_once_it_is_stopped() -> None:
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
