"""What processes say to each other.  Plain data; the receiver decides what to do.

The ring:      Propose -> Committed -> Answered           (tell only, one direction)
Straight:      Fetch, Touch, Nack, Sleep, Leaving, Gone -> a queue;  Fetched, Woken, Answered -> a subscriber
               Stage, Renew, Settle -> a queue, which proposes;  ReadSlice, Leaf -> a queue, which only looks
Writing down:  Collect -> Collected -> (state store) -> Flushed;  Load -> Loaded
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from wakeq.actors.runtime import Process
from wakeq.protocol.commands import Draft, Entry, Reason, Results, Token
from wakeq.storage.flush import Part


class Asker(msgspec.Struct, frozen=True, gc=False):
    """Who waits for an outcome, and where the outcome belongs with him.  Never in the bytes of the log."""

    process: Process
    ticket: Any
    place: Any


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
    follows: list["Outcome"] = []


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

    def without_refused(self, codes: Sequence[int]) -> Answered:
        """Return the answer with those messages only whose code is 0."""
        if not any(codes):
            return self.answer
        ((ticket, place, messages),) = self.answer.answers
        left = [message for message, code in zip(messages, codes, strict=True) if not code]
        return Answered([(ticket, place, left)]) if left else self.otherwise


# Straight ---------------------------------------------------------------------------------------------------------


class Want(msgspec.Struct, frozen=True, gc=False):
    """One FET: up to `count` messages, waiting up to `wait_ms` for the first."""

    place: Any
    count: int
    wait_ms: int = 0


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


Numbered = tuple[int, Draft]  # a message that is gone when it is handed out: there is nothing else to know about it


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
    """Show messages; of `any` state those behind the number `after`."""

    asker: Asker
    queue: str
    state: str
    count: int
    after: int = 0


class Leaf(msgspec.Struct, frozen=True, gc=False):
    """Look at many messages in the order of publication: up to `count` behind number `after`, and none above `last`."""

    asker: Asker
    queue: str
    after: int
    last: int
    count: int


class Seen(msgspec.Struct, frozen=True, gc=False):
    """Messages that were looked at, and where the next look goes on (0: there is no more)."""

    uids: list[str]
    drafts: list[Draft]
    earlier: list[int]  # deliveries
    published_ms: list[int]
    states: list[str]
    next: int
    last: int = 0  # the highest number that the queue ever gave, of a Leaf


class Stats(msgspec.Struct, frozen=True, gc=False):
    """One queue's figures; of all of them with an empty `queue` and `all_queues`.

    Of those whose name begins with `prefix`, by name, the first `limit` (0: all) that come behind `after`.  `brief`
    asks for the numbers alone, as Gauges: a tenth of the work.
    """

    asker: Asker
    queue: str
    all_queues: bool = False
    prefix: str = ""
    after: str | None = None
    limit: int = 0
    brief: bool = False


class Scan(msgspec.Struct, frozen=True, gc=False):
    """Look at the messages published behind number `after`, or only those with a worker; answered by a Page."""

    asker: Asker
    queue: str
    after: int
    count: int
    leased_only: bool = False


class Page(msgspec.Struct, frozen=True, gc=False):
    """Some messages of a queue, the number of the last of them (0: there are none), and the last one given out."""

    rows: list[dict[str, Any]]
    after: int
    last: int


class Why(msgspec.Struct, frozen=True, gc=False):
    """Why is this message not being worked on?"""

    asker: Asker
    queue: str
    uid: str


class Administer(msgspec.Struct, frozen=True, gc=False):
    """To RaftLog, from an operator: status, transfer, add, remove or snapshot."""

    asker: Asker
    what: str
    node_id: int | None = None
    address: str = ""


# What an operator does --------------------------------------------------------------------------------------------


class Move(msgspec.Struct, frozen=True, gc=False):
    """Take messages away that are not with a worker: to the queue `to`, or (None) for ever; answered by a Moved.

    With `redrive` they leave behind what made them dead letters.
    """

    asker: Asker
    queue: str
    uids: list[str]
    to: str | None
    redrive: bool = False


class Moved(msgspec.Struct, frozen=True, gc=False):
    """What became of each uid: its new one ("" if it is gone for ever), or None if it stays or was not there."""

    uids: dict[str, str | None]
    refusal: Refusal | None = None  # why none of them went


class Requeue(msgspec.Struct, frozen=True, gc=False):
    """Hand delayed messages out now; answered by an Outcome."""

    asker: Asker
    queue: str
    uids: list[str]


class Describe(msgspec.Struct, frozen=True, gc=False):
    """To a subscriber: what are you about?"""

    asker: Asker


# Staged -----------------------------------------------------------------------------------------------------------


class Stage(msgspec.Struct, frozen=True, gc=False):
    """Claim up to `count` messages for an epoch, in slices, for so long."""

    asker: Asker
    queue: str
    source: str
    epoch: int
    count: int
    slices: int
    keep_ms: int
    worker: int = 0
    door: int = 0


class ReadSlice(msgspec.Struct, frozen=True, gc=False):
    """Look at the messages of a slice from `offset` on; nothing changes."""

    asker: Asker
    queue: str
    source: str
    epoch: int
    slice: int
    offset: int
    count: int


class Renew(msgspec.Struct, frozen=True, gc=False):
    """Keep the open epochs of a source for so long from now."""

    asker: Asker
    queue: str
    source: str
    keep_ms: int


class Settle(msgspec.Struct, frozen=True, gc=False):
    """Acknowledge the open epochs of a source up to one."""

    asker: Asker
    queue: str
    source: str
    epoch: int


ASKED = (
    Touch,
    Nack,
    Peek,
    Leaf,
    Stats,
    Stage,
    ReadSlice,
    Renew,
    Settle,
    Scan,
    Why,
    Move,
    Requeue,
)  # one answer each, to `asker`

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
    unchanged: list[tuple[int, int, int]] = []  # (index, place, code) of what was refused


class Flushed(msgspec.Struct, frozen=True, gc=False):
    """What was collected for this cut is in the state store, synced; so many bytes of bodies may be kept at hand."""

    cut: int
    bodies_bytes_max: int


class Loaded(msgspec.Struct, frozen=True, gc=False):
    """Bodies that were read: number -> stored value or None."""

    rows: dict[int, bytes | None]
    ticket: Any = None


class Crashed(msgspec.Struct, frozen=True, gc=False):
    """A queue process could not go on; its supervisor rebuilds it."""

    queue: str
    process: Process
    index: int  # the entry that it could not apply, 0 if it was none
    reason: str
    error: BaseException | None = None


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
