"""give: one piece of an answer that is streamed, to a peer that takes it in time.

    piece --> response --> taken; or nothing for too long: the connection is ended, and ConnectionError rises

While a peer takes nothing, whoever sends to it holds something for it: a place among the watchers, a view of the store.
It never looks at what is sent.
"""

import asyncio

from aiohttp import web

TAKEN_S_MAX = 60.0  # a peer that is only slow takes something in that time


async def give(request: web.Request, response: web.StreamResponse, piece: bytes) -> None:
    """Write it; return when there is room for more."""
    try:
        async with asyncio.timeout(TAKEN_S_MAX):
            await response.write(piece)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError(f"the peer took nothing for {TAKEN_S_MAX:g} s") from None
