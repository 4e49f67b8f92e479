"""Assembly: the processes of a broker, made on its files and brought up to date, whoever drives them.

    files, surroundings --> Timers, RaftLog, Queues, Snapshots --> recover() --> the state as it was --> lead()

Time, disks and the way to say that something failed come in from outside: an event loop gives them to a node, a test
gives its own.  It opens no file, starts no thread, and never waits: whoever drives it lets the processes take their
turns.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wakeq.actors.log.files import LogServices
from wakeq.actors.log.neighbourhood import Neighbours, SharedClock
from wakeq.actors.log.peer import Peer
from wakeq.actors.log.raft_log import RaftLog
from wakeq.actors.log.transfer import Images
from wakeq.actors.mail import Committed, Item, Loaded, Started
from wakeq.actors.queue.reads import Services
from wakeq.actors.queues.registry import Settings
from wakeq.actors.queues.supervisor import Queues
from wakeq.actors.runtime import Down, Process, Runtime, Timers
from wakeq.actors.runtime.clock import elapsed_ms
from wakeq.actors.runtime.timers import Wake
from wakeq.actors.snapshots import Snapshots
from wakeq.protocol.clock import Mark, span_on
from wakeq.protocol.errors import DamagedFile
from wakeq.protocol.log.entries import Kind, Members, SetAside
from wakeq.protocol.log.format import Identity
from wakeq.protocol.log.reader import decode_entry
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.log_view import LogView
from wakeq.protocol.raft.membership import Config, check_level, config_of
from wakeq.protocol.raft.messages import Append, HardState
from wakeq.protocol.raft.settings import Me
from wakeq.protocol.raft.settings import Settings as RaftSettings
from wakeq.storage.log.metadata import Metadata
from wakeq.storage.log.segmented_log import SegmentedLog
from wakeq.storage.log.sync_watch import SyncWatch
from wakeq.storage.state.cut import load_members, load_queues, load_skipped
from wakeq.storage.state.store import Store
from wakeq.storage.thread import Disk

UNBOUNDED_BYTES = 1 << 62
REPLAY_BATCH = 2_048  # entries that are applied before anything else has its turn

CallLater = Callable[[float, Callable[[], None]], Any]


@dataclass(frozen=True, slots=True)
class Files:
    """What a broker must not lose.  Invariant: the log goes on where the state ends, or earlier."""

    identity: Identity
    metadata: Metadata
    log: SegmentedLog
    store: Store
    snapshot_path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the processes live in.  `new_disk` is given the name of the thread that it stands for.

    A disk for a snapshot is closed by whoever asked for it, the others live as long as the assembly.
    """

    now_ms: Callable[[], int]
    stamp_ms: Callable[[], int]  # the same, never before the true moment
    call_later: CallLater
    new_disk: Callable[[str], Disk]
    new_snapshot_disk: Callable[[], Disk]
    failed: Callable[[BaseException], None]
    look_for_room: Callable[[], None] = lambda: None
    image_room_bytes: Callable[[], int] = lambda: UNBOUNDED_BYTES  # on the disk, for an image; asked from any thread
    free_bytes: Callable[[], int] = lambda: UNBOUNDED_BYTES  # of the disk
    behind_ms: Callable[[], int] = lambda: 0  # how far the clock has still to lean forward
    monotonic_ms: Callable[[], int] = elapsed_ms
    chance: Callable[[], float] = random.random
    sync_watch: SyncWatch = field(default_factory=SyncWatch)


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a node of a cluster is told: who belonged to it at the beginning, and how to reach another node.

    `initial` counts only until the log says more.
    """

    initial: Config
    dial: Callable[[int, str], None]
    clock: SharedClock
    settings: RaftSettings


class StateReplaced(Exception):
    """Not a failure: the node begins again with the state that its leader has sent, or that it makes anew."""


class Guard(Process):
    """Watches what a broker cannot do without, and says what ended."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        super().__init__()
        self._failed = failed

    def on_receive(self, message: Any) -> None:
        if isinstance(message, Down):
            self._failed(message.reason or RuntimeError(f"{message.tag} ended"))


