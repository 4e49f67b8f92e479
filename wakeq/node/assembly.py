"""Assembly: the actors of a broker, built on its files and brought up to date.

    files, environment --> Timers, RaftLog, Queues, Snapshots --> recover() --> the state as it was --> lead()

Time, disks and the report of a failure come from outside: a node passes those of its event loop, a test its own.  The
assembly opens no file, starts no thread and never waits: its caller lets the actors take their turns.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from wakeq.actors.log.images import Images
from wakeq.actors.log.members import Neighbours, SharedClock
from wakeq.actors.log.peer import Peer
from wakeq.actors.log.raft_log import RaftLog
from wakeq.actors.log.writer import LogServices
from wakeq.actors.mail import Committed, Loaded, LogItem, Started
from wakeq.actors.queue.reading import QueueProcessServices
from wakeq.actors.queues.flush import StateFiles
from wakeq.actors.queues.lobby import Lobby
from wakeq.actors.queues.readings import Readings
from wakeq.actors.queues.supervisor import Queues, Settings
from wakeq.actors.runtime import Down, Process, Runtime, Timers
from wakeq.actors.runtime.clock import elapsed_ms
from wakeq.actors.runtime.timers import Wake
from wakeq.actors.snapshots import Snapshots
from wakeq.data.opening import DurableFiles
from wakeq.protocol.clock import Mark, span_on
from wakeq.protocol.errors import DamagedFile
from wakeq.protocol.log.entries import Kind, Members, SetAside
from wakeq.protocol.log.reader import decode_entry
from wakeq.protocol.queue.ledger.ledger import Totals
from wakeq.protocol.queue.timings import Timings
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.log_view import LogView
from wakeq.protocol.raft.membership import Config, check_level, config_of
from wakeq.protocol.raft.messages import Append, HardState
from wakeq.protocol.raft.settings import Me
from wakeq.protocol.raft.settings import Settings as RaftSettings
from wakeq.storage.log.sync_watch import SyncWatch
from wakeq.storage.series_file import SeriesFile
from wakeq.storage.state.checkpoint import load_members, load_queues, load_skipped
from wakeq.storage.thread import Disk

UNBOUNDED_BYTES = 1 << 62
# The number of entries that are applied before any other actor has its turn.
REPLAY_BATCH = 2_048

CallLater = Callable[[float, Callable[[], None]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Everything that the actors need from outside.

    `new_disk` is given a thread name; such a disk lives as long as the assembly.  A snapshot's disk is closed by the
    actor that asked for it.
    """

    now_ms: Callable[[], int]
    # The same clock, rounded up: a stamp is never before the true moment.
    stamp_ms: Callable[[], int]
    call_later: CallLater
    new_disk: Callable[[str], Disk]
    new_snapshot_disk: Callable[[], Disk]
    failed: Callable[[BaseException], None]
    check_room: Callable[[], None] = lambda: None
    # The room on the disk for an image; called from any thread.
    image_room_bytes: Callable[[], int] = lambda: UNBOUNDED_BYTES
    # The free bytes of the disk.
    free_bytes: Callable[[], int] = lambda: UNBOUNDED_BYTES
    # How far the cluster clock still has to catch up.
    behind_ms: Callable[[], int] = lambda: 0
    monotonic_ms: Callable[[], int] = elapsed_ms
    chance: Callable[[], float] = random.random
    sync_watch: SyncWatch = field(default_factory=SyncWatch)


@dataclass(frozen=True, slots=True)
class ClusterSetup:
    """What a node of a cluster needs beyond a single one: the first members, and a way to reach another node.

    `initial` counts only until the log names the members.
    """

    initial: Config
    dial: Callable[[int, str], None]
    clock: SharedClock
    settings: RaftSettings


class RestartWithNewState(Exception):
    """Not a failure: the node must restart with the state that its leader has sent, or that it rebuilds itself."""


