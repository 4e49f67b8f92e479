"""Node: builds everything that lives as long as a broker does, joins it, and takes it down again.

    settings --> files, threads, processes, listeners --> one line when it is ready ... --> exit status

The only place that does so.  It knows no rule of queues and no byte of a protocol.
"""

import asyncio
import contextlib
import ctypes
import dataclasses
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

from wakeq import __version__
from wakeq.actors.door import CarefulDoor, Door
from wakeq.actors.log_files import Cut
from wakeq.actors.messages import HandOver, Pressure, Propose, Refusal
from wakeq.actors.monique_queues import QueueServices
from wakeq.actors.queue_registry import Settings as QueuesSettings
from wakeq.actors.requests import Limits as SubscriberLimits
from wakeq.actors.requests import Services as SubscriberServices
from wakeq.actors.runtime import Runtime
from wakeq.actors.runtime.clock import Clock, SystemClock
from wakeq.actors.subscriber import Subscriber
from wakeq.actors.taskflux_replies import Known
from wakeq.actors.taskflux_subscriber import Services as TaskFluxServices
from wakeq.actors.taskflux_subscriber import TaskFluxSubscriber
from wakeq.admin import Admin
from wakeq.assembly import Assembly, Cluster, Files, StateReplaced, Surroundings
from wakeq.cluster_plan import ClusterPlan, plan_of
from wakeq.doors import Doors
from wakeq.listeners.peer_tcp import PeerTcp
from wakeq.listeners.taskflux_tcp import TaskFluxTcpListener
from wakeq.listeners.tcp_listener import TcpListener
from wakeq.listeners.worker_tcp import WorkerTcpListener
from wakeq.logs import log_to_stderr
from wakeq.monique_doors import MoniqueDoors
from wakeq.monique_doors import Services as MoniqueServices
from wakeq.opening import Opened, open_all
from wakeq.protocol.catalog import Policies
from wakeq.protocol.clock import HEARTBEAT_MS, ClusterClock
from wakeq.protocol.errors import StorageError, WakeqError
from wakeq.protocol.publishers import Limits
from wakeq.protocol.raft.settings import Settings as RaftSettings
from wakeq.protocol.wire.peer import MARK, VERSION, VERSION_MIN, Hello, split_address
from wakeq.protocol.wire.taskflux.dialects import DIALECTS, Dialect
from wakeq.protocol.wire.taskflux.packets import Response as TaskFluxResponse
from wakeq.protocol.wire.worker import Reply
from wakeq.reloading import reload
from wakeq.security import Security
from wakeq.settings import Settings
from wakeq.storage.disk_thread import DiskThread
from wakeq.storage.journal import Keep
from wakeq.systemd import Systemd
from wakeq.web.connect import Connect
from wakeq.web.server import WebServer

ANSWER_S_MAX = 10.0  # for what was read before a stop to be done and answered
HAND_OVER_S_MAX = 2.0  # for another node to lead before this one stops
LOOK_AGAIN_S = 0.001
READER_CHECK_S = 10.0
GC_THRESHOLDS = (100_000, 20, 100)  # hardly anything here forms cycles, and a full collection stalls the loop
BUG_STATUS = 70
STATE_BYTES_A_LOG_BYTE = 2  # at most what the state store will need for what it does not have yet

HEARTBEATS_AN_ELECTION = 10
FILES_APART = 256  # open files that are not connections: log, state, snapshots, sockets that listen
TRIM_AFTER_BYTES = 32 << 20  # of the log
_MALLOC_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it

logger = logging.getLogger("wakeq.node")


