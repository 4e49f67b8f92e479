"""The messages that several actors send each other.  Plain data; the receiver decides what to do.

To the log:    Propose --> RaftLog --> Committed --> Queues
To a queue:    KeepLeased, Unsent, Gone, and the orders of `protocol/queue/orders.py`
To a session:  Woken;  to any actor that has asked: Answered
The flush:     CollectChanges (to each queue) --> Collected --> (state store) --> Flushed;  read from there: Loaded
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from wakeq.actors.runtime import Process
from wakeq.protocol.log.entries import Entry, SetAside
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.orders import Peek, Stats, Ticket
from wakeq.protocol.queue.outcomes import Leased, Refusal
from wakeq.storage.state.checkpoint import QueueDelta

if TYPE_CHECKING:
    from wakeq.actors.queue.process import QueueProcess

AnswerT = TypeVar("AnswerT")


class Answered(msgspec.Struct, Generic[AnswerT], frozen=True):
    """The answer to a question that an actor has asked by mail."""

    then: Callable[[AnswerT], object]
    answer: AnswerT  # an Outcome, a Refusal, or what was asked for

    def deliver(self) -> None:
        """Go on with the answer; to be called by the actor that has asked."""
        self.then(self.answer)


class ReplyByMail(msgspec.Struct, Generic[AnswerT], eq=False):
    """Where the answer to an actor's question goes: to `then`, in a turn of that actor.  A ReplyTo of orders.py."""

    session: Process
    then: Callable[[AnswerT], object]
    is_answered: bool = False

    def tell(self, answer: AnswerT) -> None:
        """Give the answer; all but the first are dropped."""
        if not self.is_answered:
            self.is_answered = True
            self.session.tell(Answered(self.then, answer))


class NoopTicket(msgspec.Struct, frozen=True, eq=False):
    """The ticket of a no-op, which this node has proposed to lead in a term, or to have a rebuilt queue lead.

    If the log refuses it this node leads no longer, and Follow says so.
    """

    rebuilt: "QueueProcess | None" = None  # the process of the queue; None: it is the first entry of a term

    def tell(self, answer: object) -> None:
        """Drop the refusal."""


class Propose(msgspec.Struct, frozen=True, gc=False):
    """Entries for the log, each with its ticket, or None if nobody asks."""

    items: list[Proposal]


class LogItem(msgspec.Struct, frozen=True, gc=False):
    """An entry at its place in the log, and what its outcome is told to: None if nobody asked, or asks no more."""

    index: int
    term: int
    at_ms: int
    entry: Entry
    reply_to: Ticket | None = None


class Committed(msgspec.Struct, frozen=True, gc=False):
    """Entries that are on disk on a quorum, in log order."""

    items: list[LogItem]


class Follow(msgspec.Struct, frozen=True, gc=False):
    """This node leads no longer: whoever waits gets this refusal, and what only a leader knows is forgotten."""

    term: int  # in which it led
    refusal: Refusal


# Straight ---------------------------------------------------------------------------------------------------------


class KeepLeased(msgspec.Struct, frozen=True, gc=False):
    """The log has refused the acknowledgement of these: they stay leased."""

    queue: str
    queue_id: int
    numbers: list[int]


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


class Inquire(msgspec.Struct, frozen=True, gc=False):
    """To RaftLog: pass this Peek or Stats on as soon as a majority has confirmed that this node still leads."""

    question: Peek | Stats


# The flush to the state store -------------------------------------------------------------------------------------


class CollectChanges(msgspec.Struct, frozen=True, gc=False):
    """To a queue: hand in what changed since the last flush, including everything you were told before this."""

    flush: int
    reply_to: Process


class Collected(msgspec.Struct, frozen=True, gc=False):
    """The changes of one queue for a flush."""

    flush: int
    delta: QueueDelta
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


class RestartWithoutEntry(msgspec.Struct, frozen=True, gc=False):
    """To a queue: all nodes skip an entry that it has applied; be rebuilt without it."""

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


class EntryCrashesQueue(msgspec.Struct, frozen=True, gc=False):
    """A queue cannot apply an entry, which is of this term; sent again and again as long as that is so."""

    skip: SetAside  # what would have all nodes skip it
    term: int


class StateHasSkippedEntry(msgspec.Struct, frozen=True, gc=False):
    """The state store of this node contains an entry that all nodes skip."""

    index: int  # of the entry
    said_by: int  # index of the SetAside that says so


class OutOfRoom(msgspec.Struct, frozen=True, gc=False):
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
