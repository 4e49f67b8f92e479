"""What the broker says in the worker protocol: one Struct for each reply, and the few helpers that make them.

Goes out as one JSON object with `cmd` first; fields that say nothing (their default) are left out,
`error_count` never is.  The client reads the same Structs and ignores what it does not know.
Must never be given a body that did not go through `text_of`: it is bytes and may be no UTF-8 at all.
"""

from base64 import b64decode, b64encode
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct, field

from wakeq.protocol.errors import WakeqError
from wakeq.protocol.wire.worker.commands import CommandId


class ReplyBase(Struct, tag_field="cmd", frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """What every reply may have: the `cmd_id` of its command, as it came."""

    cmd_id: CommandId = UNSET


class Ok(ReplyBase, tag="ok", frozen=True):
    """Published: `uid`, or `uids` of a batch."""

    qname: str | None = None
    uid: str | None = None
    uids: list[str] | None = None


class Oksub(ReplyBase, tag="oksub", frozen=True):
    qname: str


class Okuns(ReplyBase, tag="okuns", frozen=True):
    qname: str


class Okack(ReplyBase, tag="okack", frozen=True):
    """Acknowledged.  `known` is False if there was no such message; `unknown` names those of a batch."""

    uid: str | None = None
    uids: list[str] | None = None
    qname: str = field(default="\0")  # no queue has this name: so the field is always written
    known: bool = True
    unknown: list[str] | None = None
    published: list[str] | None = None


class Oknack(ReplyBase, tag="oknack", frozen=True):
    uid: str | None = None
    uids: list[str] | None = None
    qname: str = field(default="\0")
    known: bool = True
    unknown: list[str] | None = None


class Oktouch(ReplyBase, tag="oktouch", frozen=True):
    """The leases are longer now."""

    uid: str | None = None
    uids: list[str] | None = None
    qname: str = field(default="\0")
    known: bool = True
    unknown: list[str] | None = None


class Okslp(ReplyBase, tag="okslp", frozen=True):
    qname: str


class Nomsg(ReplyBase, tag="nomsg", frozen=True):
    qname: str


class Msg(ReplyBase, tag="msg", frozen=True):
    """One message.  `error_count` is always there: earlier deliveries that were not acknowledged.

    `failures` is how many of them failed, if it is not all of them.
    """

    qname: str
    uid: str
    error_count: int
    msg: str
    enc: Literal["b64"] | None = None
    lease: str | None = None
    priority: int = 0
    headers: dict[str, str] | None = None
    failures: int | None = None


class Delivery(Struct, frozen=True, gc=False, omit_defaults=True):
    """One message among several."""

    uid: str
    error_count: int
    msg: str
    enc: Literal["b64"] | None = None
    lease: str | None = None
    priority: int = 0
    headers: dict[str, str] | None = None
    failures: int | None = None


class Msgs(ReplyBase, tag="msgs", frozen=True):
    qname: str
    messages: list[Delivery]


class Nok(ReplyBase, tag="nok", frozen=True):
    """Refused: `err` is a stable code, `detail` is for people, `leader` is where to go instead.

    `leader` is a worker port, `leader_http` is for whoever came by WebSocket.
    """

    err: str
    detail: str | None = None
    leader: str | None = None
    leader_http: str | None = None
    uids: list[str] | None = None  # of many: those that were done all the same
    unknown: list[str] | None = None
    stale: list[str] | None = None


class Awk(ReplyBase, tag="awk", frozen=True):
    qname: str


class Pong(ReplyBase, tag="pong", frozen=True):
    pass


class HelloReply(ReplyBase, tag="hello", frozen=True):
    version: str
    limits: dict[str, Any] = {}
    session: str | None = None


class Queues(ReplyBase, tag="queues", frozen=True):
    queues: list[dict[str, Any]]


class StatsReply(ReplyBase, tag="stats", frozen=True):
    stats: dict[str, Any]
    qname: str | None = None


class Peeked(ReplyBase, tag="peeked", frozen=True):
    qname: str
    messages: list[dict[str, Any]]


class Purged(ReplyBase, tag="purged", frozen=True):
    qname: str
    count: int


class Okcreate(ReplyBase, tag="okcreate", frozen=True):
    qname: str


class Okupdate(ReplyBase, tag="okupdate", frozen=True):
    qname: str


class Okdrop(ReplyBase, tag="okdrop", frozen=True):
    qname: str


class Block(ReplyBase, tag="block", frozen=True):
    """Messages as columns.  `next` is where the next look goes on, 0 at the end; `last` the highest number so far.

    `term` makes leases of the column `sequence`: "term-sequence".
    """

    qname: str
    rows: int
    columns: list[str]
    block: bytes = b""
    next: int = 0
    last: int = 0
    term: int = 0


class Okrows(ReplyBase, tag="okrows", frozen=True):
    """A block was published (`uid` is that of the first message, the others follow), or a stash stored or published."""

    qname: str
    rows: int
    uid: str | None = None
    epoch: int | None = None  # the last one that the writer of stashes published


class Okstage(ReplyBase, tag="okstage", frozen=True):
    """The sizes of the slices."""

    qname: str
    epoch: int
    sizes: list[int]


class Slice(ReplyBase, tag="slice", frozen=True):
    """Messages of a slice, as JSON."""

    qname: str
    messages: list[Delivery]
    next: int = 0


class Okrenew(ReplyBase, tag="okrenew", frozen=True):
    qname: str
    epochs: int  # that are open


class Oksettle(ReplyBase, tag="oksettle", frozen=True):
    qname: str
    count: int  # messages that were acknowledged
    next: int | None = None  # in answer to epoch 0: the first epoch that is open, else the one to stage next


class Okrelease(ReplyBase, tag="okrelease", frozen=True):
    qname: str
    count: int  # messages that are ready again


class Framed:
    """A reply whose block is to be sent raw, in a frame."""

    __slots__ = ("reply",)

    def __init__(self, reply: Block) -> None:
        self.reply = reply


class ClusterReply(ReplyBase, tag="cluster", frozen=True):
    cluster: dict[str, Any]


Reply: TypeAlias = (
    Ok | Oksub | Okuns | Okack | Oknack | Oktouch | Okslp | Nomsg | Msg | Msgs | Nok | Awk | Pong
    | HelloReply | Queues | StatsReply | Peeked | Purged | Okcreate | Okupdate | Okdrop
    | Block | Okrows | Okstage | Slice | Okrenew | Oksettle | Okrelease | ClusterReply
)  # fmt: skip


def text_of(body: bytes) -> tuple[str, Literal["b64"] | None]:
    """Return a body as `msg` and `enc`: text as it is, anything that is not UTF-8 as base64."""
    try:
        return body.decode(), None
    except UnicodeDecodeError:
        return b64encode(body).decode(), "b64"


def bytes_of(reply: Msg | Delivery) -> bytes:
    """Return the body of a delivered message."""
    return reply.msg.encode() if reply.enc is None else b64decode(reply.msg)


def nok(error: WakeqError, cmd_id: CommandId = UNSET) -> Nok:
    """Return the reply to a command that was refused."""
    leader: str | None = getattr(error, "leader", None)
    return Nok(err=error.code, detail=str(error) or None, leader=leader, cmd_id=cmd_id)
