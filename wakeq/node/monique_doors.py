"""MoniqueDoors: everything that MoniQue's clients and components connect to, and the processes behind it.

    settings, config.json --> exchange and those who work for it --> /monique of the HTTP port, the ports of config.json

Only a node that leads has them: who was connected to another one has to come again.  The same holds if one of the
processes fails: all of them are made anew.  It knows no byte of the protocol.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from wakeq.actors.mail import Refusal
from wakeq.actors.monique.answers import Answers
from wakeq.actors.monique.bridge import Bridge
from wakeq.actors.monique.components import Components
from wakeq.actors.monique.controller import Controller
from wakeq.actors.monique.exchange import MoniqueExchange, Rules
from wakeq.actors.monique.mail import Rest
from wakeq.actors.monique.queue_user import QueueServices
from wakeq.actors.monique.tally import Tally
from wakeq.actors.monique.tasks import Tasks
from wakeq.actors.runtime import Child, Process, Runtime, Supervisor
from wakeq.actors.sessions.monique import MoniqueSubscriber, PushingDoor
from wakeq.config.monique import ANSWERS_QUEUE, MoniqueConfig, check_config, read_config
from wakeq.config.settings import Monique
from wakeq.http.exposition import Sample
from wakeq.http.server import WebServer
from wakeq.http.websocket.monique import MoniquePath
from wakeq.node.assembly import Guard
from wakeq.node.security import Security
from wakeq.protocol.errors import BadSettings, Busy, NotLeader
from wakeq.storage.thread import Disk

if TYPE_CHECKING:
    from wakeq.net.monique_zmq import MoniqueZmq
    from wakeq.net.push_port import PushPort

READ_AGAIN_S = 60.0  # config.json, for controllers that were added (section 7)

logger = logging.getLogger("wakeq.monique")


class Services(NamedTuple):
    """What it is given by the node."""

    runtime: Runtime
    queues: QueueServices
    refusal: Callable[[], Refusal | None]  # why this node serves nobody now, if it does not
    leads: Callable[[], bool]  # also while a successor gets ready, which may fail
    failed: Callable[[BaseException], None]
    security: Security
    disk: Disk  # that reads config.json again


class MoniqueDoors:
    """See the head of this file."""

    def __init__(self, settings: Monique, services: Services) -> None:
        self._settings = settings
        self._services = services
        self._tally = Tally(services.queues.now_ms)
        config = MoniqueConfig() if settings.config_file is None else read_config(settings.config_file)
        check_config(config, services.security.may_listen)
        self._config = config
        for spec in config.connections:
            self._check_route(spec)
        self._controllers = dict(config.connections)  # and those that were added to the file since
        self._guard = services.runtime.spawn(Guard, services.failed)
        self._supervisor: Supervisor | None = None  # while this node leads
        self._exchange: MoniqueExchange
        self._components: Process
        self._takers: dict[str, Controller | Bridge] = {}  # who gives tasks to the components at its port, by spec
        self._zmq: MoniqueZmq | None = None
        self._push_ports: dict[str, PushPort] = {}  # by spec
        self._reading: asyncio.TimerHandle | None = None
        self._own_port: WebServer | None = None
        self._ends = False
        self.path = MoniquePath(
            self._make_subscriber,
            admission=services.security.admission,
            gate=services.security.gate,
            wants_id_cookie=settings.id_cookie,
            refusal=self._refusal,
        )

    # --- opening and closing ----------------------------------------------------------------------------------------

    @property
    def own_place(self) -> tuple[str, int] | None:
        """Host and port at which WebSocket clients are served apart, if they are."""
        where = self._config.websocket
        return None if where is None else ("0.0.0.0" if where.host == "*" else where.host, where.port)

    async def start(self, bound: socket.socket | None) -> dict[str, str]:
        """Open what can be opened now, with a socket for `own_place`; return the addresses by name."""
        addresses: dict[str, str] = {}
        if self.own_place is not None:
            assert bound is not None, "for that place"
            addresses["monique"] = f"{self.own_place[0]}:{await self._listen(bound)}"
        return addresses | self._look()

    async def _listen(self, bound: socket.socket) -> int:
        """Serve WebSocket clients at `/` of a port of their own, as the original does."""
        security = self._services.security
        self._own_port = WebServer(None, admission=security.admission, gate=security.gate, tls=security.tls)
        self._own_port.add("GET", "/", self.path.handle)
        return await self._own_port.start(bound)

    def look(self) -> None:
        """See whether this node leads, and open or close accordingly; what cannot be opened is tried again later."""
        try:
            self._look()
        except BadSettings as error:  # the leader before us, on the same machine, has not closed it yet
            logger.warning("%s; trying again", error)

    def _refusal(self) -> Refusal | None:
        """Return why nobody is served now."""
        refusal = self._services.refusal()
        if refusal is None and self._supervisor is None:
            self.look()  # it has just begun to lead
        if refusal is None and self._supervisor is None:
            return Refusal(Busy.code, "the ports of MoniQue cannot be opened now; try again")
        return refusal

    def _look(self) -> dict[str, str]:
        """Open or close; return the addresses of what was opened."""
        if self._supervisor is None:
            refusal = self._services.refusal()
            may_open = refusal is None or refusal.code != NotLeader.code
            return self._open() if may_open and not self._ends else {}
        if not self._services.leads():
            self._close()
            for door in list(self.path.doors):
                door.close("another node leads; connect to it")
        return {}

    def _open(self) -> dict[str, str]:
        try:
            addresses = self._open_ports()
        except BaseException:
            self._close()  # libzmq would wait for what is open when the program ends
            raise
        family = Child("the MoniQue exchange", self._start_family)
        self._supervisor = self._services.runtime.spawn(Supervisor, [family])
        self._services.runtime.monitor(self._guard, self._supervisor, "the supervisor of the MoniQue exchange")
        return addresses

    def _close(self) -> None:
        if self._supervisor is not None:
            self._services.runtime.demonitor(self._guard, self._supervisor)
            self._supervisor.stop()
            self._supervisor = None
        if self._reading is not None:
            self._reading.cancel()
        if self._zmq is not None:
            self._zmq.close()
            self._zmq = None
        self._push_ports.clear()
        self._takers.clear()

    def stop_reading(self) -> None:
        """Take no more; what was taken is still answered."""
        self._ends = True
        self.path.stop_reading()
        if self._zmq is not None:
            self._zmq.stop_reading()
        self._rest()

    def _rest(self) -> None:
        """Give components nothing more; answers of theirs may still be on their way."""
        for taker in self._takers.values():
            if isinstance(taker, Bridge):
                taker.tell(Rest())

    async def close(self, reason: str = "the broker stops") -> None:
        """Close everything; components hear what was published last."""
        self._ends = True
        if self._zmq is not None:
            await self._finish(self._zmq)
            self._zmq = None
        self._close()
        await self.path.close(reason)
        if self._own_port is not None:
            await self._own_port.close()

    async def _finish(self, zmq: "MoniqueZmq") -> None:
        finished: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._services.disk.submit(zmq.finish(), finished.set_result)
        await finished

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
        """Raise BadSettings if the components of a spec would be given tasks of another one."""
        routes = self._settings.routes or {}
        others = [other for other, queue in routes.items() if other != spec and queue == routes.get(spec)]
        if others:
            raise BadSettings(
                f"monique.routes puts tasks of {others[0]} too on {routes[spec]}, from which the components at the "
                f"controller of {spec} are served; give each a queue of its own"
            )

    def _open_controller(self, spec: str, port: int) -> None:
        assert self._zmq is not None, "opened before"
        self._push_ports[spec] = self._zmq.open_controller(
            self._config.bind_host,
            port,
            lambda message: self._takers[spec].tell(message),
            on_lease=spec in (self._settings.routes or {}),
        )

    def _read_again(self) -> None:
        """See whether config.json names controllers that are new."""
        path = self._settings.config_file
        assert path is not None, "else nobody asks"
        self._services.disk.submit(lambda: read_config(path), self._was_read)
        self._reading = asyncio.get_running_loop().call_later(READ_AGAIN_S, self._read_again)

    def _was_read(self, config: MoniqueConfig | BaseException) -> None:
        if self._supervisor is None:
            return
        if isinstance(config, BaseException):
            logger.warning("%s; the controllers stay as they are", config)
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
                    self._start_taker(spec)
                    logger.info("a controller for %s at port %d", spec, port)

    # --- processes --------------------------------------------------------------------------------------------------

    def _start_family(self) -> Process:
        """Make the exchange and those who work for it; they end with it."""
        runtime, settings, queues = self._services.runtime, self._settings, self._services.queues
        routes = settings.routes or {}
        tasks = runtime.spawn(Tasks, queues, list(dict.fromkeys(routes.values())), self._tally) if routes else None
        rules = Rules(self._config.allow_messages, routes, settings.check_messages)
        self._exchange = runtime.spawn(MoniqueExchange, rules, tasks, queues.now_ms, self._tally)
        if routes:
            answers = runtime.spawn(Answers, ANSWERS_QUEUE, settings.creator, self._exchange, queues, self._tally)
            runtime.monitor(self._exchange, answers, "the process of answers")
        if self._zmq is not None and self._zmq.layers is not None:
            self._components = runtime.spawn(
                Components, self._zmq.layers, self._exchange, self._tally, checks=settings.check_messages
            )
            runtime.monitor(self._exchange, self._components, "the process of the components")
            self._zmq.begin_again()
        for spec in self._push_ports:
            self._start_taker(spec)
        return self._exchange

    def _start_taker(self, spec: str) -> None:
        """Make who gives the tasks of a spec to the components at its controller's port."""
        runtime, queues, port = self._services.runtime, self._services.queues, self._push_ports[spec]
        queue = (self._settings.routes or {}).get(spec)
        checks, tally = self._settings.check_messages, self._tally
        taker: Controller | Bridge
        if queue is None:
            taker = runtime.spawn(Controller, spec, port, self._exchange, tally, checks=checks)
        else:
            taker = runtime.spawn(Bridge, spec, queue, port, self._exchange, queues, tally, checks=checks)
        runtime.monitor(self._exchange, taker, f"the controller of {spec}")
        self._takers[spec] = taker
        port.look()
        if self._ends:
            self._rest()

    def _make_subscriber(self, door: PushingDoor) -> MoniqueSubscriber:
        runtime, worker = self._services.runtime, self._services.queues.new_worker()
        return runtime.spawn(MoniqueSubscriber, door, worker, self._exchange, self._tally)

    # --- figures ----------------------------------------------------------------------------------------------------

    def samples(self) -> list[Sample]:
        """Return the metrics of MoniQue; what only a leader has is 0 elsewhere."""
        tally, leads = self._tally, self._supervisor is not None
        bridges = [taker for taker in self._takers.values() if isinstance(taker, Bridge) and taker.alive]
        return [
            *(Sample("wakeq_monique_messages_total", count, (source,)) for source, count in tally.taken.items()),
            Sample("wakeq_monique_pushed_total", tally.pushed),
            *(Sample("wakeq_monique_dropped_total", count, (place,)) for place, count in tally.dropped.items()),
            Sample("wakeq_monique_slow_clients_total", self.path.slow_clients),
            Sample("wakeq_monique_subscriptions", self._exchange.subscriptions if leads else 0),
            Sample("wakeq_monique_components", sum(port.components for port in self._push_ports.values())),
            *(Sample("wakeq_monique_tasks_total", count, (fate,)) for fate, count in tally.tasks.items()),
            Sample("wakeq_monique_tasks_out", sum(bridge.out for bridge in bridges)),
        ]
