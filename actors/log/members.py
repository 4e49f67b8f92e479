"""Members: the other nodes of a cluster, as this one reaches them, and how the configuration of members changes.

    members, as the log has them --> a Peer for each, its address dialled
    Introduced --> where that node's doors for clients are
    messages of the core, with the entries at hand --> the Peers of their receivers
    what an operator asks for --> the next configuration; what the core knows --> the facts of `cluster status`

Parts of RaftLog.  The cluster clock goes along with heartbeats and votes, as it is when they leave.  Nothing here
decides, or waits: what is said to a node without a connection is lost, as on any network.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from wakeq.actors.log.payloads import Payloads
from wakeq.actors.log.peer import Connected, Outgoing, PeerDoor, ToSend
from wakeq.actors.runtime import Process
from wakeq.protocol.errors import BadField
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.membership import Config, Member
from wakeq.protocol.raft.messages import AnyMessage, Append, Heartbeat, VoteAnswer
from wakeq.protocol.wire.peer.frames import Hello, split_address

CARRIES_CLOCK = (Heartbeat, VoteAnswer)

Facts = dict[str, Any]


class Introduced(msgspec.Struct, frozen=True, gc=False):
    """A connection was made, and the node at its other end has said who it is."""

    door: PeerDoor
    hello: Hello


class SharedClock(Protocol):
    """The cluster clock, as the nodes tell each other of it."""

    def now_ms(self) -> int:
        """Return the moment."""

    @property
    def has_heard(self) -> bool:
        """Whether it was set by a leader since this node started; leading counts."""

    def follow(self, at_ms: int) -> None:
        """Go on from the moment that the leader has told."""

    def reach(self, stamp_ms: int) -> None:
        """Be no earlier than an entry of the log."""

    def lead(self, votes: Sequence[tuple[int, bool]]) -> None:
        """Begin to lead; each voter has told its moment, and whether that was heard from a leader."""

    def step_down(self) -> None:
        """Lead no longer."""


class Neighbours(NamedTuple):
    """How a node of a cluster reaches the others."""

    new_peer: Callable[[int], Process]
    dial: Callable[[int, str], None]  # connect to that node at this address, now and whenever it is lost
    clock: SharedClock
    start_again: Callable[[], None]  # an image is to be installed: the node begins anew with it


class PeerTable:
    """Every other node that is a member, or is connected.  A node that is alone has an empty table, for ever."""

    def __init__(self, me: int, neighbours: Neighbours | None) -> None:
        self.peers: dict[int, Process] = {}  # by node
        self.connected: dict[int, Introduced] = {}  # as each of them said who it is
        self._me = me
        self._neighbours = neighbours  # None in a node that is alone
        self._doors: dict[int, dict[str, str]] = {}  # by node: where its doors for clients are, as it has said
        self._members: set[int] = set()  # all that there ever were, as far as this life of the node has seen

    def meet(self, config: Config) -> None:
        """Know every member, and where it is."""
        if self._neighbours is None:
            return
        for member in config.members:
            if member.node_id != self._me:
                self._members.add(member.node_id)
                self._peer(member.node_id)
                self._neighbours.dial(member.node_id, member.address)

    def _peer(self, node_id: int) -> Process:
        peer = self.peers.get(node_id)
        if peer is None:
            assert self._neighbours is not None, "only in a cluster"
            peer = self.peers[node_id] = self._neighbours.new_peer(node_id)
        return peer

    def introduce(self, message: Introduced) -> None:
        """Take a connection for the one to that node."""
        hello = message.hello
        self._doors[hello.node_id] = hello.doors
        self.connected[hello.node_id] = message
        self._peer(hello.node_id).tell(Connected(message.door, hello))

    def lose(self, node_id: int, door: PeerDoor) -> None:
        """A connection to a node has ended, perhaps behind the next one.

        Where the doors of a member are is not forgotten; of any other node nothing is kept.
        """
        last = self.connected.get(node_id)
        if last is not None and last.door is door:
            del self.connected[node_id]
            if node_id not in self._members:
                self._doors.pop(node_id, None)
                self.peers.pop(node_id).stop()

    def address(self, node_id: int, door: str) -> str:
        """Return where a node has that door for clients; empty if it has not said so."""
        return self._doors.get(node_id, {}).get(door, "")

    def send(self, messages: Sequence[AnyMessage], at_hand: Payloads) -> None:
        """Let the receivers have their messages, each Append with its entries if they are at hand."""
        batches: dict[int, list[ToSend]] = {}
        for message in messages:
            payloads = None
            if type(message) is Append and message.last_index > message.prev_index:
                payloads = at_hand.get(message.prev_index + 1, message.last_index)
            elif type(message) in CARRIES_CLOCK:
                message = self._with_clock(message)
            batches.setdefault(message.receiver, []).append(ToSend(message, payloads))
        for node_id, batch in batches.items():
            if node_id in self.peers:
                self.peers[node_id].tell(Outgoing(batch))

    def _with_clock(self, message: Any) -> AnyMessage:
        """Put the cluster clock into a message that leaves now."""
        assert self._neighbours is not None, "only in a cluster"
        clock = self._neighbours.clock
        if type(message) is VoteAnswer:
            return msgspec.structs.replace(message, clock_ms=clock.now_ms(), has_heard=clock.has_heard)
        told: AnyMessage = msgspec.structs.replace(message, clock_ms=clock.now_ms())
        return told


# --- changes of the members ------------------------------------------------------------------------------------------


def with_member(config: Config, node_id: int | None, address: str) -> Config:
    """Return the members and one more, which does not vote yet."""
    if node_id is None or not address:
        raise BadField("to add a node, give its number and its address for the other nodes")
    split_address(address)  # check it now: what is in the log, every node has to live with
    if config.member(node_id) is not None:
        raise BadField(f"node {node_id} belongs to the cluster already; remove it first, or choose another number")
    added = (*config.members, Member(node_id, voter=False, address=address))
    return msgspec.structs.replace(config, members=tuple(sorted(added, key=lambda member: member.node_id)))


def without_member(config: Config, node_id: int | None) -> Config:
    if node_id is None or config.member(node_id) is None:
        raise BadField(f"node {node_id} does not belong to the cluster; `wakeq cluster status` lists its members")
    return msgspec.structs.replace(
        config, members=tuple(member for member in config.members if member.node_id != node_id)
    )


def with_next_voter(core: Core) -> Config | None:
    """Return the members with one learner that has caught up as a voter; None if there is none, or it must wait."""
    leader, config = core.leader(), core.members.config
    for member in config.members:
        is_ready = not member.voter and member.node_id in leader.peers and leader.has_caught_up(member.node_id)
        if is_ready and leader.may_change and leader.peers[member.node_id].disk_id:
            voter = msgspec.structs.replace(member, voter=True)
            members = tuple(voter if other is member else other for other in config.members)
            return msgspec.structs.replace(config, members=members)
    return None


# --- what operators see ----------------------------------------------------------------------------------------------


def role_of(core: Core) -> str:
    member = core.members.config.member(core.me.node_id)
    if core.leads or core.is_removed or member is None:
        return "leader" if core.leads else "removed"
    return "voter" if member.voter else "learner"


def describe(member: Member, core: Core, table: PeerTable) -> Facts:
    """Describe a member; only the leader knows how far it is behind."""
    me = core.me.node_id
    facts = {
        "node": member.node_id,
        "address": member.address,
        "votes": member.voter,
        "is_connected": member.node_id in table.connected or member.node_id == me,
        "behind_bytes": None,
    }
    if member.node_id == me:
        facts["behind_bytes"] = 0
    elif core.leads:
        match = core.leader().peers[member.node_id].counted_match
        facts["behind_bytes"] = core.log.size_between(match, core.log.last_index)
    return facts
