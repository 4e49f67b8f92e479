"""A web application that publishes: it answers when the message is stored by the broker, not when the work is done.

    python examples/web_app.py 8000
    curl -d '{"to": "ada@example.org"}' localhost:8000/emails

One AsyncClient serves all requests; messages of simultaneous requests are published together.
"""

import json
import sys
from collections.abc import AsyncIterator

from aiohttp import web

from wakeq import AsyncClient, WakeqError, errors

BROKER = web.AppKey("broker", AsyncClient)
# If the broker is unreachable, a visitor waits for the answer no longer than this.
RECONNECT_FOR_S = 2.0


async def connected(app: web.Application) -> AsyncIterator[None]:
    """Keep a connection as long as the application runs; the client reconnects by itself."""
    async with AsyncClient(reconnect_for_s=RECONNECT_FOR_S) as app[BROKER]:
        yield


async def post_email(request: web.Request) -> web.Response:
    """Answer 202 with the uid, 400 for a bad address or key, 503 if it is unknown whether the message was published."""
    try:
        to = (await request.json())["to"]
    except (ValueError, KeyError, TypeError):
        raise web.HTTPBadRequest(text='send {"to": ADDRESS}\n') from None
    try:
        uid = await request.app[BROKER].publish("emails", {"to": to}, id=request.headers.get("Idempotency-Key"))
    # A key has at most 120 characters.
    except (errors.BadField, errors.TooLarge) as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from error
    # The message may have been published. With the same key the visitor can try again.
    except WakeqError as error:
        raise web.HTTPServiceUnavailable(text=f"{error}\n") from error
    return web.Response(status=202, text=json.dumps({"uid": uid}), content_type="application/json")


def make_app() -> web.Application:
    app = web.Application()
    app.cleanup_ctx.append(connected)
    app.router.add_post("/emails", post_email)
    return app


if __name__ == "__main__":
    web.run_app(make_app(), host="127.0.0.1", port=int(sys.argv[1]))
