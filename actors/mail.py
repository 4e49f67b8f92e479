"""The messages that processes send each other.  Plain data; the receiver decides what to do.

The ring:   Propose (to RaftLog) -> Committed (to Queues, then to each queue) -> Answered (to the subscriber)
Straight:   Fetch, Touch, Nack, Sleep, Leaving, Gone (to a queue) -> Woken, Answered (to the subscriber)
            more are in `staging_messages.py`, `operator_messages.py` and `monique_messages.py`
The cut:    Collect (to each queue) -> Collected -> (state store) -> Flushed;  read from there: Loaded
"""

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, Protocol

import msgspec

from wakeq.actors.runtime import Process
from wakeq.protocol.log.entries import Draft, Entry, Reason, Results, SetAside, Token
from wakeq.protocol.queue.leases.audience import Waiter
from wakeq.storage.state.cut import Part


class Asker(msgspec.Struct, frozen=True, gc=False):
    """Who waits for an answer, and what the answer belongs to there.  Never in the bytes of the log."""

    process: Process
    ticket: Any  # whatever lets the process find its question again, such as a Pending of a subscriber
    place: Any  # of the command within it, or a list of places

    def tell(self, answer: Any) -> None:
        """Give whoever asked the answer."""
        self.process.tell(Answered([(self.ticket, self.place, answer)]))


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Why something was not done: a stable code, a sentence, and the leader's addresses if another node leads."""

    code: str
    detail: str
    leader: str = ""  # for the worker protocol over TCP
    leader_http: str = ""  # and over WebSocket


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What became of an entry in one queue."""

    queue: str
    queue_id: int
    results: Results
    follows: Sequence["Outcome"] = ()


class Propose(msgspec.Struct, frozen=True, gc=False):
    """Entries for the log.  `lazy` ones ride with the next sync instead of starting one."""

    items: list[tuple[Entry, Asker | None]]
    lazy: bool = False


Item = tuple[int, int, int, Entry, Asker | None]  # index, term, moment, entry, who asked


class Committed(msgspec.Struct, frozen=True, gc=False):
    """Entries that are on disk on a quorum, in log order.

    `replies` gathers the answers if other queues were told of the same batch; a queue that crashes must call its `done`
    too.
    """

    items: list[Item]
    replies: Any = None


class Follow(msgspec.Struct, frozen=True, gc=False):
    """This node leads no longer: whoever waits gets this refusal, and what only a leader knows is forgotten."""

    term: int  # in which it led
    refusal: Refusal


class Answered(msgspec.Struct, frozen=True, gc=False):
    """Answers for one process: (ticket, place, answer); an answer is an Outcome, a Refusal, or what was asked for."""

    answers: list[tuple[Any, Any, Any]]


class HeldBack(msgspec.Struct, frozen=True, gc=False):
    """The ticket of an entry whose answer must wait until it is committed: `answer` then, `otherwise` if it is void."""

    answer: Answered
    otherwise: Answered
    waiter: Waiter | None = None  # a FET whose time is not over: it goes on waiting instead of getting `otherwise`

    def without_refused(self, codes: Sequence[int]) -> Answered | None:
        """Return the answer without the messages that were refused; None if none is left."""
        if min(codes) >= 0:
            return self.answer
        ((ticket, place, messages),) = self.answer.answers
        done = [code >= 0 for code in codes]
        if not any(done):
            return None
        left = messages.only(done) if type(messages) is HandedOver else list(compress(messages, done))
        return Answered([(ticket, place, left)])


# Straight ---------------------------------------------------------------------------------------------------------


class Want(msgspec.Struct, frozen=True, gc=False):
    """One FET: up to `count` messages for `timeout_ms`, or (0) each for its own; the first within `wait_ms`."""

    place: Any
    count: int
    wait_ms: int = 0
    timeout_ms: int = 0


class Fetch(msgspec.Struct, frozen=True, gc=False):
    queue: str
    subscriber: Process
    ticket: Any
    wants: list[Want]
    worker: int = 0
    door: int = 0
    subscribed: bool = False  # a queue that does not exist counts as empty, not as unknown
    must_exist: bool = False  # it counts as unknown even to a FET that would wait for it
    removes: bool = False  # messages are acknowledged by being handed out

    def tell_all(self, answer: Refusal | None) -> None:
        """Give the same answer to each FET: why it gets nothing, or None if there is nothing."""
        self.subscriber.tell(Answered([(self.ticket, want.place, answer) for want in self.wants]))


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One message on its way to a worker."""

    uid: str
    error_count: int  # earlier deliveries
    failures: int  # those of them that failed
    body: bytes
    token: Token
    priority: int
    headers: bytes
    queue_id: int
    number: int
    until_ms: int


