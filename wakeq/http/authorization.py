"""Authorization: the token of an HTTP request, and requests that a foreign web page made a browser send.

    Authorization: Bearer TOKEN, or the cookie of the dashboard --> Access | 401
    a request from a page of another site --> 403

A browser sends requests and opens WebSockets for any page that it shows, so a foreign Origin is refused with or without
tokens.  What the caller may do is checked by the code that serves the path.  No answer may distinguish a wrong token
from an unknown one.
"""

from urllib.parse import urlsplit

from aiohttp import web

from wakeq.actors.sessions.access import Access, Gate
from wakeq.protocol.access import is_address
from wakeq.protocol.errors import Forbidden, Refused, Unauthorized

COOKIE = "wakeq_token"


def token_of(request: web.Request) -> str | None:
    """Return the token of a request; the header wins over the cookie."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return token.strip()
    return request.cookies.get(COOKIE)


def log_in(gate: Gate, request: web.Request) -> Access:
    """Return the sender's access, or raise 401."""
    try:
        return gate.login(token_of(request), peer=request.remote or "")
    except Unauthorized as error:
        raise as_response(error) from error


def as_response(error: Refused) -> web.HTTPException:
    """Return a refusal as an HTTP error with the same code and detail as on the wire."""
    fields = {"err": error.code, "detail": str(error)}
    body = web.json_response(fields).body
    if isinstance(error, Forbidden):
        return web.HTTPForbidden(body=body, content_type="application/json")
    headers = {"WWW-Authenticate": 'Bearer realm="wakeq"'}
    return web.HTTPUnauthorized(body=body, content_type="application/json", headers=headers)


def is_foreign(request: web.Request, *, asks_for_tokens: bool) -> bool:
    """Whether a browser sent this for a page of another site.

    Without tokens, a host name that resolves to this machine is foreign too, unless it is localhost: any site can have
    such a name.
    """
    origin = request.headers.get("Origin")
    if origin is None:
        return False
    try:
        site = urlsplit(origin)
    except ValueError:
        # No browser sends such an origin.
        return True
    if site.netloc != request.host:
        return True
    host = site.hostname or ""
    return not asks_for_tokens and host != "localhost" and not is_address(host)
