"""Node: builds and connects every object that lives as long as a broker, and takes them down again.

    settings --> files, threads, actors, listeners --> addresses by door ... --> an orderly shutdown, or a failure

Nothing else builds them.  It knows no rule of queues and no byte of a protocol.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any, NamedTuple

from wakeq.actors.log.raft_log import RaftLog
from wakeq.actors.mail import HandOver, Propose
from wakeq.actors.queues.flush import FLUSH_AFTER_MS, FLUSH_BYTES
from wakeq.actors.queues.supervisor import Queues
from wakeq.actors.queues.supervisor import Settings as QueuesSettings
from wakeq.actors.runtime import Runtime
from wakeq.actors.runtime.clock import Clock, SystemClock
from wakeq.actors.snapshots import CheckImage
from wakeq.config.settings import Settings
from wakeq.data.opening import DataFiles, open_all
from wakeq.net.listening import bound_socket
from wakeq.net.peer_tcp import Identity as PeerIdentity
from wakeq.net.peer_tcp import PeerTcp
from wakeq.node.assembly import Assembly, ClusterSetup, Environment
from wakeq.node.clock import NodeClock
from wakeq.node.cluster_plan import ClusterPlan, check_single, plan_of
from wakeq.node.headroom import Headroom
from wakeq.node.listeners import Listeners, ListenerServices, bracketed
from wakeq.node.node_addresses import NodeAddresses
from wakeq.node.security import Security
from wakeq.protocol.catalog import Policies
from wakeq.protocol.clock import HEARTBEAT_MS
from wakeq.protocol.errors import StorageError
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.ledger.publishers import Limits
from wakeq.protocol.raft.membership import LEVEL
from wakeq.protocol.raft.settings import Settings as RaftSettings
from wakeq.protocol.wire.peer.frames import MARK, Hello, split_address
from wakeq.storage.directory import is_empty
from wakeq.storage.log.journal import Keep
from wakeq.storage.log.segmented_log import SEGMENT_BYTES_MAX
from wakeq.storage.log.sync_watch import SyncWatch
from wakeq.storage.series_file import SeriesFile
from wakeq.storage.state.environment import give_freed_back
from wakeq.storage.thread import Disk, DiskThread

# How long commands that were read before a shutdown get to be executed and answered.
ANSWER_S_MAX = 10.0
# How long the transfer of leadership may take before a shutdown.
TRANSFER_S_MAX = 2.0
POLL_S = 0.001
READER_CHECK_S = 10.0
HEARTBEATS_PER_ELECTION = 10
# Bytes written to the log after which freed memory is returned to the system.
TRIM_AFTER_BYTES = 32 << 20
# Bytes by which the log must grow before a snapshot is written; more if there is more live data.
SNAPSHOT_BYTES_MIN = 64 << 20
# Bytes written to the log after which an idle state store returns its memory.
REST_AFTER_BYTES = 4 << 20

logger = logging.getLogger("wakeq.node")


class Sizes(NamedTuple):
    """Amounts after which a node writes something new.  Only tests and measurements choose other sizes."""

    # Of the log.
    segment_bytes_max: int = SEGMENT_BYTES_MAX
    snapshot_bytes_min: int = SNAPSHOT_BYTES_MIN
    flush_after_ms: int = FLUSH_AFTER_MS
    flush_bytes: int = FLUSH_BYTES


class Node:
    """A broker on a running event loop: `start`, then `stop`."""

    def __init__(self, settings: Settings, clock: Clock | None = None, sizes: Sizes = Sizes()) -> None:  # noqa: B008
        self.settings = settings
        self._sizes = sizes
        self.clock = clock or SystemClock()
        self.runtime = Runtime()
        self.security = Security(settings, self.clock.wall_ms, self.runtime.rounds)
        # Set by `start`; its result is the error that ended an essential actor.
        self.failed: asyncio.Future[Any] | None = None
        # None until the ports are bound.
        self.listeners: Listeners | None = None
        # Built by `start`, in this order.
        self.files: DataFiles
        self.assembly: Assembly
        self.raft_log: RaftLog
        self.queues: Queues
        self._time: NodeClock
        self._headroom: Headroom
        # Closed after the actors, which wait for them.
        self._threads: list[DiskThread] = []
        self._sync_watch = SyncWatch()
        # Ends a check of the snapshot that may still run, and returns its thread.
        self._end_check: Callable[[], Disk | None] = lambda: None
        self._heartbeat: asyncio.TimerHandle | None = None
        # Counted to check the readers of the state store now and then.
        self._beats = 0
        # Bytes written to the log when the state store, and when the whole process, last returned memory.
        self._rested_bytes = self._trimmed_bytes = 0
        # None for a single node, as are the peers and their port.
        self._plan = plan_of(settings, self.security.peer_tls, self.security.cluster_secret)
        self._peers: PeerTcp | None = None
        self._peer_port: socket.socket | None = None
        self._addresses = NodeAddresses(None if self._plan is None else self._plan.node_id)

    # --- start -----------------------------------------------------------------------------------------------------

    async def start(self) -> dict[str, str]:
        """Open the files, recover, open the doors; return the addresses by door."""
        loop = asyncio.get_running_loop()
        self.failed = loop.create_future()
        self.runtime.attach(loop)
        settings, plan = self.settings, self._plan
        new = await plan.identity() if plan is not None and is_empty(settings.data_dir) else None
        self.files = open_all(
            settings.data_dir,
            upgrade=settings.upgrade,
            segment_bytes_max=self._sizes.segment_bytes_max,
            keep=Keep(settings.journal.keep_s, settings.journal.keep_bytes),
            node_id=None if plan is None else plan.node_id,
            new=new,
        )
        try:
            if plan is None:
                self._sync_watch.start()
            self._build(loop, self.files)
            core = self.raft_log.core
            if plan is None:
                check_single(settings.data_dir, core.members)
            else:
                plan.check_data(
                    settings.data_dir, self.files.directory.identity, core.members.config, core.log.last_index
                )
            listeners = await self._bind(plan)
            await self._recover()
            if plan is not None:
                return await self._join_cluster(plan, listeners)
            await self._lead()
            addresses = await listeners.open()
            self._beat()
            return addresses
        except BaseException:
            if self.listeners is not None:
                await self.listeners.abort()
            if self._peer_port is not None:
                self._peer_port.close()
            await self._close_files()
            raise

    def _thread(self, name: str) -> DiskThread:
        loop = asyncio.get_running_loop()
        thread = DiskThread(name, loop.call_soon_threadsafe)
        self._threads.append(thread)
        return thread

    def _build(self, loop: asyncio.AbstractEventLoop, files: DataFiles) -> None:
        """Build the actors; none of them has mail yet."""
        settings, dedup = self.settings, self.settings.dedup
        time = self._time = NodeClock(
            self.clock, self.runtime, files.store.applied().clock_ms, files.metadata.state.clock
        )
        self.assembly = Assembly(
            self.runtime,
            files.durable,
            Environment(
                now_ms=time.now_ms,
                stamp_ms=time.stamp_ms,
                behind_ms=time.behind_ms,
                call_later=loop.call_later,
                new_disk=self._thread,
                new_snapshot_disk=lambda: DiskThread("wakeq-snapshot", loop.call_soon_threadsafe),
                failed=self._fail,
                check_room=lambda: self._headroom.tick(),
                free_bytes=files.directory.free_bytes,
                image_room_bytes=lambda: self._headroom.image_room_bytes(),
                sync_watch=self._sync_watch,
            ),
            QueuesSettings(
                Limits(dedup.ids_max, dedup.window_s * 1000),
                self._sizes.flush_after_ms,
                self._sizes.flush_bytes,
                settings.queue.policies(),
                None if settings.queue.policies() == Policies() else settings.queue.policies(),
                settings.metrics.series_queues_max,
            ),
            snapshot_bytes_min=self._sizes.snapshot_bytes_min,
            cluster=self._make_peers(files),
        )
        self.raft_log, self.queues = self.assembly.raft_log, self.assembly.queues
        self._headroom = Headroom(
            files, self.assembly, node_bytes_max=settings.node_bytes_max, queues_max=settings.queues_max
        )

    def _make_peers(self, files: DataFiles) -> ClusterSetup | None:
        """Build the door to the other nodes; none is dialled yet."""
        plan = self._plan
        if plan is None:
            return None
        identity, metadata = files.directory.identity, files.metadata

        def hello() -> Hello:
            me = identity.cluster_id, identity.node_id, metadata.state.disk_id, metadata.state.incarnation
            return Hello(MARK, LEVEL, LEVEL, *me, self._addresses.own)

        self._peers = PeerTcp(
            PeerIdentity(hello, plan.secret, plan.tls, plan.address_of),
            lambda introduced: self.raft_log.tell(introduced),
        )
        election_ms = self.settings.cluster.election_ms
        return ClusterSetup(
            plan.initial(),
            self._dial,
            self._time,
            RaftSettings(election_ms, election_ms // HEARTBEATS_PER_ELECTION),
        )

    async def _join_cluster(self, plan: ClusterPlan, listeners: Listeners) -> dict[str, str]:
        """Open all doors, then take part in elections; do not wait for a leader."""
        assert self._peers is not None, "built by _build"
        assert self._peer_port is not None, "bound by _bind"
        addresses = await listeners.open()
        self._addresses.open(addresses, bracketed(plan.own_host), self.settings.cluster.worker_address)
        self.assembly.begin()
        await self._peers.start(self._peer_port)
        self._beat()
        return addresses | {"peer": plan.addresses[plan.node_id]}

    def _dial(self, node_id: int, address: str) -> None:
        """Keep a connection to a node; if the log has no address of a node that recovered alone, use the settings'."""
        assert self._peers is not None, "built by _build"
        assert self._plan is not None, "only nodes of a cluster have peers"
        address = address or self._plan.address_of(node_id)
        if address:
            self._peers.dial(node_id, split_address(address))

    async def _recover(self) -> None:
        """Load the state from the store, then apply the log from there."""
        behind = self.files.log.last_index - self.files.store.applied().log_index
        # In a cluster these entries need not be committed; a single node has none after an orderly shutdown.
        if behind > 0 and self._peers is None:
            logger.info("applying %d entries of the log that are not in the state yet, as after a crash", behind)
        for _ in self.assembly.recover():
            await self._turn()
        self._time.begin(self.assembly)
        directory = self.files.directory
        self.assembly.begin_series(SeriesFile(directory.path, directory.identity))
        self._end_check = self.assembly.snapshots.end_check
        self.assembly.snapshots.tell(CheckImage())

    async def _turn(self) -> None:
        """Let the actors take a turn; raise the failure of an essential one."""
        await asyncio.sleep(0)
        assert self.failed is not None, "started"
        if self.failed.done():
            raise self.failed.result()

    async def _lead(self) -> None:
        self._time.lead([])
        for _ in self.assembly.lead():
            await self._turn()
        if self.files.imported is not None:
            await self._import()

    async def _import(self) -> None:
        """Propose the queues and messages of version 1 like any others, and finish once they are in the state store."""
        from wakeq.data.import_version1 import entries_of

        assert self.files.imported is not None, "the caller has checked it"
        for entry in entries_of(self.files.imported):
            self.raft_log.tell(Propose([Proposal(entry)]))
            await self._turn()
        await self._flush()
        self.files.directory.finish_import()

    async def _bind(self, plan: ClusterPlan | None) -> Listeners:
        """Bind all ports before this node leads or contacts peers: it does neither while clients cannot reach it."""
        services = ListenerServices(
            self.assembly,
            self.files,
            self.security,
            self._addresses,
            now_ms=self._time.now_ms,
            clock_step_ms=self._time.step_ms,
            publishes_refused=lambda: self._headroom.is_used_up,
            failed=self._fail,
        )
        self.listeners = Listeners(self.settings, services)
        await self.listeners.bind()
        if plan is not None:
            self._peer_port = await bound_socket(*plan.listens_at(self.settings.host))
        return self.listeners

    # --- while it runs ---------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        """Do the periodic work: read the clock, check the disk, tick security, peers and MoniQue, return memory."""
        self._heartbeat = asyncio.get_running_loop().call_later(HEARTBEAT_MS / 1000, self._beat)
        self._time.now_ms()
        self._report_clock_step()
        try:
            self._headroom.tick()
        except StorageError as error:
            self._fail(error)
        self.security.tick()
        if self._peers is not None:
            self._peers.tick()
        if self.listeners is not None:
            self.listeners.monique.tick()
        self._return_memory()
        self._beats += 1
        if self._beats % int(READER_CHECK_S * 1000 / HEARTBEAT_MS) == 0:
            self.assembly.reader_disk.submit(self.files.store.reader_check, self._reader_checked)

    def _report_clock_step(self) -> None:
        """Log a difference between the cluster clock and the wall clock, if this node's clock is the cluster's."""
        if self.raft_log.refusal() is not None:
            return
        step_ms = self._time.take_step_ms()
        if step_ms is None:
            return
        logger.warning(
            "the wall clock is %d ms %s the cluster clock, which catches up by 1 %% of the time that passes%s",
            abs(step_ms),
            "ahead of" if step_ms > 0 else "behind",
            "; delays, timeouts and expiries that a pause has held up end late until then" if step_ms > 0 else "",
        )

    def reload(self, settings: Settings) -> None:
        """Use other settings while running; only those that can be reloaded differ."""
        self.security.reload(settings)
        self._headroom.node_bytes_max = settings.node_bytes_max
        self._headroom.queues_max = settings.queues_max
        if self.listeners is not None:
            self.listeners.reload(settings)
        if self.files.log.journal is not None:
            self.files.log.journal.keep = Keep(settings.journal.keep_s, settings.journal.keep_bytes)
        self.settings = settings

    def _return_memory(self) -> None:
        """Return the memory that much writing has left behind, preferably when there is nothing left to write."""
        written_bytes = self.files.log.written_bytes
        if not self.queues.unflushed_bytes and written_bytes - self._rested_bytes > REST_AFTER_BYTES:
            before, self._rested_bytes = self._rested_bytes, written_bytes
            self._trimmed_bytes = written_bytes
            release_memory = self.files.store.release_memory
            self.assembly.state_disk.submit(release_memory, lambda result: self._rested(result, before))
        elif written_bytes - self._trimmed_bytes > TRIM_AFTER_BYTES:
            self._trimmed_bytes = written_bytes
            self.assembly.reader_disk.submit(give_freed_back, lambda _: None)

    def _rested(self, result: bool | BaseException, before_bytes: int) -> None:
        if isinstance(result, BaseException):
            self._fail(result)
        elif not result:
            # A reader was using the state; the next beat tries again.
            self._rested_bytes = before_bytes

    def _reader_checked(self, result: int | BaseException) -> None:
        if isinstance(result, BaseException):
            self._fail(result)

    def _fail(self, error: BaseException) -> None:
        if self.failed is not None and not self.failed.done():
            self.failed.set_result(error)

    # --- shutdown --------------------------------------------------------------------------------------------------

    async def _flush(self) -> None:
        """Write every committed entry to the state store."""
        flushed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.queues.flush_now(lambda: flushed.set_result(None) if not flushed.done() else None)
        assert self.failed is not None, "started"
        await asyncio.wait([flushed, self.failed], return_when=asyncio.FIRST_COMPLETED)

    async def _write_series(self) -> None:
        """Write what the charts show, so that they go on after a restart."""
        written: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.queues.sampler.write(lambda: written.set_result(None) if not written.done() else None)
        assert self.failed is not None, "started"
        await asyncio.wait([written, self.failed], return_when=asyncio.FIRST_COMPLETED)

    async def _answer_all(self) -> None:
        """Wait until every command that was read is executed and answered, except those that wait for something."""
        assert self.failed is not None, "started"
        until_s = asyncio.get_running_loop().time() + ANSWER_S_MAX
        while not (self.runtime.idle and self.raft_log.at_rest) and asyncio.get_running_loop().time() < until_s:
            await asyncio.sleep(POLL_S)
            if self.failed.done():
                return

    async def stop(self) -> None:
        """Accept no more commands, answer those that were read, flush the state, close."""
        assert self.listeners is not None, "started"
        assert self.failed is not None, "started"
        logger.info("shutting down: finishing accepted requests")
        if self._peers is not None:
            # Another node should lead before this one ends, which tells its clients to connect there.
            until_s = asyncio.get_running_loop().time() + TRANSFER_S_MAX
            self.raft_log.tell(HandOver())
            while self.raft_log.core.leads and asyncio.get_running_loop().time() < until_s:
                await asyncio.sleep(POLL_S)
        await self.listeners.send_away()
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self.listeners.stop_reading()
        await self._answer_all()
        await self.listeners.close_tcp()
        # Sessions that lost their connection have released their leases meanwhile.
        await self._answer_all()
        await self.listeners.close_web()
        if self._peers is not None:
            await self._peers.close()
        if not self.failed.done():
            await self._flush()
            await self._write_series()
        await self._close_files(committed=0 if self.failed.done() else self.queues.flushed_index)
        logger.info("stopped")

    async def _close_files(self, *, committed: int = 0) -> None:
        self.runtime.close()
        self._sync_watch.close()
        for thread in (self._end_check(), *self._threads):
            if thread is not None:
                await asyncio.to_thread(thread.close)
        try:
            if committed:
                self.files.metadata.save(committed=committed, acknowledged=self.raft_log.core.acknowledged.told())
                # Without room for a footer, sealing would turn an orderly shutdown into a failure.
                if not self.files.directory.check_space():
                    await asyncio.to_thread(self.files.log.seal_for_start, committed)
        finally:
            self.files.close()
