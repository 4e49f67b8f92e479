"""Api: the HTTP API under /api/v1: requests are decoded and checked, handlers do them, answers are JSON.

    request --> may it? --> query and body, typed --> handler --> JSON, or {"error": {code, detail}}

What there is stands in tables of Routes, from which the OpenAPI document is made too.  It knows no queue rule, and no
handler ever sees a request that was not checked.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from wakeq.http.api.queries import Denied
from wakeq.http.callers import LOOK, Callers
from wakeq.http.server import WebServer
from wakeq.protocol.errors import BadField, WakeqError

PREFIX = "/api/v1"
BODY_BYTES_MAX = 1 << 20

STATUSES = {
    "BAD_FIELD": 400, "BAD_JSON": 400, "BAD_NAME": 400, "KEY_RANGE": 409, "TOO_LARGE": 413, "QUEUE_FULL": 409,
    "TOO_MANY_QUEUES": 409,
    "UNAUTHORIZED": 401, "FORBIDDEN": 403, "Q_NOT_FOUND": 404, "UNKNOWN_UID": 404, "NOT_FOUND": 404, "Q_EXISTS": 409,
    "NOT_LEADER": 421, "NO_QUORUM": 503, "BUSY": 503, "DISK_FULL": 507, "UNKNOWN": 504,
    "INTERNAL": 500,
}  # fmt: skip

logger = logging.getLogger("wakeq.admin")


class Route(NamedTuple):
    """One thing that can be asked for.  `query` and `body` are Structs; `answer` is the type of what comes back.

    `need` must be allowed for the `queue` of the query, or else for the node.  With `by_caller` the handler is given
    the Caller first, and asks for itself what depends on more than that.
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
    streams: str = ""  # the content type, where the handler writes the response itself


class Api:
    """The routes, and what their handlers work with."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers
        self.routes: list[Route] = []

    def add(self, server: WebServer, routes: Sequence[Route]) -> None:
        """Serve these; only before the server starts."""
        for route in routes:
            self.routes.append(route)
            server.add(route.method, PREFIX + route.path, self._served(route), is_open=True)  # it asks itself

    def _served(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def serve(request: web.Request) -> web.StreamResponse:
            try:
                return await self._serve(route, request)
            except Denied as denied:
                response = refused(denied.code, denied.detail, denied.leader)
                if denied.leader_http:
                    response.headers["Location"] = f"{request.scheme}://{denied.leader_http}{request.path_qs}"
                return response
            except WakeqError as error:
                return refused(error.code, str(error))
            except (web.HTTPException, ConnectionError):  # the second: whoever asked is gone
                raise
            except Exception:
                logger.exception("%s %s failed", request.method, request.path_qs)
                return refused(WakeqError.code, "a fault of the broker itself; its log says where")

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
        if route.method == "GET":
            return answered(await handling)
        asked = f"{caller.name} {route.method} {request.path_qs}{f' {_shown(body)}' if body else ''}"
        if getattr(body, "after", 0):
            return answered(await _going_on(handling, asked))
        logger.info("%s", asked)
        return answered(await handling)


async def _going_on(handling: Awaitable[Any], asked: str) -> Any:
    """A call that goes on with an earlier one, which is logged: of many, those that did something are, too."""
    try:
        answer = await handling
    except BaseException:
        logger.info("%s", asked)  # a part of it may be done
        raise
    if answer.done:
        logger.info("%s: %d done", asked, answer.done)
    return answer


def _query_of(route: Route, request: web.Request) -> Any:
    given = dict(request.query)
    if len(given) != len(request.query):
        raise BadField("a parameter of the query is given twice")
    if route.query is None:
        if given:
            raise BadField(f"there is no parameter {next(iter(given))!r} here")
        return None
    try:
        return msgspec.convert(given, route.query, strict=False)
    except msgspec.ValidationError as error:
        raise BadField(f"query: {error}") from None


async def _body_of(route: Route, request: web.Request) -> Any:
    """Return the body.  Its type must be said: no form of a web page can say it."""
    if route.method in ("GET", "DELETE"):
        return None
    if request.content_type != "application/json":
        raise BadField("the body must be JSON, and say so: Content-Type: application/json")
    if (request.content_length or 0) > BODY_BYTES_MAX:
        raise Denied("TOO_LARGE", f"a body of more than {BODY_BYTES_MAX} bytes")
    try:
        return msgspec.json.decode(await request.read() or b"{}", type=route.body) if route.body else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        code = "BAD_FIELD" if isinstance(error, msgspec.ValidationError) else "BAD_JSON"
        raise Denied(code, f"body: {error}") from None


def _shown(body: Any) -> str:
    return msgspec.json.encode(body).decode()[:500]


def answered(value: Any, status: int = 200) -> web.Response:
    """Return a value as JSON."""
    headers = {"Cache-Control": "no-store"}
    return web.Response(
        body=msgspec.json.encode(value), content_type="application/json", status=status, headers=headers
    )


def refused(code: str, detail: str, leader: str = "") -> web.Response:
    """Return an error as JSON; the code is the one that the worker protocol has for it."""
    error = {"code": code, "detail": detail} | ({"leader": leader} if leader else {})
    response = answered({"error": error}, STATUSES.get(code, 400))
    if code == "UNAUTHORIZED":
        response.headers["WWW-Authenticate"] = "Bearer"
    return response
