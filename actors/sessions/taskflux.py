"""TaskFluxSubscriber: one connection of the TaskFlux protocol.

    Received (listener) --> Conversation --> intents --> lanes of queues --> Answered --> Conversation --> Door

The conversation knows the order of things and this process how each is done: acknowledgements in a row are one order,
everything else is filed by itself.  Outcomes come by mail.  A record that the client holds is a lease, renewed as
long as the connection lives.  It knows no queue rule.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from wakeq.actors.mail import Answered, Asker, EndWaits, Fetch, Gone, Unsent, Want
from wakeq.actors.queues.lobby import Lobby
from wakeq.actors.runtime import Alarm, Process, Timers
from wakeq.actors.sessions.access import STRANGER, Access, Gate
from wakeq.actors.sessions.connection_facts import describe
from wakeq.actors.sessions.door import CarefulDoor, Closed, Drained, Ended, Idle, Received, SendAway
from wakeq.actors.sessions.in_flight import bound_reading
from wakeq.actors.sessions.operator_mail import Describe
from wakeq.actors.sessions.taskflux_permissions import refusal_of
from wakeq.actors.sessions.taskflux_replies import (
    Holding,
    Known,
    changed,
    counted,
    dequeued,
    listed,
    refusal,
    removed,
    returned,
    stored,
    taken,
)
from wakeq.protocol.errors import Unauthorized
from wakeq.protocol.log import entries as log
from wakeq.protocol.log.entries import Draft
from wakeq.protocol.queue.lanes import Filed
from wakeq.protocol.queue.orders import Acknowledge, Nack, Propose, Stats, Touch
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.wire.taskflux.conversation import Conversation
from wakeq.protocol.wire.taskflux.dialects import Dialect
from wakeq.protocol.wire.taskflux.intents import Intent, Outcome, Remove, Return, StopWaiting, Store, Take
from wakeq.protocol.wire.taskflux.packets import (
    METHOD_TOKEN,
    AuthorizationRequest,
    ClusterMetadataRequest,
    Count,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    ListQueues,
    Response,
)
from wakeq.protocol.wire.taskflux.queues import policies_of
from wakeq.protocol.wire.worker.commands import TIMEOUT_S_MIN

RENEWALS_PER_LEASE = 3
LEASE_MS_MIN = TIMEOUT_S_MIN * 1000  # of one that was long on its way less can be left, or nothing
LAST = (Remove, Return, StopWaiting, ClusterMetadataRequest)  # what ends something that was begun, or helps to go

Read = Callable[[Sequence[Intent], Any, Known], Sequence[Outcome]]


class TaskFluxServices(NamedTuple):
    """What every subscriber of this protocol works with."""

    lobby: Lobby
    queues: Process  # is asked for the figures of all queues
    timers: Timers
    now_ms: Callable[[], int]
    known: Known
    gate: Gate | None = None  # None: whoever can connect may do everything
    withdrawal: Callable[[int], Refusal | None] = lambda term: None  # why a delivery of a term may not leave any more


class Asked(NamedTuple):
    """Intents that are answered together, and how the answer is read."""

    intents: Sequence[Intent]
    read: Read


class TaskFluxSubscriber(Process):
    """See the head of this file."""

    def __init__(self, door: CarefulDoor[Response], dialect: Dialect, worker: int, services: TaskFluxServices) -> None:
        super().__init__()
        self._door = door
        self._worker = worker
        self._services = services
        payload_bytes_max = services.known.payload_bytes_max
        self._conversation = Conversation(dialect, payload_bytes_max, self._authorize, door.welcome)
        self._access = None if services.gate is None else STRANGER
        self._waiting: Fetch | None = None  # the last that may have waited for a record
        self._in_flight_bytes = 0
        self._paused = False
        self._is_closed = self._is_sent_away = False
        self._holding: Holding | None = None  # the last that was, or is
        self._lease_ms = 0  # of that
        self._renews_at_ms = 0  # when the lease of a held record is to be renewed, if one is held by then

    def on_receive(self, message: Any) -> None:
        _HANDLERS[type(message)](self, message)

    def _authorize(self, request: AuthorizationRequest) -> str:
        """See who this is; return why he may not come in, or nothing."""
        gate = self._services.gate
        if gate is not None:
            try:
                self._access = gate.login(request.token if request.method == METHOD_TOKEN else None, self._door)
            except Unauthorized as error:
                return str(error)
        return ""

    # --- in and out --------------------------------------------------------------------------------------------------

    def on_received(self, message: Received[Any]) -> None:
        self._in_flight_bytes += message.size_bytes
        self._go_on(self._conversation.receive(message.commands))

    def on_answered(self, message: Answered) -> None:
        outcomes: list[tuple[Intent, Outcome]] = []
        known = self._services.known
        for ticket, _, answer in message.answers:
            if type(ticket) is Asked:  # a renewed lease has none
                outcomes += zip(ticket.intents, ticket.read(ticket.intents, answer, known), strict=True)
        if outcomes:
            self._go_on(self._conversation.resolve(outcomes))

    def on_describe(self, message: Describe) -> None:
        asker = message.asker
        facts = describe(self, self._worker, self._door, in_flight=0)
        asker.tell(facts)

    def on_drained(self, message: Drained) -> None:
        self._go_on(self._conversation.go_on())

    def on_ended(self, message: Ended) -> None:
        self._go_on(self._conversation.ended())

    def on_send_away(self, message: SendAway) -> None:
        """The broker stops; what is under way, and what ends it, is still done."""
        self._is_sent_away = True

    def on_idle(self, message: Idle) -> None:
        """Nothing is sent: the client is not listening, or does not know what to do with it."""
        if not self._conversation.in_flight:
            self._door.drop("idle for too long")

    def on_closed(self, message: Closed) -> None:
        """Give back what was held; the process ends when that is done."""
        self._is_closed = True
        self._go_on(self._conversation.lost())

    def on_failure(self, *_: Any) -> None:
        self._door.close("internal error")
        if self._waiting is not None:
            self._services.lobby.queue(self._waiting.queue).tell(Gone(self, self._waiting.queue))

    def _go_on(self, intents: Sequence[Intent]) -> None:
        """Do what is to be done, and say what is known."""
        conversation = self._conversation
        while intents:
            known_at_once = self._begin(intents)
            intents = conversation.resolve(known_at_once) if known_at_once else []
        if self._is_closed:
            if not conversation.under_way:
                self.stop()
            return
        self._withdraw()
        answers = conversation.answers()
        if answers:
            self._door.send(answers)
            if self._door.is_congested:
                conversation.hold_up()
        held = conversation.held
        if held is not None and held.handle is not self._holding:
            self._hold(held.handle)
        self._bound()
        if conversation.finished:
            self._finish()

    def _withdraw(self) -> None:
        """Keep a record from leaving that was delivered before this node was deposed, unless its client has taken it.

        One that is acknowledged unseen may be removed by now, so nobody else would get it.
        """
        unseen = self._conversation.unseen
        if unseen is None:
            return
        answer = self._services.withdrawal(unseen.handle.token[0])
        if answer is not None:
            self._conversation.withdraw(refusal(answer, self._services.known))
            self._filed(unseen.queue).orders.append(Unsent(unseen.queue, [unseen.handle]))

    def _finish(self) -> None:
        """Everything is said."""
        if self._conversation.has_ended:
            self._door.hang_up()
        else:
            self._door.close(self._conversation.closing)

    def _bound(self) -> None:
        """Read no more while too much is under way."""
        in_flight = self._conversation.in_flight
        if not (in_flight or self._conversation.is_deciding):
            self._in_flight_bytes = 0
        self._door.keep(self._in_flight_bytes)
        self._paused = bound_reading(
            self._door, is_paused=self._paused, in_flight=in_flight, in_flight_bytes=self._in_flight_bytes
        )

    # --- beginning ---------------------------------------------------------------------------------------------------

    def _filed(self, name: str) -> Filed:
        """Return where commands for a queue are filed."""
        return self._services.lobby.lanes_of(name).open()

    def _begin(self, intents: Sequence[Intent]) -> list[tuple[Intent, Outcome]]:
        """Begin intents, in their order; return what is known of them at once."""
        known: list[tuple[Intent, Outcome]] = []
        if self._is_sent_away:
            away = self._services.known.not_leader()  # of a node that is alone: to itself, once it is there again
            known += [(intent, away) for intent in intents if not isinstance(intent.work, LAST)]
            intents = [intent for intent in intents if isinstance(intent.work, LAST)]
        if self._access is not None:
            intents = self._permitted(intents, self._access, known)
        for _, alike in groupby(intents, self._kin):
            run = list(alike)
            _BEGIN[type(run[0].work)](self, run, known)
        return known

    def _permitted(
        self, intents: Sequence[Intent], access: Access, known: list[tuple[Intent, Outcome]]
    ) -> Sequence[Intent]:
        """Return those that this client may have done; the others are answered at once."""
        refused = [(intent, error) for intent in intents if (error := refusal_of(intent.work, access)) is not None]
        if not refused:
            return intents
        answers = self._services.known
        known += [(intent, refusal(Refusal(error.code, str(error)), answers)) for intent, error in refused]
        out = {id(intent) for intent, _ in refused}
        return [intent for intent in intents if id(intent) not in out]

    def _kin(self, intent: Intent) -> Any:
        """Return what intents in a row must have in common to be begun together."""
        work: Any = intent.work
        kind = type(work)
        return (kind, work.queue, work.handle.queue_id) if kind is Remove else id(intent)

    def _store(self, run: Sequence[Intent], _: Any) -> None:
        work: Any = run[0].work
        drafts = work.drafts
        oversized = len(drafts[0].body) > self._services.known.payload_bytes_max  # then it is alone
        if oversized:
            drafts = [Draft(b"", drafts[0].priority)]
        entry = log.Publish(
            work.queue,
            drafts,
            door=self._door.kind,
            worker=self._worker,
            must_exist=True,
            oversized=oversized,
            alike=len({draft.priority for draft in drafts}) == 1,  # a record has nothing else
        )
        self._filed(work.queue).publish_whole(self._asker(run, stored), entry)

    def _remove(self, run: Sequence[Intent], _: Any) -> None:
        first: Any = run[0].work
        holdings = [intent.work.handle for intent in run]  # type: ignore[union-attr]
        numbers = [holding.number for holding in holdings]
        about = first.handle.queue_id, numbers, [holding.token for holding in holdings], self._worker, self._door.kind
        self._filed(first.queue).orders.append(Acknowledge(self._asker(run, removed), first.queue, *about))

    def _return(self, run: Sequence[Intent], *_: Any) -> None:
        work: Any = run[0].work
        asker = Asker(self, Asked(run, returned), [0])
        nack = Nack(asker, work.queue, [work.handle.uid], [work.handle.token], 0, reason=work.reason)
        self._filed(work.queue).orders.append(nack)

    def _create(self, run: Sequence[Intent], _: Any) -> None:
        work: Any = run[0].work
        entry = log.CreateQueue(work.queue, policies_of(work))
        self._filed(work.queue).orders.append(Propose(entry, self._asker(run, changed)))

    def _delete(self, run: Sequence[Intent], _: Any) -> None:
        work: Any = run[0].work
        self._filed(work.queue).orders.append(Propose(log.DeleteQueue(work.queue), self._asker(run, changed)))

    def _count(self, run: Sequence[Intent], *_: Any) -> None:
        work: Any = run[0].work
        self._filed(work.queue).orders.append(Stats(self._asker(run, counted), work.queue))

    def _list(self, run: Sequence[Intent], *_: Any) -> None:
        self._services.queues.tell(Stats(self._asker(run, listed), "", all_queues=True))

    def _describe_cluster(self, run: Sequence[Intent], known: list[tuple[Intent, Outcome]]) -> None:
        known.append((run[0], self._services.known.nodes()))

    def _asker(self, run: Sequence[Intent], read: Read) -> Asker:
        return Asker(self, Asked(run, read), None)

    # --- records -----------------------------------------------------------------------------------------------------

    def _dequeue(self, run: Sequence[Intent], *_: Any) -> None:
        work: Any = run[0].work
        self._waiting = self._fetch(work.queue, run, Want(None, 1, work.timeout_ms), dequeued)

    def _take(self, run: Sequence[Intent], *_: Any) -> None:
        work: Any = run[0].work
        self._fetch(work.queue, run, Want(None, len(work.dequeues)), taken, removes=True)

    def _fetch(self, name: str, run: Sequence[Intent], want: Want, read: Read, *, removes: bool = False) -> Fetch:
        ticket, door, worker = Asked(run, read), self._door.kind, self._worker
        fetch = Fetch(name, self, ticket, [want], worker, door, must_exist=True, removes=removes)
        self._filed(name).orders.append(fetch)
        return fetch

    def _stop_waiting(self, *_: Any) -> None:
        assert self._waiting is not None, "a Dequeue is under way"
        self._filed(self._waiting.queue).orders.append(EndWaits(self, self._waiting.ticket, self._waiting.queue))

    def _hold(self, holding: Holding) -> None:
        """See that what the client holds now is renewed in time, if it does so for long."""
        self._holding = holding
        self._lease_ms = max(holding.until_ms - self._services.now_ms(), LEASE_MS_MIN)
        self._renew_in_time()

    def _renew_in_time(self) -> None:
        moment_ms = self._services.now_ms() + self._lease_ms // RENEWALS_PER_LEASE
        if not self._renews_at_ms or moment_ms < self._renews_at_ms:
            self._renews_at_ms = moment_ms
            self._services.timers.set(self, moment_ms)

    def on_alarm(self, message: Alarm) -> None:
        """Renew the lease of what is held, however long it has been so: to look at that would cost more."""
        self._renews_at_ms = 0
        held = self._conversation.held
        if held is not None:
            uid, token = held.handle.uid, held.handle.token
            self._filed(held.queue).orders.append(Touch(Asker(self, None, [0]), held.queue, [uid], [token], 0))
            self._renew_in_time()


_HANDLERS: dict[type, Callable[[TaskFluxSubscriber, Any], None]] = {
    Received: TaskFluxSubscriber.on_received,
    Answered: TaskFluxSubscriber.on_answered,
    Drained: TaskFluxSubscriber.on_drained,
    Describe: TaskFluxSubscriber.on_describe,
    Ended: TaskFluxSubscriber.on_ended,
    Idle: TaskFluxSubscriber.on_idle,
    SendAway: TaskFluxSubscriber.on_send_away,
    Closed: TaskFluxSubscriber.on_closed,
    Alarm: TaskFluxSubscriber.on_alarm,
}

_BEGIN: dict[type, Callable[..., None]] = {
    Store: TaskFluxSubscriber._store,
    Remove: TaskFluxSubscriber._remove,
    Return: TaskFluxSubscriber._return,
    CreateQueue: TaskFluxSubscriber._create,
    DeleteQueue: TaskFluxSubscriber._delete,
    Count: TaskFluxSubscriber._count,
    ListQueues: TaskFluxSubscriber._list,
    ClusterMetadataRequest: TaskFluxSubscriber._describe_cluster,
    Dequeue: TaskFluxSubscriber._dequeue,
    Take: TaskFluxSubscriber._take,
    StopWaiting: TaskFluxSubscriber._stop_waiting,
}