class Node:
    """A broker on a running loop: `start`, then `stop`."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.security = Security(settings, self.clock.wall_ms)
        self.runtime = Runtime()
        self.failed: asyncio.Future[Any] | None = None
        self._moment_turn, self._moment_ms = -1, 0
        self._workers = 0
        self._threads: list[DiskThread] = []
        self._taskflux: list[TaskFluxTcpListener] = []
        self._monique: MoniqueDoors | None = None
        self._heartbeat: asyncio.TimerHandle | None = None
        self._beats = 0
        self._pressure = ""
        self._gave_history_up = False  # since the disk became full
        self._trimmed_bytes = 0
        self._plan = plan_of(settings, self.security.peer_tls)
        self._peers: PeerTcp | None = None
        self._doors = Doors(None if self._plan is None else self._plan.node_id)

    # --- up --------------------------------------------------------------------------------------------------------

    async def start(self) -> dict[str, str]:
        """Open, recover, serve; return the addresses by door."""
        loop = asyncio.get_running_loop()
        self.failed = loop.create_future()
        self.runtime.attach(loop)
        settings, plan = self.settings, self._plan
        self.files = open_all(
            settings.data_dir,
            upgrade=settings.upgrade,
            segment_bytes_max=settings.log.segment_bytes_max,
            keep=Keep(settings.journal.keep_s, settings.journal.keep_bytes),
            node_id=None if plan is None else plan.node_id,
            new=None if plan is None else plan.identity,
        )
        try:
            self._build(loop, self.files)
            await self._recover()
            if plan is not None:
                return await self._take_part(plan)
            await self._lead()
            return await self._listen()
        except BaseException:
            if self._monique is not None:
                await self._monique.close()
            await self._close_files()
            raise

    def _thread(self, name: str) -> DiskThread:
        loop = asyncio.get_running_loop()
        thread = DiskThread(name, loop.call_soon_threadsafe)
        self._threads.append(thread)
        return thread

    def _build(self, loop: asyncio.AbstractEventLoop, files: Opened) -> None:
        """Make the processes; none has mail yet."""
        settings, dedup = self.settings, self.settings.dedup
        self._start_clock(files.store.applied().clock_ms)
        self.assembly = Assembly(
            self.runtime,
            Files(files.directory.identity, files.metadata, files.log, files.store, files.snapshot_path),
            Surroundings(
                now_ms=self.now_ms,
                stamp_ms=self.stamp_ms,
                behind_ms=lambda: self._cluster_clock.behind_ms,
                call_later=loop.call_later,
                new_disk=self._thread,
                new_snapshot_disk=lambda: DiskThread("wakeq-snapshot", loop.call_soon_threadsafe),
                failed=self._fail,
                look_for_room=self._look_for_room,
            ),
            QueuesSettings(
                Limits(dedup.ids_max, dedup.window_s * 1000),
                settings.store.flush_after_ms,
                settings.store.flush_bytes,
                settings.queue.policies(),
            ),
            snapshot_bytes_min=settings.snapshot.bytes_min,
            cluster=self._make_peers(files),
        )
        self.raft_log, self.queues = self.assembly.raft_log, self.assembly.queues

    def _make_peers(self, files: Opened) -> Cluster | None:
        """Make the door to the other nodes; nobody is dialled yet."""
        plan = self._plan
        if plan is None:
            return None
        identity, metadata = files.directory.identity, files.metadata

        def hello() -> Hello:
            me = identity.cluster_id, identity.node_id, metadata.disk_id, metadata.incarnation
            return Hello(MARK, VERSION_MIN, VERSION, *me, self._doors.own)

        self._peers = PeerTcp(hello, lambda introduced: self.raft_log.tell(introduced), self.security.peer_tls)
        election_ms = self.settings.cluster.election_ms
        return Cluster(
            plan.initial(),
            self._dial,
            self._follow_clock,
            RaftSettings(election_ms, election_ms // HEARTBEATS_AN_ELECTION),
        )

    async def _take_part(self, plan: ClusterPlan) -> dict[str, str]:
        """Open all doors, then stand for election or follow; who leads is not waited for."""
        assert self._peers is not None, "made before"
        addresses = await self._listen()
        self._doors.open(addresses, bracketed(plan.own_host), self.settings.cluster.worker_address)
        self.assembly.begin()
        await self._peers.start(*split_address(plan.addresses[plan.node_id]))
        self._beat()
        return addresses | {"peer": plan.addresses[plan.node_id]}

    def _dial(self, node_id: int, address: str) -> None:
        """Keep a connection to a node; one that recovered alone has no address in the log, perhaps in the settings."""
        assert self._peers is not None, "made before"
        assert self._plan is not None, "else there is nobody to dial"
        address = address or self._plan.address_of(node_id)
        if address:
            self._peers.dial(node_id, split_address(address))

    def _follow_clock(self, stamp_ms: int) -> None:
        """Another node leads: its stamps are the time."""
        self._cluster_clock = ClusterClock.following(stamp_ms, self.clock.monotonic_ms())

    def _start_clock(self, last_ms: int) -> None:
        self._cluster_clock = ClusterClock(last_ms, self.clock.wall_ms(), self.clock.monotonic_ms())

    def now_ms(self) -> int:
        """Return the moment by the cluster clock; within one turn of the processes it is one moment."""
        turn = self.runtime.turn_id
        if turn != self._moment_turn or not turn & 1:
            self._moment_turn = turn
            self._moment_ms = self._cluster_clock.now(self.clock.wall_ms(), self.clock.monotonic_ms())
        return self._moment_ms

    def stamp_ms(self) -> int:
        """Return a moment that is not before the true one: a delay counted from it never ends early."""
        return self.now_ms() + self.clock.rounding_ms

    async def _recover(self) -> None:
        """Take the state from the store, then apply the log from there."""
        for _ in self.assembly.recover():
            await self._turn()
        self._start_clock(self.assembly.clock_ms)

    async def _turn(self) -> None:
        """Let the processes go on; raise what one of them died of."""
        await asyncio.sleep(0)
        assert self.failed is not None, "started"
        if self.failed.done():
            raise self.failed.result()

    async def _lead(self) -> None:
        for _ in self.assembly.lead():
            await self._turn()
        if self.files.imported is not None:
            await self._import()
        self._beat()

    async def _import(self) -> None:
        """Put what version 1 held through the log like anything else, and finish once all of it is written down."""
        from wakeq.importing import entries_of

        assert self.files.imported is not None, "asked before"
        for entry in entries_of(self.files.imported):
            self.raft_log.tell(Propose([(entry, None)]))
            await self._turn()
        await self._flush()
        self.files.directory.finish_import()

    async def _listen(self) -> dict[str, str]:
        settings = self.settings
        limits = SubscriberLimits(settings.message_bytes_max, __version__)
        defaults = settings.queue.policies()
        services = SubscriberServices(
            self.raft_log,
            self.queues,
            limits,
            self.queues.exists,
            None if defaults == Policies() else defaults,
            self.raft_log.refusal,
            self.security.gate,
        )
        admission, gate, tls = self.security.admission, self.security.gate, self.security.tls

        def make_subscriber(door: Door[Reply]) -> Subscriber:
            self._workers += 1
            return self.runtime.spawn(Subscriber, door, self._workers, services)

        self._tcp = WorkerTcpListener(
            make_subscriber,
            admission=admission,
            message_bytes_max=settings.message_bytes_max,
            tls=tls,
            handshake_s=self.security.handshake_s,
        )
        worker_port = await self._tcp.start(settings.host, settings.worker_port)
        self._web = WebServer(None, admission=admission, gate=gate, tls=tls)
        self._admin = self._make_admin()
        self._admin.serve_on(self._web)
        self._connect = Connect(
            make_subscriber, admission=admission, message_bytes_max=settings.message_bytes_max, gate=gate
        )
        for path in ("/connect", "/connect/"):
            self._web.add("GET", path, self._connect.handle, is_open=True)
        self._web.before_stop(self._connect.close)
        self._admin.start({"worker": self._tcp.doors, "websocket": self._connect.doors}, [self._tcp])
        monique = self._monique = MoniqueDoors(settings.monique, self._monique_services(services.defaults))
        self._web.add("GET", "/monique", monique.path.handle)
        self._web.before_stop(self._monique.close)
        self._admin.figures.ports["monique"] = lambda: len(monique.path.doors)
        http_port = await self._web.start(settings.host, settings.http_port)
        host = bracketed(settings.host)
        addresses = {"worker": f"{host}:{worker_port}", "http": f"{host}:{http_port}"}
        return addresses | await self._listen_to_taskflux(host) | await self._monique.start()

    def _monique_services(self, defaults: Policies | None) -> MoniqueServices:
        queues = QueueServices(
            self.raft_log,
            self.queues,
            self.assembly.timers,
            self.now_ms,
            self._new_worker,
            self.queues.exists,
            defaults,
            self.settings.message_bytes_max,
        )
        return MoniqueServices(self.runtime, queues, self.raft_log.refusal, self._fail, self.security)

    def _new_worker(self) -> int:
        self._workers += 1
        return self._workers

    def _make_admin(self) -> Admin:
        return Admin(
            self.settings.host,
            self.assembly,
            self.files,
            self.security.admission,
            now_ms=self.now_ms,
            clock_step_ms=lambda: self._cluster_clock.step_ms,
            publishes_refused=lambda: bool(self._pressure),
            queues_max=lambda: self.settings.metrics.queues_max,
            gate=self.security.gate,
            new_disk=lambda name: DiskThread(name, asyncio.get_running_loop().call_soon_threadsafe),
        )

    async def _listen_to_taskflux(self, host: str) -> dict[str, str]:
        """Open a port for one dialect, and another one for the other if that is wanted."""
        settings = self.settings
        ports = {settings.taskflux_dialect: settings.taskflux_port}
        if settings.taskflux_other_port is not None:
            (other,) = {"spec", "csharp"} - ports.keys()
            ports[other] = settings.taskflux_other_port
        addresses: dict[str, str] = {}
        for name, port in ports.items():
            listener = TaskFluxTcpListener(
                self._make_taskflux_subscriber(DIALECTS[name], addresses),
                DIALECTS[name],
                admission=self.security.admission,
                payload_bytes_max=settings.taskflux_payload_bytes_max,
                idle_s=settings.taskflux_idle_s,
                tls=self.security.tls,
            )
            self._taskflux.append(listener)
            door = "taskflux" if name == settings.taskflux_dialect else f"taskflux-{name}"
            self._admin.start({door: listener.doors}, [listener])
            addresses[door] = f"{host}:{await listener.start(settings.host, port)}"
        return addresses

    def _make_taskflux_subscriber(
        self, dialect: Dialect, addresses: dict[str, str]
    ) -> Callable[[CarefulDoor[TaskFluxResponse]], TaskFluxSubscriber]:
        door_name = "taskflux" if dialect.name == self.settings.taskflux_dialect else f"taskflux-{dialect.name}"
        known = Known(
            find=self.queues.catalog.find,
            nodes=lambda: self._doors.taskflux_nodes(self.raft_log, door_name, addresses[door_name]),
            payload_bytes_max=self.settings.taskflux_payload_bytes_max,
        )
        services = TaskFluxServices(
            self.raft_log, self.queues, self.assembly.timers, self.now_ms, known, self.security.gate
        )

        def make(door: CarefulDoor[TaskFluxResponse]) -> TaskFluxSubscriber:
            self._workers += 1
            return self.runtime.spawn(TaskFluxSubscriber, door, dialect, self._workers, services)

        return make

    # --- while it runs ---------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        """Read the clock often enough to tell a pause, and look at the disk."""
        self._heartbeat = asyncio.get_running_loop().call_later(HEARTBEAT_MS / 1000, self._beat)
        self.now_ms()
        step_ms = self._cluster_clock.take_step_ms()
        if step_ms:
            logger.warning(
                "the wall clock is %d ms away from the cluster clock, which leans towards it slowly", step_ms
            )
        self._look_for_room()
        self.security.look()
        if self._monique is not None:
            self._monique.look()
        self._give_memory_back()
        self._beats += 1
        if self._beats % int(READER_CHECK_S * 1000 / HEARTBEAT_MS) == 0:
            self.files.store.reader_check()

    def reload(self, settings: Settings) -> None:
        """Take other settings while it runs; only those that can be reloaded differ."""
        self.security.reload(settings)
        if self.files.log.journal is not None:
            self.files.log.journal.keep = Keep(settings.journal.keep_s, settings.journal.keep_bytes)
        self.settings = settings

    def _look_for_room(self) -> None:
        """Refuse publishes while there is no room for them, on the disk or by the node's own limit."""
        directory = self.files.directory
        is_full = directory.check_space(STATE_BYTES_A_LOG_BYTE * self.queues.unflushed_bytes)
        if is_full and not self._gave_history_up:
            self._gave_history_up = True
            self._give_history_up()
            return
        self._gave_history_up = is_full
        if is_full:
            code = "DISK_FULL"
            kept, size = directory.reserve_bytes(), directory.disk_bytes
            detail = (
                f"the disk of {directory.path} has {directory.free_bytes() >> 20} MiB free, and {kept >> 20} MiB "
                f"({100 * kept / size:.0f} % of it) are kept for acknowledgements; make room"
            )
        elif 0 < self.settings.node_bytes_max <= self.queues.held_bytes:
            code = "QUEUE_FULL"
            detail = f"all queues together hold {self.settings.node_bytes_max} bytes, the limit of this node"
        else:
            code = detail = ""
        if code == self._pressure:
            return
        self._pressure = code
        self.raft_log.tell(Pressure(Refusal(code, detail) if code else None))
        if code == "DISK_FULL":
            self.raft_log.tell(Cut(self.queues.flushed_index))
        logger.warning("%s", f"publishes are refused: {detail}" if code else "publishes are taken again")

    def _give_history_up(self) -> None:
        """Messages need the disk more than history does; the next look tells whether that was enough."""
        journal = self.files.log.journal
        if journal is not None:
            logger.warning("the disk of %s is nearly full: the journal is removed", self.files.directory.path)
            self.assembly.reader_disk.submit(journal.clear, lambda _: None)

    def _give_memory_back(self) -> None:
        """Let the allocator return what much writing has left it with; it keeps that for ever otherwise."""
        if self.files.log.written_bytes - self._trimmed_bytes > TRIM_AFTER_BYTES and _MALLOC_TRIM is not None:
            self._trimmed_bytes = self.files.log.written_bytes
            self.assembly.reader_disk.submit(lambda: _MALLOC_TRIM(0), lambda _: None)

    def _fail(self, error: BaseException) -> None:
        if self.failed is not None and not self.failed.done():
            self.failed.set_result(error)

    # --- down ------------------------------------------------------------------------------------------------------

    async def _flush(self) -> None:
        """Write everything down that is committed."""
        flushed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.queues.flush_now(lambda: flushed.set_result(None) if not flushed.done() else None)
        assert self.failed is not None, "started"
        await asyncio.wait([flushed, self.failed], return_when=asyncio.FIRST_COMPLETED)

    async def _answer_all(self) -> None:
        """Wait until what was read is done and answered; commands that wait for something are not waited for."""
        assert self.failed is not None, "started"
        until_s = asyncio.get_running_loop().time() + ANSWER_S_MAX
        while not (self.runtime.idle and self.raft_log.at_rest) and asyncio.get_running_loop().time() < until_s:
            await asyncio.sleep(LOOK_AGAIN_S)
            if self.failed.done():
                return

    async def _hand_over(self) -> None:
        """Let another node lead before this one is gone; clients are sent there."""
        until_s = asyncio.get_running_loop().time() + HAND_OVER_S_MAX
        self.raft_log.tell(HandOver())
        while self.raft_log.core.leads and asyncio.get_running_loop().time() < until_s:
            await asyncio.sleep(LOOK_AGAIN_S)

    async def stop(self) -> None:
        """Take no more, answer what was taken, write everything down, close."""
        logger.info("stopping: what was taken is answered")
        if self._peers is not None:
            await self._hand_over()
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        ports: list[TcpListener[Any]] = [self._tcp, *self._taskflux]
        for port in ports:
            port.stop_reading()
        self._connect.stop_reading()
        if self._monique is not None:
            self._monique.stop_reading()
        await self._answer_all()
        await asyncio.gather(*(port.close() for port in ports))
        await self._answer_all()  # what lost its connection by that has given back what it held
        self._admin.stop()
        await self._web.close()
        if self._peers is not None:
            await self._peers.close()
        assert self.failed is not None, "started"
        if not self.failed.done():
            await self._flush()
        await self._close_files(committed=0 if self.failed.done() else self.queues.flushed_index)

    async def _close_files(self, *, committed: int = 0) -> None:
        self.runtime.close()
        for thread in self._threads:
            await asyncio.to_thread(thread.close)
        if committed:
            self.files.metadata.save(committed=committed)
        self.files.close()


