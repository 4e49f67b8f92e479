"""The messages that several actors send each other.  Plain data; the receiver decides what to do.

To the log:    Propose --> RaftLog --> Committed --> Queues
To a queue:    Fetch, EndWaits, Staying, Unsent, Gone, and the orders of `protocol/queue/orders.py`
To a session:  Answered, Woken
The flush:     Collect (to each queue) --> Collected --> (state store) --> Flushed;  read from there: Loaded
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from wakeq.actors.runtime import Process
from wakeq.protocol.log.entries import Entry, SetAside
from wakeq.protocol.queue.lanes import Proposal
from wakeq.protocol.queue.orders import Peek, Stats
from wakeq.protocol.queue.outcomes import Leased, Refusal
from wakeq.storage.state.cut import Part


class Asker(msgspec.Struct, frozen=True, gc=False):
    """Who waits for an answer, and what the answer belongs to there.  Never in the bytes of the log."""

    process: Process
    ticket: Any  # whatever lets the process find its question again, such as an Asked of TaskFlux
    place: Any  # of the command within it, or a list of places

    @property
    def session(self) -> Process:
        """Who hears the answer."""
        return self.process

    def at(self, places: Any) -> "Asker":
        """Return the same for an answer about some of the places."""
        return Asker(self.process, self.ticket, places)

    def tell(self, answer: Any) -> None:
        """Give whoever asked the answer."""
        self.process.tell(Answered([(self.ticket, self.place, answer)]))


class Propose(msgspec.Struct, frozen=True, gc=False):
    """Entries for the log, each with its ticket, or None if nobody asks."""

    items: list[Proposal]


class LogItem(msgspec.Struct, frozen=True, gc=False):
    """An entry at its place in the log, and what its outcome is told to: None if nobody asked, or asks no more."""

    index: int
    term: int
    at_ms: int
    entry: Entry
    reply_to: Any = None


class Committed(msgspec.Struct, frozen=True, gc=False):
    """Entries that are on disk on a quorum, in log order."""

    items: list[LogItem]


class Follow(msgspec.Struct, frozen=True, gc=False):
    """This node leads no longer: whoever waits gets this refusal, and what only a leader knows is forgotten."""

    term: int  # in which it led
    refusal: Refusal


class Answered(msgspec.Struct, frozen=True, gc=False):
    """Answers for one process: (ticket, place, answer); an answer is an Outcome, a Refusal, or what was asked for."""

    answers: list[tuple[Any, Any, Any]]


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


class EndWaits(msgspec.Struct, frozen=True, gc=False):
    """The client has sent another command: the subscriber's waiting fetches of this ticket end with nothing."""

    subscriber: Process
    ticket: Any
    queue: str = ""


class Staying(msgspec.Struct, frozen=True, gc=False):
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
