"""One TaskFlux connection as its server sees it: which packet may come when, and what is answered.

    [Packet | Bad] --> receive --> [Intent]        (what is to be done now)
    [(Intent, outcome)] --> resolve --> [Intent]
    answers --> [Response], in the order of the requests; `finished` says when to close

A pipelining client sees its commands as if done one after the other.  Enqueues, and acknowledgements of records, are
under way together, so that one write of the log takes them all; a Dequeue, Count or ListQueues waits for what was
changed before it, and everything waits for a Dequeue, CreateQueue or DeleteQueue; but Dequeues of one queue that are
acknowledged ahead go together.  Pure: it knows no queue, and must never be asked about anything but this connection.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from wakeq.protocol.commands import Reason
from wakeq.protocol.wire.taskflux.answers import SILENCE, Answers, interleaved
from wakeq.protocol.wire.taskflux.dialects import SPEC, Dialect
from wakeq.protocol.wire.taskflux.handshake import Handshake, Phase, described
from wakeq.protocol.wire.taskflux.intents import Delivery, Intent, Outcome, Remove, Return, StopWaiting, Store, Work
from wakeq.protocol.wire.taskflux.packets import (
    OK,
    PAYLOAD_BYTES_MAX,
    VIOLATIONS,
    Ack,
    Bad,
    BusinessError,
    ClusterMetadataRequest,
    Count,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    Enqueue,
    EnqueueResponse,
    ErrorCode,
    ErrorResponse,
    ListQueues,
    Nack,
    Ok,
    Packet,
    Record,
    Response,
)
from wakeq.protocol.wire.taskflux.queues import wrong_in, wrong_name

RUN_MAX = 64  # Dequeues that go together
RUN_BYTES_MAX = 1 << 20  # of what a run brought; after a larger one the next Dequeue goes alone


class Conversation:
    """See the head of this file.  `closing` says why the connection is about to close, or is empty."""

    __slots__ = (
        "_alone",
        "_answers",
        "_begun",
        "_changing",
        "_dequeuing",
        "_ended",
        "_handshake",
        "_held",
        "_parked",
        "_payload_bytes_max",
        "_run_bytes",
        "_run_max",
        "_stops",
        "_stored_together",
        "closing",
        "dialect",
        "is_held_up",
        "under_way",
    )  # fmt: skip

    def __init__(self, dialect: Dialect = SPEC, payload_bytes_max: int = PAYLOAD_BYTES_MAX) -> None:
        self.dialect = dialect  # the listener's, until the handshake shows that it is another
        self.closing = ""
        self._payload_bytes_max = payload_bytes_max  # a record with more is not stored, and goes alone
        self._handshake: Handshake | None = Handshake(dialect)  # until it is over
        self._parked: deque[Packet | Bad] | None = None  # what waits for what stands before it
        self._answers = Answers()
        self._stored_together = 0  # Enqueues under way that have no intent of their own
        self._held: Enqueue | Remove | None = None  # what an Ack or Nack decides about
        self._alone = 0  # intents under way before whose end nothing begins
        self._dequeuing = 0  # of these, how many may wait for a record
        self._run_max, self._run_bytes = 1, 0
        self._changing = 0  # intents under way whose effect a Dequeue, Count or ListQueues would have to see
        self._begun: list[Intent] = []
        self._ended = False  # the client says nothing more
        self.is_held_up = False  # the client does not read: nothing more is begun that brings it much
        self.under_way = 0  # intents that have no outcome yet
        self._stops = 0

    @property
    def in_flight(self) -> int:
        """How many packets are not answered, or not even begun."""
        return len(self._parked or ()) + len(self._answers) + self._stored_together

    @property
    def held(self) -> Remove | None:
        """What an Ack would do now, if the client holds a record."""
        return self._held if isinstance(self._held, Remove) else None

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

    def receive(self, packets: Iterable[Packet | Bad]) -> list[Intent]:
        """Take what one read brought; return what is to be done now."""
        if self._parked:
            self._parked.extend(packets)
        elif not self.closing:
            self._parked = deque(packets)
        return self._go_on()

    def resolve(self, outcomes: Iterable[tuple[Intent, Outcome]]) -> list[Intent]:
        """Take what became of intents; return what is to be done now.  An outcome told twice counts once."""
        for intent, outcome in outcomes:
            if intent.answer is None:
                self._resolve(intent, outcome)
        return self._go_on()

    def answers(self) -> list[Response]:
        """Return, once, what can be sent: all answers before the first that is not known."""
        return self._answers.take()

    def go_on(self) -> list[Intent]:
        """The client reads again: return what is to be done now."""
        self.is_held_up = False
        return self._go_on()

    def ended(self) -> list[Intent]:
        """The client says nothing more but may still read: do what it said, without waiting for records."""
        self._ended = True
        self._stop_waiting()
        return self._go_on()

    def lost(self) -> list[Intent]:
        """The connection is gone, or was idle for too long: forget what was not begun, give back what is held."""
        self._close(self.closing or "the connection is lost")
        self._answers.clear()
        self.is_held_up = False
        self._stop_waiting()
        self._let_go()
        return self._go_on()

    # --- one packet after the other --------------------------------------------------------------------------------

    def _go_on(self) -> list[Intent]:
        parked = self._parked
        while parked and self._may_begin(parked[0]):
            self._step(parked.popleft())
        if not parked:
            self._parked = None
            if self._ended and not self._alone and not self.closing:
                self._let_go()
                self._close("the client ended the connection")
        if not self._begun:
            return []
        begun, self._begun = self._begun, []
        self.under_way += len(begun) - self._stops
        self._stops = 0
        return begun

    def _may_begin(self, packet: Packet | Bad) -> bool:
        return not self._alone and not ((self._changing or self.is_held_up) and type(packet) in _LOOKING)

    def _step(self, packet: Packet | Bad) -> None:
        if self._held is not None:
            self._decide(self._held, packet)
        elif self._handshake is not None:
            self._shake_hands(packet)
        elif (step := _STEPS.get(type(packet))) is not None:
            step(self, packet)
        elif not self.dialect.ignores_strays:
            self._fail(f"{type(packet).__name__} cannot come here")

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
        parked, one_phase = self._parked, self.dialect.is_one_phase
        while parked and self._may_join(first, parked[0]):
            if not one_phase:
                if len(parked) < 2 or type(parked[1]) is not Ack:
                    break
                del parked[1]
            enqueues.append(parked.popleft())  # type: ignore[arg-type]  # only an Enqueue may join
        self._stored_together += len(enqueues) - 1
        self._begin(Store(first.queue, enqueues))

    def _may_join(self, first: Enqueue, packet: Packet | Bad) -> bool:
        if type(packet) is not Enqueue or packet.queue != first.queue:
            return False
        return len(packet.payload) <= self._payload_bytes_max >= len(first.payload)

    def _dequeue(self, packet: Dequeue) -> None:
        """Begin a Dequeue, and with it those behind it that are only waiting for an Ack which is here."""
        self._run_bytes = 0
        intent = self._begin_dequeue(packet)
        parked, one_phase = self._parked, self.dialect.is_one_phase
        while parked and intent is not None:
            if not one_phase:
                if type(parked[0]) is not Ack:
                    return
                parked.popleft()
                intent.then = Intent(Remove(packet.queue, None))
                self._answers.add(intent.then)
            following = parked[0] if parked else None
            if not isinstance(following, Dequeue) or following.queue != packet.queue:
                return
            if self._dequeuing >= self._run_max:
                return
            parked.popleft()
            intent = self._begin_dequeue(following)

    def _begin_dequeue(self, packet: Dequeue) -> Intent | None:
        intent = self._begin_if_named(packet.queue, replace(packet, timeout_ms=0) if self._ended else packet)
        if intent is not None:
            self._alone += 1
            self._dequeuing += 1
        return intent

    def _count(self, packet: Count) -> None:
        self._begin_if_named(packet.queue, packet)

    def _look(self, packet: ListQueues | ClusterMetadataRequest) -> None:
        self._begin(packet)

    def _create_queue(self, packet: CreateQueue) -> None:
        wrong = wrong_in(packet, self.dialect)
        if wrong is None and packet.queue:
            self._begin(packet)
            self._alone += 1
        elif wrong is None:
            self._refuse(ErrorCode.QUEUE_EXISTS, "the default queue is always there")
        elif self.dialect.refuses_at_once:
            self._refuse_at_once(*wrong)
        else:
            self._refuse(*wrong)

    def _delete_queue(self, packet: DeleteQueue) -> None:
        if packet.queue:
            self._alone += self._begin_if_named(packet.queue, packet) is not None
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

    def _begin(self, work: Work, instead: Response | None = None) -> Intent:
        """Have something done, and answer it in its place."""
        intent = self._do(work, instead)
        self._answers.add(intent)
        return intent

    def _begin_if_named(self, name: str, work: Work) -> Intent | None:
        text = wrong_name(name)
        if not text:
            return self._begin(work)
        self._refuse(ErrorCode.BAD_NAME, text)
        return None

    def _do(self, work: Work, instead: Response | None = None) -> Intent:
        intent = Intent(work, None, instead)
        if type(work) in _CHANGING:
            self._changing += 1
        self._begun.append(intent)
        return intent

    def _refuse(self, code: ErrorCode, text: str) -> None:
        self._answers.add(self._in_dialect(BusinessError(code, text)))

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
        self.under_way -= 1
        work = intent.work
        kind = type(work)
        if kind in _CHANGING:
            self._changing -= 1
        elif kind in _ALONE:
            self._alone -= 1
            if kind is Dequeue:
                self._dequeued(intent, outcome)
                return
        if isinstance(work, Store):
            self._stored(intent, work, outcome)
            return
        assert not isinstance(outcome, Delivery | list), "only a Dequeue brings a record"
        if isinstance(work, Remove) and not isinstance(outcome, Ok):
            # whether it was removed or not, nobody holds it any more
            self._do(Return(work.queue, work.handle, Reason.RETURNED))
        if intent.instead is not None and (isinstance(outcome, Ok) or isinstance(work, Return)):
            intent.answer = intent.instead
        else:
            intent.answer = self._in_dialect(outcome)

    def _dequeued(self, intent: Intent, outcome: Outcome) -> None:
        """A Dequeue is over: hold its record until the client says what becomes of it, if he has not said so yet."""
        self._dequeuing -= 1
        work, then = intent.work, intent.then
        assert isinstance(work, Dequeue), "nothing else is dequeued"
        if isinstance(outcome, Delivery):
            intent.answer = outcome.record
            self._take(Remove(work.queue, outcome.handle), then)
        else:
            assert not isinstance(outcome, list), "only a Store has many"
            intent.answer = self._in_dialect(outcome)
            if then is not None:
                then.answer = SILENCE
        if isinstance(intent.answer, Record):
            self._run_bytes += len(intent.answer.payload)
        if not self._dequeuing:
            self._run_max = 1 if self._run_bytes > RUN_BYTES_MAX else min(2 * self._run_max, RUN_MAX)

    def _take(self, remove: Remove, then: Intent | None) -> None:
        if self.closing:  # he never saw it
            self._do(Return(remove.queue, remove.handle, Reason.RETURNED))
        elif then is None:
            self._held = remove
        else:
            then.work = remove
            self._begun.append(then)

    def _stored(self, intent: Intent, store: Store, outcome: Outcome) -> None:
        assert not isinstance(outcome, Delivery), "only a Dequeue brings a record"
        responses = outcome if isinstance(outcome, list) else [outcome] * len(store.enqueues)
        self._stored_together -= len(responses) - 1
        if responses.count(OK) < len(responses):
            responses = [self._in_dialect(response) for response in responses]
        if self.dialect.is_one_phase:
            intent.answer = [_added(response) for response in responses]
        else:
            intent.answer = interleaved(responses)

    def _in_dialect(self, outcome: Response) -> Response:
        """Return how the dialect says it."""
        if isinstance(outcome, BusinessError) and not self.dialect.explains_errors and outcome.code:
            return BusinessError(outcome.code)
        return outcome

    def _stop_waiting(self) -> None:
        if self._dequeuing:
            self._begun.append(Intent(StopWaiting()))
            self._stops += 1

    def _let_go(self) -> None:
        """Forget a record to be stored, give back one that was taken."""
        if isinstance(self._held, Remove):
            self._do(Return(self._held.queue, self._held.handle, Reason.DISCONNECT))
        self._held = None


def _added(response: Response) -> Response:
    """Return how a client without phases hears what became of an Enqueue."""
    if isinstance(response, Ok):
        return EnqueueResponse(True)
    return EnqueueResponse(False) if isinstance(response, VIOLATIONS) else response


_LOOKING = frozenset((Dequeue, Count, ListQueues))
_CHANGING = frozenset((Store, Return))
_ALONE = frozenset((Dequeue, CreateQueue, DeleteQueue))
_STEPS: dict[type, Callable[[Conversation, Any], None]] = {
    Enqueue: Conversation._enqueue,
    Ack: Conversation._ignore,
    Nack: Conversation._ignore,
    Dequeue: Conversation._dequeue,
    Count: Conversation._count,
    ListQueues: Conversation._look,
    ClusterMetadataRequest: Conversation._look,
    CreateQueue: Conversation._create_queue,
    DeleteQueue: Conversation._delete_queue,
    Bad: Conversation._bad,
}
