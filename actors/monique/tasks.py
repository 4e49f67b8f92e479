"""Tasks: puts MoniQue's tasks that have a route on their queues, and takes those off that are killed.

    Keep (exchange) --> Publish (log) --> outcome --> Kept (exchange), the slot of whoever pushed it by WebSocket
    Cancel (exchange) --> Ack (log)

Nothing is said to be done before it is durable.  Which task is which message is remembered for those that were kept
since this node leads; for others the queues are looked through when one of them is killed.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from wakeq.actors.mail import Answered, ReplyByMail
from wakeq.actors.monique.counters import MoniqueCounters
from wakeq.actors.monique.mail import Cancel, Keep, Kept, Task, say_done
from wakeq.actors.monique.queue_user import (
    ANSWER_MS_MAX,
    LOOK_AGAIN_MS,
    Looked,
    Place,
    QueueServices,
    QueueUser,
    task_in,
)
from wakeq.actors.runtime import Alarm, Process
from wakeq.actors.sessions.operator_mail import Page
from wakeq.protocol.errors import Busy, QueueNotFound, Refused, TooLarge, WakeqError
from wakeq.protocol.log.entries import Draft, Publish, Result
from wakeq.protocol.queue.orders import ReplyTo
from wakeq.protocol.queue.outcomes import Outcome, Refusal
from wakeq.protocol.wire.monique.errors import BadTransfer
from wakeq.protocol.wire.monique.messages import ID_CHARS
from wakeq.protocol.wire.monique.tasks import draft_of
from wakeq.protocol.wire.worker.answers import REFUSALS

KNOWN_MAX = 100_000  # tasks of which we know where they are, 0.3 KB each; the oldest are forgotten
UNDER_WAY_MAX = 16_384  # tasks on their way to the disk; more are refused
UNDER_WAY_BYTES_MAX = 64 << 20
READ_ON_BELOW = 2  # of that a half: beyond it what components send is not read, for they would hear no refusal
CANCELS_MAX = 10_000  # kills that wait for a queue to be looked through


@dataclass(slots=True)
class UnderWay:
    """Tasks with one id that are being kept."""

    count: int = 0
    is_killed: bool = False


class Where(NamedTuple):
    """A queue, and the place there."""

    queue: str
    place: Place


class Tasks(QueueUser):
    """See the head of this file."""

    def __init__(self, services: QueueServices, queues: Sequence[str], counters: MoniqueCounters) -> None:
        super().__init__(services, counters)
        self._exchange: Process | None = None
        self._known: dict[str, Where | None] = {}  # tasks by their id, the oldest first; None: at several places
        self._knows_all = False  # what is not in there is on none of the queues
        self._under_way: dict[str, UnderWay] = {}  # tasks that are being kept, by their id
        self._under_way_count = 0
        self._under_way_bytes = 0
        self._waiting: list[ReplyTo] = []  # until less is under way, before they bring more
        self._queues = queues
        self._cancels: dict[str, None] = {}  # killed, and to be looked for
        self._sought: dict[str, None] = {}  # those for which we look
        self._to_look: deque[str] = deque()  # where we still do; the first one behind the number ...
        self._after = 0
        self._sees_all = True  # what was seen on the way is known
        self._dropped = counters.dropper("to_queue", "to a queue")
        self._not_sought = counters.dropper("kill", "to look through the queues")

    def on_receive(self, message: Any) -> None:
        _HANDLERS[type(message)](self, message)

    # --- keeping ----------------------------------------------------------------------------------------------------

    def on_keep(self, message: Keep) -> None:
        self._exchange = message.exchange
        ended: list[tuple[Task, WakeqError | None]] = []  # refused, or not wanted any more
        batches: dict[str, tuple[list[Task], list[Draft]]] = {}
        for task in message.tasks:
            draft = draft_of(task.parcel.transfer, self._services.now_ms())
            refusal = None if draft is None else self._refusal(task, draft)
            if draft is None or refusal is not None:
                ended.append((task, refusal))
            else:
                tasks, drafts = batches.setdefault(task.queue, ([], []))
                tasks.append(task)
                drafts.append(draft)
                self._under_way.setdefault(_id_of(task), UnderWay()).count += 1
                self._under_way_count += 1
                self._under_way_bytes += _size_of(task)
        for queue, (tasks, drafts) in batches.items():
            entry = Publish(queue, drafts, door=self.door_kind, worker=self.number)
            self._services.lobby.filed(queue).publish_whole(ReplyByMail(self, partial(self._kept, tasks)), entry)
        self._end(ended)
        if message.asker is not None:
            self._waiting.append(message.asker)
            self._go_on()

    def _go_on(self) -> None:
        """Let those bring more tasks who would not hear that there are too many."""
        if not self._is_full(READ_ON_BELOW):
            for asker in self._waiting:
                say_done(asker)
            self._waiting.clear()

    def _is_full(self, part: int = 1) -> bool:
        """Whether so much is under way: all that may be, or that divided by `part`."""
        return self._under_way_count >= UNDER_WAY_MAX // part or self._under_way_bytes >= UNDER_WAY_BYTES_MAX // part

    def _refusal(self, task: Task, draft: Draft) -> WakeqError | None:
        """Return why a task cannot be kept, as far as it is no queue's affair."""
        if len(draft.body) > self._services.body_bytes_max:
            size, limit = len(draft.body), self._services.body_bytes_max
            return TooLarge(f"a task of {size} bytes, a queue takes {limit}; raise message_bytes_max")
        if self._is_full() and task.slot is not None:
            return Busy("too many tasks are on their way to the disk; push it again later")
        return None

    def on_answered(self, message: Answered[Any]) -> None:
        message.deliver()

    def _kept(self, tasks: list[Task], answer: Outcome | Refusal) -> None:
        killed = [self._arrived(task) for task in tasks]
        self._go_on()
        if isinstance(answer, Refusal):
            self._end([(task, Refused(f"{answer.code}: {answer.detail}")) for task in tasks])
            return
        for task, number, is_killed in zip(tasks, answer.results, killed, strict=True):
            if number > 0:
                self._remember(_id_of(task), Where(answer.queue, Place(answer.queue_id, number)))
                if is_killed:
                    self.on_cancel(Cancel(_id_of(task)))
        self._counters.tasks["kept"] += sum(number > 0 for number in answer.results)
        results = zip(tasks, answer.results, strict=True)
        self._end([(task, None if number > 0 else _refused(number)) for task, number in results])

    def _arrived(self, task: Task) -> bool:
        """It is no longer under way; return whether it was killed meanwhile."""
        task_id = _id_of(task)
        under_way = self._under_way[task_id]
        under_way.count -= 1
        if not under_way.count:
            del self._under_way[task_id]
        self._under_way_count -= 1
        self._under_way_bytes -= _size_of(task)
        return under_way.is_killed

    def _end(self, outcomes: Sequence[tuple[Task, WakeqError | None]]) -> None:
        """Say what became of tasks; those that are kept, or not wanted any more, are passed on."""
        self._counters.tasks["refused"] += sum(error is not None for _, error in outcomes)
        kept: list[Task] = []
        for task, error in outcomes:
            if error is None and self._exchange is not None:
                kept.append(task)
            elif task.slot is not None:
                task.slot.tell(error)
            elif error is not None:
                self._dropped(BadTransfer(f"the task {_id_of(task)[:ID_CHARS]!a} is not kept: {error}"))
        if kept and self._exchange is not None:
            self._exchange.tell(Kept(kept))

    def _remember(self, task_id: str, where: Where) -> None:
        """Note where a task is; one that was pushed again, as it may be, is at several places."""
        known = self._known.get(task_id, where)
        self._known[task_id] = where if known == where else None
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]
            self._knows_all = self._sees_all = False

    # --- killing ----------------------------------------------------------------------------------------------------

    def on_cancel(self, message: Cancel) -> None:
        task_id = message.task_id
        if task_id in self._under_way:
            self._under_way[task_id].is_killed = True
        where = self._known.get(task_id)
        if where is not None:
            del self._known[task_id]
            self._cancel(where)
        elif task_id in self._known or not self._knows_all:
            self._seek_later(task_id)

    def _seek_later(self, task_id: str) -> None:
        if len(self._cancels) >= CANCELS_MAX:
            flaw = BadTransfer(f"{CANCELS_MAX} kills wait already; the task {task_id[:ID_CHARS]!a} is not looked for")
            self._not_sought(flaw)
            return
        self._cancels[task_id] = None
        self._seek()

    def _cancel(self, where: Where) -> None:
        self._counters.tasks["killed"] += 1
        self._acknowledge_all(where.queue, [where.place])

    def _seek(self) -> None:
        """Look through the queues for what is killed; if that is being done, do it once more behind it."""
        if self._cancels and not self._to_look:
            self._sought, self._cancels = self._cancels, {}
            self._to_look.extend(self._queues)
            self._after, self._sees_all = 0, True
            self._look()

    def _look(self) -> None:
        """Ask for the next page; once more if there is no answer, for the queue may have crashed."""
        if self._to_look:
            self._look_at(self._to_look[0], self._after, self._looked)
            self._services.timers.set(self, self._services.now_ms() + ANSWER_MS_MAX)

    def _looked(self, looked: Looked, answer: Page | Refusal) -> None:
        """Take a page of a queue, and ask for the next one."""
        if not self._to_look or looked != (self._to_look[0], self._after):
            return  # it was asked for twice
        if isinstance(answer, Page):
            self._after = answer.after
            for row in answer.rows:
                self._see(self._to_look[0], row)
        elif answer.code == QueueNotFound.code:
            self._after = 0
        else:
            self._services.timers.set(self, self._services.now_ms() + LOOK_AGAIN_MS)
            return
        if not self._after:
            self._to_look.popleft()
        self._look()
        if not self._to_look:
            self._knows_all = self._sees_all
            self._seek()

    def on_alarm(self, _: Alarm) -> None:
        self._look()

    def _see(self, queue: str, row: dict[str, Any]) -> None:
        """Take a task that is killed off its queue, and remember where others are."""
        found = task_in(row)
        if found is None:
            return
        task_id, where = found[0], Where(queue, found[1])
        if task_id in self._sought:
            self._known.pop(task_id, None)
            self._cancel(where)
        elif task_id in self._known or len(self._known) < KNOWN_MAX:
            self._remember(task_id, where)
        else:
            self._sees_all = False


def _id_of(task: Task) -> str:
    return task.parcel.transfer.tag.id


def _size_of(task: Task) -> int:
    return len(task.parcel.transfer.message) + len(task.parcel.transfer.tag.text)


def _refused(code: int) -> Refused:
    name, detail = REFUSALS[Result(code)]
    return Refused(f"{name}: {detail}")


_HANDLERS: dict[type, Callable[[Tasks, Any], None]] = {
    Keep: Tasks.on_keep,
    Cancel: Tasks.on_cancel,
    Answered: Tasks.on_answered,
    Alarm: Tasks.on_alarm,
}