class Leased(Protocol):
    """What a queue knows a delivery by."""

    @property
    def queue_id(self) -> int: ...

    @property
    def number(self) -> int: ...

    @property
    def token(self) -> Token: ...


class HandedOver(msgspec.Struct, frozen=True, gc=False):
    """Messages that are gone once they are handed out, so that nobody needs their uids or tokens."""

    numbers: list[int]
    drafts: list[Draft]

    def only(self, done: Sequence[bool]) -> "HandedOver":
        """Return only those whose flag is set."""
        return HandedOver(list(compress(self.numbers, done)), list(compress(self.drafts, done)))


class EndWaits(msgspec.Struct, frozen=True, gc=False):
    """The client has sent another command: the subscriber's waiting fetches of this ticket end with nothing."""

    subscriber: Process
    ticket: Any
    queue: str = ""


class Touch(msgspec.Struct, frozen=True, gc=False):
    asker: Asker
    queue: str
    uids: list[str]
    tokens: list[Token]
    timeout_ms: int


class Nack(msgspec.Struct, frozen=True, gc=False):
    asker: Asker
    queue: str
    uids: list[str]
    tokens: list[Token]
    delay_ms: int | None
    error: str = ""
    reason: Reason = Reason.NACK  # or RETURNED, or REJECTED, or EXHAUSTED


class Sleep(msgspec.Struct, frozen=True, gc=False):
    """ISLP: wake me when a message comes; with `only_ready` only when there is one for me."""

    asker: Asker
    queue: str
    subscribed: bool = False
    only_ready: bool = False


class Subscribe(msgspec.Struct, frozen=True, gc=False):
    """The subscriber joined the group of a queue that may not exist yet."""

    queue: str


class Leaving(msgspec.Struct, frozen=True, gc=False):
    """These are being acknowledged: until the outcome they are neither handed out nor released.

    With `undone` the log has refused the acknowledgement, and there will be no outcome.
    """

    queue: str
    queue_id: int
    numbers: list[int]
    undone: bool = False


class Unsent(msgspec.Struct, frozen=True, gc=False):
    """Deliveries that never left, because their node might lead no longer; if it does they are ready again at once."""

    queue: str
    leases: Sequence[Leased]


class Gone(msgspec.Struct, frozen=True, gc=False):
    """A subscriber's connection ended; with `asleep_only` it has only unsubscribed."""

    subscriber: Process
    queue: str = ""
    asleep_only: bool = False


class Woken(msgspec.Struct, frozen=True, gc=False):
    """To a subscriber: something may be available."""

    queue: str


class Peek(msgspec.Struct, frozen=True, gc=False):
    """Show the first messages in a state, `count` of them at most."""

    asker: Asker
    queue: str
    state: str
    count: int


class Stats(msgspec.Struct, frozen=True, gc=False):
    """The figures of one queue, or with `all_queues` of many.

    Of many: those whose name begins with `prefix` and that `sees` allows, sorted by name, at most `limit` (0: all) that
    come after the name `after`.  `brief` asks for the numbers only, as Gauges: a tenth of the work.
    """

    asker: Asker
    queue: str
    all_queues: bool = False
    prefix: str = ""
    after: str | None = None
    limit: int = 0
    brief: bool = False
    sees: Callable[[str], bool] | None = None


