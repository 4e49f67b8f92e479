"""Bridge: gives the tasks of a queue to the components that are connected to a controller's port, on a lease each.

    queue --> Fetch, Answered --> a component without a task --> (it works)
    exchange --> Pushed: the result, or the error instead --> Ack

A component cannot acknowledge, so its answer does.  A task whose component goes away is at once there for another one;
one that is not answered within the timeout of its queue goes to another one too.  What was given out by whoever led
before is found on the queue, so that its answer counts.  Must never take a task off its queue that was not answered or
killed.
"""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from wakeq.actors.mail import Answered, ReplyByMail
from wakeq.actors.monique.controller import Giver
from wakeq.actors.monique.counters import MoniqueCounters
from wakeq.actors.monique.crew import Crew, Out
from wakeq.actors.monique.mail import Changed, Join, Parcel, Pushed, Rest
from wakeq.actors.monique.queue_user import (
    ANSWER_MS_MAX,
    LOOK_AGAIN_MS,
    Looked,
    Place,
    Placed,
    QueueServices,
    QueueUser,
    task_in,
)
from wakeq.actors.runtime import Alarm, Down, Process
from wakeq.actors.sessions.operator_mail import Page
from wakeq.protocol.errors import QueueNotFound
from wakeq.protocol.log.entries import Reason
from wakeq.protocol.queue.outcomes import Delivery, Refusal
from wakeq.protocol.wire.monique.errors import BadTag, MoniqueError
from wakeq.protocol.wire.monique.exchange import Subscription
from wakeq.protocol.wire.monique.kills import ERROR, tells_of_kill
from wakeq.protocol.wire.monique.tags import SHOWN_CHARS_MAX
from wakeq.protocol.wire.monique.tasks import headers_of, task_transfer_of
from wakeq.protocol.wire.monique.transfers import Transfer

WAIT_MS = 30_000  # for a task, before the queue is asked again
LATE_MAX = 10_000  # tasks that somebody else may have by now
TASK, ANSWERS = "config", ("result", "error")


