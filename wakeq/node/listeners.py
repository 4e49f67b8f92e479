"""Listeners: the ports and paths at which clients connect, and the actor for each connection.

    settings, actors of a node --> worker protocol, HTTP (WebSocket, API, MoniQue), TaskFlux --> addresses by door

They close in steps, so that every command that was read is answered before its connection ends.  It knows no rule of
queues and no byte of a protocol.
"""

import asyncio
import socket
from collections.abc import Callable, Set
from typing import Any, NamedTuple

from wakeq import __version__
from wakeq.actors.monique.queue_user import QueueServices
from wakeq.actors.sessions.door import CarefulDoor, Door
from wakeq.actors.sessions.taskflux import TaskFluxServices, TaskFluxSession
from wakeq.actors.sessions.worker import WorkerServices, WorkerSession
from wakeq.config.settings import Settings
from wakeq.data.opening import DataFiles
from wakeq.http.server import WebServer
from wakeq.http.websocket.worker import WorkerPath
from wakeq.net.listening import bound_socket
from wakeq.net.taskflux_tcp import TaskFluxTcpListener
from wakeq.net.tcp_listener import TcpListener
from wakeq.net.worker_tcp import WorkerTcpListener
from wakeq.node.admin import Admin
from wakeq.node.assembly import Assembly
from wakeq.node.monique_doors import MoniqueDoors, MoniqueServices
from wakeq.node.node_addresses import NodeAddresses
from wakeq.node.security import Security
from wakeq.protocol.wire.taskflux.answers import Known
from wakeq.protocol.wire.taskflux.commands import Response as TaskFluxResponse
from wakeq.protocol.wire.taskflux.dialects import DIALECTS
from wakeq.protocol.wire.worker.codec import Reply
from wakeq.protocol.wire.worker.conversation import Limits
from wakeq.storage.thread import DiskThread

# How long clients get to send one more command before their connections are closed.
SEND_AWAY_S_MAX = 0.1
POLL_S = 0.002


class ListenerServices(NamedTuple):
    """Parts of a node that its listeners use."""

    assembly: Assembly
    files: DataFiles
    security: Security
    addresses: NodeAddresses
    now_ms: Callable[[], int]
    clock_step_ms: Callable[[], int]
    publishes_refused: Callable[[], bool]
    failed: Callable[[BaseException], None]


