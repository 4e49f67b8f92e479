"""Events: what happens, told to whoever watches: the dashboard and `wakeq top`, as server-sent events.

    gauges of all queues, figures of the node --> one look for all watchers --> each watcher what it wants of it

Somebody looks only while somebody watches, and the more queues there are the more seldom: looking takes a twentieth of
the time at most.  A watcher that does not read misses looks; none is kept for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from heapq import nlargest
from typing import Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta

from wakeq.actors.log.histogram import Histogram
from wakeq.http.api.api import Route
from wakeq.http.api.queries import Denied, Queries
from wakeq.http.api.queues import Name
from wakeq.http.api.streaming import give
from wakeq.http.callers import LOOK, Caller
from wakeq.http.exposition import Sample
from wakeq.protocol.catalog import DEAD_SUFFIX
from wakeq.protocol.queue.view import Gauges

LOOK_EVERY_S = 0.5
SHARE = 20  # of the time goes into looking, at most one part in so many
WATCHERS_MAX = 32
SHOWN_MAX = 500
CONTENT_TYPE = "text/event-stream"


class EventsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which queues are told of: those whose name begins with `prefix`, the fullest first; and one in any case.

    With `leader` a node that does not serve refuses, and one that ceases to serve ends the stream.
    """

    prefix: Name = ""
    limit: Annotated[int, Meta(ge=1, le=SHOWN_MAX)] = 100
    queue: Name | None = None
    leader: bool = False


class Look(msgspec.Struct):
    """What there was to see at one moment."""

    at_ms: int
    gauges: Sequence[Gauges]
    figures: dict[str, float]
    cluster: dict[str, Any]
    refusal: Denied | None = None

    @property
    def error(self) -> str:
        return "" if self.refusal is None else self.refusal.detail


class Events:
    """See the head of this file."""

    def __init__(
        self,
        queries: Queries,
        samples: Callable[[], Awaitable[Sequence[Sample]]],
        now_ms: Callable[[], int],
    ) -> None:
        self._queries = queries
        self._samples = samples
        self._now_ms = now_ms
        self._watchers: set[asyncio.Queue[Look | None]] = set()
        self._looking: asyncio.Task[None] | None = None

    def routes(self) -> Sequence[Route]:
        about = "Watch queues and node, as server-sent events"
        return (Route("GET", "/events", about, LOOK, self.watch, EventsQuery, by_caller=True, streams=CONTENT_TYPE),)

    async def stop(self) -> None:
        """Send everybody away: the broker stops."""
        if self._looking is not None:
            self._looking.cancel()
        for watcher in self._watchers:
            _put(watcher, None)

    async def watch(self, request: web.Request, caller: Caller, query: EventsQuery) -> web.StreamResponse:
        """Tell one watcher, until it goes or the broker stops."""
        if len(self._watchers) >= WATCHERS_MAX:
            raise Denied("BUSY", f"{WATCHERS_MAX} are watching already; close a page")
        watcher: asyncio.Queue[Look | None] = asyncio.Queue(1)
        self._watchers.add(watcher)  # at once: many may ask before the first one is answered
        try:
            return await self._tell(watcher, request, caller, query)
        finally:
            self._watchers.discard(watcher)

    async def _tell(
        self, watcher: "asyncio.Queue[Look | None]", request: web.Request, caller: Caller, query: EventsQuery
    ) -> web.StreamResponse:
        if query.leader and (refusal := (await self._look()).refusal) is not None:
            raise refusal
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})
        await response.prepare(request)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look_again())
        try:
            while (look := await watcher.get()) is not None and not (query.leader and look.refusal):
                await give(request, response, b"data: " + msgspec.json.encode(told(look, query, caller)) + b"\n\n")
        except (ConnectionResetError, OSError):
            pass  # it went
        return response

    async def _look_again(self) -> None:
        loop = asyncio.get_running_loop()
        while self._watchers:
            began_s = loop.time()
            look = await self._look()
            for watcher in self._watchers:
                _put(watcher, look)
            await asyncio.sleep(max(LOOK_EVERY_S, SHARE * (loop.time() - began_s)))

    async def _look(self) -> Look:
        """Look at everything; a node that follows has no queues to show."""
        try:
            cluster = await self._queries.cluster()
            figures = figures_of(await self._samples())
        except Denied as denied:
            return Look(self._now_ms(), (), {}, {}, denied)
        try:
            return Look(self._now_ms(), await self._queries.gauges(), figures, cluster)
        except Denied as denied:
            return Look(self._now_ms(), (), figures, cluster, denied)


def _put(watcher: "asyncio.Queue[Look | None]", look: Look | None) -> None:
    """Give a watcher the newest look in the place of one that it has not taken."""
    if watcher.full():
        watcher.get_nowait()
    watcher.put_nowait(look)


def told(look: Look, query: EventsQuery, caller: Caller) -> dict[str, Any]:
    """Return what one watcher is told: of queues that he may see, and of the node if he may see all of them.  Pure."""
    gauges = [one for one in look.gauges if caller.sees(one.name)]
    wanted = [one for one in gauges if one.name.startswith(query.prefix)]
    shown = nlargest(query.limit, wanted, key=lambda one: (one.ready + one.delayed + one.leased, one.published))
    if query.queue is not None and all(one.name != query.queue for one in shown):
        shown += [one for one in gauges if one.name == query.queue]
    return {
        "at_ms": look.at_ms,
        "queues": [one._asdict() for one in shown],
        "queues_total": len(gauges),
        "totals": {
            **{field: sum(getattr(one, field) for one in gauges) for field in _SUMMED},
            "letters": sum(one.ready + one.delayed for one in gauges if one.name.endswith(DEAD_SUFFIX)),
        },
        "figures": look.figures if caller.sees_node else {},
        "cluster": look.cluster if caller.sees_node else {},
        "error": look.error,
    }


_SUMMED = ("ready", "delayed", "leased", "bytes", "published", "delivered", "acked", "released", "dead", "wakes")


def figures_of(samples: Sequence[Sample]) -> dict[str, float]:
    """Return the samples by name; a histogram as its count, its sum, and how many were slow.  Pure."""
    figures: dict[str, float] = {}
    for sample in samples:
        name = f"{sample.name}:{','.join(sample.labels)}" if sample.labels else sample.name
        if isinstance(sample.value, Histogram):
            figures[f"{name}_count"] = sample.value.count
            figures[f"{name}_sum"] = sample.value.total
            figures |= {f"{name}_le_{bound:g}": count for bound, count in sample.value.cumulative()}
        else:
            figures[name] = sample.value
    return figures
