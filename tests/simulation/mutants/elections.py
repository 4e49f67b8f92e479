"""Bugs of elections: nodes that lead or vote and should not."""

from typing import Any

from tests.simulation.mutants.plant import Patch, mutant
from wakeq.protocol.raft.candidate import Candidate
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.leader import Leader
from wakeq.protocol.raft.log_view import LogView
from wakeq.protocol.raft.membership import Membership
from wakeq.protocol.raft.messages import (
    RequestVote,
    VoteAnswer,
)
from wakeq.protocol.raft.progress import Progress


@mutant
def votes_without_looking_at_the_log() -> list[Patch]:
    return [(LogView, "is_covered_by", lambda self, last_index, last_term: True)]


@mutant
def compares_logs_by_length_alone() -> list[Patch]:
    return [(LogView, "is_covered_by", lambda self, last_index, last_term: last_index >= self.last_index)]


@mutant
def votes_twice_in_a_term() -> list[Patch]:
    def on_request_vote(self: Core, message: RequestVote) -> None:
        self.send(VoteAnswer, message.sender, True, message.pre, term=message.term)

    return [(Core, "_on_request_vote", on_request_vote)]


@mutant
def pre_votes_count_as_votes() -> list[Patch]:
    def on_vote(self: Candidate, message: VoteAnswer) -> None:
        self._count(message.sender, is_granted=message.granted)

    return [(Candidate, "on_vote", on_vote)]


@mutant
def no_pre_vote() -> list[Patch]:
    original = Core.campaign
    return [(Core, "campaign", lambda self, pre, forced=False: original(self, pre=False, forced=forced))]


@mutant
def no_check_of_the_quorum() -> list[Patch]:
    return [(Leader, "has_quorum", lambda self, now_ms: True)]


@mutant
def lets_a_living_leader_be_deposed() -> list[Patch]:
    return [(Core, "has_leader", lambda self, now_ms: False)]


@mutant
def votes_at_once_after_a_restart() -> list[Patch]:
    original = Core.__init__

    def init(self: Core, *args: Any, **named: Any) -> None:
        original(self, *args, **named)
        self.heard_ms -= self.settings.election_ms

    return [(Core, "__init__", init)]


@mutant
def refuses_to_tell_old_leaders_the_term() -> list[Patch]:
    return [(Core, "_refuse_old", lambda self, message: None)]


@mutant
def an_emptied_disk_counts() -> list[Patch]:
    def learn_disk(self: Leader, peer: Progress, message: Any) -> bool:
        return True

    return [
        (Membership, "knows", lambda self, node_id, disk_id: True),
        (Leader, "_learn_disk", learn_disk),
    ]


@mutant
def a_cluster_works_before_it_is_founded() -> list[Patch]:
    return [(Leader, "accepts", property(lambda self: self.heir is None))]


@mutant
def keeps_the_lead_while_its_disk_hangs() -> list[Patch]:
    return [(Leader, "heir_without_us", lambda self: None)]


@mutant
def removed_nodes_are_not_told() -> list[Patch]:
    return [(Core, "tell_if_removed", lambda self, node_id: None)]
