"""The HTTP port: one aiohttp server for everything that comes by HTTP, with a line of greeting at `/`.

Handlers are added by path before `start`; requests go in, their responses come out.  A connection that sends
no request in time is closed.  Must never know what its handlers do, or keep an access log of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

HANDSHAKE_S_MAX = 5.0  # from the connection to the end of the first request's header
KEEPALIVE_S = 15.0  # between two requests
SHUTDOWN_S_MAX = 10.0
ACCEPT_BACKLOG = 4096
HEADER_BYTES_MAX = 8190  # of a request line, and of each header


class WebServer:
    """Serve what was added."""

    def __init__(self, greeting: str | None = "wakeq: workers connect by WebSocket at /connect") -> None:
        """Without a greeting nothing is at `/` until it is added."""
        self._silent: set[asyncio.BaseProtocol] = set()  # connections that have not sent a request yet
        self._server: asyncio.Server | None = None
        self._runner: web.AppRunner | None = None
        self._app = web.Application(middlewares=[self._heard])
        if greeting is not None:
            self._greeting = greeting + "\n"
            self._app.router.add_get("/", self._greet)

    def add(self, method: str, path: str, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> None:
        """Serve a path; only before `start`."""
        self._app.router.add_route(method, path, handler)

    def before_stop(self, step: Callable[[], Awaitable[None]]) -> None:
        """Do this when the server stops, before its connections are closed."""

        async def run(_: web.Application) -> None:
            await step()

        self._app.on_shutdown.append(run)

    async def start(self, host: str, port: int) -> int:
        """Accept connections; return the real port."""
        self._runner = web.AppRunner(
            self._app,
            access_log=None,
            handle_signals=False,
            keepalive_timeout=KEEPALIVE_S,
            shutdown_timeout=SHUTDOWN_S_MAX,
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
        )
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, host, port, backlog=ACCEPT_BACKLOG)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Accept nothing more, then close what is open."""
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def _connection(self) -> asyncio.Protocol:
        assert self._runner is not None
        assert self._runner.server is not None
        protocol = self._runner.server()
        self._silent.add(protocol)
        asyncio.get_running_loop().call_later(HANDSHAKE_S_MAX, self._close_silent, protocol)
        return protocol

    def _close_silent(self, protocol: Any) -> None:
        if protocol in self._silent:
            self._silent.discard(protocol)
            protocol.force_close()

    @web.middleware
    async def _heard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._silent.discard(request.protocol)
        return await handler(request)

    async def _greet(self, _: web.Request) -> web.Response:
        return web.Response(text=self._greeting)
