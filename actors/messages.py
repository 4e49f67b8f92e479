"""What processes say to each other.  Plain data; the receiver decides what to do.

The ring:      Propose -> Committed -> Answered           (tell only, one direction)
Straight:      Fetch, Touch, Nack, Sleep, Leaving, Gone -> a queue;  Fetched, Woken, Answered -> a subscriber
               and what `staging_messages.py`, `operator_messages.py` and `monique_messages.py` have
Writing down:  Collect -> Collected -> (state store) -> Flushed;  Load -> Loaded
"""

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import msgspec

from wakeq.actors.audience import Waiter
from wakeq.actors.runtime import Process
from wakeq.protocol.commands import Draft, Entry, Reason, Results, SetAside, Token
from wakeq.storage.flush import Part


class Asker(msgspec.Struct, frozen=True, gc=False):
    """Who waits for an outcome, and where the outcome belongs with him.  Never in the bytes of the log."""

    process: Process
    ticket: Any
    place: Any

    def tell(self, answer: Any) -> None:
        """Give whoever asked the answer."""
        self.process.tell(Answered([(self.ticket, self.place, answer)]))


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Why something was not done: a stable code and a sentence, and where to go instead."""

    code: str
    detail: str
    leader: str = ""  # its worker port ...
    leader_http: str = ""  # ... and the port of its WebSockets


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

    `replies` takes the answers if other queues were told of the same batch; a queue that ends must say so there too.
    """

    items: list[Item]
    replies: Any = None


class Follow(msgspec.Struct, frozen=True, gc=False):
    """This node leads no longer: whoever waits for it hears this, and what only a leader knows is forgotten."""

    term: int  # in which it led
    refusal: Refusal


class Answered(msgspec.Struct, frozen=True, gc=False):
    """Outcomes for one process: (ticket, place, Outcome or Refusal or anything that was asked for)."""

    answers: list[tuple[Any, Any, Any]]


class HeldBack(msgspec.Struct, frozen=True, gc=False):
    """The ticket of a delivery that must last: the answer waits for the commit, or for the news that it is void."""

    answer: Answered
    otherwise: Answered
    waiter: Waiter | None = None  # whose time is not over: it waits on, rather than hear `otherwise`

    def without_refused(self, codes: Sequence[int]) -> Answered | None:
        """Return the answer with those messages only of which the log says no refusal; None if none is left."""
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
    subscribed: bool = False  # then a queue that does not exist is empty instead of unknown
    must_exist: bool = False  # then it is unknown even to who would wait for it
    removes: bool = False  # nobody will acknowledge what is taken, or somebody did ahead: it is gone when handed out

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


class HandedOver(msgspec.Struct, frozen=True, gc=False):
    """Messages that are gone when they are handed out: there is nothing else to know about them."""

    numbers: list[int]
    drafts: list[Draft]

    def only(self, done: Sequence[bool]) -> "HandedOver":
        """Return those only of which it says so."""
        return HandedOver(list(compress(self.numbers, done)), list(compress(self.drafts, done)))


class EndWaits(msgspec.Struct, frozen=True, gc=False):
    """The subscriber goes on: its waiting fetches of this ticket end with nothing."""

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
    reason: Reason = Reason.NACK  # or RETURNED, or REJECTED


class Sleep(msgspec.Struct, frozen=True, gc=False):
    """ISLP: wake me when there is something."""

    asker: Asker
    queue: str
    subscribed: bool = False


class Subscribe(msgspec.Struct, frozen=True, gc=False):
    """The subscriber joined the group of a queue that may not exist yet."""

    queue: str


class Leaving(msgspec.Struct, frozen=True, gc=False):
    """These are being acknowledged: not handed out nor released until the outcome.

    With `undone` there is no outcome to come: the log did not take it.
    """

    queue: str
    queue_id: int
    numbers: list[int]
    undone: bool = False


class Gone(msgspec.Struct, frozen=True, gc=False):
    """A subscriber ended; with `asleep_only` it just left the group."""

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
    """One queue's figures; of all of them with an empty `queue` and `all_queues`.

    Of those that `sees` says yes to and whose name begins with `prefix`, by name, the first `limit` (0: all) that come
    behind `after`.  `brief` asks for the numbers alone, as Gauges: a tenth of the work.
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
    """To RaftLog: pass this Peek or Stats on once a majority has said, since it was asked, that this node leads."""

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


# Writing down -----------------------------------------------------------------------------------------------------


class Collect(msgspec.Struct, frozen=True, gc=False):
    """Hand over what changed since the last time; what was told before this belongs to it."""

    cut: int
    reply_to: Process


class Collected(msgspec.Struct, frozen=True, gc=False):
    """One queue's part of a cut."""

    cut: int
    part: Part
    unchanged: Sequence[tuple[int, int, int]] = ()  # (index, place, code) of what was refused


class Flushed(msgspec.Struct, frozen=True, gc=False):
    """What was collected is in the state store, synced; so many bytes of bodies may be kept at hand."""

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
    index: int  # the entry that it could not apply, 0 if it was none
    reason: str
    error: BaseException | None = None
    unanswered: Sequence[Item] = ()  # that it had been told and had not answered yet


class Abandon(msgspec.Struct, frozen=True, gc=False):
    """To a queue: an entry that you have applied does not count; be rebuilt without it."""

    index: int


class Deserted(msgspec.Struct, frozen=True, gc=False):
    """A queue that does not exist has neither sleepers nor waiters nor subscribers."""

    queue: str
    process: Process


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time to look after something; `what` says after what."""

    what: str = ""


class Pressure(msgspec.Struct, frozen=True, gc=False):
    """Publishes are refused from now on, or (None) taken again."""

    refusal: Refusal | None


class Halted(msgspec.Struct, frozen=True, gc=False):
    """A queue cannot apply an entry of this term; said again as long as it is so."""

    aside: SetAside
    term: int


class Spoilt(msgspec.Struct, frozen=True, gc=False):
    """The state on disk has what came of an entry that all nodes leave out, as a later one says."""

    index: int  # of the entry
    said_by: int  # of the one that sets it aside


class StepAside(msgspec.Struct, frozen=True, gc=False):
    """This node's disk has hardly any room left: others are to lead, and it takes nothing, until it has room again."""

    on: bool


class Started(msgspec.Struct, frozen=True, gc=False):
    """Begin: take part in the cluster, be it of one, and hand what is committed to `queues`."""

    queues: Process
    images: Process


class Throttle(msgspec.Struct, frozen=True, gc=False):
    """The state store is behind: let proposals wait, or go on."""

    on: bool


class Applied(msgspec.Struct, frozen=True, gc=False):
    """The queues have applied everything up to this entry."""

    index: int


class HandOver(msgspec.Struct, frozen=True, gc=False):
    """Lead no longer, if another node can."""
