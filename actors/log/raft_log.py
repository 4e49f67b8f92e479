"""RaftLog: the one actor through which every change passes.

    what queues have, Propose --> stamp, log, one sync for each batch --> Committed --> queues
    FromPeer --> core --> what to write, to send, to commit --> log, peers, queues
    Administer --> who belongs to the cluster, and who leads it

It owns the order of changes and nothing else.  It does not look inside an entry (except to refuse those that need room
when the disk is full), and answers an asker itself only if the entry cannot be committed, or nobody can know.

Built in layers, from the bottom: LogFiles (when something is written), LogEntries (who asked for it), LogDriver
(what the consensus core wants), LogStanding (this node among the others); here is what an operator asks for.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from wakeq.actors.log.driver import Collect, GiveUp
from wakeq.actors.log.leadership import CaughtUp, LogStanding
from wakeq.actors.log.members import Introduced
from wakeq.actors.log.peer import FromPeer, PeerLost
from wakeq.actors.log.pending import answer
from wakeq.actors.log.transfer import ImageBroken, ImageFailed, ImageFetched, ImageOffer, TakeImage
from wakeq.actors.log.writer import Cut, Freed, Kept, Roll, Saved, Written
from wakeq.actors.mail import (
    Applied,
    Crowded,
    Halted,
    HandOver,
    Inquire,
    Pressure,
    Propose,
    Spoilt,
    Started,
    StepAside,
    Throttle,
    Tick,
)
from wakeq.actors.sessions.operator_mail import Administer
from wakeq.protocol.errors import BadField, NotLeader, Refused
from wakeq.protocol.queue.outcomes import Refusal
from wakeq.protocol.raft.membership import Config, Member
from wakeq.protocol.wire.peer.frames import split_address

Facts = dict[str, Any]


class RaftLog(LogStanding):
    """See the head of this file."""

    def on_receive(self, message: Any) -> None:
        _HANDLERS[type(message)](self, message)

    def on_administer(self, message: Administer) -> None:
        """Do what an operator asks for, or say why not."""
        is_leaving = message.what == "remove" and message.node_id == self.core.me.node_id
        if is_leaving or message.what == "transfer":
            self._close_first(lambda: self._obey(message))
        else:
            self._obey(message)

    def _obey(self, message: Administer) -> None:
        try:
            facts = self._administer(message)
        except Refused as error:
            refusal = self._not_leader() if isinstance(error, NotLeader) else Refusal(error.code, str(error))
            answer(message.asker, refusal)
        else:
            if facts is not None:
                asker = message.asker
                asker.tell(facts)
        self._attend()

    def _administer(self, message: Administer) -> Facts | None:
        """Return the answer, or None if it comes when what was asked for is committed."""
        match message.what:
            case "status":
                return self._status()
            case "transfer" if not self.core.leads and self._pass_on_wish(message.asker, message.node_id):
                return None
            case "transfer":
                return {"transferring_to": self._transfer(message.node_id)}
            case "add" if self._neighbours is None:
                raise BadField(
                    "this broker listens for no other node, because it runs without --peers; "
                    'docs/operations/cluster.md, "Let it grow", says how it becomes a cluster'
                )
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
            "role": self._role(),
            "term": core.term,
            "leader": core.leader_id,
            "serves": self.refusal() is None,
            "last_index": core.log.last_index,
            "committed": core.committed,
            "members": [self._describe(member) for member in core.members.config.members],
        }

    def _role(self) -> str:
        core = self.core
        member = core.members.config.member(core.me.node_id)
        if core.leads or core.is_removed or member is None:
            return "leader" if core.leads else "removed"
        return "voter" if member.voter else "learner"

    def _describe(self, member: Member) -> Facts:
        """Describe a member; only the leader knows how far it is behind."""
        core = self.core
        facts = {
            "node": member.node_id,
            "address": member.address,
            "votes": member.voter,
            "is_connected": member.node_id in self._around.connected or member.node_id == core.me.node_id,
            "behind_bytes": None,
        }
        if member.node_id == core.me.node_id:
            facts["behind_bytes"] = 0
        elif core.leads:
            match = core.leader().peers[member.node_id].counted_match
            facts["behind_bytes"] = core.log.size_between(match, core.log.last_index)
        return facts

    # --- members ---------------------------------------------------------------------------------------------------

    def _with(self, node_id: int | None, address: str) -> Config:
        config = self.core.members.config
        if node_id is None or not address:
            raise BadField("a node is added by its number and its address for the other nodes")
        split_address(address)  # check it now: what is in the log, every node has to live with
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


_HANDLERS: dict[type, Callable[[RaftLog, Any], None]] = {
    Propose: RaftLog.on_propose,
    Collect: RaftLog.on_collect,
    Tick: RaftLog.on_tick,
    Written: RaftLog.on_written,
    Started: RaftLog.on_started,
    Pressure: RaftLog.on_pressure,
    Crowded: RaftLog.on_crowded,
    Throttle: RaftLog.on_throttle,
    StepAside: RaftLog.on_step_aside,
    Spoilt: RaftLog.on_spoilt,
    Halted: RaftLog.on_halted,
    Roll: RaftLog.on_roll,
    Cut: RaftLog.on_cut,
    Freed: RaftLog.on_freed,
    Saved: RaftLog.on_saved,
    Kept: RaftLog.on_kept,
    Applied: RaftLog.on_applied,
    Introduced: RaftLog.on_introduced,
    PeerLost: RaftLog.on_peer_lost,
    FromPeer: RaftLog.on_from_peer,
    GiveUp: RaftLog.on_give_up,
    Administer: RaftLog.on_administer,
    HandOver: RaftLog.on_hand_over,
    CaughtUp: RaftLog.on_caught_up,
    Inquire: RaftLog.on_inquire,
    ImageOffer: RaftLog.on_image_offer,
    ImageFailed: RaftLog.on_image_failed,
    ImageFetched: RaftLog.on_image_fetched,
    ImageBroken: RaftLog.on_image_broken,
}
