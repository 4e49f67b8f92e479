"""The entries of the log: everything that can happen to queues and messages, as plain data.

An entry says what was asked for and carries everything needed to apply it, so that every node comes to the same
result.  Who asked is not in here.  Numbers are the running message numbers of a queue, never positions in memory.
Structs without GC tracking: they are made by the hundred thousand and never form cycles.
"""

from collections.abc import Sequence
from enum import IntEnum

import msgspec
from msgspec.structs import replace

from wakeq.protocol.catalog import Policies
from wakeq.protocol.clock import span_on
from wakeq.protocol.raft.membership import Config

Token = tuple[int, int]  # (term, sequence) of a delivery: grows with every delivery of a queue
PAUSE_MS_MAX = (1 << 62) - 1  # the end of a pause that lasts until it is ended
ANY_TOKEN: Token = (0, 0)  # of a client that shows no token, as in the original protocol; never stale


class Kind(IntEnum):
    """What an entry is; the byte on disk.  Never renumber."""

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
    """What happens to the claims of a source; the number on disk.  Never renumber."""

    STAGED = 1
    RENEWED = 2
    SETTLED = 3
    LAPSED = 4


class UnstashAction(IntEnum):
    """What happens to stashes; the number on disk.  Never renumber."""

    PUBLISHED = 1
    DROPPED = 2
    LAPSED = 3


class Reason(IntEnum):
    """Why a delivery ended without an acknowledgement; the number on disk.  Never renumber."""

    NONE = 0
    NACK = 1
    TIMEOUT = 2
    DISCONNECT = 3
    RETURNED = 4  # given back by a worker; does not count as a failure
    REJECTED = 5  # a worker wants it to be a dead letter at once; so it never stands in Released
    EXHAUSTED = 6  # the same, because a worker has tried it as often as it may


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
    REPEATED = -13  # stored before, with the same id or number in its session; only a note for readers of the log
    EPOCH_EXPIRED = -14
    STASH_EXPIRED = -15
    EPOCH_OLD = -16
    CANCELLED = -17  # acknowledged without ever having been delivered; only a note for readers of the log


