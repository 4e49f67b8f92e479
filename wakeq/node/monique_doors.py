"""MoniqueDoors: the ports and the path of MoniQue's clients and components, and the actors behind them.

    settings, config.json --> exchange and its helpers --> /monique of the HTTP port, the ports of config.json

They are open only while this node leads: clients of another leader have to connect again.  If one of the actors
fails, all of them are restarted, and clients connect again too.  It knows no byte of the protocol.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from wakeq.actors.monique.answers import Answers
from wakeq.actors.monique.bridge import Bridge
from wakeq.actors.monique.components import Components
from wakeq.actors.monique.controller import Controller
from wakeq.actors.monique.counters import MoniqueCounters
from wakeq.actors.monique.exchange import MoniqueExchange, Rules
from wakeq.actors.monique.mail import Rest
from wakeq.actors.monique.queue_user import QueueServices
from wakeq.actors.monique.tasks import Tasks
from wakeq.actors.runtime import Child, Process, Runtime, Supervisor
from wakeq.actors.sessions.monique import MoniqueSession, PushingDoor
from wakeq.config.monique import ANSWERS_QUEUE, MoniqueConfig, check_config, read_config
from wakeq.config.settings import Monique
from wakeq.http.exposition import Sample
from wakeq.http.server import WebServer
from wakeq.http.websocket.monique import MoniquePath
from wakeq.node.assembly import FailureMonitor
from wakeq.node.security import Security
from wakeq.protocol.errors import BadSettings, Busy, NotLeader
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.storage.thread import Disk

if TYPE_CHECKING:
    from wakeq.net.monique_zmq import MoniqueZmq
    from wakeq.net.push_port import PushPort

# How often config.json is read again, for added controllers (section 7).
READ_AGAIN_S = 60.0

logger = logging.getLogger("wakeq.monique")


class MoniqueServices(NamedTuple):
    """Parts of a node that MoniQue uses."""

    runtime: Runtime
    queues: QueueServices
    # Why this node serves nobody now, or None.
    refusal: Callable[[], Refusal | None]
    # Still true while leadership is being transferred, because that may fail.
    leads: Callable[[], bool]
    failed: Callable[[BaseException], None]
    security: Security
    # The thread that reads config.json again.
    disk: Disk


class MoniqueDoors:
    """The doors of one node; they follow its leadership at each `tick`."""

    def __init__(self, settings: Monique, services: MoniqueServices) -> None:
        self._settings = settings
        self._services = services
        self._counters = MoniqueCounters(services.queues.now_ms)
        config = MoniqueConfig() if settings.config_file is None else read_config(settings.config_file)
        check_config(config, services.security.may_listen)
        self._config = config
        for spec in config.connections:
            self._check_route(spec)
        # Port by spec, with the controllers that were added to the file since the start.
        self._controllers = dict(config.connections)
        self._monitor = services.runtime.spawn(FailureMonitor, services.failed)
        # None while this node does not lead.
        self._supervisor: Supervisor | None = None
        # The actors of this node while it leads; components are only behind a scheduler.
        self._exchange: MoniqueExchange
        self._components: Process
        # The actor that gives tasks to the components of a controller, by spec.
        self._givers: dict[str, Controller | Bridge] = {}
        self._zmq: MoniqueZmq | None = None
        # The open controllers, by spec.
        self._push_ports: dict[str, PushPort] = {}
        # The timer that reads config.json again.
        self._reading: asyncio.TimerHandle | None = None
        # Serves WebSocket clients only, if config.json asks for that.
        self._own_port: WebServer | None = None
        # Set by a shutdown, after which nothing opens again.
        self._is_closing = False
        self.path = MoniquePath(
            self._make_session,
            admission=services.security.admission,
            gate=services.security.gate,
            wants_id_cookie=settings.id_cookie,
            refusal=self._refusal,
        )

    # --- opening and closing ----------------------------------------------------------------------------------------

    @property
    def own_address(self) -> tuple[str, int] | None:
        """The host and port for WebSocket clients only, or None if config.json names none."""
        where = self._config.websocket
        return None if where is None else ("0.0.0.0" if where.host == "*" else where.host, where.port)

    async def start(self, bound: socket.socket | None) -> dict[str, str]:
        """Open the doors if this node may, with a socket bound to `own_address`; return the addresses by name."""
        addresses: dict[str, str] = {}
        if self.own_address is not None:
            assert bound is not None, "bound to that address"
            # WebSocket clients are served at `/` of a port of their own, as in the original MoniQue.
            security = self._services.security
            self._own_port = WebServer(None, admission=security.admission, gate=security.gate, tls=security.tls)
            self._own_port.add("GET", "/", self.path.handle)
            addresses["monique"] = f"{self.own_address[0]}:{await self._own_port.start(bound)}"
        return addresses | self._follow_leadership()

    def tick(self) -> None:
        """Open or close as this node begins or ends to lead; a port that cannot be opened is tried again later."""
        try:
            self._follow_leadership()
        except BadSettings as error:
            # The previous leader on this machine may not have closed its ports yet.
            logger.warning("%s; trying again", error)

    def _refusal(self) -> Refusal | None:
        """Return why no client is served now, or None."""
        refusal = self._services.refusal()
        if refusal is None and self._supervisor is None:
            # This node may have become leader since the last tick.
            self.tick()
        if refusal is None and self._supervisor is None:
            return Refusal(Busy.code, "this node cannot open the ports of MoniQue now; try again")
        return refusal

    def _follow_leadership(self) -> dict[str, str]:
        """Open or close; return the addresses of the doors that were opened."""
        if self._supervisor is None:
            refusal = self._services.refusal()
            may_open = refusal is None or refusal.code != NotLeader.code
            return self._open() if may_open and not self._is_closing else {}
        if not self._services.leads():
            self._close()
            for door in list(self.path.doors):
                door.close("another node leads; connect to it")
        return {}

    def _open(self) -> dict[str, str]:
        try:
            addresses = self._open_ports()
        except BaseException:
            # libzmq would keep the program from ending as long as a socket is open.
            self._close()
            raise
        group = Child("the MoniQue exchange", self._start_actors)
        self._supervisor = self._services.runtime.spawn(Supervisor, [group])
        self._services.runtime.monitor(self._monitor, self._supervisor, "the supervisor of the MoniQue exchange")
        return addresses

    def _close(self) -> None:
        if self._supervisor is not None:
            self._services.runtime.demonitor(self._monitor, self._supervisor)
            self._supervisor.stop()
            self._supervisor = None
        if self._reading is not None:
            self._reading.cancel()
        if self._zmq is not None:
            self._zmq.close()
            self._zmq = None
        self._push_ports.clear()
        self._givers.clear()

    def stop_reading(self) -> None:
        """Accept no more messages; those that were read are still answered."""
        self._is_closing = True
        self.path.stop_reading()
        if self._zmq is not None:
            self._zmq.stop_reading()
        self._rest_bridges()

    def _rest_bridges(self) -> None:
        """Give components no more tasks; their answers are still accepted."""
        for giver in self._givers.values():
            if isinstance(giver, Bridge):
                giver.tell(Rest())

    async def close(self, reason: str = "the broker stops") -> None:
        """Close everything, after components have received every message that was published."""
        self._is_closing = True
        if self._zmq is not None:
            finished: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            self._services.disk.submit(self._zmq.finish(), finished.set_result)
            await finished
            self._zmq = None
        self._close()
        await self.path.close(reason)
        if self._own_port is not None:
            await self._own_port.close()

    # --- ZeroMQ -----------------------------------------------------------------------------------------------------

    def _open_ports(self) -> dict[str, str]:
        config = self._config
        if not config.wants_zeromq:
            return {}
        from wakeq.net.monique_zmq import MoniqueZmq

        self._zmq = MoniqueZmq(self._services.security.admission)
        addresses: dict[str, str] = {}
        if config.scheduler_in is not None and config.scheduler_out is not None:
            addresses = self._zmq.open_layers(
                config.scheduler_in, config.scheduler_out, lambda message: self._components.tell(message)
            )
        for spec, port in self._controllers.items():
            self._open_controller(spec, port)
        if self._settings.config_file is not None:
            self._reading = asyncio.get_running_loop().call_later(READ_AGAIN_S, self._read_again)
        return addresses

    def _check_route(self, spec: str) -> None:
        """Raise BadSettings if the components of a spec would get tasks of another one."""
        routes = self._settings.routes or {}
        others = [other for other, queue in routes.items() if other != spec and queue == routes.get(spec)]
        if others:
            raise BadSettings(
                f"monique.routes stores tasks of {others[0]} on {routes[spec]} too, from which the controller of "
                f"{spec} serves its components; give each spec a queue of its own"
            )

    def _open_controller(self, spec: str, port: int) -> None:
        assert self._zmq is not None, "opened first"
        self._push_ports[spec] = self._zmq.open_controller(
            self._config.bind_host,
            port,
            lambda message: self._givers[spec].tell(message),
            on_lease=spec in (self._settings.routes or {}),
        )

    def _read_again(self) -> None:
        """Read config.json again, to find controllers that were added."""
        path = self._settings.config_file
        assert path is not None, "there is no timer without it"
        self._services.disk.submit(lambda: read_config(path), self._add_controllers)
        self._reading = asyncio.get_running_loop().call_later(READ_AGAIN_S, self._read_again)

    def _add_controllers(self, config: MoniqueConfig | BaseException) -> None:
        if self._supervisor is None:
            return
        if isinstance(config, BaseException):
            logger.warning("%s; the controllers stay unchanged", config)
            return
        for spec, port in config.connections.items():
            if spec not in self._push_ports:
                try:
                    self._check_route(spec)
                    self._open_controller(spec, port)
                except BadSettings as refusal:
                    logger.warning("%s", refusal)
                else:
                    self._controllers[spec] = port
                    self._start_giver(spec)
                    logger.info("opened a controller for %s on port %d", spec, port)

    # --- actors -----------------------------------------------------------------------------------------------------

    def _start_actors(self) -> Process:
        """Start the exchange and its helpers, which end with it."""
        runtime, settings, queues = self._services.runtime, self._settings, self._services.queues
        routes = settings.routes or {}
        tasks = runtime.spawn(Tasks, queues, list(dict.fromkeys(routes.values())), self._counters) if routes else None
        rules = Rules(self._config.allow_messages, routes, settings.check_messages)
        self._exchange = runtime.spawn(MoniqueExchange, rules, tasks, queues.now_ms, self._counters)
        if routes:
            answers = runtime.spawn(Answers, ANSWERS_QUEUE, settings.creator, self._exchange, queues, self._counters)
            runtime.monitor(self._exchange, answers, "the process of answers")
        if self._zmq is not None and self._zmq.layers is not None:
            self._components = runtime.spawn(
                Components, self._zmq.layers, self._exchange, self._counters, checks=settings.check_messages
            )
            runtime.monitor(self._exchange, self._components, "the process of the components")
            self._zmq.begin_again()
        for spec in self._push_ports:
            self._start_giver(spec)
        return self._exchange

    def _start_giver(self, spec: str) -> None:
        """Start the actor that gives the tasks of a spec to the components at its controller."""
        runtime, queues, port = self._services.runtime, self._services.queues, self._push_ports[spec]
        queue = (self._settings.routes or {}).get(spec)
        checks, counters = self._settings.check_messages, self._counters
        giver: Controller | Bridge
        if queue is None:
            giver = runtime.spawn(Controller, spec, port, self._exchange, counters, checks=checks)
        else:
            giver = runtime.spawn(Bridge, spec, queue, port, self._exchange, queues, counters, checks=checks)
        runtime.monitor(self._exchange, giver, f"the controller of {spec}")
        self._givers[spec] = giver
        port.report()
        if self._is_closing:
            self._rest_bridges()

    def _make_session(self, door: PushingDoor) -> MoniqueSession:
        runtime, worker = self._services.runtime, self._services.queues.new_worker()
        return runtime.spawn(
            MoniqueSession, door, worker, self._exchange, self._counters, self._services.queues.now_ms()
        )

    # --- metrics ----------------------------------------------------------------------------------------------------

    def samples(self) -> list[Sample]:
        """Return the metrics of MoniQue; those of a leader are 0 on other nodes."""
        counters, leads = self._counters, self._supervisor is not None
        bridges = [giver for giver in self._givers.values() if isinstance(giver, Bridge) and giver.alive]
        return [
            *(Sample("wakeq_monique_messages_total", count, (source,)) for source, count in counters.taken.items()),
            Sample("wakeq_monique_pushed_total", counters.pushed),
            *(Sample("wakeq_monique_dropped_total", count, (place,)) for place, count in counters.dropped.items()),
            Sample("wakeq_monique_slow_clients_total", self.path.slow_clients),
            Sample("wakeq_monique_subscriptions", self._exchange.subscriptions if leads else 0),
            Sample("wakeq_monique_components", sum(port.components for port in self._push_ports.values())),
            *(Sample("wakeq_monique_tasks_total", count, (fate,)) for fate, count in counters.tasks.items()),
            Sample("wakeq_monique_tasks_out", sum(bridge.out for bridge in bridges)),
        ]
