"""QueueUser: what a MoniQue process needs to work with queues as any worker does.

    fetch, acknowledge, give_back --> the queue, the log          Answered --> the process that asked

It is the lower part of Tasks, Bridge and Answers.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from wakeq.actors.door import DOOR_MONIQUE
from wakeq.actors.messages import Asker, Delivery, EndWaits, Fetch, Leaving, Nack, Propose, Refusal, Want
from wakeq.actors.runtime import Process, Timers
from wakeq.protocol.catalog import Policies
from wakeq.protocol.commands import ANY_TOKEN, Ack, CreateQueue, Entry, Reason

LOOK_AGAIN_MS = 1_000  # after a queue could not be asked


class QueueServices(NamedTuple):
    """What every such process works with."""

    raft_log: Process
    queues: Process
    timers: Timers
    now_ms: Callable[[], int]
    new_worker: Callable[[], int]
    exists: Callable[[str], bool]  # whether a queue is in the catalog by now
    defaults: Policies | None  # of a queue that is made here; None: those that are built in
    body_bytes_max: int


class Acknowledged(NamedTuple):
    """The ticket of an acknowledgement."""

    queue: str
    queue_id: int
    numbers: list[int]


class QueueUser(Process):
    """See the head of this file."""

    def __init__(self, services: QueueServices) -> None:
        super().__init__()
        self._services = services
        self._worker = services.new_worker()

    def _queue(self, name: str) -> Process:
        """Return whom to tell about a queue: its process, or the supervisor if it has none."""
        return self.runtime.whereis(("queue", name)) or self._services.queues

    def _propose(self, items: Sequence[tuple[Entry, Asker | None]], queues: Iterable[str] = ()) -> None:
        """Propose; queues that would be made get the policies that the settings give them."""
        services = self._services
        made: list[tuple[Entry, Asker | None]] = []
        if services.defaults is not None:
            made = [(CreateQueue(name, services.defaults), None) for name in queues if not services.exists(name)]
        services.raft_log.tell(Propose([*made, *items]))

    def _fetch(self, queue: str, ticket: Any, count: int, wait_ms: int) -> None:
        """Ask for up to so many; a queue that does not exist yet is empty."""
        want = Want(None, count, wait_ms)
        self._queue(queue).tell(Fetch(queue, self, ticket, [want], self._worker, DOOR_MONIQUE, subscribed=True))

    def _end_wait(self, queue: str, ticket: Any) -> None:
        self._queue(queue).tell(EndWaits(self, ticket, queue))

    def _acknowledge(self, queue: str, queue_id: int, numbers: list[int]) -> None:
        """These are done with, whoever holds them."""
        self._queue(queue).tell(Leaving(queue, queue_id, numbers))
        entry = Ack(queue, queue_id, numbers, [ANY_TOKEN] * len(numbers), worker=self._worker, door=DOOR_MONIQUE)
        self._propose([(entry, Asker(self, Acknowledged(queue, queue_id, numbers), None))])

    def _acknowledge_all(self, queue: str, deliveries: Iterable[Delivery]) -> None:
        """The same of deliveries, which may be of several incarnations of their queue."""
        numbers: dict[int, list[int]] = {}
        for delivery in deliveries:
            numbers.setdefault(delivery.queue_id, []).append(delivery.number)
        for queue_id, mine in numbers.items():
            self._acknowledge(queue, queue_id, mine)

    def _acknowledged(self, ticket: Acknowledged, answer: Any) -> None:
        """If the log did not take it, nothing is leaving: the messages come again."""
        if isinstance(answer, Refusal):
            self._queue(ticket.queue).tell(Leaving(*ticket, undone=True))

    def _give_back(self, queue: str, deliveries: Sequence[Delivery], reason: Reason, error: str = "") -> None:
        """Say that deliveries have ended without success."""
        if deliveries:
            asker = Asker(self, None, [None] * len(deliveries))
            uids, tokens = [one.uid for one in deliveries], [one.token for one in deliveries]
            delay_ms = None if reason is Reason.REJECTED else 0
            self._queue(queue).tell(Nack(asker, queue, uids, tokens, delay_ms, error, reason))
