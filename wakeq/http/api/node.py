"""NodeRoutes: the node in the HTTP API: metrics, cluster, connections, and the workers behind them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta

from wakeq.actors.log.histogram import Histogram
from wakeq.actors.runtime import Process
from wakeq.actors.sessions.operator_mail import Describe, Work
from wakeq.http.api.api import Route
from wakeq.http.api.queries import Queries, RequestRefused
from wakeq.http.callers import ADMIN, LOOK
from wakeq.http.exposition import Sample
from wakeq.http.families import FAMILIES
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.wire.worker.codec import Recurring
from wakeq.protocol.wire.worker.identity import NOT_SAID

ASKED_TOGETHER = 500
SHOWN_MAX = 1_000
# Connections among which workers are looked for.
SEARCHED_MAX = 10_000
QUEUES_ASKED_MAX = 1_000
# Messages shown of one worker.
BUSY_SHOWN_MAX = 20


class Connected(Protocol):
    """The part of a door that an operator uses."""

    @property
    def subscriber(self) -> Any: ...

    def close(self, reason: str, /) -> None: ...


Doors = Mapping[str, Set[Connected]]


class ConnectionsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The number of connections to show."""

    limit: Annotated[int, Meta(ge=1, le=SHOWN_MAX)] = 100


class ConnectionQuery(msgspec.Struct, forbid_unknown_fields=True):
    """One connection."""

    id: Annotated[int, Meta(ge=1)]


class Connections(msgspec.Struct):
    """Some of the connections, and the number of all."""

    connections: list[dict[str, Any]]
    total: int


class Closed(msgspec.Struct):
    """The connection that was closed."""

    id: int


class Busy(msgspec.Struct):
    """A message that a worker has; `since` is missing if another leader delivered it."""

    queue: str
    uid: str
    until: datetime
    since: datetime | None = None


class Worker(msgspec.Struct, kw_only=True):
    """A connected program: what it says of itself, where it is null if it says nothing, and what it is busy with.

    `leased` is how many messages it has, of which `busy` shows some.
    """

    number: int
    door: str
    address: str
    since: datetime
    host: str | None
    pid: int | None
    name: str | None
    versions: dict[str, str] | None
    concurrency: int | None
    tasks: list[str]
    schedules: list[Recurring]
    queues: list[str]
    leased: int
    busy: list[Busy]


class Workers(msgspec.Struct):
    """Programs that process or publish messages, those that process first, and the number of all connections.

    Without `is_complete` the workers may have more messages than `leased` says: there were too many to count, or a
    queue did not answer.
    """

    workers: list[Worker]
    total: int
    is_complete: bool


class NodeFacts(msgspec.Struct):
    """The metrics of the node by name; labels follow the name, and a histogram has a count and a sum."""

    figures: dict[str, float]


class ClusterBody(msgspec.Struct, forbid_unknown_fields=True):
    """The operation: transfer leadership to another node, or write a snapshot."""

    do: Literal["transfer", "snapshot"]
    node: int | None = None


def node_routes(queries: Queries, samples: Callable[[], Awaitable[Sequence[Sample]]], doors: Doors) -> Sequence[Route]:
    """Return the routes for a node."""
    routes = _NodeRoutes(queries, samples, doors)
    one, some = ConnectionQuery, ConnectionsQuery
    return (
        Route("GET", "/node", "Show the metrics of the node", LOOK, routes.node, answer=NodeFacts),
        Route("GET", "/cluster", "Show the members of the cluster", LOOK, routes.cluster),
        Route(
            "POST", "/cluster", "Transfer leadership, or write a snapshot", ADMIN, routes.administer, body=ClusterBody
        ),
        Route("GET", "/connections", "Show connections", ADMIN, routes.connections, some, answer=Connections),
        Route("GET", "/workers", "Show the programs at work", ADMIN, routes.workers, some, answer=Workers),
        Route("DELETE", "/connection", "Close a connection", ADMIN, routes.close, one, answer=Closed),
    )


