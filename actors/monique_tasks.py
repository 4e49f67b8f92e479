"""Tasks: puts MoniQue's tasks that have a route on their queues, and takes those off that are killed.

    Keep (exchange) --> Publish (log) --> outcome --> Kept (exchange), Done (whoever pushed it by WebSocket)
    Cancel (exchange) --> Ack (log)

Nothing is said to be done before it is durable.  Which task is which message is remembered for those that were kept
since this node leads; for older ones the queue is looked through, once, when one of them is killed.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from wakeq.actors.door import DOOR_MONIQUE
from wakeq.actors.messages import Answered, Asker, Outcome, Peek, Refusal
from wakeq.actors.monique_dropped import Dropped
from wakeq.actors.monique_messages import Cancel, Done, Keep, Kept, Parcel, Task
from wakeq.actors.monique_queues import Acknowledged, QueueServices, QueueUser
from wakeq.actors.runtime import Process
from wakeq.actors.worker_replies import REFUSALS
from wakeq.protocol.commands import Draft, Publish, Result
from wakeq.protocol.errors import Busy, Refused, TooLarge, WakeqError
from wakeq.protocol.uid import parse
from wakeq.protocol.wire.monique.conversation import Intent
from wakeq.protocol.wire.monique.errors import BadTag, BadTransfer
from wakeq.protocol.wire.monique.messages import ID_CHARS
from wakeq.protocol.wire.monique.tags import read_tag
from wakeq.protocol.wire.monique.tasks import TAG, draft_of, headers_of

KNOWN_MAX = 100_000  # tasks of which we know where they are, 0.3 KB each; of the others, the oldest are forgotten
PAGE = 64  # messages that are looked at together
UNDER_WAY_MAX = 16_384  # tasks on their way to the disk; more are refused
UNDER_WAY_BYTES_MAX = 64 << 20
CANCELS_MAX = 10_000  # kills that wait for a queue to be looked through

Place = tuple[str, int, int]  # queue, its id, number of the message


class Keeping(NamedTuple):
    """The ticket of a publish."""

    tasks: list[Task]


class Looking(NamedTuple):
    """The ticket of a page of a queue."""

    queue: str


class Tasks(QueueUser):
    """See the head of this file."""

    def __init__(self, services: QueueServices, queues: Sequence[str]) -> None:
        super().__init__(services)
        self._exchange: Process | None = None
        self._places: dict[str, Place] = {}  # of tasks by their id, the oldest first
        self._under_way: dict[str, bool] = {}  # tasks that are being kept; True: it is killed already
        self._under_way_bytes = 0
        self._unseen = deque(queues)  # whose older tasks we do not know
        self._after = 0  # the last number that was looked at in the first of them
        self._cancels: dict[str, None] = {}  # killed, and perhaps among those
        self._looking = False
        self._dropped = Dropped("to a queue", services.now_ms)

    def on_receive(self, message: Any) -> None:
        _HANDLERS[type(message)](self, message)

    # --- keeping ----------------------------------------------------------------------------------------------------

    def on_keep(self, message: Keep) -> None:
        self._exchange = message.exchange
        ended: list[tuple[Task, WakeqError | None]] = []  # refused, or not wanted any more
        batches: dict[str, tuple[list[Task], list[Draft]]] = {}
        for task in message.tasks:
            draft = draft_of(task.parcel.transfer, self._services.now_ms())
            refusal = None if draft is None else self._refusal(draft)
            if draft is None or refusal is not None:
                ended.append((task, refusal))
            else:
                tasks, drafts = batches.setdefault(task.queue, ([], []))
                tasks.append(task)
                drafts.append(draft)
                self._under_way[_id_of(task)] = False
                self._under_way_bytes += _size_of(task)
        if batches:
            self._propose(
                [
                    (Publish(queue, drafts, door=DOOR_MONIQUE, worker=self._worker), Asker(self, Keeping(tasks), None))
                    for queue, (tasks, drafts) in batches.items()
                ],
                batches,
            )
        self._end(ended)

    def _refusal(self, draft: Draft) -> WakeqError | None:
        """Return why a task cannot be kept, as far as it is no queue's affair."""
        if len(draft.body) > self._services.body_bytes_max:
            size, limit = len(draft.body), self._services.body_bytes_max
            return TooLarge(f"a task of {size} bytes, a queue takes {limit}; raise message_bytes_max")
        if len(self._under_way) >= UNDER_WAY_MAX or self._under_way_bytes >= UNDER_WAY_BYTES_MAX:
            return Busy("too many tasks are on their way to the disk; push it again later")
        return None

    def on_answered(self, message: Answered) -> None:
        for ticket, _, answer in message.answers:
            if isinstance(ticket, Keeping):
                self._kept(ticket.tasks, answer)
            elif isinstance(ticket, Looking):
                self._looked(ticket.queue, answer)
            elif isinstance(ticket, Acknowledged):
                self._acknowledged(ticket, answer)

    def _kept(self, tasks: list[Task], answer: Outcome | Refusal) -> None:
        killed = [self._under_way.pop(_id_of(task), False) for task in tasks]
        self._under_way_bytes -= sum(map(_size_of, tasks))
        if isinstance(answer, Refusal):
            self._end([(task, Refused(f"{answer.code}: {answer.detail}")) for task in tasks])
            return
        for task, number, is_killed in zip(tasks, answer.results, killed, strict=True):
            if number > 0:
                self._remember(_id_of(task), (answer.queue, answer.queue_id, number))
                if is_killed:
                    self._cancel(_id_of(task))
        results = zip(tasks, answer.results, strict=True)
        self._end([(task, None if number > 0 else _refused(number)) for task, number in results])

    def _end(self, outcomes: Sequence[tuple[Task, WakeqError | None]]) -> None:
        """Say what became of tasks; those that are kept, or not wanted any more, are passed on."""
        kept: list[Parcel] = []
        done: dict[Process, list[tuple[Intent, WakeqError | None]]] = {}
        for task, error in outcomes:
            if error is None:
                kept.append(task.parcel)
            if task.subscriber is not None and task.intent is not None:
                done.setdefault(task.subscriber, []).append((task.intent, error))
            elif error is not None:
                self._dropped.note(BadTransfer(f"the task {_id_of(task)[:ID_CHARS]!a} is not kept: {error}"))
        if kept and self._exchange is not None:
            self._exchange.tell(Kept(kept))
        for subscriber, mine in done.items():
            subscriber.tell(Done(mine))

    def _remember(self, task_id: str, place: Place) -> None:
        self._places.pop(task_id, None)
        self._places[task_id] = place
        if len(self._places) > KNOWN_MAX:
            del self._places[next(iter(self._places))]

    # --- killing ----------------------------------------------------------------------------------------------------

    def on_cancel(self, message: Cancel) -> None:
        if message.task_id in self._under_way:
            self._under_way[message.task_id] = True
        elif message.task_id in self._places:
            self._cancel(message.task_id)
        elif self._unseen and len(self._cancels) < CANCELS_MAX:
            self._cancels[message.task_id] = None
            self._look()

    def _cancel(self, task_id: str) -> None:
        queue, queue_id, number = self._places.pop(task_id)
        self._acknowledge(queue, queue_id, [number])

    def _look(self) -> None:
        """Look at the next page of what we do not know, as long as somebody may be among it."""
        if self._cancels and self._unseen and not self._looking:
            self._looking = True
            queue = self._unseen[0]
            self._queue(queue).tell(Peek(Asker(self, Looking(queue), None), queue, "any", PAGE, self._after))

    def _looked(self, queue: str, answer: list[dict[str, Any]] | Refusal) -> None:
        self._looking = False
        rows = [] if isinstance(answer, Refusal) else answer  # a queue that is not there has no tasks
        for row in rows:
            self._note(queue, row)
        if not rows:
            self._unseen.popleft()
            self._after = 0
        for task_id in [task_id for task_id in self._cancels if task_id in self._places]:
            del self._cancels[task_id]
            self._cancel(task_id)
        if not self._unseen:
            self._cancels.clear()  # they are none of ours
        self._look()

    def _note(self, queue: str, row: dict[str, Any]) -> None:
        """Remember where a message is, if it is a task."""
        place = parse(row["uid"])
        if place is None:  # imported from version 1, so it is none of ours
            return
        self._after = max(self._after, place[1])
        try:
            tag = read_tag(headers_of(row["headers"]).get(TAG, ""))
        except BadTag:
            return  # somebody else's message
        self._remember(tag.id, (queue, *place))


def _id_of(task: Task) -> str:
    return task.parcel.transfer.tag.id


def _size_of(task: Task) -> int:
    return len(task.parcel.transfer.message)


def _refused(code: int) -> Refused:
    name, detail = REFUSALS[Result(code)]
    return Refused(f"{name}: {detail}")


_HANDLERS: dict[type, Callable[[Tasks, Any], None]] = {
    Keep: Tasks.on_keep,
    Cancel: Tasks.on_cancel,
    Answered: Tasks.on_answered,
}
