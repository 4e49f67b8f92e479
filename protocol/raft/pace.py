"""Pace: how fast peers that are far behind catch up, beside a leader that serves clients.  Pure.

    moments, the length of the log --> how much may be sent to each such peer until the next moment

Sending and storing many entries costs cores and disks that clients may need too, and it is not urgent: a gap is closed
evenly over some election timeouts.  Entries that the leader appends meanwhile are sent as well, so no peer falls
further behind.  A peer that a majority needs is never slowed down, nor is a peer for which clients have to wait.
"""

from typing import TYPE_CHECKING, Final

from wakeq.protocol.raft.progress import Mode, Progress
from wakeq.protocol.raft.quorum import majority

if TYPE_CHECKING:
    from wakeq.protocol.raft.leader import Leader

ELECTIONS_TO_CATCH_UP: Final = 12  # election timeouts over which a gap is closed: 8.4 s with the default
BEHIND_BYTES_MAX: Final = 256 << 20  # while a voter that answers lacks more, the leader's driver accepts no proposals


class Pace:
    """A peer is far behind if it lacks more than may be under way at once."""

    def __init__(self, leader: "Leader") -> None:
        self._leader = leader
        self._ticked_ms = leader.core.now_ms  # the last tick
        self._ticked_index = leader.core.log.last_index  # the end of the log at that tick

    def tick(self, now_ms: int) -> None:
        """Give each peer that is far behind its share for the time that has passed."""
        log, whole_ms = self._leader.core.log, ELECTIONS_TO_CATCH_UP * self._leader.core.settings.election_ms
        span_ms, self._ticked_ms = now_ms - self._ticked_ms, now_ms
        appended_bytes = log.size_between(self._ticked_index, log.last_index)
        self._ticked_index = log.last_index
        for node_id, peer in self._leader.peers.items():
            if self.update(node_id, peer):
                # Add 1, so that the smallest gap is closed too.
                share_bytes = peer.gap_bytes * span_ms // whole_ms + 1
                peer.allowance_bytes += appended_bytes + share_bytes

    def update(self, node_id: int, peer: Progress) -> bool:
        """Decide again whether a peer is slowed down; return whether it is."""
        lacks_bytes = self._lacks_bytes(peer.next)
        is_near = lacks_bytes <= self._far_bytes or peer.mode is not Mode.REPLICATE
        if is_near or self._is_needed(node_id, lacks_bytes):
            peer.gap_bytes = 0
        elif not peer.gap_bytes:
            peer.gap_bytes = lacks_bytes
            # The entries since the last tick are part of the gap; the next tick adds them once more.
            peer.allowance_bytes = -self._lacks_bytes(self._ticked_index + 1)
        return peer.gap_bytes > 0

    @property
    def _far_bytes(self) -> int:
        return self._leader.core.settings.window.flying_bytes

    def _lacks_bytes(self, next_index: int) -> int:
        log = self._leader.core.log
        return log.size_between(next_index - 1, log.last_index)

    def _is_needed(self, node_id: int, lacks_bytes: int) -> bool:
        """Whether commits or proposals wait for this peer, or leadership is being transferred to it."""
        leader, voters = self._leader, self._leader.core.members.voters
        if node_id in voters and lacks_bytes > BEHIND_BYTES_MAX:
            return True
        others = sum(self._keeps_up(voter) for voter in voters if voter != node_id)
        return others < majority(len(voters)) or node_id == leader.heir

    def _keeps_up(self, voter: int) -> bool:
        """Whether a voter has nearly all of the log, and was heard as recently as a lease requires."""
        core = self._leader.core
        if voter == core.me.node_id:
            return True
        peer = self._leader.peers[voter]
        was_heard = core.now_ms - peer.heard_ms < core.settings.election_ms // 2
        return was_heard and not peer.forgot and self._lacks_bytes(peer.match + 1) <= self._far_bytes
