"""What a queue or the log answers: outcomes, deliveries, refusals.  Plain data; each door has words of its own."""

from collections.abc import Sequence
from itertools import compress
from typing import Protocol

import msgspec

from wakeq.protocol.log.entries import Draft, Results, Token


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Why something was not done: a stable code, a sentence, and the leader's addresses if another node leads."""

    code: str
    detail: str
    leader: str = ""  # for the worker protocol over TCP
    leader_http: str = ""  # and over WebSocket


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What became of an entry in one queue."""

    queue: str
    queue_id: int
    results: Results
    follows: Sequence["Outcome"] = ()


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


class Leased(Protocol):
    """What a queue knows a delivery by."""

    @property
    def queue_id(self) -> int: ...

    @property
    def number(self) -> int: ...

    @property
    def token(self) -> Token: ...


class RemovedOnDelivery(msgspec.Struct, frozen=True, gc=False):
    """Messages that were removed by being delivered, so that nobody needs their uids or tokens."""

    numbers: list[int]
    drafts: list[Draft]

    def only(self, done: Sequence[bool]) -> "RemovedOnDelivery":
        """Return only those whose flag is set."""
        return RemovedOnDelivery(list(compress(self.numbers, done)), list(compress(self.drafts, done)))


class Seen(msgspec.Struct, frozen=True, gc=False):
    """Messages that were looked at, and where the next look goes on (0: there is no more)."""

    uids: list[str]
    drafts: list[Draft]
    earlier: list[int]  # deliveries
    published_ms: list[int]
    states: list[str]
    next: int
    last: int = 0  # the highest number that the queue ever gave, of a PeekBlock
    term: int = 0  # in which the leader has looked
