"""in_rounds: waits for something on a loop, and gives up after so many of its rounds: a busy machine has slow ones."""

import asyncio
from collections.abc import Callable

ROUNDS_MAX = 200_000


async def in_rounds(true: Callable[[], object]) -> None:
    """Return once it is so; both ends of what it waits for are on this loop."""
    for _ in range(ROUNDS_MAX):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError(f"it is still not so after {ROUNDS_MAX} rounds of the loop")
