"""Api: the HTTP API under /api/v1: it decodes and checks requests, calls handlers, and encodes answers as JSON.

    request --> permission --> typed query and body --> handler --> JSON, or {"error": {code, detail}}

Tables of Routes define the API; the OpenAPI document is made from the same tables.  This file knows no rule of queues,
and a handler only ever gets a checked request.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from wakeq.http.api.queries import RequestRefused
from wakeq.http.callers import LOOK, Callers
from wakeq.http.server import WebServer
from wakeq.protocol.errors import BadField, BadJson, TooLarge, WakeqError

PREFIX = "/api/v1"
BODY_BYTES_MAX = 1 << 20
BODY_LOGGED_CHARS_MAX = 500
# How often it is checked whether the caller of a search is still there.
CALLER_GONE_S = 0.2

STATUSES = {
    "BAD_FIELD": 400, "BAD_JSON": 400, "BAD_NAME": 400, "KEY_RANGE": 409, "TOO_LARGE": 413, "QUEUE_FULL": 409,
    "TOO_MANY_QUEUES": 409, "HISTORY_GONE": 410,
    "UNAUTHORIZED": 401, "FORBIDDEN": 403, "Q_NOT_FOUND": 404, "UNKNOWN_UID": 404, "NOT_FOUND": 404, "Q_EXISTS": 409,
    "NOT_LEADER": 421, "NO_QUORUM": 503, "BUSY": 503, "DISK_FULL": 507, "UNKNOWN": 504,
    "STORAGE": 500, "DAMAGED": 500, "INTERNAL": 500,
}  # fmt: skip

logger = logging.getLogger("wakeq.admin")


class Route(NamedTuple):
    """One operation.  `query` and `body` are Structs; `answer` is the type of the answer.

    The caller must have the right `need` on the `queue` of the query, or on the node if there is none.  With
    `by_caller` the handler gets the Caller as its first argument, and checks any further rights itself.
    """

    method: str
    path: str
    about: str
    need: str
    handle: Callable[..., Awaitable[Any]]
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    answer: Any = dict[str, Any]
    by_caller: bool = False
    # The content type, if the handler writes the response itself.
    streams: str = ""
    # Whether a client may ask for a range of its bytes.
    has_ranges: bool = False
    # Whether it may take long and changes nothing: it is cancelled when its caller has gone.
    is_search: bool = False
    # Whether the body holds what nobody may read in the broker's log, such as a message.
    is_secret: bool = False


class Api:
    """The routes of the API, and the code that serves them."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers
        self.routes: list[Route] = []

    def add(self, server: WebServer, routes: Sequence[Route]) -> None:
        """Serve these routes; only before the server starts."""
        for route in routes:
            self.routes.append(route)
            # The route is open to the server because `_serve` checks the caller itself.
            server.add(route.method, PREFIX + route.path, self._handler_of(route), is_open=True)

    def _handler_of(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def serve(request: web.Request) -> web.StreamResponse:
            try:
                return await self._serve(route, request)
            except RequestRefused as refused:
                refusal = refused.refusal
                response = error_response(refusal.code, refusal.detail, refusal.leader)
                if refusal.leader_http:
                    response.headers["Location"] = f"{request.scheme}://{refusal.leader_http}{request.path_qs}"
                return response
            except WakeqError as error:
                return error_response(error.code, str(error))
            except (web.HTTPException, ConnectionError):
                # On a ConnectionError the caller has gone.
                raise
            except Exception:
                logger.exception("%s %s failed", request.method, request.path_qs)
                return error_response(WakeqError.code, "an internal error of the broker; its log says where")

        return serve

    async def _serve(self, route: Route, request: web.Request) -> web.StreamResponse:
        caller = self._callers.of(request, lasts=bool(route.streams))
        if not (route.by_caller and route.need == LOOK):
            caller.require(route.need, request.query.get("queue"))
        query = _query_of(route, request)
        body = await _body_of(route, request)
        if route.streams:
            response: web.StreamResponse = await route.handle(request, caller, query)
            return response
        arguments = [value for value in (query, body) if value is not None]
        handling = route.handle(*([caller] if route.by_caller else []), *arguments)
        if route.is_search:
            return json_response(await _while_connected(request, handling))
        if route.method == "GET":
            return json_response(await handling)
        shown = f" {msgspec.json.encode(body).decode()[:BODY_LOGGED_CHARS_MAX]}" if body and not route.is_secret else ""
        asked = f"{caller.name} {route.method} {request.path_qs}{shown}"
        if getattr(body, "after", 0):
            return json_response(await _log_continuation(handling, asked))
        logger.info("%s", asked)
        return json_response(await handling)


async def _while_connected(request: web.Request, handling: Awaitable[Any]) -> Any:
    """Await a handler, but cancel it when its caller has gone."""
    task = asyncio.ensure_future(handling)
    try:
        while not task.done():
            await asyncio.wait((task,), timeout=CALLER_GONE_S)
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError("the caller has gone")
        return task.result()
    finally:
        task.cancel()


async def _log_continuation(handling: Awaitable[Any], asked: str) -> Any:
    """Await a call that continues an earlier one, and log it only if it did something: the first call was logged."""
    try:
        answer = await handling
    except BaseException:
        # A part of the work may be done.
        logger.info("%s", asked)
        raise
    if answer.done:
        logger.info("%s: %d done", asked, answer.done)
    return answer


def _query_of(route: Route, request: web.Request) -> Any:
    given = dict(request.query)
    if len(given) != len(request.query):
        raise BadField("a parameter of the query is given twice; give each one once")
    if route.query is None:
        if given:
            raise BadField(f"there is no parameter {next(iter(given))!r} here")
        return None
    try:
        return msgspec.convert(given, route.query, strict=False)
    except msgspec.ValidationError as error:
        raise BadField(f"query: {error}") from None


async def _body_of(route: Route, request: web.Request) -> Any:
    """Return the decoded body.  It must be declared as JSON, because a form of a web page cannot do that."""
    if route.method in ("GET", "DELETE"):
        return None
    if request.content_type != "application/json":
        raise BadField("the body must be JSON, with the header Content-Type: application/json")
    if (request.content_length or 0) > BODY_BYTES_MAX:
        raise TooLarge(f"the body has more than {BODY_BYTES_MAX} bytes; send less in one request")
    try:
        return msgspec.json.decode(await request.read() or b"{}", type=route.body) if route.body else None
    except msgspec.ValidationError as error:
        raise BadField(f"body: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadJson(f"body: {error}") from None


def json_response(value: Any, status: int = 200) -> web.Response:
    """Return a response with a value as JSON."""
    headers = {"Cache-Control": "no-store"}
    return web.Response(
        body=msgspec.json.encode(value), content_type="application/json", status=status, headers=headers
    )


def error_response(code: str, detail: str, leader: str = "") -> web.Response:
    """Return a response with an error as JSON; the code is that of the worker protocol."""
    error = {"code": code, "detail": detail} | ({"leader": leader} if leader else {})
    response = json_response({"error": error}, STATUSES.get(code, 400))
    if code == "UNAUTHORIZED":
        response.headers["WWW-Authenticate"] = "Bearer"
    return response
