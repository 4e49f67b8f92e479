"""Pace: how fast nodes that are far behind are brought up, beside a leader that has clients to serve.  Pure.

    moments, the length of the log --> how much may be sent to each of them until the next moment

Sending so much, and taking it, costs cores and disks that others need when they are shared, and there is time: a gap is
closed evenly over some election timeouts, and no sooner.  What the leader appends meanwhile goes along, so nobody falls
further behind by it.  Whom a majority needs is never held back, nor is anybody for whom clients have to wait.
"""

from typing import TYPE_CHECKING, Final

from wakeq.protocol.raft.progress import Mode, Progress
from wakeq.protocol.raft.quorum import majority

if TYPE_CHECKING:
    from wakeq.protocol.raft.leader import Leader

ELECTIONS_TO_CATCH_UP: Final = 12  # timeouts over which a gap is closed: 8.4 s with the default
BEHIND_BYTES_MAX: Final = 256 << 20  # while a voter that answers lacks more, the leader's driver takes no proposals


class Pace:
    """See the head of this file.  Far behind is who lacks more than may be under way at once."""

    def __init__(self, leader: "Leader") -> None:
        self._leader = leader
        self._looked_ms = leader.core.now_ms
        self._looked_index = leader.core.log.last_index

    def tick(self, now_ms: int) -> None:
        """Let those who are far behind have their share of the time that has passed."""
        log, whole_ms = self._leader.core.log, ELECTIONS_TO_CATCH_UP * self._leader.core.settings.election_ms
        span_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        appended_bytes = log.size_between(self._looked_index, log.last_index)
        self._looked_index = log.last_index
        for node_id, peer in self._leader.peers.items():
            if self.look(node_id, peer):
                share_bytes = peer.gap_bytes * span_ms // whole_ms + 1  # the smallest gap is closed too
                peer.allowance_bytes += appended_bytes + share_bytes

    def look(self, node_id: int, peer: Progress) -> bool:
        """See whether a peer is brought up at leisure from now on; return whether it is."""
        lacks_bytes = self._lacks_bytes(peer.next)
        is_near = lacks_bytes <= self._far_bytes or peer.mode is not Mode.REPLICATE
        if is_near or self._is_needed(node_id, lacks_bytes):
            peer.gap_bytes = 0
        elif not peer.gap_bytes:
            peer.gap_bytes = lacks_bytes
            peer.allowance_bytes = -self._lacks_bytes(self._looked_index + 1)  # it is within the gap
        return peer.gap_bytes > 0

    @property
    def _far_bytes(self) -> int:
        return self._leader.core.settings.window.flying_bytes

    def _lacks_bytes(self, next_index: int) -> int:
        log = self._leader.core.log
        return log.size_between(next_index - 1, log.last_index)

    def _is_needed(self, node_id: int, lacks_bytes: int) -> bool:
        """Whether nothing may be committed, or proposed, without this one; or it is being handed leadership."""
        leader, voters = self._leader, self._leader.core.members.voters
        if node_id in voters and lacks_bytes > BEHIND_BYTES_MAX:
            return True
        others = sum(self._keeps_up(voter) for voter in voters if voter != node_id)
        return others < majority(len(voters)) or node_id == leader.heir

    def _keeps_up(self, voter: int) -> bool:
        """Whether a voter has about all of the log, and was heard as lately as a majority must be for a lease."""
        core = self._leader.core
        if voter == core.me.node_id:
            return True
        peer = self._leader.peers[voter]
        was_heard = core.now_ms - peer.heard_ms < core.settings.election_ms // 2
        return was_heard and not peer.forgot and self._lacks_bytes(peer.match + 1) <= self._far_bytes
