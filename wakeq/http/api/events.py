"""Events: the state of queues and node as server-sent events, for the dashboard and `wakeq top`.

    counters of all queues, metrics of the node --> one reading for all watchers --> the part that each watcher wants

The state is read only while somebody watches, and less often with more queues: reading takes at most a twentieth of
the time.  A watcher that does not read misses readings; none is kept for it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from time import thread_time
from typing import Annotated, Any, Literal

import msgspec
from aiohttp import web
from msgspec import Meta

from wakeq.actors.log.histogram import Histogram
from wakeq.http.api.api import Route
from wakeq.http.api.queries import Queries, RequestRefused
from wakeq.http.api.queues import Contained, Name, contains
from wakeq.http.api.streaming import write_in_time
from wakeq.http.callers import LOOK, Caller
from wakeq.http.exposition import Sample
from wakeq.protocol.errors import Busy
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.queue.view import Gauges

READ_EVERY_S = 0.5
# Reading takes at most one part in this many of the time.
SHARE = 20
MARK_EVERY_MS = 3_000
WATCHERS_MAX = 32
SHOWN_MAX = 500
CONTENT_TYPE = "text/event-stream"


Sort = Literal[
    "messages",
    "attention",
    "name",
    "ready",
    "delayed",
    "leased",
    "oldest",
    "published",
    "acknowledged",
    "workers",
    "dead",
]


class EventsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The queues whose name begins with `prefix` and contains `contains`, and always the queue `queue`.

    They are sorted by `sort`, the largest first, or the smallest with `ascending`; `limit` of them are sent, after the
    first `offset`.  `published` and `acknowledged` are counted over the last seconds; `attention` has the queues first
    that somebody should look at.  With `leader`, a node that does not lead refuses, and a stream ends when its node
    ceases to lead.
    """

    prefix: Name = ""
    contains: Contained = ""
    dead_letters: Annotated[
        Literal["shown", "hidden", "only"], Meta(description="Whether queues of dead letters are among them.")
    ] = "shown"
    sort: Sort = "messages"
    ascending: bool = False
    offset: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=SHOWN_MAX)] = 100
    queue: Name | None = None
    leader: bool = False


class Reading(msgspec.Struct):
    """The state of queues and node at one moment."""

    at_ms: int
    gauges: Sequence[Gauges]
    figures: dict[str, float]
    cluster: dict[str, Any]
    refusal: Refusal | None = None
    # The counters of some seconds before, for rates.
    earlier: Sequence[Gauges] = ()

    @property
    def error(self) -> str:
        return "" if self.refusal is None else self.refusal.detail


class Events:
    """Reads the state and sends it to every watcher."""

    def __init__(
        self,
        queries: Queries,
        samples: Callable[[], Awaitable[Sequence[Sample]]],
        now_ms: Callable[[], int],
    ) -> None:
        self._queries = queries
        self._samples = samples
        self._now_ms = now_ms
        # A queue of one reading for each watcher; None ends its stream.
        self._watchers: set[asyncio.Queue[Reading | None]] = set()
        # The last reading, while there are watchers.
        self._last: Reading | None = None
        # Two earlier ones: rates are counted from the first, which is some seconds old.
        self._marks: deque[Reading] = deque(maxlen=2)
        # Reads the state repeatedly while there are watchers.
        self._reading: asyncio.Task[None] | None = None

    def routes(self) -> Sequence[Route]:
        about = "Watch queues and node, as server-sent events"
        return (Route("GET", "/events", about, LOOK, self.watch, EventsQuery, by_caller=True, streams=CONTENT_TYPE),)

    async def stop(self) -> None:
        """End all streams, because the broker stops."""
        if self._reading is not None:
            self._reading.cancel()
        for watcher in self._watchers:
            _put(watcher, None)

    async def watch(self, request: web.Request, caller: Caller, query: EventsQuery) -> web.StreamResponse:
        """Serve one watcher until it disconnects or the broker stops."""
        if len(self._watchers) >= WATCHERS_MAX:
            raise Busy(f"{WATCHERS_MAX} clients are watching already; close a dashboard or `wakeq top`")
        watcher: asyncio.Queue[Reading | None] = asyncio.Queue(1)
        # Added before the first await: many may ask before one is answered.
        self._watchers.add(watcher)
        try:
            return await self._stream(watcher, request, caller, query)
        finally:
            self._watchers.discard(watcher)

    async def _stream(
        self, watcher: "asyncio.Queue[Reading | None]", request: web.Request, caller: Caller, query: EventsQuery
    ) -> web.StreamResponse:
        if query.leader and (refusal := (await self._read()).refusal) is not None:
            raise RequestRefused(refusal)
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})
        await response.prepare(request)
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read_repeatedly())
        elif self._last is not None:
            # With many queues the next reading is seconds away; whoever sorts or filters must not wait for it.
            _put(watcher, self._last)
        try:
            while (reading := await watcher.get()) is not None and not (query.leader and reading.refusal):
                event = msgspec.json.encode(event_for(reading, query, caller))
                await write_in_time(request, response, b"data: " + event + b"\n\n")
        except (ConnectionResetError, OSError):
            # The watcher has disconnected.
            pass
        return response

    async def _read_repeatedly(self) -> None:
        try:
            while self._watchers:
                # On a busy machine the time that passes is not the time that reading takes.
                began_s = thread_time()
                reading = self._last = await self._read()
                if not self._marks or reading.at_ms - self._marks[-1].at_ms >= MARK_EVERY_MS:
                    self._marks.append(reading)
                reading.earlier = self._marks[0].gauges
                for watcher in self._watchers:
                    _put(watcher, reading)
                await asyncio.sleep(max(READ_EVERY_S, SHARE * (thread_time() - began_s)))
        finally:
            self._last = None
            self._marks.clear()

    async def _read(self) -> Reading:
        """Read the state; a node that follows has no queues to show."""
        try:
            cluster = await self._queries.cluster()
            figures = figures_of(await self._samples())
        except RequestRefused as refused:
            return Reading(self._now_ms(), (), {}, {}, refused.refusal)
        try:
            return Reading(self._now_ms(), await self._queries.gauges(), figures, cluster)
        except RequestRefused as refused:
            return Reading(self._now_ms(), (), figures, cluster, refused.refusal)