def bracketed(host: str) -> str:
    """Return a host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def run(settings: Settings, load: Callable[[], Settings]) -> int:
    """Run a broker until it is told to stop; return its exit status.  `load` reads the settings again for SIGHUP."""
    _set_up_process(settings)
    logging.getLogger("wakeq.runtime").addFilter(_without_traceback)
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        import uvloop

        return uvloop.run(_serve(_with_files(settings), lambda: _with_files(load())))
    except WakeqError as error:
        print(f"wakeq: {error}", file=sys.stderr)
        return error.exit_status


def _set_up_process(settings: Settings) -> None:
    log_to_stderr(settings.logging.level, settings.logging.format)
    sys.setswitchinterval(settings.switch_interval_s)


def _with_files(settings: Settings) -> Settings:
    """Return the settings with no more connections than files can be open."""
    connections_max = _raise_file_limit(settings.connections_max)
    if connections_max < settings.connections_max:
        logger.warning("the limit of open files allows %d connections; raise it (ulimit -n)", connections_max)
    return dataclasses.replace(settings, connections_max=connections_max)


def _raise_file_limit(connections: int) -> int:
    """Ask for as many files as connections need; return how many connections that leaves, the disk's files apart."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + FILES_APART
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == resource.RLIM_INFINITY else max(1, min(connections, soft - FILES_APART))


