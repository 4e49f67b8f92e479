"""Health: /livez, /readyz and /metrics, for those who watch over the node.

Alive is a node whose loop turns.  Ready is one that serves, or knows who does, so that its clients can be sent there;
`/readyz?leader` asks for one that serves.  Nothing here changes anything, and no answer waits for a disk but that of
the metrics, whose figures of the state are read in another thread.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from wakeq.actors.mail import Refusal
from wakeq.http.api.api import answered, refused
from wakeq.http.api.queries import Denied, Queries
from wakeq.http.api.streaming import give
from wakeq.http.callers import LOOK, Callers
from wakeq.http.exposition import CONTENT_TYPE, Sample, Totals, node_text, queue_pieces
from wakeq.http.families import ALL_QUEUES
from wakeq.http.server import WebServer
from wakeq.protocol.errors import Refused
from wakeq.protocol.queue.view import Gauges

READY_CODE = "NOT_LEADER"  # with a leader's address: clients are sent there


class Health:
    """The three paths."""

    def __init__(
        self,
        queries: Queries,
        samples: Callable[[], Awaitable[Sequence[Sample]]],
        refusal: Callable[[], Refusal | None],
        now_ms: Callable[[], int],
        *,
        queues_max: Callable[[], int],
    ) -> None:
        self._queries = queries
        self._samples = samples
        self._refusal = refusal
        self._now_ms = now_ms
        self._queues_max = queues_max
        self._totals = Totals()

    def serve_on(self, server: WebServer, callers: Callers) -> None:
        """Serve the paths; the probes are open to everybody, for they say next to nothing."""

        async def metrics(request: web.Request) -> web.StreamResponse:
            try:
                callers.of(request).require(LOOK, None)
            except Denied as denied:
                return refused(denied.code, denied.detail)
            except Refused as error:
                return refused(error.code, str(error))
            return await self.metrics(request)

        for path, handler in (("/livez", self.livez), ("/readyz", self.readyz), ("/metrics", metrics)):
            server.add("GET", path, handler, is_open=True)

    async def livez(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(self, request: web.Request) -> web.Response:
        refusal = self._refusal()
        is_ready = refusal is None or (
            refusal.code == READY_CODE and bool(refusal.leader) and "leader" not in request.query
        )
        facts: dict[str, object] = {"ready": is_ready, "serves": refusal is None}
        if refusal is not None:
            facts |= {"code": refusal.code, "detail": refusal.detail, "leader": refusal.leader}
        return answered(facts, 200 if is_ready else 503)

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        """Write the metrics piece by piece; between two pieces the others go on."""
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        node = node_text(await self._samples())
        gauges = await self._gauges()
        await response.prepare(request)
        await give(request, response, node.encode())
        if gauges is not None:
            shown = gauges[: self._queues_max()]
            for _ in self._totals.add(gauges):
                await asyncio.sleep(0)
            samples = self._totals.samples(gauges, len(gauges) - len(shown))
            await give(request, response, node_text(samples, ALL_QUEUES).encode())
            await asyncio.sleep(0)
            for piece in queue_pieces(shown, self._now_ms()):
                await give(request, response, piece.encode())
                await asyncio.sleep(0)
        await response.write_eof()
        return response

    async def _gauges(self) -> Sequence[Gauges] | None:
        """Return the numbers of all queues; None on a node that does not serve: its leader says them."""
        try:
            return await self._queries.gauges()
        except Denied:
            return None
