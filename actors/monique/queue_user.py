"""QueueUser: what a MoniQue process needs to work with queues as any worker does.

    fetch, look, acknowledge, give_back --> lanes of the queue          Answered --> the process that asked

It is the lower part of Tasks, Bridge and Answers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from wakeq.actors.mail import ReplyByMail, Unsent
from wakeq.actors.monique.counters import MoniqueCounters
from wakeq.actors.queues.lobby import Lobby
from wakeq.actors.runtime import Process, Timers
from wakeq.actors.sessions.door import DOOR_MONIQUE
from wakeq.actors.sessions.operator_mail import Page, Scan
from wakeq.protocol.log.entries import ANY_TOKEN, Reason
from wakeq.protocol.queue.orders import NOBODY, Acknowledge, EndWait, Fetch, Nack, ReplyTo
from wakeq.protocol.queue.outcomes import Delivery, Refusal
from wakeq.protocol.uid import parse
from wakeq.protocol.wire.monique.errors import BadTag
from wakeq.protocol.wire.monique.tags import read_tag
from wakeq.protocol.wire.monique.tasks import TAG, headers_of
from wakeq.protocol.wire.slots import SeveralResults

LOOK_AGAIN_MS = 1_000  # after a queue could not be asked
ANSWER_MS_MAX = 10_000  # for a queue to say what it has; one that crashes may never do so
PAGE = 256  # messages that are looked at together


class QueueServices(NamedTuple):
    """What every such process works with."""

    lobby: Lobby
    timers: Timers
    now_ms: Callable[[], int]
    new_worker: Callable[[], int]
    body_bytes_max: int
    withdrawal: Callable[[int], Refusal | None] = lambda term: None  # why a delivery of a term may not leave any more


class Placed(Protocol):
    """Where a message is."""

    @property
    def queue_id(self) -> int: ...

    @property
    def number(self) -> int: ...


class Place(NamedTuple):
    """The same, and nothing else."""

    queue_id: int
    number: int


class Looked(NamedTuple):
    """Where a queue was looked at."""

    queue: str
    after: int


class QueueUser(Process):
    """See the head of this file."""

    def __init__(self, services: QueueServices, counters: MoniqueCounters) -> None:
        super().__init__()
        self._services = services
        self._counters = counters
        self.number = services.new_worker()  # in the log and in the history, as of a connection
        self.door_kind = DOOR_MONIQUE

    def _fetch(self, queue: str, asker: ReplyTo, count: int, wait_ms: int) -> None:
        """Ask for up to so many; a queue that does not exist yet is empty."""
        self._services.lobby.filed(queue).orders.append(Fetch(asker, queue, count, wait_ms, is_subscribed=True))

    def _may_pass_on(self, queue: str, deliveries: Sequence[Delivery]) -> bool:
        """Whether deliveries are still good; those that a deposed leader has in its mail end without being seen."""
        if self._services.withdrawal(deliveries[0].token[0]) is None:
            return True
        self._services.lobby.filed(queue).orders.append(Unsent(queue, deliveries))
        return False

    def _look_at(
        self, queue: str, after: int, then: Callable[[Looked, Page | Refusal], None], *, leased_only: bool = False
    ) -> None:
        """Ask for the messages behind that number."""
        asker: ReplyByMail[Page | Refusal] = ReplyByMail(self, partial(then, Looked(queue, after)))
        self._services.lobby.filed(queue).orders.append(
            Scan(asker, queue, after, PAGE, "leased" if leased_only else "all")
        )

    def _end_wait(self, queue: str, asker: ReplyTo) -> None:
        self._services.lobby.filed(queue).orders.append(EndWait(asker, queue))

    def _acknowledge(self, queue: str, queue_id: int, numbers: list[int]) -> None:
        """These are done with, whoever holds them."""
        tokens = [ANY_TOKEN] * len(numbers)
        order = Acknowledge(queue, queue_id, numbers, tokens, self.number, self.door_kind)
        self._services.lobby.filed(queue).orders.append(order)

    def _acknowledge_all(self, queue: str, placed: Iterable[Placed]) -> int:
        """The same of messages of one queue, perhaps of several incarnations of it; return how many they are."""
        numbers: dict[int, dict[int, None]] = {}
        for one in placed:
            numbers.setdefault(one.queue_id, {})[one.number] = None
        for queue_id, mine in numbers.items():
            self._acknowledge(queue, queue_id, list(mine))
        return sum(map(len, numbers.values()))

    def _give_back(self, queue: str, deliveries: Sequence[Delivery], reason: Reason, error: str = "") -> None:
        """Say that deliveries have ended without success; the queue knows when they are due again."""
        if deliveries:
            asker = SeveralResults(NOBODY, len(deliveries))
            uids, tokens = [one.uid for one in deliveries], [one.token for one in deliveries]
            self._services.lobby.filed(queue).orders.append(Nack(asker, queue, uids, tokens, None, error, reason))


def task_in(row: Mapping[str, Any]) -> tuple[str, Place] | None:
    """Return the id and the place of a task that was looked at; None for somebody else's message."""
    place = parse(row["uid"])
    tag = headers_of(row["headers"]).get(TAG)
    if place is None or tag is None:  # without a place of ours it was imported from version 1
        return None
    try:
        return read_tag(tag).id, Place(*place)
    except BadTag:
        return None
