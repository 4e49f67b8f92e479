"""The entries of the log: every change to queues and messages, as plain data.

An entry holds a request and everything needed to apply it, so that every node comes to the same result.  It does not
say which client asked.  Numbers are the running message numbers of a queue, never positions in memory.  The structs are
not tracked by the garbage collector: hundreds of thousands are made, and they never form cycles.
"""

from collections.abc import Sequence
from enum import IntEnum

import msgspec
from msgspec.structs import replace

from wakeq.protocol.catalog import Policies
from wakeq.protocol.clock import span_on
from wakeq.protocol.raft.membership import Config

Token = tuple[int, int]  # (term, sequence) of a delivery: grows with every delivery of a queue
PAUSE_MS_MAX = (1 << 62) - 1  # the end of a pause without an end
ANY_TOKEN: Token = (0, 0)  # from a client that sends no token, as in the original protocol; never stale


class Kind(IntEnum):
    """The kind of an entry; the byte on disk.  Never renumber."""

    NOOP = 0
    PUBLISH = 1
    DELIVERED = 2
    EXTENDED = 3
    RELEASED = 4
    ACK = 5
    EXPIRED = 6
    DEAD = 7
    CREATE = 8
    UPDATE = 9
    DELETE = 10
    PURGE = 11
    SET_ASIDE = 12
    IMPORTED = 13
    MEMBERS = 14
    CLAIM = 15
    STASH = 16
    UNSTASH = 17
    PAUSE = 18
    MOVED = 19


class ClaimAction(IntEnum):
    """The change to the claims of a source; the number on disk.  Never renumber."""

    STAGED = 1
    RENEWED = 2
    SETTLED = 3
    LAPSED = 4
    RELEASED = 5
    READ = 6
    PUBLISHED = 7  # part of an Unstash; no entry of its own
    FINISHED = 8


class UnstashAction(IntEnum):
    """The change to stashes; the number on disk.  Never renumber."""

    PUBLISHED = 1
    DROPPED = 2
    LAPSED = 3


class Reason(IntEnum):
    """Why a delivery ended without an acknowledgement; the number on disk.  Never renumber."""

    NONE = 0
    NACK = 1
    TIMEOUT = 2
    DISCONNECT = 3
    RETURNED = 4  # released by its worker; does not count as a failure
    REJECTED = 5  # its worker makes it a dead letter at once, so this is never in a Released
    EXHAUSTED = 6  # the same, because its worker has no tries left


class Result(IntEnum):
    """The result of one item of an entry, where it is not a message number."""

    DONE = 0
    UNKNOWN = -1
    STALE = -2
    QUEUE_FULL = -3
    KEY_RANGE = -4
    TOO_LARGE = -5
    BUSY = -6
    FORGOTTEN = -7
    NO_QUEUE = -8
    EXISTS = -9
    DEFAULT_QUEUE = -10
    SET_ASIDE = -11
    REJECTED = -12
    REPEATED = -13  # already stored, under the same id or number in its session; only a note for readers of the log
    EPOCH_EXPIRED = -14
    STASH_EXPIRED = -15
    EPOCH_OLD = -16
    CANCELLED = -17  # acknowledged without any delivery; only a note for readers of the log
    EPOCH_SETTLED = -18


