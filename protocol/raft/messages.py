"""The messages between nodes, and the requests of the core to its driver.  Plain data.

Every message names its sender's disk and incarnation, so that messages of an emptied disk or of an earlier
incarnation are recognised.  Payloads are never in here: an Append names the entries, and the driver sends their bytes
beside it.  No message carries a reading of a node's own clocks.  Heartbeats and granted votes carry the cluster clock:
the driver fills it in when they leave, and the core decides nothing by it.
"""

from typing import Annotated, Any, Final

import msgspec

from wakeq.protocol.raft.membership import Config

NUMBER_END: Final = 1 << 48  # above any term, index, round or incarnation: at a million a second it takes nine years
DISK_MAX: Final = (1 << 63) - 1
DiskId = Annotated[int, msgspec.Meta(ge=1, le=DISK_MAX)]
Number = Annotated[int, msgspec.Meta(ge=0, lt=NUMBER_END)]
Told = tuple[tuple[DiskId, Number], ...]  # (disk, last committed entry that it has acknowledged)
Runs = tuple[tuple[Number, Number], ...]  # (first index, term) of each run of entries of one term, in order


class HardState(msgspec.Struct, frozen=True):
    """The state that must be on disk before a message that rests on it leaves this node (Figure 2)."""

    term: int
    vote: int | None


class Message(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The fields of all messages.  `term` is the sender's; in a pre-vote it is the term of the election to come."""

    sender: int
    receiver: int
    disk_id: int  # of the sender
    incarnation: Number  # of the sender; grows with each of its starts
    term: Number


class RequestVote(Message, frozen=True, gc=False, array_like=True, tag=1):
    """RequestVote RPC (Figure 2); `pre` only asks whether the vote would be granted (thesis 9.6).

    `forced` is set after a transfer of leadership: the leader itself asked for this election.
    """

    last_index: Number
    last_term: Number
    pre: bool = False
    forced: bool = False
    acknowledged: Told = ()


class VoteAnswer(Message, frozen=True, gc=False, array_like=True, tag=2):
    """`term` is the requested term if the vote is granted, otherwise the voter's own."""

    granted: bool
    pre: bool = False
    clock_ms: Number = 0  # the voter's cluster clock; 0: not told
    has_heard: bool = False  # whether a leader has told the voter that clock since its start
    acknowledged: Told = ()


class Append(Message, frozen=True, gc=False, array_like=True, tag=3):
    """AppendEntries RPC (Figure 2): the entries prev_index+1 .. last_index, perhaps none.

    `runs` are their terms, and `configs` the memberships among them, by index.  `commit` is all that the leader has
    committed, perhaps more than these entries.
    """

    prev_index: Number
    prev_term: Number
    last_index: Number
    runs: Runs
    commit: Number
    size_bytes: Number = 0  # of the payloads, approximately
    configs: tuple[tuple[Number, Config], ...] = ()
    acknowledged: Told = ()  # in a probe only: that is the first message to a node that returns


class AppendAnswer(Message, frozen=True, gc=False, array_like=True, tag=4):
    """`match`: up to here the log equals the leader's and is on disk.  Or `rejected`: the prev_index that differs.

    The hint is the first index of the term that the follower has there, with that term; behind the end of its log it is
    the next index, and term 0.
    """

    match: Number
    rejected: Number | None = None
    hint_index: Number = 0
    hint_term: Number = 0


class Heartbeat(Message, frozen=True, gc=False, array_like=True, tag=5):
    """The leader is alive.  Separate from Append, so that it never waits behind data; the answer repeats `round`."""

    round: Number
    commit: Number
    clock_ms: Number = 0  # the leader's cluster clock; 0: not told
    acknowledged: Told = ()


class HeartbeatAnswer(Message, frozen=True, gc=False, array_like=True, tag=6):
    round: Number


class SnapshotOffer(Message, frozen=True, gc=False, array_like=True, tag=7):
    """InstallSnapshot RPC (Figure 13) without its data, which the driver streams under the same number."""

    index: Number
    index_term: Number
    config: Config
    stream: int


class SnapshotRefused(Message, frozen=True, gc=False, array_like=True, tag=8):
    """The stream ended before the image was whole."""

    stream: int


class TimeoutNow(Message, frozen=True, gc=False, array_like=True, tag=9):
    """The receiver should campaign at once (thesis 3.10)."""


class Disowned(Message, frozen=True, gc=False, array_like=True, tag=10):
    """The receiver may not vote: its log lacks acknowledged entries, or its disk is not the one that joined.

    With `removed_by` the message says instead that this committed entry removed the receiver from the cluster.
    """

    disowned: int  # the disk that this is about, because others are not concerned; 0 after a removal
    removed_by: Number = 0


class Transfer(Message, frozen=True, gc=False, array_like=True, tag=11):
    """To the leader: an operator has asked the sender for another leader."""

    heir: int | None  # None: the voter with the most entries


AnyMessage = (
    RequestVote | VoteAnswer | Append | AppendAnswer | Heartbeat | HeartbeatAnswer
    | SnapshotOffer | SnapshotRefused | TimeoutNow | Disowned | Transfer
)  # fmt: skip


# Requests of the core to its driver ---------------------------------------------------------------------------------


class Write(msgspec.Struct, frozen=True, gc=False):
    """Put the entries first_index .. last_index of the Append just processed into the log.

    If `truncate_from` is not 0, remove all entries from there on first, in the same order on disk.
    """

    truncate_from: int
    first_index: int
    last_index: int


class Fetch(msgspec.Struct, frozen=True, gc=False):
    """Receive the stream of the offered image, then call `fetched` or `fetch_failed`."""

    stream: int
    index: int


class Restore(msgspec.Struct, frozen=True, gc=False):
    """Replace state and log by the fetched image, and call `restored` once that is on disk."""

    stream: int
    index: int
    term: int
    config: Config


class OwnEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry that the core itself puts into the leader's log: a no-op or a configuration."""

    index: int
    term: int
    config: Config | None


class Ready(msgspec.Struct, gc=False):
    """The work of the driver.  All parts may begin at once: none depends on another.

    Messages that rest on a save stay in the core until `saved`; acknowledgements until `stable`.
    """

    save: HardState | None  # save it, then call `saved`
    entries: list[OwnEntry]  # put them into the log before any later proposal
    messages: list[Any]  # AnyMessage; keep their order for each receiver
    commit: int  # entries up to here may be applied
    images: list[int]  # peers that need an image of the state: call `offer_image` for each
    reads: list[tuple[int, int]]  # (barrier, index): answer the read once index is applied
