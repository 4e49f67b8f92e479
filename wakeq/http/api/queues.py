"""QueueRoutes: queues in the HTTP API: list, create, change, pause, resume, delete.

The name of a queue is a parameter of the query, for a name may have any visible character; "" is the default queue.
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
CREATES = "Create a queue; who does must be `admin` of it, or of all"  # the body names it, so the door cannot ask

Name = Annotated[str, Meta(max_length=NAME_BYTES_MAX, description='The name of a queue; "" is the default queue.')]
Seconds = Annotated[float, Meta(gt=0, le=SECONDS_MAX)]


class ListQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which queues: those whose name begins with `prefix`, and comes behind `after`."""

    prefix: Annotated[str, Meta(max_length=NAME_BYTES_MAX)] = ""
    after: Annotated[str, Meta(max_length=NAME_BYTES_MAX)] | None = None
    limit: Annotated[int, Meta(ge=1, le=LIST_MAX)] = 100


class QueueQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which queue."""

    queue: Name


class Listed(msgspec.Struct):
    """Queues by name; `after` asks for the next ones, if there are any."""

    queues: list[dict[str, Any]]
    after: str | None = None


class CreateBody(msgspec.Struct, forbid_unknown_fields=True):
    """A new queue, with the policies that differ from what is built in."""

    queue: Name
    policies: dict[str, Any] = {}


class UpdateBody(msgspec.Struct, forbid_unknown_fields=True):
    """The policies that change; null sets one back."""

    policies: dict[str, Any]


class NoBody(msgspec.Struct, forbid_unknown_fields=True):
    """Nothing needs to be said."""


class PauseBody(msgspec.Struct, forbid_unknown_fields=True):
    """For how long, or until when; else until it is resumed."""

    for_s: Seconds | None = None
    until: Annotated[datetime, Meta(tz=True)] | None = None


class Done(msgspec.Struct):
    """It is done."""

    queue: str


class Paused(msgspec.Struct):
    """Until when nothing is handed out; null is until the queue is resumed."""

    queue: str
    until_ms: int | None


class Emptied(msgspec.Struct):
    """How many messages went with it."""

    queue: str
    messages: int


def queue_routes(queries: Queries, now_ms: Callable[[], int]) -> Sequence[Route]:
    """Return what can be done with queues."""
    routes = _QueueRoutes(queries, now_ms)
    return (
        Route(
            "GET",
            "/queues",
            "List queues with their figures",
            LOOK,
            routes.list,
            ListQuery,
            answer=Listed,
            by_caller=True,
        ),
        Route("POST", "/queues", CREATES, LOOK, routes.create, None, CreateBody, Done, by_caller=True),
        Route("GET", "/queue", "Show the figures and policies of a queue", LOOK, routes.show, QueueQuery),
        Route("PATCH", "/queue", "Change policies", ADMIN, routes.update, QueueQuery, UpdateBody, Done, by_caller=True),
        Route("DELETE", "/queue", "Delete a queue with its messages", ADMIN, routes.delete, QueueQuery, None, Emptied),
        Route("POST", "/queue/pause", "Hand out nothing", ADMIN, routes.pause, QueueQuery, PauseBody, Paused),
        Route("POST", "/queue/resume", "Hand out again", ADMIN, routes.resume, QueueQuery, NoBody, Done),
    )


class _QueueRoutes:
    def __init__(self, queries: Queries, now_ms: Callable[[], int]) -> None:
        self._queries = queries
        self._now_ms = now_ms

    async def list(self, caller: Caller, query: ListQuery) -> Listed:
        found = await self._queries.queues(query.prefix, query.after, query.limit, caller.sees)
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
            raise BadField("give either for_s or until")
        if body.for_s is not None:
            until_ms = self._now_ms() + int(body.for_s * 1000)
        elif body.until is not None:
            until_ms = int(body.until.timestamp() * 1000)
            if until_ms <= self._now_ms():
                raise BadField(f"until is {body.until.isoformat()}, which is over")
        await self._queries.change(PauseQueue(check_name(query.queue), until_ms))
        return Paused(query.queue, None if until_ms == PAUSE_MS_MAX else until_ms)

    async def resume(self, query: QueueQuery, _: NoBody) -> Done:
        await self._queries.change(PauseQueue(check_name(query.queue), 0))
        return Done(query.queue)


def _check_policies(caller: Caller, policies: dict[str, Any]) -> None:
    """Refuse what the worker protocol refuses too, and its clients count on; the rest is known to the catalog."""
    target, timeout_s = policies.get("dead_letter"), policies.get("timeout")
    if isinstance(target, str):  # where dead letters go is a way into that queue too
        caller.require(ADMIN, target)
    if isinstance(timeout_s, int) and timeout_s < TIMEOUT_S_MIN:  # a worker extends leases in time for no less
        raise BadField(f"timeout is {timeout_s}, it must be {TIMEOUT_S_MIN} seconds or more")
