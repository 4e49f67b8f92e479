"""Streaming: writes one piece of a streamed answer to a peer that must read it in time.

    piece --> response --> written; or nothing was read for too long: the connection ends, and ConnectionError rises

A peer that does not read keeps resources in use: a slot among the watchers, a view of the store.
"""

import asyncio

from aiohttp import web

# Even a slow peer reads something within this time.
READ_S_MAX = 60.0


async def write_in_time(request: web.Request, response: web.StreamResponse, piece: bytes) -> None:
    """Write the piece; return when there is room for more."""
    try:
        async with asyncio.timeout(READ_S_MAX):
            await response.write(piece)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError(f"the peer read nothing for {READ_S_MAX:g} s") from None
