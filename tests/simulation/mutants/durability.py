"""Bugs of durability: promises before the data are on disk."""

from typing import Any

from tests.simulation.disk import Disk
from tests.simulation.mutants.plant import Patch, mutant
from wakeq.protocol.raft.candidate import Candidate
from wakeq.protocol.raft.core import Core
from wakeq.protocol.raft.follower import Follower
from wakeq.protocol.raft.leader import Leader
from wakeq.protocol.raft.messages import (
    AppendAnswer,
    HardState,
)


@mutant
def votes_leave_before_they_are_saved() -> list[Patch]:
    original = Core.ready

    def ready(self: Core) -> Any:
        self._saved = self.state
        return original(self)

    return [(Core, "ready", ready)]


@mutant
def votes_are_not_saved() -> list[Patch]:
    def save(self: Disk, state: HardState) -> None:
        self.state = HardState(state.term, None)

    return [(Disk, "save", save)]


@mutant
def the_term_is_saved_only_with_a_vote() -> list[Patch]:
    def save(self: Disk, state: HardState) -> None:
        if state.vote is not None:
            self.state = state

    return [(Disk, "save", save)]


@mutant
def acknowledges_before_it_is_on_disk() -> list[Patch]:
    def acknowledge(self: Follower, matched: int) -> None:
        self.matched = max(self.matched, matched)
        self._tell_leader(AppendAnswer, self.matched)

    return [(Follower, "_acknowledge", acknowledge)]


@mutant
def leader_counts_itself_before_its_sync() -> list[Patch]:
    original = Leader.replicate

    def replicate(self: Leader) -> None:
        self.core.stable_index = self.core.log.last_index
        self.on_stable()
        original(self)

    return [(Leader, "replicate", replicate)]


@mutant
def applies_entries_not_on_its_disk() -> list[Patch]:
    return [(Core, "committed", property(lambda self: self.commit))]


@mutant
def late_reports_of_replaced_writes_count() -> list[Patch]:
    def stable(self: Core, index: int, era: int) -> int:
        if index > self.stable_index and index <= self.log.last_index:
            self.stable_index = index
            self.role.on_stable()
        return self.committed

    return [(Core, "stable", stable)]


@mutant
def late_reports_of_saves_count_as_the_last() -> list[Patch]:
    def saved(self: Core, state: HardState) -> None:
        self._saved = state
        if state == self.state and isinstance(self.role, Candidate):
            self.role.on_saved()

    return [(Core, "saved", saved)]


@mutant
def truncation_leaves_the_stable_index() -> list[Patch]:
    def truncate_from(self: Core, index: int) -> None:
        self.log.truncate_from(index)
        self.members.truncate_from(index)
        self.stable_index = min(self.stable_index, self.log.last_index + 1)
        self.era += 1

    return [(Core, "truncate_from", truncate_from)]
