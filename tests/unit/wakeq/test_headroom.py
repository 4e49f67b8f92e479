"""Publishes are refused while there is no room for them, and taken again when there is."""

import asyncio
from pathlib import Path
from typing import Any

from tests.helpers.node_here import client_of, node_here

LIMIT_BYTES = 1_000


def test_a_node_that_holds_as_much_as_it_may_refuses_publishes_until_something_goes(tmp_path: Path) -> None:
    async def story() -> tuple[str, str, bool]:
        async with node_here(tmp_path / "data", node_bytes_max=LIMIT_BYTES) as here, client_of(here) as client:
            headroom = here.node._headroom
            await client.publish("q", b"x" * LIMIT_BYTES)
            headroom.look()
            refused = await _error_of(client.publish("q", b"y"))
            message = await client.fetch("q")
            assert message is not None
            await message.ack()
            headroom.look()
            taken = await _error_of(client.publish("q", b"z"))
            return refused, taken, headroom.is_used_up

    refused, taken, is_used_up = asyncio.run(story())

    assert refused == "QUEUE_FULL"
    assert taken == ""
    assert not is_used_up


async def _error_of(work: Any) -> str:
    try:
        await work
    except Exception as error:
        return str(getattr(error, "code", error))
    return ""