class Listeners:
    """All listeners of a node; `bind` reserves the ports and `open` accepts connections."""

    def __init__(self, settings: Settings, services: ListenerServices) -> None:
        self._settings = settings
        self._services = services
        # The number of the worker that connected last.
        self._workers = 0
        # The address of each open door.
        self._addresses: dict[str, str] = {}
        # The bound sockets by door, until `open` takes them.
        self._bound: dict[str, socket.socket] = {}
        if services.security.gate is not None:
            services.security.gate.limit_queues(settings.queues_per_token_max, services.assembly.queues.exists)
        self._worker, self._websocket = self._make_worker_doors()
        self._taskflux = self._make_taskflux_ports()
        self.monique = self._make_monique()
        self._admin = self._make_admin()
        self._web = self._make_web_port()

    # --- making ----------------------------------------------------------------------------------------------------

    def _make_worker_doors(self) -> tuple[WorkerTcpListener, WorkerPath]:
        """Build the two listeners of the worker protocol: a port of its own and a path of the HTTP port."""
        assembly, security, settings = self._services.assembly, self._services.security, self._settings
        limits = Limits(settings.message_bytes_max, __version__)
        services = WorkerServices(assembly.raft_log, assembly.lobby, limits, self._services.now_ms, security.gate)

        def make_subscriber(door: Door[Reply]) -> WorkerSession:
            return assembly.runtime.spawn(WorkerSession, door, self._new_worker(), services)

        port = WorkerTcpListener(
            make_subscriber,
            admission=security.admission,
            message_bytes_max=settings.message_bytes_max,
            tls=security.tls,
            handshake_s=security.handshake_s,
        )
        path = WorkerPath(
            make_subscriber,
            admission=security.admission,
            message_bytes_max=settings.message_bytes_max,
            gate=security.gate,
        )
        return port, path

    def _make_taskflux_ports(self) -> dict[str, tuple[int, TaskFluxTcpListener]]:
        """Build the TaskFlux port, and the second one for the other dialect if the settings want it; by door."""
        settings = self._settings
        main = settings.taskflux_dialect
        ports = {"taskflux": (settings.taskflux_port, self._make_taskflux_port(main, "taskflux"))}
        if settings.taskflux_other_port is not None:
            (other,) = {"spec", "csharp"} - {main}
            door = f"taskflux-{other}"
            ports[door] = settings.taskflux_other_port, self._make_taskflux_port(other, door)
        return ports

    def _make_taskflux_port(self, dialect_name: str, door_name: str) -> TaskFluxTcpListener:
        settings, dialect = self._settings, DIALECTS[dialect_name]
        assembly, security, nodes = self._services.assembly, self._services.security, self._services.addresses
        known = Known(
            find=assembly.queues.catalog.find,
            nodes=lambda: nodes.taskflux_nodes(assembly.raft_log, door_name, self._addresses[door_name]),
            payload_bytes_max=settings.taskflux_payload_bytes_max,
        )
        services = TaskFluxServices(
            assembly.lobby,
            assembly.queues,
            assembly.timers,
            self._services.now_ms,
            known,
            security.gate,
            assembly.raft_log.withdrawal,
        )

        def make_session(door: CarefulDoor[TaskFluxResponse]) -> TaskFluxSession:
            return assembly.runtime.spawn(TaskFluxSession, door, dialect, self._new_worker(), services)

        return TaskFluxTcpListener(
            make_session,
            dialect,
            admission=security.admission,
            payload_bytes_max=settings.taskflux_payload_bytes_max,
            idle_s=settings.taskflux_idle_s,
            tls=security.tls,
        )

    def _make_web_port(self) -> WebServer:
        security = self._services.security
        web = WebServer(None, admission=security.admission, gate=security.gate, tls=security.tls)
        self._admin.serve_on(web)
        for path in ("/connect", "/connect/"):
            web.add("GET", path, self._websocket.handle, is_open=True)
        web.before_stop(self._websocket.close)
        web.add("GET", "/monique", self.monique.path.handle)
        web.before_stop(self.monique.close)
        return web

    def _make_admin(self) -> Admin:
        services = self._services
        return Admin(
            self._settings.host,
            services.assembly,
            services.files,
            services.security.admission,
            now_ms=services.now_ms,
            clock_step_ms=services.clock_step_ms,
            publishes_refused=services.publishes_refused,
            message_bytes_max=self._settings.message_bytes_max,
            queues_max=lambda: self._settings.metrics.queues_max,
            timed_max=lambda: self._settings.metrics.histogram_queues_max,
            gate=services.security.gate,
            new_disk=lambda name: DiskThread(name, asyncio.get_running_loop().call_soon_threadsafe),
        )

    def _make_monique(self) -> MoniqueDoors:
        assembly, settings = self._services.assembly, self._settings
        queues = QueueServices(
            assembly.lobby,
            assembly.timers,
            now_ms=self._services.now_ms,
            new_worker=self._new_worker,
            body_bytes_max=settings.message_bytes_max,
            withdrawal=assembly.raft_log.withdrawal,
        )
        services = MoniqueServices(
            assembly.runtime,
            queues,
            assembly.raft_log.refusal,
            lambda: assembly.raft_log.core.leads,
            self._services.failed,
            self._services.security,
            assembly.reader_disk,
        )
        return MoniqueDoors(settings.monique, services)

    def _new_worker(self) -> int:
        self._workers += 1
        return self._workers

    # --- start -----------------------------------------------------------------------------------------------------

    async def bind(self) -> None:
        """Bind every port, so that a port in use is reported before anything else happens.  Nobody can connect yet.

        The ports of ZeroMQ are not bound here: they are open only while this node leads.
        """
        settings, bound = self._settings, self._bound
        bound["worker"] = await bound_socket(settings.host, settings.worker_port)
        bound["http"] = await bound_socket(settings.host, settings.http_port)
        for door, (port, _) in self._taskflux.items():
            bound[door] = await bound_socket(settings.host, port)
        if self.monique.own_address is not None:
            bound["monique"] = await bound_socket(*self.monique.own_address)

    async def open(self) -> dict[str, str]:
        """Accept connections on the bound ports; return the addresses by door."""
        addresses, bound = self._addresses, self._bound
        host = bracketed(self._settings.host)
        self._start_admin()
        addresses["worker"] = f"{host}:{await self._worker.start(bound.pop('worker'))}"
        addresses["http"] = f"{host}:{await self._web.start(bound.pop('http'))}"
        for door, (_, listener) in self._taskflux.items():
            addresses[door] = f"{host}:{await listener.start(bound.pop(door))}"
        return addresses | await self.monique.start(bound.pop("monique", None))

    def reload(self, settings: Settings) -> None:
        """Use other settings; only those that can be reloaded differ."""
        self._settings = settings

    def _start_admin(self) -> None:
        """Show the connections of all doors to the operators' API and the metrics."""
        doors: dict[str, Set[Any]] = {"worker": self._worker.doors, "websocket": self._websocket.doors}
        doors |= {door: listener.doors for door, (_, listener) in self._taskflux.items()}
        doors["monique"] = self.monique.path.doors
        self._admin.start(doors, self._tcp_listeners)
        self._admin.metrics.monique = self.monique.samples

    @property
    def _tcp_listeners(self) -> list[TcpListener[Any]]:
        return [self._worker, *(listener for _, listener in self._taskflux.values())]

    # --- shutdown --------------------------------------------------------------------------------------------------

    async def abort(self) -> None:
        """Close what would keep the program running after a failed start."""
        for bound in self._bound.values():
            bound.close()
        await self.monique.close()

    async def send_away(self) -> None:
        """Ask TaskFlux clients to leave in time: they must not repeat a command that gets no answer."""
        loop, listeners = asyncio.get_running_loop(), [listener for _, listener in self._taskflux.values()]
        for listener in listeners:
            listener.send_away()
        until_s = loop.time() + SEND_AWAY_S_MAX
        while any(listener.doors for listener in listeners) and loop.time() < until_s:
            await asyncio.sleep(POLL_S)

    def stop_reading(self) -> None:
        """Accept no more connections and commands; every command that was read is still answered."""
        for listener in self._tcp_listeners:
            listener.stop_reading()
        self._websocket.stop_reading()
        self.monique.stop_reading()

    async def close_tcp(self) -> None:
        """Close the TCP connections; their sessions release leases.  HTTP stays open and shows the progress."""
        await asyncio.gather(*(listener.close() for listener in self._tcp_listeners))

    async def close_web(self) -> None:
        """Close HTTP, and WebSocket and MoniQue with it."""
        self._admin.stop()
        await self._web.close()


def bracketed(host: str) -> str:
    """Return a host as it is written before a port."""
    return f"[{host}]" if ":" in host else host