class Bridge(QueueUser):
    """See the head of this file."""

    def __init__(
        self,
        spec: str,
        queue: str,
        port: Giver,
        exchange: Process,
        services: QueueServices,
        counters: MoniqueCounters,
        *,
        checks: bool,
    ) -> None:
        super().__init__(services, counters)
        self._spec = spec
        self._name = queue
        self._port = port
        self._exchange = exchange
        self._checks = checks
        self._crew = Crew()
        self._late: dict[str, Place] = {}  # by the task's id: its lease is over or not ours, and its answer counts
        self._rests = False  # it gives nothing more
        self._ends = False  # it rests, and stops when there is nothing on the way to it
        self._question: ReplyByMail[list[Delivery] | Refusal | None] | None = None  # that the queue has to answer
        self._alarm_ms: int | None = None
        self._fetches_again_ms = 0
        self._looked_behind: int | None = 0  # for tasks that were given out before; None: all of them are known
        self._looks_again_ms = 0
        self._early: dict[str, None] = {}  # answered until then
        self._dropped = counters.dropper("from_queue", f"from queue {queue} to the components of {spec}")

    def on_start(self) -> None:
        self.runtime.monitor(self, self._exchange)
        answers = tuple(Subscription(self._spec, type) for type in ANSWERS)
        wanted = (*answers, Subscription(ERROR, ERROR))  # so a task was killed, or its component did not know it
        self._exchange.tell(Join(self, wanted))
        self._look()

    def on_receive(self, message: Any) -> None:
        _HANDLERS[type(message)](self, message)

    def on_down(self, message: Down) -> None:
        """The exchange has ended: so does this, but not before the queue has said what it gives, which goes back."""
        self._ends = True
        self.on_rest(Rest())
        self._maybe_stop()

    def on_rest(self, message: Rest) -> None:
        self._rests = True
        self._end_waiting()

    def _maybe_stop(self) -> None:
        if self._ends and self._question is None:
            self.stop()

    @property
    def out(self) -> int:
        """How many tasks are with components."""
        return self._crew.out

    # --- components -------------------------------------------------------------------------------------------------

    def on_changed(self, message: Changed) -> None:
        self._lose(self._crew.meet(message.components))
        if not message.components:
            self._end_waiting()
        self._ask()

    def _end_waiting(self) -> None:
        if self._question is not None:
            self._end_wait(self._name, self._question)

    def _lose(self, lost: list[Out]) -> None:
        """Who had it has gone: it is for others, unless its answer is still on the way."""
        self._give_back(self._name, [one.delivery for one in lost], Reason.DISCONNECT)
        self._counters.tasks["returned"] += len(lost)
        for one in lost:
            self._note_late(one)

    def _note_late(self, out: Out) -> None:
        self._late[out.task_id] = Place(out.delivery.queue_id, out.delivery.number)
        if len(self._late) > LATE_MAX:
            del self._late[next(iter(self._late))]

    def _first_free(self) -> int | None:
        """Return whose turn it is, of those who can take something."""
        return None if self._rests else next(filter(self._port.can_take, self._crew.in_turn()), None)

    def _ask(self) -> None:
        """Fetch as many as there are components that can take one."""
        if self._question is None and not self._fetches_again_ms and not self._rests:
            room = sum(map(self._port.can_take, self._crew.in_turn()))
            if room:
                self._question = ReplyByMail(self, self._fetched)
                self._fetch(self._name, self._question, room, WAIT_MS)

    # --- the queue --------------------------------------------------------------------------------------------------

    def on_answered(self, message: Answered[Any]) -> None:
        message.deliver()

    def _fetched(self, answer: list[Delivery] | Refusal | None) -> None:
        self._question = None
        if isinstance(answer, Refusal) or (answer and not self._may_pass_on(self._name, answer)):
            self._fetches_again_ms = self._wake_in(LOOK_AGAIN_MS)
        elif answer:
            self._give(answer)
        self._ask()
        self._maybe_stop()

    def _give(self, deliveries: Iterable[Delivery]) -> None:
        """Give each to a component; what none can take now must not wait here, where its lease would end unseen."""
        returned: list[Delivery] = []
        for delivery in deliveries:
            component = self._first_free()
            if component is None:
                returned.append(delivery)
            elif (transfer := self._task_in(delivery)) is not None:
                self._give_to(component, delivery, transfer)
        self._give_back(self._name, returned, Reason.RETURNED)

    def _give_to(self, component: int, delivery: Delivery, transfer: Transfer) -> None:
        sent = self._port.send(component, transfer.frames)
        assert sent, f"component {component} said that it can take something"
        self._crew.give(component, Out(transfer.tag.id, replace(delivery, body=b"")))
        self._wake_at(delivery.until_ms)
        self._counters.tasks["given"] += 1

    def _task_in(self, delivery: Delivery) -> Transfer | None:
        """Return the task for a component; one that no component could read is a dead letter."""
        try:
            transfer = task_transfer_of(delivery.body, headers_of(delivery.headers))
            if (transfer.tag.type, transfer.tag.spec) != (TASK, self._spec):
                raise BadTag(
                    f"the message tagged {transfer.tag.text[:SHOWN_CHARS_MAX]!a} is not a task of {self._spec}"
                )
            flaw = Parcel(transfer).flaw if self._checks else None
            if flaw is not None:
                raise flaw
        except MoniqueError as error:
            self._dropped(error)
            self._give_back(self._name, [delivery], Reason.REJECTED, str(error))
            return None
        return transfer

    # --- what was given out before ------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Ask for the next page of tasks that somebody has; once more if there is no answer."""
        if self._looked_behind is not None:
            self._look_at(self._name, self._looked_behind, self._looked, leased_only=True)
            self._looks_again_ms = self._wake_in(ANSWER_MS_MAX)

    def _looked(self, looked: Looked, answer: Page | Refusal) -> None:
        """Know again what another bridge has given out; from here a worker's task cannot be told from it."""
        if looked.after != self._looked_behind:
            return  # it was asked for twice
        self._looks_again_ms = 0
        if isinstance(answer, Page):
            self._looked_behind = answer.after or None
            self._know_again([found for row in answer.rows if (found := task_in(row)) is not None])
        elif answer.code == QueueNotFound.code:
            self._looked_behind = None
        else:
            self._looks_again_ms = self._wake_in(LOOK_AGAIN_MS)
            return
        self._look()
        if self._looked_behind is None:
            self._early.clear()

    def _know_again(self, tasks: Iterable[tuple[str, Place]]) -> None:
        done: list[Placed] = []
        for task_id, place in tasks:
            if task_id in self._early:
                done.append(place)
            elif len(self._late) < LATE_MAX:
                self._late.setdefault(task_id, place)
        self._counters.tasks["answered"] += self._acknowledge_all(self._name, done)

    # --- answers ----------------------------------------------------------------------------------------------------

    def on_pushed(self, message: Pushed) -> None:
        done: list[Placed] = []
        for parcel in message.parcels:
            task_id = parcel.transfer.tag.pid
            ended = self._end(task_id)
            done += ended
            if ended and not (parcel.transfer.tag.spec == ERROR and tells_of_kill(parcel.transfer)):
                self._counters.tasks["answered"] += 1
            if self._looked_behind is not None and len(self._early) < LATE_MAX:
                self._early[task_id] = None
        self._acknowledge_all(self._name, done)
        self._ask()

    def _end(self, task_id: str) -> list[Placed]:
        """Return where a task is that was answered, whoever has it; nobody is to have it any more."""
        ended: list[Placed] = [out.delivery for out in self._crew.end(task_id)]
        late = self._late.pop(task_id, None)
        return ended if late is None else [*ended, late]

    # --- time -------------------------------------------------------------------------------------------------------

    def on_alarm(self, message: Alarm) -> None:
        """Leases that are over make room; their tasks are on the queue again."""
        now_ms, self._alarm_ms = message.now_ms, None
        for late in self._crew.expire(now_ms):
            self._note_late(late)
        if self._fetches_again_ms <= now_ms:
            self._fetches_again_ms = 0
        if 0 < self._looks_again_ms <= now_ms:
            self._look()
        for moment in (self._crew.next_end_ms, self._fetches_again_ms, self._looks_again_ms):
            if moment:
                self._wake_at(moment)
        self._ask()

    def _wake_in(self, span_ms: int) -> int:
        """Look at the time when this span of it is over; return that moment."""
        moment = self._services.now_ms() + span_ms
        self._wake_at(moment)
        return moment

    def _wake_at(self, moment: int) -> None:
        """Look at the time by then; that is too early if what was to be done is done, and then it is looked up."""
        if self._alarm_ms is None or moment < self._alarm_ms:
            self._alarm_ms = moment
            self._services.timers.set(self, moment)


_HANDLERS: dict[type, Callable[[Bridge, Any], None]] = {
    Changed: Bridge.on_changed,
    Answered: Bridge.on_answered,
    Pushed: Bridge.on_pushed,
    Alarm: Bridge.on_alarm,
    Down: Bridge.on_down,
    Rest: Bridge.on_rest,
}
