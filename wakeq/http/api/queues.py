"""QueueRoutes: queues in the HTTP API: list, create, change, pause, resume, delete.

The name of a queue is a query parameter, because a name may contain any visible character; "" is the default queue.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from wakeq.http.api.api import Route
from wakeq.http.api.queries import Queries
from wakeq.http.callers import ADMIN, LOOK, Caller
from wakeq.protocol.catalog import FIELDS, Policies, changed, check
from wakeq.protocol.errors import BadField
from wakeq.protocol.log.entries import PAUSE_MS_MAX, CreateQueue, DeleteQueue, PauseQueue, UpdateQueue
from wakeq.protocol.names import NAME_BYTES_MAX, check_name
from wakeq.protocol.wire.worker.commands import TIMEOUT_S_MIN

LIST_MAX = 1_000
SECONDS_MAX = 365 * 86_400
# The body names the queue, so the route cannot check the right.
CREATES = "Create a queue; needs the right `admin` on it"

Name = Annotated[str, Meta(max_length=NAME_BYTES_MAX, description='The name of a queue; "" is the default queue.')]
Contained = Annotated[
    str, Meta(max_length=NAME_BYTES_MAX, description="A part of the name, anywhere in it, in capitals or not.")
]
Seconds = Annotated[float, Meta(gt=0, le=SECONDS_MAX)]


class ListQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Queues whose name begins with `prefix`, contains `contains`, and comes after `after`."""

    prefix: Annotated[str, Meta(max_length=NAME_BYTES_MAX)] = ""
    contains: Contained = ""
    after: Annotated[str, Meta(max_length=NAME_BYTES_MAX)] | None = None
    limit: Annotated[int, Meta(ge=1, le=LIST_MAX)] = 100


class QueueQuery(msgspec.Struct, forbid_unknown_fields=True):
    """One queue."""

    queue: Name


class Listed(msgspec.Struct):
    """Queues by name; `after` requests the next page, if there is one."""

    queues: list[dict[str, Any]]
    after: str | None = None


class CreateBody(msgspec.Struct, forbid_unknown_fields=True):
    """A new queue, with the policies that differ from the built-in ones."""

    queue: Name
    policies: dict[str, Any] = {}


class UpdateBody(msgspec.Struct, forbid_unknown_fields=True):
    """The policies to change; null resets one to its built-in value."""

    policies: dict[str, Any]


class NoBody(msgspec.Struct, forbid_unknown_fields=True):
    """An empty body."""


class PauseBody(msgspec.Struct, forbid_unknown_fields=True):
    """The length or the end of the pause; without either it lasts until the queue is resumed."""

    for_s: Seconds | None = None
    until: Annotated[datetime, Meta(tz=True)] | None = None


class Done(msgspec.Struct):
    """The queue that was changed."""

    queue: str


class Paused(msgspec.Struct):
    """The end of the pause; null means until the queue is resumed."""

    queue: str
    until_ms: int | None


class Emptied(msgspec.Struct):
    """The number of messages that were deleted with the queue."""

    queue: str
    messages: int


def contains(queue: str, part: str) -> bool:
    """Whether the name of a queue has this part, in capitals or not."""
    return part.casefold() in queue.casefold()


def queue_routes(queries: Queries, now_ms: Callable[[], int]) -> Sequence[Route]:
    """Return the routes for queues."""
    routes = _QueueRoutes(queries, now_ms)
    return (
        Route(
            "GET",
            "/queues",
            "List queues with their statistics",
            LOOK,
            routes.list,
            ListQuery,
            answer=Listed,
            by_caller=True,
        ),
        Route("POST", "/queues", CREATES, LOOK, routes.create, None, CreateBody, Done, by_caller=True),
        Route("GET", "/queue", "Show the statistics and policies of a queue", LOOK, routes.show, QueueQuery),
        Route("PATCH", "/queue", "Change policies", ADMIN, routes.update, QueueQuery, UpdateBody, Done, by_caller=True),
        Route("DELETE", "/queue", "Delete a queue with its messages", ADMIN, routes.delete, QueueQuery, None, Emptied),
        Route("POST", "/queue/pause", "Pause deliveries", ADMIN, routes.pause, QueueQuery, PauseBody, Paused),
        Route("POST", "/queue/resume", "Resume deliveries", ADMIN, routes.resume, QueueQuery, NoBody, Done),
    )


class _QueueRoutes:
    def __init__(self, queries: Queries, now_ms: Callable[[], int]) -> None:
        self._queries = queries
        self._now_ms = now_ms

    async def list(self, caller: Caller, query: ListQuery) -> Listed:
        def sees(queue: str) -> bool:
            return contains(queue, query.contains) and caller.sees(queue)

        found = await self._queries.queues(query.prefix, query.after, query.limit, sees)
        return Listed(found, found[-1]["qname"] if len(found) == query.limit else None)

    async def show(self, query: QueueQuery) -> dict[str, Any]:
        return await self._queries.stats(check_name(query.queue))

    async def create(self, caller: Caller, body: CreateBody) -> Done:
        caller.require(ADMIN, body.queue)
        _check_policies(caller, body.policies)
        policies = changed(Policies(), body.policies)
        check(check_name(body.queue), policies)
        await self._queries.change(CreateQueue(body.queue, policies))
        return Done(body.queue)

    async def update(self, caller: Caller, query: QueueQuery, body: UpdateBody) -> Done:
        _check_policies(caller, body.policies)
        for name in body.policies:
            if name not in FIELDS:
                raise BadField(f"{name} is not a policy; known are {', '.join(FIELDS)}")
        await self._queries.change(UpdateQueue(check_name(query.queue), body.policies))
        return Done(query.queue)

    async def delete(self, query: QueueQuery) -> Emptied:
        return Emptied(query.queue, await self._queries.change(DeleteQueue(check_name(query.queue))))

    async def pause(self, query: QueueQuery, body: PauseBody) -> Paused:
        until_ms = PAUSE_MS_MAX
        if body.for_s is not None and body.until is not None:
            raise BadField("for_s and until cannot be combined; give one of them")
        if body.for_s is not None:
            until_ms = self._now_ms() + int(body.for_s * 1000)
        elif body.until is not None:
            until_ms = int(body.until.timestamp() * 1000)
            if until_ms <= self._now_ms():
                raise BadField(f"until is {body.until.isoformat()}, which is in the past")
        await self._queries.change(PauseQueue(check_name(query.queue), until_ms))
        return Paused(query.queue, None if until_ms == PAUSE_MS_MAX else until_ms)

    async def resume(self, query: QueueQuery, _: NoBody) -> Done:
        await self._queries.change(PauseQueue(check_name(query.queue), 0))
        return Done(query.queue)


def _check_policies(caller: Caller, policies: dict[str, Any]) -> None:
    """Refuse policies that the worker protocol refuses too; the catalog checks the rest."""
    target, timeout_s = policies.get("dead_letter"), policies.get("timeout")
    # The dead-letter policy lets messages into that queue, so it needs a right there.
    if isinstance(target, str):
        caller.require(ADMIN, target)
    # A worker could not extend shorter leases in time.
    if isinstance(timeout_s, int) and timeout_s < TIMEOUT_S_MIN:
        raise BadField(f"timeout is {timeout_s}; it must be {TIMEOUT_S_MIN} seconds or more")
