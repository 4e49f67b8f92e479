"""A web application that publishes: the answer goes out when the work is safe with the broker, not when it is done.

    python examples/web_app.py 8000
    curl -d '{"to": "ada@example.org"}' localhost:8000/emails

One AsyncClient serves all requests; those that come together are published together.
"""

import json
import sys
from collections.abc import AsyncIterator

from aiohttp import web

from wakeq import AsyncClient, WakeqError, errors

BROKER = web.AppKey("broker", AsyncClient)
PATIENCE_S = 2.0  # with a broker that is away: whoever waits for a page waits no longer


async def connected(app: web.Application) -> AsyncIterator[None]:
    """The connection lives as long as the application; when it breaks it is made again by itself."""
    async with AsyncClient(reconnect_for_s=PATIENCE_S) as app[BROKER]:
        yield


async def post_email(request: web.Request) -> web.Response:
    """202 with the uid; 400 for what is no address, or no key; 503 if nobody can say whether it was published."""
    try:
        to = (await request.json())["to"]
    except (ValueError, KeyError, TypeError):
        raise web.HTTPBadRequest(text='send {"to": ADDRESS}\n') from None
    try:
        uid = await request.app[BROKER].publish("emails", {"to": to}, id=request.headers.get("Idempotency-Key"))
    except (errors.BadField, errors.TooLarge) as error:  # a key is up to 120 characters long
        raise web.HTTPBadRequest(text=f"{error}\n") from error
    except WakeqError as error:  # perhaps it was: with the same key they can try again
        raise web.HTTPServiceUnavailable(text=f"{error}\n") from error
    return web.Response(status=202, text=json.dumps({"uid": uid}), content_type="application/json")


def make_app() -> web.Application:
    app = web.Application()
    app.cleanup_ctx.append(connected)
    app.router.add_post("/emails", post_email)
    return app


if __name__ == "__main__":
    web.run_app(make_app(), host="127.0.0.1", port=int(sys.argv[1]))