class Draft(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One message as its publisher sent it.  Its times are spans that begin at the moment of the entry."""

    body: bytes
    priority: int = 0
    delay_ms: int = 0
    expires_ms: int = 0  # 0 = never
    timeout_ms: int = 0  # 0 = that of the queue
    headers: bytes = b""  # MessagePack map of strings, or nothing
    alias: str = ""  # the uid of an imported record


class Publish(msgspec.Struct, frozen=True, gc=False):
    """Messages for one queue.  A missing queue is created, unless `must_exist`.

    Each draft is stored or refused by itself, unless `atomic`.  `id` makes the whole entry idempotent; with `session`,
    `ordinals` holds the number of each draft (or of the atomic whole) in that session.
    """

    queue: str
    drafts: Sequence[Draft]
    atomic: bool = False
    id: str = ""
    session: str = ""
    ordinals: Sequence[int] = ()
    forced: bool = False  # for dead letters and returned messages: the queue's policies do not apply
    door: int = 0
    worker: int = 0
    must_exist: bool = False
    oversized: bool = False  # the bodies were above the node's limit and are left out; refused in the log's order
    alike: bool = False  # the drafts differ only in their bodies and have no headers
    workers: Sequence[int] = ()  # the connection of each draft if there are several: no `session`, `worker` is 0


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """Messages delivered to a worker, each leased until its moment.  Their tokens count up from `first_sequence`."""

    queue: str
    queue_id: int
    numbers: list[int]
    untils_ms: list[int]
    first_sequence: int
    worker: int = 0
    door: int = 0
    workers: Sequence[int] = ()  # the connection of each delivery, if there are several; then `worker` is 0


class Extended(msgspec.Struct, frozen=True, gc=False):
    """Leases that now end later."""

    queue: str
    queue_id: int
    numbers: list[int]
    untils_ms: list[int]


class Released(msgspec.Struct, frozen=True, gc=False):
    """Deliveries that ended without an acknowledgement; each message is ready again from its moment on."""

    queue: str
    queue_id: int
    numbers: list[int]
    dues_ms: list[int]
    tokens: list[Token]
    reason: Reason
    error: str = ""


class Ack(msgspec.Struct, frozen=True, gc=False):
    """Messages that are done.  `publishes` are follow-ups: all of the entry takes effect, or nothing.

    `dead`: the follow-up is the dead letter of the message.  `foreign`: uids of imported records, by position; their
    number is -1.  `delivered`: this entry also delivers the messages, to a client that cannot acknowledge.  `moved`: an
    operator moves the messages to the queue of the follow-up, or deletes them; leased messages stay.
    """

    queue: str
    queue_id: int
    numbers: list[int]
    tokens: list[Token]
    publishes: list[Publish] = []
    foreign: dict[int, str] = {}
    dead: bool = False
    worker: int = 0
    door: int = 0
    delivered: bool = False
    moved: bool = False
    workers: Sequence[int] = ()  # the connection of each message, if there are several; then `worker` is 0


class Expired(msgspec.Struct, frozen=True, gc=False):
    """Messages whose time to live has ended."""

    queue: str
    queue_id: int
    numbers: list[int]


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A change to the staged claims of a source (docs/internals/staging.md).

    STAGED names the messages of the epoch, whose tokens count up from `first_sequence`.  SETTLED names the messages of
    all open epochs up to its own, LAPSED and FINISHED the messages of its own, and RELEASED those of several open
    epochs, each with its token.  RENEWED names neither messages nor an epoch: it renews all open epochs.

    READ says that a `run` of a `reader` reads the epoch in a `batch`; PUBLISHED that what it made of that is published,
    so that the epoch does not lapse at its end, but is FINISHED: acknowledged.
    """

    queue: str
    queue_id: int
    action: ClaimAction
    source: str
    epoch: int = 0
    numbers: list[int] = []
    tokens: list[Token] = []  # of the messages whose claim ends
    first_sequence: int = 0
    slices: int = 1
    until_ms: int = 0
    worker: int = 0
    door: int = 0
    reader: str = ""
    batch: int = 0
    run: str = ""


class Stash(msgspec.Struct, frozen=True, gc=False):
    """Messages of one attempt, to be published later or never; stored like an atomic publish, but hidden.

    With `writer`, all that it stashed up to an `epoch` (0: as a job) ends when that epoch is published or dropped.
    """

    queue: str
    drafts: Sequence[Draft]
    stash: str
    part: int
    keep_ms: int  # from the moment of the entry
    writer: str = ""
    epoch: int = 0
    door: int = 0
    worker: int = 0


class Unstash(msgspec.Struct, frozen=True, gc=False):
    """Publish or drop stashes together; each is named with the number of its messages.

    `writer` and its `epoch` make publishing idempotent.  What else the writer stashed up to that epoch is dropped too.
    `run` and `id` tell a request that is repeated from another one for the same epoch.  The messages were made of what
    `reader` has read in the batch of this epoch from the queues `sources`: all of the entry takes effect, or nothing.
    """

    queue: str
    action: UnstashAction
    stashes: list[tuple[str, int]]
    writer: str = ""
    epoch: int = 0
    run: str = ""
    id: str = ""
    reader: str = ""
    sources: list[str] = []


class CreateQueue(msgspec.Struct, frozen=True, gc=False):
    queue: str
    policies: Policies


class UpdateQueue(msgspec.Struct, frozen=True, gc=False):
    """`changes` names each policy that changes; None restores its default."""

    queue: str
    changes: dict[str, object]


class DeleteQueue(msgspec.Struct, frozen=True, gc=False):
    queue: str


class PurgeQueue(msgspec.Struct, frozen=True, gc=False):
    queue: str


class PauseQueue(msgspec.Struct, frozen=True, gc=False):
    """The queue delivers nothing before a moment; 0 ends a pause, PAUSE_MS_MAX begins one without an end."""

    queue: str
    until_ms: int


class Requeued(msgspec.Struct, frozen=True, gc=False):
    """An operator makes delayed messages ready now."""

    queue: str
    queue_id: int
    numbers: list[int]


class SetAside(msgspec.Struct, frozen=True, gc=False):
    """An earlier entry crashed its queue again and again: every node skips it."""

    queue: str
    index: int
    reason: str


class Imported(msgspec.Struct, frozen=True, gc=False):
    """The import of the files of version 1 is complete."""

    queue: str = ""


class Noop(msgspec.Struct, frozen=True, gc=False):
    """The first entry of a leader's term."""

    queue: str = ""


class Members(msgspec.Struct, frozen=True, gc=False):
    """The members of the cluster from here on."""

    config: Config
    queue: str = ""


Entry = (
    Publish | Delivered | Extended | Released | Ack | Expired
    | CreateQueue | UpdateQueue | DeleteQueue | PurgeQueue | SetAside | Imported | Noop
    | Members
    | Claim | Stash | Unstash | PauseQueue | Requeued
)  # fmt: skip

Results = Sequence[int]  # for each item: a message number (> 0), or a Result


def makes_queue(entry: Entry) -> bool:
    """Whether stashes are published that need not be there: none, for an epoch that the queue is to remember."""
    if not isinstance(entry, Unstash) or entry.action is not UnstashAction.PUBLISHED:
        return False
    return entry.epoch > 0 and not entry.stashes


def lengthened(entry: Entry, behind_ms: int) -> Entry:
    """Return the entry with longer delays, so that none ends early while the clock runs fast to catch up."""
    match entry:
        case Publish() | Stash() if any(draft.delay_ms for draft in entry.drafts):
            return replace(entry, drafts=[_lengthened(draft, behind_ms) for draft in entry.drafts])
        case Ack(publishes=[_, *_]):
            return replace(entry, publishes=[lengthened(publish, behind_ms) for publish in entry.publishes])
        case _:
            return entry


def _lengthened(draft: Draft, behind_ms: int) -> Draft:
    return replace(draft, delay_ms=span_on(behind_ms, draft.delay_ms)) if draft.delay_ms else draft