def _put(watcher: "asyncio.Queue[Reading | None]", reading: Reading | None) -> None:
    """Give a watcher the newest reading; it replaces one that the watcher has not taken."""
    if watcher.full():
        watcher.get_nowait()
    watcher.put_nowait(reading)


def event_for(reading: Reading, query: EventsQuery, caller: Caller) -> dict[str, Any]:
    """Return the event for one watcher: queues that it may see, and the node if it may see all queues.  Pure."""
    gauges = [one for one in reading.gauges if caller.sees(one.name)]
    wanted = [one for one in gauges if one.name.startswith(query.prefix) and contains(one.name, query.contains)]
    if query.dead_letters != "shown":
        only = query.dead_letters == "only"
        wanted = [one for one in wanted if one.is_dead_letter == only]
    wanted.sort(key=_key_of(query.sort, reading), reverse=not query.ascending)
    shown = wanted[query.offset : query.offset + query.limit]
    if query.queue is not None and all(one.name != query.queue for one in shown):
        shown += [one for one in gauges if one.name == query.queue]
    return {
        "at_ms": reading.at_ms,
        "queues": [_facts_of(one) for one in shown],
        # Of those that match, and of all.
        "queues_found": len(wanted),
        "queues_total": len(gauges),
        "totals": {
            **{field: sum(getattr(one, field) for one in gauges) for field in _SUMMED},
            "letters": sum(one.ready + one.delayed for one in gauges if one.is_dead_letter),
        },
        "figures": reading.figures if caller.sees_node else {},
        "cluster": reading.cluster if caller.sees_node else {},
        "error": reading.error,
        "code": "" if reading.refusal is None else reading.refusal.code,
        # The node that knows the queues, if this one follows.
        "leader_http": "" if reading.refusal is None else reading.refusal.leader_http,
    }


def _facts_of(gauges: Gauges) -> dict[str, Any]:
    facts = gauges._asdict()
    del facts["timings"]  # the series have them
    return facts


def _key_of(sort: Sort, reading: Reading) -> Callable[[Gauges], Any]:
    """Return the function by which queues are sorted; queues that are equal stay sorted by name."""
    match sort:
        case "name":
            return lambda one: one.name
        case "messages":
            return lambda one: (one.ready + one.delayed + one.leased, one.published)
        case "attention":
            # Dead letters, then messages without a worker, then pauses.
            return lambda one: (_urgency(one), one.ready + one.delayed)
        case "oldest":
            # The older, the larger; a queue without ready messages has no age.
            return lambda one: reading.at_ms - one.oldest_ready_ms if one.ready and one.oldest_ready_ms else 0
        case "published" | "acknowledged":
            counter: Callable[[Gauges], int] = attrgetter("published" if sort == "published" else "acked")
            # Counters begin again with an incarnation, so its id belongs to the key.
            earlier = {(one.name, one.queue_id): counter(one) for one in reading.earlier}
            return lambda one: counter(one) - earlier.get((one.name, one.queue_id), counter(one))
        case _:
            field = "subscribers" if sort == "workers" else sort
            return attrgetter(field)


def _urgency(one: Gauges) -> int:
    if one.is_dead_letter:
        return 3 if one.ready or one.delayed else 0
    if one.ready and not (one.subscribers or one.sleepers or one.waiting or one.leased):
        return 2
    return 1 if one.paused_until_ms else 0


_SUMMED = ("ready", "delayed", "leased", "bytes", "published", "delivered", "acked", "released", "dead", "wakes")


def figures_of(samples: Sequence[Sample]) -> dict[str, float]:
    """Return the samples by name; a histogram as its count, its sum and its cumulative buckets.  Pure."""
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
