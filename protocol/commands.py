"""The vocabulary of the log: what can happen to queues and messages, as plain data.

An entry says what was asked and carries everything that `apply` needs, so that every node makes the same of it.
Who asked is not in here.  Numbers are a queue's running message numbers, never positions in memory.
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
PAUSE_MS_MAX = (1 << 62) - 1  # the moment of a pause without an end
ANY_TOKEN: Token = (0, 0)  # the original protocol's acknowledgement, which proves nothing


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
    """What becomes of the claims of a source; the number on disk.  Never renumber."""

    STAGED = 1
    RENEWED = 2
    SETTLED = 3
    LAPSED = 4


class UnstashAction(IntEnum):
    """What becomes of stashes; the number on disk.  Never renumber."""

    PUBLISHED = 1
    DROPPED = 2
    LAPSED = 3


class Reason(IntEnum):
    """Why a delivery ended without an acknowledgement; the number on disk.  Never renumber."""

    NONE = 0
    NACK = 1
    TIMEOUT = 2
    DISCONNECT = 3
    RETURNED = 4  # given back by a worker that did not fail: no failure
    REJECTED = 5  # no worker should try it again: a dead letter, so never in Released


class Result(IntEnum):
    """What became of one item of an entry, where it is not a message number."""

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
    REPEATED = -13  # stored before, under the same id or number in its session: never an answer, only a note
    EPOCH_EXPIRED = -14
    STASH_EXPIRED = -15
    EPOCH_OLD = -16
    CANCELLED = -17  # acknowledged without ever having been out: never an answer, only a note


class Draft(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One message as its publisher asked for it.  Spans, not moments: the leader's stamp makes moments of them."""

    body: bytes
    priority: int = 0
    delay_ms: int = 0
    expires_ms: int = 0  # 0 = never
    timeout_ms: int = 0  # 0 = what the queue says
    headers: bytes = b""  # MessagePack map of strings, or nothing
    alias: str = ""  # the uid of an imported record


class Publish(msgspec.Struct, frozen=True, gc=False):
    """Messages for one queue, which is made if it does not exist.

    Each draft stands for itself unless `atomic`.  `id` makes the whole entry idempotent; with `session`,
    `ordinals` gives each draft (or the atomic whole) its number in that session.  With `must_exist` it makes no queue.
    """

    queue: str
    drafts: Sequence[Draft]
    atomic: bool = False
    id: str = ""
    session: str = ""
    ordinals: Sequence[int] = ()
    forced: bool = False  # dead letters and returned messages are not subject to policies
    door: int = 0
    worker: int = 0
    must_exist: bool = False
    oversized: bool = False  # bodies above the node's limit, and so left out: judged like any other, never stored
    alike: bool = False  # a list of drafts that differ in their bodies alone and have no headers, if somebody knows


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """Messages handed to a worker, each hidden until its moment.  Sequences run on from the first."""

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
    """Deliveries that ended without an acknowledgement; each message is available again at its moment."""

    queue: str
    queue_id: int
    numbers: list[int]
    dues_ms: list[int]
    tokens: list[Token]
    reason: Reason
    error: str = ""


class Ack(msgspec.Struct, frozen=True, gc=False):
    """Messages that are done with.  `publishes` are the follow-ups: all of it happens, or nothing.

    `dead` says that the follow-up is the dead letter of the message.  `foreign` are uids of imported records, by
    position; their number is -1.  `delivered` says that the messages are handed out by this entry too: whoever takes
    them cannot acknowledge.  `moved` says that an operator takes them away, to the queue of the follow-up or for ever:
    only what is not with a worker goes.
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
    """Messages that were kept as long as they were to be kept."""

    queue: str
    queue_id: int
    numbers: list[int]


class Claim(msgspec.Struct, frozen=True, gc=False):
    """What happens to the staged claims of a source (docs/internals/staging.md).

    STAGED names the messages of the epoch, handed out under sequences that run on from the first.  SETTLED names those
    of all open epochs up to its own, and LAPSED those of its own, with the tokens of their claims.  RENEWED names none,
    and no epoch: it is of all that are open.
    """

    queue: str
    queue_id: int
    action: ClaimAction
    source: str
    epoch: int = 0
    numbers: list[int] = []
    tokens: list[Token] = []  # of what ends; of what is staged the log gives term and sequence
    first_sequence: int = 0
    slices: int = 1
    until_ms: int = 0
    worker: int = 0
    door: int = 0


class Stash(msgspec.Struct, frozen=True, gc=False):
    """A part of what one attempt has put aside: stored like an atomic publish, and hidden."""

    queue: str
    drafts: Sequence[Draft]
    stash: str
    part: int
    keep_ms: int  # for so long from the moment of the entry
    door: int = 0
    worker: int = 0


class Unstash(msgspec.Struct, frozen=True, gc=False):
    """Stashes, each with the number of its messages, become available together, or go.

    `epoch` of `writer` makes it idempotent; only PUBLISHED has them.
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
    """Nothing is handed out of this queue before a moment; 0 ends the pause, PAUSE_MS_MAX is until that is said."""

    queue: str
    until_ms: int


class Requeued(msgspec.Struct, frozen=True, gc=False):
    """An operator wants delayed messages to be handed out now."""

    queue: str
    queue_id: int
    numbers: list[int]


class SetAside(msgspec.Struct, frozen=True, gc=False):
    """An earlier entry crashed its queue again and again: nobody applies it any more."""

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
    """Return the entry with delays that take as long as they were to take by a clock that is so far behind."""
    match entry:
        case Publish() | Stash() if any(draft.delay_ms for draft in entry.drafts):
            return replace(entry, drafts=[_lengthened(draft, behind_ms) for draft in entry.drafts])
        case Ack(publishes=[_, *_]):
            return replace(entry, publishes=[lengthened(publish, behind_ms) for publish in entry.publishes])
        case _:
            return entry


def _lengthened(draft: Draft, behind_ms: int) -> Draft:
    return replace(draft, delay_ms=span_on(behind_ms, draft.delay_ms)) if draft.delay_ms else draft
