"""Lanes: what the commands of one round want of one queue, as columns, and what the queue wants of the next write.

    conversations file --> Lanes.filed --> the queue's turn --> Outgoing --> the log collects --> entries

Lanes belong to the name of a queue and not to its process: when a process crashes, what was filed and not looked at is
there for the next one.  Pure.

The order of what one connection publishes to one queue is kept, and plain publishes of all connections still become
one entry: a publish joins an open run unless its connection has published behind that run already.  A publish that
could spoil its neighbours (with an id, of several messages, of a block) is a Whole: an entry of its own, which closes
all runs.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from wakeq.protocol.log.entries import Ack, Draft, Entry, Publish, Result, Token
from wakeq.protocol.queue.orders import ReplyTo, Ticket
from wakeq.protocol.queue.outcomes import Outcome, Refusal
from wakeq.protocol.wire.slots import Slot


class Run(msgspec.Struct, gc=False):
    """Publishes of many connections that become one entry; of one session if they are numbered."""

    position: int  # among all runs and wholes of the round
    door: int
    session_id: str  # "" for plain ones
    is_alike: bool  # nothing but their bodies tells them apart
    drafts: list[Draft]
    ordinals: list[int]
    slots: list[Slot]

    def join(self, other: "Run") -> None:
        """Take what came in a later round, before the log was free to write."""
        self.is_alike = self.is_alike and other.is_alike
        self.drafts += other.drafts
        self.ordinals += other.ordinals
        self.slots += other.slots


class Whole(msgspec.Struct, gc=False):
    """A publish that is an entry of its own."""

    position: int
    entry: Publish
    slot: ReplyTo


class Acks(msgspec.Struct, gc=False):
    """Plain acknowledgements of one message each, of all connections of one door."""

    door: int
    uids: list[str]
    tokens: list[Token]
    slots: list[Slot]


class AckSeveral(msgspec.Struct, gc=False):
    """An acknowledgement of several messages, or one that publishes: an entry of its own."""

    uids: list[str]
    tokens: list[Token]
    publishes: list[Publish]
    slot: Slot


class Filed(msgspec.Struct, eq=False):
    """What was filed in one round, in columns."""

    reads: list[Slot] = []  # FET and ISLP, in their order
    acks: list[Acks | AckSeveral] = []  # all but those that publish, which are orders
    publishes: list[Run | Whole] = []
    orders: list[Any] = []  # NACK, TOUCH, claims ...: see orders.py
    enders: set[Any] | None = None  # connections with a NACK or TOUCH among the orders
    _open_runs: dict[tuple[str, int], Run] | None = None  # by session id and door; as soon as there are two
    _last_position: dict[Any, int] = {}  # by connection: behind which run its next publish belongs

    def acknowledge(self, slot: Slot, uid: str, token: Token) -> None:
        """File an acknowledgement of one message."""
        door = slot.session.door_kind
        last = self.acks[-1] if self.acks else None
        if type(last) is Acks and last.door == door:
            last.uids.append(uid)
            last.tokens.append(token)
            last.slots.append(slot)
        else:
            self.acks.append(Acks(door, [uid], [token], [slot]))

    def publish(self, slot: Slot, draft: Draft, session_id: str, ordinal: int, *, is_alike: bool) -> None:
        """File a publish of one message without an id."""
        session = slot.session
        door = session.door_kind
        if self._open_runs is None:
            run = self.publishes[0] if self.publishes else None
            if not isinstance(run, Run) or run.session_id != session_id or run.door != door:
                run = None
        else:
            run = self._open_runs.get((session_id, door))
        if run is None or self._last_position.get(session, 0) > run.position:
            run = Run(len(self.publishes), door, session_id, is_alike, [draft], [], [slot])  # behind all
            if self.publishes:
                first = self.publishes[0]
                if self._open_runs is None:
                    self._open_runs = {(first.session_id, first.door): first} if isinstance(first, Run) else {}
                self._open_runs[session_id, door] = run
            self.publishes.append(run)
        else:
            run.drafts.append(draft)
            run.slots.append(slot)
            if not is_alike:
                run.is_alike = False
        if session_id:
            run.ordinals.append(ordinal)
        if run.position:
            self._last_position[session] = run.position

    def publish_whole(self, slot: ReplyTo, entry: Publish) -> None:
        """File a publish that is an entry of its own."""
        self._last_position[slot.session] = len(self.publishes)
        self.publishes.append(Whole(len(self.publishes), entry, slot))
        self._open_runs = {}

    def slots(self) -> list[ReplyTo]:
        """Return every slot that is still in here."""
        found: list[ReplyTo] = list(self.reads)
        for one in (*self.acks, *self.publishes):
            found += one.slots if isinstance(one, Acks | Run) else [one.slot]
        return found


class Lanes:
    """The lanes of one queue.  `filed` is None while nothing is filed: an idle queue is to be small."""

    __slots__ = ("filed", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.filed: Filed | None = None

    def take(self) -> Filed | None:
        """Return what was filed; what is filed from now on is for the next turn."""
        filed, self.filed = self.filed, None
        return filed


class AnswerOnCommit(msgspec.Struct, frozen=True, gc=False):
    """An answer that waits for the commit of its entry; if that came to nothing, `if_void` is given instead."""

    asker: ReplyTo
    answer: Any
    if_void: Any
    waiter: Any = None  # a fetch whose time is not over: it goes on waiting instead of getting `if_void`

    def tell(self, answer: Any) -> None:
        """Refuse it: the answer that waits is not given."""
        self.asker.tell(answer)

    @property
    def session(self) -> Any:
        return self.asker.session


class FileOnCommit(msgspec.Struct, frozen=True, gc=False):
    """An order that waits for the commit of an entry: then it is filed again, unless the entry is skipped."""

    asker: ReplyTo
    order: Any
    file: Callable[[Any], None]

    def tell(self, answer: Any) -> None:
        """File the order, or refuse it."""
        if isinstance(answer, Outcome) and answer.results[0] in (Result.DONE, Result.UNKNOWN):
            self.file(self.order)
        else:
            self.asker.tell(answer)

    @property
    def session(self) -> Any:
        return self.asker.session


class SharesOnCommit(msgspec.Struct, frozen=True, gc=False):
    """The same for several fetches whose deliveries are one entry: the slot of each, and how many are its own."""

    slots: Sequence[Slot]
    counts: Sequence[int]
    deliveries: Sequence[Any]

    def tell(self, answer: Any) -> None:
        """Refuse all of them."""
        for slot in self.slots:
            slot.tell(answer)


class Tickets(msgspec.Struct, frozen=True, gc=False):
    """The ticket of an entry that answers many commands: a slot for each of its messages, in their order."""

    slots: Sequence[Slot]

    def tell(self, answer: Any) -> None:
        """Give all of them the same answer: a refusal."""
        for slot in self.slots:
            slot.tell(answer)


class AckTickets(msgspec.Struct, frozen=True, gc=False):
    """The same of acknowledgements, whose messages stay leased if the log refuses them."""

    slots: Sequence[Slot]
    keep_leased: Sequence[Callable[[], None]]

    def tell(self, answer: Any) -> None:
        """Refuse all of them."""
        for keep_leased in self.keep_leased:
            keep_leased()
        for slot in self.slots:
            slot.tell(answer)


class AckTicket(msgspec.Struct, frozen=True, gc=False):
    """The ticket of an acknowledgement of several messages, or of one that publishes: one answer for all of it."""

    asker: ReplyTo
    keep_leased: Callable[[], None]

    def tell(self, answer: Any) -> None:
        """Give the outcome; after a refusal by the log the messages stay leased."""
        if isinstance(answer, Refusal):
            self.keep_leased()
        self.asker.tell(answer)


def apart(entry: Entry, ticket: Ticket | None) -> "list[Proposal]":
    """Return an entry that many connections share as one for each of them; nothing if it cannot be taken apart."""
    if not isinstance(ticket, Tickets | AckTickets) or not isinstance(entry, Publish | Ack):
        return []
    places: dict[Any, list[int]] = {}
    for place, slot in enumerate(ticket.slots):
        places.setdefault(slot.session, []).append(place)
    if len(places) < 2:
        return []
    return [_part_for(entry, ticket, session.number, mine) for session, mine in places.items()]


def _part_for(entry: Publish | Ack, ticket: Tickets | AckTickets, worker: int, places: list[int]) -> "Proposal":
    slots = [ticket.slots[place] for place in places]
    if isinstance(entry, Publish):
        drafts = [entry.drafts[place] for place in places]
        ordinals = [entry.ordinals[place] for place in places] if entry.ordinals else ()
        mine: Entry = replace(entry, drafts=drafts, ordinals=ordinals, worker=worker, workers=(), alike=False)
        return Proposal(mine, Tickets(slots))
    foreign = {at: entry.foreign[place] for at, place in enumerate(places) if place in entry.foreign}
    numbers, tokens = [entry.numbers[place] for place in places], [entry.tokens[place] for place in places]
    mine = replace(entry, numbers=numbers, tokens=tokens, foreign=foreign, worker=worker, workers=())
    assert isinstance(ticket, AckTickets), "an acknowledgement has such a ticket"
    return Proposal(mine, AckTickets(slots, ticket.keep_leased))


class Proposal(msgspec.Struct, frozen=True, gc=False):
    """An entry for the log, and what its outcome is told to: None if nobody asked."""

    entry: Entry
    reply_to: Ticket | None = None


class Rank(IntEnum):
    """Where an entry stands among those that one queue has for one write of the log.

    Deliveries stand before all of them, because an acknowledgement of the same delivery may be among the others.
    """

    BEFORE = 0  # Extended, Released, Expired, claims
    ACK = 1
    PUBLISH = 2
    BEHIND = 3  # entries that name several queues, or change the queue as a whole: behind those of all queues


class Acking(msgspec.Struct, gc=False):
    """Plain acknowledgements of many connections, marked and on their way to the log: they become one entry."""

    door: int
    queue_id: int
    numbers: list[int]
    tokens: list[Token]
    foreign: dict[int, str]
    slots: list[Slot]
    keep_leased: list[Callable[[], None]]

    def join(self, other: "Acking") -> None:
        """Take what came in a later round, before the log was free to write."""
        at = len(self.numbers)
        self.foreign |= {at + place: uid for place, uid in other.foreign.items()}
        self.numbers += other.numbers
        self.tokens += other.tokens
        self.slots += other.slots
        self.keep_leased += other.keep_leased


class Outgoing(msgspec.Struct, gc=False):
    """What a queue wants in the next write of the log; plain data, which outlives a crash of the queue.

    A Run and an Acking become entries only when the log collects: what comes until then joins them.
    """

    rank: Rank
    entry: Entry | Run | Acking
    ticket: Ticket | None  # None if nobody asked; a Run and an Acking have slots


class Delivering(msgspec.Struct, gc=False):
    """Deliveries of one door whose sequences run on: they become one entry."""

    queue_id: int
    door: int
    first_sequence: int
    numbers: list[int]
    untils_ms: list[int]
    workers: list[int]
