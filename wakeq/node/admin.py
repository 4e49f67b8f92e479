"""Admin: the operators' side of the HTTP port: health, metrics, API, dashboard.

    host, assembly, files, doors --> handlers on the web server

No message passes through it.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from aiohttp import web

from wakeq import __version__
from wakeq.actors.sessions.access import Gate
from wakeq.actors.sessions.door import Admission
from wakeq.data.opening import DataFiles
from wakeq.http.api.api import PREFIX, Api, json_response
from wakeq.http.api.backup import Backup
from wakeq.http.api.events import Events
from wakeq.http.api.journal import Journal
from wakeq.http.api.life.history import HistoryRoutes
from wakeq.http.api.life.lives import Lives
from wakeq.http.api.messages import message_routes
from wakeq.http.api.node import node_routes
from wakeq.http.api.openapi import document
from wakeq.http.api.publish import publish_routes
from wakeq.http.api.queries import Queries
from wakeq.http.api.queues import queue_routes
from wakeq.http.api.series import series_routes
from wakeq.http.callers import Callers
from wakeq.http.dashboard import serve_dashboard
from wakeq.http.health import Health
from wakeq.http.server import WebServer
from wakeq.node.assembly import Assembly
from wakeq.node.metrics import CountsRefusals, NodeMetrics
from wakeq.storage.log.history import HistoryFiles
from wakeq.storage.thread import Disk

Doors = Set[Any]


class Admin:
    """Handlers for operators, and the objects that answer them."""

    def __init__(
        self,
        host: str,
        assembly: Assembly,
        files: DataFiles,
        admission: Admission,
        *,
        now_ms: Callable[[], int],
        clock_step_ms: Callable[[], int],
        publishes_refused: Callable[[], bool],
        queues_max: Callable[[], int],
        timed_max: Callable[[], int],
        message_bytes_max: int,
        new_disk: Callable[[str], Disk],
        gate: Gate | None,
    ) -> None:
        self._now_ms = now_ms
        self._message_bytes_max = message_bytes_max
        self._callers = Callers(host, gate)
        self.queries = Queries(assembly.lobby, assembly.queues, assembly.raft_log)
        self.metrics = NodeMetrics(assembly, files, admission, self.queries, clock_step_ms, publishes_refused)
        self._health = Health(
            self.queries,
            self.metrics.samples,
            assembly.raft_log,
            now_ms,
            assembly.timings,
            queues_max=queues_max,
            timed_max=timed_max,
        )
        self._events = Events(self.queries, self.metrics.samples, now_ms)
        queues, directory = assembly.queues, files.directory
        self._backup = Backup(
            directory.identity, files.store, lambda: (queues.applied[0], queues.flushed_index), new_disk
        )
        history = HistoryFiles(files.log)
        self._journal = Journal(directory.identity, history, new_disk)
        self._lives = Lives(self._journal, history, lambda: queues.applied[0], lambda: queues.flushed_index)
        self._doors: dict[str, Doors] = {}

    def serve_on(self, server: WebServer) -> None:
        """Add the handlers; only before the server starts."""
        self._health.serve_on(server, self._callers)
        api = Api(self._callers)
        api.add(server, queue_routes(self.queries, self._now_ms))
        api.add(server, message_routes(self.queries, self._now_ms, self._lives.ending_of))
        api.add(server, publish_routes(self.queries, self._message_bytes_max))
        api.add(server, node_routes(self.queries, self.metrics.samples, self._doors))
        api.add(server, series_routes(self.queries))
        api.add(server, self._events.routes())
        api.add(server, self._backup.routes())
        api.add(server, self._journal.routes())
        api.add(server, HistoryRoutes(self.queries, self._lives).routes())
        server.before_stop(self._events.stop)
        server.before_stop(self._journal.stop)
        serve_dashboard(server)
        description = document(api.routes, __version__)

        async def describe(_: web.Request) -> web.Response:
            return json_response(description)

        server.add("GET", PREFIX + "/openapi.json", describe, is_open=True)

    def start(self, doors: Mapping[str, Doors], listeners: Sequence[CountsRefusals]) -> None:
        """Begin to measure, with the doors and ports that are open now."""
        self._doors |= doors
        self.metrics.doors, self.metrics.listeners = doors, listeners
        self.metrics.loop_delay.start()

    def stop(self) -> None:
        """End measuring."""
        self.metrics.loop_delay.stop()
