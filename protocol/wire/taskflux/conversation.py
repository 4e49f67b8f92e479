"""Conversation: one connection of TaskFlux, without a socket and without an actor.

    packets --> receive: a slot for each command, filed into the lane of its queue --> outcomes in the slots
    take_replies: the answers that may leave, in the order of the packets; `is_finished` says when to close

A pipelining client sees its commands as if done one after the other.  Enqueues, and acknowledgements of records, are
under way together, so that one write of the log takes them all; a Dequeue, Count or ListQueues waits for what was
changed before it, an Enqueue for what is given back, and everything for a Dequeue, ListQueues, CreateQueue or
DeleteQueue; but Dequeues of one queue that are acknowledged ahead go together.  What was read in one piece begins so,
or is put apart where each packet decides what comes next.

It must never look into a queue, or wait.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from wakeq.protocol.errors import Refused
from wakeq.protocol.log import entries as log
from wakeq.protocol.log.entries import Draft, Reason
from wakeq.protocol.queue import orders
from wakeq.protocol.queue.lanes import Filed
from wakeq.protocol.queue.outcomes import Delivery, Leased, Refusal, RemovedOnDelivery
from wakeq.protocol.wire.slots import MISSING, SeveralResults, Slot
from wakeq.protocol.wire.taskflux.answers import REPLIES, Known, in_dialect, policies_of, refusal, taken
from wakeq.protocol.wire.taskflux.checks import wrong_in, wrong_name
from wakeq.protocol.wire.taskflux.commands import (
    EMPTY,
    OK,
    Ack,
    Bad,
    BusinessError,
    ClusterMetadataRequest,
    Count,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    Dequeues,
    Enqueue,
    Enqueues,
    ErrorCode,
    ErrorResponse,
    Holding,
    ListQueues,
    Nack,
    Packet,
    Record,
    Remove,
    Response,
    Return,
    Store,
    Take,
)
from wakeq.protocol.wire.taskflux.dialects import Dialect
from wakeq.protocol.wire.taskflux.handshake import Handshake, Phase, described
from wakeq.protocol.wire.taskflux.parked import Parked

# What is still done when the broker stops: it ends something that was begun, or helps the client to go.
LAST = frozenset({Remove, Return, ClusterMetadataRequest})
_AWAY = Refusal("NOT_LEADER", "the broker stops")
_LOOKING = frozenset({Dequeue, Dequeues, Count, ListQueues})
_STORING = frozenset({Enqueue, Enqueues})
_MANY = frozenset({Enqueues, Dequeues})


class Session(Protocol):
    """What a conversation needs of the actor that holds it."""

    is_dirty: bool
    number: int  # of the connection, in the log and in the history
    door_kind: int
    needs_permission: bool  # whether `permit` is to be asked

    def note_dirty(self) -> None:
        """There is something to send at the end of the round."""

    def filed(self, name: str) -> Filed:
        """Return where to file for a queue, which need not exist."""

    def withdrawal(self, term: int) -> Refusal | None:
        """Return why a delivery of a term may not leave any more."""

    def permit(self, command: Any) -> Refused | None:
        """Return why this client may not do this."""

    def log_in(self, token: str | None) -> None:
        """Check the token of the handshake; raise Unauthorized."""

    def welcome(self) -> None:
        """The handshake is over."""

    def list_queues(self, slot: Slot) -> None:
        """Ask for the figures of all queues."""

    def return_unsent(self, name: str, deliveries: Sequence[Leased]) -> None:
        """These deliveries never left, because their node might lead no longer."""


class Conversation:
    """See the head of this file.  Everything that an idle connection does not need is None or empty."""

    __slots__ = (
        "_alone", "_changes", "_handshake", "_is_dry", "_known", "_returns", "_session", "_together", "_unseen",
        "closing", "dialect", "has_ended", "held", "is_held_up", "is_lost", "is_sent_away", "parked", "slots",
    )  # fmt: skip

    def __init__(self, session: Session, dialect: Dialect, known: Known) -> None:
        self.dialect = dialect  # the listener's, until the handshake shows that it is another
        self.slots: list[Slot] = []  # of packets that are not answered yet; without a command the outcome is the answer
        self.parked: Parked | None = None  # packets that wait for what stands before them
        self.held: Enqueue | Remove | None = None  # what an Ack or Nack decides about
        self.closing = ""  # why the connection is about to close
        self.has_ended = False  # the client says nothing more, but may still read
        self.is_lost = False  # the connection is gone
        self.is_held_up = False  # the client does not read: nothing is begun that brings it much
        self.is_sent_away = False  # the broker stops: only what is under way is done, and what ends it
        self._session = session
        self._known = known
        self._handshake: Handshake | None = Handshake(dialect, session)  # until it is over
        self._alone: Slot | None = None  # the last one, before whose end nothing begins
        self._changes: deque[Slot] | None = None  # what a look at a queue has to wait for, if it has no outcome ...
        self._returns: deque[Slot] | None = None  # ... and an Enqueue: what is back takes room, and stands first
        self._unseen: Slot | None = None  # of a record that was not sent yet, nor acknowledged ahead
        self._together = 0  # packets under way that have no slot of their own
        self._is_dry = False  # there was nothing for the Dequeue that is next: it goes by itself, and waits

    @property
    def in_flight(self) -> int:
        """How many packets are not answered, or not even begun."""
        return len(self.slots) + self._together + (len(self.parked) if self.parked else 0)

    @property
    def is_finished(self) -> bool:
        """Whether the connection is to be closed: all that was to be said was taken."""
        return bool(self.closing) and not self.slots

    @property
    def is_over(self) -> bool:
        """Whether nothing is under way any more for a connection that is lost."""
        return not (self.slots or self._alone or _has_open(self._changes))

    # --- in ----------------------------------------------------------------------------------------------------------

    def receive(self, packets: Sequence[Packet | Bad]) -> None:
        """Take what one read brought, and begin what can begin."""
        if self.closing:
            return
        if self.parked is not None:
            self.parked.extend(packets)
        elif len(packets) == 1 and self._may_begin(packets[0]):
            self._step(packets[0])
        else:
            self.parked = Parked(packets)
        self.go_on()

    def go_on(self) -> None:
        """Begin what can begin now."""
        self._begin_parked()
        slots = self.slots
        if slots and slots[0].outcome is not MISSING and not self._session.is_dirty:
            self._session.note_dirty()

    def _begin_parked(self) -> None:
        """Begin what waited for what is known by now."""
        while True:
            alone = self._alone
            if alone is not None:
                if alone.outcome is MISSING:
                    break
                self._end_alone(alone)
            parked = self.parked
            if not parked:
                self.parked = None
                if self.has_ended and not self.closing:
                    self._let_go()
                    self._close("the client ended the connection")
                break
            if not self._may_begin(parked.packets[0]):
                break
            self._step(parked.take_first())

    def end(self) -> None:
        """The client says nothing more but may still read: do what it said, without waiting for records."""
        self.has_ended = True
        self._stop_waiting()
        self.go_on()

    def lose(self) -> None:
        """The connection is gone, or was idle for too long: forget what was not begun, give back what is held."""
        self.is_lost = True
        self._close(self.closing or "the connection is lost")
        self._handshake = None
        self._stop_waiting()
        self._let_go()
        self.go_on()

    def _may_begin(self, packet: Packet | Bad) -> bool:
        """Whether nothing that is under way must be over first."""
        if self._alone is not None:
            return False
        kind = type(packet)
        if kind in _LOOKING:
            return not (self.is_held_up or _has_open(self._changes))
        return kind not in _STORING or not _has_open(self._returns)

    def _step(self, packet: Packet | Bad) -> None:
        kind = type(packet)
        if kind in _MANY:
            self._step_together(packet)  # type: ignore[arg-type]
        elif self.held is not None:
            self._decide(self.held, packet)
        elif self._handshake is not None:
            self._shake_hands(self._handshake, packet)
        elif (step := _STEPS.get(kind)) is not None:
            step(self, packet)
        elif not self.dialect.ignores_strays:
            self._fail(f"{kind.__name__} cannot come here")

    def _step_together(self, run: Enqueues | Dequeues) -> None:
        """Begin a run, unless its packets have to be looked at one by one."""
        assert self._handshake is None, "the reader makes no run before that"
        may_be_large = isinstance(run, Enqueues) and run.size_bytes > self._known.payload_bytes_max
        if self.held is not None or may_be_large or wrong_name(run.queue):
            if self.parked is None:
                self.parked = Parked()
            self.parked.put_apart(run)
        elif isinstance(run, Enqueues):
            self._store(run.queue, run.drafts, is_unheard=True)
        else:
            dequeues = [run.dequeue] * run.count
            if self.parked:
                self.parked.add_dequeues(dequeues, one_phase=False)
            self._take(run.queue, dequeues)

    def _shake_hands(self, handshake: Handshake, packet: Packet | Bad) -> None:
        answer, reason = handshake.step(packet)
        if reason:
            self._close(reason, answer)
            # Without an answer nothing else causes the flush that closes the connection.
            if answer is None and not self._session.is_dirty:
                self._session.note_dirty()
        elif answer is not None:
            self._answer(answer)
        if handshake.phase is Phase.READY:
            self.dialect, self._handshake = handshake.dialect, None

    def _decide(self, held: Enqueue | Remove, packet: Packet | Bad) -> None:
        """Take the second phase of an Enqueue or Dequeue."""
        self.held = None
        kind = type(packet)
        if isinstance(held, Enqueue):
            if kind is Ack:
                self._store_with_others(held)
            elif kind is Nack:
                self._answer(OK)
            else:
                self._fail(f"an Enqueue is pending, Ack or Nack must follow: {described(packet)}")
        elif kind is Ack:
            if self._unseen is not None:  # from now on it may be gone, so that nobody else would get it
                self._unseen.command = None
                self._unseen = None
            self._remove(held)
        elif kind is Nack:
            self._return(Return(held.queue, held.holding))
        else:
            text = f"a record is pending, Ack or Nack must follow: {described(packet)}"
            self._return(Return(held.queue, held.holding, Reason.DISCONNECT, ErrorResponse(0, text)))
            self._close(text)

    # --- packets -----------------------------------------------------------------------------------------------------

    def _on_enqueue(self, packet: Enqueue) -> None:
        if self.dialect.is_one_phase:
            self._store_with_others(packet)
        elif self.dialect.refuses_at_once and (text := wrong_name(packet.queue)):
            self._refuse_at_once(ErrorCode.BAD_NAME, text)
        else:
            self.held = packet
            self._answer(OK)

    def _store_with_others(self, first: Enqueue) -> None:
        """Begin an Enqueue that is acknowledged, and with it those behind it that are so already."""
        if text := wrong_name(first.queue):
            self._refuse(ErrorCode.BAD_NAME, text)
            return
        drafts = [Draft(first.payload, first.key)]
        if self.parked:
            one_phase = self.dialect.is_one_phase
            enqueues = self.parked.enqueues_with(first, self._known.payload_bytes_max, one_phase=one_phase)
            drafts = [Draft(enqueue.payload, enqueue.key) for enqueue in enqueues]
        self._store(first.queue, drafts)

    def _on_dequeue(self, packet: Dequeue) -> None:
        if text := wrong_name(packet.queue):
            self._refuse(ErrorCode.BAD_NAME, text)
            return
        one_phase = self.dialect.is_one_phase
        if self.parked and not self._is_dry:
            dequeues = self.parked.dequeues_with(packet, one_phase=one_phase)
            if len(dequeues) > 1:
                self._take(packet.queue, dequeues)
                return
        self._is_dry = False
        if one_phase:
            self._take(packet.queue, [packet])
        else:
            self._fetch(packet)

    def _on_count(self, packet: Count) -> None:
        if text := wrong_name(packet.queue):
            self._refuse(ErrorCode.BAD_NAME, text)
        elif slot := self._begin(packet):
            self._session.filed(packet.queue).orders.append(orders.Stats(slot, packet.queue))

    def _on_list_queues(self, packet: ListQueues) -> None:
        if slot := self._begin(packet, is_alone=True):
            self._session.list_queues(slot)

    def _on_cluster_metadata(self, packet: ClusterMetadataRequest) -> None:
        if self._begin(packet):
            slot = self.slots[-1]
            slot.command, slot.outcome = None, self._known.nodes()

    def _on_create_queue(self, packet: CreateQueue) -> None:
        wrong = wrong_in(packet, self.dialect)
        if wrong is None and packet.queue:
            self._change(packet, log.CreateQueue(packet.queue, policies_of(packet)))
        elif wrong is None:
            self._refuse(ErrorCode.QUEUE_EXISTS, "the default queue always exists")
        elif self.dialect.refuses_at_once:
            self._refuse_at_once(*wrong)
        else:
            self._refuse(*wrong)

    def _on_delete_queue(self, packet: DeleteQueue) -> None:
        if not packet.queue:
            self._refuse(ErrorCode.BAD_NAME, "the default queue cannot be deleted")
        elif text := wrong_name(packet.queue):
            self._refuse(ErrorCode.BAD_NAME, text)
        else:
            self._change(packet, log.DeleteQueue(packet.queue))

    def _on_stray(self, _: Ack | Nack) -> None:
        """Nothing is pending: so a client may send an Ack behind a Dequeue without waiting (section 5)."""

    def _on_bad(self, bad: Bad) -> None:
        if bad.error.closes:
            self._fail(str(bad.error))
        else:
            self._answer(ErrorResponse(0, str(bad.error)))

    # --- filing ------------------------------------------------------------------------------------------------------

    def _begin(self, command: Any, *, is_alone: bool = False) -> Slot | None:
        """Make the slot of a command that is to be filed; None if it is refused, and then its slot says so."""
        slot = Slot(self._session, command)
        self.slots.append(slot)
        if is_alone:
            self._alone = slot
        if self.is_sent_away and type(command) not in LAST:
            slot.outcome = _AWAY
        elif self._session.needs_permission and (denied := self._session.permit(command)) is not None:
            slot.outcome = Refusal(denied.code, str(denied))
        return slot if slot.outcome is MISSING else None

    def _store(self, name: str, drafts: list[Draft], *, is_unheard: bool = False) -> None:
        self._together += len(drafts) - 1
        slot = self._begin(Store(name, drafts, is_unheard))
        if slot is None:
            return
        if self._changes is None:
            self._changes = deque()
        self._changes.append(slot)
        oversized = len(drafts[0].body) > self._known.payload_bytes_max  # then it is alone
        if oversized:
            drafts = [Draft(b"", drafts[0].priority)]
        entry = log.Publish(
            name,
            drafts,
            door=self._session.door_kind,
            worker=self._session.number,
            must_exist=True,
            oversized=oversized,
            alike=len(drafts) == 1 or len({draft.priority for draft in drafts}) == 1,  # a record has nothing else
        )
        self._session.filed(name).publish_whole(slot, entry)

    def _fetch(self, dequeue: Dequeue) -> None:
        if slot := self._begin(dequeue, is_alone=True):
            wait_ms = 0 if self.has_ended else dequeue.timeout_ms
            self._session.filed(dequeue.queue).orders.append(orders.Fetch(slot, dequeue.queue, 1, wait_ms))

    def _take(self, name: str, dequeues: list[Dequeue]) -> None:
        self._together += len(dequeues) - 1
        if slot := self._begin(Take(name, dequeues), is_alone=True):
            self._session.filed(name).orders.append(orders.Fetch(slot, name, len(dequeues), removes=True))

    def _remove(self, held: Remove) -> None:
        if slot := self._begin(held):
            self._session.filed(held.queue).acknowledge(slot, held.holding.uid, held.holding.token)

    def _return(self, back: Return) -> None:
        if slot := self._begin(back):
            self._file_return(slot, back)

    def _give_back(self, held: Remove, reason: Reason) -> None:
        """Return a record of which the client hears nothing more."""
        back = Return(held.queue, held.holding, reason)
        self._file_return(Slot(self._session, back), back)

    def _file_return(self, slot: Slot, back: Return) -> None:
        if self._changes is None:
            self._changes = deque()
        if self._returns is None:
            self._returns = deque()
        self._changes.append(slot)
        self._returns.append(slot)
        holding = back.holding
        asker = SeveralResults(slot, 1)
        nack = orders.Nack(asker, back.queue, [holding.uid], [holding.token], 0, reason=back.reason)
        self._session.filed(back.queue).orders.append(nack)

    def _change(self, packet: CreateQueue | DeleteQueue, entry: log.CreateQueue | log.DeleteQueue) -> None:
        if slot := self._begin(packet, is_alone=True):
            self._session.filed(packet.queue).orders.append(orders.Propose(entry, slot))

    def _stop_waiting(self) -> None:
        """Have a Dequeue that waits for its record end now."""
        alone = self._alone
        if alone is not None and alone.outcome is MISSING and type(alone.command) is Dequeue:
            name = alone.command.queue
            self._session.filed(name).orders.append(orders.EndWait(alone, name))

    def renew(self) -> bool:
        """Renew the lease of what the client holds; return whether it holds anything."""
        held = self.held
        if not isinstance(held, Remove):
            return False
        holding = held.holding
        touch = orders.Touch(orders.NOBODY, held.queue, [holding.uid], [holding.token], 0)
        self._session.filed(held.queue).orders.append(touch)
        return True

    # --- refusing and closing ----------------------------------------------------------------------------------------

    def _answer(self, response: Response) -> None:
        """Answer a packet at once."""
        self.slots.append(Slot(self._session, None, response))

    def _refuse(self, code: ErrorCode, text: str) -> None:
        self._answer(in_dialect(BusinessError(code, text), self.dialect))

    def _refuse_at_once(self, code: ErrorCode, text: str) -> None:
        details = text if self.dialect.explains_errors else ""
        self._answer(ErrorResponse(self.dialect.error_codes.index(code), details))

    def _fail(self, text: str) -> None:
        self._close(text, ErrorResponse(0, text))

    def _close(self, reason: str, answer: Response | None = None) -> None:
        self.closing = reason
        if self.parked:
            self.parked.clear()
        if answer is not None:
            self._answer(answer)

    def _let_go(self) -> None:
        """Forget a record to be stored, give back one that was taken."""
        if isinstance(self.held, Remove):
            self._give_back(self.held, Reason.DISCONNECT)
        self.held = None

    # --- outcomes ----------------------------------------------------------------------------------------------------

    def _end_alone(self, slot: Slot) -> None:
        """What stood alone is over: see what is next, and put its answer into the slot."""
        self._alone = None
        command, outcome = slot.command, slot.outcome
        kind = type(command)
        if kind is Dequeue:
            slot.outcome = self._dequeued(slot, command, outcome)
        elif kind is Take:
            slot.outcome = self._taken(command, outcome)
        else:
            slot.outcome = REPLIES[kind](command, outcome, self.dialect, self._known)
        slot.command = self.held if slot is self._unseen else None

    def _dequeued(self, slot: Slot, dequeue: Dequeue, outcome: list[Delivery] | Refusal | None) -> Response:
        """Hold the record until the client says what becomes of it."""
        if outcome is None:
            return EMPTY
        if isinstance(outcome, Refusal):
            return in_dialect(refusal(outcome, self._known), self.dialect)
        (found,) = outcome
        held = Remove(dequeue.queue, Holding(found.uid, found.queue_id, found.number, found.token, found.until_ms))
        if self.closing:
            self._give_back(held, Reason.RETURNED)  # its client never saw it
        else:
            self.held, self._unseen = held, slot
        return Record(found.priority, found.body, found.number)

    def _taken(self, take: Take, outcome: RemovedOnDelivery | Refusal | None) -> Response | list[Response]:
        """Dequeues are over as far as there were records for them; the others have their turn again."""
        dequeues = take.dequeues
        self._together -= len(dequeues) - 1
        answers, over = taken(take, outcome, self.dialect, self._known, may_wait=not self.has_ended)
        if over < len(dequeues) and not self.closing:
            self._is_dry = outcome is None
            if self.parked is None:
                self.parked = Parked()
            self.parked.put_back(dequeues[over:], one_phase=self.dialect.is_one_phase)
        return answers

    def take_replies(self) -> list[Response]:
        """Return the answers that may leave now; begin what waited for one of their outcomes."""
        if self._alone is not None or self.parked is not None:
            self._begin_parked()
        replies: list[Response] = []
        slots = self.slots
        done = 0
        for slot in slots:
            outcome, command = slot.outcome, slot.command
            if outcome is MISSING:
                break
            done += 1
            if command is None:
                reply = outcome
            elif type(outcome) is Record:
                reply = self._first_seen(slot)
            else:
                reply = REPLIES[type(command)](command, outcome, self.dialect, self._known)
                if type(command) is Store:
                    self._together -= len(command.drafts) - 1
                elif type(command) is Remove and reply is not OK:
                    self._give_back(command, Reason.RETURNED)  # removed or not, nobody holds it any more
            if type(reply) is list:
                replies += reply
            else:
                replies.append(reply)
        if done:
            del slots[:done]
            # Keep no slot whose command has its outcome: records may be in it, and perhaps nothing looks for long.
            if self._changes:
                _has_open(self._changes)
            if self._returns:
                _has_open(self._returns)
        return replies

    def _first_seen(self, slot: Slot) -> Response:
        """Keep a record from leaving that was delivered before this node was deposed: nobody has seen it.

        One that its client has acknowledged unseen may be removed by now, so that nobody else would get it.
        """
        if slot is self._unseen:  # else its client has given it back unseen, and another one has come since
            self._unseen = None
        remove: Remove = slot.command
        withdrawn = self._session.withdrawal(remove.holding.token[0])
        if withdrawn is None:
            record: Record = slot.outcome
            return record
        if self.held is remove:
            self.held = None
        self._session.return_unsent(remove.queue, [remove.holding])
        return in_dialect(refusal(withdrawn, self._known), self.dialect)


def _has_open(slots: deque[Slot] | None) -> bool:
    """Whether one of these has no outcome; forget those before it."""
    while slots and slots[0].outcome is not MISSING:
        slots.popleft()
    return bool(slots)


_STEPS: dict[type, Callable[[Conversation, Any], None]] = {
    Enqueue: Conversation._on_enqueue,
    Ack: Conversation._on_stray,
    Nack: Conversation._on_stray,
    Dequeue: Conversation._on_dequeue,
    Count: Conversation._on_count,
    ListQueues: Conversation._on_list_queues,
    ClusterMetadataRequest: Conversation._on_cluster_metadata,
    CreateQueue: Conversation._on_create_queue,
    DeleteQueue: Conversation._on_delete_queue,
    Bad: Conversation._on_bad,
}
