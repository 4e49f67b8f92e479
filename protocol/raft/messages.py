"""The words of the core: what nodes say to each other, and what the core asks of whoever drives it.  Plain data.

Every message names its sender's disk and incarnation, so that what an emptied disk or a former life says is known
for what it is.  Payloads are never in here: an Append says which entries travel, the driver puts their bytes beside
it.  No message carries a reading of a node's own clocks.  Heartbeats and granted votes carry the cluster clock: the
driver puts it in when they leave, and the core decides nothing by it.
"""

from typing import Annotated, Any, Final

import msgspec

from wakeq.protocol.raft.membership import Config

NUMBER_END: Final = 1 << 48  # no term, index, round or life gets there: at a million a second that takes nine years
DISK_MAX: Final = (1 << 63) - 1
DiskId = Annotated[int, msgspec.Meta(ge=1, le=DISK_MAX)]
Number = Annotated[int, msgspec.Meta(ge=0, lt=NUMBER_END)]
Told = tuple[tuple[DiskId, Number], ...]  # disks, and up to which committed entry each has acknowledged the log
Runs = tuple[tuple[Number, Number], ...]  # (first index, term) of each stretch of entries of one term, in order


class HardState(msgspec.Struct, frozen=True):
    """What must be on disk before anything that rests on it leaves this node (Figure 2: persistent state)."""

    term: int
    vote: int | None


class Message(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What all messages have.  `term` is the sender's, but for a pre-vote: there it is the term it would stand in."""

    sender: int
    receiver: int
    disk_id: int  # of the sender
    incarnation: Number  # of the sender: grows with each of its starts
    term: Number


class RequestVote(Message, frozen=True, gc=False, array_like=True, tag=1):
    """RequestVote RPC (Figure 2); `pre` only asks whether it would be granted (thesis 9.6).

    `forced` is set after a transfer of leadership: the living leader itself wants this election.
    """

    last_index: Number
    last_term: Number
    pre: bool = False
    forced: bool = False
    acknowledged: Told = ()


class VoteAnswer(Message, frozen=True, gc=False, array_like=True, tag=2):
    """`term` is the term that was asked for if it is granted, the voter's own if not."""

    granted: bool
    pre: bool = False
    clock_ms: Number = 0  # the voter's cluster clock; 0: not told
    has_heard: bool = False  # whether the voter has had it from a leader since its start
    acknowledged: Told = ()


class Append(Message, frozen=True, gc=False, array_like=True, tag=3):
    """AppendEntries RPC (Figure 2): the entries prev_index+1 .. last_index, which may be none.

    `runs` are their terms, and `configs` the memberships among them, by index.
    """

    prev_index: Number
    prev_term: Number
    last_index: Number
    runs: Runs
    commit: Number
    size_bytes: Number = 0  # of the payloads, about
    configs: tuple[tuple[Number, Config], ...] = ()
    acknowledged: Told = ()  # in a probe: it is what a node that comes back hears first


class AppendAnswer(Message, frozen=True, gc=False, array_like=True, tag=4):
    """`match`: the log is the leader's, and on disk, up to here.  Or `rejected`: the prev_index that is not.

    The hint is the term that stands there instead, with its first index; 0 and the end of the log if nothing does.
    """

    match: Number
    rejected: Number | None = None
    hint_index: Number = 0
    hint_term: Number = 0


class Heartbeat(Message, frozen=True, gc=False, array_like=True, tag=5):
    """A leader lives.  Apart from Append, so that it never waits behind data; `round` comes back in the answer."""

    round: Number
    commit: Number
    clock_ms: Number = 0  # the leader's cluster clock; 0: not told
    acknowledged: Told = ()


class HeartbeatAnswer(Message, frozen=True, gc=False, array_like=True, tag=6):
    round: Number


class SnapshotOffer(Message, frozen=True, gc=False, array_like=True, tag=7):
    """InstallSnapshot RPC (Figure 13), without its data: the driver streams that under the same number."""

    index: Number
    index_term: Number
    config: Config
    stream: int


class SnapshotRefused(Message, frozen=True, gc=False, array_like=True, tag=8):
    """The stream ended before the image was whole."""

    stream: int


class TimeoutNow(Message, frozen=True, gc=False, array_like=True, tag=9):
    """Stand for election at once (thesis 3.10)."""


class Disowned(Message, frozen=True, gc=False, array_like=True, tag=10):
    """The receiver's log lacks what it acknowledged, or its disk is not the one that joined: it may not vote.

    With `removed_by` it tells instead that the receiver was removed from the cluster, by that committed entry.
    """

    disowned: int  # which disk that is: another one has nothing to do with it; 0 if it was removed
    removed_by: Number = 0


class Transfer(Message, frozen=True, gc=False, array_like=True, tag=11):
    """To the leader: an operator has asked the sender for another leader."""

    heir: int | None  # None: whoever is furthest


AnyMessage = (
    RequestVote | VoteAnswer | Append | AppendAnswer | Heartbeat | HeartbeatAnswer
    | SnapshotOffer | SnapshotRefused | TimeoutNow | Disowned | Transfer
)  # fmt: skip


# What the core asks of its driver -----------------------------------------------------------------------------------


class Write(msgspec.Struct, frozen=True, gc=False):
    """Of the Append just taken, put entries first_index .. last_index into the log.

    If `truncate_from` is not 0, everything from there on is forgotten first, in the same order on disk.
    """

    truncate_from: int
    first_index: int
    last_index: int


class Fetch(msgspec.Struct, frozen=True, gc=False):
    """The offered image is wanted: collect its stream, and say `fetched` or `fetch_failed`."""

    stream: int
    index: int


class Restore(msgspec.Struct, frozen=True, gc=False):
    """Put the fetched image in the place of state and log, and say `restored` once that is on disk."""

    stream: int
    index: int
    term: int
    config: Config


class OwnEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry that the core itself puts into the leader's log: a no-op, or a membership."""

    index: int
    term: int
    config: Config | None


class Ready(msgspec.Struct, gc=False):
    """What is to be done now.  Each part may be begun at once: nothing in here rests on another part of it.

    Messages that rest on a save stay in the core until `saved`; acknowledgements until `stable`.
    """

    save: HardState | None  # write it down, then say `saved`
    entries: list[OwnEntry]  # put them into the log before anything that is proposed later
    messages: list[Any]  # AnyMessage; those to one receiver stay in this order
    commit: int  # entries up to here may be applied
    images: list[int]  # peers that need an image of the state: call `offer_image` for each
    reads: list[tuple[int, int]]  # (barrier, index): may be answered once index is applied
