"""What clients that stage say to a queue (docs/internals/staging.md).  Plain data.

Stage, Renew, Settle -> a queue, which proposes;  ReadSlice, Leaf -> a queue, which only looks --> Seen
"""

import msgspec

from wakeq.actors.mail import Asker
from wakeq.protocol.log.entries import Draft


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
    term: int = 0  # in which the leader has looked


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
