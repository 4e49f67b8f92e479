"""Machine: the processes of a broker in this process, without sockets, threads or time of their own.

    connect(door) --> WorkerSession, RaftLog, Queues, QueueProcess, as in a node        crash, start --> the files again

Time moves by `advance` only, and `settle` serves all mail before anything else happens, so a test sees the same each
time.  It must never hold a rule of queues: it runs the same actors as a node.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from wakeq import __version__
from wakeq.actors.mail import Pressure
from wakeq.actors.queues.supervisor import Settings
from wakeq.actors.runtime import Runtime
from wakeq.actors.sessions.door import Door
from wakeq.actors.sessions.worker import WorkerServices, WorkerSession
from wakeq.data.opening import DurableFiles
from wakeq.node.assembly import Assembly, Environment
from wakeq.protocol.errors import BrokerUnreachable
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.wire.worker import codec as wire
from wakeq.protocol.wire.worker.conversation import Limits
from wakeq.storage.memory_directory import MemoryDirectory
from wakeq.storage.thread import Disk, InlineDisk
from wakeq.testing.manual_time import ManualTime

# Mails of one `settle`; with more, the actors send them in circles.
MESSAGES_MAX = 2_000_000
# Callbacks while no time passes; with more, the timers spin.
CALLS_AT_ONE_MOMENT_MAX = 3_000
# The number of no thread.
NO_THREAD = 0
# The size of the log at which an image of the state would be written.
NEVER_BYTES = 1 << 62

DOWN = "the broker is down since crash(); restart() brings it back"
FORKED = "a broker in memory serves only the process that made it; give a child a broker with a port, `wakeq serve`"
DISK_FULL = Refusal("DISK_FULL", "the disk is full, for the test says so; disk_full(False) makes room")


class Machine(ABC):
    """A broker by hand, on the files of a subclass."""

    def __init__(
        self,
        time: ManualTime,
        settings: Settings = Settings(),  # noqa: B008
        *,
        snapshot_bytes_min: int = NEVER_BYTES,
    ) -> None:
        self.time = time
        # The number of starts; a connection belongs to one of them.
        self.incarnation = 0
        self.is_up = False
        # The errors that ended essential actors; `settle` raises the first.
        self.failures: list[BaseException] = []
        self._settings = settings
        self._snapshot_bytes_min = snapshot_bytes_min
        self._disk_is_full = False
        self._pid = os.getpid()
        self.runtime = Runtime()
        # Its holder is the one thread of the broker.
        self._lock = threading.RLock()
        self._calls_seen = (0, 0.0)

    # Files, disks and clocks ------------------------------------------------------------------------------------

    @abstractmethod
    def open_files(self) -> DurableFiles:
        """Open the kept files; the first time they are empty."""

    @abstractmethod
    def close_files(self) -> None:
        """Close the files; synced bytes stay."""

    def new_disk(self, name: str) -> Disk:
        """Return the substitute of the disk thread of that name."""
        return InlineDisk()

    def start_clock(self) -> None:
        """Make the clock after the last moment in the files, which is never ahead of the manual time."""
        assert self.files.store.applied().clock_ms <= self.now_ms()

    def begin_clock(self) -> None:
        """Continue after the last moment that the log knows."""
        assert self.assembly.clock_ms <= self.now_ms()

    def now_ms(self) -> int:
        """Return the moment by the broker's clock."""
        return self.time.now_ms()

    def behind_ms(self) -> int:
        """Return how far that clock still has to catch up."""
        return 0

    def draw(self) -> float:
        """Return a random draw: always the same, so that a test knows when a retry is due."""
        return 0.0

    # Up and down ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the files, recover and lead, as a node does."""
        with self.turn():
            self.incarnation += 1
            self.failures = []
            self.runtime = Runtime()
            self.files = self.open_files()
            self.is_up = True
            self.time.settle = self._rest
            self.start_clock()
            self.assembly = self._assemble()
            self._drive(self.assembly.recover())
            self.begin_clock()
            self._drive(self.assembly.lead())
            assembly = self.assembly
            self._services = WorkerServices(assembly.raft_log, assembly.lobby, Limits(version=__version__), self.now_ms)
            self._workers = 0
            if self._disk_is_full:
                self._tell_room()
            self.settle()

    def _assemble(self) -> Assembly:
        environment = Environment(
            # Looked up each time, because a test may replace the clock.
            now_ms=lambda: self.now_ms(),
            stamp_ms=lambda: self.now_ms(),
            behind_ms=lambda: self.behind_ms(),
            call_later=self.time.call_later,
            new_disk=self.new_disk,
            new_snapshot_disk=lambda: self.new_disk("wakeq-snapshot"),
            failed=self.failures.append,
            chance=lambda: self.draw(),
        )
        return Assembly(
            self.runtime, self.files, environment, self._settings, snapshot_bytes_min=self._snapshot_bytes_min
        )

    def _drive(self, steps: Iterator[None]) -> None:
        for _ in steps:
            self.settle()

    def crash(self) -> None:
        """Lose every actor, every connection, and all bytes that were not synced."""
        with self.turn():
            if self.is_up:
                self.is_up = False
                self.time.settle = lambda: None
                self.time.forget()
                self.runtime.close()
                self.close_files()

    # Time and turns ---------------------------------------------------------------------------------------------

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Be the one thread of the broker for the length of the block; other threads wait, or tell by ref."""
        with self._lock:
            before, self.runtime.thread = self.runtime.thread, threading.get_ident()
            try:
                yield
            finally:
                self.runtime.thread = before

    def settle(self) -> None:
        """Serve all mail; no time passes."""
        self._rest()
        if self.failures:
            raise self.failures[0]

    def _rest(self) -> None:
        self.runtime.run_until_idle(MESSAGES_MAX)
        calls, moment = self._calls_seen
        if self.time.monotonic_s() != moment:
            self._calls_seen = (self.time.calls, self.time.monotonic_s())
        elif self.time.calls - calls > CALLS_AT_ONE_MOMENT_MAX:
            raise AssertionError("the timers spin: something is due again and again at one moment")

    def advance(self, seconds: float) -> None:
        """Let time pass and do everything that is due meanwhile; nothing is, while the broker is down."""
        with self.turn():
            self.time.advance(seconds)
            if self.is_up:
                self.settle()

    def advance_to_next(self, seconds: float) -> bool:
        """Let time pass up to the next timer within so many seconds; return False if there is none."""
        with self.turn():
            if not self.time.advance_to_next(seconds):
                return False
            self.settle()
            return True

    # Connections ------------------------------------------------------------------------------------------------

    def connect(self, door: Door[wire.Reply]) -> WorkerSession:
        """Make the process that serves one connection."""
        if not self.is_up:
            raise BrokerUnreachable(DOWN)
        # A forked copy would write into the log of the original.
        if os.getpid() != self._pid:
            raise BrokerUnreachable(FORKED)
        self._workers += 1
        return self.runtime.spawn(WorkerSession, door, self._workers, self._services)

    def disk_full(self, full: bool) -> None:
        """Refuse publishes as on a full disk, or accept them again; this outlasts a restart."""
        with self.turn():
            self._disk_is_full = full
            if self.is_up:
                self._tell_room()
                self.settle()

    def _tell_room(self) -> None:
        self.assembly.raft_log.tell(Pressure(DISK_FULL if self._disk_is_full else None))


class MemoryMachine(Machine):
    """A broker whose files are in memory; they survive a crash and end with `close`."""

    def __init__(self, time: ManualTime) -> None:
        super().__init__(time)
        # Between two turns no thread is the broker's, so that what a thread tells a ref waits for the next turn.
        self.runtime.thread = NO_THREAD
        self._directory = MemoryDirectory()

    def open_files(self) -> DurableFiles:
        kept = self._directory
        return DurableFiles(kept.identity, kept.metadata, kept.open_log(), kept.store, kept.snapshot_path)

    def close_files(self) -> None:
        self.files.log.close()

    def close(self) -> None:
        """End the broker for good."""
        self.crash()
        self._directory.close()
