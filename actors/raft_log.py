"""RaftLog: the one actor through which every change passes.

    Propose (subscriber, queue) --> stamp, log, one sync for each batch --> Committed --> queues
    FromPeer --> core --> what to write, to send, to commit --> log, peers, queues
    Administer --> who belongs to the cluster, and who leads it

It owns the order of things and nothing else.  It never looks inside a command (but for whether it publishes, when
publishes are refused), and answers an asker itself only when the command cannot be committed, or nobody can know.
Its parts: LogFiles (when what is written), LogEntries (who asked for it), LogLevels (what older nodes cannot read),
LogDriver (what the core wants); here is what an operator wants.
"""

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from wakeq.actors.images import ImageBroken, ImageFailed, ImageFetched, ImageOffer, TakeImage
from wakeq.actors.log_driver import GiveUp, LogDriver
from wakeq.actors.log_entries import answer
from wakeq.actors.log_files import Cut, Freed, LogServices, Roll, Saved, Written
from wakeq.actors.messages import (
    Answered,
    Applied,
    Asker,
    Halted,
    HandOver,
    Pressure,
    Propose,
    Refusal,
    Spoilt,
    Started,
    StepAside,
    Throttle,
    Tick,
)
from wakeq.actors.neighbourhood import Introduced, Neighbours
from wakeq.actors.operator_messages import Administer
from wakeq.actors.peer import FromPeer, PeerLost
from wakeq.protocol.errors import BadField, NotLeader, Refused
from wakeq.protocol.level import LEVEL
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.membership import Config, Member
from wakeq.protocol.raft.messages import HeartbeatAnswer, Ready, SnapshotOffer
from wakeq.protocol.wire.peer import Entries, split_address
from wakeq.storage.image_files import mark_spoilt

HALTED_MS_MAX = 10_000  # that another node leads, and does not set it aside
NEEDS_ROOM = (Entries, SnapshotOffer)

Facts = dict[str, Any]

logger = logging.getLogger("wakeq.raft_log")


