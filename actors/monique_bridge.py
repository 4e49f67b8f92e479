"""Bridge: gives the tasks of a queue to the components that are connected to a controller's port, on a lease each.

    queue --> Fetch, Answered --> PUSH, as many as there are components --> (they work)
    exchange --> Pushed: the result, or the error instead --> Ack

A component cannot acknowledge, so its answer does.  A task that is not answered within the timeout of its queue goes to
another component, and so does one that was out when the last component left.  Must never take a task off its queue that
was not answered or killed.
"""

from collections.abc import Callable
from typing import Any

from wakeq.actors.messages import Answered, Delivery, Refusal
from wakeq.actors.monique_controller import Giver
from wakeq.actors.monique_dropped import Dropped
from wakeq.actors.monique_messages import Changed, Do, Done, Parcel, Pushed
from wakeq.actors.monique_queues import LOOK_AGAIN_MS, Acknowledged, QueueServices, QueueUser
from wakeq.actors.runtime import Alarm, Down, Process
from wakeq.protocol.commands import Reason
from wakeq.protocol.exchange import Subscription
from wakeq.protocol.wire.monique.commands import Subscribe, Subscribed
from wakeq.protocol.wire.monique.conversation import Intent
from wakeq.protocol.wire.monique.errors import MoniqueError
from wakeq.protocol.wire.monique.kills import ERROR
from wakeq.protocol.wire.monique.tasks import headers_of, task_transfer_of
from wakeq.protocol.wire.monique.transfers import Transfer

WAIT_MS = 30_000  # for a task, before the queue is asked again
LATE_MAX = 10_000  # tasks whose lease is over
ANSWERS = ("result", "error")


class Bridge(QueueUser):
    """See the head of this file."""

    def __init__(
        self, spec: str, queue: str, port: Giver, exchange: Process, services: QueueServices, *, checks: bool
    ) -> None:
        super().__init__(services)
        self._spec = spec
        self._name = queue
        self._port = port
        self._exchange = exchange
        self._checks = checks
        self._components = 0
        self._out: dict[str, Delivery] = {}  # by the task's id: given to a component, its lease is not over
        self._late: dict[str, Delivery] = {}  # its lease is over, and its answer would still count; the oldest first
        self._line: dict[str, tuple[Delivery, Transfer]] = {}  # fetched, and no component could take it yet
        self._question: object | None = None  # that the queue has to answer
        self._looks_again_ms = 0
        self._dropped = Dropped(f"from queue {queue} to the components of {spec}", services.now_ms)

    def on_start(self) -> None:
        self.runtime.monitor(self, self._exchange)
        answers = tuple(Subscription(self._spec, type) for type in ANSWERS)
        wanted = (*answers, Subscription(ERROR, ERROR))  # the last one says that a task was killed
        self._exchange.tell(Do(self, [Intent(Subscribe(wanted), Subscribed(wanted))]))

    def on_receive(self, message: Any) -> None:
        _HANDLERS[type(message)](self, message)

    def on_nothing(self, message: Done) -> None:
        """It is subscribed."""

    def on_down(self, message: Down) -> None:
        self.stop()

    def on_stop(self) -> None:
        """What is out may still be answered to whoever comes next; what is in hand goes back."""
        self._give_back(self._name, [delivery for delivery, _ in self._line.values()], Reason.RETURNED)

    # --- components -------------------------------------------------------------------------------------------------

    def on_changed(self, message: Changed) -> None:
        self._components = message.components
        if not self._components:
            self._lose_all()
        self._give()

    def _lose_all(self) -> None:
        """The last component has gone: what it had is for another one, unless its answer is still on the way."""
        self._give_back(self._name, list(self._out.values()), Reason.DISCONNECT)
        self._give_back(self._name, [delivery for delivery, _ in self._line.values()], Reason.RETURNED)
        self._late |= self._out
        self._out.clear()
        self._line.clear()
        if self._question is not None:
            self._end_wait(self._name, self._question)

    def _give(self) -> None:
        """Hand out what is here, and fetch as many as there are components without a task."""
        while len(self._late) > LATE_MAX:
            del self._late[next(iter(self._late))]
        for task_id, (delivery, transfer) in list(self._line.items()):
            if not self._port.send(transfer.frames):
                break
            del self._line[task_id]
            self._out[task_id] = delivery
        self._look_in_time()
        room = self._components - len(self._out) - len(self._line)
        if room > 0 and self._question is None and not self._looks_again_ms:
            self._question = object()
            self._fetch(self._name, self._question, room, WAIT_MS)

    # --- the queue --------------------------------------------------------------------------------------------------

    def on_answered(self, message: Answered) -> None:
        for ticket, _, answer in message.answers:
            if isinstance(ticket, Acknowledged):
                self._acknowledged(ticket, answer)
            elif ticket is not None and ticket is self._question:
                self._question = None
                self._fetched(answer)

    def _fetched(self, answer: list[Delivery] | Refusal | None) -> None:
        if isinstance(answer, Refusal):
            self._looks_again_ms = self._services.now_ms() + LOOK_AGAIN_MS
        elif answer is not None and not self._components:
            self._give_back(self._name, answer, Reason.RETURNED)
        elif answer is not None:
            for delivery in answer:
                self._line_up(delivery)
        self._give()

    def _line_up(self, delivery: Delivery) -> None:
        """Have it ready for a component; one that no component could read is a dead letter."""
        try:
            transfer = task_transfer_of(delivery.body, headers_of(delivery.headers))
            flaw = Parcel(transfer).flaw if self._checks else None
            if flaw is not None:
                raise flaw
        except MoniqueError as error:
            self._dropped.note(error)
            self._give_back(self._name, [delivery], Reason.REJECTED, str(error))
        else:
            self._late.pop(transfer.tag.id, None)
            self._line[transfer.tag.id] = delivery, transfer

    # --- answers ----------------------------------------------------------------------------------------------------

    def on_pushed(self, message: Pushed) -> None:
        done: list[Delivery] = []
        for parcel in message.parcels:
            task_id = parcel.transfer.tag.pid
            delivery = self._out.pop(task_id, None) or self._late.pop(task_id, None)
            if task_id in self._line:  # answered by who had it before
                delivery, _ = self._line.pop(task_id)
            if delivery is not None:
                done.append(delivery)
        self._acknowledge_all(self._name, done)
        self._give()

    # --- time -------------------------------------------------------------------------------------------------------

    def on_alarm(self, message: Alarm) -> None:
        """Leases that are over make room; their tasks are on the queue again."""
        self._looks_again_ms = 0
        for task_id in [task_id for task_id, one in self._out.items() if one.until_ms <= message.now_ms]:
            self._late[task_id] = self._out.pop(task_id)
        self._give()

    def _look_in_time(self) -> None:
        moments = [delivery.until_ms for delivery in self._out.values()]
        if self._looks_again_ms:
            moments.append(self._looks_again_ms)
        if moments:
            self._services.timers.set(self, min(moments))


_HANDLERS: dict[type, Callable[[Bridge, Any], None]] = {
    Changed: Bridge.on_changed,
    Answered: Bridge.on_answered,
    Pushed: Bridge.on_pushed,
    Alarm: Bridge.on_alarm,
    Done: Bridge.on_nothing,
    Down: Bridge.on_down,
}
