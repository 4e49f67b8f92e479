"""What is asked of a queue beside publishing, acknowledging and fetching.  Plain data; the queue decides.

Sessions, and the processes of MoniQue, file orders into the lane of the queue; operators send them as mail.  `asker`
gets exactly one answer: an Outcome, a Refusal, or what was asked for.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from wakeq.protocol.errors import Refused
from wakeq.protocol.log.entries import Entry, Reason, Token, Unstash


class Ticket(Protocol):
    """What the outcome of an entry is told to: where an answer goes, or what stands for several of these."""

    def tell(self, answer: Any, /) -> None:
        """Give the answer; all but the first are dropped."""


class ReplyTo(Ticket, Protocol):
    """Where an answer goes: a slot of a connection, or an actor that has asked by mail."""

    @property
    def session(self) -> Any:
        """The actor that hears the answer."""


class ReplyAt(ReplyTo, Protocol):
    """Where the answers about several messages go."""

    @property
    def place(self) -> Any:
        """A place for each message that the next answer is about."""

    def at(self, places: Any, /) -> "ReplyAt":
        """Return the same for some of the messages."""


class Nobody:
    """Where an answer goes that nobody wants to know."""

    session = None

    def tell(self, answer: object, /) -> None:
        """Drop it."""


NOBODY: Final = Nobody()


class Fetch(msgspec.Struct, frozen=True, gc=False):
    """Deliver up to `count` messages; the first within `wait_ms`, or at once.

    The answer is a list of Deliveries, or None.  If fetching `removes`, messages are acknowledged by being delivered:
    the answer is RemovedOnDelivery, once that is committed.  A queue that does not exist is empty to whoever
    `is_subscribed`; to everybody else it is unknown.
    """

    asker: ReplyTo
    queue: str
    count: int
    wait_ms: int = 0
    removes: bool = False
    is_subscribed: bool = False


class Propose(msgspec.Struct, frozen=True, gc=False):
    """Put this entry into the log, behind what was filed before it; `asker` gets its outcome."""

    entry: Entry
    asker: ReplyTo


class Acknowledge(msgspec.Struct, frozen=True, gc=False):
    """These messages of one incarnation are done, for somebody who knows them by their numbers and wants no answer."""

    queue: str
    queue_id: int
    numbers: list[int]
    tokens: list[Token]
    worker: int = 0
    door: int = 0


class Touch(msgspec.Struct, frozen=True, gc=False):
    asker: ReplyTo
    queue: str
    uids: list[str]
    tokens: list[Token]
    timeout_ms: int


class Nack(msgspec.Struct, frozen=True, gc=False):
    asker: ReplyAt
    queue: str
    uids: list[str]
    tokens: list[Token]
    delay_ms: int | None
    error: str = ""
    reason: Reason = Reason.NACK  # or RETURNED, or REJECTED, or EXHAUSTED


class EndWait(msgspec.Struct, frozen=True, gc=False):
    """The client has sent another command: its fetch that waits in this slot ends with nothing."""

    asker: ReplyTo
    queue: str


class Peek(msgspec.Struct, frozen=True, gc=False):
    """Show the first messages in a state, `count` of them at most."""

    asker: ReplyTo
    queue: str
    state: str
    count: int


class Stats(msgspec.Struct, frozen=True, gc=False):
    """The figures of one queue, or with `all_queues` of many.

    Of many: those whose name begins with `prefix` and that `sees` allows, sorted by name, at most `limit` (0: all) that
    come after the name `after`.  `brief` asks for the numbers only, as Gauges: a tenth of the work.
    """

    asker: ReplyTo
    queue: str
    all_queues: bool = False
    prefix: str = ""
    after: str | None = None
    limit: int = 0
    brief: bool = False
    sees: Callable[[str], bool] | None = None


class PeekBlock(msgspec.Struct, frozen=True, gc=False):
    """Look at many messages in the order of publication: up to `count` behind number `after`, and none above `last`."""

    asker: ReplyTo
    queue: str
    after: int
    last: int
    count: int


class Stage(msgspec.Struct, frozen=True, gc=False):
    """Claim up to `count` messages for an epoch, in slices, for so long."""

    asker: ReplyTo
    queue: str
    source: str
    epoch: int
    count: int
    slices: int
    keep_ms: int
    worker: int = 0
    door: int = 0


class ReadSlice(msgspec.Struct, frozen=True, gc=False):
    """Look at the messages of a slice from `offset` on; nothing changes, but that the queue notes who reads."""

    asker: ReplyTo
    queue: str
    source: str
    epoch: int
    slice: int
    offset: int
    count: int
    reader: str = ""
    batch: int = 0
    run: str = ""
    is_noted: bool = False  # that they read it, or it cannot be


class PublishRead(msgspec.Struct, frozen=True, gc=False):
    """Publish what a reader made of what it has read; `denial` says why the client may not have read from a queue."""

    asker: ReplyTo
    entry: Unstash
    denial: Callable[[str], Refused | None]


class Renew(msgspec.Struct, frozen=True, gc=False):
    """Keep the open epochs of a source for so long from now."""

    asker: ReplyTo
    queue: str
    source: str
    keep_ms: int


class Release(msgspec.Struct, frozen=True, gc=False):
    """End all open epochs of a source now; their messages are ready again."""

    asker: ReplyTo
    queue: str
    source: str


class Settle(msgspec.Struct, frozen=True, gc=False):
    """Acknowledge the open epochs of a source up to one."""

    asker: ReplyTo
    queue: str
    source: str
    epoch: int
