"""QueueProcesses: the process of each queue, and of each name that somebody waits for.

It knows which of them can be told something.  What they are told is not its business.
"""

from collections.abc import Iterable

from wakeq.actors.mail import Follow
from wakeq.actors.queue.leading import Lead
from wakeq.actors.queue.process import QueueProcess
from wakeq.actors.queue.reading import QueueProcessServices
from wakeq.actors.runtime import Process, Runtime
from wakeq.protocol.queue.ledger.publishers import Limits


class QueueProcesses:
    """Processes of queues by name."""

    def __init__(self, runtime: Runtime, services: QueueProcessServices, limits: Limits, supervisor: Process) -> None:
        # Every process, also one that has crashed, until the supervisor hears of the crash.
        self.by_name: dict[str, QueueProcess] = {}
        # Queues whose process has crashed and has no successor yet: they are being rebuilt, or halted by an entry.
        self.away: set[str] = set()
        # Rebuilt queues that do not deliver yet: entries that their predecessors proposed are not applied.
        self.unled: set[str] = set()
        # The term in which this node leads; 0 while it does not.
        self.term = 0
        self._runtime = runtime
        # What each process is made with; the supervisor hears when one crashes, or is not needed any more.
        self._services = services
        self._limits = limits
        self._supervisor = supervisor

    def spawn(self, name: str) -> QueueProcess:
        """Make a process that has no name yet, and so gets no mail but what it is told by us."""
        process = self.by_name[name] = self._runtime.spawn(
            QueueProcess, name, self._services, self._limits, self._supervisor
        )
        return process

    def register(self, process: QueueProcess) -> None:
        """From now on everybody finds it by the name of its queue."""
        self._services.lobby.enter(process.name, process)

    def open(self, name: str) -> QueueProcess:
        """Return the process of a queue, which need not exist yet."""
        process = self.by_name.get(name)
        if process is None:
            process = self.spawn(name)
            self.register(process)
            if self.term:
                process.tell(Lead(self.term))
        return process

    def open_created(self, name: str) -> None:
        """Give a queue that has just been created its process, unless that comes with a rebuild."""
        if name not in self.away:
            self.open(name)

    def living(self, name: str) -> QueueProcess | None:
        """Return the process of a queue, unless it has just crashed and nothing that it is told is heard."""
        process = self.by_name.get(name)
        return process if process is not None and process.alive else None

    def serves(self, name: str) -> bool:
        """Whether what a queue is told is heard, and acted on."""
        return name not in self.away and name not in self.unled and self.living(name) is not None

    def is_waited_for(self, name: str) -> bool:
        """Whether a queue that does not serve will do so, without anybody asking for it."""
        return name in self.by_name or name in self.away or name in self.unled

    def tell(self, names: Iterable[str], message: object) -> None:
        """Tell those of these queues that have a process."""
        found = self.by_name
        self._runtime.tell_each([(found[name], message) for name in names if name in found])

    def lead(self, term: int) -> None:
        """Have every queue build its leases."""
        self.term = term
        for process in self.by_name.values():
            process.tell(Lead(term))

    def follow(self, message: Follow) -> None:
        """Have no queue deliver any more."""
        self.term = 0
        for process in self.by_name.values():
            process.tell(message)
        for name in self.unled:  # they waited for entries that their predecessors proposed as leader
            if name in self.by_name:
                self.register(self.by_name[name])
        self.unled.clear()

    def lead_rebuilt(self, process: QueueProcess, sequence: int) -> None:
        """A rebuilt queue may deliver, if it lives: everything that its predecessor had proposed is applied."""
        if self.by_name.get(process.name) is process:
            self.unled.discard(process.name)
            self.register(process)
            process.tell(Lead(self.term, sequence))

    def end(self, process: QueueProcess) -> None:
        """End a process that is not needed any more; at once, or mail that arrives before its stop would be lost."""
        del self.by_name[process.name]
        self.unled.discard(process.name)  # or nobody would ever make another one
        self._runtime.end(process, None)
