"""LedBroker: a cluster by hand as its clients see it: one broker, which is the current leader.

    what a test asks of a Broker --> the leader's processes      crash --> another one leads, and one node is away

A leader that is lost may have written what no other node has.  Nothing is asked of a node that does not lead.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.helpers.brokers.broker import Asked, Client
from tests.helpers.brokers.by_hand import HandDisk
from tests.helpers.clusters.by_hand import HandCluster, HandNode
from wakeq.actors.queue.process import QueueProcess
from wakeq.actors.queues.supervisor import Queues
from wakeq.actors.sessions.operator import Question
from wakeq.node.assembly import Assembly
from wakeq.storage.log.journal import Keep

LOST = 3  # messages that a leader writes for itself


class LedBroker:
    """Three nodes, of which one may be away."""

    def __init__(self, path: Path, *, segment_bytes_max: int, keep: Keep) -> None:
        self.cluster = HandCluster(path, segment_bytes_max=segment_bytes_max, keep=keep)
        self.cluster.start()
        self.away: HandNode | None = None

    @property
    def leader(self) -> HandNode:
        self.cluster.until(lambda: self.cluster.leader() is not None, "a node leads")
        found = self.cluster.leader()
        assert found is not None, "as it was a moment ago"
        return found

    @property
    def places(self) -> list[Path]:
        return [node.path for node in self.cluster.nodes]

    @property
    def log_disk(self) -> HandDisk:
        return self.leader.log_disk

    @property
    def assembly(self) -> Assembly:
        return self.leader.assembly

    @property
    def queues(self) -> Queues:
        return self.leader.queues

    def client(self) -> Client:
        return self.leader.client()

    def queue(self, name: str) -> QueueProcess:
        found = self.assembly.lobby.process(name)
        assert isinstance(found, QueueProcess), f"queue {name!r} has no process"
        return found

    def operate(self, name: str, make: Callable[[Question], Any]) -> Any:
        """Ask a queue as an operator does; return the answer."""
        question = Asked(self.assembly.runtime)
        self.assembly.lobby.queue(name).tell(make(question))
        self.settle()
        return question.get()

    def crash_and_restart(self) -> None:
        """Lose the leader, with what it wrote for itself; the next time it comes back."""
        if self.away is not None:
            self.cluster.bring_up(self.away)
            self.away = None
            return
        lost = self.leader
        self.cluster.isolate(lost)
        client = lost.client()
        client.send(*[{"cmd": "PUB", "qname": "a", "message": "lost"}] * LOST)
        self.settle()
        lost.kill()
        self.away = lost
        self.cluster.cuts.clear()

    def settle(self) -> None:
        self.cluster.settle()

    def advance(self, seconds: float) -> None:
        self.cluster.advance(seconds)

    def flush(self) -> None:
        """Have everything that is committed written to the state stores."""
        for node in self.cluster.nodes:
            if node.is_up:
                node.queues.flush_now(lambda: None)
        self.settle()

    def close(self) -> None:
        self.cluster.close()