class FailureMonitor(Process):
    """Monitors the actors that a broker cannot do without, and reports the first one that ends."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        super().__init__()
        self._failed = failed

    def on_receive(self, message: Any) -> None:
        if isinstance(message, Down):
            self._failed(message.reason or RuntimeError(f"{message.tag} ended"))


class Assembly:
    """The actors of one broker, from its start to its end."""

    def __init__(
        self,
        runtime: Runtime,
        files: DurableFiles,
        environment: Environment,
        settings: Settings,
        *,
        snapshot_bytes_min: int,
        cluster: ClusterSetup | None = None,
    ) -> None:
        self.runtime = runtime
        self.files = files
        # The last moment that the log knows.
        self.clock_ms = files.store.applied().clock_ms
        self._environment = environment
        self._cluster = cluster
        self.reader_disk = environment.new_disk("wakeq-reader")
        self.state_disk = environment.new_disk("wakeq-state")
        self._log_disk = environment.new_disk("wakeq-log")
        # The members of the cluster since each entry that changed them, as far back as the log reaches.
        self._configs = self._load_configs()
        # The last entry that is known to be committed; every entry of a single node is.
        self._committed = self._last_committed()
        self.timers = runtime.spawn(Timers, environment.now_ms, environment.call_later)
        self.raft_log = self._spawn_raft_log()
        self.snapshots = runtime.spawn(
            Snapshots,
            files.snapshot_path,
            files.identity,
            files.store,
            files.log,
            self.raft_log,
            environment.new_snapshot_disk,
            environment.image_room_bytes,
            snapshot_bytes_min,
        )
        self.images = runtime.spawn(
            Images,
            files.snapshot_path,
            files.identity,
            self.snapshots,
            environment.new_snapshot_disk,
            environment.image_room_bytes,
            environment.call_later,
        )
        self.images.begin(self.raft_log)
        self.lobby = Lobby(runtime)
        # Of all queues together.
        self.timings = Timings()
        self.queues = self._spawn_queues(settings)
        self._monitor()

    def _spawn_raft_log(self) -> RaftLog:
        files, environment, cluster = self.files, self._environment, self._cluster
        services = LogServices(
            log=files.log,
            metadata=files.metadata,
            disk=self._log_disk,
            stamp_ms=environment.stamp_ms,
            behind_ms=environment.behind_ms,
            call_later=environment.call_later,
            check_room=environment.check_room,
            state_disk=self.state_disk,
            monotonic_ms=environment.monotonic_ms,
            sync_watch=environment.sync_watch,
        )
        neighbours = None
        if cluster is not None:
            neighbours = Neighbours(
                new_peer=self._spawn_peer,
                dial=cluster.dial,
                clock=cluster.clock,
                start_again=lambda: environment.failed(RestartWithNewState("the state on disk will be replaced")),
            )
        return self.runtime.spawn(RaftLog, self._make_core(), services, neighbours)

    def _make_core(self) -> Core:
        """Build the consensus core from the files."""
        files, cluster = self.files, self._cluster
        log, metadata, me = files.log, files.metadata, files.identity.node_id
        previous = log.first_index - 1
        return Core(
            Me(me, metadata.state.disk_id, metadata.begin_incarnation(self._environment.now_ms())),
            HardState(metadata.state.term, metadata.state.vote),
            LogView(previous, log.term_at(previous) or 0, log.runs, log.last_index, log.size_bytes),
            self._configs,
            committed=self._committed,
            settings=RaftSettings() if cluster is None else cluster.settings,
            chance=self._environment.chance,
            now_ms=self._environment.monotonic_ms(),
            acknowledged=metadata.state.acknowledged,
        )

    def _last_committed(self) -> int:
        files = self.files
        voters = [member.node_id for member in self._configs[-1][1].members if member.voter]
        if voters == [files.identity.node_id]:
            return files.log.last_index
        return max(files.metadata.state.committed, files.store.applied().log_index)

    def _load_configs(self) -> list[tuple[int, Config]]:
        """Return the members since each entry that changed them, from the state store and the log."""
        files = self.files
        with files.store.read() as view:
            configs = load_members(view)
        # The log reaches back to before its first change of members.
        if not configs or configs[0][0] >= files.log.first_index:
            alone = config_of([files.identity.node_id])
            configs.insert(0, (0, alone if self._cluster is None else self._cluster.initial))
        while len(configs) > 1 and configs[1][0] < files.log.first_index:
            del configs[0]
        for index, _term, payload in files.log.entries(files.store.applied().log_index + 1):
            if payload[1] == Kind.MEMBERS:
                entry, _at_ms = decode_entry(payload)
                assert isinstance(entry, Members), "of that kind"
                configs.append((index, entry.config))
        check_level(configs[-1][1], files.log.directory)
        return configs

    def _spawn_peer(self, node_id: int) -> Peer:
        """Start the actor of another node; it reads entries that the node lacks on the same disk as message bodies."""
        log, disk = self.files.log, self.reader_disk

        def read(append: Append, done: Callable[[list[bytes] | None], None]) -> None:
            def work() -> list[bytes] | None:
                try:
                    found = list(log.entries(append.prev_index + 1, append.last_index))
                except (LookupError, DamagedFile):
                    # The entries were truncated meanwhile; real damage shows at the next start.
                    return None
                return [payload for _, _, payload in found] if _match(append, found) else None

            def read_done(result: list[bytes] | BaseException | None) -> None:
                if isinstance(result, BaseException):
                    self._environment.failed(result)
                else:
                    done(result)

            disk.submit(work, read_done)

        return self.runtime.spawn(Peer, node_id, self.files.identity.node_id, self.raft_log, self.images, read)

    def _spawn_queues(self, settings: Settings) -> Queues:
        files, environment = self.files, self._environment
        services = QueueProcessServices(
            raft_log=self.raft_log,
            timers=self.timers,
            now_ms=environment.now_ms,
            due_ms=lambda delay_ms: environment.stamp_ms() + span_on(environment.behind_ms(), delay_ms),
            load=self._load,
            later=environment.call_later,
            chance=environment.chance,
            refusal=self.raft_log.refusal,
            waits_since_ms=self.raft_log.waits_since_ms,
            free_bytes=environment.free_bytes,
            lobby=self.lobby,
            readings=Readings(),
            timings=self.timings,
            sums=Totals(),
            is_catching_up=lambda: self._cluster is not None and self.raft_log.is_catching_up,
            exists=lambda name: self.queues.exists(name),
            is_dead_letter=lambda name: self.queues.catalog.is_dead_letter(name),
            defaults=settings.created,
        )
        applied = files.store.applied()
        return self.runtime.spawn(
            Queues,
            StateFiles(files.store, files.log, self.state_disk),
            services,
            settings,
            (applied.log_index, applied.term, applied.clock_ms),
            self.snapshots,
        )

    def _monitor(self) -> None:
        monitor = self.runtime.spawn(FailureMonitor, self._environment.failed)
        essential = {"log": self.raft_log, "queues": self.queues, "timers": self.timers, "snapshots": self.snapshots}
        essential["images"] = self.images
        for name, process in essential.items():
            self.runtime.monitor(monitor, process, f"the process of the {name}")
            self.runtime.register(process)

    def _load(self, process: Process, numbers: list[int], keys: list[bytes], ticket: Any) -> None:
        """Read bodies on the reader's disk and send them to the process."""
        store = self.files.store

        def done(result: list[bytes | None] | BaseException) -> None:
            if isinstance(result, BaseException):
                self._environment.failed(result)
            else:
                process.tell(Loaded(numbers, result, ticket))

        self.reader_disk.submit(lambda: store.get_many(keys), done)

    # Requests of the clock --------------------------------------------------------------------------------------

    def keep_clock(self, mark: Mark) -> None:
        """Write the mark of the clock before any entry that is appended from now on."""

        def written(result: object) -> None:
            if isinstance(result, BaseException):
                self._environment.failed(result)

        self._log_disk.submit(lambda: self.files.metadata.keep_clock(mark), written)

    def wake_timers(self) -> None:
        """Tell the timers that the clock was set: they must find out again which of them are due."""
        self.timers.tell(Wake())

    # Recovery ---------------------------------------------------------------------------------------------------

    def recover(self) -> Iterator[None]:
        """Load the state from the store and apply the log from there; the actors take their turns at each yield."""
        files, queues = self.files, self.queues
        with files.store.read() as view:
            for stored in load_queues(view):
                queues.restore(stored)
            queues.restore_skipped(load_skipped(view))
            queues.restore_members(load_members(view))
        first_index = files.store.applied().log_index + 1
        queues.foresee(self._skips_from(first_index))
        items: list[LogItem] = []
        for index, term, payload in files.log.entries(first_index):
            entry, at_ms = decode_entry(payload)
            self.clock_ms = max(self.clock_ms, at_ms)
            item = LogItem(index, term, at_ms, entry)
            if index > self._committed:
                self.raft_log.restore(item)
            else:
                items.append(item)
            if len(items) == REPLAY_BATCH:
                yield from self._replay(items)
                items = []
        yield from self._replay(items)

    def _skips_from(self, first_index: int) -> list[SetAside]:
        """Return the entries that make the nodes skip another one at or after `first_index`.

        Replay must know them in advance, so that no queue meets an entry that crashes it.  Of an earlier skipped entry
        the store says whether the state contains it.
        """
        payloads = (payload for _, _, payload in self.files.log.entries(first_index, self._committed))
        skips = (decode_entry(payload)[0] for payload in payloads if payload[1] == Kind.SET_ASIDE)
        return [entry for entry in skips if isinstance(entry, SetAside) and entry.index >= first_index]

    def _replay(self, items: list[LogItem]) -> Iterator[None]:
        """Apply entries; those behind a halted queue have to wait until some node leads."""
        if items:
            self.queues.tell(Committed(items))
            yield
            while self.queues.applied[0] < items[-1].index and not self.queues.is_halted:
                yield

    def begin_series(self, file: SeriesFile) -> None:
        """Keep the figures of the node and of queues over time, in this file."""
        self.queues.sampler.begin(file, self._environment.new_disk("wakeq-series"))

    def begin(self) -> None:
        """Start the consensus, for a single node or in the cluster."""
        self.raft_log.tell(Started(self.queues, self.images))

    def lead(self) -> Iterator[None]:
        """Start as a single node; done once a term is open, the queues may deliver, and the log knows it."""
        self.begin()
        while self.raft_log.refusal() is not None:
            yield


def _match(append: Append, found: Sequence[tuple[int, int, bytes]]) -> bool:
    """Whether the entries read are exactly those that a message names, and none has been replaced meanwhile."""
    terms = dict(append.runs)
    term = 0
    for index, found_term, _payload in found:
        term = terms.get(index, term)
        if found_term != term:
            return False
    return len(found) == append.last_index - append.prev_index