def _without_traceback(record: logging.LogRecord) -> bool:
    """What a disk or a user did is told in one line; only a bug needs its traceback."""
    if record.exc_info and isinstance(record.exc_info[1], WakeqError):
        record.exc_info = None
    return True


async def _serve(settings: Settings, load: Callable[[], Settings]) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    systemd = Systemd(os.environ)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, number, stopping, systemd)
    while True:
        node = Node(settings)
        loop.add_signal_handler(signal.SIGHUP, _reload, node, load, systemd)
        addresses = await node.start()
        gc.freeze()
        identity = node.files.directory.identity
        logger.info("node %d of cluster %s is up: %s", identity.node_id, identity.cluster_id.hex(), addresses)
        doors = " ".join(f"{door}={address}" for door, address in addresses.items())
        print(f"wakeq ready {doors}", flush=True)
        systemd.ready(doors)
        systemd.keep_watch(loop)
        status = await _until_over(node, stopping)
        if status is not None:
            return status
        settings = _at(node.settings, addresses)  # begin again, with the same ports


async def _until_over(node: Node, stopping: asyncio.Event) -> int | None:
    """Wait for the end of a node; return its status, None if it is to begin again with another state."""
    assert node.failed is not None, "started"
    told: asyncio.Future[Any] = asyncio.ensure_future(stopping.wait())
    await asyncio.wait([told, node.failed], return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    failure = node.failed.result() if node.failed.done() else None
    if failure is None or isinstance(failure, StateReplaced):
        await node.stop()
        failure = failure or (node.failed.result() if node.failed.done() else None)
    if isinstance(failure, StateReplaced):
        return 0 if stopping.is_set() else None
    return 0 if failure is None else _broken(failure)


def _at(settings: Settings, addresses: dict[str, str]) -> Settings:
    """Return the settings with the ports that were taken, so that whoever was told them finds them again."""
    ports = {f"{door}_port": int(addresses[door].rpartition(":")[2]) for door in ("worker", "http", "taskflux")}
    for door in addresses.keys() - {"worker", "http", "taskflux", "peer"}:
        ports["taskflux_other_port"] = int(addresses[door].rpartition(":")[2])
    return dataclasses.replace(settings, **ports)  # type: ignore[arg-type]


def _on_signal(number: int, stopping: asyncio.Event, systemd: Systemd) -> None:
    """The first signal stops cleanly, the second at once."""
    if stopping.is_set():
        os._exit(128 + number)
    stopping.set()
    systemd.stopping()


def _reload(node: Node, load: Callable[[], Settings], systemd: Systemd) -> None:
    def take(settings: Settings) -> None:
        node.reload(settings)
        _set_up_process(settings)

    systemd.reloading()
    reload(node.settings, load, take)
    systemd.tell("READY=1")


def _broken(error: BaseException) -> int:
    """Say what ended the node.  Nothing is written any more: what a failed disk holds cannot be known."""
    status = error.exit_status if isinstance(error, WakeqError) else BUG_STATUS
    hint = "" if isinstance(error, StorageError) else "; this is a bug, the log above says where"
    print(f"wakeq: {type(error).__name__}: {error}{hint}", file=sys.stderr, flush=True)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(status)
