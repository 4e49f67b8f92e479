"""Bugs of members: the voters, and the moment of a change."""

from typing import Any

from tests.simulation.mutants.plant import Patch, mutant
from wakeq.protocol.errors import BadField
from wakeq.protocol.raft import leader as leader_file
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.leader import Leader
from wakeq.protocol.raft.membership import Config, Membership


@mutant
def members_change_when_it_is_committed() -> list[Patch]:
    append, commit_to = Membership.append, Core.commit_to

    def late_append(self: Membership, index: int, config: Any) -> None:
        self.__dict__.setdefault("waiting", []).append((index, config))

    def late_commit(self: Core, index: int) -> None:
        commit_to(self, index)
        waiting = self.members.__dict__.setdefault("waiting", [])
        while waiting and waiting[0][0] <= self.commit:
            append(self.members, *waiting.pop(0))
            if isinstance(self.role, Leader):
                self.role._follow_members()

    return [(Membership, "append", late_append), (Core, "commit_to", late_commit)]


@mutant
def several_voters_change_at_once() -> list[Patch]:
    def check_change(old: Config, new: Config) -> None:
        if not any(member.voter for member in new.members):
            raise BadField("no member would vote")

    return [(leader_file, "check_change", check_change)]


@mutant
def members_change_before_the_last_change_is_committed() -> list[Patch]:
    return [(Leader, "may_change", property(lambda self: self.core.commit >= self.first_index))]


@mutant
def truncated_members_stay() -> list[Patch]:
    return [(Membership, "truncate_from", lambda self, index: None)]


@mutant
def a_removed_leader_leads_on() -> list[Patch]:
    return [(Leader, "_resign", lambda self: None)]


@mutant
def a_node_that_may_have_been_removed_does_not_campaign() -> list[Patch]:
    return [(Membership, "may_stand", lambda self, disk_id, committed: self.votes)]
