"""A server's side of one TaskFlux connection without a socket and without a queue: a test gives the outcomes.

    session.receive([...]) --> Conversation --> HandLobby; session.begun(): the slots of what was filed
    session.tell(slot, outcome) --> session.hear() --> responses

It holds no rule of its own: what a queue would say is told it by the test, as a response or in a queue's own words.
"""

from collections.abc import Sequence
from typing import Any

from tests.helpers.doors.lanes import HandLobby, everything
from tests.helpers.taskflux.apart import apart
from wakeq.protocol.catalog import Policies, QueueRecord
from wakeq.protocol.errors import Refused, Unauthorized
from wakeq.protocol.log.entries import Draft, Result
from wakeq.protocol.queue import orders
from wakeq.protocol.queue.outcomes import Delivery, Leased, Outcome, Refusal, RemovedOnDelivery
from wakeq.protocol.wire.slots import MISSING, Slot
from wakeq.protocol.wire.taskflux.answers import Known
from wakeq.protocol.wire.taskflux.commands import (
    EMPTY,
    OK,
    PAYLOAD_BYTES_MAX,
    AuthorizationRequest,
    AuthorizationResponse,
    Bad,
    BootstrapRequest,
    BootstrapResponse,
    BusinessError,
    ClusterMetadataResponse,
    CountResponse,
    Dequeue,
    Enqueue,
    ErrorCode,
    NotLeader,
    Packet,
    QueueSizeViolation,
    Record,
    Remove,
    Store,
    Taken,
)
from wakeq.protocol.wire.taskflux.conversation import Conversation
from wakeq.protocol.wire.taskflux.dialects import LEGACY, SPEC, Dialect

DOOR = 3
TERM = 5


