"""What operators ask of queues, subscribers and the log, and what they are answered.  Plain data.

Scan, Show, Why, Held, ListClaims -> a queue, which only looks;  Move, Requeue -> a queue, which proposes
Describe -> a subscriber;  Administer -> RaftLog
"""

from typing import Any

import msgspec

from wakeq.protocol.queue.orders import ReplyTo
from wakeq.protocol.queue.outcomes import Refusal


class Scan(msgspec.Struct, frozen=True, gc=False):
    """Look at messages in a state (`all`, `ready`, `delayed`, `leased`), in the order of publication.

    It is answered by a Page.  `after` is 0 at first, then that of the page before.  With `in_line`, look at the ready
    messages in the order of delivery: those delivered between two pages move the others up, so that the next page
    passes over some.
    """

    asker: ReplyTo
    queue: str
    after: int
    count: int
    state: str = "all"
    in_line: bool = False


class Page(msgspec.Struct, frozen=True, gc=False):
    """Some messages of a queue."""

    rows: list[dict[str, Any]]
    # Where the next page begins; 0 if this is the last one.
    after: int
    # The number of the newest message that was ever published.
    last: int
    # How many messages were looked at, whatever their state.
    looked_at: int = 0
    # How many messages the queue has, in any state.
    size: int = 0


class Show(msgspec.Struct, frozen=True, gc=False):
    """Look at one message; answered by its row, or by None if it is not in the queue."""

    asker: ReplyTo
    queue: str
    uid: str


class Why(msgspec.Struct, frozen=True, gc=False):
    """Why is this message not being worked on?"""

    asker: ReplyTo
    queue: str
    uid: str


class Held(msgspec.Struct, frozen=True, gc=False):
    """Which messages of a queue do these connections have?

    Answered by what each has, by its number, and whether that is all of it.
    """

    asker: ReplyTo
    queue: str
    workers: frozenset[int]


class Work(msgspec.Struct, frozen=True, gc=False):
    """A message that a connection has."""

    queue: str
    uid: str
    since_ms: int  # 0: not known, because another leader delivered it
    until_ms: int


class ListClaims(msgspec.Struct, frozen=True, gc=False):
    """Which messages are claimed, and by which sources?  Answered by a list of objects."""

    asker: ReplyTo
    queue: str


class Administer(msgspec.Struct, frozen=True, gc=False):
    """To RaftLog, from an operator: status, transfer, add, remove or snapshot."""

    asker: ReplyTo
    what: str
    node_id: int | None = None
    address: str = ""


class Move(msgspec.Struct, frozen=True, gc=False):
    """Take messages away that are not with a worker: to the queue `to`, or (None) for ever; answered by a Moved.

    With `redrive` they leave behind what made them dead letters.
    """

    asker: ReplyTo
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

    asker: ReplyTo
    queue: str
    uids: list[str]


class Describe(msgspec.Struct, frozen=True, gc=False):
    """To a subscriber: what are you about?  With `fully`, also who the client says it is, and what it fetches from."""

    asker: ReplyTo
    fully: bool = False