class RaftLog(LogDriver):
    """See the head of this file."""

    def __init__(self, core: Core, services: LogServices, neighbours: Neighbours | None = None) -> None:
        super().__init__(core, services, neighbours)
        self._stands_aside = False
        self._has_passed_on = False  # for what a queue cannot apply
        self._halted_ms: dict[int, int] = {}  # since when a queue is halted on an entry

    def on_receive(self, message: Any) -> None:
        _HANDLERS[type(message)](self, message)

    def on_administer(self, message: Administer) -> None:
        """Do what an operator asks for, or say why not."""
        try:
            facts = self._administer(message)
        except Refused as error:
            refusal = self._not_leader() if isinstance(error, NotLeader) else Refusal(error.code, str(error))
            answer(message.asker, refusal)
        else:
            if facts is not None:
                asker = message.asker
                asker.process.tell(Answered([(asker.ticket, asker.place, facts)]))
        self._attend()

    def _administer(self, message: Administer) -> Facts | None:
        """Return the answer, None if it comes once what was asked for is committed."""
        match message.what:
            case "status":
                return self._status()
            case "transfer":
                return {"transferring_to": self._transfer(message.node_id)}
            case "add":
                self._change(message.asker, self._with(message.node_id, message.address))
            case "snapshot":
                assert self._images is not None, "started first"
                self._images.tell(TakeImage(message.asker))
            case "remove":
                self._change(message.asker, self._without(message.node_id))
        return None

    # --- looking ---------------------------------------------------------------------------------------------------

    def _status(self) -> Facts:
        core = self.core
        return {
            "node": core.me.node_id,
            "cluster": self._metadata.identity.cluster_id.hex(),
            "role": "leader" if core.leads else "voter" if core.members.votes else "learner",
            "term": core.term,
            "leader": core.leader_id,
            "serves": self.refusal() is None,
            "last_index": core.log.last_index,
            "committed": core.committed,
            "level": self.level,
            "members": [self._describe(member) for member in core.members.config.members],
        }

    def _describe(self, member: Member) -> Facts:
        """Say what is known of a member; how far it is, only its leader knows."""
        core = self.core
        facts = {
            "node": member.node_id,
            "address": member.address,
            "votes": member.voter,
            "is_connected": member.node_id in self._around.connected or member.node_id == core.me.node_id,
            "behind_bytes": None,
            "level": self._around.level_of(member.node_id),
        }
        if member.node_id == core.me.node_id:
            facts |= {"behind_bytes": 0, "level": LEVEL}
        elif core.leads:
            match = core.leader().peers[member.node_id].counted_match
            facts["behind_bytes"] = core.log.size_between(match, core.log.last_index)
        return facts

    # --- leadership and members ------------------------------------------------------------------------------------

    def _transfer(self, node_id: int | None) -> int:
        """Hand leadership over to a node, or to the one that is furthest."""
        leader = self.core.leader()
        if node_id is None:
            others = [voter for voter in self.core.members.voters if voter in self._around.connected]
            if not others:
                raise BadField("no other voter is connected, so nobody could take over")
            node_id = max(others, key=lambda other: leader.peers[other].counted_match)
        leader.transfer(node_id)
        return node_id

    def on_hand_over(self, message: HandOver) -> None:
        """This node is about to stop: another one is to lead, if there is one."""
        with contextlib.suppress(Refused):
            self._transfer(None)
        self._attend()

    def on_halted(self, message: Halted) -> None:
        """Set aside what a queue cannot apply, unless it may have been answered.

        Who leads in the term of the entry is the only one that could answer for it, and has not.  A later leader cannot
        know: it lets another one lead, once, which may have come to no harm.  Who is alone with it ends.
        """
        if self._led_term:
            if message.term == self._led_term or not self._pass_on():
                self.on_propose(Propose([(message.aside, None)]))
        elif self.other_leader is not None:
            now_ms, aside = self._monotonic_ms(), message.aside
            since_ms = self._halted_ms.setdefault(aside.index, now_ms)
            if now_ms - since_ms > HALTED_MS_MAX:
                raise RuntimeError(
                    f"queue {aside.queue!r} crashes on entry {aside.index} on this node only: {aside.reason}"
                )

    def _pass_on(self) -> bool:
        """Let another node lead, once; return whether one is going to."""
        if self._has_passed_on:
            return False
        self._has_passed_on = True
        try:
            self._transfer(None)
        except Refused:
            return False
        self._attend()
        return True

    def on_spoilt(self, message: Spoilt) -> None:
        """Begin again without the state on disk: it comes back from an image and the log, without that entry."""
        if self._neighbours is None:
            return  # a node that is alone writes no state while a queue is halted: it was left out at an earlier start
        logger.warning("entry %d is set aside, and in the state of this node: making that anew", message.index)
        self._is_replaced = True
        self._log.take_buffer()
        consensus, metadata = self._log.directory, self._metadata

        def work() -> None:
            metadata.save(committed=message.said_by)
            mark_spoilt(consensus, message.index)

        self._do_behind(work, self._neighbours.start_again)

    def on_step_aside(self, message: StepAside) -> None:
        """Leave what is to be written to nodes that have room for it, rather than end when there is none at all."""
        if self._neighbours is None:
            return
        self._stands_aside = message.on
        what = "steps aside: its disk is full" if message.on else "takes part again: its disk has room"
        logger.warning("this node %s", what)

    def on_from_peer(self, message: FromPeer) -> None:
        if self._stands_aside:  # as if it had been lost: the leader asks again
            frames = [frame for frame in message.frames if type(frame) not in NEEDS_ROOM]
            message = FromPeer(message.node_id, frames)
        super().on_from_peer(message)

    def _do(self, ready: Ready) -> None:
        if self._stands_aside:  # a leader must not count on who takes nothing
            ready.messages = [message for message in ready.messages if type(message) is not HeartbeatAnswer]
        super()._do(ready)

    def _with(self, node_id: int | None, address: str) -> Config:
        config = self.core.members.config
        if node_id is None or not address:
            raise BadField("a node is added by its number and its address for the other nodes")
        split_address(address)  # what stands in the log, every node has to live with
        if config.member(node_id) is not None:
            raise BadField(f"node {node_id} belongs to the cluster already; remove it first, or take another number")
        added = (*config.members, Member(node_id, voter=False, address=address))
        return msgspec.structs.replace(config, members=tuple(sorted(added, key=lambda member: member.node_id)))

    def _without(self, node_id: int | None) -> Config:
        config = self.core.members.config
        if node_id is None or config.member(node_id) is None:
            raise BadField(f"node {node_id} does not belong to the cluster; `wakeq cluster status` lists who does")
        return msgspec.structs.replace(
            config, members=tuple(member for member in config.members if member.node_id != node_id)
        )

    def _change(self, asker: Asker | None, config: Config) -> None:
        """Put other members into the log; whoever asked hears when that is committed."""
        index = self.core.leader().change_members(config)
        if asker is not None:
            self._changes[index] = asker

    def on_beat(self) -> None:
        super().on_beat()
        if self._led_term and self._stands_aside:
            self.on_hand_over(HandOver())
        if self._led_term:
            self._promote()
        if self._led_term:  # still
            self._raise_level()

    def _promote(self) -> None:
        """Let a learner vote once it has caught up."""
        core, leader = self.core, self.core.leader()
        config = core.members.config
        for member in config.members:
            is_ready = not member.voter and member.node_id in leader.peers and leader.has_caught_up(member.node_id)
            if is_ready and leader.may_change and leader.peers[member.node_id].disk_id:
                voter = msgspec.structs.replace(member, voter=True)
                members = tuple(voter if other is member else other for other in config.members)
                self._change(None, msgspec.structs.replace(config, members=members))
                self._attend()
                return

    def _note_standing(self) -> None:
        super()._note_standing()
        config = self.core.members.config
        if self._led_term and config.level < LEVEL:
            others = [member.node_id for member in config.members if member.node_id != self.core.me.node_id]
            self.core.leader().level = min([LEVEL, *[self._around.level_of(node_id) or 0 for node_id in others]])

    def _raise_level(self) -> None:
        """Let the cluster work at the highest level that all members know, now that all are here to say what they know.

        A new one does so from its beginning: there the core puts it beside the members.
        """
        core = self.core
        config, leader = core.members.config, core.leader()
        level = leader.level
        if level > config.level and config.founded and leader.may_change:
            logger.info("all nodes know level %d: the cluster works at it from now on", level)
            self._change(None, msgspec.structs.replace(config, level=level))
            self._attend()


_HANDLERS: dict[type, Callable[[RaftLog, Any], None]] = {
    Propose: RaftLog.on_propose,
    Tick: RaftLog.on_tick,
    Written: RaftLog.on_written,
    Started: RaftLog.on_started,
    Pressure: RaftLog.on_pressure,
    Throttle: RaftLog.on_throttle,
    StepAside: RaftLog.on_step_aside,
    Spoilt: RaftLog.on_spoilt,
    Halted: RaftLog.on_halted,
    Roll: RaftLog.on_roll,
    Cut: RaftLog.on_cut,
    Freed: RaftLog.on_freed,
    Saved: RaftLog.on_saved,
    Applied: RaftLog.on_applied,
    Introduced: RaftLog.on_introduced,
    PeerLost: RaftLog.on_peer_lost,
    FromPeer: RaftLog.on_from_peer,
    GiveUp: RaftLog.on_give_up,
    Administer: RaftLog.on_administer,
    HandOver: RaftLog.on_hand_over,
    ImageOffer: RaftLog.on_image_offer,
    ImageFailed: RaftLog.on_image_failed,
    ImageFetched: RaftLog.on_image_fetched,
    ImageBroken: RaftLog.on_image_broken,
}