class HandTaskFluxSession:
    """A session that keeps what its conversation wants of it."""

    alive = True
    number = 1
    door_kind = DOOR
    needs_permission = True

    def __init__(
        self, dialect: Dialect = SPEC, payload_bytes_max: int = PAYLOAD_BYTES_MAX, known: Known | None = None
    ) -> None:
        self.lobby = HandLobby()
        self.filed = self.lobby.filed
        self.is_dirty = False
        self.is_welcome = False
        self.leader = 0
        self.policies = Policies()  # of every queue
        self.forbidden: dict[type, Refused] = {}  # by kind of command
        self.withdrawn: dict[int, Refusal] = {}  # by term
        self.unsent: list[tuple[str, list[Leased]]] = []
        self.listings: list[Slot] = []
        self.stopped: list[Slot] = []  # fetches that are to wait no longer
        self._said: list[Packet] = []  # what has left, and no test has looked at yet
        here = Known(self._find, lambda: ClusterMetadataResponse(("a:1",), self.leader, 0), payload_bytes_max)
        self.conversation = Conversation(self, dialect, known or here)

    # --- what the conversation needs -------------------------------------------------------------------------------

    def note_dirty(self) -> None:
        assert not self.is_dirty, "it is flushed once"
        self.is_dirty = True

    def withdrawal(self, term: int) -> Refusal | None:
        return self.withdrawn.get(term)

    def permit(self, command: Any) -> Refused | None:
        return self.forbidden.get(type(command))

    def log_in(self, token: str | None) -> None:
        if token not in (None, "good"):
            raise Unauthorized("the token is not valid")

    def welcome(self) -> None:
        self.is_welcome = True

    def list_queues(self, slot: Slot) -> None:
        self.listings.append(slot)

    def return_unsent(self, name: str, deliveries: Sequence[Leased]) -> None:
        self.unsent.append((name, list(deliveries)))

    def _find(self, name: str) -> QueueRecord:
        return QueueRecord(name, 1, self.policies, 0)

    # --- what a test does ------------------------------------------------------------------------------------------

    def receive(self, *packets: Packet | Bad) -> list[Slot]:
        """Let one read bring these; return what was begun."""
        self.conversation.receive(packets)
        return self.begun()

    def begun(self) -> list[Slot]:
        """Return what was filed since the last time, in the order of the packets; then what nobody is answered."""
        found, self.listings = self.listings, []
        for lanes in self.lobby.lanes.values():
            filed = lanes.take()
            if filed is None:
                continue
            self.stopped += [order.asker for order in filed.orders if isinstance(order, orders.EndWait)]
            filed.orders = [order for order in filed.orders if not isinstance(order, orders.EndWait | orders.Touch)]
            found += [getattr(slot, "slot", slot) for slot in everything(filed)]
        places = {id(slot): place for place, slot in enumerate(self.conversation.slots)}
        return sorted(found, key=lambda slot: places.get(id(slot), len(places)))

    def resolve(self, *outcomes: tuple[Slot, Any]) -> list[Slot]:
        """Tell what became of commands, and flush; return what was begun then.  The answers are kept for `hear`."""
        for slot, outcome in outcomes:
            slot.tell(self.in_words_of_a_queue(slot.command, outcome))
        self._flush()
        return self.begun()

    def end(self) -> list[Slot]:
        self.conversation.end()
        return self.begun()

    def lose(self) -> list[Slot]:
        self.conversation.lose()
        self._flush()
        return self.begun()

    def hear(self) -> list[Packet | Bad]:
        """Return the answers that have left, packet by packet."""
        return apart(self.say())

    def say(self) -> list[Packet]:
        """The same, as they are encoded."""
        self._flush()
        said, self._said = self._said, []
        return said

    def _flush(self) -> None:
        self.is_dirty = False
        self._said = [*self._said, *self.conversation.take_replies()]
        self.is_dirty = False

    def in_words_of_a_queue(self, command: Any, outcome: Any) -> Any:
        """Return what a queue says, of which this response is made."""
        match outcome:
            case NotLeader(leader=leader):
                self.leader = leader
                return Refusal("NOT_LEADER", "another node leads")
            case BusinessError(code=ErrorCode.NO_QUEUE) if not isinstance(command, Store):
                return Refusal("Q_NOT_FOUND", "no such queue")
            case BusinessError() if not isinstance(command, Store):
                return Refusal("BUSY", "no")
            case Taken(ids=ids, drafts=drafts):
                return RemovedOnDelivery(ids, drafts) if ids else None
            case Record(key=key, payload=payload, id=number):
                return [Delivery(f"uid {number}", 0, 0, payload, (TERM, number), key, b"", 7, number, 0)]
            case CountResponse(count=count):
                return {"size": count}
        if outcome is EMPTY:
            return None
        if isinstance(command, Store) and (outcome is OK or isinstance(outcome, list | BusinessError)):
            each = outcome if isinstance(outcome, list) else [outcome] * len(command.drafts)
            codes = [self._code_of(response, place) for place, response in enumerate(each, 1)]
            return Outcome(command.queue, 7, range(1, len(codes) + 1) if outcome is OK else codes)
        if isinstance(command, Store) and isinstance(outcome, QueueSizeViolation):
            return Outcome(command.queue, 7, [self._code_of(outcome, 0)])
        if outcome is OK:
            return 0 if isinstance(command, Remove) else Outcome("q", 7, [0])
        return outcome

    def _code_of(self, response: Any, number: int) -> int:
        match response:
            case QueueSizeViolation(limit=limit):
                self.policies = Policies(max_size=limit)
                return int(Result.QUEUE_FULL)
            case BusinessError(code=code):
                return int(Result.NO_QUEUE if code is ErrorCode.NO_QUEUE else Result.BUSY)
        return number


def ready(dialect: Dialect = SPEC, payload_bytes_max: int = PAYLOAD_BYTES_MAX) -> HandTaskFluxSession:
    """Return a connection behind the handshake."""
    session = HandTaskFluxSession(SPEC if dialect is LEGACY else dialect, payload_bytes_max)
    version = BootstrapRequest(0, 1, 0) if dialect is LEGACY else BootstrapRequest(1, 0, 0)
    assert not session.receive(AuthorizationRequest(), version)
    assert session.hear() == [AuthorizationResponse(True), BootstrapResponse(True)]
    assert session.is_welcome
    return session


def commands(slots: Sequence[Slot]) -> list[object]:
    return [slot.command for slot in slots]


def stored(*enqueues: Enqueue) -> Store:
    """Return what is to be done for acknowledged Enqueues of one queue."""
    return Store(enqueues[0].queue, [Draft(enqueue.payload, enqueue.key) for enqueue in enqueues])


def held(session: HandTaskFluxSession) -> Remove:
    """Return what an Ack would do now."""
    found = session.conversation.held
    assert isinstance(found, Remove)
    return found


def taken(session: HandTaskFluxSession) -> Remove:
    """Have a record delivered to the client; return what its Ack would do."""
    (dequeue,) = session.receive(Dequeue("q"))
    assert not session.resolve((dequeue, Record(1, b"x", 7)))
    assert session.hear() == [Record(1, b"x", 7)]
    return held(session)


def is_open(slot: Slot) -> bool:
    return slot.outcome is MISSING