class Draft(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One message as its publisher sent it.  Its times are spans, counted from the moment of the entry."""

    body: bytes
    priority: int = 0
    delay_ms: int = 0
    expires_ms: int = 0  # 0 = never
    timeout_ms: int = 0  # 0 = what the queue says
    headers: bytes = b""  # MessagePack map of strings, or nothing
    alias: str = ""  # the uid of an imported record


class Publish(msgspec.Struct, frozen=True, gc=False):
    """Messages for one queue, which is created if it does not exist, unless `must_exist`.

    Each draft is stored or refused by itself, unless `atomic`.  `id` makes the whole entry idempotent; with `session`,
    `ordinals` gives each draft (or the atomic whole) its number in that session.
    """

    queue: str
    drafts: Sequence[Draft]
    atomic: bool = False
    id: str = ""
    session: str = ""
    ordinals: Sequence[int] = ()
    forced: bool = False  # dead letters and returned messages are stored whatever the queue's policies say
    door: int = 0
    worker: int = 0
    must_exist: bool = False
    oversized: bool = False  # the bodies are above the node's limit and left out: to be refused in the log's order
    alike: bool = False  # the drafts are known to differ only in their bodies and to have no headers


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """Messages handed to a worker, each until its moment.  The tokens are numbered on from `first_sequence`."""

    queue: str
    queue_id: int
    numbers: list[int]
    untils_ms: list[int]
    first_sequence: int
    worker: int = 0
    door: int = 0


class Extended(msgspec.Struct, frozen=True, gc=False):
    """Leases that were given a later end."""

    queue: str
    queue_id: int
    numbers: list[int]
    untils_ms: list[int]


class Released(msgspec.Struct, frozen=True, gc=False):
    """Deliveries that ended without an acknowledgement; each message is available again from its moment on."""

    queue: str
    queue_id: int
    numbers: list[int]
    dues_ms: list[int]
    tokens: list[Token]
    reason: Reason
    error: str = ""


class Ack(msgspec.Struct, frozen=True, gc=False):
    """Messages that are done.  `publishes` are follow-ups: all of it happens, or nothing.

    `dead`: the follow-up is the dead letter of the message.  `foreign`: uids of imported records, by position; their
    number is -1.  `delivered`: this entry also hands the messages out, to a client that cannot acknowledge.  `moved`:
    an operator moves them to the queue of the follow-up, or deletes them; those with a worker stay.
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


class Expired(msgspec.Struct, frozen=True, gc=False):
    """Messages whose time to live is over."""

    queue: str
    queue_id: int
    numbers: list[int]


class Claim(msgspec.Struct, frozen=True, gc=False):
    """What happens to the staged claims of a source (docs/internals/staging.md).

    STAGED names the messages of the epoch, whose tokens are numbered on from `first_sequence`.  SETTLED names those of
    all open epochs up to its own, and LAPSED those of its own, each with its token.  RENEWED names neither messages nor
    an epoch: it is for all epochs that are open.
    """

    queue: str
    queue_id: int
    action: ClaimAction
    source: str
    epoch: int = 0
    numbers: list[int] = []
    tokens: list[Token] = []  # of messages whose claim ends
    first_sequence: int = 0
    slices: int = 1
    until_ms: int = 0
    worker: int = 0
    door: int = 0


class Stash(msgspec.Struct, frozen=True, gc=False):
    """Messages of one attempt, to be published later or never: stored like an atomic publish, and hidden."""

    queue: str
    drafts: Sequence[Draft]
    stash: str
    part: int
    keep_ms: int  # from the moment of the entry
    door: int = 0
    worker: int = 0


class Unstash(msgspec.Struct, frozen=True, gc=False):
    """Stashes, each with the number of its messages, are published together, or dropped.

    `writer` and its `epoch` make publishing idempotent; otherwise they are empty.
    """

    queue: str
    action: UnstashAction
    stashes: list[tuple[str, int]]
    writer: str = ""
    epoch: int = 0


class CreateQueue(msgspec.Struct, frozen=True, gc=False):
    queue: str
    policies: Policies


class UpdateQueue(msgspec.Struct, frozen=True, gc=False):
    """`changes` names each policy that changes; None sets it back to its default."""

    queue: str
    changes: dict[str, object]


class DeleteQueue(msgspec.Struct, frozen=True, gc=False):
    queue: str


class PurgeQueue(msgspec.Struct, frozen=True, gc=False):
    queue: str


class PauseQueue(msgspec.Struct, frozen=True, gc=False):
    """This queue hands nothing out before a moment; 0 ends a pause, PAUSE_MS_MAX begins one without an end."""

    queue: str
    until_ms: int


class Requeued(msgspec.Struct, frozen=True, gc=False):
    """An operator wants delayed messages to be available now."""

    queue: str
    queue_id: int
    numbers: list[int]


class SetAside(msgspec.Struct, frozen=True, gc=False):
    """An earlier entry has crashed its queue again and again: no node is to apply it."""

    queue: str
    index: int
    reason: str


class Imported(msgspec.Struct, frozen=True, gc=False):
    """The files of version 1 are in the log now."""

    queue: str = ""


class Noop(msgspec.Struct, frozen=True, gc=False):
    """The first entry of a leader's term."""

    queue: str = ""


class Members(msgspec.Struct, frozen=True, gc=False):
    """Who belongs to the cluster from here on."""

    config: Config
    queue: str = ""


Entry = (
    Publish | Delivered | Extended | Released | Ack | Expired
    | CreateQueue | UpdateQueue | DeleteQueue | PurgeQueue | SetAside | Imported | Noop
    | Members
    | Claim | Stash | Unstash | PauseQueue | Requeued
)  # fmt: skip

Results = Sequence[int]  # for each item: a message number (> 0), or a Result


def lengthened(entry: Entry, behind_ms: int) -> Entry:
    """Return the entry with longer delays if the clock runs fast to catch up, so that they do not end early."""
    match entry:
        case Publish() | Stash() if any(draft.delay_ms for draft in entry.drafts):
            return replace(entry, drafts=[_lengthened(draft, behind_ms) for draft in entry.drafts])
        case Ack(publishes=[_, *_]):
            return replace(entry, publishes=[lengthened(publish, behind_ms) for publish in entry.publishes])
        case _:
            return entry


def _lengthened(draft: Draft, behind_ms: int) -> Draft:
    return replace(draft, delay_ms=span_on(behind_ms, draft.delay_ms)) if draft.delay_ms else draft
