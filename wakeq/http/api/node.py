"""NodeRoutes: the node in the HTTP API: metrics, cluster, connections."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta

from wakeq.actors.log.histogram import Histogram
from wakeq.actors.runtime import Process
from wakeq.actors.sessions.operator_mail import Describe
from wakeq.http.api.api import Route
from wakeq.http.api.queries import Queries, RequestRefused
from wakeq.http.callers import ADMIN, LOOK
from wakeq.http.exposition import Sample
from wakeq.http.families import FAMILIES
from wakeq.protocol.queue.outcomes import Refusal

ASKED_TOGETHER = 500
SHOWN_MAX = 1_000


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

    async def _described(self, doors: Sequence[Connected]) -> list[tuple[Connected, dict[str, Any]]]:
        """Return each connection with its facts; one that ends meanwhile is left out."""
        alive = [door for door in doors if isinstance(door.subscriber, Process) and door.subscriber.alive]
        asked = [self._queries.ask(door.subscriber, Describe) for door in alive]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return [(door, facts) for door, facts in zip(alive, answers, strict=True) if isinstance(facts, dict)]


def _pairs(sample: Sample) -> Iterator[tuple[str, float]]:
    if isinstance(sample.value, Histogram):
        yield f"{sample.name}_count", sample.value.count
        yield f"{sample.name}_sum", sample.value.total
        return
    labels = ",".join(f"{n}={v}" for n, v in zip(FAMILIES[sample.name].labels, sample.labels, strict=True))
    yield f"{sample.name}{{{labels}}}" if labels else sample.name, sample.value
