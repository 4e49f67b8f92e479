"""One TaskFlux connection as its server sees it: which packet may come when, and what is answered.

    [Packet | Bad] --> receive --> [Intent]        (what is to be done now)
    [(Intent, outcome)] --> resolve --> [Intent]
    answers --> [Response], in the order of the requests; `finished` says when to close

A pipelining client sees its commands as if done one after the other.  Enqueues, and acknowledgements of records, are
under way together, so that one write of the log takes them all; a Dequeue, Count or ListQueues waits for what was
changed before it, an Enqueue for what is given back, and everything for a Dequeue, ListQueues, CreateQueue or
DeleteQueue; but Dequeues of one queue that are acknowledged ahead go together.  What was read in one piece begins so,
or is put apart where each packet decides what comes next.  Pure: it knows no queue, and must never be asked about
anything but this connection.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from wakeq.protocol.log.entries import Draft, Reason
from wakeq.protocol.wire.taskflux.answers import Answers, in_dialect, stored, taken
from wakeq.protocol.wire.taskflux.dialects import SPEC, Dialect
from wakeq.protocol.wire.taskflux.handshake import Authorize, Handshake, Phase, anybody, described, nothing
from wakeq.protocol.wire.taskflux.intents import Delivery, Intent, Outcome, Remove, Return, Store, Take, Work
from wakeq.protocol.wire.taskflux.packets import (
    OK,
    PAYLOAD_BYTES_MAX,
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
    ListQueues,
    Nack,
    Ok,
    Packet,
    Response,
    Taken,
)
from wakeq.protocol.wire.taskflux.parked import Parked
from wakeq.protocol.wire.taskflux.queues import wrong_in, wrong_name
from wakeq.protocol.wire.taskflux.under_way import UnderWay


class Conversation:
    """See the head of this file.  `closing` says why the connection is about to close, or is empty."""

    __slots__ = (
        "_answers", "_ended", "_handshake", "_held", "_is_dry", "_parked", "_payload_bytes_max", "_together",
        "_under_way", "_unseen", "closing", "dialect",
    )  # fmt: skip

    def __init__(
        self,
        dialect: Dialect = SPEC,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
        authorize: Authorize = anybody,
        welcome: Callable[[], None] = nothing,
    ) -> None:
        self.dialect = dialect  # the listener's, until the handshake shows that it is another
        self.closing = ""
        self._payload_bytes_max = payload_bytes_max  # a record with more is not stored, and goes alone
        self._handshake: Handshake | None = Handshake(dialect, authorize, welcome)  # until it is over
        self._parked: Parked | None = None  # what waits for what stands before it
        self._under_way = UnderWay()
        self._answers = Answers()
        self._together = 0  # packets under way that have no intent of their own
        self._held: Enqueue | Remove | None = None  # what an Ack or Nack decides about
        self._unseen: tuple[Remove, Intent] | None = None  # a record that has not been sent yet, and what brings it
        self._is_dry = False  # there was nothing for the Dequeue that is next: it goes by itself, and waits
        self._ended = False  # the client says nothing more

    @property
    def in_flight(self) -> int:
        """How many packets are not answered, or not even begun."""
        return len(self._parked or ()) + len(self._answers) + self._together

    @property
    def under_way(self) -> int:
        """How many intents have no outcome yet."""
        return self._under_way.count

    @property
    def held(self) -> Remove | None:
        """What an Ack would do now, if the client holds a record."""
        return self._held if isinstance(self._held, Remove) else None

    @property
    def unseen(self) -> Remove | None:
        """What an Ack would do of a record that waits behind other answers, unless the client has sent that already."""
        return None if self._unseen is None else self._unseen[0]

    @property
    def is_deciding(self) -> bool:
        """Whether an Ack or Nack of the client is awaited."""
        return self._held is not None

    @property
    def has_ended(self) -> bool:
        """Whether the client said that it says no more."""
        return self._ended

    @property
    def finished(self) -> bool:
        """Whether the connection is to be closed now: all that was to be said was taken from `answers`."""
        return bool(self.closing) and not self._answers

    def receive(self, packets: Sequence[Packet | Bad]) -> list[Intent]:
        """Take what one read brought; return what is to be done now."""
        if self._parked:
            self._parked.extend(packets)
        elif not self.closing:
            self._parked = Parked(packets)
        return self._go_on()

    def resolve(self, outcomes: Iterable[tuple[Intent, Outcome]]) -> list[Intent]:
        """Take what became of intents; return what is to be done now.  An outcome told twice counts once."""
        for intent, outcome in outcomes:
            if intent.answer is None:
                self._resolve(intent, outcome)
        return self._go_on()

    def answers(self) -> list[Response]:
        """Return, once, what can be sent: all answers before the first that is not known."""
        answers = self._answers.take()
        if self._unseen is not None and self._unseen[1] not in self._answers:
            self._unseen = None
        return answers

    def withdraw(self, instead: Response) -> None:
        """Answer this instead of a record that is `unseen`: the client holds nothing then."""
        assert self._unseen is not None, "there is one"
        remove, intent = self._unseen
        intent.answer = in_dialect(instead, self.dialect)
        self._unseen = None
        if self._held is remove:
            self._held = None

    def hold_up(self) -> None:
        """The client does not read: begin nothing more that brings it much, until it does."""
        self._under_way.is_held_up = True

    def go_on(self) -> list[Intent]:
        """The client reads again: return what is to be done now."""
        self._under_way.is_held_up = False
        return self._go_on()

    def ended(self) -> list[Intent]:
        """The client says nothing more but may still read: do what it said, without waiting for records."""
        self._ended = True
        self._under_way.stop_waiting()
        return self._go_on()

    def lost(self) -> list[Intent]:
        """The connection is gone, or was idle for too long: forget what was not begun, give back what is held."""
        self._close(self.closing or "the connection is lost")
        self._answers.clear()
        self._handshake = None  # and with it whom it would have asked
        self._under_way.stop_waiting()
        self._let_go()
        return self._go_on()

    # --- one packet after the other --------------------------------------------------------------------------------

    def _go_on(self) -> list[Intent]:
        parked, under_way = self._parked, self._under_way
        while parked and under_way.may_begin(parked.first):
            self._step(parked.take_first())
        if not parked:
            self._parked = None
            if self._ended and not under_way.is_exclusive and not self.closing:
                self._let_go()
                self._close("the client ended the connection")
        return under_way.take()

    def _step(self, packet: Packet | Bad) -> None:
        if isinstance(packet, Enqueues | Dequeues):
            self._step_together(packet)
        elif self._held is not None:
            self._decide(self._held, packet)
        elif self._handshake is not None:
            self._shake_hands(packet)
        elif (step := _STEPS.get(type(packet))) is not None:
            step(self, packet)
        elif not self.dialect.ignores_strays:
            self._fail(f"{type(packet).__name__} cannot come here")

    def _step_together(self, run: Enqueues | Dequeues) -> None:
        """Begin a run, unless its packets have to be looked at one by one."""
        assert self._parked is not None, "it was parked"
        assert self._handshake is None, "the reader makes no run before that"
        may_be_large = isinstance(run, Enqueues) and run.size_bytes > self._payload_bytes_max
        if self._held is not None or may_be_large or wrong_name(run.queue):
            self._parked.put_apart(run)
        elif isinstance(run, Enqueues):
            self._begin_together(Store(run.queue, run.drafts), len(run.drafts), is_unheard=True)
        else:
            dequeues = [run.dequeue] * run.count
            self._parked.add_dequeues(dequeues, one_phase=False)
            self._begin_together(Take(run.queue, dequeues), len(dequeues))

    def _shake_hands(self, packet: Packet | Bad) -> None:
        assert self._handshake is not None, "it is not over"
        answer, reason = self._handshake.step(packet)
        if reason:
            self._close(reason, answer)
        elif answer is not None:
            self._answers.add(answer)
        if self._handshake.phase is Phase.READY:
            self.dialect, self._handshake = self._handshake.dialect, None

    def _decide(self, held: Enqueue | Remove, packet: Packet | Bad) -> None:
        """Take the second phase of an Enqueue or Dequeue."""
        self._held = None
        match held, packet:
            case Enqueue(), Ack():
                self._store(held)
            case Enqueue(), Nack():
                self._answers.add(OK)
            case Remove(), Ack():
                self._unseen = None  # from now on it may be gone, so that nobody else would get it
                self._begin(held)
            case Remove(queue=name, handle=handle), Nack():
                self._begin(Return(name, handle))
            case Enqueue(), _:
                self._fail(f"an Enqueue is pending, Ack or Nack must follow: {described(packet)}")
            case Remove(queue=name, handle=handle), _:
                text = f"a record is pending, Ack or Nack must follow: {described(packet)}"
                self._begin(Return(name, handle, Reason.DISCONNECT), instead=ErrorResponse(0, text))
                self._close(text)

    # --- commands --------------------------------------------------------------------------------------------------

    def _enqueue(self, packet: Enqueue) -> None:
        if self.dialect.is_one_phase:
            self._store(packet)
        elif self.dialect.refuses_at_once and (text := wrong_name(packet.queue)):
            self._refuse_at_once(ErrorCode.BAD_NAME, text)
        else:
            self._held = packet
            self._answers.add(OK)

    def _store(self, first: Enqueue) -> None:
        """Begin an Enqueue that is acknowledged, and with it those behind it that are so already."""
        if text := wrong_name(first.queue):
            self._refuse(ErrorCode.BAD_NAME, text)
            return
        enqueues = [first]
        if self._parked:
            one_phase = self.dialect.is_one_phase
            enqueues = self._parked.enqueues_with(first, self._payload_bytes_max, one_phase=one_phase)
        drafts = [Draft(enqueue.payload, enqueue.key) for enqueue in enqueues]
        self._begin_together(Store(first.queue, drafts), len(drafts))

    def _dequeue(self, packet: Dequeue) -> None:
        if text := wrong_name(packet.queue):
            self._refuse(ErrorCode.BAD_NAME, text)
            return
        dequeues, one_phase = [packet], self.dialect.is_one_phase
        if self._parked and not self._is_dry:
            dequeues = self._parked.dequeues_with(packet, one_phase=one_phase)
        self._is_dry = False
        if len(dequeues) > 1 or one_phase:
            self._begin_together(Take(packet.queue, dequeues), len(dequeues))
        else:
            self._begin(replace(packet, timeout_ms=0) if self._ended else packet)

    def _count(self, packet: Count) -> None:
        self._begin_if_named(packet.queue, packet)

    def _create_queue(self, packet: CreateQueue) -> None:
        wrong = wrong_in(packet, self.dialect)
        if wrong is None and packet.queue:
            self._begin(packet)
        elif wrong is None:
            self._refuse(ErrorCode.QUEUE_EXISTS, "the default queue always exists")
        elif self.dialect.refuses_at_once:
            self._refuse_at_once(*wrong)
        else:
            self._refuse(*wrong)

    def _delete_queue(self, packet: DeleteQueue) -> None:
        if packet.queue:
            self._begin_if_named(packet.queue, packet)
        else:
            self._refuse(ErrorCode.BAD_NAME, "the default queue cannot be deleted")

    def _ignore(self, _: Ack | Nack) -> None:
        """Nothing is pending: so a client may send an Ack behind a Dequeue without waiting (section 5)."""

    def _bad(self, bad: Bad) -> None:
        if bad.error.closes:
            self._fail(str(bad.error))
        else:
            self._answers.add(ErrorResponse(0, str(bad.error)))

    # --- beginning and refusing ------------------------------------------------------------------------------------

    def _begin(self, work: Work, instead: Response | None = None, *, is_unheard: bool = False) -> None:
        """Have something done, and answer it in its place."""
        intent = Intent(work, None, instead, is_unheard)
        self._under_way.begin(intent)
        self._answers.add(intent)

    def _begin_together(self, work: Store | Take, count: int, *, is_unheard: bool = False) -> None:
        self._together += count - 1
        self._begin(work, is_unheard=is_unheard)

    def _begin_if_named(self, name: str, work: Work) -> None:
        if text := wrong_name(name):
            self._refuse(ErrorCode.BAD_NAME, text)
        else:
            self._begin(work)

    def _give_back(self, remove: Remove, reason: Reason) -> None:
        """Return a record of which the client hears nothing more."""
        self._under_way.begin(Intent(Return(remove.queue, remove.handle, reason)))

    def _refuse(self, code: ErrorCode, text: str) -> None:
        self._answers.add(in_dialect(BusinessError(code, text), self.dialect))

    def _refuse_at_once(self, code: ErrorCode, text: str) -> None:
        details = text if self.dialect.explains_errors else ""
        self._answers.add(ErrorResponse(self.dialect.error_codes.index(code), details))

    def _fail(self, text: str) -> None:
        self._close(text, ErrorResponse(0, text))

    def _close(self, reason: str, answer: Response | None = None) -> None:
        self.closing = reason
        if self._parked:
            self._parked.clear()
        if answer is not None:
            self._answers.add(answer)

    # --- outcomes --------------------------------------------------------------------------------------------------

    def _resolve(self, intent: Intent, outcome: Outcome) -> None:
        self._under_way.end(intent)
        work = intent.work
        if isinstance(work, Store):
            self._stored(intent, work, outcome)
        elif isinstance(work, Dequeue):
            self._dequeued(intent, work, outcome)
        elif isinstance(work, Take):
            self._taken(intent, work, outcome)
        else:
            self._done(intent, outcome)

    def _done(self, intent: Intent, outcome: Outcome) -> None:
        assert not isinstance(outcome, Delivery | list | Taken), "only a Dequeue brings a record"
        work = intent.work
        if isinstance(work, Remove) and not isinstance(outcome, Ok):
            self._give_back(work, Reason.RETURNED)  # whether it was removed or not, nobody holds it any more
        if intent.instead is not None and (isinstance(outcome, Ok) or isinstance(work, Return)):
            intent.answer = intent.instead
        else:
            intent.answer = in_dialect(outcome, self.dialect)

    def _dequeued(self, intent: Intent, dequeue: Dequeue, outcome: Outcome) -> None:
        """A Dequeue is over: hold its record until the client says what becomes of it."""
        if not isinstance(outcome, Delivery):
            assert not isinstance(outcome, list | Taken), "only several together have many"
            intent.answer = in_dialect(outcome, self.dialect)
            return
        intent.answer = outcome.record
        remove = Remove(dequeue.queue, outcome.handle)
        if self.closing:
            self._give_back(remove, Reason.RETURNED)  # he never saw it
        else:
            self._held, self._unseen = remove, (remove, intent)

    def _taken(self, intent: Intent, take: Take, outcome: Outcome) -> None:
        """Dequeues are over as far as there were records for them; the others have their turn again."""
        assert not isinstance(outcome, Delivery | list), "nobody holds what was taken"
        dequeues = take.dequeues
        self._together -= len(dequeues) - 1
        intent.answer, over = taken(outcome, dequeues, self.dialect, may_wait=not self._ended)
        if over < len(dequeues) and not self.closing:
            self._is_dry = isinstance(outcome, Taken) and not outcome.drafts
            self._parked = Parked() if self._parked is None else self._parked
            self._parked.put_back(dequeues[over:], one_phase=self.dialect.is_one_phase)

    def _stored(self, intent: Intent, store: Store, outcome: Outcome) -> None:
        assert not isinstance(outcome, Delivery | Taken), "only a Dequeue brings a record"
        count = len(store.drafts)
        self._together -= count - 1
        intent.answer = stored(outcome, count, self.dialect, with_first=intent.is_unheard)

    def _let_go(self) -> None:
        """Forget a record to be stored, give back one that was taken."""
        if isinstance(self._held, Remove):
            self._give_back(self._held, Reason.DISCONNECT)
        self._held = None


_STEPS: dict[type, Callable[[Conversation, Any], None]] = {
    Enqueue: Conversation._enqueue,
    Ack: Conversation._ignore,
    Nack: Conversation._ignore,
    Dequeue: Conversation._dequeue,
    Count: Conversation._count,
    ListQueues: Conversation._begin,
    ClusterMetadataRequest: Conversation._begin,
    CreateQueue: Conversation._create_queue,
    DeleteQueue: Conversation._delete_queue,
    Bad: Conversation._bad,
}