class Inquire(msgspec.Struct, frozen=True, gc=False):
    """To RaftLog: pass this Peek or Stats on as soon as a majority has confirmed that this node still leads."""

    question: "Peek | Stats"


# Barrier ----------------------------------------------------------------------------------------------------------


class Judge(msgspec.Struct, frozen=True, gc=False):
    """Would you apply this part of an entry that touches several queues?"""

    place: int
    entry: Entry
    reply_to: Process


class Verdict(msgspec.Struct, frozen=True, gc=False):
    place: int
    code: int


# The cut to the state store ---------------------------------------------------------------------------------------


class Collect(msgspec.Struct, frozen=True, gc=False):
    """To a queue: hand over what changed since the last cut, including everything you were told before this."""

    cut: int
    reply_to: Process


class Collected(msgspec.Struct, frozen=True, gc=False):
    """One queue's part of a cut."""

    cut: int
    part: Part
    unchanged: Sequence[tuple[int, int, int]] = ()  # (index, place, code) of what was refused


class Flushed(msgspec.Struct, frozen=True, gc=False):
    """What was collected is in the state store and synced; the queue may keep this many bytes of bodies in memory."""

    bodies_bytes_max: int


class Loaded(msgspec.Struct, frozen=True, gc=False):
    """Bodies that were read: the stored value of each number, None if there is none."""

    numbers: list[int]
    values: list[bytes | None]
    ticket: Any = None


class Crashed(msgspec.Struct, frozen=True, gc=False):
    """A queue process could not go on; its supervisor rebuilds it."""

    queue: str
    process: Process
    index: int  # of the entry that it could not apply; 0 if it was not applying one
    reason: str
    error: BaseException | None = None
    unanswered: Sequence[Item] = ()  # that it was told and has not answered yet


class Abandon(msgspec.Struct, frozen=True, gc=False):
    """To a queue: an entry that you have applied was set aside; be rebuilt without it."""

    index: int


class Deserted(msgspec.Struct, frozen=True, gc=False):
    """From the process of a queue that does not exist: it has neither sleepers nor waiters nor subscribers."""

    queue: str
    process: Process


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time to do something that is done now and then; `what` says what."""

    what: str = ""


class Pressure(msgspec.Struct, frozen=True, gc=False):
    """Publishes are refused from now on with this refusal, or (None) accepted again."""

    refusal: Refusal | None


class Crowded(msgspec.Struct, frozen=True, gc=False):
    """Whatever would create a queue is refused from now on with this refusal, or (None) not any more."""

    refusal: Refusal | None
    exists: Callable[[str], bool]


class Halted(msgspec.Struct, frozen=True, gc=False):
    """A queue cannot apply an entry, which is of this term; sent again and again as long as that is so."""

    aside: SetAside
    term: int


class Spoilt(msgspec.Struct, frozen=True, gc=False):
    """The state store of this node has applied an entry that a later one sets aside on all nodes."""

    index: int  # of the entry
    said_by: int  # index of the SetAside


class StepAside(msgspec.Struct, frozen=True, gc=False):
    """This node's disk is almost full: it must not lead and takes no entries until it has room again."""

    on: bool


class Started(msgspec.Struct, frozen=True, gc=False):
    """Begin: take part in the cluster (perhaps of one node), and hand committed entries to `queues`."""

    queues: Process
    images: Process


class Throttle(msgspec.Struct, frozen=True, gc=False):
    """The state store is far behind the log: let proposals wait; or it has caught up: let them go on."""

    on: bool


class Applied(msgspec.Struct, frozen=True, gc=False):
    """The queues have applied everything up to this entry."""

    index: int


class HandOver(msgspec.Struct, frozen=True, gc=False):
    """Let another node lead, if one can."""
