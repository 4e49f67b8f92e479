"""WebServer: the HTTP port: one aiohttp server for all paths, with a greeting at `/`.

    connection --> counted, first request in time --> request --> token, origin --> handler --> response

Handlers are added by path before `start`.  If tokens are required, only handlers added as open see a request without
one.  It must not know what its handlers do, and keeps no access log.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from wakeq.actors.rate_limited_log import RateLimitedLog
from wakeq.actors.sessions.access import Gate
from wakeq.actors.sessions.door import FRAME_S_MAX, HANDSHAKE_S_MAX, Admission
from wakeq.http.authorization import is_foreign, log_in
from wakeq.http.connection import SAFE_HEADERS, HttpConnection
from wakeq.net.listening import Server, accept
from wakeq.net.tls import ServerTls

SHUTDOWN_S_MAX = 10.0
ACCEPT_BACKLOG = 4096
# Of a request.
BODY_BYTES_MAX = 1024 * 1024

logger = logging.getLogger("wakeq.web")


class WebServer:
    """One HTTP server with its handlers."""

    def __init__(
        self,
        greeting: str | None = "wakeq: workers connect by WebSocket at /connect",
        *,
        admission: Admission | None = None,
        gate: Gate | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        """Without a greeting, `/` is free for another handler."""
        self.admission = admission or Admission()
        self._gate = gate
        self._tls = tls
        self._complaints = RateLimitedLog(logger)
        # The routes that need no token.
        self._open: set[web.AbstractRoute] = set()
        # Connections that have not sent a request yet, with their timeouts.
        self._silent: dict[asyncio.BaseProtocol, asyncio.TimerHandle] = {}
        self._server: Server | None = None
        self._runner: web.AppRunner | None = None
        self._app = web.Application(middlewares=[self._mark_heard, self._guard], client_max_size=BODY_BYTES_MAX)
        self._app.on_response_prepare.append(_add_safe_headers)
        if greeting is not None:
            self._greeting = greeting + "\n"
            self.add("GET", "/", self._greet, is_open=True)

    def add(
        self,
        method: str,
        path: str,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
        *,
        is_open: bool = False,
    ) -> None:
        """Serve a path; only before `start`.  An open handler needs no token, or checks it itself."""
        route = self._app.router.add_route(method, path, handler)
        if is_open:
            self._open.add(route)

    def before_stop(self, step: Callable[[], Awaitable[None]]) -> None:
        """Run this step at the shutdown, before connections are closed."""

        async def run(_: web.Application) -> None:
            await step()

        self._app.on_shutdown.append(run)

    async def start(self, bound: socket.socket) -> int:
        """Accept connections at a bound socket; return its port."""
        self._runner = web.AppRunner(self._app, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_S_MAX)
        await self._runner.setup()
        self._server = await accept(
            bound, self._connection, backlog=ACCEPT_BACKLOG, tls=self._tls, admission=self.admission
        )
        return int(bound.getsockname()[1])

    async def close(self) -> None:
        """Accept no more connections, then close the open ones."""
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def _connection(self) -> asyncio.Protocol:
        assert self._runner is not None
        assert self._runner.server is not None
        protocol = HttpConnection(self.admission, self._runner.server, self._complaints, self._stop_timeout)
        later = asyncio.get_running_loop().call_later(HANDSHAKE_S_MAX, self._close_silent, protocol)
        self._silent[protocol] = later
        return protocol

    def _stop_timeout(self, protocol: Any) -> None:
        """Stop waiting for the first request: it has come, or the connection has ended."""
        timer = self._silent.pop(protocol, None)
        if timer is not None:
            timer.cancel()

    def _close_silent(self, protocol: Any) -> None:
        del self._silent[protocol]
        protocol.force_close()

    @web.middleware
    async def _mark_heard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._stop_timeout(request.protocol)
        try:
            return await handler(request)
        except web.HTTPException as error:
            # The exception and the frames in its traceback would keep each other alive.
            error.__traceback__ = None
            return web.Response(body=error.body, status=error.status, reason=error.reason, headers=error.headers)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests of foreign pages and without a token, and wait a bounded time for the body."""
        # aiohttp relies on ASCII headers.
        if not all([value.isascii() for value in request.headers.values()]):
            raise web.HTTPBadRequest(text="a header contains bytes that are not ASCII\n")
        if is_foreign(request, asks_for_tokens=self._gate is not None):
            raise web.HTTPForbidden(text="this request comes from a page of another site\n")
        if self._gate is not None and request.match_info.route not in self._open:
            # Denied by default: a handler that is not open does not check the token itself.
            log_in(self._gate, request)
        if request.can_read_body:
            async with self._room_for_body(request):
                return await handler(request)
        return await handler(request)

    @asynccontextmanager
    async def _room_for_body(self, request: web.Request) -> AsyncIterator[None]:
        """Read the whole body, and count it into the memory of all connections while it is needed."""
        size_bytes = BODY_BYTES_MAX if request.content_length is None else request.content_length
        if size_bytes > BODY_BYTES_MAX:
            raise web.HTTPRequestEntityTooLarge(BODY_BYTES_MAX, size_bytes)
        self.admission.held_bytes += size_bytes
        try:
            if self.admission.crowded:
                raise web.HTTPServiceUnavailable(text="too much is unfinished on all connections; try again later\n")
            await _read_in_time(request)
            yield
        finally:
            self.admission.held_bytes -= size_bytes

    async def _greet(self, _: web.Request) -> web.Response:
        return web.Response(text=self._greeting)


async def _add_safe_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(SAFE_HEADERS)


async def _read_in_time(request: web.Request) -> None:
    try:
        async with asyncio.timeout(FRAME_S_MAX):
            await request.read()
    except TimeoutError as error:
        raise web.HTTPRequestTimeout(text=f"the body was not complete after {FRAME_S_MAX:g} s\n") from error
    except web.RequestPayloadError as error:
        raise web.HTTPBadRequest(text="the body does not match its headers\n") from error
