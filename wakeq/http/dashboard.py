"""Dashboard: the pages at `/`, from the folder `pages` beside this file; `pages/vendor` is the code of others.

They are read once, at the start.  They load nothing from any other host, and their headers make browsers enforce that.
A program that does not ask for HTML gets a line of text.
"""

from collections.abc import Awaitable, Callable
from importlib.resources import files
from zlib import crc32

from aiohttp import web

from wakeq.http.server import WebServer

GREETING = "wakeq: workers connect by WebSocket at /connect; operators open / in a browser, or use /api/v1\n"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def serve_dashboard(server: WebServer) -> None:
    """Serve the pages; only before the server starts."""
    pages = files("wakeq.http") / "pages"
    found = {page.name: page for page in pages.iterdir()} | {
        f"vendor/{page.name}": page for page in (pages / "vendor").iterdir()
    }
    for name, page in found.items():
        if name[name.rfind(".") :] not in TYPES:
            # The folder of other people's code, and its licences.
            continue
        content = page.read_bytes()
        server.add("GET", "/" if name == "index.html" else f"/dashboard/{name}", _handler(name, content), is_open=True)


def _handler(name: str, content: bytes) -> Handler:
    kind = TYPES[name[name.rindex(".") :]]
    tag = f'"{crc32(content):08x}"'
    headers = {
        "Content-Security-Policy": POLICY,
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
        "ETag": tag,
    }

    async def serve(request: web.Request) -> web.Response:
        if name == "index.html" and "text/html" not in request.headers.get("Accept", ""):
            return web.Response(text=GREETING)
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=content, content_type=kind, charset="utf-8", headers=headers)

    return serve
