"""Publishing in the HTTP API: one message, for the form of the dashboard and for scripts.

    POST /messages --> the checks and rights of PUB in the worker protocol --> an entry of the log --> the uid

It is no door for producers: each request is an entry of its own, and nothing recognises one that is repeated.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from wakeq.actors.sessions.permissions import refusal_of
from wakeq.http.api.api import Route
from wakeq.http.api.queries import Queries
from wakeq.http.api.queues import Name
from wakeq.http.callers import LOOK, Caller
from wakeq.protocol.log.entries import Publish
from wakeq.protocol.wire.worker import commands
from wakeq.protocol.wire.worker.answers import draft_of
from wakeq.protocol.wire.worker.checks import check_pub, contents_of

# The body names the queue, so the route cannot check the right.
PUBLISHES = "Publish a message; needs the right `publish` on the queue, which is created if it is missing"


class PublishBody(msgspec.Struct, forbid_unknown_fields=True):
    """A message as PUB of the worker protocol describes it; `enc` is b64 if the body is base64."""

    queue: Name
    body: str
    priority: commands.Int64 = 0
    delay: commands.Delay = 0
    timeout: commands.Timeout | None = None
    # Zero means never.
    expires: commands.Expires = 0
    headers: commands.Headers = {}
    enc: Literal["b64"] | None = None


class Published(msgspec.Struct):
    """The message that was published."""

    queue: str
    uid: str


def publish_routes(queries: Queries, message_bytes_max: int) -> Sequence[Route]:
    """Return the route that publishes."""

    async def publish(caller: Caller, body: PublishBody) -> Published:
        pub = check_pub(
            commands.Pub(
                qname=body.queue,
                message=body.body,
                timeout=body.timeout,
                delay=body.delay,
                expires=body.expires,
                priority=body.priority,
                headers=body.headers or None,
                enc=body.enc,
            )
        )
        if caller.access is not None and (refusal := refusal_of(pub, caller.access)) is not None:
            raise refusal
        (content,) = contents_of(pub)
        uid = await queries.publish(Publish(body.queue, [draft_of(content, message_bytes_max)]))
        return Published(body.queue, uid)

    return (
        Route(
            "POST", "/messages", PUBLISHES, LOOK, publish, None, PublishBody, Published, by_caller=True, is_secret=True
        ),
    )
