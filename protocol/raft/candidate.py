"""Candidate: asks the other voters for their votes, or first whether they would grant them.  Pure.

    ballots --> leader, or follower again, or another campaign when nobody wins in time

Section 5.2 of the paper; pre-vote is thesis 9.6.  The candidate's own ballot counts once it is on disk.  A ballot
counts only if it comes from the disk with which that voter joined.
"""

from typing import TYPE_CHECKING

from wakeq.protocol.raft.messages import RequestVote, VoteAnswer
from wakeq.protocol.raft.quorum import verdict

if TYPE_CHECKING:
    from wakeq.protocol.raft.core import Core


class Candidate:
    """One election.  With `pre` it changes nothing on any node, so a node that was isolated disturbs no leader."""

    def __init__(self, core: "Core", *, pre: bool, forced: bool) -> None:
        self.core = core
        self.pre = pre
        self._forced = forced  # the leader itself asked for this election
        self._term = core.term + 1 if pre else core.term  # the term of the election
        self._ballots: dict[int, bool] = {}  # voter -> granted
        self._clocks: list[tuple[int, bool]] = []  # the clock of each voter that granted, for the driver
        span_ms = core.settings.election_ms
        self.deadline_ms = core.now_ms + span_ms + int(span_ms * core.chance())  # then the next campaign begins

    def begin(self) -> None:
        """Ask every other voter.  The requests leave once term and vote are on disk."""
        core, log = self.core, self.core.log
        for voter in core.members.voters:
            if voter != core.me.node_id:
                fields = (log.last_index, log.last_term, self.pre, self._forced, core.acknowledged.told())
                core.send(RequestVote, voter, *fields, term=self._term)
        if self.pre:
            self._count(core.me.node_id, is_granted=True)

    def on_saved(self) -> None:
        """Count the own vote: it is on disk."""
        if not self.pre:
            self._count(self.core.me.node_id, is_granted=True)

    def on_vote(self, message: VoteAnswer) -> None:
        if message.pre is not self.pre or not self.core.members.knows(message.sender, message.disk_id):
            return
        if not message.granted or message.term == self._term:
            if message.granted and message.clock_ms:
                self._clocks.append((message.clock_ms, message.has_heard))
            self._count(message.sender, is_granted=message.granted)

    def _count(self, voter: int, *, is_granted: bool) -> None:
        self._ballots[voter] = is_granted
        match verdict(self.core.members.voters, self._ballots):
            case True if self.pre:
                self.core.campaign(pre=False)
            case True:
                self.core.become_leader(self._clocks)
            case False:
                self.core.become_follower(self.core.term)

    def tick(self, now_ms: int) -> None:
        """Campaign again after a split vote, or if too few answer."""
        if now_ms >= self.deadline_ms:
            self.core.campaign(pre=True)

    def on_stable(self) -> None:
        """Do nothing: entries that reach the disk do not change an election."""
