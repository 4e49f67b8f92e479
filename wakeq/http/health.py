"""Health: /livez, /readyz and /metrics, for monitoring.

A node is alive if its loop runs.  It is ready if it serves, or knows the leader, to which it sends its clients, and has
caught up with it: an orchestrator takes the next node down as soon as this one is ready.  A node of a new cluster is
ready too while nodes are missing that have never been up: an orchestrator may start those only then, and there is no
other node to which clients could go.  `/readyz?leader` asks whether the node itself serves.  Nothing here changes
anything, and only /metrics waits for a disk, in another thread.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol

from aiohttp import web

from wakeq.http.api.api import error_response, json_response
from wakeq.http.api.queries import Queries, RequestRefused
from wakeq.http.api.streaming import write_in_time
from wakeq.http.callers import LOOK, Callers
from wakeq.http.exposition import CONTENT_TYPE, Sample, Totals, node_text, queue_pieces, timings_samples
from wakeq.http.families import ALL_QUEUES
from wakeq.http.server import WebServer
from wakeq.protocol.errors import Refused
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.queue.timings import Timings
from wakeq.protocol.queue.view import Gauges

# With this code and a leader's address, clients are sent to the leader.
READY_CODE = "NOT_LEADER"


class Standing(Protocol):
    """The log, as far as it decides what this node can do for clients and for the cluster."""

    def refusal(self) -> Refusal | None:
        """Return why this node does not serve, None if it does."""

    @property
    def is_forming(self) -> bool:
        """Whether a new cluster waits for nodes that have never been up."""

    @property
    def is_catching_up(self) -> bool:
        """Whether this node lacks what it has missed, or does not vote yet."""


class Health:
    """Serves the three paths."""

    def __init__(
        self,
        queries: Queries,
        samples: Callable[[], Awaitable[Sequence[Sample]]],
        standing: Standing,
        now_ms: Callable[[], int],
        timings: Timings,
        *,
        queues_max: Callable[[], int],
        timed_max: Callable[[], int],
    ) -> None:
        self._queries = queries
        self._samples = samples
        self._standing = standing
        self._now_ms = now_ms
        # Of all queues together.
        self._timings = timings
        # The most queues that have metrics, and of these the most that have timings.
        self._queues_max = queues_max
        self._timed_max = timed_max
        self._totals = Totals()

    def serve_on(self, server: WebServer, callers: Callers) -> None:
        """Add the handlers; the probes are open to everybody because they reveal almost nothing."""

        async def metrics(request: web.Request) -> web.StreamResponse:
            try:
                callers.of(request).require(LOOK, None)
            except Refused as error:
                return error_response(error.code, str(error))
            return await self.metrics(request)

        for path, handler in (("/livez", self.livez), ("/readyz", self.readyz), ("/metrics", metrics)):
            server.add("GET", path, handler, is_open=True)

    async def livez(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(self, request: web.Request) -> web.Response:
        standing = self._standing
        refusal = standing.refusal()
        is_ready = refusal is None or (
            refusal.code == READY_CODE
            and (standing.is_forming or bool(refusal.leader and not standing.is_catching_up))
            and "leader" not in request.query
        )
        facts: dict[str, object] = {"ready": is_ready, "serves": refusal is None}
        if refusal is not None:
            facts["is_catching_up"] = standing.is_catching_up
            facts |= {"code": refusal.code, "detail": refusal.detail, "leader": refusal.leader}
        return json_response(facts, 200 if is_ready else 503)

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        """Write the metrics in pieces, so that others run between two pieces."""
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        node = node_text(await self._samples())
        # A node that does not serve has no queues to report: the leader exports them.
        gauges: Sequence[Gauges] | None = None
        with suppress(RequestRefused):
            gauges = await self._queries.gauges()
        await response.prepare(request)
        await write_in_time(request, response, node.encode())
        if gauges is not None:
            shown = gauges[: self._queues_max()]
            for _ in self._totals.add(gauges):
                await asyncio.sleep(0)
            samples = self._totals.samples(gauges, len(gauges) - len(shown)) + timings_samples(self._timings)
            await write_in_time(request, response, node_text(samples, ALL_QUEUES).encode())
            await asyncio.sleep(0)
            for piece in queue_pieces(shown, self._now_ms(), self._timed_max()):
                await write_in_time(request, response, piece.encode())
                await asyncio.sleep(0)
        await response.write_eof()
        return response