class Assembly:
    """The processes of one broker, from its start to its end.  `clock_ms` is the last moment that the log knows."""

    def __init__(
        self,
        runtime: Runtime,
        files: Files,
        around: Surroundings,
        settings: Settings,
        *,
        snapshot_bytes_min: int,
        cluster: Cluster | None = None,
    ) -> None:
        self.runtime = runtime
        self.files = files
        self.clock_ms = files.store.applied().clock_ms
        self._around = around
        self._cluster = cluster
        self.reader_disk = around.new_disk("wakeq-reader")
        self.state_disk = around.new_disk("wakeq-state")
        self.timers = runtime.spawn(Timers, around.now_ms, around.call_later)
        self.raft_log = self._spawn_raft_log()
        self.snapshots = runtime.spawn(
            Snapshots,
            files.snapshot_path,
            files.identity,
            files.store,
            files.log,
            self.raft_log,
            around.new_snapshot_disk,
            around.image_room_bytes,
            snapshot_bytes_min,
        )
        self.images = runtime.spawn(
            Images,
            files.snapshot_path,
            files.identity,
            self.snapshots,
            around.new_snapshot_disk,
            around.image_room_bytes,
            around.call_later,
        )
        self.images.begin(self.raft_log)
        self.queues = self._spawn_queues(settings)
        self._guard()

    def _spawn_raft_log(self) -> RaftLog:
        files, around, cluster = self.files, self._around, self._cluster
        self._log_disk = around.new_disk("wakeq-log")
        services = LogServices(
            log=files.log,
            metadata=files.metadata,
            disk=self._log_disk,
            stamp_ms=around.stamp_ms,
            behind_ms=around.behind_ms,
            call_later=around.call_later,
            look_for_room=around.look_for_room,
            others_write=lambda: self.state_disk.busy,
            monotonic_ms=around.monotonic_ms,
            sync_watch=around.sync_watch,
        )
        neighbours = None
        if cluster is not None:
            neighbours = Neighbours(
                new_peer=self._spawn_peer,
                dial=cluster.dial,
                clock=cluster.clock,
                start_again=lambda: around.failed(StateReplaced("the state on disk is to be another one")),
            )
        return self.runtime.spawn(RaftLog, self._make_core(), services, neighbours)

    def _make_core(self) -> Core:
        """Make the core from what is on disk; a lone node knows that all of its log is committed."""
        files, cluster = self.files, self._cluster
        log, metadata, me = files.log, files.metadata, files.identity.node_id
        configs = self._configs()
        is_lone = [member.node_id for member in configs[-1][1].members if member.voter] == [me]
        previous = log.first_index - 1
        self._committed = log.last_index if is_lone else max(metadata.state.committed, files.store.applied().log_index)
        return Core(
            Me(me, metadata.state.disk_id, metadata.begin_incarnation(self._around.now_ms())),
            HardState(metadata.state.term, metadata.state.vote),
            LogView(previous, log.term_at(previous) or 0, log.runs, log.last_index, log.size_bytes),
            configs,
            committed=self._committed,
            settings=RaftSettings() if cluster is None else cluster.settings,
            chance=self._around.chance,
            now_ms=self._around.monotonic_ms(),
            acknowledged=metadata.state.acknowledged,
        )

    def _configs(self) -> list[tuple[int, Config]]:
        """Return who belonged to the cluster since each entry that says so, as far back as the log goes."""
        files = self.files
        with files.store.read() as view:
            configs = load_members(view)
        if not configs or configs[0][0] >= files.log.first_index:  # before the first entry that says it
            alone = config_of([files.identity.node_id])
            configs.insert(0, (0, alone if self._cluster is None else self._cluster.initial))
        while len(configs) > 1 and configs[1][0] < files.log.first_index:
            del configs[0]
        for index, _term, payload in files.log.entries(files.store.applied().log_index + 1):
            if payload[1] == Kind.MEMBERS:
                entry, _at_ms = decode_entry(payload)
                assert isinstance(entry, Members), "its kind says so"
                configs.append((index, entry.config))
        check_level(configs[-1][1], files.log.directory)
        return configs

    def _spawn_peer(self, node_id: int) -> Peer:
        """Make the process of another node; entries that it lacks are read where bodies are read."""
        log, disk = self.files.log, self.reader_disk

        def read(append: Append, done: Callable[[list[bytes] | None], None]) -> None:
            def work() -> list[bytes] | None:
                try:
                    found = list(log.entries(append.prev_index + 1, append.last_index))
                except (LookupError, DamagedFile):  # cut off or taken back meanwhile; real damage shows at a start
                    return None
                return [payload for _, _, payload in found] if _are_those_of(append, found) else None

            def read_done(result: list[bytes] | BaseException | None) -> None:
                if isinstance(result, BaseException):
                    self._around.failed(result)
                else:
                    done(result)

            disk.submit(work, read_done)

        return self.runtime.spawn(Peer, node_id, self.files.identity.node_id, self.raft_log, self.images, read)

    def _spawn_queues(self, settings: Settings) -> Queues:
        files, around = self.files, self._around
        services = Services(
            raft_log=self.raft_log,
            timers=self.timers,
            now_ms=around.now_ms,
            due_ms=lambda delay_ms: around.stamp_ms() + span_on(around.behind_ms(), delay_ms),
            load=self._load,
            later=around.call_later,
            chance=around.chance,
            refusal=self.raft_log.refusal,
            waits_since_ms=self.raft_log.waits_since_ms,
            free_bytes=around.free_bytes,
        )
        applied = files.store.applied()
        return self.runtime.spawn(
            Queues,
            files.store,
            files.log,
            self.state_disk,
            services,
            settings,
            (applied.log_index, applied.term, applied.clock_ms),
            self.snapshots,
        )

    def _guard(self) -> None:
        guard = self.runtime.spawn(Guard, self._around.failed)
        essential = {"log": self.raft_log, "queues": self.queues, "timers": self.timers, "snapshots": self.snapshots}
        essential["images"] = self.images
        for name, process in essential.items():
            self.runtime.monitor(guard, process, f"the process of the {name}")

    def _load(self, process: Process, numbers: list[int], keys: list[bytes], ticket: Any) -> None:
        """Have bodies read; they come to the process by mail."""
        store = self.files.store

        def done(result: list[bytes | None] | BaseException) -> None:
            if isinstance(result, BaseException):
                self._around.failed(result)
            else:
                process.tell(Loaded(numbers, result, ticket))

        self.reader_disk.submit(lambda: store.get_many(keys), done)

    # What the clock asks for ------------------------------------------------------------------------------------

    def keep_clock(self, mark: Mark) -> None:
        """Have the mark of the clock on disk before anything that is put into the log from now on."""

        def kept(result: object) -> None:
            if isinstance(result, BaseException):
                self._around.failed(result)

        self._log_disk.submit(lambda: self.files.metadata.keep_clock(mark), kept)

    def wake_timers(self) -> None:
        """The clock was set: what falls due, and how long to sleep, is to be seen anew."""
        self.timers.tell(Wake())

    # Up to date -------------------------------------------------------------------------------------------------

    def recover(self) -> Iterator[None]:
        """Take the state from the store and apply the log from there.  Each time it yields, let the processes go on."""
        files, queues = self.files, self.queues
        with files.store.read() as view:
            for stored in load_queues(view):
                queues.restore(stored)
            queues.restore_asides(load_skipped(view))
            queues.restore_members(load_members(view))
        first_index = files.store.applied().log_index + 1
        queues.foresee(self._asides_from(first_index))
        items: list[Item] = []
        for index, term, payload in files.log.entries(first_index):
            entry, at_ms = decode_entry(payload)
            self.clock_ms = max(self.clock_ms, at_ms)
            item = (index, term, at_ms, entry, None)
            if index > self._committed:
                self.raft_log.restore(item)
            else:
                items.append(item)
            if len(items) == REPLAY_BATCH:
                yield from self._replay(items)
                items = []
        yield from self._replay(items)

    def _asides_from(self, first_index: int) -> list[SetAside]:
        """Return what sets entries aside that no queue may meet again on the way there.

        Of one that stands before them the store says whether the state has it.
        """
        payloads = (payload for _, _, payload in self.files.log.entries(first_index, self._committed))
        asides = (decode_entry(payload)[0] for payload in payloads if payload[1] == Kind.SET_ASIDE)
        return [entry for entry in asides if isinstance(entry, SetAside) and entry.index >= first_index]

    def _replay(self, items: list[Item]) -> Iterator[None]:
        """Have entries applied; what stands behind a queue that is halted is, once some node leads."""
        if items:
            self.queues.tell(Committed(items))
            yield
            while self.queues.applied[0] < items[-1][0] and not self.queues.is_halted:
                yield

    def begin(self) -> None:
        """Take part in the cluster."""
        self.raft_log.tell(Started(self.queues, self.images))

    def lead(self) -> Iterator[None]:
        """Begin, alone; over once a term is open, the queues may hand out, and the log knows it."""
        self.begin()
        while self.raft_log.refusal() is not None:
            yield


def _are_those_of(append: Append, found: Sequence[tuple[int, int, bytes]]) -> bool:
    """Whether entries that were read are all those that a message names, and not others that have replaced them."""
    terms = dict(append.runs)
    term = 0
    for index, found_term, _payload in found:
        term = terms.get(index, term)
        if found_term != term:
            return False
    return len(found) == append.last_index - append.prev_index
