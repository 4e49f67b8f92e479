"""What a client may say in the worker protocol: one Struct for each command.

A JSON object with `cmd` becomes one of these, and one of these becomes such an object.  Types and ranges are
stated here and nowhere else; what they cannot state is in checks.py.  Unknown fields are refused here,
which keeps nested rubbish out of the fast path; checks.py takes them away and tries again.
Must never hold a default that hides whether a client gave a value that a policy could replace.
"""

from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from wakeq.protocol.access import TOKEN_CHARS_MAX

SECONDS_MAX = 31_536_000  # 365 days (spec, "Parameters of PUB"); the timeout has no stated maximum: the same
EXPIRES_S_MAX = 10 * SECONDS_MAX
TIMEOUT_S_MIN = 5
WAIT_S_MAX = 3600
COUNT_MAX = 1000
ADDRESS_CHARS_MAX = 300
PEEK_COUNT_MAX = 100
ID_CHARS_MAX = 120  # four bytes each at most: a key of the state store has room for 500
SESSION_CHARS_MAX = 64
UID_CHARS_MAX = 255
UIDS_MAX = 10_000
MESSAGES_MAX = 10_000  # in one batch
FOLLOWUPS_MAX = 1000
HEADERS_MAX = 64
HEADERS_BYTES_MAX = 16 * 1024
ERROR_CHARS_MAX = 1000  # of a NACK's error text; what is longer is cut
CMD_ID_CHARS_MAX = 1024
BLOCK_ROWS_MAX = 100_000  # in one block, in one epoch
SLICES_MAX = 1_000
STASHES_MAX = 10_000  # in one UNSTASH
STASH_PARTS_MAX = 10_000  # of one stash: each is a row in memory until it is published
KEEP_S_MAX = 86_400  # of a claim or a stash that nobody renews
PID_MAX = 2**32 - 1
CONCURRENCY_MAX = 1_000_000
IDENTITY_CHARS_MAX = 255  # of each text with which a client says who it is
VERSIONS_MAX = 32
TASKS_MAX = 1_000
SCHEDULES_MAX = 1_000

# Seconds, perhaps with a fraction: a whole number stays one, for brokers and clients that know no other.
WholeTimeout: TypeAlias = Annotated[int, Meta(ge=TIMEOUT_S_MIN, le=SECONDS_MAX)]
Timeout: TypeAlias = WholeTimeout | Annotated[float, Meta(ge=TIMEOUT_S_MIN, le=SECONDS_MAX)]
Delay: TypeAlias = Annotated[int, Meta(ge=0, le=SECONDS_MAX)] | Annotated[float, Meta(ge=0, le=SECONDS_MAX)]
Expires: TypeAlias = Annotated[int, Meta(ge=0, le=EXPIRES_S_MAX)] | Annotated[float, Meta(ge=0, le=EXPIRES_S_MAX)]
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Size: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Positive: TypeAlias = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=COUNT_MAX)]
Uid: TypeAlias = Annotated[str, Meta(min_length=1, max_length=UID_CHARS_MAX)]
Lease: TypeAlias = Annotated[str, Meta(min_length=1, max_length=UID_CHARS_MAX)]
Rows: TypeAlias = Annotated[int, Meta(ge=1, le=BLOCK_ROWS_MAX)]
Keep: TypeAlias = (
    Annotated[int, Meta(ge=TIMEOUT_S_MIN, le=KEEP_S_MAX)] | Annotated[float, Meta(ge=TIMEOUT_S_MIN, le=KEEP_S_MAX)]
)
SeenColumn: TypeAlias = Literal["uid", "body", "headers", "priority", "deliveries", "published_ms", "state"]
StagedName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=ID_CHARS_MAX)]  # of a source, a stash, a writer
Part: TypeAlias = Annotated[int, Meta(ge=0, lt=STASH_PARTS_MAX)]  # of a stash
IdentityText: TypeAlias = Annotated[str, Meta(max_length=IDENTITY_CHARS_MAX)]
Headers: TypeAlias = Annotated[dict[str, str], Meta(max_length=HEADERS_MAX)]
CommandId: TypeAlias = (
    Annotated[str, Meta(max_length=CMD_ID_CHARS_MAX)]
    | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
    | float
    | bool
    | UnsetType
    | None
)