class _NodeRoutes:
    def __init__(self, queries: Queries, samples: Callable[[], Awaitable[Sequence[Sample]]], doors: Doors) -> None:
        self._queries = queries
        self._samples = samples
        self._doors = doors

    async def node(self) -> NodeFacts:
        return NodeFacts(dict(pair for sample in await self._samples() for pair in _pairs(sample)))

    async def cluster(self) -> dict[str, Any]:
        return await self._queries.cluster()

    async def administer(self, body: ClusterBody) -> dict[str, Any]:
        return await self._queries.cluster(body.do, body.node)

    # --- connections -----------------------------------------------------------------------------------------------

    async def connections(self, query: ConnectionsQuery) -> Connections:
        doors = [door for opened in self._doors.values() for door in opened]
        found = await self._described(doors[: query.limit])
        return Connections(sorted((facts for _, facts in found), key=lambda facts: int(facts["id"])), len(doors))

    async def workers(self, query: ConnectionsQuery) -> Workers:
        doors = [door for opened in self._doors.values() for door in opened]
        at_work: list[dict[str, Any]] = []
        others: list[dict[str, Any]] = []
        for begin in range(0, min(len(doors), SEARCHED_MAX), ASKED_TOGETHER):
            for _, facts in await self._described(doors[begin : begin + ASKED_TOGETHER], fully=True):
                does_work = (
                    facts["subscriptions"] or facts.get("known_queues") or facts.get("identity", NOT_SAID)["tasks"]
                )
                (at_work if does_work else others).append(facts)
        found = sorted(at_work, key=_number)[: query.limit]
        found += sorted(others, key=_number)[: query.limit - len(found)]
        leased, busy, is_complete = await self._busy(found)
        workers = [_worker_of(facts, leased.get(facts["id"], 0), busy.get(facts["id"], [])) for facts in found]
        return Workers(workers, len(doors), is_complete)

    async def _busy(self, found: list[dict[str, Any]]) -> tuple[dict[int, int], dict[int, list[Work]], bool]:
        """Return how many messages each connection has, and some of them, by its number; and whether that is all."""
        by_queue: dict[str, set[int]] = {}
        for facts in found:
            for queue in facts.get("known_queues", ()):
                by_queue.setdefault(queue, set()).add(facts["id"])
        asked = [
            self._queries.held(queue, frozenset(numbers))
            for queue, numbers in islice(by_queue.items(), QUEUES_ASKED_MAX)
        ]
        leased: dict[int, int] = {}
        busy: dict[int, list[Work]] = {}
        is_complete = len(by_queue) <= QUEUES_ASKED_MAX and not any(facts.get("knows_more_queues") for facts in found)
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, BaseException):
                # Nobody has a message of a queue that does not exist.
                is_gone = isinstance(answer, RequestRefused) and answer.refusal.code == "Q_NOT_FOUND"
                is_complete = is_complete and is_gone
                continue
            work, was_complete = answer
            is_complete = is_complete and was_complete
            for number, (count, rows) in work.items():
                leased[number] = leased.get(number, 0) + count
                busy.setdefault(number, []).extend(rows)
        return leased, busy, is_complete

    async def close(self, query: ConnectionQuery) -> Closed:
        doors = iter([door for opened in self._doors.values() for door in opened])
        while some := list(islice(doors, ASKED_TOGETHER)):
            for door, facts in await self._described(some):
                if facts["id"] == query.id:
                    door.close("an operator closed the connection")
                    return Closed(query.id)
        raise RequestRefused(
            Refusal("NOT_FOUND", f"there is no connection {query.id}; `wakeq connections list` shows all")
        )

    async def _described(
        self, doors: Sequence[Connected], *, fully: bool = False
    ) -> list[tuple[Connected, dict[str, Any]]]:
        """Return each connection with its facts; one that ends meanwhile is left out."""
        alive = [door for door in doors if isinstance(door.subscriber, Process) and door.subscriber.alive]
        asked = [self._queries.ask(door.subscriber, partial(Describe, fully=fully)) for door in alive]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return [(door, facts) for door, facts in zip(alive, answers, strict=True) if isinstance(facts, dict)]


def _number(facts: dict[str, Any]) -> int:
    return int(facts["id"])


def _worker_of(facts: dict[str, Any], leased: int, busy: list[Work]) -> Worker:
    rows = [
        Busy(one.queue, one.uid, _moment(one.until_ms), _moment(one.since_ms) if one.since_ms else None)
        for one in sorted(busy, key=lambda one: one.since_ms)[:BUSY_SHOWN_MAX]
    ]
    return Worker(
        number=facts["id"],
        door=facts["door"],
        address=facts["peer"],
        since=_moment(facts["since_ms"]),
        queues=facts["queues"],
        leased=leased,
        busy=rows,
        **facts.get("identity", NOT_SAID),
    )


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def _pairs(sample: Sample) -> Iterator[tuple[str, float]]:
    if isinstance(sample.value, Histogram):
        yield f"{sample.name}_count", sample.value.count
        yield f"{sample.name}_sum", sample.value.total
        return
    labels = ",".join(f"{n}={v}" for n, v in zip(FAMILIES[sample.name].labels, sample.labels, strict=True))
    yield f"{sample.name}{{{labels}}}" if labels else sample.name, sample.value