class Item(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """One message of a batch.  What it leaves out is taken from the PUB around it."""

    message: str | None = None
    msg: str | None = None
    timeout: Timeout | None = None
    delay: Delay | None = None
    expires: Expires | None = None
    priority: Int64 | None = None
    headers: Headers | None = None
    enc: Literal["b64"] | None = None


class Followup(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """One message that an ACK publishes in the same log entry."""

    qname: str
    message: str | None = None
    msg: str | None = None
    timeout: Timeout | None = None
    delay: Delay | None = None
    expires: Expires | None = None
    priority: Int64 | None = None
    headers: Headers | None = None
    enc: Literal["b64"] | None = None


class Retry(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """How long a message that failed stays away: seconds, and the part of them that is drawn."""

    backoff: Literal["fixed", "exponential"] = "fixed"
    base: Annotated[float, Meta(ge=0, le=SECONDS_MAX)] = 0.0
    max: Annotated[float, Meta(ge=0, le=SECONDS_MAX)] = 3600.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.0


class CommandBase(
    Struct,
    tag_field="cmd",
    frozen=True,
    gc=False,
    omit_defaults=True,
    kw_only=True,
    forbid_unknown_fields=True,
):
    """What every command has.  `cmd_id` is echoed as it came; UNSET: the command had none."""

    cmd_id: CommandId = UNSET


class Pub(CommandBase, tag="PUB", frozen=True):
    """Publish one message (`message`, or `msg` of the real clients; the first wins), or a batch."""

    qname: str
    message: str | None = None
    msg: str | None = None
    timeout: Timeout | None = None
    delay: Delay = 0
    expires: Expires = 0  # 0: never
    priority: Int64 = 0
    id: Annotated[str, Meta(min_length=1, max_length=ID_CHARS_MAX)] | None = None
    n: Positive | None = None
    headers: Headers | None = None
    enc: Literal["b64"] | None = None
    messages: Annotated[list[str | Item], Meta(min_length=1, max_length=MESSAGES_MAX)] | None = None


class Fet(CommandBase, tag="FET", frozen=True):
    """Fetch one message (answered by `msg`), or up to `count` (answered by `msgs`)."""

    qname: str
    count: Count | None = None
    wait: Annotated[float, Meta(ge=0, le=WAIT_S_MAX)] = 0.0
    timeout: Timeout | None = None


class Settle(CommandBase, frozen=True):
    """What ACK, NACK and TOUCH have: which messages, and the leases they were handed out with."""

    qname: str
    uid: Uid | None = None
    lease: Lease | None = None
    uids: Annotated[list[Uid], Meta(min_length=1, max_length=UIDS_MAX)] | None = None
    leases: Annotated[list[Lease | None], Meta(min_length=1, max_length=UIDS_MAX)] | None = None


class Ack(Settle, tag="ACK", frozen=True):
    publish: Annotated[list[Followup], Meta(min_length=1, max_length=FOLLOWUPS_MAX)] | None = None


class Del(Ack, tag="DEL", frozen=True):
    """The same as ACK, and an Ack for `match` and `isinstance`."""


class Nack(Settle, tag="NACK", frozen=True):
    """Give messages back: a failure each, unless `failed` is False; for good, to the dead letters, with `dead`."""

    delay: Delay | None = None
    error: str | None = None
    failed: bool = True
    dead: bool = False
    exhausted: bool = False


class Touch(Settle, tag="TOUCH", frozen=True):
    timeout: Timeout | None = None


class Sub(CommandBase, tag="SUB", frozen=True):
    qname: str


class Uns(CommandBase, tag="UNS", frozen=True):
    qname: str


class Islp(CommandBase, tag="ISLP", frozen=True):
    """Sleep until `awk`.  With `wake` "ready" only when there is a message for it, else whenever one comes."""

    qname: str
    wake: Literal["all", "ready"] = "all"


class Ping(CommandBase, tag="PING", frozen=True):
    pass


class Recurring(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """What a client publishes again and again: by a cron text (in a time zone), or every so many seconds."""

    name: IdentityText
    cron: IdentityText | None = None
    zone: IdentityText | None = None
    every: Annotated[int, Meta(ge=1, le=SECONDS_MAX)] | None = None
    next: Annotated[datetime, Meta(tz=True)] | None = None


class Hello(CommandBase, tag="HELLO", frozen=True):
    """Log in, name the session, and say who the client is (identity.py)."""

    session: Annotated[str, Meta(min_length=1, max_length=SESSION_CHARS_MAX)] | None = None
    token: Annotated[str, Meta(min_length=1, max_length=TOKEN_CHARS_MAX)] | None = None
    host: IdentityText | None = None
    pid: Annotated[int, Meta(ge=0, le=PID_MAX)] | None = None
    name: IdentityText | None = None
    versions: Annotated[dict[IdentityText, IdentityText], Meta(max_length=VERSIONS_MAX)] | None = None
    concurrency: Annotated[int, Meta(ge=1, le=CONCURRENCY_MAX)] | None = None
    tasks: Annotated[list[IdentityText], Meta(max_length=TASKS_MAX)] | None = None
    schedules: Annotated[list[Recurring], Meta(max_length=SCHEDULES_MAX)] | None = None


class Policies(CommandBase, frozen=True):
    """The policies of a queue.  UNSET: not named; None: the default."""

    qname: str
    max_size: Size | UnsetType | None = UNSET
    max_bytes: Size | UnsetType | None = UNSET
    max_message_size: Positive | UnsetType | None = UNSET
    priority_min: Int64 | UnsetType | None = UNSET
    priority_max: Int64 | UnsetType | None = UNSET
    structure: Literal["H4", "QA"] | UnsetType | None = UNSET
    timeout: WholeTimeout | UnsetType | None = UNSET
    max_deliveries: Size | UnsetType | None = UNSET
    dead_letter: str | UnsetType | None = UNSET
    retry: Retry | UnsetType | None = UNSET
    wake: Literal["all", "ready", "sleeper"] | UnsetType | None = UNSET
    lease: Literal["fast", "strict"] | UnsetType | None = UNSET
    on_disconnect: Literal["keep", "release"] | UnsetType | None = UNSET


class Create(Policies, tag="CREATE", frozen=True):
    pass


class Update(Policies, tag="UPDATE", frozen=True):
    pass


class Drop(CommandBase, tag="DROP", frozen=True):
    qname: str


class List(CommandBase, tag="LIST", frozen=True):
    prefix: str = ""


class Stats(CommandBase, tag="STATS", frozen=True):
    qname: str | None = None  # None: the whole node


class Peek(CommandBase, tag="PEEK", frozen=True):
    qname: str
    count: Annotated[int, Meta(ge=1, le=PEEK_COUNT_MAX)] = 10
    state: Literal["ready", "delayed", "leased", "any"] = "ready"


class Purge(CommandBase, tag="PURGE", frozen=True):
    qname: str


class Block(CommandBase, frozen=True, kw_only=True):
    """Messages as columns (blocks.py).  `block` is base64 in JSON, and raw behind it in a frame."""

    rows: Rows | None = None
    columns: list[str] = []
    block: bytes = b""


class PubBlock(Block, tag="PUBB", frozen=True, kw_only=True):
    """Publish all messages of a block or none; what it has no column for is the same for all of them."""

    qname: str
    timeout: Timeout | None = None
    delay: Delay = 0
    expires: Expires = 0
    priority: Int64 = 0
    id: Annotated[str, Meta(min_length=1, max_length=ID_CHARS_MAX)] | None = None
    n: Positive | None = None


class FetBlock(CommandBase, tag="FETB", frozen=True):
    """Fetch up to `count` messages as a block."""

    qname: str
    count: Rows = COUNT_MAX


class PeekBlock(CommandBase, tag="PEEKB", frozen=True):
    """Look at messages in the order of publication: behind number `after`, up to number `last` (0: any).

    `columns` are those of the block that the client wants; without it, it gets all of them.
    """

    qname: str
    after: Size = 0
    last: Size = 0
    count: Rows = COUNT_MAX
    columns: Annotated[list[SeenColumn], Meta(min_length=1)] | None = None


class Stage(CommandBase, tag="STAGE", frozen=True):
    """Claim up to `count` messages under (source, epoch), in slices."""

    qname: str
    source: StagedName
    epoch: Positive
    count: Rows = COUNT_MAX
    slices: Annotated[int, Meta(ge=1, le=SLICES_MAX)] = 1
    timeout: Keep = 60


class Slice(CommandBase, tag="SLICE", frozen=True):
    """Look at the messages of a slice, from `offset` on; as a block, or as JSON.

    `columns` are those of a block that the client wants; `reader`, `batch` and `run` say who reads the epoch.
    """

    qname: str
    source: StagedName
    epoch: Positive
    slice: Size = 0
    offset: Size = 0
    count: Rows = COUNT_MAX
    raw: bool = False
    columns: Annotated[list[SeenColumn], Meta(min_length=1)] | None = None
    reader: StagedName | None = None
    batch: Positive | None = None
    run: StagedName | None = None


class Renew(CommandBase, tag="RENEW", frozen=True):
    """Keep the open epochs of a source for `timeout` seconds from now."""

    qname: str
    source: StagedName
    timeout: Keep = 60


class SettleEpochs(CommandBase, tag="SETTLE", frozen=True):
    """Acknowledge all open epochs of a source up to this one; epoch 0 asks which one to stage next."""

    qname: str
    source: StagedName
    epoch: Size


class Release(CommandBase, tag="RELEASE", frozen=True):
    """End all open epochs of a source: their messages are ready again."""

    qname: str
    source: StagedName


class Stash(PubBlock, tag="STASH", frozen=True, kw_only=True):
    """Put messages aside under a name, part by part, for `keep` seconds; as a block, or as the `messages` of a PUB.

    They are for an epoch of a writer, or (0) for the writer as a job.
    """

    stash: StagedName
    part: Part = 0
    keep: Keep = 3600
    messages: Annotated[list[str | Item], Meta(min_length=1, max_length=MESSAGES_MAX)] | None = None
    writer: StagedName | None = None
    epoch: Size = 0


class Unstash(CommandBase, tag="UNSTASH", frozen=True):
    """Publish stashes, each named with its size, as one epoch of a writer, or as a job; without a writer, drop them.

    With `drop`, drop all that the writer has stashed up to this epoch, or as a job.  With `reader`, the messages that
    this reader has read in the batch of this epoch do not come back from this step on.
    """

    qname: str
    stashes: Annotated[list[tuple[StagedName, Size]], Meta(max_length=STASHES_MAX)]
    writer: StagedName | None = None
    epoch: Size = 0
    drop: bool = False
    reader: StagedName | None = None
    run: StagedName | None = None
    id: StagedName | None = None


class Cluster(CommandBase, tag="CLUSTER", frozen=True):
    """What an operator asks of the cluster; `status` every node answers."""

    do: Literal["status", "transfer", "add", "remove", "snapshot"] = "status"
    node: Annotated[int, Meta(ge=0, le=65_535)] | None = None
    address: Annotated[str, Meta(max_length=ADDRESS_CHARS_MAX)] = ""


Command: TypeAlias = (
    Pub | Fet | Ack | Del | Nack | Touch | Sub | Uns | Islp | Ping | Hello
    | Create | Update | Drop | List | Stats | Peek | Purge | Cluster
    | PubBlock | FetBlock | PeekBlock | Stage | Slice | Renew | SettleEpochs | Release | Stash | Unstash
)  # fmt: skip

COMMANDS: dict[str, type[CommandBase]] = {
    "PUB": Pub, "FET": Fet, "ACK": Ack, "DEL": Del, "NACK": Nack, "TOUCH": Touch, "SUB": Sub, "UNS": Uns,
    "ISLP": Islp, "PING": Ping, "HELLO": Hello, "CREATE": Create, "UPDATE": Update, "DROP": Drop,
    "LIST": List, "STATS": Stats, "PEEK": Peek, "PURGE": Purge, "CLUSTER": Cluster,
    "PUBB": PubBlock, "FETB": FetBlock, "PEEKB": PeekBlock, "STAGE": Stage, "SLICE": Slice, "RENEW": Renew,
    "SETTLE": SettleEpochs, "RELEASE": Release, "STASH": Stash, "UNSTASH": Unstash,
}  # fmt: skip


def policies_of(command: Policies) -> dict[str, Any]:
    """Return the policies that the command names; None stands for the default."""
    fields = [name for name in command.__struct_fields__ if name not in ("qname", "cmd_id")]
    return {name: value for name in fields if (value := getattr(command, name)) is not UNSET}
